/* entering.h: marks on coupons that a shared gate has not heard of.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_ENTERING_H
#define LEDGER_ENTERING_H

#include "ledger/driver.h"

/* Marks a coupon in the caller's transaction, or notes that there is more to tell of it. */
enum status entering_mark(struct sql *sql, int64_t policy_id, int64_t seq,
                          struct error *error) MUST_CHECK;

#endif
