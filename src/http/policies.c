/* policies.c: create, list, show, change and close policies. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/live.h"
#include "http/render.h"
#include "http/reply.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define CURSOR_KIND     'p'

struct policy_call {
    struct call call;
    int64_t id;
    struct policy policy;        /* to create */
    struct policy_change change; /* to make */
    struct page page;            /* to list */
};

/* 0 stands for "none" in the model, and the first moment of 1970 for a time long past. */
static int64_t moment(enum json_seen seen, int64_t wall_ms)
{
    if (seen != JSON_SEEN_VALUE) {
        return 0;
    }
    return wall_ms == 0 ? 1 : wall_ms;
}

static void answer_policy(struct call *call, int status, const struct policy_view *view)
{
    render_policy(call_json(call, status), view);
}

/* --- create --- */

/* What the body of a new policy says. */
struct new_policy {
    int64_t id;
    struct span name;
    struct span discount_type;
    int64_t discount_value;
    int64_t total;
    int64_t per_user_limit;
    int64_t opens_at_ms;
    int64_t closes_at_ms;
    int64_t coupon_valid_days;
    int64_t reserve;
    enum json_seen opens_at_seen;
    enum json_seen closes_at_seen;
    enum json_seen days_seen;
};

static bool read_new_policy(struct ask *ask, struct new_policy *body)
{
    const struct json_field discount[] = {
        {"type", JSON_TEXT, JSON_REQUIRED, 1, 20, &body->discount_type, NULL, NULL, 0},
        {"value", JSON_INTEGER, JSON_REQUIRED, INT64_MIN, INT64_MAX, &body->discount_value, NULL,
         NULL, 0}, /* The range is its type's. */
    };
    const struct json_field fields[] = {
        {"id", JSON_INTEGER, JSON_OPTIONAL, 1, POLICY_ID_MAX, &body->id, NULL, NULL, 0},
        {"name", JSON_TEXT, JSON_REQUIRED, 1, POLICY_NAME_CHARACTERS_MAX, &body->name, NULL, NULL,
         0},
        {"discount", JSON_OBJECT, JSON_REQUIRED, 0, 0, NULL, NULL, discount, COUNT_OF(discount)},
        {"total", JSON_INTEGER, JSON_REQUIRED, 1, POLICY_TOTAL_MAX, &body->total, NULL, NULL, 0},
        {"per_user_limit", JSON_INTEGER, JSON_OPTIONAL, 1, PER_USER_LIMIT_MAX,
         &body->per_user_limit, NULL, NULL, 0},
        {"opens_at", JSON_TIME, JSON_OPTIONAL_OR_NULL, 0, 0, &body->opens_at_ms,
         &body->opens_at_seen, NULL, 0},
        {"closes_at", JSON_TIME, JSON_OPTIONAL_OR_NULL, 0, 0, &body->closes_at_ms,
         &body->closes_at_seen, NULL, 0},
        {"coupon_valid_days", JSON_INTEGER, JSON_OPTIONAL_OR_NULL, 1, COUPON_VALID_DAYS_MAX,
         &body->coupon_valid_days, &body->days_seen, NULL, 0},
        {"reserve", JSON_INTEGER, JSON_OPTIONAL, 0, POLICY_TOTAL_MAX, &body->reserve, NULL, NULL,
         0},
    };
    return ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields));
}

/* The rules between fields; the words of the first that is broken, and its name. */
static const char *check_new_policy(const struct new_policy *body, const char **field)
{
    bool percent = span_equal(body->discount_type, SPAN("percent"));
    if (!percent && !span_equal(body->discount_type, SPAN("fixed"))) {
        *field = "discount.type";
        return "discount.type: must be percent or fixed";
    }
    if (body->discount_value < 1 ||
        body->discount_value > (percent ? DISCOUNT_PERCENT_MAX : DISCOUNT_FIXED_MAX)) {
        *field = "discount.value";
        return percent ? "discount.value: must be an integer from 1 to 100"
                       : "discount.value: must be an integer from 1 to 1000000000000";
    }
    if (body->reserve > body->total) {
        *field = "reserve";
        return "reserve: must not be more than total";
    }
    int64_t opens_at_ms = moment(body->opens_at_seen, body->opens_at_ms);
    int64_t closes_at_ms = moment(body->closes_at_seen, body->closes_at_ms);
    if (closes_at_ms != 0 && closes_at_ms <= opens_at_ms) {
        *field = "closes_at";
        return "closes_at: must be after opens_at";
    }
    /* The ledger keeps names as text that ends at its first NUL. */
    if (memchr(body->name.bytes, '\0', body->name.length) != NULL) {
        *field = "name";
        return "name: must not contain the character NUL";
    }
    return NULL;
}

static void fill_policy(const struct new_policy *body, struct policy *policy)
{
    policy->id = body->id;
    memcpy(policy->name, body->name.bytes, body->name.length);
    policy->name[body->name.length] = '\0';
    policy->discount_type =
        span_equal(body->discount_type, SPAN("percent")) ? DISCOUNT_PERCENT : DISCOUNT_FIXED;
    policy->discount_value = body->discount_value;
    policy->total = body->total;
    policy->per_user_limit = (int32_t)body->per_user_limit;
    policy->opens_at_ms = moment(body->opens_at_seen, body->opens_at_ms);
    policy->closes_at_ms = moment(body->closes_at_seen, body->closes_at_ms);
    policy->coupon_valid_days =
        body->days_seen == JSON_SEEN_VALUE ? (int32_t)body->coupon_valid_days : 0;
    policy->reserve = body->reserve;
}

static void work_create(struct call *call, struct service *service)
{
    struct policy_call *self = (struct policy_call *)(void *)call;
    struct policy_view view;
    struct error error;
    enum status status = service_policy_create(service, &self->policy, &view, &error);
    if (status == STATUS_CONFLICT) {
        call_problem(call, PROBLEM_CONFLICT, error.text, "id");
        return;
    }
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_POLICY_NOT_FOUND);
        return;
    }
    call_log(call, "policy_created", LOG_FIELD("policy", LOG_I64(view.policy.id)),
             LOG_FIELD("total", LOG_I64(view.policy.total)));
    live_policy_created(call->loop->api, &view);
    answer_policy(call, 201, &view);
    snprintf(call->location, sizeof call->location, "/v1/policies/%" PRId64, view.policy.id);
}

void policies_create(struct ask *ask)
{
    struct new_policy body = {.per_user_limit = 1};
    const char *field = NULL;
    if (!ask_admin(ask) || !ask_no_query(ask) || !read_new_policy(ask, &body)) {
        return;
    }
    const char *refusal = check_new_policy(&body, &field);
    if (refusal != NULL) {
        ask_refuse(ask, refusal, field);
        return;
    }
    struct policy_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_create);
    if (self != NULL) {
        fill_policy(&body, &self->policy);
        call_submit_or_refuse(&self->call);
    }
}

/* --- read --- */

static enum status read_list(const struct call *call, struct service *service, void *rows,
                             size_t max, size_t *count, struct error *error)
{
    const struct policy_call *self = (const struct policy_call *)(const void *)call;
    return service_policy_list(service, self->page.after_first, rows, max, count, error);
}

static void render_row(struct buffer *out, const struct service *service, const void *row)
{
    (void)service;
    render_policy(out, row);
}

static void place_row(const void *row, int64_t *first, int64_t *second)
{
    *first = ((const struct policy_view *)row)->policy.id;
    *second = 0;
}

static void work_list(struct call *call, struct service *service)
{
    static const struct call_rows rows = {
        sizeof(struct policy_view), CURSOR_KIND, read_list, render_row, place_row,
    };
    call_list(call, service, ((struct policy_call *)(void *)call)->page.limit, &rows);
}

void policies_list(struct ask *ask)
{
    struct page page;
    if (!ask_admin(ask) || !ask_page(ask, CURSOR_KIND, &page)) {
        return;
    }
    struct policy_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_list);
    if (self != NULL) {
        self->page = page;
        call_submit_or_refuse(&self->call);
    }
}

static void work_show(struct call *call, struct service *service)
{
    struct policy_call *self = (struct policy_call *)(void *)call;
    struct policy_view view;
    struct error error;
    enum status status = service_policy_show(service, self->id, &view, &error);
    if (status == STATUS_OK) {
        answer_policy(call, 200, &view);
    } else {
        call_failed(call, status, &error, PROBLEM_POLICY_NOT_FOUND);
    }
}

void policies_show(struct ask *ask)
{
    int64_t id;
    if (!ask_identify(ask) || !ask_policy_id(ask, 0, &id) || !ask_no_query(ask)) {
        return;
    }
    struct policy_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_show);
    if (self != NULL) {
        self->id = id;
        call_submit_or_refuse(&self->call);
    }
}

/* --- change and close --- */

static void work_change(struct call *call, struct service *service)
{
    struct policy_call *self = (struct policy_call *)(void *)call;
    struct policy_view view;
    struct error error;
    enum status status = service_policy_change(service, self->id, &self->change, &view, &error);
    if (status == STATUS_OK) {
        call_log(call, self->change.closes ? "policy_closed" : "policy_changed",
                 LOG_FIELD("policy", LOG_I64(self->id)),
                 LOG_FIELD("version", LOG_I64(view.policy.version)));
        live_policy_changed(call->loop->api, self->id);
        answer_policy(call, 200, &view);
    } else if (status == STATUS_CONFLICT && self->change.sets_total) {
        call_problem(call, PROBLEM_CONFLICT, error.text, "total");
    } else {
        call_failed(call, status, &error, PROBLEM_POLICY_NOT_FOUND);
    }
}

static bool read_change(struct ask *ask, struct policy_change *change)
{
    enum json_seen total = JSON_NOT_SEEN;
    enum json_seen opens_at = JSON_NOT_SEEN;
    enum json_seen closes_at = JSON_NOT_SEEN;
    enum json_seen paused = JSON_NOT_SEEN;
    const struct json_field fields[] = {
        {"total", JSON_INTEGER, JSON_OPTIONAL, 1, POLICY_TOTAL_MAX, &change->total, &total, NULL,
         0},
        {"opens_at", JSON_TIME, JSON_OPTIONAL_OR_NULL, 0, 0, &change->opens_at_ms, &opens_at, NULL,
         0},
        {"closes_at", JSON_TIME, JSON_OPTIONAL_OR_NULL, 0, 0, &change->closes_at_ms, &closes_at,
         NULL, 0},
        {"paused", JSON_FLAG, JSON_OPTIONAL, 0, 0, &change->paused, &paused, NULL, 0},
    };
    if (!ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields))) {
        return false;
    }
    change->sets_total = total != JSON_NOT_SEEN;
    change->sets_opens_at = opens_at != JSON_NOT_SEEN;
    change->sets_closes_at = closes_at != JSON_NOT_SEEN;
    change->sets_paused = paused != JSON_NOT_SEEN;
    change->opens_at_ms = moment(opens_at, change->opens_at_ms);
    change->closes_at_ms = moment(closes_at, change->closes_at_ms);
    return true;
}

void policies_change(struct ask *ask)
{
    struct policy_change change = {0};
    int64_t id;
    if (!ask_admin(ask) || !ask_policy_id(ask, 0, &id) || !ask_no_query(ask) ||
        !read_change(ask, &change)) {
        return;
    }
    bool changes_something =
        change.sets_total || change.sets_opens_at || change.sets_closes_at || change.sets_paused;
    struct policy_call *self = call_new(ask->loop, ask->exchange, sizeof *self,
                                        changes_something ? work_change : work_show);
    if (self != NULL) {
        self->id = id;
        self->change = change;
        call_submit_or_refuse(&self->call);
    }
}

void policies_close(struct ask *ask)
{
    int64_t id;
    if (!ask_admin(ask) || !ask_policy_id(ask, 0, &id) || !ask_no_query(ask)) {
        return;
    }
    struct policy_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_change);
    if (self != NULL) {
        self->id = id;
        self->change.closes = true;
        call_submit_or_refuse(&self->call);
    }
}
