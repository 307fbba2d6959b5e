/* local_decide.c: who wins: the contract's order of verdicts, over one policy in memory.
 *
 * Winners are handed to the outlet while the policy's lock is held, so the ledger sees them in seq
 * order. It also commits in that order, and so the rows of a lease are always its first seqs: a
 * restart goes on behind the last row. */
#include "gate/local_policy.h"

#define BATCH_MAX 64 /* wishes decided, and winners pushed, in one go */

/* The winners and bound keys of one go, on their way to the outlet. */
struct outgoing {
    struct claim claims[BATCH_MAX];
    struct key_binding bindings[BATCH_MAX];
    size_t claim_count;
    size_t binding_count;
};

#define TICKET_OF_THIS_GO UINT64_MAX /* replaced once the outlet has given the ticket */

/* What the claim's coupon is by now. */
static enum coupon_state local_policy_coupon_state(const struct local_policy *policy,
                                                   const struct holding *holding, int64_t now_ms)
{
    return coupon_state_at((enum coupon_state)holding->state,
                           coupon_expires_at_ms(&policy->policy, holding->requested_at_ms), now_ms);
}

static void local_policy_hold(struct local_policy *policy, struct wish *wish, uint32_t index,
                              int64_t now_ms)
{
    const struct holding *holding = holdings_at(&policy->holdings, index);
    wish->verdict = VERDICT_HELD;
    wish->seq = holding->seq;
    wish->nth = holding->nth;
    wish->coupon_state = local_policy_coupon_state(policy, holding, now_ms);
    if (holding->seq > policy->acknowledged_seq)
        wish->ticket = TICKET_OF_THIS_GO;
}

/* What is said of a key rests on its claim and, when it may have been bound later, on that. */
static void local_policy_rest_on_key(const struct local_policy *policy, struct wish *wish,
                                     const struct holding *holding, const struct outgoing *outgoing)
{
    bool bound = holding->bound_count > 0;

    if (holding->seq > policy->acknowledged_seq || (bound && outgoing->binding_count > 0))
        wish->ticket = TICKET_OF_THIS_GO;
    else if (bound)
        wish->ticket = policy->binding_ticket;
}

/* The key answers with that claim from now on; one that cannot be kept is not answered with it. */
static void local_policy_bind(struct local_policy *policy, struct wish *wish, uint32_t index,
                              struct outgoing *outgoing)
{
    const struct holding *holding = holdings_at(&policy->holdings, index);

    if (holding->bound_count == CLAIM_KEYS_MAX) {
        wish->verdict = VERDICT_KEYS_FULL;
        local_policy_rest_on_key(policy, wish, holding, outgoing);
    } else if (holdings_bind(&policy->holdings, index, &wish->request_id)) {
        outgoing->bindings[outgoing->binding_count++] = (struct key_binding){
            .policy_id = policy->id, .seq = wish->seq, .request_id = wish->request_id};
        wish->ticket = TICKET_OF_THIS_GO;
    } else {
        wish->verdict = VERDICT_UNAVAILABLE;
        wish->ticket = 0;
    }
}

/* The claim the key names, or with a limit of one the claim the user holds. */
static bool local_policy_find_held(struct local_policy *policy, struct wish *wish, uint32_t newest,
                                   int64_t now_ms, struct outgoing *outgoing)
{
    bool keyed = request_id_is_keyed(&wish->request_id);
    uint32_t index = keyed ? holdings_of_key(&policy->holdings, &wish->request_id) : HOLDINGS_NONE;

    if (index != HOLDINGS_NONE) {
        local_policy_hold(policy, wish, index, now_ms);
        local_policy_rest_on_key(policy, wish, holdings_at(&policy->holdings, index), outgoing);
        return true;
    }
    if (newest == HOLDINGS_NONE || policy->policy.per_user_limit > 1)
        return false;
    local_policy_hold(policy, wish, newest, now_ms);
    if (keyed)
        local_policy_bind(policy, wish, newest, outgoing);
    return true;
}

static void local_policy_win(struct local_policy *policy, struct wish *wish,
                             struct holdings_place place, uint64_t hash, int64_t now_ms,
                             struct outgoing *outgoing)
{
    struct stock *stock = &policy->stock[0];
    struct claim *claim = &outgoing->claims[outgoing->claim_count++];

    claim->policy_id = policy->id;
    claim->seq = stock->next_seq++;
    claim->lease_id = stock->lease_id;
    claim->requested_at_ms = now_ms;
    claim->request_id = wish->request_id;
    claim->nth = 0;
    claim->attempt = 0;
    claim->user = wish->user;
    uint32_t index = holdings_add_at(&policy->holdings, place, hash, claim);
    claim->nth = holdings_at(&policy->holdings, index)->nth;

    policy->remaining--;
    policy->active_count++;
    policy->pending_count++;
    policy->last_win_ms = now_ms;
    if (stock->next_seq == stock->end_seq) {
        policy->stock_count--;
        memmove(policy->stock, policy->stock + 1, policy->stock_count * sizeof(*stock));
    }
    wish->verdict = VERDICT_WON;
    wish->seq = claim->seq;
    wish->nth = claim->nth;
    wish->coupon_state = COUPON_ISSUED;
    wish->ticket = TICKET_OF_THIS_GO;
}

/* The contract's order of verdicts, top to bottom. */
static void local_policy_decide(struct local_policy *policy, struct blocklist *blocklist,
                                struct wish *wish, uint64_t hash, int64_t now_ms,
                                struct outgoing *outgoing)
{
    struct holdings_place place = holdings_find(&policy->holdings, hash, &wish->user);
    uint32_t newest = place.newest;

    wish->ticket = 0;
    wish->void_count = atomic_load_explicit(&policy->void_count, memory_order_relaxed);
    if (local_policy_find_held(policy, wish, newest, now_ms, outgoing))
        return;
    if (blocklist_has(blocklist, &wish->user)) {
        wish->verdict = VERDICT_BLOCKED;
    } else if (local_policy_is_closed(policy, now_ms)) {
        wish->verdict = VERDICT_CLOSED;
    } else if (policy->policy.paused) {
        wish->verdict = VERDICT_PAUSED;
    } else if (now_ms < policy->policy.opens_at_ms) {
        wish->verdict = VERDICT_NOT_OPEN;
        wish->opens_at_ms = policy->policy.opens_at_ms;
    } else if (newest != HOLDINGS_NONE && holdings_at(&policy->holdings, newest)->held_count >=
                                              policy->policy.per_user_limit) {
        wish->verdict = VERDICT_LIMIT_REACHED;
        if (holdings_at(&policy->holdings, newest)->seq > policy->acknowledged_seq)
            wish->ticket = TICKET_OF_THIS_GO;
    } else if (policy->remaining > 0) {
        local_policy_win(policy, wish, place, hash, now_ms, outgoing);
    } else if (policy->policy.unleased > 0) {
        wish->verdict = VERDICT_LEASE_WANTED;
    } else {
        wish->verdict = VERDICT_SOLD_OUT;
        if (policy->pending_count > 0)
            wish->ticket = TICKET_OF_THIS_GO;
    }
}

/* At most BATCH_MAX wishes under one hold of the lock. */
static void local_policy_go(struct local_policy *policy, struct blocklist *blocklist,
                            const struct gate_outlet *outlet, struct wish **wishes, size_t count,
                            int64_t now_ms)
{
    struct outgoing outgoing;
    uint64_t hashes[BATCH_MAX];

    outgoing.claim_count = 0;
    outgoing.binding_count = 0;
    for (size_t i = 0; i < count; i++)
        hashes[i] = holdings_hash(&policy->holdings, &wishes[i]->user);

    pthread_mutex_lock(&policy->lock);
    for (size_t i = 0; i < count; i++)
        holdings_prefetch(&policy->holdings, hashes[i]);
    for (size_t i = 0; i < count; i++)
        local_policy_decide(policy, blocklist, wishes[i], hashes[i], now_ms, &outgoing);
    if (outgoing.claim_count + outgoing.binding_count > 0)
        policy->last_ticket = outlet->push(outlet->context, outgoing.claims, outgoing.claim_count,
                                           outgoing.bindings, outgoing.binding_count);
    if (outgoing.binding_count > 0)
        policy->binding_ticket = policy->last_ticket;
    uint64_t ticket = policy->last_ticket;
    pthread_mutex_unlock(&policy->lock);

    for (size_t i = 0; i < count; i++) {
        if (wishes[i]->ticket == TICKET_OF_THIS_GO)
            wishes[i]->ticket = ticket;
    }
}

void local_policy_claim(struct local_policy *policy, struct blocklist *blocklist,
                        const struct gate_outlet *outlet, struct wish **wishes, size_t count,
                        int64_t now_ms)
{
    for (size_t done = 0; done < count; done += BATCH_MAX) {
        size_t go = count - done < BATCH_MAX ? count - done : BATCH_MAX;
        local_policy_go(policy, blocklist, outlet, wishes + done, go, now_ms);
    }
}
