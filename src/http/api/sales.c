/* sales.c: paid orders and refunds, one or many at once; views and carts, which count where
 * products are ranked by score; names and prices of what is sold. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/url.h"
#include "base/zone.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* More do not fit into a body. */
#define BATCH_MAX 300
#define ITEMS_MAX 600

struct order_call {
    struct call call;
    bool is_batch;
    size_t count;
    struct order *orders; /* to add; they and their items lie behind this */
};

/* --- rendering --- */

static void render_order(struct buffer *out, const struct order *order)
{
    char day[ZONE_DAY_TEXT_SIZE];

    zone_format_day(order->day, day);
    json_put(out, "order_id", id_span(&order->order_id));
    json_put_time(out, "paid_at", order->paid_at_ms);
    json_put_time(out, "received_at", order->received_at_ms);
    json_put_time(out, "refunded_at", order->refunded_at_ms);
    json_put(out, "day", day);
}

static void render_result(struct buffer *out, const struct order *order)
{
    static const char *const names[] = {
        [ORDER_ADDED] = "ADDED", [ORDER_KNOWN] = "KNOWN", [ORDER_DIFFERS] = "CONFLICT"};
    json_begin(out, '{');
    json_put(out, "result", names[order->result]);
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
    if (order->result == ORDER_ADDED) {
        struct buffer *out = call_json(call, 201);
        buffer_append_literal(out, "/v1/orders/");
        url_append_word(out, id_span(&order->order_id));
        call_move_location(call, out);
    }
    render_result(call_json(call, order->result == ORDER_ADDED ? 201 : 200), order);
}

static void order_work_add(struct call *call, struct service *service)
{
    struct order_call *self = (struct order_call *)(void *)call;
    struct error error;
    enum status status = service_orders_add(service, self->orders, self->count, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    if (!self->is_batch) {
        answer_one(call, &self->orders[0]);
        return;
    }
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{\"items\":[");
    for (size_t index = 0; index < self->count; index++)
        render_result(out, &self->orders[index]);
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
                              .element_size = sizeof(item),
                              .elements = body->items,
                              .part = &order->items,
                              .elements_max = ITEMS_MAX};
    struct json_list orders = {
        .element = order, .element_size = sizeof(*order), .elements = body->orders};
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
    if (!ask_body_read(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields)))
        return false;
    body->is_batch = orders_seen != JSON_NOT_SEEN;
    bool is_one =
        id_seen != JSON_NOT_SEEN || items_seen != JSON_NOT_SEEN || time_seen != JSON_NOT_SEEN;
    if (body->is_batch && is_one)
        ask_note(ask, "orders", "must stand alone");
    if (!body->is_batch && id_seen == JSON_NOT_SEEN)
        ask_note(ask, "order_id", "is missing");
    if (!body->is_batch && items_seen == JSON_NOT_SEEN)
        ask_note(ask, "items", "is missing");
    if (!ask_is_right(ask))
        return false;
    if (!body->is_batch)
        body->orders[0] = body->first;
    body->count = body->is_batch ? orders.count : 1;
    body->item_count = items.count;
    return true;
}

/* Nothing is paid tomorrow, and what is not kept any more may have been counted. */
static bool check_times(struct ask *ask, const struct new_orders *body)
{
    int64_t latest_ms = clock_wall_ms() + ORDER_AHEAD_MAX_MS;
    int64_t earliest_ms = ledger_orders_earliest_ms(service_ledger(ask->loop->api->service));
    for (size_t index = 0; index < body->count; index++) {
        char field[JSON_FIELD_SIZE] = "paid_at";
        int64_t paid_at_ms = body->orders[index].paid_at_ms;
        bool is_old = paid_at_ms != 0 && paid_at_ms < earliest_ms;
        if (paid_at_ms <= latest_ms && !is_old)
            continue;
        if (body->is_batch)
            snprintf(field, sizeof(field), "orders.%zu.paid_at", index + 1);
        ask_note(ask, field,
                 is_old ? "must not be longer ago than orders_keep_days"
                        : "must not be in the future");
    }
    return ask_is_right(ask);
}

/* A pool thread works on it when the body is long gone: it takes a copy. */
static struct order_call *new_add_call(struct ask *ask, const struct new_orders *body)
{
    size_t orders_size = body->count * sizeof(struct order);
    size_t items_size = body->item_count * sizeof(struct order_item);
    struct order_call *self =
        call_new(ask, sizeof(*self) + orders_size + items_size, order_work_add);
    if (self == NULL)
        return NULL;
    struct order_item *items = (struct order_item *)(void *)((char *)(self + 1) + orders_size);
    self->orders = (struct order *)(void *)(self + 1);
    self->count = body->count;
    self->is_batch = body->is_batch;
    for (size_t index = 0; index < body->item_count; index++) {
        items[index] = (struct order_item){.product_id = id_of(body->items[index].product_id),
                                           .quantity = body->items[index].quantity};
    }
    for (size_t index = 0; index < body->count; index++) {
        const struct new_order *order = &body->orders[index];
        self->orders[index] = (struct order){.order_id = id_of(order->order_id),
                                             .paid_at_ms = order->paid_at_ms,
                                             .items = items + order->items.first,
                                             .item_count = order->items.count};
    }
    return self;
}

void orders_add(struct ask *ask)
{
    struct new_orders body;
    memset(&body.first, 0, sizeof(body.first));
    if (!read_orders(ask, &body) || !check_times(ask, &body))
        return;
    struct order_call *self = new_add_call(ask, &body);
    if (self != NULL)
        call_submit_or_refuse(&self->call);
}

/* --- one order --- */

static void order_work_show(struct call *call, struct service *service)
{
    struct order_item items[ORDER_ITEMS_MAX];
    struct order order;
    struct error error;
    enum status status =
        ledger_order_get(service_ledger(service), &call->id, &order, items, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{");
    render_order(out, &order);
    buffer_append_literal(out, ",\"items\":[");
    for (size_t index = 0; index < order.item_count; index++) {
        json_begin(out, '{');
        json_put(out, "product_id", id_span(&order.items[index].product_id));
        json_put(out, "quantity", order.items[index].quantity);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]}");
}

static void order_work_refund(struct call *call, struct service *service)
{
    struct order order;
    struct error error;
    bool is_news = false;
    enum status status = service_order_refund(service, &call->id, &order, &is_news, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    if (is_news)
        call_log(call, "order_refunded", LOG_FIELD("order", LOG_SPAN(id_span(&call->id))));
    struct buffer *out = call_json(call, 200);
    buffer_append_literal(out, "{");
    render_order(out, &order);
    buffer_append_literal(out, "}");
}

void orders_show(struct ask *ask)
{
    call_start(ask, order_work_show);
}

void orders_refund(struct ask *ask)
{
    if (ask_body(ask, ASK_BODY_OPTIONAL, NULL, 0))
        call_start(ask, order_work_refund);
}

/* --- signals --- */

#define DAY_S 86400

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

static void signal_work_add(struct call *call, struct service *service)
{
    struct signal_call *self = (struct signal_call *)(void *)call;
    size_t counts[SIGNAL_DIFFERS + 1] = {0};
    struct error error;
    enum status status = service_signals_add(service, self->signals, self->count, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    for (size_t index = 0; index < self->count; index++)
        counts[self->signals[index].result]++;
    struct buffer *out = call_json(call, 200);
    buffer_printf(out, "{\"added\":%zu,\"known\":%zu,\"conflicts\":[", counts[SIGNAL_ADDED],
                  counts[SIGNAL_KNOWN]);
    bool is_first = true;
    for (size_t index = 0; index < self->count; index++) {
        if (self->signals[index].result != SIGNAL_DIFFERS)
            continue;
        buffer_append_text(out, is_first ? "" : ",");
        json_append_text(out, id_span(&self->signals[index].signal_id));
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
            snprintf(field, sizeof(field), "signals.%zu.kind", index + 1);
            error_set(&error, STATUS_INVALID, "%s: must be view or cart", field);
        } else if (!is_timely(signals[index].at_ms, now_ms)) {
            snprintf(field, sizeof(field), "signals.%zu.at", index + 1);
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
    struct json_list list = {.element = &one, .element_size = sizeof(one), .elements = bodies};
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
    if (!ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields)) ||
        !check_signals(ask, bodies, list.count))
        return;
    struct signal_call *self =
        call_new(ask, sizeof(*self) + list.count * sizeof(self->signals[0]), signal_work_add);
    if (self == NULL)
        return;
    self->count = list.count;
    for (size_t index = 0; index < list.count; index++) {
        const struct new_signal *body = &bodies[index];
        self->signals[index] =
            (struct signal){.signal_id = id_of(body->signal_id),
                            .kind = kind_of(body->kind),
                            .product_id = id_of(body->product_id),
                            .quantity = body->quantity_seen == JSON_SEEN_VALUE ? body->quantity : 1,
                            .at_ms = body->at_ms};
    }
    call_submit_or_refuse(&self->call);
}

/* --- products --- */

/* More do not fit into a body. */
#define IMPORT_MAX 600

struct product_call {
    struct call call;
    size_t count;
    struct product products[];
};

/* What a body says of a product. */
struct new_product {
    struct span id;
    struct span name;
    int64_t price;
    enum json_seen price_seen;
};

static void render_product(struct buffer *out, const struct product *product)
{
    buffer_append_literal(out, "{");
    json_put(out, "product_id", id_span(&product->id));
    json_put(out, "name", product->name);
    json_put_unless(out, "price", PRODUCT_PRICE_NONE, product->price);
    json_put_time(out, "updated_at", product->updated_at_ms);
    buffer_append_literal(out, "}");
}

static void fill_product(struct product *product, struct span id, const struct new_product *body)
{
    product->id = id_of(id);
    memcpy(product->name, body->name.bytes, body->name.length);
    product->name[body->name.length] = '\0';
    product->price = body->price_seen == JSON_SEEN_VALUE ? body->price : PRODUCT_PRICE_NONE;
}

static struct product_call *product_new_call(struct ask *ask, size_t count, call_work *work)
{
    struct product_call *self =
        call_new(ask, sizeof(*self) + count * sizeof(self->products[0]), work);
    if (self != NULL)
        self->count = count;
    return self;
}

/* --- put --- */

static void product_work_put(struct call *call, struct service *service)
{
    struct product_call *self = (struct product_call *)(void *)call;
    struct error error;
    enum status status = service_products_put(service, self->products, self->count, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    render_product(call_json(call, 200), &self->products[0]);
}

void products_put(struct ask *ask)
{
    struct new_product body = {0};
    const struct json_field fields[] = {
        {"name", JSON_TEXT, JSON_REQUIRED, 1, PRODUCT_NAME_CHARACTERS_MAX, &body.name, NULL, NULL,
         0},
        {"price", JSON_INTEGER, JSON_OPTIONAL_OR_NULL, 0, PRODUCT_PRICE_MAX, &body.price,
         &body.price_seen, NULL, 0},
    };
    if (!ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields)))
        return;
    struct product_call *self = product_new_call(ask, 1, product_work_put);
    if (self != NULL) {
        fill_product(&self->products[0], id_span(&ask->id), &body);
        call_submit_or_refuse(&self->call);
    }
}

/* --- import --- */

static void product_work_import(struct call *call, struct service *service)
{
    struct product_call *self = (struct product_call *)(void *)call;
    struct error error;
    enum status status = service_products_put(service, self->products, self->count, &error);
    if (!call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        return;
    call_log(call, "products_imported", LOG_FIELD("count", LOG_I64((int64_t)self->count)));
    buffer_printf(call_json(call, 200), "{\"count\":%zu}", self->count);
}

void products_import(struct ask *ask)
{
    struct new_product one = {0};
    struct new_product bodies[IMPORT_MAX];
    struct json_list list = {.element = &one, .element_size = sizeof(one), .elements = bodies};
    const struct json_field product[] = {
        {"product_id", JSON_ID, JSON_REQUIRED, 0, 0, &one.id, NULL, NULL, 0},
        {"name", JSON_TEXT, JSON_REQUIRED, 1, PRODUCT_NAME_CHARACTERS_MAX, &one.name, NULL, NULL,
         0},
        {"price", JSON_INTEGER, JSON_OPTIONAL_OR_NULL, 0, PRODUCT_PRICE_MAX, &one.price,
         &one.price_seen, NULL, 0},
    };
    const struct json_field fields[] = {
        {"products", JSON_LIST, JSON_REQUIRED, 1, IMPORT_MAX, &list, NULL, product,
         COUNT_OF(product)},
    };
    if (!ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields)))
        return;
    struct product_call *self = product_new_call(ask, list.count, product_work_import);
    if (self != NULL) {
        for (size_t index = 0; index < list.count; index++)
            fill_product(&self->products[index], bodies[index].id, &bodies[index]);
        call_submit_or_refuse(&self->call);
    }
}

/* --- show --- */

static void product_work_show(struct call *call, struct service *service)
{
    struct product product;
    struct error error;
    enum status status = ledger_product_get(service_ledger(service), &call->id, &product, &error);
    if (call_is_done(call, status, &error, PROBLEM_NOT_FOUND))
        render_product(call_json(call, 200), &product);
}

void products_show(struct ask *ask)
{
    call_start(ask, product_work_show);
}
