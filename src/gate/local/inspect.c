/* look.c: what the gate in memory says when it is asked: who holds what, how many are left, how a
 * policy stands for an audit, and all that it holds.
 *
 * A walk tells leases before claims. So a claim that is decided meanwhile, and that it does not
 * meet, is one of a lease that was told. */
#include "gate/local/gate.h"

#define HANDFUL 64

size_t gate_local_list(struct gate *gate, int64_t after_id, int64_t *ids, size_t ids_max)
{
    struct gate_local *local = gate_local_of(gate);
    size_t count = 0;

    pthread_rwlock_rdlock(&local->policies_lock);
    for (size_t at = gate_local_position(local, after_id + 1);
         at < local->policy_count && count < ids_max; at++)
        ids[count++] = local->policies[at]->id;
    pthread_rwlock_unlock(&local->policies_lock);
    return count;
}

enum status gate_local_find(struct gate *gate, int64_t policy_id, const struct id *user,
                            struct gate_claim *claims, size_t claims_max, size_t *count,
                            struct error *error)
{
    enum status status;
    struct local_policy *policy = gate_local_lock(gate, policy_id, &status, error);

    *count = 0;
    if (policy == NULL)
        return status;
    const struct holdings *holdings = &policy->holdings;
    int64_t written_count = (int64_t)holdings->count - policy->pending_count;
    uint32_t index = holdings_find(holdings, holdings_hash(holdings, user), user).newest;
    while (index != HOLDINGS_NONE) {
        const struct holding *holding = holdings_at(holdings, index);
        if (*count < claims_max) {
            bool pending = holding->seq > policy->acknowledged_seq;
            claims[*count] = (struct gate_claim){
                .seq = holding->seq,
                .nth = holding->nth,
                .pending = pending,
                .ahead = pending ? (int64_t)index - written_count : 0,
                .requested_at_ms = holding->requested_at_ms,
                .coupon_state = (enum coupon_state)holding->state,
            };
        }
        (*count)++;
        index = holding->previous == 0 ? HOLDINGS_NONE : holding->previous - 1;
    }
    return local_policy_unlock(policy, STATUS_OK);
}

static enum policy_state local_policy_state(const struct local_policy *policy, int64_t now_ms)
{
    if (policy_is_closed(policy->row, now_ms))
        return POLICY_CLOSED;
    if (policy->row->paused)
        return POLICY_PAUSED;
    if (now_ms < policy->row->opens_at_ms)
        return POLICY_SCHEDULED;
    if (local_policy_is_sold_out(policy))
        return POLICY_SOLD_OUT;
    return POLICY_OPEN;
}

enum status gate_local_count(struct gate *gate, int64_t policy_id, int64_t now_ms,
                             struct gate_numbers *numbers)
{
    enum status status;
    struct local_policy *policy = gate_local_lock(gate, policy_id, &status, NULL);

    if (policy == NULL)
        return status;
    if (policy->row->is_damaged)
        status = STATUS_UNAVAILABLE;
    *numbers = (struct gate_numbers){
        .policy_id = policy_id,
        .total = policy->row->total,
        .remaining = policy->row->total - policy->active_count,
        .pending = policy->pending_count,
        .issued = policy->active_count - policy->pending_count,
        .sold_out_at_ms = local_policy_is_sold_out(policy) ? policy->last_win_ms : 0,
        .opens_at_ms = policy->row->opens_at_ms,
        .closes_at_ms = policy->row->closes_at_ms,
        .version = policy->row->version,
        .paused = policy->row->paused,
        .closed_by_hand = policy->row->closed_at_ms != 0,
        .state = local_policy_state(policy, now_ms),
    };
    pthread_mutex_unlock(&policy->lock);
    return status;
}

enum status gate_local_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                               struct error *error)
{
    enum status status;
    struct local_policy *policy = gate_local_lock(gate, policy_id, &status, error);

    if (policy == NULL)
        return status == STATUS_NOT_FOUND ? STATUS_OK : status; /* is_known tells */
    state->is_known = true;
    state->is_armed = !policy->row->is_damaged;
    state->remaining = policy->remaining;
    state->pending_count = policy->pending_count;
    state->issued = policy->active_count - policy->pending_count;
    state->unleased = policy->row->unleased;
    state->version = policy->row->version;
    state->seq_top = policy->seq_top;
    state->lease_top = policy->lease_id_top;
    for (size_t i = 0; i < policy->stock_count; i++) {
        const struct stock *stock = &policy->stock[i];
        state->left += stock->end_seq - stock->next_seq;
        if (state->lease_count < GATE_STATE_LEASES_MAX)
            state->leases[state->lease_count++] = (struct gate_lease){.id = stock->lease_id,
                                                                      .first_seq = stock->first_seq,
                                                                      .next_seq = stock->next_seq,
                                                                      .end_seq = stock->end_seq};
    }
    return local_policy_unlock(policy, STATUS_OK);
}

/* --- all that it holds, a handful at a time --- */

static enum status local_policy_tell_row(struct local_policy *policy,
                                         const struct claim_visitor *visitor, struct error *error)
{
    pthread_mutex_lock(&policy->lock);
    struct policy row;
    policy_copy(&row, policy->row);
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
    for (size_t i = 0; i < policy->stock_count && count < HANDFUL; i++)
        if (policy->stock[i].lease_id > after_id)
            stock[count++] = policy->stock[i];
    *lease_id_top = policy->lease_id_top;
    pthread_mutex_unlock(&policy->lock);
    return count;
}

static enum status local_policy_tell_leases(struct local_policy *policy,
                                            const struct claim_visitor *visitor,
                                            struct error *error)
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
        struct span user = {(const char *)holdings->names.base +
                                (size_t)holding->user_at * NAME_UNIT,
                            holding->user_length};
        held[count++] = (struct held_claim){
            .claim = {.policy_id = policy->id,
                      .seq = holding->seq,
                      .requested_at_ms = holding->requested_at_ms,
                      .request_id = holding->request_id,
                      .nth = holding->nth,
                      .user = id_of(user)},
            .state = (enum coupon_state)holding->state,
            .is_pending = holding->seq > policy->acknowledged_seq,
        };
    }
    pthread_mutex_unlock(&policy->lock);
    return count;
}

static enum status local_policy_tell_claims(struct local_policy *policy,
                                            const struct claim_visitor *visitor,
                                            struct error *error)
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
                                          const struct claim_visitor *visitor, struct error *error)
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
                                      const struct claim_visitor *visitor, struct error *error)
{
    enum status status = STATUS_OK;

    if (visitor->policy != NULL)
        status = local_policy_tell_row(policy, visitor, error);
    if (status == STATUS_OK && visitor->lease != NULL)
        status = local_policy_tell_leases(policy, visitor, error);
    if (status == STATUS_OK && visitor->claim != NULL)
        status = local_policy_tell_claims(policy, visitor, error);
    if (status == STATUS_OK && visitor->key != NULL)
        status = local_policy_tell_keys(policy, visitor, error);
    return status;
}

enum status gate_local_visit(struct gate *gate, int64_t policy_id,
                             const struct claim_visitor *visitor, struct error *error)
{
    struct gate_local *local = gate_local_of(gate);
    enum status status = STATUS_OK;
    int64_t id = policy_id;

    if (policy_id != GATE_VISIT_ALL) {
        struct local_policy *policy = gate_local_lock(gate, policy_id, &status, error);
        if (policy == NULL)
            return status;
        pthread_mutex_unlock(&policy->lock);
        return local_policy_visit(policy, visitor, error);
    }
    while (status == STATUS_OK && gate_local_list(gate, id, &id, 1) == 1)
        status = local_policy_visit(gate_local_policy(local, id), visitor, error);
    return status == STATUS_OK && visitor->blocked != NULL
               ? blocklist_visit(&local->blocklist, visitor->blocked, visitor->context, error)
               : status;
}
