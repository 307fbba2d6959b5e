/* products.c: names and prices of what is sold. */
#include <stdlib.h>

#include "ledger/inside.h"
#include "ledger/list.h"
#include "ledger/rows.h"
#include "ledger/sales/sales.h"

/* So many of the longest names, escaped, fit into one list. */
#define PUT_AT_ONCE 200

struct products_batch {
    const struct product *products;
    size_t count;
    int64_t now_ms;
    struct buffer text;
};

static int products_compare_places(const void *a, const void *b)
{
    const struct product *first = *(const struct product *const *)a;
    const struct product *second = *(const struct product *const *)b;
    int order = id_compare(&first->id, &second->id);

    return order != 0 ? order : first < second ? -1 : 1;
}

static enum status products_put_some(struct sql *sql, struct products_batch *batch,
                                     const struct product *const *sorted, size_t count,
                                     struct error *error)
{
    struct sql_value rows;

    list_begin(&batch->text);
    for (size_t i = 0; i < count; i++)
        LIST_ROW(&batch->text, sql_text(id_span(&sorted[i]->id)),
                 sql_text(span_of(sorted[i]->name)),
                 sorted[i]->price == PRODUCT_PRICE_NONE ? sql_null() : sql_i64(sorted[i]->price));
    enum status status = list_end(&batch->text, &rows, error);
    return status == STATUS_OK
               ? SQL_WRITE(sql, STATEMENT_product_put, error, rows, sql_i64(batch->now_ms))
               : status;
}

/* By rising ids, so that two who write the same products wait for each other and never in a circle;
 * each id once, for the last that was given. */
static enum status products_write(struct sql *sql, void *argument, struct error *error)
{
    struct products_batch *batch = argument;
    const struct product *sorted[PRODUCT_BATCH_MAX];
    enum status status = STATUS_OK;
    size_t kept = 0;

    for (size_t i = 0; i < batch->count; i++)
        sorted[i] = &batch->products[i];
    qsort(sorted, batch->count, sizeof(sorted[0]), products_compare_places);
    for (size_t i = 0; i < batch->count; i++) {
        if (kept > 0 && id_equal(&sorted[kept - 1]->id, &sorted[i]->id))
            kept--;
        sorted[kept++] = sorted[i];
    }
    for (size_t i = 0; i < kept && status == STATUS_OK; i += PUT_AT_ONCE) {
        size_t left = kept - i;
        status = products_put_some(sql, batch, sorted + i, left < PUT_AT_ONCE ? left : PUT_AT_ONCE,
                                   error);
    }
    return status;
}

enum status ledger_products_put(struct ledger *ledger, const struct product *products, size_t count,
                                int64_t now_ms, struct error *error)
{
    struct products_batch batch = {.products = products, .count = count, .now_ms = now_ms};

    ensure(count <= PRODUCT_BATCH_MAX);
    if (count == 0)
        return STATUS_OK;
    buffer_init(&batch.text, LIST_LENGTH_MAX);
    enum status status = ledger_write(ledger, products_write, &batch, error);
    buffer_release(&batch.text);
    return status;
}

/* --- reading --- */

static enum status products_read_row(void *row, const struct sql_value *columns,
                                     struct error *error)
{
    struct product *product = row;

    product->id = rows_read_user(&columns[0]);
    rows_read_text(&columns[1], product->name, sizeof(product->name));
    product->price = columns[2].kind == SQL_I64 ? columns[2].number : PRODUCT_PRICE_NONE;
    product->updated_at_ms = columns[3].number;
    return STATUS_OK;
}

enum status ledger_product_get(struct ledger *ledger, const struct id *id, struct product *product,
                               struct error *error)
{
    size_t count;
    struct rows_page page = ROWS_PAGE(product, products_read_row, &count);
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    status = SQL_RUN(&sql, STATEMENT_product_by_id, rows_take, &page, error, sql_text(id_span(id)));
    if (status == STATUS_OK && count == 0)
        status =
            error_set(error, STATUS_NOT_FOUND, "there is no product %.*s", id->length, id->bytes);
    return ledger_read_end(ledger, sql, status, error);
}

struct products_list {
    struct product *products;
    size_t count;
};

static enum status products_fill_row(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    const struct products_list *list = context;
    struct product known;

    (void)products_read_row(&known, columns, error);
    for (size_t i = 0; i < list->count; i++)
        if (id_equal(&list->products[i].id, &known.id))
            list->products[i] = known;
    return STATUS_OK;
}

enum status ledger_products_fill(struct ledger *ledger, struct product *products, size_t count,
                                 struct error *error)
{
    struct products_list list = {.products = products, .count = count};
    struct buffer text;
    struct sql_value ids;

    ensure(count <= PRODUCT_BATCH_MAX);
    if (count == 0)
        return STATUS_OK;
    buffer_init(&text, LIST_LENGTH_MAX);
    list_begin(&text);
    for (size_t i = 0; i < count; i++) {
        products[i].name[0] = '\0';
        products[i].price = PRODUCT_PRICE_NONE;
        products[i].updated_at_ms = 0;
        list_add(&text, sql_text(id_span(&products[i].id)));
    }
    enum status status = list_end(&text, &ids, error);
    if (status == STATUS_OK)
        status = LEDGER_READ(ledger, STATEMENT_product_among, products_fill_row, &list, error, ids);
    buffer_release(&text);
    return status;
}
