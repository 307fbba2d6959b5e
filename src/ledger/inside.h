/* inside.h: the ways into a ledger for its own files: the writer for what changes, a read-only
 * session for what only looks.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include "ledger/driver.h"
#include "ledger/sales/batcher.h"
#include "ledger/writer.h"

/* Runs the body in the next group commit and waits until it is durable. It may be run more than
 * once: only the last time counts. */
enum status ledger_write(struct ledger *ledger, write_fn body, void *argument,
                         struct error *error) MUST_CHECK;

/* A session for a read that is told whatever the database says, and its way back. Waits until one
 * is idle. */
struct sql ledger_reader_take(struct ledger *ledger);
void ledger_reader_return(struct ledger *ledger, struct sql sql);

/* The same behind all other writes of its commit: for those that lock the counter of sales. */
enum status ledger_write_last(struct ledger *ledger, write_fn body, void *argument,
                              struct error *error) MUST_CHECK;

/* The same behind those, and behind all events: for what only counts, locks rows that other servers
 * lock, too, and finds out by itself that it was done before. */
enum status ledger_write_counts(struct ledger *ledger, write_fn body, void *argument,
                                struct error *error) MUST_CHECK;

/* Begins a read: gives a session, to be returned with ledger_read_end(). UNAVAILABLE, and nothing
 * to return: the database is away, and another one who asks has just found that out. */
enum status ledger_read_begin(struct ledger *ledger, struct sql *sql,
                              struct error *error) MUST_CHECK;

/* Ends a read that came to `status`, and says what to tell: of a database that is older than what
 * was committed nothing, for "there is no such coupon" may be wrong. */
enum status ledger_read_end(struct ledger *ledger, struct sql sql, enum status status,
                            struct error *error) MUST_CHECK;

/* LEDGER_READ(ledger, STATEMENT_X, row, context, error, sql_i64(1), ...): one statement as a read.
 */
#define LEDGER_READ(ledger, name, reader, into, error, ...) \
    ledger_read(ledger, SQL_CALL(name, reader, into, __VA_ARGS__), error)
enum status ledger_read(struct ledger *ledger, const struct sql_call *call,
                        struct error *error) MUST_CHECK;

/* A session for what concerns terms, to be returned with ledger_term_end(), and a transaction on
 * it: of a remote database one of its own. Waits while another thread uses it. */
enum status ledger_term_begin(struct ledger *ledger, struct sql *sql,
                              struct error *error) MUST_CHECK;
enum status ledger_term_end(struct ledger *ledger, struct sql sql, enum status status,
                            struct error *error) MUST_CHECK;
enum status ledger_term_write(struct ledger *ledger, write_fn body, void *argument,
                              struct error *error) MUST_CHECK;

/* Whether others write to it, too. */
bool ledger_is_shared(const struct ledger *ledger);

/* The zone whose days sales are counted in. */
const struct zone *ledger_zone(const struct ledger *ledger);

/* How long orders are kept; 0: for ever. */
int64_t ledger_orders_keep_days(const struct ledger *ledger);

/* Whether it keeps when each sale happened. */
bool ledger_keeps_moments(const struct ledger *ledger);

/* Where its orders come together. */
struct batcher *ledger_batcher(struct ledger *ledger);
