/* users.c: block users, and erase them. */
#include "base/log.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "ledger/actions.h"
#include "ledger/erase.h"

/* --- blocked, or not any more --- */

struct user_call {
    struct call call;
    bool blocked;
    enum erase_care care;
};

static void note_block(struct call *call, struct service *service, bool blocked)
{
    char target[ACTION_TARGET_SIZE];
    char texts[2][32];
    struct buffer states[2];

    for (int i = 0; i < 2; i++) {
        states[i] = (struct buffer){
            .bytes = texts[i], .capacity = sizeof(texts[i]), .length_max = sizeof(texts[i]) - 1};
        json_begin(&states[i], '{');
        json_put_flag(&states[i], "blocked", (i == 1) == blocked);
        buffer_append_literal(&states[i], "}");
    }
    action_user_target(target, &call->id);
    action_note(call, service, blocked ? "user_blocked" : "user_unblocked", target, &states[0],
                &states[1]);
}

static void work_block(struct call *call, struct service *service)
{
    struct user_call *self = (struct user_call *)(void *)call;
    struct error error;
    bool was_blocked = false;
    bool is_known =
        ledger_user_blocked(service_ledger(service), &call->id, &was_blocked, &error) == STATUS_OK;
    enum status status = service_user_block(service, &call->id, self->blocked, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    call_log(call, self->blocked ? "user_blocked" : "user_unblocked",
             LOG_FIELD("user", LOG_SPAN(id_span(&call->id))));
    if (!is_known || was_blocked != self->blocked)
        note_block(call, service, self->blocked);
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{");
    json_put(out, "user", id_span(&call->id));
    json_put_flag(out, "blocked", self->blocked);
    buffer_append_literal(out, "}");
}

void users_put(struct ask *ask)
{
    bool blocked = false;
    const struct json_field fields[] = {
        {"blocked", JSON_FLAG, JSON_REQUIRED, 0, 0, &blocked, NULL, NULL, 0},
    };
    if (ask_body(ask, ASK_BODY_REQUIRED, fields, 1))
        call_start_with(ask, work_block, struct user_call, .blocked = blocked);
}

/* --- erased --- */

/* The log and the list of actions do not have the id: it is what was to go. */
static void work_erase(struct call *call, struct service *service)
{
    struct user_call *self = (struct user_call *)(void *)call;
    struct erasure_report report;
    struct error error;
    char target[ACTION_TARGET_SIZE];
    enum status status = service_user_erase(service, &call->id, self->care, &report, &error);

    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    call_log(call, "user_erased", LOG_FIELD("pseudonym", LOG_SPAN(id_span(&report.pseudonym))),
             LOG_FIELD("coupons", LOG_I64(report.coupon_count)));
    action_user_target(target, &report.pseudonym);
    action_note(call, service, "user_erased", target, NULL, NULL);
    struct buffer *out = call_json(call, 200);
    json_begin(out, '{');
    json_put(out, "pseudonym", id_span(&report.pseudonym));
    json_put(out, "coupons", report.coupon_count);
    buffer_append_literal(out, "}");
}

void users_erase(struct ask *ask)
{
    bool anyway = false;
    const struct json_field fields[] = {
        {"anyway", JSON_FLAG, JSON_OPTIONAL, 0, 0, &anyway, NULL, NULL, 0},
    };
    if (ask_body(ask, ASK_BODY_OPTIONAL, fields, 1))
        call_start_with(ask, work_erase, struct user_call,
                        .care = anyway ? ERASE_ANYWAY : ERASE_SAFELY);
}
