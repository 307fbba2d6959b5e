/* redis_steward.c: what the steward and the drain do with the gate in Redis: acknowledging what the
 * ledger has, and building a policy anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/random.h"
#include "gate/redis_gate.h"

#define ACKNOWLEDGE_MAX 500
#define ARM_PAUSE_MS    20
#define ARM_ARGUMENTS   7

static struct redis_argument redis_text(const char *text)
{
    return (struct redis_argument){.bytes = text, .length = strlen(text)};
}

static struct redis_argument redis_user(const struct user_id *user)
{
    return (struct redis_argument){.bytes = user->bytes, .length = user->length};
}

static struct redis_argument redis_id(const struct request_id *id)
{
    return (struct redis_argument){.bytes = (const char *)id, .length = sizeof(*id)};
}

/* --- acknowledging --- */

static bool redis_any_is_void(const enum coupon_state *states, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!coupon_state_is_active(states[i]))
            return true;
    }
    return false;
}

/* Up to ACKNOWLEDGE_MAX of one policy. What fails stays pending, and is acknowledged when it is
 * drained again. */
static void redis_acknowledge_some(struct gate_redis *redis, const struct claim *claims,
                                   const enum coupon_state *states, size_t count)
{
    char seqs[ACKNOWLEDGE_MAX][24];
    char lasts[ACKNOWLEDGE_MAX][24];
    struct redis_argument arguments[ACKNOWLEDGE_MAX * 3];
    size_t at = 0;
    struct error error = {""};

    ensure(count > 0 && count <= ACKNOWLEDGE_MAX);
    for (size_t i = 0; i < count; at += 3) {
        size_t first = i++;
        bool is_issued = coupon_state_is_active(states[first]);
        /* Those that were issued one after the other go together: most of a batch. */
        while (is_issued && i < count && claims[i].seq == claims[i - 1].seq + 1 &&
               coupon_state_is_active(states[i]))
            i++;
        snprintf(seqs[first], sizeof(seqs[first]), "%lld", (long long)claims[first].seq);
        snprintf(lasts[first], sizeof(lasts[first]), "%lld", (long long)claims[i - 1].seq);
        arguments[at] = redis_text(seqs[first]);
        arguments[at + 1] = redis_text(is_issued ? "I" : "V");
        arguments[at + 2] = is_issued ? redis_text(lasts[first]) : redis_user(&claims[first].user);
    }
    if (redis_do(redis, claims[0].policy_id, "dibs_acknowledge", arguments, at, &error) !=
        STATUS_OK)
        log_event(LOG_WARN, "acknowledge_failed", LOG_FIELD("policy", LOG_I64(claims[0].policy_id)),
                  LOG_FIELD("claims", LOG_I64(count)), LOG_FIELD("error", LOG_TEXT(error.text)));
    else if (redis_any_is_void(states, count))
        /* Their units are stock again: whoever told so knows it at once. */
        (void)!redis_watch_look(&redis->watch, claims[0].policy_id, &error);
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
        const size_t id_length = sizeof(bindings[i].request_id);
        memcpy(members[i], &bindings[i].request_id, id_length);
        int length = snprintf(members[i] + id_length, sizeof(members[i]) - id_length, ":%lld",
                              (long long)bindings[i].seq);
        arguments[i] = (struct redis_argument){members[i], id_length + (size_t)length};
    }
    return redis_do(gate_redis_of(gate), bindings[0].policy_id, "dibs_acknowledge_bound", arguments,
                    count, error);
}

/* --- coupons of the ledger --- */

#define COUPON_ARGUMENTS 6

static void redis_coupon_write(struct redis_coupon *coupon, const struct claim *claim,
                               enum coupon_state state)
{
    snprintf(coupon->seq, sizeof(coupon->seq), "%lld", (long long)claim->seq);
    snprintf(coupon->nth, sizeof(coupon->nth), "%d", (int)claim->nth);
    snprintf(coupon->requested_at, sizeof(coupon->requested_at), "%lld",
             (long long)claim->requested_at_ms);
    snprintf(coupon->state, sizeof(coupon->state), "%s",
             state == COUPON_REDEEMED        ? "R"
             : coupon_state_is_active(state) ? "I"
                                             : "C");
    coupon->request_id = claim->request_id;
    coupon->user = claim->user;
}

static void redis_coupon_arguments(const struct redis_coupon *coupon,
                                   struct redis_argument arguments[COUPON_ARGUMENTS])
{
    arguments[0] = redis_user(&coupon->user);
    arguments[1] = redis_text(coupon->seq);
    arguments[2] = redis_text(coupon->nth);
    arguments[3] = redis_text(coupon->state);
    arguments[4] = redis_text(coupon->requested_at);
    arguments[5] = redis_id(&coupon->request_id);
}

/* --- building anew --- */

/* Under the lock: the coupons of a policy that have gathered, or NULL. */
static struct redis_restore *redis_restore_find(struct gate_redis *redis, int64_t policy_id)
{
    struct redis_restore *restore = redis->restores;

    while (restore != NULL && restore->policy_id != policy_id)
        restore = restore->next;
    return restore;
}

/* Under the lock. */
static void redis_restore_drop(struct gate_redis *redis, int64_t policy_id)
{
    for (struct redis_restore **link = &redis->restores; *link != NULL; link = &(*link)->next) {
        struct redis_restore *restore = *link;
        if (restore->policy_id == policy_id) {
            *link = restore->next;
            free(restore);
            return;
        }
    }
}

/* Under the lock: sends the coupons and keys that have gathered. What could not be sent is sent
 * with the next ones: a policy is not armed without it. */
static enum status redis_restore_flush(struct gate_redis *redis, struct redis_restore *restore,
                                       struct error *error)
{
    struct redis_argument *arguments =
        malloc((COUPON_ARGUMENTS * RESTORE_MAX + 1) * sizeof(*arguments));
    enum status status = STATUS_OK;
    char text[24];
    struct redis_argument term = redis_number_text(text, restore->term);

    if (arguments == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to restore the gate");
    for (size_t i = 0; i < restore->coupon_count; i++)
        redis_coupon_arguments(&restore->coupons[i], arguments + COUPON_ARGUMENTS * i);
    arguments[COUPON_ARGUMENTS * restore->coupon_count] = term;
    if (restore->coupon_count > 0)
        status = redis_do(redis, restore->policy_id, "dibs_restore", arguments,
                          COUPON_ARGUMENTS * restore->coupon_count + 1, error);
    if (status == STATUS_OK)
        restore->coupon_count = 0;
    for (size_t i = 0; i < restore->key_count; i++) {
        arguments[2 * i] = redis_id(&restore->keys[i].request_id);
        arguments[2 * i + 1] = redis_text(restore->keys[i].claim);
    }
    arguments[2 * restore->key_count] = term;
    if (restore->key_count > 0 && status == STATUS_OK) {
        status = redis_do(redis, restore->policy_id, "dibs_restore_keys", arguments,
                          2 * restore->key_count + 1, error);
        if (status == STATUS_OK)
            restore->key_count = 0;
    }
    free(arguments);
    return status;
}

/* Under the lock: what is being built of this policy, from now on. NULL: no memory. */
static struct redis_restore *redis_restore_of(struct gate_redis *redis, int64_t policy_id)
{
    struct redis_restore *restore = redis_restore_find(redis, policy_id);

    if (restore == NULL && (restore = calloc(1, sizeof(*restore))) != NULL) {
        restore->policy_id = policy_id;
        restore->next = redis->restores;
        redis->restores = restore;
    }
    return restore;
}

/* Under the lock: makes room for one more of this policy. */
static enum status redis_restore_begin(struct gate_redis *redis, int64_t policy_id,
                                       struct redis_restore **found, struct error *error)
{
    struct redis_restore *restore = redis_restore_of(redis, policy_id);

    if (restore == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to restore the gate");
    *found = restore;
    return restore->coupon_count == RESTORE_MAX || restore->key_count == RESTORE_MAX
               ? redis_restore_flush(redis, restore, error)
               : STATUS_OK;
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
    if (restore != NULL && status == STATUS_OK)
        redis_coupon_write(&restore->coupons[restore->coupon_count++], claim, state);
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
    if (restore != NULL && status == STATUS_OK) {
        struct redis_restored_key *key = &restore->keys[restore->key_count++];
        key->request_id = binding->request_id;
        snprintf(key->claim, sizeof(key->claim), "%lld:%d:%.*s", (long long)binding->seq,
                 (int)binding->nth, (int)binding->user.length, binding->user.bytes);
    }
    pthread_mutex_unlock(&redis->restore_lock);
    return status;
}

enum status gate_redis_reset(struct gate *gate, int64_t policy_id, int64_t last_seq, int64_t term,
                             struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    char texts[2][24];
    char name[33];

    redis_random_name(name);
    pthread_mutex_lock(&redis->restore_lock);
    redis_restore_drop(redis, policy_id);
    struct redis_restore *restore = redis_restore_of(redis, policy_id);
    if (restore != NULL) {
        memcpy(restore->name, name, sizeof(name));
        restore->term = term;
    }
    pthread_mutex_unlock(&redis->restore_lock);
    if (restore == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to restore the gate");
    const struct redis_argument arguments[] = {redis_number_text(texts[0], last_seq),
                                               redis_text(name), redis_number_text(texts[1], term)};
    return redis_do_here(redis, policy_id, "dibs_reset", arguments, 3, NULL, error);
}

/* Waits until servers have forgotten what was before the reset, which is a moment. */
static enum status redis_arm_when_due(struct gate_redis *redis, int64_t policy_id,
                                      const struct redis_argument *arguments, struct error *error)
{
    const struct timespec pause = {.tv_nsec = ARM_PAUSE_MS * 1000000L};
    enum status status;

    while ((status = redis_do_here(redis, policy_id, "dibs_arm", arguments, ARM_ARGUMENTS, NULL,
                                   error)) == STATUS_BUSY)
        nanosleep(&pause, NULL);
    return status;
}

enum status gate_redis_arm(struct gate *gate, int64_t policy_id, int64_t active_count,
                           const struct gate_arming *arming, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    char token[48];
    char numbers[4][24];
    char random[33];
    char name[33] = "";

    redis_random_name(random);
    snprintf(token, sizeof(token), "%d:%s", redis->target.database, random);
    pthread_mutex_lock(&redis->restore_lock);
    struct redis_restore *restore = redis_restore_find(redis, policy_id);
    enum status status = restore == NULL ? STATUS_OK : redis_restore_flush(redis, restore, error);
    if (restore != NULL)
        memcpy(name, restore->name, sizeof(name));
    if (status == STATUS_OK)
        redis_restore_drop(redis, policy_id);
    pthread_mutex_unlock(&redis->restore_lock);
    const struct redis_argument arguments[ARM_ARGUMENTS] = {
        redis_text(token),
        redis_number_text(numbers[0], active_count),
        redis_text(name),
        redis_number_text(numbers[1], arming->term),
        redis_text(arming->since.process),
        redis_number_text(numbers[2], arming->since.now_ms),
        redis_number_text(numbers[3], arming->length_ms)};
    if (status == STATUS_OK)
        status = redis_arm_when_due(redis, policy_id, arguments, error);
    if (status == STATUS_OK)
        (void)!redis_watch_look(&redis->watch, policy_id, NULL);
    return status;
}

/* Up to RESTORE_MAX coupons. */
static enum status redis_enter_some(struct gate_redis *redis, int64_t policy_id,
                                    const struct claim *claims, const enum coupon_state *states,
                                    size_t count, struct error *error)
{
    struct redis_coupon coupons[RESTORE_MAX];
    struct redis_argument arguments[RESTORE_MAX * COUPON_ARGUMENTS];

    for (size_t i = 0; i < count; i++) {
        redis_coupon_write(&coupons[i], &claims[i], states[i]);
        redis_coupon_arguments(&coupons[i], arguments + COUPON_ARGUMENTS * i);
    }
    return redis_do(redis, policy_id, "dibs_enter", arguments, COUPON_ARGUMENTS * count, error);
}

enum status gate_redis_enter(struct gate *gate, int64_t policy_id, const struct claim *claims,
                             const enum coupon_state *states, size_t count, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    enum status status = STATUS_OK;
    size_t done = 0;

    do {
        size_t some = count - done < RESTORE_MAX ? count - done : RESTORE_MAX;
        /* Without claims there is no array to point into. */
        status = redis_enter_some(redis, policy_id, done == 0 ? claims : claims + done,
                                  done == 0 ? states : states + done, some, error);
        done += some;
    } while (status == STATUS_OK && done < count);
    /* Who has won in a policy that is sold out may have changed, and the lines hear that Redis is
     * there. */
    return status == STATUS_OK ? redis_watch_look(&redis->watch, policy_id, error) : status;
}

enum status redis_read_lease(const redisReply *leases, size_t at, int64_t policy_id,
                             struct gate_lease *lease, struct error *error)
{
    struct redis_keys keys;
    struct span text;
    int64_t read[4];

    if (redis_reply_text(redis_reply_at(leases, at), &text) &&
        redis_text_take_numbers(&text, 4, read) && text.length == 0 && read[1] <= read[2] &&
        read[2] <= read[3]) {
        *lease = (struct gate_lease){
            .id = read[0], .first_seq = read[1], .next_seq = read[2], .end_seq = read[3]};
        return STATUS_OK;
    }
    redis_keys_of(&keys, policy_id);
    return error_set(error, STATUS_FAILED, "%s: a lease is not readable", keys.names[3]);
}

enum status redis_read_described(const redisReply *reply, struct redis_described *described,
                                 struct error *error)
{
    int64_t tops[2];

    if (!redis_reply_number(redis_reply_at(reply, 1), 0, REDIS_NUMBER_MAX, &tops[0]) ||
        !redis_reply_number(redis_reply_at(reply, 2), 0, REDIS_NUMBER_MAX, &tops[1]) ||
        !redis_reply_is_array(redis_reply_at(reply, 3)))
        return redis_reply_is_strange("dibs_describe", error);
    *described = (struct redis_described){.row = redis_reply_at(reply, 0),
                                          .lease_top = tops[0],
                                          .seq_top = tops[1],
                                          .leases = redis_reply_at(reply, 3)};
    return STATUS_OK;
}

enum status gate_redis_leases(struct gate *gate, int64_t policy_id, struct gate_lease **leases,
                              size_t *count, int64_t *highest_id, struct error *error)
{
    struct redis_described described = {0};
    redisReply *reply = NULL;
    enum status status = redis_pool_call(&gate_redis_of(gate)->pool, policy_id, "dibs_describe",
                                         NULL, 0, &reply, error);

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
    return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
}

enum status gate_redis_retire(struct gate *gate, int64_t policy_id, int64_t seconds,
                              struct error *error)
{
    char text[24];
    int64_t is_done;
    const struct redis_argument argument = redis_number_text(text, seconds);
    enum status status = redis_ask_number(gate_redis_of(gate), policy_id, "dibs_retire", &argument,
                                          1, &is_done, error);

    if (status == STATUS_OK && is_done == 0)
        status = error_set(error, STATUS_BUSY, "policy %lld is not closed and drained",
                           (long long)policy_id);
    return status;
}

/* --- publishing --- */

enum status gate_redis_publish(struct gate *gate, int64_t policy_id, const char *token,
                               int64_t *mark, struct error *error)
{
    const struct redis_argument argument = redis_text(token);

    return redis_ask_number(gate_redis_of(gate), policy_id, "dibs_publish", &argument, 1, mark,
                            error);
}

enum status gate_redis_published(struct gate *gate, int64_t policy_id, const char *token,
                                 int64_t seq, struct error *error)
{
    char text[24];

    snprintf(text, sizeof(text), "%lld", (long long)seq);
    const struct redis_argument arguments[] = {redis_text(token), redis_text(text)};
    return redis_do(gate_redis_of(gate), policy_id, "dibs_published", arguments, 2, error);
}
