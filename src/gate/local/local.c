/* local.c: the gate in process memory: who wins, by the contract's order of verdicts, and what the
 * ledger reports. Its stock is in stock.c, what it says when asked in inspect.c.
 *
 * Winners are handed to the outlet while the policy's lock is held, so the ledger sees them in seq
 * order. It also commits in that order, and so the rows of a lease are always its first seqs: a
 * restart goes on behind the last row. */
#include <stdatomic.h>
#include <stdlib.h>

#include "base/array.h"
#include "gate/local/gate.h"

#define BATCH_MAX         64         /* wishes decided, and winners pushed, in one go */
#define TICKET_OF_THIS_GO UINT64_MAX /* replaced once the outlet has given the ticket */

/* Where the id is or would be. */
size_t gate_local_position(const struct gate_local *local, int64_t id)
{
    return array_place(local->policies, local->policy_count, ->id, id);
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

/* The flag is read first: a gate that is full by then has all policies. */
struct local_policy *gate_local_lock(struct gate *gate, int64_t id, enum status *status,
                                     struct error *error)
{
    struct gate_local *local = gate_local_of(gate);
    bool is_filling = atomic_load(&local->is_filling);
    struct local_policy *policy = gate_local_policy(local, id);

    *status = STATUS_OK;
    if (policy != NULL)
        pthread_mutex_lock(&policy->lock);
    else if (is_filling)
        *status = error_set(error, STATUS_UNAVAILABLE,
                            "the gate is being restored and has not come to policy %lld yet",
                            (long long)id);
    else
        *status = error_set(error, STATUS_NOT_FOUND, "the gate has no policy %lld", (long long)id);
    return policy;
}

enum status local_policy_unlock(struct local_policy *policy, enum status status)
{
    pthread_mutex_unlock(&policy->lock);
    return status;
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

/* --- deciding --- */

/* What is decided under one hold of the lock, and its winners and bound keys on their way to the
 * outlet. Each line has its own: on the stack the compiler would clear all 20 KB every time. */
struct go {
    int64_t now_ms;
    enum verdict to_strangers; /* before it is asked for stock; UNDECIDED: there may be some */
    size_t claim_count;
    size_t binding_count;
    struct claim claims[BATCH_MAX];
    struct key_binding bindings[BATCH_MAX];
};

struct local_line {
    struct gate_line line;
    struct go go;
};

/* What the claim's coupon is by now. */
static enum coupon_state local_policy_coupon_state(const struct local_policy *policy,
                                                   const struct holding *holding, int64_t now_ms)
{
    int64_t ends_at_ms = policy_coupon_ends_ms(policy->row, holding->requested_at_ms);
    return coupon_state_at((enum coupon_state)holding->state, ends_at_ms, now_ms);
}

static void local_policy_hold(struct local_policy *policy, struct wish *wish, uint32_t index,
                              const struct go *go)
{
    const struct holding *holding = holdings_at(&policy->holdings, index);
    wish->verdict = VERDICT_HELD;
    wish->seq = holding->seq;
    wish->nth = holding->nth;
    wish->coupon_state = local_policy_coupon_state(policy, holding, go->now_ms);
    if (holding->seq > policy->acknowledged_seq)
        wish->ticket = TICKET_OF_THIS_GO;
}

/* What is said of a key rests on its claim and, when it may have been bound later, on that. */
static void local_policy_rest_on_key(const struct local_policy *policy, struct wish *wish,
                                     const struct holding *holding, const struct go *go)
{
    bool bound = holding->bound_count > 0;

    if (holding->seq > policy->acknowledged_seq || (bound && go->binding_count > 0))
        wish->ticket = TICKET_OF_THIS_GO;
    else if (bound)
        wish->ticket = policy->binding_ticket;
}

/* The key answers with that claim from now on; one that cannot be kept is not answered with it. */
static void local_policy_bind(struct local_policy *policy, struct wish *wish, uint32_t index,
                              struct go *go)
{
    const struct holding *holding = holdings_at(&policy->holdings, index);

    if (holding->bound_count == CLAIM_KEYS_MAX) {
        wish->verdict = VERDICT_KEYS_FULL;
        local_policy_rest_on_key(policy, wish, holding, go);
    } else if (holdings_bind(&policy->holdings, index, &wish->request_id)) {
        go->bindings[go->binding_count++] = (struct key_binding){
            .policy_id = policy->id, .seq = wish->seq, .request_id = wish->request_id};
        wish->ticket = TICKET_OF_THIS_GO;
    } else {
        wish->verdict = VERDICT_UNAVAILABLE;
        wish->ticket = 0;
    }
}

/* The claim the key names, or with a limit of one the claim the user holds. */
static bool local_policy_find_held(struct local_policy *policy, struct wish *wish, uint32_t newest,
                                   struct go *go)
{
    bool keyed = request_id_is_keyed(&wish->request_id);
    uint32_t index = keyed ? holdings_of_key(&policy->holdings, &wish->request_id) : HOLDINGS_NONE;

    if (index != HOLDINGS_NONE) {
        local_policy_hold(policy, wish, index, go);
        local_policy_rest_on_key(policy, wish, holdings_at(&policy->holdings, index), go);
        return true;
    }
    if (newest == HOLDINGS_NONE || policy->row->per_user_limit > 1)
        return false;
    local_policy_hold(policy, wish, newest, go);
    if (keyed)
        local_policy_bind(policy, wish, newest, go);
    return true;
}

static void local_policy_win(struct local_policy *policy, struct wish *wish,
                             struct holdings_place place, uint64_t hash, struct go *go)
{
    struct stock *stock = &policy->stock[0];
    struct claim *claim = &go->claims[go->claim_count++];

    claim->policy_id = policy->id;
    claim->seq = stock->next_seq++;
    claim->lease_id = stock->lease_id;
    claim->requested_at_ms = go->now_ms;
    claim->request_id = wish->request_id;
    claim->nth = 0;
    claim->attempt = 0;
    id_copy(&claim->user, &wish->user);
    claim->nth = holdings_add_at(&policy->holdings, place, hash, claim);

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

/* Counts the winners of a go, whose seqs and records are there already. */
static void local_policy_count(struct local_policy *policy, const struct go *go)
{
    int64_t count = (int64_t)go->claim_count;

    policy->remaining -= count;
    policy->active_count += count;
    policy->pending_count += count;
    if (count > 0)
        policy->last_win_ms = go->now_ms;
}

/* Why somebody who has nothing of this key gets nothing, before it is a question of stock. */
static enum verdict local_policy_refusal(const struct local_policy *policy,
                                         struct blocklist *blocklist, struct wish *wish,
                                         uint32_t newest, const struct go *go)
{
    bool is_blocked = blocklist_has(blocklist, &wish->user);

    if (newest == HOLDINGS_NONE)
        return is_blocked ? VERDICT_BLOCKED : go->to_strangers;
    const struct holding *held = holdings_at(&policy->holdings, newest);
    enum verdict verdict = policy_refusal(policy->row, is_blocked, held->held_count, go->now_ms);
    if (verdict == VERDICT_LIMIT_REACHED && held->seq > policy->acknowledged_seq)
        wish->ticket = TICKET_OF_THIS_GO;
    return verdict;
}

/* The contract's order of verdicts, top to bottom. */
static void local_policy_decide(struct local_policy *policy, struct blocklist *blocklist,
                                struct wish *wish, uint64_t hash, struct go *go)
{
    struct holdings_place place = holdings_find(&policy->holdings, hash, &wish->user);

    wish->ticket = 0;
    wish->void_count = atomic_load_explicit(&policy->void_count, memory_order_relaxed);
    if (policy->row->is_damaged) {
        wish->verdict = VERDICT_UNAVAILABLE;
        return;
    }
    if (local_policy_find_held(policy, wish, place.newest, go))
        return;
    wish->verdict = local_policy_refusal(policy, blocklist, wish, place.newest, go);
    if (wish->verdict != VERDICT_UNDECIDED) {
        wish->opens_at_ms = policy->row->opens_at_ms;
    } else if (policy->stock_count > 0 && !policy->has_room) {
        wish->verdict = VERDICT_UNAVAILABLE;
    } else if (policy->stock_count > 0) {
        local_policy_win(policy, wish, place, hash, go);
    } else if (policy->row->unleased > 0) {
        wish->verdict = VERDICT_LEASE_WANTED;
    } else {
        wish->verdict = VERDICT_SOLD_OUT;
        if (policy->pending_count > 0 || go->claim_count > 0)
            wish->ticket = TICKET_OF_THIS_GO;
    }
}

/* Memory for as many as may win, of `count` users whose names are so long together. */
static bool local_policy_make_room_for(struct local_policy *policy, size_t count,
                                       size_t names_length)
{
    if ((int64_t)count > policy->remaining)
        count = (size_t)policy->remaining;
    return count == 0 || holdings_make_room(&policy->holdings, (uint32_t)count, names_length);
}

/* At most BATCH_MAX wishes under one hold of the lock. */
static void local_policy_go(struct local_policy *policy, struct local_line *line,
                            struct wish **wishes, size_t count, int64_t now_ms)
{
    struct gate_local *local = gate_local_of(line->line.gate);
    const struct gate_outlet *outlet = &local->outlet;
    struct go *go = &line->go;
    uint64_t hashes[BATCH_MAX];
    size_t names_length = 0;

    go->now_ms = now_ms;
    go->claim_count = 0;
    go->binding_count = 0;
    for (size_t i = 0; i < count; i++) {
        hashes[i] = holdings_hash(&policy->holdings, &wishes[i]->user);
        names_length += wishes[i]->user.length;
    }

    pthread_mutex_lock(&policy->lock);
    policy->has_room = local_policy_make_room_for(policy, count, names_length);
    go->to_strangers = policy_refusal(policy->row, false, 0, now_ms);
    for (size_t i = 0; i < count; i++)
        holdings_prefetch(&policy->holdings, hashes[i]);
    for (size_t i = 0; i < count; i++)
        local_policy_decide(policy, &local->blocklist, wishes[i], hashes[i], go);
    local_policy_count(policy, go);
    if (go->claim_count + go->binding_count > 0)
        policy->last_ticket = outlet->push(outlet->context, go->claims, go->claim_count,
                                           go->bindings, go->binding_count);
    if (go->binding_count > 0)
        policy->binding_ticket = policy->last_ticket;
    uint64_t ticket = policy->last_ticket;
    pthread_mutex_unlock(&policy->lock);

    for (size_t i = 0; i < count; i++)
        if (wishes[i]->ticket == TICKET_OF_THIS_GO)
            wishes[i]->ticket = ticket;
}

static enum status gate_local_line_open(struct gate *gate, const struct gate_line_options *options,
                                        struct gate_line **line, struct error *error)
{
    struct local_line *own = malloc(sizeof(*own));

    if (own == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a line");
    own->line.gate = gate;
    *line = &own->line;
    return STATUS_OK;
}

static void gate_local_line_close(struct gate_line *line)
{
    free(line);
}

static bool gate_local_claim(struct gate_line *line, struct gate_batch *batch, int64_t now_ms)
{
    struct gate_local *local = gate_local_of(line->gate);
    bool is_filling = atomic_load(&local->is_filling);
    struct local_policy *policy = gate_local_policy(local, batch->policy_id);

    for (size_t i = 0; i < batch->count && policy == NULL; i++) {
        batch->wishes[i]->verdict = is_filling ? VERDICT_UNAVAILABLE : VERDICT_NO_POLICY;
        batch->wishes[i]->ticket = 0;
    }
    for (size_t done = 0; done < batch->count && policy != NULL; done += BATCH_MAX) {
        size_t go = batch->count - done < BATCH_MAX ? batch->count - done : BATCH_MAX;
        local_policy_go(policy, (struct local_line *)line, batch->wishes + done, go, now_ms);
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
                policy->row->unleased++;
            }
            end++;
        }
        policy->pending_count -= (int64_t)(end - i);
        policy->acknowledged_seq = claims[end - 1].seq;
        pthread_mutex_unlock(&policy->lock);
        i = end;
    }
}

static enum status gate_local_settle(struct gate *gate, int64_t policy_id, const struct id *user,
                                     int64_t seq, enum coupon_state state, struct error *error)
{
    enum status status;
    struct local_policy *policy = gate_local_lock(gate, policy_id, &status, error);

    if (policy == NULL)
        return status;
    uint32_t index = holdings_of_seq(&policy->holdings, seq);
    if (index == HOLDINGS_NONE)
        status = error_set(error, STATUS_NOT_FOUND, "the gate has no claim %lld-%lld",
                           (long long)policy_id, (long long)seq);
    else if (coupon_state_is_active(state))
        holdings_at(&policy->holdings, index)->state = (uint8_t)state & 7;
    else
        local_policy_release(policy, seq, state);
    return local_policy_unlock(policy, status);
}

/* The claims that the user holds and the ledger has told of; HOLDINGS_NONE: one is not told. */
static size_t local_policy_find_told(const struct local_policy *policy,
                                     const struct gate_renaming *renaming, uint32_t *indexes)
{
    const struct holdings *holdings = &policy->holdings;
    uint32_t newest =
        holdings_find(holdings, holdings_hash(holdings, renaming->from), renaming->from).newest;
    size_t count = 0;

    for (size_t i = 0; i < renaming->claim_count; i++) {
        uint32_t index = holdings_of_seq(holdings, renaming->claims[i].seq);
        if (index != HOLDINGS_NONE)
            indexes[count++] = index;
    }
    for (uint32_t at = newest; at != HOLDINGS_NONE;) {
        const struct holding *holding = holdings_at(holdings, at);
        bool is_told = false;
        for (size_t i = 0; i < count && !is_told; i++)
            is_told = indexes[i] == at;
        if (!is_told)
            return HOLDINGS_NONE;
        at = holding->previous != 0 ? holding->previous - 1 : HOLDINGS_NONE;
    }
    return count;
}

static enum status gate_local_rename(struct gate *gate, const struct gate_renaming *renaming,
                                     struct error *error)
{
    struct local_policy *policy = gate_local_policy(gate_local_of(gate), renaming->policy_id);
    uint32_t *indexes = calloc(renaming->claim_count + 1, sizeof(*indexes));
    enum status status = STATUS_OK;

    if (policy == NULL || indexes == NULL) {
        free(indexes);
        return policy == NULL
                   ? STATUS_OK
                   : error_set(error, STATUS_UNAVAILABLE, "no memory for the claims of a user");
    }
    pthread_mutex_lock(&policy->lock);
    size_t count = local_policy_find_told(policy, renaming, indexes);
    if (count == HOLDINGS_NONE)
        status = error_set(error, STATUS_CONFLICT, "a claim of theirs on policy %lld is on its way",
                           (long long)policy->id);
    else if (!holdings_rename(&policy->holdings, indexes, count, renaming->from, renaming->to))
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for a name");
    free(indexes);
    return local_policy_unlock(policy, status);
}

static enum status gate_local_block(struct gate *gate, const struct id *user, bool blocked,
                                    struct error *error)
{
    return blocklist_set(&gate_local_of(gate)->blocklist, user, blocked, error);
}

bool gate_stands(struct gate *gate, const struct wish *wish)
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
    .rename = gate_local_rename,
    .block = gate_local_block,
    .find = gate_local_find,
    .count = gate_local_count,
    .list = gate_local_list,
    .inspect = gate_local_inspect,
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
