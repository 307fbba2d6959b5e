/* orders.c: paid orders, one or many at once, and refunds. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/zone.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/reply.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* More do not fit into a body. */
#define BATCH_MAX 300
#define ITEMS_MAX 600

struct order_call {
    struct call call;
    struct user_id order_id; /* to show, to refund */
    bool is_batch;
    size_t count;
    struct order *orders; /* to add; they and their items lie behind this */
};

/* --- rendering --- */

static void render_order(struct buffer *out, const struct order *order)
{
    char day[ZONE_DAY_TEXT_SIZE];

    zone_format_day(order->day, day);
    json_put(out, "order_id", user_id_span(&order->order_id));
    json_put_time(out, "paid_at", order->paid_at_ms);
    json_put_time(out, "received_at", order->received_at_ms);
    json_put_time(out, "refunded_at", order->refunded_at_ms);
    json_put(out, "day", day);
}

static void render_result(struct buffer *out, const struct order *order)
{
    static const char *const names[] = {
        [ORDER_ADDED] = "ADDED", [ORDER_KNOWN] = "KNOWN", [ORDER_DIFFERS] = "CONFLICT"};
    buffer_printf(out, "{\"result\":\"%s\",", names[order->result]);
    render_order(out, order);
    buffer_append_literal(out, "}");
}

/* --- adding --- */

/* What a body says. */
struct new_item {
    struct span product_id;
    int64_t quantity;
};

struct new_order {
    struct span order_id;
    int64_t paid_at_ms;
    struct json_part items;
};

struct new_orders {
    struct new_order first; /* where each order is read into, and the only one without a list */
    struct new_order orders[BATCH_MAX];
    struct new_item items[ITEMS_MAX];
    size_t count;
    size_t item_count;
    bool is_batch;
};

static void answer_one(struct call *call, const struct order *order)
{
    if (order->result == ORDER_DIFFERS) {
        call_problem(call, PROBLEM_CONFLICT,
                     "An order with this order_id and another time or other items is there.",
                     "order_id");
        return;
    }
    render_result(call_json(call, order->result == ORDER_ADDED ? 201 : 200), order);
    if (order->result == ORDER_ADDED) {
        snprintf(call->location, sizeof call->location, "/v1/orders/%.*s", order->order_id.length,
                 order->order_id.bytes);
    }
}

static void work_add(struct call *call, struct service *service)
{
    struct order_call *self = (struct order_call *)(void *)call;
    struct error error;
    enum status status = service_orders_add(service, self->orders, self->count, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    if (!self->is_batch) {
        answer_one(call, &self->orders[0]);
        return;
    }
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{\"items\":[");
    for (size_t index = 0; index < self->count; index++) {
        if (index > 0) {
            buffer_append_literal(out, ",");
        }
        render_result(out, &self->orders[index]);
    }
    buffer_append_literal(out, "]}");
}

/* One order as the body itself, or {"orders": [...]}. */
static bool read_orders(struct ask *ask, struct new_orders *body)
{
    struct new_item item = {0};
    struct new_order *order = &body->first;
    enum json_seen id_seen;
    enum json_seen items_seen;
    enum json_seen time_seen;
    enum json_seen orders_seen;
    struct json_list items = {.element = &item,
                              .element_size = sizeof item,
                              .elements = body->items,
                              .part = &order->items,
                              .elements_max = ITEMS_MAX};
    struct json_list orders = {
        .element = order, .element_size = sizeof *order, .elements = body->orders};
    const struct json_field item_fields[] = {
        {"product_id", JSON_ID, JSON_REQUIRED, 0, 0, &item.product_id, NULL, NULL, 0},
        {"quantity", JSON_INTEGER, JSON_REQUIRED, 1, ORDER_QUANTITY_MAX, &item.quantity, NULL, NULL,
         0},
    };
    const struct json_field order_fields[] = {
        {"order_id", JSON_ID, JSON_REQUIRED, 0, 0, &order->order_id, NULL, NULL, 0},
        {"paid_at", JSON_TIME, JSON_OPTIONAL_OR_NULL, 0, 0, &order->paid_at_ms, NULL, NULL, 0},
        {"items", JSON_LIST, JSON_REQUIRED, 1, ORDER_ITEMS_MAX, &items, NULL, item_fields,
         COUNT_OF(item_fields)},
    };
    const struct json_field fields[] = {
        {"order_id", JSON_ID, JSON_OPTIONAL, 0, 0, &order->order_id, &id_seen, NULL, 0},
        {"paid_at", JSON_TIME, JSON_OPTIONAL_OR_NULL, 0, 0, &order->paid_at_ms, &time_seen, NULL,
         0},
        {"items", JSON_LIST, JSON_OPTIONAL, 1, ORDER_ITEMS_MAX, &items, &items_seen, item_fields,
         COUNT_OF(item_fields)},
        {"orders", JSON_LIST, JSON_OPTIONAL, 1, BATCH_MAX, &orders, &orders_seen, order_fields,
         COUNT_OF(order_fields)},
    };
    if (!ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields))) {
        return false;
    }
    body->is_batch = orders_seen != JSON_NOT_SEEN;
    bool is_one =
        id_seen != JSON_NOT_SEEN || items_seen != JSON_NOT_SEEN || time_seen != JSON_NOT_SEEN;
    if (body->is_batch && is_one) {
        ask_refuse(ask, "orders: must stand alone", "orders");
        return false;
    }
    if (!body->is_batch && id_seen == JSON_NOT_SEEN) {
        ask_refuse(ask, "order_id: is missing", "order_id");
        return false;
    }
    if (!body->is_batch && items_seen == JSON_NOT_SEEN) {
        ask_refuse(ask, "items: is missing", "items");
        return false;
    }
    if (!body->is_batch) {
        body->orders[0] = body->first;
    }
    body->count = body->is_batch ? orders.count : 1;
    body->item_count = items.count;
    return true;
}

/* Nothing is paid tomorrow. */
static bool check_times(struct ask *ask, const struct new_orders *body)
{
    int64_t latest_ms = clock_wall_ms() + ORDER_AHEAD_MAX_MS;
    for (size_t index = 0; index < body->count; index++) {
        char field[JSON_FIELD_SIZE] = "paid_at";
        struct error error;
        if (body->orders[index].paid_at_ms <= latest_ms) {
            continue;
        }
        if (body->is_batch) {
            snprintf(field, sizeof field, "orders.%zu.paid_at", index + 1);
        }
        error_set(&error, STATUS_INVALID, "%s: must not be in the future", field);
        ask_refuse(ask, error.text, field);
        return false;
    }
    return true;
}

/* A clerk works on it when the body is long gone: it takes a copy. */
static struct order_call *new_add_call(struct ask *ask, const struct new_orders *body)
{
    size_t orders_size = body->count * sizeof(struct order);
    size_t items_size = body->item_count * sizeof(struct order_item);
    struct order_call *self =
        call_new(ask->loop, ask->exchange, sizeof *self + orders_size + items_size, work_add);
    if (self == NULL) {
        return NULL;
    }
    struct order_item *items = (struct order_item *)(void *)((char *)(self + 1) + orders_size);
    self->call.task.queue = CLERK_KNOWN; /* The shop's orders are many: operators pass them. */
    self->orders = (struct order *)(void *)(self + 1);
    self->count = body->count;
    self->is_batch = body->is_batch;
    for (size_t index = 0; index < body->item_count; index++) {
        items[index] = (struct order_item){.product_id = user_id_of(body->items[index].product_id),
                                           .quantity = body->items[index].quantity};
    }
    for (size_t index = 0; index < body->count; index++) {
        const struct new_order *order = &body->orders[index];
        self->orders[index] = (struct order){.order_id = user_id_of(order->order_id),
                                             .paid_at_ms = order->paid_at_ms,
                                             .items = items + order->items.first,
                                             .item_count = order->items.count};
    }
    return self;
}

void orders_add(struct ask *ask)
{
    struct new_orders body;
    memset(&body.first, 0, sizeof body.first);
    if (!ask_admin(ask) || !ask_no_query(ask) || !read_orders(ask, &body) ||
        !check_times(ask, &body)) {
        return;
    }
    struct order_call *self = new_add_call(ask, &body);
    if (self != NULL) {
        call_submit_or_refuse(&self->call);
    }
}

/* --- one order --- */

static void work_show(struct call *call, struct service *service)
{
    struct order_call *self = (struct order_call *)(void *)call;
    struct order_item items[ORDER_ITEMS_MAX];
    struct order order;
    struct error error;
    enum status status = service_order_get(service, &self->order_id, &order, items, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{");
    render_order(out, &order);
    buffer_append_literal(out, ",\"items\":[");
    for (size_t index = 0; index < order.item_count; index++) {
        buffer_append_text(out, index > 0 ? ",{\"product_id\":" : "{\"product_id\":");
        json_append_text(out, user_id_span(&order.items[index].product_id));
        json_put(out, "quantity", order.items[index].quantity);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]}");
}

static void work_refund(struct call *call, struct service *service)
{
    struct order_call *self = (struct order_call *)(void *)call;
    struct order order;
    struct error error;
    bool is_news = false;
    enum status status = service_order_refund(service, &self->order_id, &order, &is_news, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    if (is_news) {
        call_log(call, "order_refunded",
                 LOG_FIELD("order", LOG_SPAN(user_id_span(&self->order_id))));
    }
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{");
    render_order(out, &order);
    buffer_append_literal(out, "}");
}

static void submit_one(struct ask *ask, void (*work)(struct call *, struct service *))
{
    struct user_id order_id;
    if (!ask_id(ask, 0, "order_id", &order_id)) {
        return;
    }
    struct order_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work);
    if (self != NULL) {
        self->order_id = order_id;
        call_submit_or_refuse(&self->call);
    }
}

void orders_show(struct ask *ask)
{
    if (ask_admin(ask) && ask_no_query(ask)) {
        submit_one(ask, work_show);
    }
}

void orders_refund(struct ask *ask)
{
    if (ask_admin(ask) && ask_no_query(ask) && ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0)) {
        submit_one(ask, work_refund);
    }
}
