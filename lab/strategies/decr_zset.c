/* decr_zset.c: DECR REMAINING; ZADD PENDING now user; a worker every second, ZRANGE, INSERT, ZREM.
 *
 * Nobody looks whether the user is in already before the stock is taken, so a second press takes a
 * unit that nobody gets. The score is the server's clock. The sync job, if it runs, writes the
 * database's count over REMAINING while winners are pending.
 */
#include <stdio.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define REMAINING "coupon:remaining"
#define PENDING   "coupon:pending"
#define BATCH_MAX 500

static void decr_zset_prepare(struct lab_session *session)
{
    (void)lab_redis(session, "SET %s %lld", REMAINING, (long long)session->knobs->total);
}

static enum lab_answer decr_zset_claim(struct lab_session *session, const char *user)
{
    if (lab_redis(session, "DECR %s", REMAINING) < 0) {
        (void)lab_redis(session, "INCR %s", REMAINING);
        return session->failed ? LAB_FAILED : LAB_SOLD_OUT;
    }
    if (session->failed)
        return LAB_FAILED;
    lab_step(session);
    bool is_new = lab_redis(session, "ZADD %s NX %lld %s", PENDING, (long long)lab_now_ms(session),
                            user) == 1;
    if (session->failed)
        return LAB_FAILED;
    return is_new ? LAB_YES : LAB_ALREADY;
}

static void decr_zset_work(struct lab_session *session, int batch)
{
    static char users[BATCH_MAX][LAB_ID_SIZE];
    size_t count = lab_redis_list(session, users, BATCH_MAX, "ZRANGE %s 0 %d", PENDING, batch - 1);
    for (size_t i = 0; i < count && !session->failed; i++) {
        /* Whoever has a row already is taken out, too. */
        if (!lab_insert(session, users[i]) && !lab_sql_is_duplicate(session))
            return;
        lab_step(session);
        (void)lab_redis(session, "ZREM %s %s", PENDING, users[i]);
    }
}

static void decr_zset_sync(struct lab_session *session)
{
    int64_t rows = lab_sql(session, "SELECT count(*) FROM coupon", 0);
    if (rows >= 0)
        (void)lab_redis(session, "SET %s %lld", REMAINING,
                        (long long)(session->knobs->total - rows));
}

const struct lab_strategy lab_decr_zset = {
    .name = "decr-zset",
    .commands = "DECR remaining; ZADD pending NX now user; worker: ZRANGE 500, INSERT, ZREM",
    .flaw =
        "a second press takes a unit that nobody gets; the sync job sells what is pending again",
    .needs_redis = true,
    .pause_ms = 1000,
    .batch = BATCH_MAX,
    .prepare = decr_zset_prepare,
    .claim = decr_zset_claim,
    .work = decr_zset_work,
    .sync = decr_zset_sync,
};
