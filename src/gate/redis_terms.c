/* redis_terms.c: the terms of stewards in the gate in Redis, and the time for which policies are
 * armed there. */
#include "gate/redis_terms.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gate/redis_gate.h"

#define TIMEOUT_MAX_MS 500 /* for one server; others wait meanwhile */
#define AWAY_PAUSE_MS  2000
#define RENEW_MAX      1000 /* policies in one call */
#define RENEW_HEAD     8    /* FCALL, function, number of keys, and what is said of all policies */

bool gate_redis_can_move(const struct gate *gate)
{
    return ((const struct gate_redis *)gate)->target.mode != REDIS_MODE_SINGLE;
}

enum status redis_do_here(struct gate_redis *redis, int64_t policy_id, const char *function,
                          const struct redis_argument *arguments, size_t count, int64_t *number,
                          struct error *error)
{
    redisReply *reply = NULL;
    enum status status =
        (gate_redis_can_move(&redis->gate) ? redis_pool_call : redis_pool_call_surely)(
            &redis->pool, policy_id, function, arguments, count, &reply, error);

    if (status == STATUS_OK && number != NULL &&
        !redis_reply_number(reply, 0, REDIS_NUMBER_MAX, number))
        status = redis_reply_is_strange(function, error);
    freeReplyObject(reply);
    return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
}

enum status gate_redis_take_over(struct gate *gate, int64_t policy_id, int64_t term,
                                 int64_t previous, bool *is_continuous, struct error *error)
{
    char texts[2][24];
    int64_t answer = 0;
    const struct redis_argument arguments[] = {redis_number_text(texts[0], term),
                                               redis_number_text(texts[1], previous)};
    enum status status = redis_do_here(gate_redis_of(gate), policy_id, "dibs_take_over", arguments,
                                       2, &answer, error);

    *is_continuous = status == STATUS_OK && answer == 1;
    return status;
}

/* --- what time it is --- */

/* Calls a function without keys on that server. NULL: it is away, or refuses. */
static redisReply *redis_server_call(struct redis_pool *pool, const struct redis_address *address,
                                     int argc, const char **argv, const size_t *lengths,
                                     struct error *error)
{
    redisContext *link = NULL;

    if (redis_pool_take(pool, address, &link, error) != STATUS_OK)
        return NULL;
    redisReply *reply = redisCommandArgv(link, argc, argv, lengths);
    if (reply == NULL) {
        error_set(error, STATUS_UNAVAILABLE, "Redis at %s: %s", redis_address_words(address).text,
                  link->errstr);
        redisFree(link);
        return NULL;
    }
    if (redis_trouble_of(reply) == REDIS_TROUBLE_NONE) {
        redis_pool_give(pool, address, link);
        return reply;
    }
    error_set(error, STATUS_UNAVAILABLE, "Redis at %s: %.300s", redis_address_words(address).text,
              redis_reply_error(reply));
    freeReplyObject(reply);
    redisFree(link);
    return NULL;
}

/* `renewed_ms`: when somebody has last renewed there. */
static enum status redis_server_moment(struct redis_pool *pool, const struct redis_address *address,
                                       struct gate_moment *moment, int64_t *renewed_ms,
                                       struct error *error)
{
    char name[33];
    char database[24];
    const char *argv[] = {"FCALL_RO", "dibs_moment", "0", name,
                          redis_number_text(database, pool->target->database).bytes};

    redis_random_name(name);
    redisReply *reply = redis_server_call(pool, address, 5, argv, NULL, error);
    /* An idle connection may have been broken for long. */
    if (reply == NULL)
        reply = redis_server_call(pool, address, 5, argv, NULL, error);
    if (reply == NULL)
        return STATUS_UNAVAILABLE;
    bool is_readable =
        redis_reply_copy(redis_reply_at(reply, 0), moment->process, sizeof(moment->process)) &&
        redis_reply_number(redis_reply_at(reply, 1), 0, REDIS_NUMBER_MAX, &moment->now_ms) &&
        redis_reply_number(redis_reply_at(reply, 2), 0, REDIS_NUMBER_MAX, renewed_ms);
    freeReplyObject(reply);
    return is_readable ? STATUS_OK : redis_reply_is_strange("dibs_moment", error);
}

enum status gate_redis_moment(struct gate *gate, int64_t policy_id, struct gate_moment *moment,
                              struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    struct redis_address address;
    int64_t renewed_ms;

    if (!redis_map_find(&redis->map, policy_id, &address))
        return error_set(error, STATUS_UNAVAILABLE, "it is not known where Redis is");
    return redis_server_moment(&redis->pool, &address, moment, &renewed_ms, error);
}

/* --- renewing --- */

enum status redis_renewal_init(struct redis_renewal *renewal, const struct redis_target *target,
                               struct redis_map *map, struct error *error)
{
    *renewal = (struct redis_renewal){.target = *target};
    if (renewal->target.timeout_ms > TIMEOUT_MAX_MS)
        renewal->target.timeout_ms = TIMEOUT_MAX_MS;
    redis_pool_init(&renewal->pool, &renewal->target, map, &redis_gate_library);
    renewal->servers = calloc(REDIS_NODES_MAX, sizeof(*renewal->servers));
    return renewal->servers != NULL
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "no memory for the gate");
}

void redis_renewal_release(struct redis_renewal *renewal)
{
    redis_pool_release(&renewal->pool);
    free(renewal->servers);
}

/* What was known of the servers that are still there is kept. */
static bool redis_renewal_list(struct redis_renewal *renewal)
{
    struct redis_address *addresses = calloc(REDIS_NODES_MAX, sizeof(*addresses));
    struct redis_clock *before = calloc(REDIS_NODES_MAX, sizeof(*before));
    bool has_room = addresses != NULL && before != NULL;

    if (has_room) {
        size_t before_count = renewal->server_count;
        memcpy(before, renewal->servers, before_count * sizeof(*before));
        renewal->server_count = redis_map_list(renewal->pool.map, addresses, REDIS_NODES_MAX);
        for (size_t i = 0; i < renewal->server_count; i++) {
            renewal->servers[i] = (struct redis_clock){.address = addresses[i]};
            for (size_t k = 0; k < before_count; k++) {
                if (redis_address_equal(&before[k].address, &addresses[i]))
                    renewal->servers[i].away_until_ms = before[k].away_until_ms;
            }
        }
    }
    free(addresses);
    free(before);
    return has_room;
}

bool gate_redis_renewal_begin(struct gate *gate, int64_t pause_ms)
{
    struct redis_renewal *renewal = &gate_redis_of(gate)->renewal;
    bool is_any_due = false;

    if (!redis_renewal_list(renewal))
        return false;
    for (size_t i = 0; i < renewal->server_count; i++) {
        struct redis_clock *clock = &renewal->servers[i];
        int64_t renewed_ms = 0;
        struct error error;
        if (clock_monotonic_ms() < clock->away_until_ms)
            continue;
        clock->is_due = redis_server_moment(&renewal->pool, &clock->address, &clock->moment,
                                            &renewed_ms, &error) == STATUS_OK;
        /* Of several that are away not every one is waited for again and again. */
        clock->away_until_ms =
            clock->is_due || renewal->server_count == 1 ? 0 : clock_monotonic_ms() + AWAY_PAUSE_MS;
        int64_t age_ms = clock->moment.now_ms - renewed_ms;
        clock->is_due = clock->is_due && (age_ms < 0 || age_ms >= pause_ms);
        is_any_due = is_any_due || clock->is_due;
    }
    return is_any_due;
}

/* What is said in one call, and the room for its words. */
struct redis_renew_call {
    const char *argv[RENEW_HEAD + 2 * RENEW_MAX];
    struct redis_keys keys[RENEW_MAX];
    char terms[RENEW_MAX][24];
    size_t count;
};

/* What is not renewed now is at the next time, or runs out. */
static void redis_renewal_send(struct redis_renewal *renewal, const struct redis_clock *clock,
                               struct redis_renew_call *call, int64_t length_ms, bool is_confirmed)
{
    char texts[3][24];
    struct error error;

    call->argv[0] = "FCALL";
    call->argv[1] = "dibs_renew";
    call->argv[2] = "0";
    call->argv[3] = clock->moment.process;
    call->argv[4] = redis_number_text(texts[0], clock->moment.now_ms).bytes;
    call->argv[5] = redis_number_text(texts[1], length_ms).bytes;
    call->argv[6] = is_confirmed ? "1" : "0";
    call->argv[7] = redis_number_text(texts[2], renewal->target.database).bytes;
    freeReplyObject(redis_server_call(&renewal->pool, &clock->address,
                                      (int)(RENEW_HEAD + 2 * call->count), call->argv, NULL,
                                      &error));
    call->count = 0;
}

void gate_redis_renew(struct gate *gate, const struct gate_term *terms, size_t count,
                      int64_t length_ms, bool is_confirmed)
{
    struct redis_renewal *renewal = &gate_redis_of(gate)->renewal;
    struct redis_renew_call *call = calloc(1, sizeof(*call));

    for (size_t i = 0; i < renewal->server_count && call != NULL; i++) {
        const struct redis_clock *clock = &renewal->servers[i];
        struct redis_address address;
        for (size_t k = 0; k < count && clock->is_due; k++) {
            if (!redis_map_find(renewal->pool.map, terms[k].policy_id, &address) ||
                !redis_address_equal(&address, &clock->address))
                continue;
            redis_keys_of(&call->keys[call->count], terms[k].policy_id);
            call->argv[RENEW_HEAD + 2 * call->count] = call->keys[call->count].names[4];
            call->argv[RENEW_HEAD + 2 * call->count + 1] =
                redis_number_text(call->terms[call->count], terms[k].term).bytes;
            if (++call->count == RENEW_MAX)
                redis_renewal_send(renewal, clock, call, length_ms, is_confirmed);
        }
        if (clock->is_due)
            redis_renewal_send(renewal, clock, call, length_ms, is_confirmed);
    }
    free(call);
}
