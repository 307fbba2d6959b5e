/* policies.c: creating, changing and showing policies, in step with the gate. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/parts.h"

/* A shared gate lets go of a policy that is closed: the ledger knows the rest. */
static enum status service_numbers_of_closed(struct service *service, int64_t policy_id,
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

enum status service_numbers(struct service *service, int64_t policy_id,
                            struct gate_numbers *numbers, struct error *error)
{
    if (gate_count(service->gate, policy_id, clock_wall_ms(), numbers) == STATUS_OK)
        return STATUS_OK;
    /* Another process may have created it a moment ago. */
    (void)!gate_look(service->gate, policy_id, NULL);
    if (gate_count(service->gate, policy_id, clock_wall_ms(), numbers) == STATUS_OK)
        return STATUS_OK;
    return service_numbers_of_closed(service, policy_id, numbers, error);
}

static enum status service_count(struct service *service, struct policy_view *view,
                                 struct error *error)
{
    return service_numbers(service, view->policy.id, &view->numbers, error);
}

/* Tells the gate that `count` units are on their way between it and the ledger, so that it asks for
 * a lease meanwhile and tells nobody SOLD_OUT. */
static enum status service_policy_announce(struct service *service, const struct policy *policy,
                                           int64_t count, struct error *error)
{
    struct policy between = *policy;

    between.unleased += count;
    return gate_policy_set(service->gate, &between, error);
}

enum status service_not_yet(struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE, "an earlier change waits for the ledger");
}

static void service_policy_doubt(struct service *service, int64_t policy_id,
                                 const struct lease *lease)
{
    steward_doubt(
        &service->steward,
        &(struct steward_doubt){.about = DOUBT_POLICY, .policy_id = policy_id, .lease = *lease});
}

/* Brings a policy that nobody has claimed yet into the gate. In a ledger that is shared its creator
 * is its first steward, so that no worker does the same meanwhile; one that ends here leaves it to
 * them. */
static enum status service_policy_load(struct service *service, const struct policy *policy,
                                       const struct lease *lease, struct error *error)
{
    struct gate *gate = service->gate;
    int64_t term = gate->ops->is_shared ? LEDGER_FIRST_TERM : LEDGER_NO_TERM;
    enum status status = gate_reset(gate, policy->id, 0, term, error);

    if (status == STATUS_OK)
        status = service_policy_announce(service, policy, lease->count, error);
    if (status == STATUS_OK && lease->count > 0)
        status = gate_lend(gate, lease, 0, term, error);
    if (status == STATUS_OK)
        status = gate_policy_set(gate, policy, error);
    if (status == STATUS_OK)
        status = terms_arm(service, policy->id, term, 0, error);
    if (gate->ops->is_shared)
        (void)!ledger_steward_release(service->ledger, policy->id, LEDGER_CREATOR, NULL);
    return status;
}

/* Under the lock of an id that was given; one that the ledger gives nobody knows before. */
static enum status service_policy_make(struct service *service, struct policy *policy,
                                       struct lease *lease, struct error *error)
{
    if (policy->id != 0 && !steward_is_sure(&service->steward, policy->id))
        return service_not_yet(error);
    enum status status = ledger_policy_create(service->ledger, policy, lease, error);
    if (status == STATUS_UNKNOWN)
        service_policy_doubt(service, policy->id, lease);
    return status;
}

enum status service_policy_create(struct service *service, const struct policy *policy,
                                  struct policy_view *view, struct error *error)
{
    struct lease lease = {0};
    int64_t locked_id = policy->id;

    view->policy = *policy;
    view->policy.created_at_ms = clock_wall_ms();
    if (locked_id != 0)
        steward_lock(&service->steward, locked_id);
    enum status status = service_policy_make(service, &view->policy, &lease, error);
    if (locked_id == 0 && status == STATUS_OK) {
        locked_id = view->policy.id;
        steward_lock(&service->steward, locked_id);
    }
    if (status == STATUS_OK)
        status = service_policy_load(service, &view->policy, &lease, error);
    /* It is in the ledger with its lease: the steward loads it as soon as there is memory. */
    if (status != STATUS_OK && lease.id != 0 && !service->gate->ops->is_shared)
        service_policy_doubt(service, view->policy.id, &lease);
    if (locked_id != 0)
        steward_unlock(&service->steward, locked_id);
    return status == STATUS_OK ? service_count(service, view, error) : status;
}

enum status service_policy_show(struct service *service, int64_t id, struct policy_view *view,
                                struct error *error)
{
    enum status status = ledger_policy_get(service->ledger, id, &view->policy, error);

    /* Whoever was answered by another process finds here what came of it. */
    if (status == STATUS_OK)
        (void)!gate_look(service->gate, id, NULL);
    return status == STATUS_OK ? service_count(service, view, error) : status;
}

/* One that is being created is in the ledger before the gate has it: it is found when it is whole.
 */
static bool service_is_not_whole(struct service *service, enum status counted)
{
    return counted == STATUS_UNAVAILABLE && !service->gate->ops->is_shared;
}

enum status service_policy_list(struct service *service, int64_t after_id,
                                struct policy_view *views, size_t max, size_t *count,
                                struct error *error)
{
    struct policy *policies = calloc(max, sizeof(*policies));
    enum status status =
        policies == NULL ? error_set(error, STATUS_UNAVAILABLE, "no memory for %zu policies", max)
                         : STATUS_OK;
    bool is_end = false;

    *count = 0;
    while (status == STATUS_OK && *count < max && !is_end) {
        size_t wanted = max - *count;
        size_t found = 0;
        status = ledger_policy_list(service->ledger, after_id, policies, wanted, &found, error);
        is_end = found < wanted;
        for (size_t i = 0; i < found && status == STATUS_OK; i++) {
            views[*count].policy = policies[i];
            after_id = policies[i].id;
            status = service_count(service, &views[*count], error);
            if (status == STATUS_OK)
                ++*count;
            else if (service_is_not_whole(service, status))
                status = STATUS_OK;
        }
    }
    free(policies);
    return status;
}

/* Units the gate has to give back before total can be lowered; the unleased ones go first. */
static enum status service_recall_for(struct service *service, const struct policy *policy,
                                      const struct policy_change *change,
                                      struct lease_shrunk *shrunk, size_t *shrunk_count,
                                      struct error *error)
{
    *shrunk_count = 0;
    if (!change->sets_total || policy->closed_at_ms != 0)
        return STATUS_OK;
    int64_t count = policy->total - change->total - policy->unleased;
    if (count <= 0)
        return STATUS_OK;
    enum status status = service_policy_announce(service, policy, count, error);
    if (status == STATUS_OK)
        status = gate_recall(service->gate, policy->id, count, shrunk, shrunk_count, error);
    if (status != STATUS_OK)
        (void)!gate_policy_set(service->gate, policy, NULL);
    if (status == STATUS_CONFLICT) {
        struct gate_numbers numbers = {0};
        (void)!gate_count(service->gate, policy->id, clock_wall_ms(), &numbers);
        long long taken = numbers.issued + numbers.pending;
        return error_set(error, STATUS_CONFLICT,
                         "total: %lld coupons are issued or pending; it cannot be %lld", taken,
                         (long long)change->total);
    }
    return status;
}

/* A closed policy's stock goes home. The policy is closed already, in ledger and gate: if this is
 * cut short, the next start closes the leases that are left. */
static void service_empty_gate(struct service *service, int64_t policy_id)
{
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;
    struct error error;

    while (steward_is_settled(&service->steward, policy_id) &&
           gate_recall(service->gate, policy_id, GATE_RECALL_ALL, shrunk, &shrunk_count, &error) ==
               STATUS_OK &&
           shrunk_count > 0)
        steward_give_back(&service->steward, policy_id, shrunk, shrunk_count);
}

enum status service_policy_change(struct service *service, int64_t id,
                                  const struct policy_change *change, struct policy_view *view,
                                  struct error *error)
{
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;
    struct policy_change dated = *change;

    dated.now_ms = clock_wall_ms();
    steward_lock(&service->steward, id);
    enum status status = steward_is_settled(&service->steward, id)
                             ? ledger_policy_get(service->ledger, id, &view->policy, error)
                             : service_not_yet(error);
    if (status == STATUS_OK)
        status = service_recall_for(service, &view->policy, &dated, shrunk, &shrunk_count, error);
    if (status == STATUS_OK) {
        status = ledger_policy_change(service->ledger, id, &dated, shrunk, shrunk_count,
                                      &view->policy, error);
        /* Giving the units back tells what became of the change as well. */
        if (status != STATUS_OK)
            steward_give_back(&service->steward, id, shrunk, shrunk_count);
        if (status == STATUS_UNKNOWN && shrunk_count == 0)
            service_policy_doubt(service, id, &(struct lease){0});
    }
    if (status == STATUS_OK)
        status = gate_policy_set(service->gate, &view->policy, error);
    if (status == STATUS_OK && view->policy.closed_at_ms != 0)
        service_empty_gate(service, id);
    steward_unlock(&service->steward, id);
    service_stock_changed(service);
    return status == STATUS_OK ? service_count(service, view, error) : status;
}

/* Nobody has changed the policy's line since the doubt began: if the lease's first seq is no longer
 * the next one, the lease was taken. */
enum status service_policy_settle(struct service *service, int64_t policy_id,
                                  const struct lease *lease, struct error *error)
{
    struct policy policy;
    enum status status = ledger_policy_get(service->ledger, policy_id, &policy, error);

    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    /* A shared gate is lent what it lacks by the policy's steward. */
    if (status == STATUS_OK && lease->count > 0 && policy.next_seq > lease->first_seq &&
        !service->gate->ops->is_shared) {
        status = service_policy_announce(service, &policy, lease->count, error);
        if (status == STATUS_OK)
            status = gate_lend(service->gate, lease, 0, LEDGER_NO_TERM, error);
        if (status == STATUS_CONFLICT) /* A look that was cut short has lent it. */
            status = STATUS_OK;
    }
    return status == STATUS_OK ? gate_policy_set(service->gate, &policy, error) : status;
}
