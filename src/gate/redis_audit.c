/* redis_audit.c: what an audit asks the gate in Redis, and what a repair puts right there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate/redis_gate.h"

#define STATE_NUMBERS  10
#define STRAYS_AT_ONCE 500
#define MENDS_AT_ONCE  100
#define MEND_ARGUMENTS 7

/* --- how it stands --- */

static enum status redis_audit_read_leases(const redisReply *leases, int64_t policy_id,
                                           struct gate_state *state, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < redis_reply_count(leases) && status == STATUS_OK; i++) {
        struct gate_lease lease;
        status = redis_read_lease(leases, i, policy_id, &lease, error);
        if (status != STATUS_OK)
            break;
        state->left += lease.end_seq - lease.next_seq;
        if (state->left > REDIS_NUMBER_MAX)
            status = redis_reply_is_strange("dibs_inspect", error);
        if (state->lease_count < GATE_STATE_LEASES_MAX)
            state->leases[state->lease_count++] = lease;
    }
    return status;
}

enum status gate_redis_inspect(struct gate *gate, int64_t policy_id, struct gate_state *state,
                               struct error *error)
{
    redisReply *reply = NULL;
    int64_t read[STATE_NUMBERS] = {0};
    enum status status =
        redis_ask(gate_redis_of(gate), policy_id, "dibs_inspect", NULL, 0, &reply, error);
    const redisReply *leases = redis_reply_at(reply, STATE_NUMBERS);

    if (status != STATUS_OK)
        return status;
    state->is_known = !redis_reply_is_nil(reply);
    bool is_read = !state->is_known || (redis_reply_numbers(reply, STATE_NUMBERS, read) &&
                                        redis_reply_is_array(leases));
    state->is_armed = read[0] > 0;
    state->is_suspended = read[0] < 0;
    state->remaining = read[1];
    state->pending_count = read[2];
    state->issued = read[3];
    state->unleased = read[4];
    state->version = read[5];
    state->changes = read[6];
    state->seq_top = read[7];
    state->lease_top = read[8];
    state->mark = read[9];
    status = is_read ? redis_audit_read_leases(leases, policy_id, state, error)
                     : redis_reply_is_strange("dibs_inspect", error);
    freeReplyObject(reply);
    return status;
}

/* --- what is pending and not held --- */

/* One page, up to `max` in all; `after` becomes where the next one begins. */
static bool redis_audit_read_strays(const redisReply *reply, int64_t policy_id, char after[24],
                                    struct claim *strays, size_t max, size_t *count)
{
    if (redis_reply_count(reply) % 2 != 1 || !redis_reply_copy(redis_reply_at(reply, 0), after, 24))
        return false;
    for (size_t i = 1; i < redis_reply_count(reply) && *count < max; i += 2) {
        struct claim *stray = &strays[*count];
        *stray = (struct claim){.policy_id = policy_id};
        if (!redis_read_score(redis_reply_at(reply, i + 1), &stray->seq))
            return false;
        *count += redis_read_member(redis_reply_at(reply, i), stray);
    }
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
        status =
            redis_ask(gate_redis_of(gate), policy_id, "dibs_strays", arguments, 2, &reply, error);
        if (status == STATUS_OK &&
            !redis_audit_read_strays(reply, policy_id, after, strays, max, count))
            status = redis_reply_is_strange("dibs_strays", error);
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
    int64_t changed = 0;

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
    enum status status = redis_ask_number(redis, policy_id, "dibs_mend", arguments,
                                          count * MEND_ARGUMENTS, &changed, error);
    *changed_count += changed;
    return status;
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
