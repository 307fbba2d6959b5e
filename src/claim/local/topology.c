/* topology.c: this process has the gate to itself, in its memory. */
#include "claim/topology.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/fault.h"
#include "claim/audit_parts.h"
#include "claim/desk_parts.h"
#include "claim/local/restore.h"

/* The gate hears first, so that whoever is woken finds it up to date. */
static void local_on_issued(void *context, const struct claim *claims,
                            const enum coupon_state *states, size_t count)
{
    struct service *service = context;

    gate_acknowledge(service->gate, claims, states, count);
    for (size_t i = 0; i < count; i++)
        if (!coupon_state_is_active(states[i]))
            steward_call(&service->steward, claims[i].policy_id, STEWARD_REFRESH);
}

static void local_on_durable(void *context)
{
    service_ring(context);
}

uint64_t local_on_win(void *context, const struct claim *claims, size_t claim_count,
                      const struct key_binding *bindings, size_t binding_count)
{
    struct service *service = context;
    FAULT_POINT("gate.after_decision");
    return ledger_issue(service->ledger, claims, claim_count, bindings, binding_count);
}

/* A look that was cut short may have lent it, or the start that has just restored the policy. */
static enum status local_found_lease(struct service *service, const struct policy *policy,
                                     const struct lease *lease, struct error *error)
{
    enum status status = service_policy_lend(service, policy, lease, LEDGER_NO_TERM, error);

    return status == STATUS_CONFLICT ? gate_policy_set(service->gate, policy, error) : status;
}

static enum status local_load(struct service *service, const struct policy *policy,
                              const struct lease *lease, struct error *error)
{
    enum status status = local_found_lease(service, policy, lease, error);

    /* It is in the ledger with its lease: the steward loads it as soon as there is memory. */
    if (status != STATUS_OK)
        service_policy_doubt(service, policy->id, lease);
    return status;
}

static enum status local_numbers(struct service *service, int64_t policy_id, enum numbers_age age,
                                 struct gate_numbers *numbers, struct error *error)
{
    if (gate_count(service->gate, policy_id, clock_wall_ms(), numbers) == STATUS_OK)
        return STATUS_OK;
    return error_set(error, STATUS_UNAVAILABLE, "the gate does not know policy %lld yet",
                     (long long)policy_id);
}

/* The gate's next seqs go home, so that the ledger's next one is above all that were given. */
static enum status local_empty(struct service *service, int64_t policy_id, struct error *error)
{
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;
    struct gate_numbers numbers;
    struct policy policy;
    enum status status = local_numbers(service, policy_id, NUMBERS_NOW, &numbers, error);

    if (status == STATUS_OK)
        status = ledger_policy_get(service->ledger, policy_id, &policy, error);
    if (status == STATUS_OK)
        status = service_policy_announce(service, &policy, numbers.remaining, error);
    do {
        if (status == STATUS_OK)
            status = gate_recall(service->gate, policy_id, GATE_RECALL_ALL, shrunk, &shrunk_count,
                                 error);
        if (status == STATUS_OK)
            steward_give_back(&service->steward, policy_id, shrunk, shrunk_count);
    } while (status == STATUS_OK && shrunk_count > 0);
    if (status == STATUS_OK && !steward_is_settled(&service->steward, policy_id))
        status = service_not_yet(error);
    return status == STATUS_OK ? service_refresh(service, policy_id, &policy, error) : status;
}

/* A claim that waits for stock meanwhile has the steward lease it again. */
static enum status local_reissue(struct service *service, struct ledger_reissue *reissue,
                                 struct error *error)
{
    enum status status = STATUS_OK;

    if (coupon_state_at(reissue->old.state, reissue->old.expires_at_ms, reissue->now_ms) ==
        COUPON_ISSUED)
        status = local_empty(service, reissue->policy_id, error);
    return status == STATUS_OK ? ledger_coupon_reissue(service->ledger, reissue, error) : status;
}

/* The new one first, so that its user holds one at any moment. */
static enum status local_reissued(struct service *service, const struct ledger_reissue *reissue,
                                  struct error *error)
{
    const struct claim *claim = &reissue->coupon.claim;
    struct policy policy;
    enum status status = gate_settle(service->gate, claim->policy_id, &claim->user, claim->seq,
                                     reissue->coupon.state, error);

    if (status == STATUS_NOT_FOUND)
        status = gate_restore(service->gate, claim, reissue->coupon.state, error);
    if (status == STATUS_OK)
        status = gate_settle(service->gate, claim->policy_id, &claim->user, reissue->seq,
                             COUPON_CANCELLED, error);
    return status == STATUS_OK ? service_refresh(service, claim->policy_id, &policy, error)
                               : status;
}

static bool local_is_ready(struct service *service, struct error *failure)
{
    return restore_is_over(service->restore, failure);
}

static enum status local_check(struct service *service, int64_t policy_id, struct error *failure)
{
    struct gate_numbers numbers;

    return local_numbers(service, policy_id, NUMBERS_NOW, &numbers, failure);
}

/* Its clock is ours, and it tells of a win when the ledger has it. */
static enum status local_survey(struct service *service, int64_t policy_id,
                                struct gate_survey *survey, struct error *error)
{
    *survey = (struct gate_survey){.ahead_ms = 0, .loss = GATE_LOSES_NOTHING};
    return STATUS_OK;
}

/* The gate has all policies, as soon as it is restored. */
static enum status local_policies(struct service *service, int64_t **ids, size_t *count,
                                  struct error *error)
{
    enum { PAGE = 256 };
    size_t more;

    *ids = NULL;
    *count = 0;
    if (!restore_has_all(service->restore))
        return error_set(error, STATUS_UNAVAILABLE, "the gate is being restored");
    do {
        int64_t *grown = reallocarray(*ids, *count + PAGE, sizeof(*grown));
        if (grown == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "no memory for the list of policies");
        *ids = grown;
        more = gate_list(service->gate, *count > 0 ? grown[*count - 1] : 0, grown + *count, PAGE);
        *count += more;
    } while (more == PAGE);
    return STATUS_OK;
}

/* When the gate's lease is sold, the steward is asked to fetch another. The gate is not asked while
 * the ledger takes nothing, or too much waits for it. */
static void local_decide(struct desk *desk, int64_t policy_id, size_t count, int64_t wall_ms)
{
    struct service *service = desk->options.service;
    struct gate_batch batch = {.policy_id = policy_id, .wishes = desk->batch, .count = count};
    bool wants_lease = false;

    if (!ledger_healthy(desk->ledger) ||
        ledger_pending(desk->ledger) >= service->options.pending_max) {
        for (size_t i = 0; i < count; i++) {
            desk->batch[i]->ticket = 0;
            desk->batch[i]->verdict = VERDICT_UNAVAILABLE;
        }
        return;
    }
    ensure(gate_claim(desk->line, &batch, wall_ms));
    for (size_t i = 0; i < count; i++)
        wants_lease = wants_lease || desk->batch[i]->verdict == VERDICT_LEASE_WANTED;
    if (wants_lease)
        steward_call(&service->steward, policy_id, STEWARD_LEASE);
}

static const struct service_step local_steps[] = {{restore_start, ASKS_LEDGER}};

const struct topology topology_local = {
    .steps = local_steps,
    .step_count = sizeof(local_steps) / sizeof(local_steps[0]),
    .part_count = SERVICE_PARTS - 2, /* no workers; a webhook comes besides */
    .lists_whole_only = true,
    .on_issued = local_on_issued,
    .on_durable = local_on_durable,
    .load = local_load,
    .found_lease = local_found_lease,
    .numbers = local_numbers,
    .reissue = local_reissue,
    .reissued = local_reissued,
    .is_ready = local_is_ready,
    .check = local_check,
    .survey = local_survey,
    .policies = local_policies,
    .repair = audit_repair_local,
    .decide = local_decide,
};
