/* stock.c: policies and their stock in process memory, as the steward and a restart bring them. */
#include <stdlib.h>

#include "base/array.h"
#include "gate/local/gate.h"

void local_policy_free(struct local_policy *policy)
{
    pthread_mutex_destroy(&policy->lock);
    holdings_release(&policy->holdings);
    free(policy->stock);
    free(policy->row);
    free(policy);
}

/* Room for one more lease of so many units. */
static bool local_policy_make_room(struct local_policy *policy, int64_t count)
{
    if (!array_make_room(policy->stock, policy->stock_count, policy->stock_capacity))
        return false;
    return holdings_reserve(&policy->holdings,
                            policy->holdings.count + (uint64_t)(policy->remaining + count));
}

/* The row is in place before anyone can find the policy, and so is the room for all that it has
 * leased: a claim that came in between, or after there was no memory, would be told SOLD_OUT. */
static struct local_policy *gate_local_add(struct gate_local *local, const struct policy *row)
{
    struct local_policy *policy = calloc(1, sizeof(*policy));
    if (policy == NULL)
        return NULL;
    pthread_mutex_init(&policy->lock, NULL);
    policy->id = row->id;
    policy->row = policy_keep(row);
    holdings_init(&policy->holdings);
    policy->stock = malloc(sizeof(*policy->stock)); /* most have one lease */
    policy->stock_capacity = policy->stock != NULL;
    if (policy->row == NULL || !local_policy_make_room(policy, row->next_seq - 1)) {
        local_policy_free(policy);
        return NULL;
    }

    struct local_policy *enlisted = policy;
    if (!gate_local_enlist(local, &enlisted) || enlisted != policy)
        local_policy_free(policy);
    return enlisted;
}

enum status gate_local_policy_set(struct gate *gate, const struct policy *row, struct error *error)
{
    struct gate_local *local = gate_local_of(gate);
    struct local_policy *policy = gate_local_policy(local, row->id);
    enum status status = STATUS_OK;

    if (policy == NULL)
        policy = gate_local_add(local, row);
    if (policy == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for policy %lld",
                         (long long)row->id);
    pthread_mutex_lock(&policy->lock);
    /* Every seq ever leased may come back as a claim when the gate is being restored. Without room
     * for them nothing changes: that the ledger has nothing left would be SOLD_OUT. */
    bool is_damaged = row->is_damaged || policy->row->is_damaged;
    if (row->version >= policy->row->version) {
        struct policy *next = policy_keep(row);
        struct policy *replaced = next;
        if (next != NULL && holdings_reserve(&policy->holdings, (uint64_t)(row->next_seq - 1))) {
            replaced = policy->row;
            policy->row = next;
        } else {
            status = error_set(error, STATUS_UNAVAILABLE, "no memory for %lld claims",
                               (long long)(row->next_seq - 1));
        }
        free(replaced);
    }
    policy->row->is_damaged = is_damaged;
    return local_policy_unlock(policy, status);
}

enum status gate_local_lend(struct gate *gate, const struct lease *lease, int64_t given_count,
                            int64_t term, struct error *error)
{
    enum status status;
    struct local_policy *policy = gate_local_lock(gate, lease->policy_id, &status, error);

    if (policy == NULL)
        return status;
    int64_t next_seq = lease->first_seq + given_count;
    if (lease->id <= policy->lease_id_top || next_seq <= policy->seq_top)
        return local_policy_unlock(policy, error_set(error, STATUS_CONFLICT,
                                                     "the gate has seen lease %lld or later ones",
                                                     (long long)lease->id));
    if (!local_policy_make_room(policy, lease->count - given_count))
        return local_policy_unlock(policy, error_set(error, STATUS_UNAVAILABLE,
                                                     "no memory for a lease of %lld units",
                                                     (long long)lease->count));
    policy->lease_id_top = lease->id;
    if (lease->count > given_count) {
        policy->stock[policy->stock_count++] = (struct stock){
            .lease_id = lease->id,
            .first_seq = lease->first_seq,
            .next_seq = next_seq,
            .end_seq = lease->first_seq + lease->count,
        };
        policy->remaining += lease->count - given_count;
        policy->seq_top = lease->first_seq + lease->count - 1;
    }
    return local_policy_unlock(policy, STATUS_OK);
}

/* Takes units off the end of the newest leases until `count` are gathered or the places are full.
 */
static size_t local_policy_shrink(struct local_policy *policy, int64_t count,
                                  struct lease_shrunk *shrunk)
{
    size_t shrunk_count = 0;

    while (count > 0 && policy->stock_count > 0 && shrunk_count < GATE_RECALL_LEASES_MAX) {
        struct stock *last = &policy->stock[policy->stock_count - 1];
        int64_t left = last->end_seq - last->next_seq;
        int64_t taken = left < count ? left : count;

        last->end_seq -= taken;
        policy->remaining -= taken;
        count -= taken;
        policy->seq_top = last->end_seq - 1;
        shrunk[shrunk_count++] = (struct lease_shrunk){
            .lease_id = last->lease_id,
            .count = last->end_seq - last->first_seq,
        };
        if (last->end_seq == last->next_seq)
            policy->stock_count--;
    }
    return shrunk_count;
}

/* How many of the newest leases hold `count` units together. */
static size_t local_policy_leases_for(const struct local_policy *policy, int64_t count)
{
    size_t needed = 0;
    while (count > 0 && needed < policy->stock_count) {
        const struct stock *stock = &policy->stock[policy->stock_count - 1 - needed];
        count -= stock->end_seq - stock->next_seq;
        needed++;
    }
    return needed;
}

enum status gate_local_recall(struct gate *gate, int64_t policy_id, int64_t count,
                              struct lease_shrunk *shrunk, size_t *shrunk_count,
                              struct error *error)
{
    enum status status;
    struct local_policy *policy = gate_local_lock(gate, policy_id, &status, error);

    *shrunk_count = 0;
    if (policy == NULL)
        return status;
    bool whatever_there_is = count == GATE_RECALL_ALL;
    if (!whatever_there_is && policy->remaining < count)
        status = error_set(error, STATUS_CONFLICT, "only %lld units are left, %lld are needed",
                           (long long)policy->remaining, (long long)count);
    else if (!whatever_there_is && local_policy_leases_for(policy, count) > GATE_RECALL_LEASES_MAX)
        status = error_set(error, STATUS_UNAVAILABLE, "the stock is spread over too many leases");
    else
        *shrunk_count = local_policy_shrink(policy, count, shrunk);
    return local_policy_unlock(policy, status);
}

enum status gate_local_restore(struct gate *gate, const struct claim *claim,
                               enum coupon_state state, struct error *error)
{
    enum status status;
    struct local_policy *policy = gate_local_lock(gate, claim->policy_id, &status, error);

    if (policy == NULL)
        return STATUS_FAILED; /* claims of nobody's policy */
    struct holdings *holdings = &policy->holdings;
    if (claim->seq <= policy->acknowledged_seq) {
        status = error_set(error, STATUS_FAILED, "claim %lld-%lld came out of order",
                           (long long)claim->policy_id, (long long)claim->seq);
    } else if (!holdings_reserve(holdings, holdings->count + UINT64_C(1)) ||
               !holdings_make_room(holdings, 1, claim->user.length)) {
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for %u claims", holdings->count);
    } else {
        holdings_add(holdings, holdings_hash(holdings, &claim->user), claim, state);
        policy->active_count += coupon_state_is_active(state);
        policy->acknowledged_seq = claim->seq;
        policy->seq_top = claim->seq;
        policy->last_win_ms = claim->requested_at_ms;
    }
    return local_policy_unlock(policy, status);
}

enum status gate_local_restore_key(struct gate *gate, const struct key_binding *binding,
                                   struct error *error)
{
    enum status status;
    struct local_policy *policy = gate_local_lock(gate, binding->policy_id, &status, error);

    if (policy == NULL)
        return status;
    uint32_t index = holdings_of_seq(&policy->holdings, binding->seq);
    if (index == HOLDINGS_NONE)
        status = error_set(error, STATUS_NOT_FOUND, "there is no claim %lld-%lld",
                           (long long)binding->policy_id, (long long)binding->seq);
    else if (!holdings_bind(&policy->holdings, index, &binding->request_id))
        status = error_set(error, STATUS_FAILED, "a key of claim %lld-%lld cannot be restored",
                           (long long)binding->policy_id, (long long)binding->seq);
    return local_policy_unlock(policy, status);
}
