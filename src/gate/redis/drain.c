/* drain.c: what the drain does with the gate in Redis: it reads what is pending, publishes it, and
 * acknowledges what the ledger has. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/traces.h"
#include "gate/redis/gate.h"

#define PENDING_NUMBERS 17
#define ACKNOWLEDGE_MAX 500

/* --- reading --- */

/* A member of PENDING, its seq, and what the user holds, in which the claim of that nth and seq is.
 * A user may hold an older one of the same nth, which the ledger gave while the gate was away.
 * False: the user does not hold it. */
static bool redis_read_pending(const redisReply *member, int64_t seq, const redisReply *held_text,
                               struct claim *claim)
{
    struct claim wanted = {0};
    struct redis_held held;
    struct span text;

    if (!redis_read_member(member, &wanted) || !redis_reply_text(held_text, &text))
        return false;
    while (redis_read_held(&text, &held)) {
        if (held.claim.nth != wanted.nth || held.claim.seq != seq)
            continue;
        *claim = held.claim;
        claim->user = wanted.user;
        return true;
    }
    return false;
}

/* Members and seqs by turns, what their users hold, and their traces or NULL, each a text or
 * nothing; the traces are for the relay and the ledger to find. What its user does not hold is
 * passed over, and counted. False: it is not readable. */
static bool redis_read_claims(const redisReply *reply, int64_t policy_id, size_t page_size,
                              struct gate_pending *pending, int64_t *last_seq, struct traces *found)
{
    const redisReply *members = redis_reply_at(reply, 1);
    const redisReply *texts = redis_reply_at(reply, 2);
    size_t count = redis_reply_count(texts);

    if (!redis_reply_is_array(members) || !redis_reply_is_array(texts) || count > page_size ||
        redis_reply_count(members) != 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct claim *claim = &pending->claims[pending->claim_count];
        struct span trace;
        int64_t seq;
        if (!redis_read_score(redis_reply_at(members, 2 * i + 1), &seq))
            return false;
        if (count == page_size && seq > 0)
            *last_seq = seq;
        if (!redis_read_pending(redis_reply_at(members, 2 * i), seq, redis_reply_at(texts, i),
                                claim)) {
            pending->stray_seq = pending->stray_count++ == 0 ? seq : pending->stray_seq;
            continue;
        }
        claim->policy_id = policy_id;
        pending->claim_count++;
        if (redis_reply_text(redis_reply_at(redis_reply_at(reply, 4), i), &trace))
            traces_put(found, &claim->request_id, trace);
    }
    return true;
}

/* The request id, a colon and the seq. */
static bool redis_read_bindings(const redisReply *reply, int64_t policy_id,
                                struct gate_pending *pending)
{
    size_t count = redis_reply_count(reply);

    if (!redis_reply_is_array(reply) || count > GATE_PENDING_MAX)
        return false;
    for (pending->binding_count = 0; pending->binding_count < count; pending->binding_count++) {
        struct key_binding *binding = &pending->bindings[pending->binding_count];
        struct span text;
        *binding = (struct key_binding){.policy_id = policy_id};
        if (!redis_reply_text(redis_reply_at(reply, pending->binding_count), &text) ||
            !redis_take_request_id(&text, &binding->request_id) || !redis_text_take(&text, ':') ||
            !redis_text_take_numbers(&text, 1, &binding->seq) || text.length > 0)
            return false;
    }
    return true;
}

/* The numbers of a policy, or only the time where it is not known. */
static bool redis_read_numbers(const redisReply *reply, struct gate_pending *pending)
{
    int64_t read[PENDING_NUMBERS];

    pending->is_known = redis_reply_is_array(reply);
    if (!pending->is_known)
        return redis_reply_number(reply, 0, REDIS_NUMBER_MAX, &pending->now_ms);
    if (!redis_reply_numbers(reply, PENDING_NUMBERS, read))
        return false;
    pending->is_armed = read[0] > 0;
    pending->is_suspended = read[0] < 0;
    pending->remaining = read[1];
    pending->pending_count = read[2];
    pending->unleased = read[4];
    pending->version = read[6];
    pending->now_ms = read[13];
    pending->term = read[14];
    pending->is_continuous = read[15] != 0;
    pending->selling_lease_id = read[16];
    return true;
}

/* Reads one page of what is pending; *last_seq is its last, 0 when nothing is behind it. */
static enum status redis_read_page(struct gate_redis *redis, int64_t policy_id, int64_t after_seq,
                                   struct gate_pending *pending, int64_t *last_seq,
                                   struct error *error)
{
    redisReply *reply = NULL;
    int page_size = redis->options.page_size > 0 ? redis->options.page_size : GATE_PENDING_MAX;
    const struct redis_argument arguments[] = {redis_number(after_seq), redis_number(page_size)};
    enum status status =
        redis_ask(&redis->pool, policy_id, "dibs_pending", arguments, 2, &reply, error);

    *last_seq = 0;
    if (status == STATUS_OK && !(redis_read_numbers(redis_reply_at(reply, 0), pending) &&
                                 redis_read_claims(reply, policy_id, (size_t)page_size, pending,
                                                   last_seq, redis->options.traces) &&
                                 redis_read_bindings(redis_reply_at(reply, 3), policy_id, pending)))
        status = redis_reply_is_strange("dibs_pending", error);
    freeReplyObject(reply);
    return status;
}

enum status gate_pending(struct shared_gate *gate, int64_t policy_id, int64_t after_seq,
                         struct gate_pending *pending, struct error *error)
{
    enum status status;

    memset(pending, 0, offsetof(struct gate_pending, claims));
    /* A page of nothing but claims that nobody holds does not hide those behind it. */
    do {
        status = redis_read_page(gate_redis_shared(gate), policy_id, after_seq, pending, &after_seq,
                                 error);
    } while (status == STATUS_OK && pending->claim_count == 0 && after_seq != 0);
    return status;
}

/* --- publishing --- */

enum status gate_publish(struct shared_gate *gate, int64_t policy_id, const char *token,
                         int64_t *mark, struct error *error)
{
    const struct redis_argument argument = redis_text(token);

    return redis_do(&gate_redis_shared(gate)->pool, policy_id, "dibs_publish", &argument, 1, mark,
                    error);
}

enum status gate_published(struct shared_gate *gate, int64_t policy_id, const char *token,
                           int64_t seq, struct error *error)
{
    const struct redis_argument arguments[] = {redis_text(token), redis_number(seq)};

    return redis_do(&gate_redis_shared(gate)->pool, policy_id, "dibs_published", arguments, 2, NULL,
                    error);
}

/* --- acknowledging --- */

static bool redis_any_is_void(const enum coupon_state *states, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!coupon_state_is_active(states[i]))
            return true;
    return false;
}

/* Up to ACKNOWLEDGE_MAX of one policy. What fails stays pending, and is acknowledged when it is
 * drained again. */
static void redis_acknowledge_some(struct gate_redis *redis, const struct claim *claims,
                                   const enum coupon_state *states, size_t count)
{
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
        arguments[at] = redis_number(claims[first].seq);
        arguments[at + 1] = redis_text(is_issued                           ? "I"
                                       : states[first] == COUPON_CANCELLED ? "C"
                                                                           : "V");
        arguments[at + 2] =
            is_issued ? redis_number(claims[i - 1].seq) : redis_user(&claims[first].user);
    }
    if (redis_do(&redis->pool, claims[0].policy_id, "dibs_acknowledge", arguments, at, NULL,
                 &error) != STATUS_OK)
        log_event(LOG_WARN, "acknowledge_failed", LOG_FIELD("policy", LOG_I64(claims[0].policy_id)),
                  LOG_FIELD("claims", LOG_I64(count)), LOG_FIELD("error", LOG_TEXT(error.text)));
    else if (redis_any_is_void(states, count))
        /* Their units are stock again: whoever told so knows it at once. */
        (void)!redis_watch_refresh(&redis->watch, claims[0].policy_id, &error);
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

enum status gate_acknowledge_keys(struct shared_gate *gate, const struct key_binding *bindings,
                                  size_t count, struct error *error)
{
    char members[GATE_PENDING_MAX][64];
    struct redis_argument arguments[GATE_PENDING_MAX];

    ensure(count <= GATE_PENDING_MAX);
    if (count == 0)
        return STATUS_OK;
    for (size_t i = 0; i < count; i++) {
        const size_t id_length = sizeof(bindings[i].request_id);
        memcpy(members[i], &bindings[i].request_id, id_length);
        int length = snprintf(members[i] + id_length, sizeof(members[i]) - id_length, ":%lld",
                              (long long)bindings[i].seq);
        arguments[i] = redis_bytes(members[i], id_length + (size_t)length);
    }
    return redis_do(&gate_redis_shared(gate)->pool, bindings[0].policy_id, "dibs_acknowledge_bound",
                    arguments, count, NULL, error);
}
