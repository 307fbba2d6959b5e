/* audit_parts.h: one look of an audit, with what looks wrong in it; for the audit's own files.
 *
 * Threads: one look, one thread.
 */
#pragma once

#include "claim/audit.h"
#include "claim/parts.h"

/* A claim or coupon that something is wrong with. */
struct audit_suspect {
    enum audit_check check;
    struct held_claim held;
};

struct audit_pass {
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
};

/* How many policies are looked at together. */
#define AUDIT_LOOKS_MAX 128

/* Looks at those policies until what was found is found again and again, or nothing is left of it.
 * The pauses between are those of all: it takes no longer because much is wrong. *looks is the
 * caller's, for audit_passes_free(). */
enum status audit_pass_surely(struct service *service, enum audit_depth depth, const int64_t *ids,
                              size_t count, struct audit_pass **looks,
                              struct error *error) MUST_CHECK;
void audit_passes_free(struct audit_pass *looks, size_t count);

/* Whether the ledger lacks the policy, or has an older copy of it, beside a shared gate. */
bool audit_pass_is_lost(const struct audit_pass *look);

/* Notes that something is wrong with a claim or coupon. */
void audit_suspect(struct audit_pass *look, enum audit_check check, const struct held_claim *held);

/* Suspects what is pending in a shared gate though nobody holds it. */
enum status audit_find_strays(struct audit_pass *look, struct error *error) MUST_CHECK;

/* "missing 3, remaining 1", as it is kept: in audit_repair.c, as the next. */
void audit_write_plan(const struct policy_audit *audit, char *text, size_t size);

/* Whether writing the ledger from memory fixes anything that is wrong with the policy. */
bool audit_is_for_rewrite(const struct policy_audit *audit);

/* Whether coupons have slots that do not fit, or users too many of them. */
bool audit_needs_places(const struct policy_audit *audit);

/* Ends the note of a repair, and logs it. */
void audit_note(struct service *service, struct ledger_repair_note *note, const char *outcome);

/* Has the ranking's board built anew when it differs. */
enum status audit_board_repair(struct service *service, struct audit_repair *done,
                               struct error *error) MUST_CHECK;

/* The policies above `after_id` that gate or ledger have, by rising ids; *ids is the caller's to
 * free(), also when this fails. */
enum status audit_list(struct service *service, int64_t after_id, int64_t **ids, size_t *count,
                       struct error *error) MUST_CHECK;

/* Gives coupons of the policy whose slots do not fit theirs. Nobody's coupon goes: what is above
 * the limit stays, and is named. */
enum status audit_place(struct service *service, const struct policy_audit *audit,
                        struct audit_repair *done, bool *is_renumbered,
                        struct error *error) MUST_CHECK;

/* What is done with each look. */
typedef enum status audit_visit(void *context, const struct audit_pass *look, struct error *error);

/* Looks at one policy, or where that is 0 at those in the list, many at a time, and visits each.
 * One of a list may have gone meanwhile, and is passed over. */
enum status audit_each(struct service *service, enum audit_depth depth, int64_t policy_id,
                       const int64_t *ids, size_t count, audit_visit *visit, void *context,
                       struct error *error) MUST_CHECK;

/* Looks deeply at one policy, or all (0), and visits each. */
enum status audit_for_each(struct service *service, int64_t policy_id, audit_visit *visit,
                           void *context, struct error *error) MUST_CHECK;

/* Slots of struct topology. */
enum status audit_repair_local(struct service *service, int64_t policy_id,
                               enum audit_lacking lacking, struct audit_repair *done,
                               struct error *error) MUST_CHECK;
enum status audit_repair_shared(struct service *service, int64_t policy_id,
                                enum audit_lacking lacking, struct audit_repair *done,
                                struct error *error) MUST_CHECK;
