/* issue_exceptions.h: which claims of a batch are not plain wins, whatever their lease says.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "ledger/issue.h"

/* What there is of them in the ledger: usually nothing. */
struct issue_exceptions {
    bool has_blocked;
    bool has_refused;
    bool has_reserved;
};

/* Makes rows of blocked users, and those that were refused for good before, VOID, and merges those
 * that issue_find_reserved() finds. */
enum status issue_find_exceptions(struct sql *sql, struct issue_room *room, size_t count,
                                  const struct issue_exceptions *any,
                                  struct error *error) MUST_CHECK;

/* Rows of one policy whose wish has a coupon of the reserve already, in whatever place, become
 * MERGED into that one: the reserve answered the claim's own key with it, or made it for a key that
 * the gate has bound to the claim. Whoever takes from the reserve has the policy and its open
 * leases locked: with one of them locked here, nobody serves one of these wishes meanwhile. */
enum status issue_find_reserved(struct sql *sql, struct issue_room *room, struct coupon_row *rows,
                                size_t count, struct error *error) MUST_CHECK;

/* Where a claim goes whose place among its user's coupons is taken. While a shared gate is away,
 * the ledger gives out places that the gate has given, too. A wish that is in the ledger already is
 * not written twice; another one gets the first free place, if the user's limit leaves any. */
struct slot_choice {
    int32_t nth;             /* the place it takes instead; 0: none */
    int64_t merged_into_seq; /* the coupon that its user holds instead; 0: none */
    bool is_other_wish;      /* that coupon is another wish's */
};

/* Both 0: nothing is in the claim's way. */
enum status slot_choose(struct sql *sql, const struct claim *claim, struct slot_choice *choice,
                        struct error *error) MUST_CHECK;
