/* batch.h: coupons written many at a time, in multi-row INSERTs.
 *
 * A batch is cut into runs whose lengths are powers of two, so that ten prepared statements serve
 * every size. MySQL undoes a statement that meets a duplicate as a whole, does not say which row it
 * was, and keeps locks on the gaps beside it, in which others that write at the same time wait for
 * each other. So after a duplicate the rows in the way are looked for, without locks, and flagged;
 * and for a while rows are looked for before they are written.
 *
 * Threads: as its connection, one at a time.
 */
#pragma once

#include "ledger/mysql/link.h"

struct ledger_mysql_batch;

struct ledger_mysql_batch *ledger_mysql_batch_new(void);
void ledger_mysql_batch_free(struct ledger_mysql_batch *batch);

/* Forgets the statements, whose connection is closed. */
void ledger_mysql_batch_reset(struct ledger_mysql_batch *batch);

/* As insert_coupons() of driver.h; never CONFLICT. */
enum status ledger_mysql_batch_insert(struct ledger_mysql_batch *batch,
                                      struct ledger_mysql_link *link, struct coupon_row *rows,
                                      size_t count, struct error *error) MUST_CHECK;
