/* audit_plan.c: what a repair does about each finding of an audit, in words for those who are
 * asked. */
#include <inttypes.h>
#include <stdio.h>

#include "claim/audit_parts.h"

#define PLAN_KEEP                                                                                 \
    "keep the coupons above the limit, and mark them as kept: none is taken from anyone; cancel " \
    "those that are not to stay"
#define PLAN_PLACE "give each coupon its slot by its state and number: none is taken from anyone"

/* What is done about each check: by a gate in memory, and by one that is shared. NULL: only people
 * can decide that. */
static const struct {
    const char *alone;
    const char *shared;
} audit_plans[AUDIT_CHECKS] = {
    [AUDIT_OVERSOLD] = {NULL, "raise the total to the coupons that people hold: none is taken from "
                              "anyone"},
    [AUDIT_STOCK] = {"set what is unleased by what is issued and lent",
                     "set what is unleased by what is issued and lent"},
    [AUDIT_OVER_LIMIT] = {PLAN_KEEP, PLAN_KEEP},
    [AUDIT_SLOT] = {PLAN_PLACE, PLAN_PLACE},
    [AUDIT_STRAY] = {"keep the coupons, as coupons without a lease",
                     "keep the coupons, as coupons without a lease"},
    [AUDIT_POLICY] = {"write the policy as the server knows it",
                      "write the policy and its claims as Redis has them, and build it anew; one "
                      "that the ledger lacks is let go with --forget, with a dead letter for each "
                      "claim"},
    [AUDIT_MISSING] = {"write the coupons that are missing from the server's memory",
                       "put the claims back among the pending ones, for a worker to write"},
    [AUDIT_UNKNOWN] = {NULL, "build the policy anew in the gate, with all coupons of the ledger"},
    [AUDIT_OUTDATED] = {"bring the coupons to the state that the server knows",
                        "build the policy anew in the gate, with the states of the ledger"},
    [AUDIT_REPEATED] = {NULL, "build the policy anew in the gate: each seq with its one coupon"},
    [AUDIT_PENDING] = {NULL, "give pending claims back to their users; remove what no lease gave"},
    [AUDIT_UNLEASED] = {NULL, "remove pending entries that no lease ever gave"},
    [AUDIT_REMAINING] = {NULL, "build the policy anew in the gate, with a fresh lease"},
    [AUDIT_LEASE] = {"write the leases as the server has them",
                     "build the policy anew in the gate, with a fresh lease"},
    [AUDIT_ADRIFT] = {"write the leases as the server has them",
                      "build the policy anew in the gate, with a fresh lease"},
    [AUDIT_MARK] = {NULL, "build the policy anew in the gate, and publish from the beginning"},
};

const char *policy_audit_plan(const struct policy_audit *audit, bool is_shared, size_t number)
{
    for (size_t i = 0; i < AUDIT_CHECKS; i++) {
        if (audit->counts[i] != 0 && number-- == 0) {
            const char *plan = is_shared ? audit_plans[i].shared : audit_plans[i].alone;
            return plan != NULL ? plan
                   : i == AUDIT_CORRUPT
                       ? "nothing: delete that value in Redis, then repair: what the ledger has "
                         "comes back"
                   : i == AUDIT_OVERSOLD
                       ? "nothing: raise the total to the coupons that people hold, or cancel "
                         "some, then restart the server"
                       : "nothing: a restart of the server takes over what the ledger has";
        }
    }
    return NULL;
}

void audit_write_plan(const struct policy_audit *audit, char *text, size_t size)
{
    size_t length = 0;

    text[0] = '\0';
    for (size_t i = 0; i < AUDIT_CHECKS && length < size; i++) {
        if (audit->counts[i] != 0)
            length +=
                (size_t)snprintf(text + length, size - length, "%s%s %" PRId64,
                                 length > 0 ? ", " : "", audit_check_name(i), audit->counts[i]);
    }
}

bool audit_is_for_rewrite(const struct policy_audit *audit)
{
    for (size_t i = 0; i < AUDIT_CHECKS; i++) {
        if (audit->counts[i] != 0 && audit_plans[i].alone != NULL && i != AUDIT_OVER_LIMIT &&
            i != AUDIT_SLOT)
            return true;
    }
    return false;
}

bool audit_needs_places(const struct policy_audit *audit)
{
    return audit->counts[AUDIT_OVER_LIMIT] != 0 || audit->counts[AUDIT_SLOT] != 0;
}
