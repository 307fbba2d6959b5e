/* feed.c: the counter row, and the entries that it numbers. */
#include "ledger/sales/feed.h"

#include <stdlib.h>

#include "ledger/list.h"
#include "ledger/rows.h"

/* The feed is cut when its ids pass a multiple of this. */
#define TRIM_STEP 1000

static enum status feed_read_counter(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    struct feed_place *last = context;
    *last = (struct feed_place){.feed_id = columns[0].number, .written_at_ms = columns[1].number};
    return STATUS_OK;
}

enum status feed_lock(struct sql *sql, struct feed_place *last, struct error *error)
{
    *last = (struct feed_place){.feed_id = -1};
    enum status status = SQL_RUN(sql, STATEMENT_sale_lock, feed_read_counter, last, error);
    if (status == STATUS_OK && last->feed_id < 0)
        return error_set(error, STATUS_FAILED,
                         "the ledger's table sale_counter has lost its row; restore a backup");
    return status;
}

static int feed_compare(const void *a, const void *b)
{
    const struct feed_change *first = a;
    const struct feed_change *second = b;

    if (first->day != second->day)
        return first->day < second->day ? -1 : 1;
    int order = id_compare(&first->product_id, &second->product_id);
    if (order != 0)
        return order;
    if (first->moment.kind != second->moment.kind)
        return first->moment.kind < second->moment.kind ? -1 : 1;
    return (first->moment.at_s > second->moment.at_s) - (first->moment.at_s < second->moment.at_s);
}

size_t feed_merge(struct feed_change *changes, size_t count)
{
    size_t kept = 0;

    qsort(changes, count, sizeof(*changes), feed_compare);
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && feed_compare(&changes[kept - 1], &changes[i]) == 0) {
            changes[kept - 1].quantity += changes[i].quantity;
            changes[kept - 1].moment.quantity += changes[i].moment.quantity;
        } else {
            changes[kept++] = changes[i];
        }
    }
    return kept;
}

enum status feed_totals(struct buffer *text, const struct feed_change *changes, size_t count,
                        struct sql_value *value, struct error *error)
{
    list_begin(text);
    for (size_t i = 0, next; i < count; i = next) {
        int64_t quantity = 0;
        for (next = i; next < count && changes[next].day == changes[i].day &&
                       id_equal(&changes[next].product_id, &changes[i].product_id);
             next++)
            quantity += changes[next].quantity;
        LIST_ROW(text, sql_i64(changes[i].day), sql_text(id_span(&changes[i].product_id)),
                 sql_i64(quantity));
    }
    return list_end(text, value, error);
}

/* One entry for each change. */
static enum status feed_list(struct buffer *text, const struct feed_change *changes, size_t count,
                             int64_t sign, struct sql_value *value, struct error *error)
{
    list_begin(text);
    for (size_t i = 0; i < count; i++)
        LIST_ROW(text, sql_i64(changes[i].day), sql_text(id_span(&changes[i].product_id)),
                 sql_i64(sign * changes[i].quantity));
    return list_end(text, value, error);
}

/* When each of them happened, under the same ids. */
static enum status feed_write_moments(struct sql *sql, int64_t last_id, struct buffer *text,
                                      const struct feed_change *changes, size_t count, int64_t sign,
                                      struct error *error)
{
    struct sql_value rows;

    list_begin(text);
    for (size_t i = 0; i < count; i++) {
        const struct sales_moment *moment = &changes[i].moment;
        LIST_ROW(text, sql_i64(moment->kind), sql_i64(moment->at_s),
                 sql_i64(sign * moment->quantity));
    }
    enum status status = list_end(text, &rows, error);
    return status == STATUS_OK
               ? SQL_WRITE(sql, STATEMENT_moment_insert, error, rows, sql_i64(last_id))
               : status;
}

/* Time may not go back within the feed, or a place in it would not be told from that of an older
 * copy of the database. */
enum status feed_write(struct sql *sql, struct feed_place last, struct buffer *text,
                       const struct feed_change *changes, size_t count, int64_t sign,
                       int64_t now_ms, struct error *error)
{
    struct sql_value entries;
    struct feed_place next = {
        .feed_id = last.feed_id + (int64_t)count,
        .written_at_ms = now_ms > last.written_at_ms ? now_ms : last.written_at_ms + 1,
    };
    enum status status = feed_list(text, changes, count, sign, &entries, error);

    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_feed_insert, error, entries, sql_i64(last.feed_id),
                           sql_i64(next.written_at_ms));
    if (status == STATUS_OK && count > 0 && changes[0].moment.kind != SALES_KIND_NONE)
        status = feed_write_moments(sql, last.feed_id, text, changes, count, sign, error);
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_sale_move, error, sql_i64(next.feed_id),
                           sql_i64(next.written_at_ms));
    if (next.feed_id <= SALES_FEED_KEPT || next.feed_id / TRIM_STEP == last.feed_id / TRIM_STEP)
        return status;
    struct sql_value dropped = sql_i64(next.feed_id - SALES_FEED_KEPT);
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_sale_trim, error, dropped);
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_moment_trim, error, dropped);
    return status;
}
