/* redis_visit.c: a walk over all that the gate in Redis holds.
 *
 * The row and the leases are read in one step, before the claims: a claim that the walk does not
 * meet was decided after that, under one of those leases or a later one. Redis tells users and keys
 * in no order and some of them twice, so those of a policy are gathered before they are told. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/redis_gate.h"

#define SCAN_COUNT 1000
#define KEY_HEAD   "COUPON:POLICY:{"
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

enum redis_scanned { SCAN_POLICIES, SCAN_USERS, SCAN_KEYS };

/* One page from that cursor on. */
static redisReply *redis_scan_page(redisContext *link, const struct redis_keys *keys,
                                   enum redis_scanned what, const char *cursor)
{
    switch (what) {
    case SCAN_POLICIES:
        return redisCommand(link, "SCAN %s MATCH " KEY_HEAD "*}:META COUNT %d", cursor, SCAN_COUNT);
    case SCAN_KEYS:
        return redisCommand(link, "HSCAN %s %s COUNT %d", keys->names[5], cursor, SCAN_COUNT);
    default:
        /* Which of them are pending is another key's matter, and both are read in one step. */
        return redisCommand(link, "FCALL_RO dibs_visit 7 %s %s %s %s %s %s %s %s %d",
                            keys->names[0], keys->names[1], keys->names[2], keys->names[3],
                            keys->names[4], keys->names[5], keys->names[6], cursor, SCAN_COUNT);
    }
}

/* What the library calls unreadable, and what is there and cannot be taken, stays so: FAILED. */
static enum status redis_scan_refused(const struct redis_address *address,
                                      const struct redis_keys *keys, enum redis_scanned what,
                                      const redisReply *reply, struct error *error)
{
    const char *key = what == SCAN_POLICIES ? "its keys"
                      : what == SCAN_USERS  ? keys->names[2]
                                            : keys->names[5];
    bool is_error = reply->type == REDIS_REPLY_ERROR;
    bool is_wrong = !is_error || strncmp(reply->str, "DIBSBAD", 7) == 0 ||
                    strncmp(reply->str, "WRONGTYPE", 9) == 0;

    return error_set(error, is_wrong ? STATUS_FAILED : STATUS_UNAVAILABLE,
                     "Redis at %s: %s: %.300s", redis_address_words(address).text, key,
                     is_error ? reply->str : "an entry is not readable");
}

/* Reads all pages. `take` gets each field with its value, or each name twice; false: it is not
 * readable. `keys` are not needed for policies. */
static enum status redis_scan(struct gate_redis *redis, const struct redis_address *address,
                              const struct redis_keys *keys, enum redis_scanned what,
                              bool (*take)(void *context, const redisReply *name,
                                           const redisReply *value),
                              void *context, struct error *error)
{
    redisContext *link = NULL;
    char cursor[32] = "0";
    bool is_read = true;
    size_t step = what == SCAN_POLICIES ? 1 : 2;
    enum status status = redis_pool_take(&redis->pool, address, &link, error);

    if (status != STATUS_OK)
        return status;
    do {
        redisReply *reply = redis_scan_page(link, keys, what, cursor);
        is_read = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                  reply->element[0]->len < sizeof(cursor);
        const redisReply *page = is_read ? reply->element[1] : NULL;
        for (size_t i = 0; is_read && i + step <= page->elements; i += step)
            is_read = take(context, page->element[i], page->element[i + step - 1]);
        if (!is_read && reply != NULL)
            status = redis_scan_refused(address, keys, what, reply, error);
        if (is_read)
            memcpy(cursor, reply->element[0]->str, reply->element[0]->len + 1);
        freeReplyObject(reply);
    } while (is_read && strcmp(cursor, "0") != 0);
    if (is_read) {
        redis_pool_give(&redis->pool, address, link);
        return STATUS_OK;
    }
    redisFree(link);
    return status != STATUS_OK ? status
                               : error_set(error, STATUS_UNAVAILABLE, "Redis at %s: %s",
                                           redis_address_words(address).text, "no answer");
}

static bool redis_visit_take_user(void *context, const redisReply *user, const redisReply *value)
{
    struct redis_visited *visited = context;
    const char *text = value->str;

    if (user->len == 0 || user->len > ID_LENGTH_MAX)
        return false;
    while (text != NULL) {
        struct redis_held read;
        text = redis_read_held(text, value->str + value->len, &read);
        struct held_claim held = {.claim = read.claim,
                                  .state = redis_state_of(read.state),
                                  .is_pending = read.state == 'P'};
        held.claim.policy_id = visited->policy_id;
        held.claim.user = user_id_of((struct span){.bytes = user->str, .length = user->len});
        if (held.claim.nth == 0 || !redis_visited_add_claim(visited, &held))
            return false;
    }
    return true;
}

/* Request id -> "seq:nth:user". */
static bool redis_visit_take_key(void *context, const redisReply *name, const redisReply *value)
{
    struct redis_visited *visited = context;
    struct key_binding binding = {.policy_id = visited->policy_id};
    const char *text = value->str;
    int64_t nth;

    if (name->len != sizeof(binding.request_id) ||
        !redis_read_request_id(name->str, name->len, &binding.request_id) ||
        !redis_read_whole(&text, ':', &binding.seq) || !redis_read_whole(&text, ':', &nth))
        return false;
    struct span user = {.bytes = text, .length = value->len - (size_t)(text - value->str)};
    if (user.length == 0 || user.length > ID_LENGTH_MAX)
        return false;
    binding.nth = (int32_t)nth;
    binding.user = user_id_of(user);
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

static int64_t redis_visit_number(const redisReply *reply)
{
    return reply->str != NULL ? strtoll(reply->str, NULL, 10) : 0;
}

static void redis_visit_read_row(const redisReply *fields, int64_t seq_top, struct policy *row)
{
    int64_t numbers[ROW_FIELDS - 1];
    const char *name = fields->element[ROW_FIELDS - 1]->str;

    for (size_t i = 0; i < ROW_FIELDS - 1; i++)
        numbers[i] = redis_visit_number(fields->element[i]);
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
    snprintf(row->name, sizeof(row->name), "%s", name != NULL ? name : "");
}

/* "id:first:next:end" of each, oldest first. */
static enum status redis_visit_tell_leases(const redisReply *leases, int64_t policy_id,
                                           int64_t lease_top, const struct gate_visitor *visitor,
                                           struct error *error)
{
    int64_t told_id = 0;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < leases->elements && status == STATUS_OK; i++) {
        const char *text = leases->element[i]->str;
        int64_t id;
        int64_t first;
        int64_t next;
        int64_t end;
        if (text == NULL || !redis_read_whole(&text, ':', &id) ||
            !redis_read_whole(&text, ':', &first) || !redis_read_whole(&text, ':', &next) ||
            !redis_read_whole(&text, '\0', &end))
            return error_set(error, STATUS_FAILED, "policy %lld: a lease is not readable",
                             (long long)policy_id);
        if (next >= end)
            continue;
        struct lease lease = {.id = id,
                              .policy_id = policy_id,
                              .first_seq = first,
                              .count = end - first,
                              .open = true};
        status = visitor->lease(visitor->context, &lease, next - first, error);
        told_id = id;
    }
    if (status != STATUS_OK || lease_top <= told_id)
        return status;
    struct lease top = {.id = lease_top, .policy_id = policy_id, .first_seq = 1};
    return visitor->lease(visitor->context, &top, 0, error);
}

static enum status redis_visit_describe(struct gate_redis *redis, int64_t policy_id,
                                        const struct gate_visitor *visitor, struct error *error)
{
    struct policy row = {.id = policy_id};
    redisReply *reply = NULL;
    enum status status =
        redis_pool_call_surely(&redis->pool, policy_id, "dibs_describe", NULL, 0, &reply, error);

    if (status != STATUS_OK)
        return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 4 ||
        reply->element[0]->type != REDIS_REPLY_ARRAY || reply->element[0]->elements != ROW_FIELDS ||
        reply->element[3]->type != REDIS_REPLY_ARRAY) {
        status = error_set(error, STATUS_FAILED, "dibs_describe answers something else");
    } else {
        redis_visit_read_row(reply->element[0], redis_visit_number(reply->element[2]), &row);
        status = visitor->policy(visitor->context, &row, error);
    }
    if (status == STATUS_OK)
        status = redis_visit_tell_leases(reply->element[3], policy_id,
                                         redis_visit_number(reply->element[1]), visitor, error);
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
        status =
            redis_scan(redis, &address, &keys, SCAN_USERS, redis_visit_take_user, &visited, error);
    if (status == STATUS_OK)
        status = redis_visit_tell_claims(&visited, visitor, error);
    if (status == STATUS_OK)
        status =
            redis_scan(redis, &address, &keys, SCAN_KEYS, redis_visit_take_key, &visited, error);
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

static bool redis_visit_take_id(void *context, const redisReply *name, const redisReply *value)
{
    struct redis_ids *list = context;
    const char *text = name->str + strlen(KEY_HEAD); /* as it was asked for */
    int64_t id;

    (void)value;
    if (!redis_read_whole(&text, '}', &id) || id < 1)
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
        enum status scanned = redis_scan(redis, &addresses[i], NULL, SCAN_POLICIES,
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
