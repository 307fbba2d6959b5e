/* products.c: names and prices of what is sold. */
#include <stdlib.h>

#include "base/log.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/reply.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* More do not fit into a body. */
#define IMPORT_MAX 600

struct product_call {
    struct call call;
    struct user_id id; /* to show */
    size_t count;
    struct product products[]; /* to put */
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
    json_put(out, "product_id", user_id_span(&product->id));
    json_put(out, "name", product->name);
    buffer_append_literal(out, ",\"price\":");
    if (product->price == PRODUCT_PRICE_NONE) {
        buffer_append_literal(out, "null");
    } else {
        buffer_append_i64(out, product->price);
    }
    json_put_time(out, "updated_at", product->updated_at_ms);
    buffer_append_literal(out, "}");
}

static void fill_product(struct product *product, struct span id, const struct new_product *body)
{
    product->id = user_id_of(id);
    memcpy(product->name, body->name.bytes, body->name.length);
    product->name[body->name.length] = '\0';
    product->price = body->price_seen == JSON_SEEN_VALUE ? body->price : PRODUCT_PRICE_NONE;
}

static struct product_call *new_call(struct ask *ask, size_t count,
                                     void (*work)(struct call *, struct service *))
{
    struct product_call *self =
        call_new(ask->loop, ask->exchange, sizeof *self + count * sizeof self->products[0], work);
    if (self != NULL) {
        self->count = count;
    }
    return self;
}

/* --- put --- */

static void work_put(struct call *call, struct service *service)
{
    struct product_call *self = (struct product_call *)(void *)call;
    struct error error;
    enum status status = service_products_put(service, self->products, self->count, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    render_product(call_json(call, 200), &self->products[0]);
}

void products_put(struct ask *ask)
{
    struct new_product body = {0};
    struct user_id id;
    const struct json_field fields[] = {
        {"name", JSON_TEXT, JSON_REQUIRED, 1, PRODUCT_NAME_CHARACTERS_MAX, &body.name, NULL, NULL,
         0},
        {"price", JSON_INTEGER, JSON_OPTIONAL_OR_NULL, 0, PRODUCT_PRICE_MAX, &body.price,
         &body.price_seen, NULL, 0},
    };
    if (!ask_admin(ask) || !ask_id(ask, 0, "product_id", &id) || !ask_no_query(ask) ||
        !ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields))) {
        return;
    }
    struct product_call *self = new_call(ask, 1, work_put);
    if (self != NULL) {
        fill_product(&self->products[0], user_id_span(&id), &body);
        call_submit_or_refuse(&self->call);
    }
}

/* --- import --- */

static void work_import(struct call *call, struct service *service)
{
    struct product_call *self = (struct product_call *)(void *)call;
    struct error error;
    enum status status = service_products_put(service, self->products, self->count, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
        return;
    }
    call_log(call, "products_imported", LOG_FIELD("count", LOG_I64((int64_t)self->count)));
    buffer_printf(call_json(call, 200), "{\"count\":%zu}", self->count);
}

void products_import(struct ask *ask)
{
    struct new_product one = {0};
    struct new_product bodies[IMPORT_MAX];
    struct json_list list = {.element = &one, .element_size = sizeof one, .elements = bodies};
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
    if (!ask_admin(ask) || !ask_no_query(ask) ||
        !ask_body(ask, ASK_BODY_REQUIRED, fields, COUNT_OF(fields))) {
        return;
    }
    struct product_call *self = new_call(ask, list.count, work_import);
    if (self != NULL) {
        for (size_t index = 0; index < list.count; index++) {
            fill_product(&self->products[index], bodies[index].id, &bodies[index]);
        }
        call_submit_or_refuse(&self->call);
    }
}

/* --- show --- */

static void work_show(struct call *call, struct service *service)
{
    struct product_call *self = (struct product_call *)(void *)call;
    struct product product;
    struct error error;
    enum status status = service_product_get(service, &self->id, &product, &error);
    if (status == STATUS_OK) {
        render_product(call_json(call, 200), &product);
    } else {
        call_failed(call, status, &error, PROBLEM_NOT_FOUND);
    }
}

void products_show(struct ask *ask)
{
    struct user_id id;
    if (!ask_identify(ask) || !ask_id(ask, 0, "product_id", &id) || !ask_no_query(ask)) {
        return;
    }
    struct product_call *self = new_call(ask, 0, work_show);
    if (self != NULL) {
        self->id = id;
        call_submit_or_refuse(&self->call);
    }
}
