/* arming.c: what the steward does with the gate in Redis: taking a policy over, building it anew,
 * arming it, and renewing the time for which it is armed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "gate/redis/gate.h"

#define ARM_PAUSE_MS     20
#define COUPON_ARGUMENTS 6
#define RESTORE_MAX      300 /* coupons or keys in one call */
#define TIMEOUT_MAX_MS   500 /* for one server; others wait meanwhile */
#define AWAY_PAUSE_MS    2000
#define RENEW_MAX        1000 /* policies in one call */
#define RENEW_HEAD       5    /* what is said of all policies */

bool gate_can_move(const struct shared_gate *gate)
{
    return ((const struct gate_redis *)gate)->target.mode != REDIS_MODE_SINGLE;
}

/* As redis_do(), but where another server may have taken the place of the first it is not called
 * there: what was begun on one server is not ended on another. */
static enum status redis_do_here(struct shared_gate *gate, int64_t policy_id, const char *function,
                                 const struct redis_argument *arguments, size_t count,
                                 int64_t *number, struct error *error)
{
    struct redis_pool *pool = &gate_redis_shared(gate)->pool;
    redisReply *reply = NULL;

    if (!gate_can_move(gate))
        return redis_do(pool, policy_id, function, arguments, count, number, error);
    enum status status =
        redis_pool_call(pool, policy_id, function, arguments, count, &reply, error);
    if (status == STATUS_OK && number != NULL &&
        !redis_reply_number(reply, 0, REDIS_NUMBER_MAX, number))
        status = redis_reply_is_strange(function, error);
    freeReplyObject(reply);
    return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
}

enum status gate_take_over(struct shared_gate *gate, int64_t policy_id, int64_t term,
                           int64_t previous, bool *is_continuous, struct error *error)
{
    int64_t answer = 0;
    const struct redis_argument arguments[] = {redis_number(term), redis_number(previous)};
    enum status status =
        redis_do_here(gate, policy_id, "dibs_take_over", arguments, 2, &answer, error);

    *is_continuous = status == STATUS_OK && answer == 1;
    return status;
}

/* --- building anew --- */

struct redis_coupon {
    struct claim claim;
    enum coupon_state state;
};

/* Coupons of one policy on their way back into Redis, sent together. */
struct redis_restore {
    struct redis_restore *next;
    int64_t policy_id;
    char name[33]; /* that the reset was given; "": there was none */
    int64_t term;  /* in which it is built */
    size_t coupon_count;
    size_t key_count;
    struct redis_coupon coupons[RESTORE_MAX];
    struct redis_restored_key {
        struct request_id request_id;
        char claim[112]; /* "seq:nth:user" */
    } keys[RESTORE_MAX];
};

static void redis_coupon_write(const struct claim *claim, enum coupon_state state,
                               struct redis_argument arguments[COUPON_ARGUMENTS])
{
    arguments[0] = redis_user(&claim->user);
    arguments[1] = redis_number(claim->seq);
    arguments[2] = redis_number(claim->nth);
    arguments[3] = redis_text(state == COUPON_REDEEMED        ? "R"
                              : coupon_state_is_active(state) ? "I"
                                                              : "C");
    arguments[4] = redis_number(claim->requested_at_ms);
    arguments[5] = redis_id(&claim->request_id);
}

/* Under the lock: where the coupons of a policy that have gathered hang, or NULL does. */
static struct redis_restore **redis_restore_place(struct gate_redis *redis, int64_t policy_id)
{
    struct redis_restore **place = &redis->restores;

    while (*place != NULL && (*place)->policy_id != policy_id)
        place = &(*place)->next;
    return place;
}

/* Under the lock. */
static void redis_restore_drop(struct redis_restore **place)
{
    struct redis_restore *restore = *place;

    if (restore != NULL)
        *place = restore->next;
    free(restore);
}

void redis_restores_release(struct gate_redis *redis)
{
    while (redis->restores != NULL)
        redis_restore_drop(&redis->restores);
}

/* Under the lock: sends the coupons and keys that have gathered. What could not be sent is sent
 * with the next ones: a policy is not armed without it. */
static enum status redis_restore_flush(struct gate_redis *redis, struct redis_restore *restore,
                                       struct error *error)
{
    struct redis_argument arguments[COUPON_ARGUMENTS * RESTORE_MAX + 1];
    size_t count = 0;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < restore->coupon_count; i++, count += COUPON_ARGUMENTS)
        redis_coupon_write(&restore->coupons[i].claim, restore->coupons[i].state,
                           arguments + count);
    arguments[count] = redis_number(restore->term);
    if (restore->coupon_count > 0)
        status = redis_do(&redis->pool, restore->policy_id, "dibs_restore", arguments, count + 1,
                          NULL, error);
    if (status != STATUS_OK)
        return status;
    restore->coupon_count = count = 0;
    for (size_t i = 0; i < restore->key_count; i++, count += 2) {
        arguments[count] = redis_id(&restore->keys[i].request_id);
        arguments[count + 1] = redis_text(restore->keys[i].claim);
    }
    arguments[count] = redis_number(restore->term);
    if (restore->key_count > 0)
        status = redis_do(&redis->pool, restore->policy_id, "dibs_restore_keys", arguments,
                          count + 1, NULL, error);
    if (status == STATUS_OK)
        restore->key_count = 0;
    return status;
}

/* Under the lock: what is being built of this policy, from now on. UNAVAILABLE: no memory. */
static enum status redis_restore_of(struct gate_redis *redis, int64_t policy_id,
                                    struct redis_restore **restore, struct error *error)
{
    struct redis_restore **place = redis_restore_place(redis, policy_id);

    if (*place == NULL && (*place = calloc(1, sizeof(**place))) == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to restore the gate");
    (*place)->policy_id = policy_id;
    *restore = *place;
    return STATUS_OK;
}

/* Under the lock: the same, with room for one more. */
static enum status redis_restore_begin(struct gate_redis *redis, int64_t policy_id,
                                       struct redis_restore **restore, struct error *error)
{
    enum status status = redis_restore_of(redis, policy_id, restore, error);

    if (status == STATUS_OK &&
        ((*restore)->coupon_count == RESTORE_MAX || (*restore)->key_count == RESTORE_MAX))
        status = redis_restore_flush(redis, *restore, error);
    return status;
}

enum status gate_redis_restore(struct gate *gate, const struct claim *claim,
                               enum coupon_state state, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    struct redis_restore *restore = NULL;

    /* A key answers with its claim also after that was cancelled. One that came to nothing, or a
     * claim that is gone and has no key, leaves nothing. */
    if (!coupon_state_is_active(state) &&
        (state != COUPON_CANCELLED || !request_id_is_keyed(&claim->request_id)))
        return STATUS_OK;
    pthread_mutex_lock(&redis->restore_lock);
    enum status status = redis_restore_begin(redis, claim->policy_id, &restore, error);
    if (status == STATUS_OK)
        restore->coupons[restore->coupon_count++] = (struct redis_coupon){*claim, state};
    pthread_mutex_unlock(&redis->restore_lock);
    return status;
}

enum status gate_redis_restore_key(struct gate *gate, const struct key_binding *binding,
                                   struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    struct redis_restore *restore = NULL;

    ensure(binding->user.length > 0);
    pthread_mutex_lock(&redis->restore_lock);
    enum status status = redis_restore_begin(redis, binding->policy_id, &restore, error);
    if (status == STATUS_OK) {
        struct redis_restored_key *key = &restore->keys[restore->key_count++];
        key->request_id = binding->request_id;
        snprintf(key->claim, sizeof(key->claim), "%lld:%d:%.*s", (long long)binding->seq,
                 (int)binding->nth, (int)binding->user.length, binding->user.bytes);
    }
    pthread_mutex_unlock(&redis->restore_lock);
    return status;
}

enum status gate_reset(struct shared_gate *gate, int64_t policy_id, int64_t last_seq, int64_t term,
                       struct error *error)
{
    struct gate_redis *redis = gate_redis_shared(gate);
    struct redis_restore *restore = NULL;
    char name[33];

    redis_random_name(name);
    pthread_mutex_lock(&redis->restore_lock);
    redis_restore_drop(redis_restore_place(redis, policy_id));
    enum status status = redis_restore_of(redis, policy_id, &restore, error);
    if (status == STATUS_OK) {
        memcpy(restore->name, name, sizeof(name));
        restore->term = term;
    }
    pthread_mutex_unlock(&redis->restore_lock);
    if (status != STATUS_OK)
        return status;
    const struct redis_argument arguments[] = {redis_number(last_seq), redis_text(name),
                                               redis_number(term)};
    return redis_do_here(gate, policy_id, "dibs_reset", arguments, 3, NULL, error);
}

enum status gate_arm(struct shared_gate *gate, int64_t policy_id, int64_t active_count,
                     const struct gate_arming *arming, struct error *error)
{
    struct gate_redis *redis = gate_redis_shared(gate);
    const struct timespec pause = {.tv_nsec = ARM_PAUSE_MS * 1000000L};
    char token[48];
    char random[33];
    char name[33] = "";
    enum status status = STATUS_OK;

    redis_random_name(random);
    snprintf(token, sizeof(token), "%d:%s", redis->target.database, random);
    pthread_mutex_lock(&redis->restore_lock);
    struct redis_restore **place = redis_restore_place(redis, policy_id);
    if (*place != NULL) {
        memcpy(name, (*place)->name, sizeof(name));
        status = redis_restore_flush(redis, *place, error);
    }
    if (status == STATUS_OK)
        redis_restore_drop(place);
    pthread_mutex_unlock(&redis->restore_lock);
    if (status != STATUS_OK)
        return status;
    const struct redis_argument arguments[] = {
        redis_text(token),
        redis_number(active_count),
        redis_text(name),
        redis_number(arming->term),
        redis_text(arming->since.process),
        redis_number(arming->since.now_ms),
        redis_number(arming->length_ms),
    };
    /* Until servers have forgotten what was before the reset, which is a moment. */
    while ((status = redis_do_here(gate, policy_id, "dibs_arm", arguments, 7, NULL, error)) ==
           STATUS_BUSY)
        nanosleep(&pause, NULL);
    if (status == STATUS_OK)
        (void)!redis_watch_refresh(&redis->watch, policy_id, NULL);
    return status;
}

enum status gate_enter(struct shared_gate *gate, int64_t policy_id, const struct claim *claims,
                       const enum coupon_state *states, size_t count, struct error *error)
{
    struct gate_redis *redis = gate_redis_shared(gate);
    struct redis_argument arguments[COUPON_ARGUMENTS * RESTORE_MAX];
    enum status status = STATUS_OK;
    size_t done = 0;

    do {
        size_t some = count - done < RESTORE_MAX ? count - done : RESTORE_MAX;
        for (size_t i = 0; i < some; i++)
            redis_coupon_write(&claims[done + i], states[done + i],
                               arguments + COUPON_ARGUMENTS * i);
        status = redis_do(&redis->pool, policy_id, "dibs_enter", arguments, COUPON_ARGUMENTS * some,
                          NULL, error);
        done += some;
    } while (status == STATUS_OK && done < count);
    /* The winners of a policy that is sold out may have changed, and the lines learn that Redis is
     * there. */
    return status == STATUS_OK ? redis_watch_refresh(&redis->watch, policy_id, error) : status;
}

/* --- what time it is --- */

/* `renewed_ms`: when somebody has last renewed there. */
static enum status redis_server_moment(struct redis_pool *pool, const struct redis_address *address,
                                       struct gate_moment *moment, int64_t *renewed_ms,
                                       struct error *error)
{
    char name[33];
    redisReply *reply = NULL;

    redis_random_name(name);
    const struct redis_argument arguments[] = {redis_text(name),
                                               redis_number(pool->target->database)};
    /* An idle connection may have been broken for long. */
    for (int i = 0; i < 2 && reply == NULL; i++)
        reply = redis_server_call(pool, address, "FCALL_RO", "dibs_moment", arguments, 2, error);
    if (reply == NULL)
        return STATUS_UNAVAILABLE;
    bool is_readable =
        redis_reply_copy(redis_reply_at(reply, 0), moment->process, sizeof(moment->process)) &&
        redis_reply_number(redis_reply_at(reply, 1), 0, REDIS_NUMBER_MAX, &moment->now_ms) &&
        redis_reply_number(redis_reply_at(reply, 2), 0, REDIS_NUMBER_MAX, renewed_ms);
    freeReplyObject(reply);
    return is_readable ? STATUS_OK : redis_reply_is_strange("dibs_moment", error);
}

enum status gate_moment(struct shared_gate *gate, int64_t policy_id, struct gate_moment *moment,
                        struct error *error)
{
    struct gate_redis *redis = gate_redis_shared(gate);
    struct redis_address address;
    int64_t renewed_ms;

    *moment = (struct gate_moment){0};
    if (!redis_map_find(&redis->map, policy_id, &address))
        return error_set(error, STATUS_UNAVAILABLE, "it is not known where Redis is");
    return redis_server_moment(&redis->pool, &address, moment, &renewed_ms, error);
}

/* --- renewing --- */

void redis_renewal_init(struct redis_renewal *renewal, const struct redis_target *target,
                        struct redis_map *map)
{
    renewal->target = *target;
    if (renewal->target.timeout_ms > TIMEOUT_MAX_MS)
        renewal->target.timeout_ms = TIMEOUT_MAX_MS;
    redis_pool_init(&renewal->pool, &renewal->target, map, &redis_gate_library);
}

/* What was known of the servers that are still there is kept. */
static void redis_renewal_list(struct redis_renewal *renewal)
{
    struct redis_address addresses[REDIS_NODES_MAX];
    struct redis_clock before[REDIS_NODES_MAX];
    size_t before_count = renewal->server_count;

    memcpy(before, renewal->servers, before_count * sizeof(before[0]));
    renewal->server_count = redis_map_list(renewal->pool.map, addresses, REDIS_NODES_MAX);
    for (size_t i = 0; i < renewal->server_count; i++) {
        renewal->servers[i] = (struct redis_clock){.address = addresses[i]};
        for (size_t k = 0; k < before_count; k++)
            if (redis_address_equal(&before[k].address, &addresses[i]))
                renewal->servers[i].away_until_ms = before[k].away_until_ms;
    }
}

bool gate_renewal_begin(struct shared_gate *gate, int64_t pause_ms)
{
    struct redis_renewal *renewal = &gate_redis_shared(gate)->renewal;
    bool is_any_due = false;

    redis_renewal_list(renewal);
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

/* What is said in one call, and the names of the policies' keys. */
struct redis_renew_call {
    struct redis_argument arguments[RENEW_HEAD + 2 * RENEW_MAX];
    struct redis_keys keys[RENEW_MAX];
    size_t count;
};

/* What is not renewed now is at the next time, or runs out. */
static void redis_renewal_send(struct redis_renewal *renewal, const struct redis_clock *clock,
                               struct redis_renew_call *call, int64_t length_ms, bool is_confirmed)
{
    struct error error;

    call->arguments[0] = redis_text(clock->moment.process);
    call->arguments[1] = redis_number(clock->moment.now_ms);
    call->arguments[2] = redis_number(length_ms);
    call->arguments[3] = redis_number(is_confirmed);
    call->arguments[4] = redis_number(renewal->target.database);
    freeReplyObject(redis_server_call(&renewal->pool, &clock->address, "FCALL", "dibs_renew",
                                      call->arguments, RENEW_HEAD + 2 * call->count, &error));
    call->count = 0;
}

void gate_renew(struct shared_gate *gate, const struct gate_term *terms, size_t count,
                int64_t length_ms, bool is_confirmed)
{
    struct redis_renewal *renewal = &gate_redis_shared(gate)->renewal;
    struct redis_renew_call *call = calloc(1, sizeof(*call));

    for (size_t i = 0; i < renewal->server_count && call != NULL; i++) {
        const struct redis_clock *clock = &renewal->servers[i];
        struct redis_address address;
        for (size_t k = 0; k < count && clock->is_due; k++) {
            struct redis_argument *own = &call->arguments[RENEW_HEAD + 2 * call->count];
            struct redis_keys *keys = &call->keys[call->count];
            if (!redis_map_find(renewal->pool.map, terms[k].policy_id, &address) ||
                !redis_address_equal(&address, &clock->address))
                continue;
            redis_keys_of(keys, terms[k].policy_id);
            own[0] = redis_text(keys->names[REDIS_KEY_META]);
            own[1] = redis_number(terms[k].term);
            if (++call->count == RENEW_MAX)
                redis_renewal_send(renewal, clock, call, length_ms, is_confirmed);
        }
        if (clock->is_due)
            redis_renewal_send(renewal, clock, call, length_ms, is_confirmed);
    }
    free(call);
}
