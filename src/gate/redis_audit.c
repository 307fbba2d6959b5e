/* redis_audit.c: what an audit asks the gate in Redis, and what a repair puts right there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/redis_gate.h"

#define STATE_NUMBERS  10
#define STRAYS_AT_ONCE 500
#define MENDS_AT_ONCE  100
#define MEND_ARGUMENTS 7

static int64_t redis_audit_number(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_INTEGER ? reply->integer
           : reply->str != NULL               ? strtoll(reply->str, NULL, 10)
                                              : 0;
}

/* --- how it stands --- */

static enum status redis_audit_read_leases(const redisReply *leases, int64_t policy_id,
                                           struct gate_state *state, struct error *error)
{
    struct redis_keys keys;

    redis_keys_of(&keys, policy_id);
    for (size_t i = 0; i < leases->elements; i++) {
        const redisReply *text = leases->element[i];
        struct gate_lease lease;
        if (text->str == NULL || !redis_read_lease(text->str, &lease))
            return error_set(error, STATUS_FAILED, "%s: a lease is not readable", keys.names[3]);
        state->left += lease.end_seq - lease.next_seq;
        if (state->lease_count < GATE_STATE_LEASES_MAX)
            state->leases[state->lease_count++] = lease;
    }
    return STATUS_OK;
}

enum status gate_redis_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                               struct error *error)
{
    redisReply *reply = NULL;
    int64_t arming = 0;
    int64_t *const numbers[STATE_NUMBERS] = {
        &arming,           &state->remaining, &state->pending_count, &state->issued,
        &state->unleased,  &state->version,   &state->changes,       &state->seq_top,
        &state->lease_top, &state->mark};
    enum status status = redis_pool_call_surely(&gate_redis_of(gate)->pool, policy_id,
                                                "dibs_inspect", NULL, 0, &reply, error);

    if (status != STATUS_OK)
        return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
    state->is_known = reply->type == REDIS_REPLY_ARRAY;
    if (state->is_known && (reply->elements != STATE_NUMBERS + 1 ||
                            reply->element[STATE_NUMBERS]->type != REDIS_REPLY_ARRAY)) {
        status = error_set(error, STATUS_FAILED, "dibs_inspect answers something else");
    } else if (state->is_known) {
        for (size_t i = 0; i < STATE_NUMBERS; i++)
            *numbers[i] = redis_audit_number(reply->element[i]);
        state->is_armed = arming > 0;
        state->is_suspended = arming < 0;
        status = redis_audit_read_leases(reply->element[STATE_NUMBERS], policy_id, state, error);
    }
    freeReplyObject(reply);
    return status;
}

/* --- what is pending and not held --- */

/* A member of PENDING, "user" or "user\nnth"; false: nobody can have such a name. */
static bool redis_audit_read_member(const redisReply *member, struct claim *claim)
{
    const char *feed = member->str == NULL ? NULL : memchr(member->str, '\n', member->len);
    size_t length = feed == NULL ? member->len : (size_t)(feed - member->str);

    if (member->str == NULL || length == 0 || length > ID_LENGTH_MAX)
        return false;
    claim->user = user_id_of((struct span){.bytes = member->str, .length = length});
    claim->nth = feed == NULL ? 1 : (int32_t)strtol(feed + 1, NULL, 10);
    return true;
}

enum status gate_redis_strays(struct gate *gate, int64_t policy_id, struct claim *strays,
                              size_t max, size_t *count, struct error *error)
{
    char after[24] = "0";
    char at_once[12];
    enum status status = STATUS_OK;

    snprintf(at_once, sizeof(at_once), "%d", STRAYS_AT_ONCE);
    do {
        redisReply *reply = NULL;
        const struct redis_argument arguments[] = {{after, strlen(after)},
                                                   {at_once, strlen(at_once)}};
        status = redis_pool_call_surely(&gate_redis_of(gate)->pool, policy_id, "dibs_strays",
                                        arguments, 2, &reply, error);
        if (status != STATUS_OK)
            return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
        bool is_read = reply->type == REDIS_REPLY_ARRAY && reply->elements % 2 == 1 &&
                       reply->element[0]->str != NULL && reply->element[0]->len < sizeof(after);
        if (is_read)
            memcpy(after, reply->element[0]->str, reply->element[0]->len + 1);
        else
            status = error_set(error, STATUS_FAILED, "dibs_strays answers something else");
        for (size_t i = 1; status == STATUS_OK && i < reply->elements && *count < max; i += 2) {
            struct claim *stray = &strays[*count];
            *stray = (struct claim){.policy_id = policy_id,
                                    .seq = redis_audit_number(reply->element[i + 1])};
            *count += redis_audit_read_member(reply->element[i], stray);
        }
        freeReplyObject(reply);
    } while (status == STATUS_OK && strcmp(after, "0") != 0 && *count < max);
    return status;
}

/* --- putting right --- */

struct redis_mend_texts {
    char seq[24];
    char nth[12];
    char lease[24];
    char requested_at[24];
};

static enum status redis_mend_some(struct gate_redis *redis, int64_t policy_id,
                                   const struct gate_mend *mends, size_t count,
                                   int64_t *changed_count, struct error *error)
{
    static const char *const letters[] = {
        [GATE_MEND_PENDING] = "P", [GATE_MEND_HELD] = "H", [GATE_MEND_REMOVE] = "R"};
    struct redis_mend_texts texts[MENDS_AT_ONCE];
    struct redis_argument arguments[MENDS_AT_ONCE * MEND_ARGUMENTS];
    redisReply *reply = NULL;

    ensure(count <= MENDS_AT_ONCE);
    for (size_t i = 0; i < count; i++) {
        const struct claim *claim = &mends[i].claim;
        struct redis_mend_texts *text = &texts[i];
        struct redis_argument *own = &arguments[i * MEND_ARGUMENTS];
        snprintf(text->seq, sizeof(text->seq), "%lld", (long long)claim->seq);
        snprintf(text->nth, sizeof(text->nth), "%d", (int)claim->nth);
        snprintf(text->lease, sizeof(text->lease), "%lld", (long long)claim->lease_id);
        snprintf(text->requested_at, sizeof(text->requested_at), "%lld",
                 (long long)claim->requested_at_ms);
        own[0] = (struct redis_argument){letters[mends[i].mending], 1};
        own[1] = (struct redis_argument){claim->user.bytes, claim->user.length};
        own[2] = (struct redis_argument){text->seq, strlen(text->seq)};
        own[3] = (struct redis_argument){text->nth, strlen(text->nth)};
        own[4] = (struct redis_argument){text->lease, strlen(text->lease)};
        own[5] = (struct redis_argument){text->requested_at, strlen(text->requested_at)};
        own[6] =
            (struct redis_argument){(const char *)&claim->request_id, sizeof(claim->request_id)};
    }
    enum status status = redis_pool_call_surely(&redis->pool, policy_id, "dibs_mend", arguments,
                                                count * MEND_ARGUMENTS, &reply, error);
    if (status == STATUS_OK)
        *changed_count += redis_audit_number(reply);
    freeReplyObject(reply);
    return status == STATUS_UNKNOWN ? STATUS_UNAVAILABLE : status;
}

enum status gate_redis_mend(struct gate *gate, int64_t policy_id, const struct gate_mend *mends,
                            size_t count, int64_t *changed_count, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t done = 0; done < count && status == STATUS_OK; done += MENDS_AT_ONCE)
        status = redis_mend_some(gate_redis_of(gate), policy_id, mends + done,
                                 count - done < MENDS_AT_ONCE ? count - done : MENDS_AT_ONCE,
                                 changed_count, error);
    return status;
}

static enum status redis_audit_do(struct gate *gate, int64_t policy_id, const char *function,
                                  struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    enum status status = redis_do(redis, policy_id, function, NULL, 0, error);

    if (status == STATUS_OK)
        (void)!redis_watch_look(&redis->watch, policy_id, NULL);
    return status;
}

enum status gate_redis_lay_down(struct gate *gate, int64_t policy_id, struct error *error)
{
    return redis_audit_do(gate, policy_id, "dibs_lay_down", error);
}

enum status gate_redis_suspend(struct gate *gate, int64_t policy_id, struct error *error)
{
    return redis_audit_do(gate, policy_id, "dibs_suspend", error);
}

enum status gate_redis_forget(struct gate *gate, int64_t policy_id, struct error *error)
{
    struct gate_redis *redis = gate_redis_of(gate);
    enum status status = redis_do(redis, policy_id, "dibs_forget", NULL, 0, error);

    if (status == STATUS_OK)
        redis_watch_drop(&redis->watch, policy_id);
    return status;
}
