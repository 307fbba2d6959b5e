/* restore.c: rebuilds a gate from the ledger when the process starts. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/parts.h"

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

static enum status restore_blocked(void *context, const struct user_id *user, struct error *error)
{
    struct restore *restore = context;
    return gate_block(restore->service->gate, user, true, error);
}

static enum status restore_set_aside(struct lease_ids *list, const struct lease *lease,
                                     struct error *error)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        int64_t *ids = realloc(list->ids, capacity * sizeof(*ids));
        if (ids != NULL)
            list->ids = ids;
        int64_t *policy_ids = realloc(list->policy_ids, capacity * sizeof(*policy_ids));
        if (policy_ids != NULL)
            list->policy_ids = policy_ids;
        if (ids == NULL || policy_ids == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "no memory for the leases");
        list->capacity = capacity;
    }
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

    if (row_count == lease->count)
        return restore_set_aside(&restore->used, lease, error);
    if (!dense ||
        gate_count(restore->service->gate, lease->policy_id, clock_wall_ms(), &numbers) !=
            STATUS_OK ||
        numbers.closed_by_hand)
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

enum status service_restore(struct service *service, struct error *error)
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
