/* local_look.c: what the gate in memory says when it is asked: who holds what, how many are left,
 * and how a policy stands for an audit. */
#include "gate/local_gate.h"

enum status gate_local_find(struct gate *gate, int64_t policy_id, const struct user_id *user,
                            struct gate_claim *claims, size_t claims_max, size_t *count,
                            struct error *error)
{
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), policy_id);

    *count = 0;
    if (policy == NULL)
        return error_set(error, STATUS_NOT_FOUND, "there is no policy %lld", (long long)policy_id);
    pthread_mutex_lock(&policy->lock);
    const struct holdings *holdings = &policy->holdings;
    int64_t written_count = (int64_t)holdings->count - policy->pending_count;
    uint32_t index = holdings_of_user(holdings, holdings_hash(holdings, user), user);
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
    pthread_mutex_unlock(&policy->lock);
    return STATUS_OK;
}

static enum policy_state local_policy_state(const struct local_policy *policy, int64_t now_ms)
{
    if (local_policy_is_closed(policy, now_ms))
        return POLICY_CLOSED;
    if (policy->policy.paused)
        return POLICY_PAUSED;
    if (now_ms < policy->policy.opens_at_ms)
        return POLICY_SCHEDULED;
    if (local_policy_is_sold_out(policy))
        return POLICY_SOLD_OUT;
    return POLICY_OPEN;
}

enum status gate_local_count(struct gate *gate, int64_t policy_id, int64_t now_ms,
                             struct gate_numbers *numbers)
{
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), policy_id);

    if (policy == NULL)
        return STATUS_NOT_FOUND;
    pthread_mutex_lock(&policy->lock);
    *numbers = (struct gate_numbers){
        .policy_id = policy_id,
        .total = policy->policy.total,
        .remaining = policy->policy.total - policy->active_count,
        .pending = policy->pending_count,
        .issued = policy->active_count - policy->pending_count,
        .sold_out_at_ms = local_policy_is_sold_out(policy) ? policy->last_win_ms : 0,
        .opens_at_ms = policy->policy.opens_at_ms,
        .closes_at_ms = policy->policy.closes_at_ms,
        .version = policy->policy.version,
        .paused = policy->policy.paused,
        .closed_by_hand = policy->policy.closed_at_ms != 0,
        .state = local_policy_state(policy, now_ms),
    };
    pthread_mutex_unlock(&policy->lock);
    return STATUS_OK;
}

enum status gate_local_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                               struct error *error)
{
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), policy_id);

    (void)error;
    if (policy == NULL)
        return STATUS_OK;
    pthread_mutex_lock(&policy->lock);
    state->is_known = state->is_armed = true;
    state->remaining = policy->remaining;
    state->pending_count = policy->pending_count;
    state->issued = policy->active_count - policy->pending_count;
    state->unleased = policy->policy.unleased;
    state->version = policy->policy.version;
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
    pthread_mutex_unlock(&policy->lock);
    return STATUS_OK;
}
