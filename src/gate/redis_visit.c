/* redis_visit.c: a walk over all that the gate in Redis holds. */
#include <stdlib.h>
#include <string.h>

#include "gate/redis_gate.h"

/* What one policy's walk gathers, since Redis tells users in no order. */
struct redis_visited {
    struct held_claim *claims;
    size_t count;
    size_t capacity;
};

static bool redis_visited_add(struct redis_visited *visited, const struct held_claim *held)
{
    if (visited->count == visited->capacity) {
        size_t capacity = visited->capacity == 0 ? 1024 : visited->capacity * 2;
        struct held_claim *grown = realloc(visited->claims, capacity * sizeof(*grown));
        if (grown == NULL)
            return false;
        visited->claims = grown;
        visited->capacity = capacity;
    }
    visited->claims[visited->count++] = *held;
    return true;
}

/* "seq:nth:state:bound:request_id", several joined by commas. */
static bool redis_visit_user(struct redis_visited *visited, int64_t policy_id,
                             const redisReply *user, const char *text)
{
    while (*text != '\0') {
        struct held_claim held = {.claim.policy_id = policy_id};
        char *end;
        held.claim.seq = strtoll(text, &end, 10);
        held.claim.nth = (int32_t)strtol(end + 1, &end, 10);
        char state = end[1];
        const char *id = strchr(end + 3, ':');
        if (id == NULL || user->len == 0 || user->len > ID_LENGTH_MAX ||
            !redis_read_request_id(id + 1, 32, &held.claim.request_id))
            return false;
        held.claim.user = user_id_of((struct span){.bytes = user->str, .length = user->len});
        held.state = redis_state_of(state);
        held.is_pending = state == 'P';
        if (!redis_visited_add(visited, &held))
            return false;
        text = id + 33;
        text += *text == ',';
    }
    return true;
}

static enum status redis_visit_gather(struct gate_redis *redis, int64_t policy_id,
                                      struct redis_visited *visited, struct error *error)
{
    struct redis_address address;
    struct redis_keys keys;
    redisContext *link = NULL;
    char cursor[32] = "0";
    bool is_read = true;

    redis_keys_of(&keys, policy_id);
    if (!redis_map_find(&redis->map, policy_id, &address))
        return error_set(error, STATUS_UNAVAILABLE, "it is not known where Redis is");
    enum status status = redis_pool_take(&redis->pool, &address, &link, error);
    if (status != STATUS_OK)
        return status;
    do {
        redisReply *reply = redisCommand(link, "HSCAN %s %s COUNT 1000", keys.names[2], cursor);
        is_read = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                  reply->element[0]->len < sizeof(cursor);
        for (size_t i = 0; is_read && i + 1 < reply->element[1]->elements; i += 2)
            is_read = redis_visit_user(visited, policy_id, reply->element[1]->element[i],
                                       reply->element[1]->element[i + 1]->str);
        if (is_read)
            memcpy(cursor, reply->element[0]->str, reply->element[0]->len + 1);
        freeReplyObject(reply);
    } while (is_read && strcmp(cursor, "0") != 0);
    if (is_read) {
        redis_pool_give(&redis->pool, &address, link);
        return STATUS_OK;
    }
    redisFree(link);
    return error_set(error, STATUS_UNAVAILABLE, "policy %lld: its users cannot be read",
                     (long long)policy_id);
}

static int redis_visit_compare(const void *a, const void *b)
{
    const struct held_claim *left = a;
    const struct held_claim *right = b;
    return (left->claim.seq > right->claim.seq) - (left->claim.seq < right->claim.seq);
}

/* HSCAN may tell a user twice. */
static enum status redis_visit_policy(struct gate_redis *redis, int64_t policy_id,
                                      const struct gate_visitor *visitor, struct error *error)
{
    struct redis_visited visited = {0};
    enum status status = redis_visit_gather(redis, policy_id, &visited, error);

    if (status == STATUS_OK && visited.count > 0)
        qsort(visited.claims, visited.count, sizeof(*visited.claims), redis_visit_compare);
    for (size_t i = 0; i < visited.count && status == STATUS_OK; i++) {
        if (i == 0 || visited.claims[i].claim.seq != visited.claims[i - 1].claim.seq)
            status = visitor->claim(visitor->context, &visited.claims[i], error);
    }
    free(visited.claims);
    return status;
}

enum status gate_redis_visit(struct gate *gate, int64_t policy_id,
                             const struct gate_visitor *visitor, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    enum status status = STATUS_OK;
    int64_t after_id = 0;
    int64_t id;

    if (policy_id != GATE_VISIT_ALL)
        return redis_watch_has(&redis->watch, policy_id)
                   ? redis_visit_policy(redis, policy_id, visitor, error)
                   : error_set(error, STATUS_NOT_FOUND, "the gate has no policy %lld",
                               (long long)policy_id);
    while (status == STATUS_OK && redis_watch_list(&redis->watch, after_id, &id, 1) == 1) {
        status = redis_visit_policy(redis, id, visitor, error);
        after_id = id;
    }
    return status;
}
