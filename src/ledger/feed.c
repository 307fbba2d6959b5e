/* feed.c: the counter row, and the entries that it numbers. */
#include "ledger/feed.h"

#include <stdlib.h>

#include "ledger/list.h"

/* The feed is cut when its ids pass a multiple of this. */
#define TRIM_STEP 1000

static enum status feed_read_counter(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    struct feed_place *last = context;
    (void)error;
    *last = (struct feed_place){.feed_id = columns[0].number, .written_at_ms = columns[1].number};
    return STATUS_OK;
}

enum status feed_lock(struct sql *sql, struct feed_place *last, struct error *error)
{
    *last = (struct feed_place){.feed_id = -1};
    enum status status =
        sql_run(sql, STATEMENT_sale_lock, NULL, 0, feed_read_counter, last, NULL, error);
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
    return user_id_compare(&first->product_id, &second->product_id);
}

size_t feed_merge(struct feed_change *changes, size_t count)
{
    size_t kept = 0;

    qsort(changes, count, sizeof(*changes), feed_compare);
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && feed_compare(&changes[kept - 1], &changes[i]) == 0)
            changes[kept - 1].quantity += changes[i].quantity;
        else
            changes[kept++] = changes[i];
    }
    return kept;
}

enum status feed_list(struct buffer *text, const struct feed_change *changes, size_t count,
                      int64_t sign, struct sql_value *value, struct error *error)
{
    list_begin(text);
    for (size_t i = 0; i < count; i++) {
        list_next(text);
        buffer_append_literal(text, "[");
        buffer_append_i64(text, changes[i].day);
        buffer_append_literal(text, ",");
        list_id(text, user_id_span(&changes[i].product_id));
        buffer_append_literal(text, ",");
        buffer_append_i64(text, sign * changes[i].quantity);
        buffer_append_literal(text, "]");
    }
    return list_end(text, value, error);
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
        status = SQL_RUN(sql, STATEMENT_feed_insert, NULL, NULL, error, entries,
                         sql_i64(last.feed_id), sql_i64(next.written_at_ms));
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_sale_move, NULL, NULL, error, sql_i64(next.feed_id),
                         sql_i64(next.written_at_ms));
    if (status == STATUS_OK && next.feed_id > SALES_FEED_KEPT &&
        next.feed_id / TRIM_STEP != last.feed_id / TRIM_STEP)
        status = SQL_RUN(sql, STATEMENT_sale_trim, NULL, NULL, error,
                         sql_i64(next.feed_id - SALES_FEED_KEPT));
    return status;
}
