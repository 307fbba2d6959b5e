/* users.c: block a user, or lift it. */
#include "base/log.h"
#include "http/call.h"
#include "http/handlers.h"

struct user_call {
    struct call call;
    struct user_id user;
    bool blocked;
};

static void work_put(struct call *call, struct service *service)
{
    struct user_call *self = (struct user_call *)(void *)call;
    struct error error;
    enum status status = service_user_block(service, &self->user, self->blocked, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    call_log(call, self->blocked ? "user_blocked" : "user_unblocked",
             LOG_FIELD("user", LOG_SPAN(user_id_span(&self->user))));
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{");
    json_put(out, "user", user_id_span(&self->user));
    buffer_append_literal(out, ",\"blocked\":");
    buffer_append_text(out, self->blocked ? "true" : "false");
    buffer_append_literal(out, "}");
}

void users_put(struct ask *ask)
{
    struct user_id user;
    bool blocked = false;
    const struct json_field fields[] = {
        {"blocked", JSON_FLAG, JSON_REQUIRED, 0, 0, &blocked, NULL, NULL, 0},
    };
    if (!ask_admin(ask) || !ask_user(ask, 0, &user) || !ask_no_query(ask) ||
        !ask_body(ask, ASK_BODY_REQUIRED, fields, 1)) {
        return;
    }
    struct user_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_put);
    if (self != NULL) {
        self->user = user;
        self->blocked = blocked;
        call_submit_or_refuse(&self->call);
    }
}
