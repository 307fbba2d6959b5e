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
    struct audit_suspect *suspects; /* by check, seq and user; at most SUSPECTS_MAX */
    size_t suspect_count;
    size_t suspect_capacity;
    struct lease *leases; /* all that the policy ever had */
    size_t lease_count;
    struct gate_state before; /* the comparison, and after it */
    struct gate_state after;
    int64_t told_seq; /* of the claim that the gate told last */
};

void audit_look_release(struct audit_look *look);

/* Looks until what was found is found again and again, or nothing is left of it. */
enum status audit_look_surely(struct service *service, enum audit_depth depth, int64_t policy_id,
                              struct audit_look *look, struct error *error) MUST_CHECK;

/* The lease whose range that seq is in, as the ledger has it, or NULL. */
const struct lease *audit_look_lease(const struct audit_look *look, int64_t seq);

/* Ends the note of a repair, and logs it. */
void audit_note(struct service *service, struct ledger_repair_note *note, const char *outcome);

/* Has the ranking's board built anew when it differs: in audit_board.c. */
enum status audit_board_repair(struct service *service, struct audit_repair *done,
                               struct error *error) MUST_CHECK;

/* The next policy above `after_id`: false when there is none. */
bool audit_next(struct service *service, int64_t after_id, int64_t *policy_id);

#endif
