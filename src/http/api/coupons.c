/* coupons.c: show, list, redeem, cancel and reissue coupons, by id or by code. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/code.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"

#define CURSOR_KIND 'c'

struct coupon_call {
    struct call call;
    int64_t policy_id;
    int64_t seq;
    bool by_code;         /* the code itself is the permission */
    struct caller caller; /* for a show by id: whose coupon it is turns out later */
    struct id order_id;
    char traceparent[TRACEPARENT_SIZE]; /* "": none */
};

/* Reads the id or code of the path, and the rest that a call about a coupon says. What is neither,
 * or is a wrong code, is answered like a coupon that does not exist: a guesser learns nothing. */
static bool read_coupon(struct ask *ask, struct coupon_call *self)
{
    struct span traceparent = ask->request->traceparent;
    enum code_kind kind =
        code_parse(ask->loop->api->service, ask->match.params[0], &self->policy_id, &self->seq);
    self->by_code = kind == CODE_FULL;
    if ((kind == CODE_FULL || kind == CODE_WRONG) && !guess_may_try_code(ask))
        return false;
    if (kind == CODE_FULL && http_exchange_notes(ask->exchange)->queue < POOL_KNOWN)
        http_exchange_notes(ask->exchange)->queue = POOL_KNOWN; /* whoever has it is no stranger */
    if (traceparent_valid(traceparent))
        memcpy(self->traceparent, traceparent.bytes, TRACEPARENT_LENGTH);
    if (kind == CODE_ID || kind == CODE_FULL)
        return true;
    if (kind == CODE_WRONG && api_auth(ask->loop->api)->has_tokens &&
        !guess_was_wrong(ask, GUESS_CODE))
        return false;
    reply_problem(ask->loop, ask->exchange, PROBLEM_NOT_FOUND);
    return false;
}

/* By the code, which is the permission, or by an operator. */
static bool may_settle(struct ask *ask, struct coupon_call *self)
{
    return read_coupon(ask, self) && (self->by_code || ask_role(ask, ACCESS_OPERATOR));
}

/* --- show --- */

static void work_show(struct call *call, struct service *service)
{
    struct coupon_call *self = (struct coupon_call *)(void *)call;
    struct coupon coupon;
    struct error error;
    enum status status = service_coupon_get(service, self->policy_id, self->seq, &coupon, &error);
    /* Another user's: to this one there is no such coupon. */
    if (status == STATUS_OK && !self->by_code &&
        auth_may_see(api_auth(call->loop->api), &self->caller, &coupon.claim.user) != NULL)
        status = STATUS_NOT_FOUND;
    if (call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        render_coupon(call_json(call, 200), service, &coupon, clock_wall_ms(), CODE_SHOWN);
}

void coupons_show(struct ask *ask)
{
    struct coupon_call self = {.seq = 0};
    /* Whose coupon it is turns out later; who may not even see their own may not ask. */
    if (!read_coupon(ask, &self) || (!self.by_code && !ask_may_see(ask, &ask->caller.user)))
        return;
    self.caller = ask->caller;
    call_start_copy(ask, work_show, &self.call, sizeof(self));
}

/* --- list --- */

static enum status read_list(const struct call *call, struct service *service, void *rows,
                             size_t max, size_t *count, struct error *error)
{
    return service_coupons_of_user(service, &call->id, call->page.after_first,
                                   call->page.after_second, rows, max, count, error);
}

static void render_row(struct buffer *out, const struct service *service, const void *row)
{
    render_coupon(out, service, row, clock_wall_ms(), CODE_SHOWN);
}

static void place_row(const void *row, int64_t *first, int64_t *second)
{
    const struct claim *claim = &((const struct coupon *)row)->claim;
    *first = claim->policy_id;
    *second = claim->seq;
}

static void work_list(struct call *call, struct service *service)
{
    static const struct call_rows rows = {
        sizeof(struct coupon), CURSOR_KIND, read_list, render_row, place_row,
    };
    call_list(call, service, &rows);
}

void coupons_list(struct ask *ask)
{
    if (ask_page(ask, CURSOR_KIND, NULL))
        call_start(ask, work_list);
}

/* --- redeem and cancel --- */

/* 200 with the coupon, or 409 with the state that forbids it. */
static void answer_settled(struct call *call, const struct service *service, enum status status,
                           const struct coupon *coupon, const struct error *error)
{
    int64_t now_ms = clock_wall_ms();
    if (status == STATUS_OK) {
        render_coupon(call_json(call, 200), service, coupon, now_ms, CODE_SHOWN);
        return;
    }
    if (status != STATUS_CONFLICT) {
        (void)call_is_done(call, status, error, PROBLEM_NOT_FOUND);
        return;
    }
    call->is_problem = true;
    call->problem = PROBLEM_CONFLICT;
    buffer_clear(&call->body);
    problem_begin(&call->body, PROBLEM_CONFLICT, span_of(error->text));
    json_put(&call->body, "coupon_state",
             coupon_state_name(coupon_state_at(coupon->state, coupon->expires_at_ms, now_ms)));
    buffer_append_literal(&call->body, "}");
}

static void work_redeem(struct call *call, struct service *service)
{
    struct coupon_call *self = (struct coupon_call *)(void *)call;
    struct coupon coupon;
    struct error error;
    enum status status = service_coupon_redeem(service, self->policy_id, self->seq, &self->order_id,
                                               self->traceparent, &coupon, &error);
    answer_settled(call, service, status, &coupon, &error);
}

static void work_cancel(struct call *call, struct service *service)
{
    struct coupon_call *self = (struct coupon_call *)(void *)call;
    struct coupon coupon;
    struct error error;
    enum status status = service_coupon_cancel(service, self->policy_id, self->seq,
                                               self->traceparent, &coupon, &error);
    if (status == STATUS_OK) {
        call_log(call, "coupon_cancelled", LOG_FIELD("policy", LOG_I64(self->policy_id)),
                 LOG_FIELD("seq", LOG_I64(self->seq)));
    }
    answer_settled(call, service, status, &coupon, &error);
}

void coupons_redeem(struct ask *ask)
{
    struct coupon_call self = {.seq = 0};
    struct span order_id = {NULL, 0};
    const struct json_field fields[] = {
        {"order_id", JSON_ID, JSON_OPTIONAL, 0, 0, &order_id, NULL, NULL, 0},
    };
    if (!may_settle(ask, &self) || !ask_body(ask, ASK_BODY_OPTIONAL, fields, 1))
        return;
    if (order_id.length > 0)
        self.order_id = id_of(order_id);
    call_start_copy(ask, work_redeem, &self.call, sizeof(self));
}

void coupons_cancel(struct ask *ask)
{
    struct coupon_call self = {.seq = 0};
    if (may_settle(ask, &self) && ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0))
        call_start_copy(ask, work_cancel, &self.call, sizeof(self));
}

/* --- reissue --- */

static void work_reissue(struct call *call, struct service *service)
{
    struct coupon_call *self = (struct coupon_call *)(void *)call;
    struct coupon coupon;
    struct error error;
    enum status status = service_coupon_reissue(service, self->policy_id, self->seq,
                                                self->traceparent, &coupon, &error);
    if (status == STATUS_OK)
        call_log(call, "coupon_reissued", LOG_FIELD("policy", LOG_I64(self->policy_id)),
                 LOG_FIELD("seq", LOG_I64(self->seq)),
                 LOG_FIELD("became", LOG_I64(coupon.claim.seq)));
    answer_settled(call, service, status, &coupon, &error);
}

void coupons_reissue(struct ask *ask)
{
    struct coupon_call self = {.seq = 0};
    if (read_coupon(ask, &self) && ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0))
        call_start_copy(ask, work_reissue, &self.call, sizeof(self));
}
