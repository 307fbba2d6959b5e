/* redis_pending.c: reads what is pending in the gate in Redis, and what else dibs_pending tells. */
#include <string.h>

#include "base/json.h"
#include "base/traces.h"
#include "gate/redis_gate.h"

#define PENDING_NUMBERS 17

bool redis_read_member(const redisReply *member, struct claim *claim)
{
    struct span text;
    int64_t nth = 1;

    if (!redis_reply_text(member, &text))
        return false;
    const char *feed = memchr(text.bytes, '\n', text.length);
    size_t length = feed == NULL ? text.length : (size_t)(feed - text.bytes);
    struct span digits = {text.bytes + length + 1, text.length - length - 1};
    if (!json_id_valid((struct span){text.bytes, length}) ||
        (feed != NULL && !(redis_text_take_numbers(&digits, 1, &nth) && digits.length == 0)) ||
        nth < 1 || nth > PER_USER_LIMIT_MAX)
        return false;
    claim->user = user_id_of((struct span){text.bytes, length});
    claim->nth = (int32_t)nth;
    return true;
}

bool redis_read_score(const redisReply *reply, int64_t *seq)
{
    struct span score;

    if (!redis_reply_text(reply, &score))
        return false;
    if (!redis_text_take_numbers(&score, 1, seq) || score.length > 0)
        *seq = 0;
    return true;
}

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
static bool redis_read_claims(const redisReply *reply, int64_t policy_id,
                              struct gate_pending *pending, int64_t *last_seq, struct traces *found)
{
    const redisReply *members = redis_reply_at(reply, 1);
    const redisReply *texts = redis_reply_at(reply, 2);
    size_t count = redis_reply_count(texts);

    if (!redis_reply_is_array(members) || !redis_reply_is_array(texts) ||
        count > GATE_PENDING_MAX || redis_reply_count(members) != 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        struct claim *claim = &pending->claims[pending->claim_count];
        struct span trace;
        int64_t seq;
        if (!redis_read_score(redis_reply_at(members, 2 * i + 1), &seq))
            return false;
        if (count == GATE_PENDING_MAX && seq > 0)
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
    char seq[24];
    char count[24];
    redisReply *reply = NULL;

    const struct redis_argument arguments[] = {redis_number_text(seq, after_seq),
                                               redis_number_text(count, GATE_PENDING_MAX)};
    enum status status = redis_ask(redis, policy_id, "dibs_pending", arguments, 2, &reply, error);

    *last_seq = 0;
    if (status == STATUS_OK &&
        !(redis_read_numbers(redis_reply_at(reply, 0), pending) &&
          redis_read_claims(reply, policy_id, pending, last_seq, redis->options.traces) &&
          redis_read_bindings(redis_reply_at(reply, 3), policy_id, pending)))
        status = redis_reply_is_strange("dibs_pending", error);
    freeReplyObject(reply);
    return status;
}

enum status gate_redis_pending(struct gate *gate, int64_t policy_id, int64_t after_seq,
                               struct gate_pending *pending, struct error *error)
{
    enum status status;

    pending->claim_count = pending->binding_count = pending->stray_count = 0;
    pending->is_known = pending->is_armed = pending->is_suspended = pending->is_continuous = false;
    pending->remaining = pending->unleased = pending->pending_count = pending->version = 0;
    pending->stray_seq = pending->term = pending->selling_lease_id = 0;
    /* A page of nothing but claims that nobody holds does not hide those behind it. */
    do {
        status =
            redis_read_page(gate_redis_of(gate), policy_id, after_seq, pending, &after_seq, error);
    } while (status == STATUS_OK && pending->claim_count == 0 && after_seq != 0);
    return status;
}
