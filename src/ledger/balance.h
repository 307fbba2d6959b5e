/* balance.h: where a policy's units are, from one snapshot of the tables.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_BALANCE_H
#define LEDGER_BALANCE_H

#include "ledger/driver.h"

/* Counts inside a transaction of its own. NOT_FOUND: there is no such policy. */
enum status balance_read(struct sql *sql, int64_t policy_id, struct ledger_balance *balance,
                         struct error *error) MUST_CHECK;

/* Counts leases and coupons only, in the caller's transaction: leased, coupons, active, highest_seq
 * and misplaced. */
enum status balance_sum(struct sql *sql, int64_t policy_id, struct ledger_balance *balance,
                        struct error *error) MUST_CHECK;

#endif
