/* coupons.c: show, list, redeem and cancel coupons, by id or by code. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/code.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/render.h"
#include "http/reply.h"
#include "relay/event.h"

#define CURSOR_KIND 'c'

struct coupon_call {
    struct call call;
    int64_t policy_id;
    int64_t seq;
    bool by_code;         /* the code itself is the permission */
    struct caller caller; /* for a show by id: whose coupon it is turns out later */
    struct user_id user;  /* whose list */
    struct page page;
    struct user_id order_id;
    char traceparent[TRACEPARENT_SIZE]; /* "": none */
};

/* Reads the id or code of the path. What is neither, or is a wrong code, is answered like a
 * coupon that does not exist: a guesser learns nothing. */
static bool read_coupon(struct ask *ask, int64_t *policy_id, int64_t *seq, bool *by_code)
{
    enum code_kind kind = code_parse(ask->loop->api->service, ask->match.params[0], policy_id, seq);
    *by_code = kind == CODE_FULL;
    if ((kind == CODE_FULL || kind == CODE_WRONG) && !guess_may_try_code(ask)) {
        return false;
    }
    if (kind == CODE_FULL && http_exchange_notes(ask->exchange)->queue < CLERK_KNOWN) {
        http_exchange_notes(ask->exchange)->queue = CLERK_KNOWN; /* whoever has it is no stranger */
    }
    if (kind == CODE_ID || kind == CODE_FULL) {
        return true;
    }
    if (kind == CODE_WRONG && ask->loop->api->auth.has_tokens &&
        !guess_was_wrong(ask, GUESS_CODE)) {
        return false;
    }
    reply_problem(ask->loop, ask->exchange, PROBLEM_NOT_FOUND);
    return false;
}

/* A call about one coupon, or NULL after answering. */
static struct coupon_call *new_call(struct ask *ask, int64_t policy_id, int64_t seq, bool by_code,
                                    void (*work)(struct call *, struct service *))
{
    struct coupon_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work);
    if (self != NULL) {
        self->policy_id = policy_id;
        self->seq = seq;
        self->by_code = by_code;
        self->caller = ask->caller;
        self->traceparent[0] = '\0';
        if (traceparent_valid(ask->request->traceparent)) {
            memcpy(self->traceparent, ask->request->traceparent.bytes, TRACEPARENT_LENGTH);
            self->traceparent[TRACEPARENT_LENGTH] = '\0';
        }
    }
    return self;
}

/* --- show --- */

static void work_show(struct call *call, struct service *service)
{
    struct coupon_call *self = (struct coupon_call *)(void *)call;
    struct coupon coupon;
    struct error error;
    enum status status = service_coupon_get(service, self->policy_id, self->seq, &coupon, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    const struct auth *auth = &call->loop->api->auth;
    if (!self->by_code && auth_may_see(auth, &self->caller, &coupon.claim.user) != NULL) {
        /* Another user's: to this one there is no such coupon. */
        call_failed(call, STATUS_NOT_FOUND, &error, PROBLEM_NOT_FOUND);
        return;
    }
    render_coupon(call_json(call, 200), service, &coupon, clock_wall_ms(), CODE_SHOWN);
}

void coupons_show(struct ask *ask)
{
    int64_t policy_id;
    int64_t seq;
    bool by_code;
    if (!ask_no_query(ask) || !read_coupon(ask, &policy_id, &seq, &by_code)) {
        return;
    }
    /* Whose coupon it is turns out later; who may not even see their own may not ask. */
    if (!by_code && !ask_may_see(ask, &ask->caller.user)) {
        return;
    }
    struct coupon_call *self = new_call(ask, policy_id, seq, by_code, work_show);
    if (self != NULL) {
        call_submit_or_refuse(&self->call);
    }
}

/* --- list --- */

static enum status read_list(const struct call *call, struct service *service, void *rows,
                             size_t max, size_t *count, struct error *error)
{
    const struct coupon_call *self = (const struct coupon_call *)(const void *)call;
    return service_coupons_of_user(service, &self->user, self->page.after_first,
                                   self->page.after_second, rows, max, count, error);
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
    call_list(call, service, ((struct coupon_call *)(void *)call)->page.limit, &rows);
}

void coupons_list(struct ask *ask)
{
    struct user_id user;
    struct page page;
    if (!ask_user(ask, 0, &user) || !ask_may_see(ask, &user) ||
        !ask_page(ask, CURSOR_KIND, &page)) {
        return;
    }
    struct coupon_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_list);
    if (self != NULL) {
        self->user = user;
        self->page = page;
        call_submit_or_refuse(&self->call);
    }
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
        call_failed(call, status, error, PROBLEM_NOT_FOUND);
        return;
    }
    call->is_problem = true;
    call->problem = PROBLEM_CONFLICT;
    buffer_clear(&call->body);
    problem_begin(&call->body, PROBLEM_CONFLICT, span_of(error->text));
    problem_add_text(
        &call->body, "coupon_state",
        span_of(coupon_state_name(coupon_state_at(coupon->state, coupon->expires_at_ms, now_ms))));
    problem_end(&call->body);
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
    int64_t policy_id;
    int64_t seq;
    bool by_code;
    struct span order_id = {NULL, 0};
    const struct json_field fields[] = {
        {"order_id", JSON_ID, JSON_OPTIONAL, 0, 0, &order_id, NULL, NULL, 0},
    };
    if (!read_coupon(ask, &policy_id, &seq, &by_code) || (!by_code && !ask_admin(ask)) ||
        !ask_no_query(ask) || !ask_body(ask, ASK_BODY_OPTIONAL, fields, 1)) {
        return;
    }
    struct coupon_call *self = new_call(ask, policy_id, seq, by_code, work_redeem);
    if (self != NULL) {
        if (order_id.length > 0) {
            self->order_id = user_id_of(order_id);
        }
        call_submit_or_refuse(&self->call);
    }
}

void coupons_cancel(struct ask *ask)
{
    int64_t policy_id;
    int64_t seq;
    bool by_code;
    if (!read_coupon(ask, &policy_id, &seq, &by_code) || (!by_code && !ask_admin(ask)) ||
        !ask_no_query(ask) || !ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0)) {
        return;
    }
    struct coupon_call *self = new_call(ask, policy_id, seq, by_code, work_cancel);
    if (self != NULL) {
        call_submit_or_refuse(&self->call);
    }
}
