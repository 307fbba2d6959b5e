/* audit_parts.h: one look of an audit, with what looks wrong in it; for the audit's own files.
 *
 * Threads: one look, one thread.
 */
#ifndef CLAIM_AUDIT_PARTS_H
#define CLAIM_AUDIT_PARTS_H

#include "claim/audit.h"
#include "claim/parts.h"

/* A claim or coupon that something is wrong with. */
struct audit_suspect {
    enum audit_check check;
    struct held_claim held;
};

struct audit_look {
    struct service *service;
    struct policy_audit audit;
    enum status status; /* unless OK, nothing can be said, and `error` tells why */
    struct error error;
    bool is_sure; /* what was found is found every time, or nothing is left of it */
    struct audit_suspect *suspects; /* by check, seq and user; at most SUSPECTS_MAX */
    size_t suspect_count;
    size_t suspect_capacity;
    struct lease *leases; /* all that the policy ever had */
    size_t lease_count;
    struct gate_state before; /* the comparison, and after it */
    struct gate_state after;
    int64_t told_seq; /* of the claim that the gate told last */
};

/* How many policies are looked at together. */
#define AUDIT_LOOKS_MAX 128

/* Looks at those policies until what was found is found again and again, or nothing is left of it.
 * The pauses between are those of all: it takes no longer because much is wrong. *looks is the
 * caller's, for audit_looks_free(). */
enum status audit_look_surely(struct service *service, enum audit_depth depth, const int64_t *ids,
                              size_t count, struct audit_look **looks,
                              struct error *error) MUST_CHECK;
void audit_looks_free(struct audit_look *looks, size_t count);

/* Whether the ledger lacks the policy, or has an older copy of it, beside a shared gate. */
bool audit_look_is_lost(const struct audit_look *look);

/* The lease whose range that seq is in, as the ledger has it, or NULL. */
const struct lease *audit_look_lease(const struct audit_look *look, int64_t seq);

/* "missing 3, remaining 1", as it is kept: in audit_plan.c, as the next. */
void audit_write_plan(const struct policy_audit *audit, char *text, size_t size);

/* Whether writing the ledger from memory mends anything that is wrong with the policy. */
bool audit_is_for_rewrite(const struct policy_audit *audit);

/* Whether coupons have slots that do not fit, or users too many of them. */
bool audit_needs_places(const struct policy_audit *audit);

/* Ends the note of a repair, and logs it. */
void audit_note(struct service *service, struct ledger_repair_note *note, const char *outcome);

/* Has the ranking's board built anew when it differs: in audit_board.c. */
enum status audit_board_repair(struct service *service, struct audit_repair *done,
                               struct error *error) MUST_CHECK;

/* The policies above `after_id` that gate or ledger have, by rising ids; *ids is the caller's to
 * free(), also when this fails. */
enum status audit_list(struct service *service, int64_t after_id, int64_t **ids, size_t *count,
                       struct error *error) MUST_CHECK;

/* A policy that the ledger lacks, or has an older copy of: in audit_lost.c. */
enum status audit_repair_lost(struct service *service, const struct audit_look *look,
                              enum audit_lacking lacking, struct audit_repair *done,
                              const char **outcome, struct error *error) MUST_CHECK;

/* Waits until a worker has built the policy anew: in audit_repair.c. */
enum status audit_await_built(struct service *service, int64_t policy_id, bool *is_built,
                              struct error *error) MUST_CHECK;

#endif
