/* places.h: a user's active coupons of a policy, each at a place of its own.
 *
 * A place is the number of a coupon among its user's, kept in `nth` and, while the coupon is
 * active, in `slot`. Whoever edits the table can leave slots that do not fit, and more coupons than
 * the limit. No coupon is taken from anyone: those above the limit are marked as kept.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_PLACES_H
#define LEDGER_PLACES_H

#include "ledger/driver.h"
#include "ledger/ledger.h"

/* Sets them all, and says in `mend` what was done. CONFLICT: a user has more coupons than any limit
 * allows. */
enum status places_set(struct sql *sql, struct ledger_mend *mend, struct error *error) MUST_CHECK;

#endif
