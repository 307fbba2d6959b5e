/* signals.c: views and carts of products, which count where products are ranked by score. */
#include <stdio.h>

#include "base/clock.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/reply.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* More do not fit into a body. */
#define BATCH_MAX 300
#define DAY_S     86400

struct signal_call {
    struct call call;
    size_t count;
    struct signal signals[];
};

/* What a body says of one. */
struct new_signal {
    struct span signal_id;
    struct span kind;
    struct span product_id;
    int64_t quantity;
    enum json_seen quantity_seen;
    int64_t at_ms;
};

static void work_add(struct call *call, struct service *service)
{
    struct signal_call *self = (struct signal_call *)(void *)call;
    size_t counts[SIGNAL_DIFFERS + 1] = {0};
    struct error error;
    enum status status = service_signals_add(service, self->signals, self->count, &error);
    if (status == STATUS_CONFLICT) {
        call_problem(call, PROBLEM_CONFLICT, error.text, NULL);
        return;
    }
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    for (size_t index = 0; index < self->count; index++) {
        counts[self->signals[index].result]++;
    }
    struct buffer *out = call_json(call, 200);
    buffer_printf(out, "{\"added\":%zu,\"known\":%zu,\"conflicts\":[", counts[SIGNAL_ADDED],
                  counts[SIGNAL_KNOWN]);
    bool is_first = true;
    for (size_t index = 0; index < self->count; index++) {
        if (self->signals[index].result != SIGNAL_DIFFERS) {
            continue;
        }
        buffer_append_text(out, is_first ? "" : ",");
        json_append_text(out, user_id_span(&self->signals[index].signal_id));
        is_first = false;
    }
    buffer_append_literal(out, "]}");
}

static enum sales_kind kind_of(struct span text)
{
    return span_equal(text, SPAN("view"))   ? SALES_VIEW
           : span_equal(text, SPAN("cart")) ? SALES_CART
                                            : SALES_KIND_NONE;
}

/* Neither tomorrow, nor so long ago that its id may be forgotten. */
static bool is_timely(int64_t at_ms, int64_t now_ms)
{
    int64_t earliest_ms = now_ms - INT64_C(1000) * DAY_S * (SIGNAL_DAYS_KEPT - 1);
    return at_ms == 0 || (at_ms >= earliest_ms && at_ms <= now_ms + ORDER_AHEAD_MAX_MS);
}

static bool check_signals(struct ask *ask, const struct new_signal *signals, size_t count)
{
    int64_t now_ms = clock_wall_ms();
    for (size_t index = 0; index < count; index++) {
        char field[JSON_FIELD_SIZE];
        struct error error;
        if (kind_of(signals[index].kind) == SALES_KIND_NONE) {
            snprintf(field, sizeof field, "signals.%zu.kind", index + 1);
            error_set(&error, STATUS_INVALID, "%s: must be view or cart", field);
        } else if (!is_timely(signals[index].at_ms, now_ms)) {
            snprintf(field, sizeof field, "signals.%zu.at", index + 1);
            error_set(&error, STATUS_INVALID, "%s: must be within the last %d days", field,
                      SIGNAL_DAYS_KEPT - 1);
        } else {
            continue;
        }
        ask_refuse(ask, error.text, field);
        return false;
    }
    return true;
}

void signals_add(struct ask *ask)
{
    struct new_signal one = {0};
    struct new_signal bodies[BATCH_MAX];
    struct json_list list = {.element = &one, .element_size = sizeof one, .elements = bodies};
    const struct json_field signal[] = {
        {"signal_id", JSON_ID, JSON_REQUIRED, 0, 0, &one.signal_id, NULL, NULL, 0},
        {"kind", JSON_TEXT, JSON_REQUIRED, 1, 20, &one.kind, NULL, NULL, 0},
        {"product_id", JSON_ID, JSON_REQUIRED, 0, 0, &one.product_id, NULL, NULL, 0},
        {"quantity", JSON_INTEGER, JSON_OPTIONAL, 1, ORDER_QUANTITY_MAX, &one.quantity,
         &one.quantity_seen, NULL, 0},
        {"at", JSON_TIME, JSON_OPTIONAL_OR_NULL, 0, 0, &one.at_ms, NULL, NULL, 0},
    };
    const struct json_field fields[] = {
        {"signals", JSON_LIST, JSON_REQUIRED, 1, BATCH_MAX, &list, NULL, signal, COUNT_OF(signal)},
    };
    if (!ask_admin(ask) || !ask_no_query(ask) ||
        !ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields)) ||
        !check_signals(ask, bodies, list.count)) {
        return;
    }
    struct signal_call *self = call_new(
        ask->loop, ask->exchange, sizeof *self + list.count * sizeof self->signals[0], work_add);
    if (self == NULL) {
        return;
    }
    self->call.task.queue = CLERK_KNOWN; /* Signals are many: operators pass them. */
    self->count = list.count;
    for (size_t index = 0; index < list.count; index++) {
        const struct new_signal *body = &bodies[index];
        self->signals[index] =
            (struct signal){.signal_id = user_id_of(body->signal_id),
                            .kind = kind_of(body->kind),
                            .product_id = user_id_of(body->product_id),
                            .quantity = body->quantity_seen == JSON_SEEN_VALUE ? body->quantity : 1,
                            .at_ms = body->at_ms};
    }
    call_submit_or_refuse(&self->call);
}
