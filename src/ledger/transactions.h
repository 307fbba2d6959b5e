/* transactions.h: what each write of the ledger means, once for all databases.
 *
 * Each function is the body of one transaction: it reads, checks and writes through the session it
 * is given; whoever calls it begins and commits. On a status other than OK its effects are undone
 * by the caller.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "ledger/driver.h"

/* Inserts a new policy, all of its stock unleased. */
enum status transaction_insert_policy(struct sql *sql, const struct policy *policy,
                                      struct error *error) MUST_CHECK;

/* Writes what may change of a policy that this transaction has locked. */
enum status transaction_save_policy(struct sql *sql, struct policy *policy,
                                    struct error *error) MUST_CHECK;

struct create_policy {
    int64_t id;         /* 0: the next free one */
    const char *holder; /* the policy's first steward; NULL: none */
    struct policy *policy;
    struct lease *lease;
};
enum status transaction_create_policy(struct sql *sql, void *argument, struct error *error);

struct change_policy {
    int64_t id;
    const struct policy_change *change;
    const struct lease_shrunk *shrunk;
    size_t shrunk_count;
    bool keeps_seqs; /* those of shrunk leases are not lent again */
    struct policy *policy;
};
enum status transaction_change_policy(struct sql *sql, void *argument, struct error *error);

struct take_lease {
    int64_t policy_id;
    int64_t term;
    int64_t keep;
    struct lease *lease;
    struct policy *policy;
};
enum status transaction_take_lease(struct sql *sql, void *argument, struct error *error);

struct close_lease {
    int64_t lease_id;
    int64_t term;
};
enum status transaction_close_lease(struct sql *sql, void *argument, struct error *error);

struct close_used_leases {
    const int64_t *lease_ids;
    size_t count;
};

struct redeem_coupon {
    int64_t policy_id;
    int64_t seq;
    const struct id *order_id;
    int64_t now_ms;
    const char *traceparent;
    struct coupon *coupon;
};
enum status transaction_redeem_coupon(struct sql *sql, void *argument, struct error *error);

struct cancel_coupon {
    int64_t policy_id;
    int64_t seq;
    int64_t now_ms;
    const char *traceparent;
    struct coupon *coupon;
    struct policy *policy;
};
enum status transaction_cancel_coupon(struct sql *sql, void *argument, struct error *error);

struct block_user {
    const struct id *user;
    bool blocked;
    int64_t now_ms;
};
enum status transaction_block_user(struct sql *sql, void *argument, struct error *error);

struct keep_secret {
    const char *name;
    const uint8_t *fresh;
    uint8_t *bytes;
    size_t length;
};
enum status transaction_keep_secret(struct sql *sql, void *argument, struct error *error);

struct take_stewardship {
    int64_t policy_id;
    const char *holder;
    int64_t above;
    struct ledger_stewardship *taken;
};
enum status transaction_take_stewardship(struct sql *sql, void *argument, struct error *error);

/* Inside the transaction that creates the policy, of which the holder is the steward in term 1. */
enum status transaction_create_stewardship(struct sql *sql, int64_t policy_id, const char *holder,
                                           struct error *error) MUST_CHECK;

/* CONFLICT: that term is not the policy's newest; else it stays so until the transaction ends.
 * LEDGER_NO_TERM is never refused. */
enum status transaction_check_term(struct sql *sql, int64_t policy_id, int64_t term,
                                   struct error *error) MUST_CHECK;

/* One claim from unleased stock, decided by the database itself: while the gate is away a
 * transaction takes its place, slower, but as exact. It never touches stock that is lent to a gate.
 * The argument is a struct ledger_wish. BUSY when the user's slot is taken at this very moment by
 * someone else. */
enum status fallback_claim(struct sql *sql, void *argument, struct error *error) MUST_CHECK;

/* Marks a coupon that a shared gate has not heard of, or notes that there is more to tell of it. */
enum status entering_mark(struct sql *sql, int64_t policy_id, int64_t seq,
                          struct error *error) MUST_CHECK;
