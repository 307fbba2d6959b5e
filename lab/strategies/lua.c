/* lua.c: one script for each claim: is the user in, is there stock, take it, put them in line.
 *
 * The reference: the right sequence, one request at a time. The worker takes a user out of the line
 * after the row is there.
 */
#include <stdio.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define REMAINING "coupon:%d:remaining"
#define WINNERS   "coupon:%d:winners"
#define PENDING   "coupon:%d:pending"
#define BATCH_MAX 500

static const char SCRIPT[] =
    "if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 2 end "
    "if tonumber(redis.call('GET', KEYS[1]) or '0') <= 0 then return 0 end "
    "redis.call('DECR', KEYS[1]) redis.call('SADD', KEYS[2], ARGV[1]) "
    "redis.call('RPUSH', KEYS[3], ARGV[1]) return 1";

static void lua_prepare(struct lab_session *session)
{
    (void)lab_redis(session, "SET " REMAINING " %lld", session->policy,
                    (long long)session->knobs->total);
}

static enum lab_answer lua_claim(struct lab_session *session, const char *user)
{
    static const enum lab_answer answers[] = {LAB_SOLD_OUT, LAB_YES, LAB_ALREADY};
    int policy = session->policy;
    int64_t verdict = lab_redis(session, "EVAL %s 3 " REMAINING " " WINNERS " " PENDING " %s",
                                SCRIPT, policy, policy, policy, user);
    lab_step(session);
    return session->failed ? LAB_FAILED : answers[verdict];
}

static void lua_work(struct lab_session *session, int batch)
{
    static char users[BATCH_MAX][LAB_ID_SIZE];
    size_t count = lab_redis_list(session, users, BATCH_MAX, "LRANGE " PENDING " 0 %d",
                                  session->policy, batch - 1);
    for (size_t i = 0; i < count && !session->failed; i++) {
        if (!lab_insert(session, users[i]) && !lab_sql_is_duplicate(session) &&
            session->sqlstate[0] == '\0')
            return;
        lab_step(session);
        (void)lab_redis(session, "LREM " PENDING " 1 %s", session->policy, users[i]);
    }
}

const struct lab_strategy lab_lua = {
    .name = "lua",
    .commands = "EVAL: SISMEMBER, GET, DECR, SADD, RPUSH in one step; worker: LRANGE, INSERT, LREM",
    .why_of =
        {
            [LAB_POISON] = "The worker logs the INSERT that failed and takes the user out of the "
                           "line; the unit is not put back.",
        },
    .needs_redis = true,
    .pause_ms = 20,
    .batch = BATCH_MAX,
    .prepare = lua_prepare,
    .claim = lua_claim,
    .work = lua_work,
};
