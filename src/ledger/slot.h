/* slot.h: where a claim goes whose place among its user's coupons is taken.
 *
 * While a shared gate is away, the ledger gives out places that the gate has given, too. A wish
 * that is in the ledger already is not written twice; another one gets the first free place, if the
 * user's limit leaves any.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_SLOT_H
#define LEDGER_SLOT_H

#include "ledger/driver.h"

struct slot_choice {
    int32_t nth;             /* the place it takes instead; 0: none */
    int64_t merged_into_seq; /* the coupon that its user holds instead; 0: none */
    bool is_other_wish;      /* that coupon is another wish's */
};

/* Both 0: nothing is in the claim's way. */
enum status slot_choose(struct sql *sql, const struct claim *claim, struct slot_choice *choice,
                        struct error *error) MUST_CHECK;

#endif
