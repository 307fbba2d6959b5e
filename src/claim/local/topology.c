/* topology.c: this process has the gate to itself, in its memory. */
#include "claim/topology.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "claim/audit_parts.h"
#include "claim/desk_parts.h"

/* --- restoring the gate from the ledger when the process starts --- */

struct lease_ids {
    int64_t *ids;
    int64_t *policy_ids;
    size_t count;
    size_t capacity;
};

/* Leases that the gate does not go on with. */
struct restore {
    struct service *service;
    struct lease_ids used;  /* sold to the last seq: closing them changes no stock */
    struct lease_ids stale; /* of a closed policy, or with holes: closing them returns units */
    int64_t policy_count;
    int64_t claim_count;
};

static enum status restore_policy(void *context, const struct policy *policy, struct error *error)
{
    struct restore *restore = context;
    restore->policy_count++;
    if (policy->is_damaged)
        log_event(LOG_ERROR, "policy_damaged", LOG_FIELD("policy", LOG_I64(policy->id)),
                  LOG_FIELD("error", LOG_TEXT(error->text)),
                  LOG_FIELD("next", LOG_TEXT("put that right and restart; until then claims of "
                                             "this policy get 503")));
    return gate_policy_set(restore->service->gate, policy, error);
}

static enum status restore_claim(void *context, const struct claim *claim, enum coupon_state state,
                                 struct error *error)
{
    struct restore *restore = context;
    restore->claim_count++;
    return gate_restore(restore->service->gate, claim, state, error);
}

static enum status restore_key(void *context, const struct key_binding *binding,
                               struct error *error)
{
    struct restore *restore = context;
    enum status status = gate_restore_key(restore->service->gate, binding, error);

    if (status != STATUS_NOT_FOUND)
        return status;
    log_event(LOG_WARN, "key_without_claim", LOG_FIELD("policy", LOG_I64(binding->policy_id)),
              LOG_FIELD("seq", LOG_I64(binding->seq)),
              LOG_FIELD("next", LOG_TEXT("it is passed over")));
    return STATUS_OK;
}

static enum status restore_blocked(void *context, const struct id *user, struct error *error)
{
    struct restore *restore = context;
    return gate_block(restore->service->gate, user, true, error);
}

static enum status restore_set_aside(struct lease_ids *list, const struct lease *lease,
                                     struct error *error)
{
    size_t capacity = list->capacity;

    if (!array_make_room(list->policy_ids, list->count, capacity) ||
        !array_make_room(list->ids, list->count, list->capacity))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the leases");
    list->ids[list->count] = lease->id;
    list->policy_ids[list->count] = lease->policy_id;
    list->count++;
    return STATUS_OK;
}

/* A gate in memory gives out a lease's seqs in order and the ledger writes them in order, so the
 * rows are the first ones and the gate goes on behind them. Anything else is closed, which returns
 * what was never given out. */
static enum status restore_lease(void *context, const struct lease *lease, int64_t row_count,
                                 int64_t last_seq, struct error *error)
{
    struct restore *restore = context;
    struct gate_numbers numbers;
    bool dense = row_count == 0 || last_seq == lease->first_seq + row_count - 1;
    enum status known =
        gate_count(restore->service->gate, lease->policy_id, clock_wall_ms(), &numbers);

    /* What is damaged stays as it is, for whoever puts it right. */
    if (known == STATUS_UNAVAILABLE)
        return STATUS_OK;
    if (row_count == lease->count)
        return restore_set_aside(&restore->used, lease, error);
    if (!dense || known != STATUS_OK || numbers.closed_by_hand)
        return restore_set_aside(&restore->stale, lease, error);
    enum status status = gate_lend(restore->service->gate, lease, row_count, LEDGER_NO_TERM, error);
    if (status == STATUS_CONFLICT)
        return restore_set_aside(&restore->stale, lease, error);
    return status;
}

static enum status restore_close(struct restore *restore, struct error *error)
{
    enum status status = STATUS_OK;

    if (restore->used.count > 0)
        status = ledger_used_leases_close(restore->service->ledger, restore->used.ids,
                                          restore->used.count, error);
    for (size_t i = 0; i < restore->stale.count && status == STATUS_OK; i++) {
        struct policy policy;
        status = ledger_lease_close(restore->service->ledger, restore->stale.ids[i], LEDGER_NO_TERM,
                                    error);
        if (status == STATUS_OK)
            status =
                service_refresh(restore->service, restore->stale.policy_ids[i], &policy, error);
    }
    return status;
}

/* Builds the gate from the ledger. */
static enum status local_restore(struct service *service, struct error *error)
{
    struct restore restore = {.service = service};
    struct ledger_visitor visitor = {
        .policy = restore_policy,
        .claim = restore_claim,
        .key = restore_key,
        .lease = restore_lease,
        .blocked = restore_blocked,
        .context = &restore,
    };
    int64_t started_ms = clock_monotonic_ms();
    enum status status = ledger_visit(service->ledger, &visitor, error);

    if (status == STATUS_OK)
        status = restore_close(&restore, error);
    free(restore.used.ids);
    free(restore.used.policy_ids);
    free(restore.stale.ids);
    free(restore.stale.policy_ids);
    if (status != STATUS_OK) {
        error_prefix(error, "restoring the gate from the ledger");
        return status;
    }
    log_event(LOG_INFO, "gate_restored", LOG_FIELD("policies", LOG_I64(restore.policy_count)),
              LOG_FIELD("claims", LOG_I64(restore.claim_count)),
              LOG_FIELD("ms", LOG_I64(clock_monotonic_ms() - started_ms)));
    return STATUS_OK;
}

/* A gate that was restored halfway is begun anew. */
static enum status local_fill_gate(struct service *service, struct error *error)
{
    enum status status = local_restore(service, error);

    if (status == STATUS_OK)
        return STATUS_OK;
    gate_close(service->gate);
    service->gate = NULL;
    enum status opened = service_open_gate(service, NULL);
    return opened == STATUS_OK ? status : opened;
}

/* --- what else depends on having the gate alone --- */

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

static enum status local_load(struct service *service, const struct policy *policy,
                              const struct lease *lease, struct error *error)
{
    enum status status = service_policy_lend(service, policy, lease, LEDGER_NO_TERM, error);

    /* It is in the ledger with its lease: the steward loads it as soon as there is memory. */
    if (status != STATUS_OK)
        service_policy_doubt(service, policy->id, lease);
    return status;
}

static enum status local_found_lease(struct service *service, const struct policy *policy,
                                     const struct lease *lease, struct error *error)
{
    enum status status = service_policy_lend(service, policy, lease, LEDGER_NO_TERM, error);

    /* A look that was cut short has lent it. */
    return status == STATUS_CONFLICT ? gate_policy_set(service->gate, policy, error) : status;
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

static bool local_is_ready(struct service *service, struct error *words)
{
    error_set(words, STATUS_OK, "ok");
    return true;
}

static enum status local_check(struct service *service, int64_t policy_id, struct error *words)
{
    struct gate_numbers numbers;

    return local_numbers(service, policy_id, NUMBERS_NOW, &numbers, words);
}

/* Its clock is ours, and it tells of a win when the ledger has it. */
static enum status local_survey(struct service *service, int64_t policy_id,
                                struct gate_survey *survey, struct error *error)
{
    *survey = (struct gate_survey){.ahead_ms = 0, .loss = GATE_LOSES_NOTHING};
    return STATUS_OK;
}

/* The gate has all policies. */
static enum status local_policies(struct service *service, int64_t **ids, size_t *count,
                                  struct error *error)
{
    enum { PAGE = 256 };
    size_t more;

    *ids = NULL;
    *count = 0;
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

static const struct service_step local_steps[] = {{local_fill_gate, ASKS_LEDGER}};

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
