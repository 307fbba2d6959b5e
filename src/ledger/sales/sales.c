/* sales.c: what was sold, read: the feed, the totals of days, and rankings made of them; and the
 * names and prices of products, written and read. */
#include "ledger/sales/sales.h"

#include <stdlib.h>

#include "base/zone.h"
#include "ledger/inside.h"
#include "ledger/list.h"
#include "ledger/rows.h"

/* --- the zone --- */

struct sales_zone {
    const char *wanted;
    char found[ZONE_NAME_LENGTH_MAX + 1];
    bool has_orders;
};

static enum status sales_read_zone(void *context, const struct sql_value *columns,
                                   struct error *error)
{
    struct sales_zone *zone = context;
    rows_read_text(&columns[2], zone->found, sizeof(zone->found));
    return STATUS_OK;
}

/* Under the counter's lock nobody adds the first order meanwhile. */
static enum status sales_settle_zone(struct sql *sql, void *argument, struct error *error)
{
    struct sales_zone *zone = argument;
    enum status status = SQL_RUN(sql, STATEMENT_sale_lock, sales_read_zone, zone, error);

    zone->has_orders = false;
    if (status == STATUS_OK && strcmp(zone->found, zone->wanted) == 0)
        return STATUS_OK;
    if (status == STATUS_OK && zone->found[0] != '\0')
        status = SQL_RUN(sql, STATEMENT_order_any, rows_note_any, &zone->has_orders, error);
    if (status != STATUS_OK)
        return status;
    if (zone->has_orders)
        return error_set(error, STATUS_CONFLICT,
                         "timezone is %s, but the ledger's sales are counted in days of %s; set "
                         "timezone to %s",
                         zone->wanted, zone->found, zone->found);
    return SQL_WRITE(sql, STATEMENT_sale_zone, error, sql_text(span_of(zone->wanted)));
}

enum status ledger_zone_settle(struct ledger *ledger, struct error *error)
{
    struct sales_zone zone = {.wanted = zone_name(ledger_zone(ledger))};
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    status = SQL_RUN(&sql, STATEMENT_sale_peek, sales_read_zone, &zone, error);
    status = ledger_read_end(ledger, sql, status, error);
    if (status != STATUS_OK || strcmp(zone.found, zone.wanted) == 0)
        return status;
    return ledger_write_last(ledger, sales_settle_zone, &zone, error);
}

/* --- the feed --- */

struct sales_page {
    const struct feed_place *after;
    struct feed_entry *entries;
    size_t count;
    bool has_place; /* the entry that is known already was there, as it was */
    bool is_broken;
};

/* A kind that nobody here has written counts for nothing; scores are looked up by it. */
static enum sales_kind sales_read_kind(const struct sql_value *column)
{
    bool is_known = column->kind == SQL_I64 && column->number > SALES_KIND_NONE &&
                    column->number < SALES_KIND_COUNT;

    return is_known ? (enum sales_kind)column->number : SALES_KIND_NONE;
}

static enum status sales_read_entry(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    struct sales_page *page = context;
    struct feed_entry entry = {
        .place = {.feed_id = columns[0].number, .written_at_ms = columns[1].number},
        .day = columns[2].number,
        .product_id = rows_read_user(&columns[3]),
        .quantity = columns[4].number,
    };
    if (columns[5].kind == SQL_I64)
        entry.moment = (struct sales_moment){.kind = sales_read_kind(&columns[5]),
                                             .at_s = columns[6].number,
                                             .quantity = columns[7].number};

    if (!page->has_place) {
        page->has_place = entry.place.feed_id == page->after->feed_id &&
                          entry.place.written_at_ms == page->after->written_at_ms;
        page->is_broken = page->is_broken || !page->has_place;
        return STATUS_OK;
    }
    if (entry.place.feed_id == page->after->feed_id + (int64_t)page->count + 1)
        page->entries[page->count++] = entry;
    else
        page->is_broken = true;
    return STATUS_OK;
}

/* One more than asked for is read: the entry at the place itself says whether this is still the
 * feed that the place is in. */
enum status ledger_sales_after(struct ledger *ledger, const struct feed_place *after,
                               struct feed_entry *entries, size_t max, size_t *count,
                               struct error *error)
{
    bool is_start = after->feed_id == 0;
    struct sales_page page = {.after = after, .entries = entries, .has_place = is_start};
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    *count = 0;
    if (status != STATUS_OK)
        return status;
    status = SQL_RUN(&sql, STATEMENT_feed_after, sales_read_entry, &page, error,
                     sql_i64(after->feed_id), sql_i64((int64_t)max + (is_start ? 0 : 1)));
    if (status == STATUS_OK && (!page.has_place || page.is_broken))
        status =
            error_set(error, STATUS_NOT_FOUND, "the feed of sales does not go on from entry %lld",
                      (long long)after->feed_id);
    if (status == STATUS_OK)
        *count = page.count;
    return ledger_read_end(ledger, sql, status, error);
}

/* --- totals --- */

static enum status sales_visit_place(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    const struct sales_visitor *visitor = context;
    struct feed_place place = {.feed_id = columns[0].number, .written_at_ms = columns[1].number};

    return visitor->place(visitor->context, &place, error);
}

static enum status sales_visit_total(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    const struct sales_visitor *visitor = context;
    struct id product_id = rows_read_user(&columns[1]);

    return visitor->total(visitor->context, columns[0].number, &product_id, columns[2].number,
                          error);
}

static enum status sales_visit_moment(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    const struct sales_visitor *visitor = context;
    struct id product_id = rows_read_user(&columns[2]);
    struct sales_moment moment = {.kind = sales_read_kind(&columns[1]),
                                  .at_s = columns[3].number,
                                  .quantity = columns[4].number};

    return visitor->moment(visitor->context, columns[0].number, &product_id, &moment, error);
}

enum status ledger_sales_days(struct ledger *ledger, int64_t first_day, int64_t last_day,
                              const struct sales_visitor *visitor, struct error *error)
{
    struct sales_visitor copy = *visitor;
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    status = sql.driver->begin(sql.session, error);
    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_sale_peek, sales_visit_place, &copy, error);
    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_day_scan, sales_visit_total, &copy, error,
                         sql_i64(first_day), sql_i64(last_day));
    if (status == STATUS_OK && visitor->moment != NULL)
        status = SQL_RUN(&sql, STATEMENT_moment_scan, sales_visit_moment, &copy, error,
                         sql_i64(first_day), sql_i64(last_day));
    sql.driver->rollback(sql.session);
    return ledger_read_end(ledger, sql, status, error);
}

/* --- rankings --- */

static enum status sales_read_line(void *line, const struct sql_value *columns, struct error *error)
{
    *(struct sales_line *)line = (struct sales_line){
        .rank = columns[0].number,
        .product_id = rows_read_user(&columns[1]),
        .sold = columns[2].number,
        .sold_last_day = columns[3].number,
    };
    return STATUS_OK;
}

enum status ledger_sales_top(struct ledger *ledger, int64_t first_day, int64_t last_day,
                             size_t limit, struct sales_line *lines, size_t *count,
                             struct error *error)
{
    struct rows_page page = ROWS_PAGE(lines, sales_read_line, count);

    return LEDGER_READ(ledger, STATEMENT_sales_top, rows_take, &page, error, sql_i64(first_day),
                       sql_i64(last_day), sql_i64((int64_t)limit));
}

enum status ledger_sales_of(struct ledger *ledger, int64_t first_day, int64_t last_day,
                            const struct id *ids, size_t id_count, struct sales_line *lines,
                            size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(lines, sales_read_line, count);
    struct buffer text;
    struct sql_value asked;

    ensure(id_count <= PRODUCT_BATCH_MAX);
    if (id_count == 0)
        return STATUS_OK;
    buffer_init(&text, LIST_LENGTH_MAX);
    list_begin(&text);
    for (size_t i = 0; i < id_count; i++)
        list_add(&text, sql_text(id_span(&ids[i])));
    enum status status = list_end(&text, &asked, error);
    if (status == STATUS_OK)
        status = LEDGER_READ(ledger, STATEMENT_sales_of, rows_take, &page, error,
                             sql_i64(first_day), sql_i64(last_day), asked);
    buffer_release(&text);
    return status;
}

enum status ledger_sales_around(struct ledger *ledger, int64_t first_day, int64_t last_day,
                                const struct id *product_id, int64_t distance,
                                struct sales_line *lines, size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(lines, sales_read_line, count);

    return LEDGER_READ(ledger, STATEMENT_sales_around, rows_take, &page, error, sql_i64(first_day),
                       sql_i64(last_day), sql_text(id_span(product_id)), sql_i64(distance));
}

/* --- products --- */

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
