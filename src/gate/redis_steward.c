/* redis_steward.c: what the steward and the drain do with the gate in Redis: reading what is
 * pending, acknowledging it, and building a policy anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "gate/redis_gate.h"

#define ACKNOWLEDGE_MAX 500

static struct redis_argument redis_text(const char *text)
{
    return (struct redis_argument){.bytes = text, .length = strlen(text)};
}

static struct redis_argument redis_user(const struct user_id *user)
{
    return (struct redis_argument){.bytes = user->bytes, .length = user->length};
}

/* Calls and throws the reply away. */
static enum status redis_do(struct gate_redis *redis, int64_t policy_id, const char *function,
                            const struct redis_argument *arguments, size_t count,
                            struct error *error)
{
    redisReply *reply = NULL;
    enum status status =
        redis_pool_call(&redis->pool, policy_id, function, arguments, count, &reply, error);

    freeReplyObject(reply);
    return status;
}

/* --- what is pending --- */

/* "nth:lease:requested_at:request_id:user" */
static bool redis_read_pending(const char *member, const char *score, struct claim *claim)
{
    char *end;

    claim->seq = strtoll(score, NULL, 10);
    claim->nth = (int32_t)strtol(member, &end, 10);
    if (*end != ':')
        return false;
    claim->lease_id = strtoll(end + 1, &end, 10);
    if (*end != ':')
        return false;
    claim->requested_at_ms = strtoll(end + 1, &end, 10);
    if (*end != ':' || strlen(end + 1) < 34 ||
        !redis_read_request_id(end + 1, 32, &claim->request_id) || end[33] != ':')
        return false;
    size_t length = strlen(end + 34);
    if (length == 0 || length > ID_LENGTH_MAX)
        return false;
    claim->user = user_id_of((struct span){.bytes = end + 34, .length = length});
    return claim->seq > 0;
}

static enum status redis_read_claims(const redisReply *reply, int64_t policy_id,
                                     struct gate_pending *pending, struct error *error)
{
    for (size_t i = 0; i + 1 < reply->elements && pending->claim_count < GATE_PENDING_MAX; i += 2) {
        struct claim *claim = &pending->claims[pending->claim_count++];
        claim->policy_id = policy_id;
        if (!redis_read_pending(reply->element[i]->str, reply->element[i + 1]->str, claim))
            return error_set(error, STATUS_FAILED, "policy %lld: a pending claim is not readable",
                             (long long)policy_id);
    }
    return STATUS_OK;
}

/* "request_id:seq" */
static enum status redis_read_bindings(const redisReply *reply, int64_t policy_id,
                                       struct gate_pending *pending, struct error *error)
{
    for (size_t i = 0; i < reply->elements && pending->binding_count < GATE_PENDING_MAX; i++) {
        struct key_binding *binding = &pending->bindings[pending->binding_count++];
        const char *text = reply->element[i]->str;
        *binding = (struct key_binding){.policy_id = policy_id};
        if (strlen(text) < 34 || !redis_read_request_id(text, 32, &binding->request_id) ||
            text[32] != ':' || (binding->seq = strtoll(text + 33, NULL, 10)) <= 0)
            return error_set(error, STATUS_FAILED, "policy %lld: a bound key is not readable",
                             (long long)policy_id);
    }
    return STATUS_OK;
}

static int64_t redis_number(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_INTEGER ? reply->integer
           : reply->str != NULL               ? strtoll(reply->str, NULL, 10)
                                              : 0;
}

enum status gate_redis_pending(struct gate *gate, int64_t policy_id, int64_t after_seq,
                               struct gate_pending *pending, struct error *error)
{
    char seq[24];
    char count[16];
    redisReply *reply = NULL;

    snprintf(seq, sizeof(seq), "%lld", (long long)after_seq);
    snprintf(count, sizeof(count), "%d", GATE_PENDING_MAX);
    const struct redis_argument arguments[] = {redis_text(seq), redis_text(count)};
    enum status status = redis_pool_call(&gate_redis_of(gate)->pool, policy_id, "dibs_pending",
                                         arguments, 2, &reply, error);

    pending->claim_count = pending->binding_count = 0;
    pending->is_known = status == STATUS_OK;
    pending->is_armed = false;
    pending->remaining = pending->unleased = pending->pending_count = pending->version = 0;
    if (status == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (status == STATUS_OK &&
        (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
         reply->element[0]->type != REDIS_REPLY_ARRAY || reply->element[0]->elements < 8))
        status = error_set(error, STATUS_FAILED, "dibs_pending answers something else");
    if (status == STATUS_OK) {
        const redisReply *numbers = reply->element[0];
        pending->is_armed = redis_number(numbers->element[0]) != 0;
        pending->remaining = redis_number(numbers->element[1]);
        pending->pending_count = redis_number(numbers->element[2]);
        pending->unleased = redis_number(numbers->element[4]);
        pending->version = redis_number(numbers->element[6]);
        status = redis_read_claims(reply->element[1], policy_id, pending, error);
    }
    if (status == STATUS_OK)
        status = redis_read_bindings(reply->element[2], policy_id, pending, error);
    freeReplyObject(reply);
    return status;
}

/* --- acknowledging --- */

/* Up to ACKNOWLEDGE_MAX of one policy. What fails stays pending, and is acknowledged when it is
 * drained again. */
static void redis_acknowledge_some(struct gate_redis *redis, const struct claim *claims,
                                   const enum coupon_state *states, size_t count)
{
    char seqs[ACKNOWLEDGE_MAX][24];
    struct redis_argument arguments[ACKNOWLEDGE_MAX * 3];
    struct error error = {""};

    for (size_t i = 0; i < count; i++) {
        snprintf(seqs[i], sizeof(seqs[i]), "%lld", (long long)claims[i].seq);
        arguments[3 * i] = redis_text(seqs[i]);
        arguments[3 * i + 1] = redis_text(coupon_state_is_active(states[i]) ? "I" : "V");
        arguments[3 * i + 2] = redis_user(&claims[i].user);
    }
    if (redis_do(redis, claims[0].policy_id, "dibs_acknowledge", arguments, 3 * count, &error) !=
        STATUS_OK)
        log_event(LOG_WARN, "acknowledge_failed", LOG_FIELD("policy", LOG_I64(claims[0].policy_id)),
                  LOG_FIELD("claims", LOG_I64(count)), LOG_FIELD("error", LOG_TEXT(error.text)));
}

void gate_redis_acknowledge(struct gate *gate, const struct claim *claims,
                            const enum coupon_state *states, size_t count)
{
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;
        while (end < count && end - i < ACKNOWLEDGE_MAX &&
               claims[end].policy_id == claims[i].policy_id)
            end++;
        redis_acknowledge_some(gate_redis_of(gate), claims + i, states + i, end - i);
        i = end;
    }
}

enum status gate_redis_acknowledge_keys(struct gate *gate, const struct key_binding *bindings,
                                        size_t count, struct error *error)
{
    char members[GATE_PENDING_MAX][64];
    struct redis_argument arguments[GATE_PENDING_MAX];

    ensure(count <= GATE_PENDING_MAX);
    for (size_t i = 0; i < count; i++) {
        char id[33];
        redis_write_request_id(&bindings[i].request_id, id);
        snprintf(members[i], sizeof(members[i]), "%.32s:%lld", id, (long long)bindings[i].seq);
        arguments[i] = redis_text(members[i]);
    }
    return redis_do(gate_redis_of(gate), bindings[0].policy_id, "dibs_acknowledge_bound", arguments,
                    count, error);
}

/* --- building anew --- */

/* Under the lock: sends the coupons and keys that have gathered. */
static enum status redis_restore_flush(struct gate_redis *redis, struct error *error)
{
    struct redis_restore *restore = &redis->restore;
    struct redis_argument *arguments = malloc(5 * RESTORE_MAX * sizeof(*arguments));
    enum status status = STATUS_OK;

    if (arguments == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to restore the gate");
    for (size_t i = 0; i < restore->claim_count; i++) {
        const struct redis_restored *claim = &restore->claims[i];
        arguments[5 * i] = redis_user(&claim->user);
        arguments[5 * i + 1] = redis_text(claim->seq);
        arguments[5 * i + 2] = redis_text(claim->nth);
        arguments[5 * i + 3] = redis_text(claim->state);
        arguments[5 * i + 4] = redis_text(claim->request_id);
    }
    if (restore->claim_count > 0)
        status = redis_do(redis, restore->policy_id, "dibs_restore", arguments,
                          5 * restore->claim_count, error);
    for (size_t i = 0; i < restore->key_count; i++) {
        arguments[2 * i] = redis_text(restore->keys[i].request_id);
        arguments[2 * i + 1] = (struct redis_argument){.bytes = restore->keys[i].claim,
                                                       .length = restore->keys[i].claim_length};
    }
    if (restore->key_count > 0 && status == STATUS_OK)
        status = redis_do(redis, restore->policy_id, "dibs_restore_keys", arguments,
                          2 * restore->key_count, error);
    restore->claim_count = 0;
    restore->key_count = 0;
    free(arguments);
    return status;
}

/* Under the lock: makes room for one more of this policy. */
static enum status redis_restore_begin(struct gate_redis *redis, int64_t policy_id,
                                       struct error *error)
{
    struct redis_restore *restore = &redis->restore;
    enum status status = STATUS_OK;

    if (restore->policy_id != policy_id || restore->claim_count == RESTORE_MAX ||
        restore->key_count == RESTORE_MAX)
        status = redis_restore_flush(redis, error);
    restore->policy_id = policy_id;
    return status;
}

static void redis_restore_add_key(struct redis_restore *restore, const struct request_id *id,
                                  int64_t seq, int32_t nth, const struct user_id *user)
{
    struct redis_restored_key *key = &restore->keys[restore->key_count++];

    redis_write_request_id(id, key->request_id);
    int length = snprintf(key->claim, sizeof(key->claim), "%lld:%d:%.*s", (long long)seq, (int)nth,
                          (int)user->length, user->bytes);
    key->claim_length = (size_t)length;
}

enum status gate_redis_restore(struct gate *gate, const struct claim *claim,
                               enum coupon_state state, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    struct redis_restore *restore = &redis->restore;

    pthread_mutex_lock(&restore->lock);
    enum status status = redis_restore_begin(redis, claim->policy_id, error);
    if (status == STATUS_OK && coupon_state_is_active(state)) {
        struct redis_restored *restored = &restore->claims[restore->claim_count++];
        snprintf(restored->seq, sizeof(restored->seq), "%lld", (long long)claim->seq);
        snprintf(restored->nth, sizeof(restored->nth), "%d", (int)claim->nth);
        snprintf(restored->state, sizeof(restored->state), "%s",
                 state == COUPON_REDEEMED ? "R" : "I");
        redis_write_request_id(&claim->request_id, restored->request_id);
        restored->user = claim->user;
    } else if (status == STATUS_OK && state == COUPON_CANCELLED &&
               request_id_is_keyed(&claim->request_id)) {
        /* A key answers with its claim also after that was cancelled. */
        redis_restore_add_key(restore, &claim->request_id, claim->seq, claim->nth, &claim->user);
    }
    pthread_mutex_unlock(&restore->lock);
    return status;
}

enum status gate_redis_restore_key(struct gate *gate, const struct key_binding *binding,
                                   struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);

    ensure(binding->user.length > 0);
    pthread_mutex_lock(&redis->restore.lock);
    enum status status = redis_restore_begin(redis, binding->policy_id, error);
    if (status == STATUS_OK)
        redis_restore_add_key(&redis->restore, &binding->request_id, binding->seq, binding->nth,
                              &binding->user);
    pthread_mutex_unlock(&redis->restore.lock);
    return status;
}

enum status gate_redis_reset(struct gate *gate, int64_t policy_id, int64_t last_seq,
                             struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    char seq[24];

    pthread_mutex_lock(&redis->restore.lock);
    redis->restore.claim_count = redis->restore.key_count = 0;
    pthread_mutex_unlock(&redis->restore.lock);
    snprintf(seq, sizeof(seq), "%lld", (long long)last_seq);
    return redis_do(redis, policy_id, "dibs_reset", &(struct redis_argument){seq, strlen(seq)}, 1,
                    error);
}

enum status gate_redis_arm(struct gate *gate, int64_t policy_id, int64_t active_count,
                           struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    struct request_id token;
    char token_text[33];
    char active[24];

    random_bytes(&token, sizeof(token));
    redis_write_request_id(&token, token_text);
    snprintf(active, sizeof(active), "%lld", (long long)active_count);
    pthread_mutex_lock(&redis->restore.lock);
    enum status status =
        redis->restore.policy_id == policy_id ? redis_restore_flush(redis, error) : STATUS_OK;
    pthread_mutex_unlock(&redis->restore.lock);
    const struct redis_argument arguments[] = {redis_text(token_text), redis_text(active)};
    if (status == STATUS_OK)
        status = redis_do(redis, policy_id, "dibs_arm", arguments, 2, error);
    return status == STATUS_OK ? redis_watch_look(&redis->watch, policy_id, error) : status;
}

/* Up to RESTORE_MAX coupons. */
static enum status redis_enter_some(struct gate_redis *redis, int64_t policy_id,
                                    const struct claim *claims, const enum coupon_state *states,
                                    size_t count, struct error *error)
{
    char seqs[RESTORE_MAX][24];
    char nths[RESTORE_MAX][12];
    char ids[RESTORE_MAX][33];
    struct redis_argument arguments[RESTORE_MAX * 5];

    for (size_t i = 0; i < count; i++) {
        snprintf(seqs[i], sizeof(seqs[i]), "%lld", (long long)claims[i].seq);
        snprintf(nths[i], sizeof(nths[i]), "%d", (int)claims[i].nth);
        redis_write_request_id(&claims[i].request_id, ids[i]);
        arguments[5 * i] = redis_user(&claims[i].user);
        arguments[5 * i + 1] = redis_text(seqs[i]);
        arguments[5 * i + 2] = redis_text(nths[i]);
        arguments[5 * i + 3] = redis_text(states[i] == COUPON_REDEEMED        ? "R"
                                          : coupon_state_is_active(states[i]) ? "I"
                                                                              : "C");
        arguments[5 * i + 4] = redis_text(ids[i]);
    }
    enum status status = redis_do(redis, policy_id, "dibs_enter", arguments, 5 * count, error);
    return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
}

enum status gate_redis_enter(struct gate *gate, int64_t policy_id, const struct claim *claims,
                             const enum coupon_state *states, size_t count, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    enum status status = STATUS_OK;
    size_t done = 0;

    do {
        size_t some = count - done < RESTORE_MAX ? count - done : RESTORE_MAX;
        status = redis_enter_some(redis, policy_id, claims + done, states + done, some, error);
        done += some;
    } while (status == STATUS_OK && done < count);
    /* Who has won in a policy that is sold out has changed. */
    return status == STATUS_OK && count > 0 ? redis_watch_look(&redis->watch, policy_id, error)
                                            : status;
}

enum status gate_redis_retire(struct gate *gate, int64_t policy_id, int64_t seconds,
                              struct error *error)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)seconds);
    return redis_do(gate_redis_of(gate), policy_id, "dibs_retire",
                    &(struct redis_argument){text, strlen(text)}, 1, error);
}
