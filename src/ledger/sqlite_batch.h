/* sqlite_batch.h: the coupon rows about to be written, as a table that SQLite can read.
 *
 * One INSERT … SELECT from it writes a whole batch, which spares SQLite the start and the end of a
 * statement per row and lets it append to the end of the table without searching for it.
 *
 * Threads: belongs to its connection's thread.
 */
#ifndef LEDGER_SQLITE_BATCH_H
#define LEDGER_SQLITE_BATCH_H

#include <sqlite3.h>
#include <stddef.h>

#include "ledger/driver.h"

/* What the table `incoming_coupon` shows: rows from `next` on. `next` is the row being written, so
 * that after a failure it tells which one it was. */
struct sqlite_batch {
    const struct coupon_row *rows;
    size_t count;
    size_t next;
};

/* Makes the table known to a connection; `batch` must outlive it. Returns an SQLite code. */
int sqlite_batch_register(sqlite3 *database, struct sqlite_batch *batch);

#endif
