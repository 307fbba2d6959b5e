/* audit.c: all that the gate in Redis holds, told to those who compare it with the ledger: how a
 * policy stands, its leases, a walk over its claims and keys; and what a repair puts right.
 *
 * A walk reads the row and the leases in one step, before the claims: a claim that it does not meet
 * was decided after that, under one of those leases or a later one. Redis tells users and keys in
 * no order and some of them twice, so those of a policy are gathered before they are told. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "gate/redis/gate.h"

#define STATE_NUMBERS  10
#define STRAYS_AT_ONCE 500
#define FIXES_AT_ONCE  100
#define FIX_ARGUMENTS  7

/* --- how it stands --- */

static enum status redis_audit_read_leases(const redisReply *leases, int64_t policy_id,
                                           struct gate_state *state, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < redis_reply_count(leases) && status == STATUS_OK; i++) {
        struct gate_lease lease;
        status = redis_read_lease(leases, i, policy_id, &lease, error);
        if (status != STATUS_OK)
            break;
        state->left += lease.end_seq - lease.next_seq;
        if (state->left > REDIS_NUMBER_MAX)
            status = redis_reply_is_strange("dibs_inspect", error);
        if (state->lease_count < GATE_STATE_LEASES_MAX)
            state->leases[state->lease_count++] = lease;
    }
    return status;
}

enum status gate_redis_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                               struct error *error)
{
    redisReply *reply = NULL;
    int64_t read[STATE_NUMBERS] = {0};
    enum status status =
        redis_ask(&gate_redis_of(gate)->pool, policy_id, "dibs_inspect", NULL, 0, &reply, error);
    const redisReply *leases = redis_reply_at(reply, STATE_NUMBERS);

    if (status != STATUS_OK)
        return status;
    state->is_known = !redis_reply_is_nil(reply);
    bool is_read = !state->is_known || (redis_reply_numbers(reply, STATE_NUMBERS, read) &&
                                        redis_reply_is_array(leases));
    state->is_armed = read[0] > 0;
    state->is_suspended = read[0] < 0;
    state->remaining = read[1];
    state->pending_count = read[2];
    state->issued = read[3];
    state->unleased = read[4];
    state->version = read[5];
    state->changes = read[6];
    state->seq_top = read[7];
    state->lease_top = read[8];
    state->mark = read[9];
    status = is_read ? redis_audit_read_leases(leases, policy_id, state, error)
                     : redis_reply_is_strange("dibs_inspect", error);
    freeReplyObject(reply);
    return status;
}

/* --- what is pending and not held --- */

/* One page, up to `max` in all; `after` becomes where the next one begins. */
static bool redis_audit_read_strays(const redisReply *reply, int64_t policy_id, char after[24],
                                    struct claim *strays, size_t max, size_t *count)
{
    if (redis_reply_count(reply) % 2 != 1 || !redis_reply_copy(redis_reply_at(reply, 0), after, 24))
        return false;
    for (size_t i = 1; i < redis_reply_count(reply) && *count < max; i += 2) {
        struct claim *stray = &strays[*count];
        *stray = (struct claim){.policy_id = policy_id};
        if (!redis_read_score(redis_reply_at(reply, i + 1), &stray->seq))
            return false;
        *count += redis_read_member(redis_reply_at(reply, i), stray);
    }
    return true;
}

enum status gate_strays(struct shared_gate *gate, int64_t policy_id, struct claim *strays,
                        size_t max, size_t *count, struct error *error)
{
    char after[24] = "0";
    enum status status = STATUS_OK;

    *count = 0;
    do {
        redisReply *reply = NULL;
        const struct redis_argument arguments[] = {redis_text(after), redis_number(STRAYS_AT_ONCE)};
        status = redis_ask(&gate_redis_shared(gate)->pool, policy_id, "dibs_strays", arguments, 2,
                           &reply, error);
        if (status == STATUS_OK &&
            !redis_audit_read_strays(reply, policy_id, after, strays, max, count))
            status = redis_reply_is_strange("dibs_strays", error);
        freeReplyObject(reply);
    } while (status == STATUS_OK && strcmp(after, "0") != 0 && *count < max);
    return status;
}

enum status gate_leases(struct shared_gate *gate, int64_t policy_id, struct gate_lease **leases,
                        size_t *count, int64_t *highest_id, struct error *error)
{
    struct redis_described described = {0};
    redisReply *reply = NULL;
    enum status status = redis_ask(&gate_redis_shared(gate)->pool, policy_id, "dibs_describe", NULL,
                                   0, &reply, error);

    if (status == STATUS_OK)
        status = redis_read_described(reply, &described, error);
    size_t lease_count = redis_reply_count(described.leases);

    *leases = NULL;
    *count = 0;
    *highest_id = described.lease_top;
    if (status == STATUS_OK && (*leases = malloc((lease_count + 1) * sizeof(**leases))) == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for the leases of a policy");
    while (status == STATUS_OK && *count < lease_count) {
        status = redis_read_lease(described.leases, *count, policy_id, &(*leases)[*count], error);
        ++*count;
    }
    freeReplyObject(reply);
    return status;
}

/* --- putting right --- */

enum status gate_fix(struct shared_gate *gate, int64_t policy_id, const struct gate_fix *fixes,
                     size_t count, int64_t *changed_count, struct error *error)
{
    static const char *const letters[] = {
        [GATE_FIX_PENDING] = "P", [GATE_FIX_HELD] = "H", [GATE_FIX_REMOVE] = "R"};
    struct redis_argument arguments[FIXES_AT_ONCE * FIX_ARGUMENTS];
    enum status status = STATUS_OK;

    *changed_count = 0;
    for (size_t done = 0; done < count && status == STATUS_OK;) {
        struct redis_argument *own = arguments;
        int64_t changed = 0;
        for (size_t i = 0; i < FIXES_AT_ONCE && done < count; i++, done++) {
            const struct claim *claim = &fixes[done].claim;
            *own++ = redis_text(letters[fixes[done].kind]);
            *own++ = redis_user(&claim->user);
            *own++ = redis_number(claim->seq);
            *own++ = redis_number(claim->nth);
            *own++ = redis_number(claim->lease_id);
            *own++ = redis_number(claim->requested_at_ms);
            *own++ = redis_id(&claim->request_id);
        }
        status = redis_do(&gate_redis_shared(gate)->pool, policy_id, "dibs_repair", arguments,
                          (size_t)(own - arguments), &changed, error);
        *changed_count += changed;
    }
    return status;
}

/* --- a walk: what it gathers --- */

/* What one policy's walk gathers. */
struct redis_visited {
    int64_t policy_id;
    struct held_claim *claims;
    size_t claim_count;
    size_t claim_capacity;
    struct key_binding *keys;
    size_t key_count;
    size_t key_capacity;
    struct request_id *own; /* request ids of the claims, in order */
};

/* --- scanning --- */

static bool redis_visit_take_user(void *context, struct span user, struct span value)
{
    struct redis_visited *visited = context;

    if (!json_id_valid(user))
        return false;
    do {
        struct redis_held read;
        if (!redis_read_held(&value, &read))
            return false;
        struct held_claim held = {.claim = read.claim,
                                  .state = redis_state_of(read.state),
                                  .is_pending = read.state == 'P'};
        held.claim.policy_id = visited->policy_id;
        held.claim.user = id_of(user);
        if (!array_make_room(visited->claims, visited->claim_count, visited->claim_capacity))
            return false;
        visited->claims[visited->claim_count++] = held;
    } while (value.length > 0);
    return true;
}

/* Request id -> "seq:nth:user". */
static bool redis_visit_take_key(void *context, struct span name, struct span value)
{
    struct redis_visited *visited = context;
    struct key_binding binding = {.policy_id = visited->policy_id};
    int64_t numbers[2];

    if (!redis_take_request_id(&name, &binding.request_id) || name.length > 0 ||
        !redis_text_take_numbers(&value, 2, numbers) || numbers[1] > PER_USER_LIMIT_MAX ||
        !redis_text_take(&value, ':') || !json_id_valid(value))
        return false;
    binding.seq = numbers[0];
    binding.nth = (int32_t)numbers[1];
    binding.user = id_of(value);
    if (!array_make_room(visited->keys, visited->key_count, visited->key_capacity))
        return false;
    visited->keys[visited->key_count++] = binding;
    return true;
}

/* --- telling --- */

static int redis_visit_compare_claims(const void *a, const void *b)
{
    const struct held_claim *left = a;
    const struct held_claim *right = b;
    int order = (left->claim.seq > right->claim.seq) - (left->claim.seq < right->claim.seq);
    return order != 0 ? order : id_compare(&left->claim.user, &right->claim.user);
}

static int redis_visit_compare_ids(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct request_id));
}

static int redis_visit_compare_keys(const void *a, const void *b)
{
    const struct key_binding *left = a;
    const struct key_binding *right = b;
    int order = (left->seq > right->seq) - (left->seq < right->seq);
    return order != 0 ? order : redis_visit_compare_ids(&left->request_id, &right->request_id);
}

static enum status redis_visit_tell_claims(struct redis_visited *visited,
                                           const struct claim_visitor *visitor, struct error *error)
{
    enum status status = STATUS_OK;

    if (visited->claim_count > 0)
        qsort(visited->claims, visited->claim_count, sizeof(*visited->claims),
              redis_visit_compare_claims);
    for (size_t i = 0; i < visited->claim_count && status == STATUS_OK; i++) {
        /* Two users with one seq are told both: somebody has to hear of it. */
        if (i == 0 || redis_visit_compare_claims(&visited->claims[i], &visited->claims[i - 1]) != 0)
            status = visitor->claim(visitor->context, &visited->claims[i], error);
    }
    return status;
}

/* Tells the keys but those that a claim was told with. */
static enum status redis_visit_tell_keys(struct redis_visited *visited,
                                         const struct claim_visitor *visitor, struct error *error)
{
    enum status status = STATUS_OK;

    visited->own = calloc(visited->claim_count + 1, sizeof(*visited->own));
    if (visited->own == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the keys of a policy");
    for (size_t i = 0; i < visited->claim_count; i++)
        visited->own[i] = visited->claims[i].claim.request_id;
    qsort(visited->own, visited->claim_count, sizeof(*visited->own), redis_visit_compare_ids);
    if (visited->key_count > 0)
        qsort(visited->keys, visited->key_count, sizeof(*visited->keys), redis_visit_compare_keys);
    for (size_t i = 0; i < visited->key_count && status == STATUS_OK; i++) {
        const struct key_binding *key = &visited->keys[i];
        if ((i == 0 || redis_visit_compare_keys(key, key - 1) != 0) &&
            bsearch(&key->request_id, visited->own, visited->claim_count, sizeof(*visited->own),
                    redis_visit_compare_ids) == NULL)
            status = visitor->key(visitor->context, key, error);
    }
    return status;
}

/* --- the row and the leases --- */

/* What a row of an older version does not have stays 0. */
static bool redis_visit_read_row(const redisReply *fields, int64_t seq_top, struct policy *row)
{
    const redisReply *name = redis_reply_at(fields, REDIS_ROW_NUMBERS);

    for (size_t i = 0; i < REDIS_ROW_NUMBERS; i++) {
        const redisReply *field = redis_reply_at(fields, i);
        int64_t number;
        if (!redis_reply_is_nil(field) &&
            (!redis_reply_number(field, 0, REDIS_NUMBER_MAX, &number) ||
             (number != 0 && !policy_set_number(row, REDIS_ROW_FIRST + i, number))))
            return false;
    }
    if (row->next_seq <= seq_top)
        row->next_seq = seq_top + 1;
    return redis_reply_is_nil(name) || redis_reply_copy(name, row->name, sizeof(row->name));
}

/* Those with something left, oldest first, and the highest one there was. */
static enum status redis_visit_tell_leases(const struct redis_described *described,
                                           int64_t policy_id, const struct claim_visitor *visitor,
                                           struct error *error)
{
    int64_t told_id = 0;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < redis_reply_count(described->leases) && status == STATUS_OK; i++) {
        struct gate_lease read;
        status = redis_read_lease(described->leases, i, policy_id, &read, error);
        if (status != STATUS_OK || read.next_seq >= read.end_seq)
            continue;
        struct lease lease = {.id = read.id,
                              .policy_id = policy_id,
                              .first_seq = read.first_seq,
                              .count = read.end_seq - read.first_seq,
                              .open = true};
        status = visitor->lease(visitor->context, &lease, read.next_seq - read.first_seq, error);
        told_id = read.id;
    }
    if (status != STATUS_OK || described->lease_top <= told_id)
        return status;
    struct lease top = {.id = described->lease_top, .policy_id = policy_id, .first_seq = 1};
    return visitor->lease(visitor->context, &top, 0, error);
}

static enum status redis_visit_describe(struct gate_redis *redis, int64_t policy_id,
                                        const struct claim_visitor *visitor, struct error *error)
{
    struct policy row = {.id = policy_id};
    struct redis_described described;
    redisReply *reply = NULL;
    enum status status =
        redis_ask(&redis->pool, policy_id, "dibs_describe", NULL, 0, &reply, error);

    if (status == STATUS_OK)
        status = redis_read_described(reply, &described, error);
    if (status == STATUS_OK && !redis_visit_read_row(described.row, described.seq_top, &row))
        status = redis_reply_is_strange("dibs_describe", error);
    if (status == STATUS_OK && visitor->policy != NULL)
        status = visitor->policy(visitor->context, &row, error);
    if (status == STATUS_OK && visitor->lease != NULL)
        status = redis_visit_tell_leases(&described, policy_id, visitor, error);
    freeReplyObject(reply);
    return status;
}

/* --- the walk --- */

static enum status redis_visit_policy(struct gate_redis *redis, int64_t policy_id,
                                      const struct claim_visitor *visitor, struct error *error)
{
    struct redis_visited visited = {.policy_id = policy_id};
    struct redis_address address;
    enum status status = redis_visit_describe(redis, policy_id, visitor, error);

    if (status == STATUS_OK && !redis_map_find(&redis->map, policy_id, &address))
        status = error_set(error, STATUS_UNAVAILABLE, "it is not known where Redis is");
    if (status == STATUS_OK)
        status = redis_scan(&redis->pool, &address, policy_id, SCAN_CLAIMS, redis_visit_take_user,
                            &visited, error);
    if (status == STATUS_OK)
        status = redis_visit_tell_claims(&visited, visitor, error);
    if (status == STATUS_OK && visitor->key != NULL)
        status = redis_scan(&redis->pool, &address, policy_id, SCAN_KEYS, redis_visit_take_key,
                            &visited, error);
    if (status == STATUS_OK && visitor->key != NULL)
        status = redis_visit_tell_keys(&visited, visitor, error);
    free(visited.claims);
    free(visited.keys);
    free(visited.own);
    return status;
}

/* Ids of policies, from the names of their keys. */
struct redis_ids {
    int64_t *ids;
    size_t count;
    size_t capacity;
};

static bool redis_visit_take_id(void *context, struct span name, struct span value)
{
    const size_t head_length = strlen(REDIS_KEY_HEAD);
    struct redis_ids *list = context;
    int64_t id;

    if (name.length < head_length)
        return false;
    name = (struct span){name.bytes + head_length, name.length - head_length};
    if (!redis_text_take_numbers(&name, 1, &id) || !redis_text_take(&name, '}') || id < 1)
        return true; /* somebody else's */
    if (!array_make_room(list->ids, list->count, list->capacity))
        return false;
    list->ids[list->count++] = id;
    return true;
}

static int redis_visit_compare_numbers(const void *a, const void *b)
{
    const int64_t *left = a;
    const int64_t *right = b;
    return (*left > *right) - (*left < *right);
}

/* A server that cannot be read does not keep the others from it. */
enum status gate_enumerate(struct shared_gate *gate, int64_t **ids, size_t *count,
                           struct error *error)
{
    struct gate_redis *redis = gate_redis_shared(gate);
    struct redis_address addresses[REDIS_NODES_MAX];
    struct redis_ids list = {0};
    enum status status = STATUS_OK;

    *count = 0;
    size_t node_count = redis_map_list(&redis->map, addresses, REDIS_NODES_MAX);
    for (size_t i = 0; i < node_count; i++) {
        enum status scanned = redis_scan(&redis->pool, &addresses[i], 0, SCAN_POLICIES,
                                         redis_visit_take_id, &list, error);
        status = scanned != STATUS_OK ? scanned : status;
    }
    if (list.count > 0)
        qsort(list.ids, list.count, sizeof(*list.ids), redis_visit_compare_numbers);
    for (size_t i = 0; i < list.count; i++)
        if (i == 0 || list.ids[i] != list.ids[i - 1])
            list.ids[(*count)++] = list.ids[i];
    *ids = list.ids;
    return status;
}

enum status gate_redis_visit(struct gate *gate, int64_t policy_id,
                             const struct claim_visitor *visitor, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    int64_t *ids = NULL;
    size_t count = 0;

    if (policy_id != GATE_VISIT_ALL)
        return redis_visit_policy(redis, policy_id, visitor, error);
    enum status status = gate_enumerate((struct shared_gate *)gate, &ids, &count, error);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        status = redis_visit_policy(redis, ids[i], visitor, error);
        if (status == STATUS_NOT_FOUND)
            status = STATUS_OK; /* It was let go meanwhile. */
    }
    free(ids);
    return status == STATUS_OK && visitor->blocked != NULL
               ? blocklist_visit(&redis->blocklist, visitor->blocked, visitor->context, error)
               : status;
}
