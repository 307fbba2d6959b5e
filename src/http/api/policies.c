/* policies.c: create, list, show, change, close and check policies. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/policy.h"
#include "claim/preflight.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"
#include "http/live/live.h"

#define POLICY_TARGET_SIZE 32
#define POLICY_STATE_MAX   8192
#define COUNT_OF(array)    (sizeof(array) / sizeof((array)[0]))

#define CURSOR_KIND        'p'

struct policy_call {
    struct call call;
    struct policy policy;        /* to create */
    struct policy_change change; /* to make */
};

/* --- what a body says --- */

struct policy_body {
    struct span name;
    struct span discount_type;
    struct span currency;
    int64_t numbers[POLICY_COLUMN_COUNT];
    bool flags[POLICY_COLUMN_COUNT];
    enum json_seen seen[POLICY_COLUMN_COUNT];
};

/* The JSON field of a number, a time or a flag, by its row in the table. */
static struct json_field column_field(enum policy_column column, bool is_required,
                                      struct policy_body *body)
{
    const struct policy_column_rule *rule = &policy_columns[column];
    bool is_time = rule->kind == POLICY_TIME_OR_NONE;
    bool is_flag = rule->kind == POLICY_FLAG;
    bool may_be_null = is_time || rule->kind == POLICY_NUMBER_OR_NONE;
    return (struct json_field){
        .name = rule->name,
        .kind = is_time   ? JSON_TIME
                : is_flag ? JSON_FLAG
                          : JSON_INTEGER,
        .presence = is_required   ? JSON_REQUIRED
                    : may_be_null ? JSON_OPTIONAL_OR_NULL
                                  : JSON_OPTIONAL,
        .minimum = rule->minimum,
        .maximum = rule->maximum,
        .target = is_flag ? (void *)&body->flags[column] : &body->numbers[column],
        .seen = &body->seen[column],
    };
}

/* Reads the body, and makes its numbers those of the model: 0 stands for "none" there, and the
 * first moment of 1970 for a time long past. */
static bool read_body(struct ask *ask, const struct json_field *fields, size_t count,
                      struct policy_body *body)
{
    if (!ask_body_read(ask, ASK_BODY_REQUIRED, fields, count))
        return false;
    for (int i = 0; i < POLICY_COLUMN_COUNT; i++) {
        int64_t *number = &body->numbers[i];
        if (policy_columns[i].kind == POLICY_FLAG)
            *number = body->flags[i];
        else if (policy_columns[i].kind == POLICY_TIME_OR_NONE && body->seen[i] != JSON_SEEN_VALUE)
            *number = 0;
        else if (policy_columns[i].kind == POLICY_TIME_OR_NONE && *number == 0)
            *number = 1;
    }
    return true;
}

/* --- what was done --- */

/* `was` without an id: there was none. */
static void note_policy(struct call *call, struct service *service, const char *what,
                        const struct policy *was, const struct policy *became)
{
    char target[POLICY_TARGET_SIZE];
    struct buffer states[2];

    for (int i = 0; i < 2; i++)
        buffer_init(&states[i], POLICY_STATE_MAX);
    if (was->id != 0)
        action_write_policy(&states[0], was);
    action_write_policy(&states[1], became);
    snprintf(target, sizeof(target), "policies/%" PRId64, became->id);
    if (!span_equal(buffer_span(&states[0]), buffer_span(&states[1])))
        action_note(call, service, what, target, &states[0], &states[1]);
    for (int i = 0; i < 2; i++)
        buffer_release(&states[i]);
}

/* --- create --- */

/* The fields of a body: all that may be given when a policy is made, or that may change later. */
struct policy_fields {
    struct json_field discount[2];
    struct json_field fields[POLICY_COLUMN_COUNT];
    size_t count;
};

static void policy_fields_of(struct policy_fields *all, bool is_new, struct policy_body *body)
{
    enum json_seen *seen = body->seen;
    enum json_presence presence = is_new ? JSON_REQUIRED : JSON_OPTIONAL;
    /* The range of the value is its type's. */
    all->discount[0] = (struct json_field){
        "type", JSON_TEXT, JSON_REQUIRED, 1, 20, &body->discount_type, NULL, NULL, 0};
    all->discount[1] =
        (struct json_field){"value",   JSON_INTEGER, JSON_REQUIRED,
                            INT64_MIN, INT64_MAX,    &body->numbers[POLICY_COLUMN_discount_value],
                            NULL,      NULL,         0};
    all->count = 0;
    if (is_new)
        all->fields[all->count++] = column_field(POLICY_COLUMN_id, false, body);
    all->fields[all->count++] = (struct json_field){"name",
                                                    JSON_TEXT,
                                                    presence,
                                                    1,
                                                    POLICY_NAME_CHARACTERS_MAX,
                                                    &body->name,
                                                    &seen[POLICY_COLUMN_name],
                                                    NULL,
                                                    0};
    all->fields[all->count++] = (struct json_field){"discount",
                                                    JSON_OBJECT,
                                                    presence,
                                                    0,
                                                    0,
                                                    NULL,
                                                    &seen[POLICY_COLUMN_discount_value],
                                                    all->discount,
                                                    2};
    for (int i = POLICY_COLUMN_total; i < POLICY_COLUMN_COUNT; i++) {
        const struct policy_column_rule *rule = &policy_columns[i];
        if (rule->kind == POLICY_CURRENCY)
            all->fields[all->count++] = (struct json_field){
                rule->name, JSON_TEXT, JSON_OPTIONAL_OR_NULL, 3, 3, &body->currency, &seen[i],
                NULL,       0};
        else if (is_new ? rule->given != POLICY_NOT_GIVEN : rule->later != POLICY_STAYS)
            all->fields[all->count++] =
                column_field(i, is_new && rule->given == POLICY_REQUIRED, body);
    }
}

/* What is in the body's texts as numbers; what is none is noted. */
static void read_texts(struct ask *ask, struct policy_body *body)
{
    int64_t *numbers = body->numbers;
    if (body->seen[POLICY_COLUMN_discount_value] == JSON_SEEN_VALUE) {
        bool percent = span_equal(body->discount_type, SPAN("percent"));
        if (!percent && !span_equal(body->discount_type, SPAN("fixed")))
            ask_note(ask, "discount.type", "must be percent or fixed");
        else if (numbers[POLICY_COLUMN_discount_value] < 1 ||
                 numbers[POLICY_COLUMN_discount_value] >
                     (percent ? DISCOUNT_PERCENT_MAX : DISCOUNT_FIXED_MAX))
            ask_note(ask, "discount.value",
                     percent ? "must be an integer from 1 to 100"
                             : "must be an integer from 1 to 1000000000000");
        numbers[POLICY_COLUMN_discount_type] = percent ? DISCOUNT_PERCENT : DISCOUNT_FIXED;
        body->seen[POLICY_COLUMN_discount_type] = JSON_SEEN_VALUE;
    }
    if (body->seen[POLICY_COLUMN_currency] == JSON_SEEN_VALUE) {
        numbers[POLICY_COLUMN_currency] = currency_of(body->currency);
        if (numbers[POLICY_COLUMN_currency] == CURRENCY_NONE)
            ask_note(ask, "currency",
                     "must be a code of ISO 4217 in capitals, such as KRW or USD, or null");
    }
}

static bool read_policy_body(struct ask *ask, bool is_new, struct policy_body *body)
{
    struct policy_fields all;
    policy_fields_of(&all, is_new, body);
    if (!read_body(ask, all.fields, all.count, body))
        return false;
    read_texts(ask, body);
    return ask_is_right(ask);
}

static struct policy policy_of(const struct policy_body *body)
{
    struct policy policy = {.per_user_limit = 1};
    memcpy(policy.name, body->name.bytes, body->name.length);
    for (int i = 0; i < POLICY_COLUMN_COUNT; i++)
        if (body->seen[i] == JSON_SEEN_VALUE && policy_columns[i].kind != POLICY_TEXT)
            ensure(policy_set_number(&policy, i, body->numbers[i]));
    return policy;
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
    if (!call_is_done(call, status, &error, PROBLEM_POLICY_NOT_FOUND))
        return;
    call_log(call, "policy_created", LOG_FIELD("policy", LOG_I64(view.policy.id)),
             LOG_FIELD("total", LOG_I64(view.policy.total)));
    live_policy_created(call->loop->api, &view);
    note_policy(call, service, "policy_created", &(struct policy){.id = 0}, &view.policy);
    render_policy(call_json(call, 201), &view);
    snprintf(call->location, sizeof(call->location), "/v1/policies/%" PRId64, view.policy.id);
}

void policies_create(struct ask *ask)
{
    struct policy_body body = {.name = SPAN("")};
    if (!read_policy_body(ask, true, &body))
        return;
    struct policy policy = policy_of(&body);
    const char *field = NULL;
    const char *refusal;
    for (size_t from = 0; (refusal = policy_broken_rule(&policy, &from, &field)) != NULL;)
        ask_note(ask, field, refusal);
    if (ask_is_right(ask))
        call_start_with(ask, work_create, struct policy_call, .policy = policy);
}

/* --- read --- */

static enum status read_list(const struct call *call, struct service *service, void *rows,
                             size_t max, size_t *count, struct error *error)
{
    return service_policy_list(service, call->page.after_first, rows, max, count, error);
}

static void render_row(struct buffer *out, const struct service *service, const void *row)
{
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
    call_list(call, service, &rows);
}

void policies_list(struct ask *ask)
{
    if (ask_page(ask, CURSOR_KIND, NULL))
        call_start(ask, work_list);
}

static void work_show(struct call *call, struct service *service)
{
    struct policy_view view;
    struct error error;
    enum status status = service_policy_show(service, call->policy_id, &view, &error);
    if (call_is_done(call, status, &error, PROBLEM_POLICY_NOT_FOUND))
        render_policy(call_json(call, 200), &view);
}

void policies_show(struct ask *ask)
{
    call_start(ask, work_show);
}

/* --- change and close --- */

static void work_change(struct call *call, struct service *service)
{
    struct policy_call *self = (struct policy_call *)(void *)call;
    struct policy_view view;
    struct policy was;
    struct error error;
    if (ledger_policy_get(service_ledger(service), call->policy_id, &was, &error) != STATUS_OK)
        was.id = 0;
    enum status status =
        service_policy_change(service, call->policy_id, &self->change, &view, &error);
    if (status == STATUS_CONFLICT && policy_change_sets(&self->change, POLICY_COLUMN_total)) {
        call_problem(call, PROBLEM_CONFLICT, error.text, "total");
    } else if (call_is_done(call, status, &error, PROBLEM_POLICY_NOT_FOUND)) {
        call_log(call, self->change.closes ? "policy_closed" : "policy_changed",
                 LOG_FIELD("policy", LOG_I64(call->policy_id)),
                 LOG_FIELD("version", LOG_I64(view.policy.version)));
        live_policy_changed(call->loop->api, call->policy_id);
        note_policy(call, service, self->change.closes ? "policy_closed" : "policy_changed", &was,
                    &view.policy);
        render_policy(call_json(call, 200), &view);
    }
}

static bool read_change(struct ask *ask, struct policy_change *change)
{
    struct policy_body body = {.name = SPAN("")};
    if (!read_policy_body(ask, false, &body))
        return false;
    for (int i = 0; i < POLICY_COLUMN_COUNT; i++)
        change->sets |= body.seen[i] != JSON_NOT_SEEN ? 1U << i : 0;
    memcpy(change->to, body.numbers, sizeof(change->to));
    memcpy(change->name, body.name.bytes, body.name.length);
    return true;
}

void policies_change(struct ask *ask)
{
    struct policy_change change = {0};
    if (!read_change(ask, &change))
        return;
    if (change.sets != 0)
        call_start_with(ask, work_change, struct policy_call, .change = change);
    else
        call_start(ask, work_show);
}

void policies_close(struct ask *ask)
{
    call_start_with(ask, work_change, struct policy_call, .change = {.closes = true});
}

/* --- whether everything that a drop needs is there --- */

static void render_preflight(struct buffer *out, const struct preflight *preflight)
{
    json_begin(out, '{');
    json_put_flag(out, "ready", preflight_is_ready(preflight));
    json_put_time(out, "now", preflight->now_ms);
    buffer_append_literal(out, ",\"checks\":[");
    for (size_t index = 0; index < preflight->count; index++) {
        const struct preflight_check *check = &preflight->checks[index];
        json_begin(out, '{');
        json_put(out, "name", check->name);
        json_put(out, "state", preflight_state_name(check->state));
        json_put(out, "words", check->text);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]}");
}

static void work_preflight(struct call *call, struct service *service)
{
    struct preflight preflight;
    struct error error = {.text = ""};
    enum status status = service_preflight(service, call->policy_id, &preflight, &error);
    if (call_is_done(call, status, &error, PROBLEM_POLICY_NOT_FOUND))
        render_preflight(call_json(call, 200), &preflight);
}

void preflight_show(struct ask *ask)
{
    call_start(ask, work_preflight);
}
