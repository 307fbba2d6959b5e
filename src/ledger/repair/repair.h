/* repair.h: brings a ledger that is older than the gate up to what the gate knows.
 *
 * A database that was restored from a backup, or a replica that lagged and was promoted, lacks what
 * was committed since. The gate still has it: the policies, the claims with their states, the keys,
 * what is left of the leases, the blocked users. A repair compares both, claim by claim, and writes
 * what is missing. It never takes a coupon from anyone: a ledger that has anything which the gate
 * has not given is not an older copy of this one, and nothing is written to it.
 *
 * What the gate does not keep cannot come back: a coupon that is written again has no lease, was
 * issued when it was asked for, and was redeemed or cancelled at the time of the repair, for no
 * order; one that was VOID or MERGED has no reason.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "ledger/driver.h"

enum repair_mode {
    REPAIR_LOOK,
    REPAIR_WRITE,
    REPAIR_ONE, /* writes one policy; coupons that the gate does not know are left alone */
};

struct repair_chunk; /* claims that are compared together */

struct repair {
    const struct ledger_memory *memory;
    int64_t now_ms;
    int64_t policy_id; /* of REPAIR_ONE */
    enum repair_mode mode;
    struct sql *sql;
    struct repair_chunk *chunk;

    /* The policy at hand. */
    bool has_policy;
    struct policy policy; /* as the gate has it */
    int64_t version;      /* of the ledger's row; 0: there is none */
    struct lease *leases; /* with units left, by rising seqs */
    int64_t *lease_rows;  /* the coupons in each */
    size_t lease_count;
    size_t lease_capacity;
    size_t lease_at; /* the first that ends behind the claims seen */
    int64_t seq;     /* claims are compared up to here */
    int64_t active_count;
    int64_t counted_seq; /* of the claim that was counted last */
    struct ledger_gap gap;

    struct ledger_gap *gaps; /* of the policies done */
    size_t gap_count;
    size_t gap_capacity;

    struct id *users; /* blocked in the gate, sorted */
    size_t user_count;
    size_t user_capacity;
    struct id *lifted; /* blocked in the ledger only */
    size_t lifted_count;
    size_t lifted_capacity;
    bool *has_user; /* of `users`: the ledger has it too */
    struct ledger_repair done;
};

void repair_init(struct repair *repair, const struct ledger_memory *memory, int64_t now_ms);
void repair_release(struct repair *repair);

/* The body of the transaction, for a `struct repair`; may be run again from the start. `gaps` says
 * what was done for each policy, `done` in all. CONFLICT: this is not an older copy of the ledger.
 */
enum status repair_write(struct sql *sql, void *argument, struct error *error);

/* The same for one policy, whose row or coupons were lost: see ledger_write_back(). */
enum status repair_write_one(struct sql *sql, void *argument, struct error *error);

/* The first half of it alone, for one policy: looks how far the ledger is behind, and writes
 * nothing. People may claim meanwhile. */
enum status repair_find_gap(struct repair *repair, struct sql *sql, int64_t policy_id,
                            struct ledger_gap *gap, struct error *error) MUST_CHECK;

/* One line for each policy that was brought up to date, and one for all. */
void repair_log(const struct repair *repair);

/* --- repair_claims.c: one claim after the other --- */

/* An empty chunk; false: no memory. */
bool repair_chunk_begin(struct repair *repair);

/* A visitor's callback, for a `struct repair`: takes a claim of the policy at hand; compares and
 * writes when enough have gathered. */
enum status repair_claim(void *context, const struct held_claim *held, struct error *error);
/* Compares and writes what has gathered. */
enum status repair_flush(struct repair *repair, struct error *error) MUST_CHECK;
/* CONFLICT when the ledger has coupons behind the last claim that the gate told. */
enum status repair_check_rest(struct repair *repair, struct error *error) MUST_CHECK;

/* Where a policy's units are. Counts inside a transaction of its own. NOT_FOUND: there is no such
 * policy. */
enum status balance_read(struct sql *sql, int64_t policy_id, struct ledger_balance *balance,
                         struct error *error) MUST_CHECK;

/* Counts leases and coupons only, in the caller's transaction: leased, coupons, active, highest_seq
 * and misplaced. */
enum status balance_sum(struct sql *sql, int64_t policy_id, struct ledger_balance *balance,
                        struct error *error) MUST_CHECK;
