/* topology.c: many processes share the gate. */
#include "claim/topology.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "claim/audit_parts.h"
#include "claim/desk_parts.h"

#define AFTER_ALL_SEQS INT64_MAX /* so that no claim is read */

/* The creator of a policy is its first steward, so that no worker does the same meanwhile; one that
 * ends here leaves it to them. */
static enum status shared_load(struct service *service, const struct policy *policy,
                               const struct lease *lease, struct error *error)
{
    enum status status = gate_reset(service->shared, policy->id, 0, LEDGER_FIRST_TERM, error);

    if (status == STATUS_OK)
        status = service_policy_lend(service, policy, lease, LEDGER_FIRST_TERM, error);
    if (status == STATUS_OK)
        status = terms_arm(service, policy->id, LEDGER_FIRST_TERM, 0, error);
    (void)!ledger_steward_release(service->ledger, policy->id, LEDGER_CREATOR, NULL);
    return status;
}

/* The gate is lent what it lacks by the policy's steward. */
static enum status shared_found_lease(struct service *service, const struct policy *policy,
                                      const struct lease *lease, struct error *error)
{
    return gate_policy_set(service->gate, policy, error);
}

/* The gate lets go of a policy that is closed: the ledger knows the rest. */
static enum status shared_numbers_of_closed(struct service *service, int64_t policy_id,
                                            struct gate_numbers *numbers, struct error *error)
{
    struct policy policy;
    struct ledger_balance balance;
    enum status status = ledger_policy_get(service->ledger, policy_id, &policy, error);

    if (status == STATUS_OK && !policy_is_closed(&policy, clock_wall_ms()))
        status = error_set(error, STATUS_UNAVAILABLE, "the gate does not know policy %lld yet",
                           (long long)policy_id);
    if (status == STATUS_OK)
        status = ledger_balance(service->ledger, policy_id, &balance, error);
    if (status == STATUS_OK)
        *numbers = (struct gate_numbers){.policy_id = policy_id,
                                         .total = balance.total,
                                         .remaining = balance.unleased + balance.leased,
                                         .issued = balance.active,
                                         .opens_at_ms = policy.opens_at_ms,
                                         .closes_at_ms = policy.closes_at_ms,
                                         .version = policy.version,
                                         .paused = policy.paused,
                                         .closed_by_hand = policy.closed_at_ms != 0,
                                         .state = POLICY_CLOSED};
    return status;
}

/* Another process may have created the policy, or been told of something, a moment ago. */
static enum status shared_numbers(struct service *service, int64_t policy_id, enum numbers_age age,
                                  struct gate_numbers *numbers, struct error *error)
{
    if (age == NUMBERS_KNOWN &&
        gate_count(service->gate, policy_id, clock_wall_ms(), numbers) == STATUS_OK)
        return STATUS_OK;
    (void)!gate_refresh(service->shared, policy_id, NULL);
    if (gate_count(service->gate, policy_id, clock_wall_ms(), numbers) == STATUS_OK)
        return STATUS_OK;
    return shared_numbers_of_closed(service, policy_id, numbers, error);
}

/* The gate keeps its stock: it never gives out the ledger's next seq. */
static enum status shared_reissue(struct service *service, struct ledger_reissue *reissue,
                                  struct error *error)
{
    return ledger_coupon_reissue(service->ledger, reissue, error);
}

/* Both coupons are marked, so that somebody tells the gate of them when this process cannot. */
static enum status shared_reissued(struct service *service, const struct ledger_reissue *reissue,
                                   struct error *error)
{
    int64_t policy_id = reissue->policy_id;
    struct policy policy;
    bool is_done = false;
    enum status status;

    do
        status = fallback_tell_gate(service, policy_id, &is_done, error);
    while (status == STATUS_OK && !is_done);
    if (status == STATUS_OK)
        status = service_refresh(service, policy_id, &policy, error);
    return status;
}

static bool shared_is_ready(struct service *service, struct error *failure)
{
    return gate_is_ready(service->shared, failure);
}

static enum status shared_check(struct service *service, int64_t policy_id, struct error *failure)
{
    if (!gate_is_ready(service->shared, failure))
        return STATUS_UNAVAILABLE;
    /* Half a megabyte is no guest for a stack. */
    struct gate_pending *pending = malloc(sizeof(*pending));
    if (pending == NULL)
        return error_set(failure, STATUS_UNAVAILABLE, "not looked at: no memory");
    enum status status = gate_pending(service->shared, policy_id, AFTER_ALL_SEQS, pending, failure);
    if (status == STATUS_OK && (!pending->is_known || !pending->is_armed))
        status = error_set(failure, STATUS_UNAVAILABLE,
                           "Redis %s this policy; a worker sees to that: is one running?",
                           pending->is_known ? "is not armed for" : "has not been told of");
    free(pending);
    return status;
}

static enum status shared_survey(struct service *service, int64_t policy_id,
                                 struct gate_survey *survey, struct error *error)
{
    return gate_survey(service->shared, policy_id, survey, error);
}

struct shared_list {
    int64_t *ids;
    size_t count;
    size_t capacity;
};

static enum status shared_add(void *context, const struct policy *policy, struct error *error)
{
    struct shared_list *list = context;

    if (!array_make_room(list->ids, list->count, list->capacity))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the list of policies");
    list->ids[list->count++] = policy->id;
    return STATUS_OK;
}

/* The gate may lack some policies, and so may the ledger; while the ledger is away, those are
 * audited that the gate has. */
static enum status shared_policies(struct service *service, int64_t **ids, size_t *count,
                                   struct error *error)
{
    struct shared_list list = {0};
    enum status status = gate_enumerate(service->shared, &list.ids, &list.count, error);

    list.capacity = list.count;
    enum status listed = service_each_policy(service, shared_add, &list, error);
    *ids = list.ids;
    *count = list.count;
    return status == STATUS_OK || listed == STATUS_OK ? STATUS_OK : status;
}

static const struct service_step shared_steps[] = {
    {workers_start, ASKS_NOBODY}, {terms_start, ASKS_LEDGER}, {fallback_start, ASKS_LEDGER},
    {sync_start, ASKS_GATE},      {workers_run, ASKS_NOBODY},
};

const struct topology topology_shared = {
    .steps = shared_steps,
    .step_count = sizeof(shared_steps) / sizeof(shared_steps[0]),
    .part_count = SERVICE_PARTS - 1, /* a webhook comes besides */
    .gate_is_outside = true,
    .on_issued = workers_on_issued,
    .on_durable = workers_on_durable,
    .load = shared_load,
    .found_lease = shared_found_lease,
    .numbers = shared_numbers,
    .reissue = shared_reissue,
    .reissued = shared_reissued,
    .is_ready = shared_is_ready,
    .check = shared_check,
    .survey = shared_survey,
    .policies = shared_policies,
    .repair = audit_repair_shared,
    .decide = shared_decide,
};
