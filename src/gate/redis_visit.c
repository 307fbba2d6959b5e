/* redis_visit.c: a walk over all that the gate in Redis holds.
 *
 * The row and the leases are read in one step, before the claims: a claim that the walk does not
 * meet was decided after that, under one of those leases or a later one. Redis tells users and keys
 * in no order and some of them twice, so those of a policy are gathered before they are told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "gate/redis_gate.h"
#include "gate/redis_scan.h"

#define ROW_FIELDS 15

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

/* Room for one more. */
static void *redis_visited_grow(void *items, size_t count, size_t *capacity, size_t size)
{
    if (count < *capacity)
        return items;
    size_t grown_capacity = *capacity == 0 ? 1024 : *capacity * 2;
    void *grown = realloc(items, grown_capacity * size);
    if (grown != NULL)
        *capacity = grown_capacity;
    return grown;
}

static bool redis_visited_add_claim(struct redis_visited *visited, const struct held_claim *held)
{
    struct held_claim *grown = redis_visited_grow(visited->claims, visited->claim_count,
                                                  &visited->claim_capacity, sizeof(*held));

    if (grown == NULL)
        return false;
    visited->claims = grown;
    visited->claims[visited->claim_count++] = *held;
    return true;
}

static bool redis_visited_add_key(struct redis_visited *visited, const struct key_binding *key)
{
    struct key_binding *grown =
        redis_visited_grow(visited->keys, visited->key_count, &visited->key_capacity, sizeof(*key));

    if (grown == NULL)
        return false;
    visited->keys = grown;
    visited->keys[visited->key_count++] = *key;
    return true;
}

static void redis_visited_release(struct redis_visited *visited)
{
    free(visited->claims);
    free(visited->keys);
    free(visited->own);
}

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
        held.claim.user = user_id_of(user);
        if (!redis_visited_add_claim(visited, &held))
            return false;
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
    binding.user = user_id_of(value);
    return redis_visited_add_key(visited, &binding);
}

/* --- telling --- */

static int redis_visit_compare_claims(const void *a, const void *b)
{
    const struct held_claim *left = a;
    const struct held_claim *right = b;
    int order = (left->claim.seq > right->claim.seq) - (left->claim.seq < right->claim.seq);
    return order != 0 ? order : user_id_compare(&left->claim.user, &right->claim.user);
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
                                           const struct gate_visitor *visitor, struct error *error)
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
                                         const struct gate_visitor *visitor, struct error *error)
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

/* What a row of an older version does not have is 0. */
static bool redis_visit_read_row(const redisReply *fields, int64_t seq_top, struct policy *row)
{
    int64_t numbers[ROW_FIELDS - 1] = {0};
    const redisReply *name = redis_reply_at(fields, ROW_FIELDS - 1);

    for (size_t i = 0; i < ROW_FIELDS - 1; i++) {
        const redisReply *field = redis_reply_at(fields, i);
        if (!redis_reply_is_nil(field) &&
            !redis_reply_number(field, 0, REDIS_NUMBER_MAX, &numbers[i]))
            return false;
    }
    if (!redis_reply_is_nil(name) && !redis_reply_copy(name, row->name, sizeof(row->name)))
        return false;
    row->version = numbers[0];
    row->per_user_limit = (int32_t)numbers[1];
    row->opens_at_ms = numbers[2];
    row->closes_at_ms = numbers[3];
    row->paused = numbers[4] != 0;
    row->closed_at_ms = numbers[5];
    row->unleased = numbers[6];
    row->total = numbers[7];
    row->coupon_valid_days = (int32_t)numbers[8];
    row->next_seq = numbers[9] > seq_top ? numbers[9] : seq_top + 1;
    row->reserve = numbers[10];
    row->created_at_ms = numbers[11];
    row->discount_type = numbers[12] == DISCOUNT_FIXED ? DISCOUNT_FIXED : DISCOUNT_PERCENT;
    row->discount_value = numbers[13];
    return numbers[1] <= PER_USER_LIMIT_MAX && numbers[8] <= COUPON_VALID_DAYS_MAX;
}

/* Those with something left, oldest first, and the highest one there was. */
static enum status redis_visit_tell_leases(const struct redis_described *described,
                                           int64_t policy_id, const struct gate_visitor *visitor,
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
                                        const struct gate_visitor *visitor, struct error *error)
{
    struct policy row = {.id = policy_id};
    struct redis_described described;
    redisReply *reply = NULL;
    enum status status = redis_ask(redis, policy_id, "dibs_describe", NULL, 0, &reply, error);

    if (status == STATUS_OK)
        status = redis_read_described(reply, &described, error);
    if (status == STATUS_OK && !redis_visit_read_row(described.row, described.seq_top, &row))
        status = redis_reply_is_strange("dibs_describe", error);
    if (status == STATUS_OK)
        status = visitor->policy(visitor->context, &row, error);
    if (status == STATUS_OK)
        status = redis_visit_tell_leases(&described, policy_id, visitor, error);
    freeReplyObject(reply);
    return status;
}

/* --- the walk --- */

static enum status redis_visit_policy(struct gate_redis *redis, int64_t policy_id,
                                      const struct gate_visitor *visitor, struct error *error)
{
    struct redis_visited visited = {.policy_id = policy_id};
    struct redis_address address;
    struct redis_keys keys;
    enum status status = redis_visit_describe(redis, policy_id, visitor, error);

    redis_keys_of(&keys, policy_id);
    if (status == STATUS_OK && !redis_map_find(&redis->map, policy_id, &address))
        status = error_set(error, STATUS_UNAVAILABLE, "it is not known where Redis is");
    if (status == STATUS_OK)
        status = redis_scan(&redis->pool, &address, &keys, SCAN_CLAIMS, redis_visit_take_user,
                            &visited, error);
    if (status == STATUS_OK)
        status = redis_visit_tell_claims(&visited, visitor, error);
    if (status == STATUS_OK)
        status = redis_scan(&redis->pool, &address, &keys, SCAN_KEYS, redis_visit_take_key,
                            &visited, error);
    if (status == STATUS_OK)
        status = redis_visit_tell_keys(&visited, visitor, error);
    redis_visited_release(&visited);
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

    (void)value;
    if (name.length < head_length)
        return false;
    name = (struct span){name.bytes + head_length, name.length - head_length};
    if (!redis_text_take_numbers(&name, 1, &id) || !redis_text_take(&name, '}') || id < 1)
        return true; /* somebody else's */
    int64_t *grown = redis_visited_grow(list->ids, list->count, &list->capacity, sizeof(*grown));
    if (grown == NULL)
        return false;
    list->ids = grown;
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
enum status gate_redis_enumerate(struct gate *gate, int64_t **ids, size_t *count,
                                 struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    struct redis_address *addresses = calloc(REDIS_NODES_MAX, sizeof(*addresses));
    struct redis_ids list = {0};
    enum status status = STATUS_OK;

    if (addresses == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the walk");
    size_t node_count = redis_map_list(&redis->map, addresses, REDIS_NODES_MAX);
    for (size_t i = 0; i < node_count; i++) {
        enum status scanned = redis_scan(&redis->pool, &addresses[i], NULL, SCAN_POLICIES,
                                         redis_visit_take_id, &list, error);
        status = scanned != STATUS_OK ? scanned : status;
    }
    free(addresses);
    if (list.count > 0)
        qsort(list.ids, list.count, sizeof(*list.ids), redis_visit_compare_numbers);
    for (size_t i = 0; i < list.count; i++) {
        if (i == 0 || list.ids[i] != list.ids[i - 1])
            list.ids[(*count)++] = list.ids[i];
    }
    *ids = list.ids;
    return status;
}

enum status gate_redis_visit(struct gate *gate, int64_t policy_id,
                             const struct gate_visitor *visitor, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    int64_t *ids = NULL;
    size_t count = 0;

    if (policy_id != GATE_VISIT_ALL)
        return redis_visit_policy(redis, policy_id, visitor, error);
    enum status status = gate_redis_enumerate(gate, &ids, &count, error);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        status = redis_visit_policy(redis, ids[i], visitor, error);
        if (status == STATUS_NOT_FOUND)
            status = STATUS_OK; /* It was let go meanwhile. */
    }
    free(ids);
    return status == STATUS_OK
               ? blocklist_visit(&redis->blocklist, visitor->blocked, visitor->context, error)
               : status;
}
