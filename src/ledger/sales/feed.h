/* feed.h: changes of totals, numbered in the order in which they become visible.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "ledger/driver.h"
#include "ledger/sales/sales.h"

/* What becomes of a total, and of a score. */
struct feed_change {
    int64_t day;
    struct id product_id;
    int64_t quantity; /* of what was sold; 0 for a signal */
    struct sales_moment moment;
};

/* Sorts changes by (day, product, moment) and adds up those of one; returns how many are left. */
size_t feed_merge(struct feed_change *changes, size_t count);

/* The first statement of all who write sales: they come one after the other, until they have
 * committed, and none of them waits for a row that another of them has. */
enum status feed_lock(struct sql *sql, struct feed_place *last, struct error *error) MUST_CHECK;

/* [[day, "product_id", quantity], …] as a statement's value, written into `text`: merged changes,
 * each total once. */
enum status feed_totals(struct buffer *text, const struct feed_change *changes, size_t count,
                        struct sql_value *value, struct error *error) MUST_CHECK;

/* Appends merged changes, times `sign`, behind what feed_lock() told, with their moments if they
 * have any, moves the counter, and now and then drops the oldest entries. */
enum status feed_write(struct sql *sql, struct feed_place last, struct buffer *text,
                       const struct feed_change *changes, size_t count, int64_t sign,
                       int64_t now_ms, struct error *error) MUST_CHECK;
