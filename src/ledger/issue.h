/* issue.h: writes a batch of claims as coupons, inside the caller's transaction.
 *
 * A claim is written at most once: the very same claim found in the table counts as written. Any
 * other row in its place is a collision, which refuses that claim alone, never its neighbours.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "ledger/driver.h"

/* Room for the rows of a batch, kept between batches. */
struct issue_room {
    struct coupon_row *rows;
    size_t capacity;
    struct buffer users; /* of a batch, as a JSON array */
    /* The claims stay in a shared gate until they are settled: one that the database refuses is
     * tried again, and of one that comes to nothing a dead letter is written. */
    bool tries_again;
    int attempts_max; /* of one that tries again */
};

/* So often, when nobody says how often, a room tries a claim again that the database refuses. */
#define ISSUE_ATTEMPTS_MAX 6

void issue_room_release(struct issue_room *room);

/* A batch is written as a whole at first. When the database answers that a row of it conflicts or
 * is refused, the transaction is rolled back and done again with care: under savepoints, halving
 * until the row is found, so that it alone is refused. A row that is not written and that nothing
 * is in the way of may be another transaction's doing, and is BUSY; LAST refuses it, because a
 * trigger may drop it every time. */
enum issue_care { ISSUE_WHOLE, ISSUE_SPLIT, ISSUE_LAST };

/* states[i] becomes what claim i is now: ISSUED (or what became of it since, when it was there
 * already), MERGED (the user holds as many as they may, or a coupon of this very wish), or VOID
 * (blocked, its lease was closed and nothing is left; or, logged, its seq belongs to someone else
 * or the database refuses it, and then stands among the refused). Units of MERGED and VOID rows are
 * back in `unleased`. In a room that tries again a refused claim is PENDING, and nothing is done,
 * until it was tried often enough. A status other than OK concerns the whole transaction; CONFLICT
 * and INVALID ask for ISSUE_SPLIT.
 */
enum status issue_claims(struct sql *sql, struct issue_room *room, const struct claim *claims,
                         size_t count, enum issue_care care, int64_t now_ms,
                         enum coupon_state *states, struct error *error) MUST_CHECK;

/* Writes a row that the table of coupons refuses into one of ours, where no rule of the shop's can
 * refuse it, as VOID. In the range of its lease it counts as given out, so that its unit can
 * return.
 */
enum status issue_write_refused(struct sql *sql, const struct coupon_row *row,
                                struct error *error) MUST_CHECK;

/* Before the claims of its batch: one may be merged into what the reserve gave to a bound key. */
enum status issue_bindings(struct sql *sql, const struct key_binding *bindings, size_t count,
                           struct error *error) MUST_CHECK;

/* --- claims of a batch that are not plain wins, whatever their lease says --- */

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
