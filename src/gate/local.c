/* local.c: the gate in process memory: its policies, their stock and what the ledger reports. Who
 * wins is in local_decide.c, what the gate says when asked in local_look.c and local_visit.c. */
#include "gate/local.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "gate/alone.h"
#include "gate/local_gate.h"

/* Where the id is or would be. */
static size_t gate_local_position(const struct gate_local *local, int64_t id)
{
    size_t low = 0;
    size_t high = local->policy_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (local->policies[middle]->id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct local_policy *gate_local_policy(struct gate_local *local, int64_t id)
{
    struct local_policy *policy = NULL;

    pthread_rwlock_rdlock(&local->policies_lock);
    size_t at = gate_local_position(local, id);
    if (at < local->policy_count && local->policies[at]->id == id)
        policy = local->policies[at];
    pthread_rwlock_unlock(&local->policies_lock);
    return policy;
}

static void local_policy_free(struct local_policy *policy)
{
    pthread_mutex_destroy(&policy->lock);
    holdings_release(&policy->holdings);
    free(policy->stock);
    free(policy);
}

/* Room for one more lease of so many units. */
static bool local_policy_make_room(struct local_policy *policy, int64_t count)
{
    if (policy->stock_count == policy->stock_capacity) {
        size_t capacity = policy->stock_capacity == 0 ? 8 : policy->stock_capacity * 2;
        struct stock *grown = realloc(policy->stock, capacity * sizeof(*grown));
        if (grown == NULL)
            return false;
        policy->stock = grown;
        policy->stock_capacity = capacity;
    }
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
    policy->policy = *row;
    holdings_init(&policy->holdings);
    if (!local_policy_make_room(policy, row->next_seq - 1)) {
        local_policy_free(policy);
        return NULL;
    }

    pthread_rwlock_wrlock(&local->policies_lock);
    if (local->policy_count == local->policy_capacity) {
        size_t capacity = local->policy_capacity == 0 ? 16 : local->policy_capacity * 2;
        struct local_policy **grown = realloc(local->policies, capacity * sizeof(*grown));
        if (grown == NULL) {
            pthread_rwlock_unlock(&local->policies_lock);
            local_policy_free(policy);
            return NULL;
        }
        local->policies = grown;
        local->policy_capacity = capacity;
    }
    size_t at = gate_local_position(local, row->id);
    memmove(local->policies + at + 1, local->policies + at,
            (local->policy_count - at) * sizeof(*local->policies));
    local->policies[at] = policy;
    local->policy_count++;
    pthread_rwlock_unlock(&local->policies_lock);
    return policy;
}

static void gate_local_close(struct gate *gate)
{
    struct gate_local *local = gate_local_of(gate);
    for (size_t i = 0; i < local->policy_count; i++)
        local_policy_free(local->policies[i]);
    free(local->policies);
    pthread_rwlock_destroy(&local->policies_lock);
    blocklist_release(&local->blocklist);
    free(local);
}

/* --- what the steward does --- */

static enum status gate_local_policy_set(struct gate *gate, const struct policy *row,
                                         struct error *error)
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
    if (row->version >= policy->policy.version) {
        if (holdings_reserve(&policy->holdings, (uint64_t)(row->next_seq - 1)))
            policy->policy = *row;
        else
            status = error_set(error, STATUS_UNAVAILABLE, "no memory for %lld claims",
                               (long long)(row->next_seq - 1));
    }
    pthread_mutex_unlock(&policy->lock);
    return status;
}

static enum status gate_local_lend(struct gate *gate, const struct lease *lease,
                                   int64_t given_count, int64_t term, struct error *error)
{
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), lease->policy_id);
    enum status status = STATUS_OK;

    (void)term;
    if (policy == NULL)
        return error_set(error, STATUS_NOT_FOUND, "the gate has no policy %lld",
                         (long long)lease->policy_id);
    pthread_mutex_lock(&policy->lock);
    int64_t next_seq = lease->first_seq + given_count;
    if (lease->id <= policy->lease_id_top || next_seq <= policy->seq_top) {
        status = error_set(error, STATUS_CONFLICT, "the gate has seen lease %lld or later ones",
                           (long long)lease->id);
        goto unlock;
    }
    if (!local_policy_make_room(policy, lease->count - given_count)) {
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for a lease of %lld units",
                           (long long)lease->count);
        goto unlock;
    }
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
unlock:
    pthread_mutex_unlock(&policy->lock);
    return status;
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

static enum status gate_local_recall(struct gate *gate, int64_t policy_id, int64_t count,
                                     struct lease_shrunk *shrunk, size_t *shrunk_count,
                                     struct error *error)
{
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), policy_id);
    enum status status = STATUS_OK;

    *shrunk_count = 0;
    if (policy == NULL)
        return error_set(error, STATUS_NOT_FOUND, "the gate has no policy %lld",
                         (long long)policy_id);
    pthread_mutex_lock(&policy->lock);
    bool whatever_there_is = count == GATE_RECALL_ALL;
    if (!whatever_there_is && policy->remaining < count)
        status = error_set(error, STATUS_CONFLICT, "only %lld units are left, %lld are needed",
                           (long long)policy->remaining, (long long)count);
    else if (!whatever_there_is && local_policy_leases_for(policy, count) > GATE_RECALL_LEASES_MAX)
        status = error_set(error, STATUS_UNAVAILABLE, "the stock is spread over too many leases");
    else
        *shrunk_count = local_policy_shrink(policy, count, shrunk);
    pthread_mutex_unlock(&policy->lock);
    return status;
}

static enum status gate_local_restore(struct gate *gate, const struct claim *claim,
                                      enum coupon_state state, struct error *error)
{
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), claim->policy_id);
    enum status status = STATUS_OK;

    if (policy == NULL)
        return error_set(error, STATUS_FAILED, "claim %lld-%lld has no policy",
                         (long long)claim->policy_id, (long long)claim->seq);
    pthread_mutex_lock(&policy->lock);
    struct holdings *holdings = &policy->holdings;
    if (claim->seq <= policy->acknowledged_seq) {
        status = error_set(error, STATUS_FAILED, "claim %lld-%lld came out of order",
                           (long long)claim->policy_id, (long long)claim->seq);
    } else if (!holdings_reserve(holdings, holdings->count + UINT64_C(1))) {
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for %u claims", holdings->count);
    } else {
        holdings_add(holdings, holdings_hash(holdings, &claim->user), claim, state);
        policy->active_count += coupon_state_is_active(state);
        policy->acknowledged_seq = claim->seq;
        policy->seq_top = claim->seq;
        policy->last_win_ms = claim->requested_at_ms;
    }
    pthread_mutex_unlock(&policy->lock);
    return status;
}

static enum status gate_local_restore_key(struct gate *gate, const struct key_binding *binding,
                                          struct error *error)
{
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), binding->policy_id);
    enum status status = STATUS_OK;

    if (policy == NULL)
        return error_set(error, STATUS_NOT_FOUND, "there is no policy %lld",
                         (long long)binding->policy_id);
    pthread_mutex_lock(&policy->lock);
    uint32_t index = holdings_of_seq(&policy->holdings, binding->seq);
    if (index == HOLDINGS_NONE)
        status = error_set(error, STATUS_NOT_FOUND, "there is no claim %lld-%lld",
                           (long long)binding->policy_id, (long long)binding->seq);
    else if (!holdings_bind(&policy->holdings, index, &binding->request_id))
        status = error_set(error, STATUS_FAILED, "a key of claim %lld-%lld cannot be restored",
                           (long long)binding->policy_id, (long long)binding->seq);
    pthread_mutex_unlock(&policy->lock);
    return status;
}

/* --- deciding --- */

static enum status gate_local_line_open(struct gate *gate, const struct gate_line_options *options,
                                        struct gate_line **line, struct error *error)
{
    (void)options;
    *line = calloc(1, sizeof(**line));
    if (*line == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a line");
    (*line)->gate = gate;
    return STATUS_OK;
}

static void gate_local_line_close(struct gate_line *line)
{
    free(line);
}

static bool gate_local_claim(struct gate_line *line, struct gate_batch *batch, int64_t now_ms)
{
    struct gate_local *local = gate_local_of(line->gate);
    struct local_policy *policy = gate_local_policy(local, batch->policy_id);

    if (policy != NULL) {
        local_policy_claim(policy, &local->blocklist, &local->outlet, batch->wishes, batch->count,
                           now_ms);
        return true;
    }
    for (size_t i = 0; i < batch->count; i++) {
        batch->wishes[i]->verdict = VERDICT_NO_POLICY;
        batch->wishes[i]->ticket = 0;
    }
    return true;
}

/* --- what the ledger reports --- */

static void local_policy_release(struct local_policy *policy, int64_t seq, enum coupon_state state)
{
    uint32_t index = holdings_of_seq(&policy->holdings, seq);
    if (index == HOLDINGS_NONE)
        return;
    const struct holding *holding = holdings_at(&policy->holdings, index);
    if (coupon_state_is_active((enum coupon_state)holding->state))
        policy->active_count--;
    holdings_free_slot(&policy->holdings, index, state);
}

static void gate_local_acknowledge(struct gate *gate, const struct claim *claims,
                                   const enum coupon_state *states, size_t count)
{
    for (size_t i = 0; i < count;) {
        struct local_policy *policy = gate_local_policy(gate_local_of(gate), claims[i].policy_id);
        size_t end = i;

        ensure(policy != NULL);
        pthread_mutex_lock(&policy->lock);
        while (end < count && claims[end].policy_id == policy->id) {
            if (!coupon_state_is_active(states[end])) {
                local_policy_release(policy, claims[end].seq, states[end]);
                atomic_fetch_add(&policy->void_count, 1);
                /* Its unit is in the ledger again; until the steward brings the row, nobody may be
                 * told that there is none. */
                policy->policy.unleased++;
            }
            end++;
        }
        policy->pending_count -= (int64_t)(end - i);
        policy->acknowledged_seq = claims[end - 1].seq;
        pthread_mutex_unlock(&policy->lock);
        i = end;
    }
}

static enum status gate_local_settle(struct gate *gate, int64_t policy_id,
                                     const struct user_id *user, int64_t seq,
                                     enum coupon_state state, struct error *error)
{
    (void)user;
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), policy_id);
    enum status status = STATUS_OK;

    if (policy == NULL)
        return error_set(error, STATUS_NOT_FOUND, "the gate has no policy %lld",
                         (long long)policy_id);
    pthread_mutex_lock(&policy->lock);
    uint32_t index = holdings_of_seq(&policy->holdings, seq);
    if (index == HOLDINGS_NONE)
        status = error_set(error, STATUS_NOT_FOUND, "the gate has no claim %lld-%lld",
                           (long long)policy_id, (long long)seq);
    else if (coupon_state_is_active(state))
        holdings_at(&policy->holdings, index)->state = (uint8_t)state & 7;
    else
        local_policy_release(policy, seq, state);
    pthread_mutex_unlock(&policy->lock);
    return status;
}

static enum status gate_local_block(struct gate *gate, const struct user_id *user, bool blocked,
                                    struct error *error)
{
    if (!blocklist_set(&gate_local_of(gate)->blocklist, user, blocked))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the list of blocked users");
    return STATUS_OK;
}

/* --- looking --- */

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

static bool gate_local_stands(struct gate *gate, const struct wish *wish)
{
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), wish->policy_id);
    enum coupon_state state = COUPON_VOID;

    ensure(policy != NULL);
    if (atomic_load(&policy->void_count) == wish->void_count)
        return true;
    if (wish->verdict != VERDICT_WON && wish->verdict != VERDICT_HELD)
        return false;
    pthread_mutex_lock(&policy->lock);
    uint32_t index = holdings_of_seq(&policy->holdings, wish->seq);
    if (index != HOLDINGS_NONE)
        state = (enum coupon_state)holdings_at(&policy->holdings, index)->state;
    pthread_mutex_unlock(&policy->lock);
    return state != COUPON_VOID && state != COUPON_MERGED;
}

static const struct gate_ops gate_local_ops = {
    .name = "local",
    .decides_at_once = true,
    .close = gate_local_close,
    .policy_set = gate_local_policy_set,
    .lend = gate_local_lend,
    .recall = gate_local_recall,
    .restore = gate_local_restore,
    .restore_key = gate_local_restore_key,
    .line_open = gate_local_line_open,
    .line_close = gate_local_line_close,
    .claim = gate_local_claim,
    .acknowledge = gate_local_acknowledge,
    .settle = gate_local_settle,
    .block = gate_local_block,
    .find = gate_local_find,
    .count = gate_local_count,
    .look = gate_alone_look,
    .list = gate_local_list,
    .stands = gate_local_stands,
    .place = gate_alone_place,
    .announce = gate_alone_announce,
    .pending = gate_alone_pending,
    .acknowledge_keys = gate_alone_acknowledge_keys,
    .can_move = gate_alone_can_move,
    .take_over = gate_alone_take_over,
    .reset = gate_alone_reset,
    .moment = gate_alone_moment,
    .arm = gate_alone_arm,
    .renewal_begin = gate_alone_renewal_begin,
    .renew = gate_alone_renew,
    .enter = gate_alone_enter,
    .leases = gate_alone_leases,
    .retire = gate_alone_retire,
    .publish = gate_alone_publish,
    .published = gate_alone_published,
    .inspect = gate_local_inspect,
    .strays = gate_alone_strays,
    .mend = gate_alone_mend,
    .lay_down = gate_alone_lay_down,
    .enumerate = gate_alone_enumerate,
    .suspend = gate_alone_suspend,
    .forget = gate_alone_forget,
    .is_ready = gate_alone_is_ready,
    .survey = gate_alone_survey,
    .visit = gate_local_visit,
};

enum status gate_local_open(struct gate **gate, const struct gate_options *options,
                            struct error *error)
{
    struct gate_local *local = calloc(1, sizeof(*local));

    ensure(options->outlet.push != NULL);
    if (local == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the gate");
    local->gate.ops = &gate_local_ops;
    local->outlet = options->outlet;
    pthread_rwlock_init(&local->policies_lock, NULL);
    blocklist_init(&local->blocklist);
    *gate = &local->gate;
    return STATUS_OK;
}
