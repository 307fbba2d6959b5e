/* local_visit.c: tells what the gate in memory holds, a handful at a time.
 *
 * Leases are told before claims. So a claim that is decided during the walk, and that the walk does
 * not meet, is one of a lease that was told. */
#include "gate/local_gate.h"

#define HANDFUL 64

static enum status local_policy_tell_row(struct local_policy *policy,
                                         const struct gate_visitor *visitor, struct error *error)
{
    pthread_mutex_lock(&policy->lock);
    struct policy row = policy->policy;
    if (row.next_seq <= policy->seq_top)
        row.next_seq = policy->seq_top + 1;
    pthread_mutex_unlock(&policy->lock);
    return visitor->policy(visitor->context, &row, error);
}

/* Copies leases with units left and ids above `after_id`. */
static size_t local_policy_copy_stock(struct local_policy *policy, int64_t after_id,
                                      struct stock *stock, int64_t *lease_id_top)
{
    size_t count = 0;

    pthread_mutex_lock(&policy->lock);
    for (size_t i = 0; i < policy->stock_count && count < HANDFUL; i++) {
        if (policy->stock[i].lease_id > after_id)
            stock[count++] = policy->stock[i];
    }
    *lease_id_top = policy->lease_id_top;
    pthread_mutex_unlock(&policy->lock);
    return count;
}

static enum status local_policy_tell_leases(struct local_policy *policy,
                                            const struct gate_visitor *visitor, struct error *error)
{
    struct stock stock[HANDFUL];
    int64_t told_id = 0;
    int64_t lease_id_top = 0;
    enum status status = STATUS_OK;
    size_t count;

    while ((count = local_policy_copy_stock(policy, told_id, stock, &lease_id_top)) > 0) {
        for (size_t i = 0; i < count && status == STATUS_OK; i++) {
            struct lease lease = {.id = stock[i].lease_id,
                                  .policy_id = policy->id,
                                  .first_seq = stock[i].first_seq,
                                  .count = stock[i].end_seq - stock[i].first_seq,
                                  .open = true};
            status = visitor->lease(visitor->context, &lease,
                                    stock[i].next_seq - stock[i].first_seq, error);
        }
        if (status != STATUS_OK)
            return status;
        told_id = stock[count - 1].lease_id;
    }
    if (lease_id_top <= told_id)
        return STATUS_OK;
    struct lease top = {.id = lease_id_top, .policy_id = policy->id, .first_seq = 1};
    return visitor->lease(visitor->context, &top, 0, error);
}

/* Records never move and are never taken away, so an index is a place to go on from. */
static size_t local_policy_copy_claims(struct local_policy *policy, uint32_t from,
                                       struct held_claim *held)
{
    const struct holdings *holdings = &policy->holdings;
    size_t count = 0;

    pthread_mutex_lock(&policy->lock);
    for (uint32_t i = from; i < holdings->count && count < HANDFUL; i++) {
        const struct holding *holding = holdings_at(holdings, i);
        struct span user = {(const char *)holdings->names.base + (size_t)holding->user_at * 2,
                            holding->user_length};
        held[count++] = (struct held_claim){
            .claim = {.policy_id = policy->id,
                      .seq = holding->seq,
                      .requested_at_ms = holding->requested_at_ms,
                      .request_id = holding->request_id,
                      .nth = holding->nth,
                      .user = user_id_of(user)},
            .state = (enum coupon_state)holding->state,
            .is_pending = holding->seq > policy->acknowledged_seq,
        };
    }
    pthread_mutex_unlock(&policy->lock);
    return count;
}

static enum status local_policy_tell_claims(struct local_policy *policy,
                                            const struct gate_visitor *visitor, struct error *error)
{
    struct held_claim held[HANDFUL];
    uint32_t told_count = 0;
    enum status status = STATUS_OK;
    size_t count;

    while (status == STATUS_OK &&
           (count = local_policy_copy_claims(policy, told_count, held)) > 0) {
        for (size_t i = 0; i < count && status == STATUS_OK; i++)
            status = visitor->claim(visitor->context, &held[i], error);
        told_count += (uint32_t)count;
    }
    return status;
}

static size_t local_policy_copy_keys(struct local_policy *policy, uint32_t from,
                                     struct key_binding *bindings)
{
    const struct holdings *holdings = &policy->holdings;
    size_t count = 0;

    pthread_mutex_lock(&policy->lock);
    const struct bound_key *bound = holdings->bound.base;
    for (uint32_t i = from; i < holdings->bound_count && count < HANDFUL; i++)
        bindings[count++] = (struct key_binding){
            .policy_id = policy->id,
            .seq = holdings_at(holdings, bound[i].holding)->seq,
            .request_id = bound[i].request_id,
        };
    pthread_mutex_unlock(&policy->lock);
    return count;
}

static enum status local_policy_tell_keys(struct local_policy *policy,
                                          const struct gate_visitor *visitor, struct error *error)
{
    struct key_binding bindings[HANDFUL];
    uint32_t told_count = 0;
    enum status status = STATUS_OK;
    size_t count;

    while (status == STATUS_OK &&
           (count = local_policy_copy_keys(policy, told_count, bindings)) > 0) {
        for (size_t i = 0; i < count && status == STATUS_OK; i++)
            status = visitor->key(visitor->context, &bindings[i], error);
        told_count += (uint32_t)count;
    }
    return status;
}

static enum status local_policy_visit(struct local_policy *policy,
                                      const struct gate_visitor *visitor, struct error *error)
{
    enum status status = local_policy_tell_row(policy, visitor, error);

    if (status == STATUS_OK)
        status = local_policy_tell_leases(policy, visitor, error);
    if (status == STATUS_OK)
        status = local_policy_tell_claims(policy, visitor, error);
    if (status == STATUS_OK)
        status = local_policy_tell_keys(policy, visitor, error);
    return status;
}

enum status gate_local_visit(struct gate *gate, int64_t policy_id,
                             const struct gate_visitor *visitor, struct error *error)
{
    struct gate_local *local = gate_local_of(gate);
    enum status status = STATUS_OK;
    int64_t id = policy_id;

    if (policy_id != GATE_VISIT_ALL) {
        struct local_policy *policy = gate_local_policy(local, policy_id);
        return policy != NULL ? local_policy_visit(policy, visitor, error)
                              : error_set(error, STATUS_NOT_FOUND, "the gate has no policy %lld",
                                          (long long)policy_id);
    }
    while (status == STATUS_OK && gate_local_list(gate, id, &id, 1) == 1)
        status = local_policy_visit(gate_local_policy(local, id), visitor, error);
    return status == STATUS_OK
               ? blocklist_visit(&local->blocklist, visitor->blocked, visitor->context, error)
               : status;
}
