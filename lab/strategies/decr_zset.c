/* decr_zset.c: DECR REMAINING; ZADD PENDING now user; a worker every second, ZRANGE, INSERT, ZREM.
 *
 * Nobody looks whether the user is in already before the stock is taken, so a second press takes a
 * unit that nobody gets. The score is the server's clock. The sync job, if it runs, writes the
 * database's count over REMAINING while winners are pending.
 */
#include <stdio.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define REMAINING "coupon:%d:remaining"
#define PENDING   "coupon:%d:pending"
#define BATCH_MAX 500

static void decr_zset_prepare(struct lab_session *session)
{
    (void)lab_redis(session, "SET " REMAINING " %lld", session->policy,
                    (long long)session->knobs->total);
}

static enum lab_answer decr_zset_claim(struct lab_session *session, const char *user)
{
    if (lab_redis(session, "DECR " REMAINING, session->policy) < 0) {
        (void)lab_redis(session, "INCR " REMAINING, session->policy);
        return session->failed ? LAB_FAILED : LAB_SOLD_OUT;
    }
    if (session->failed)
        return LAB_FAILED;
    lab_step(session);
    bool is_new = lab_redis(session, "ZADD " PENDING " NX %lld %s", session->policy,
                            (long long)lab_now_ms(session), user) == 1;
    if (session->failed)
        return LAB_FAILED;
    if (!is_new)
        lab_tally(LAB_TALLY_BURNT); /* for the lab: the design knows nothing of it */
    return is_new ? LAB_YES : LAB_ALREADY;
}

static void decr_zset_work(struct lab_session *session, int batch)
{
    static char users[BATCH_MAX][LAB_ID_SIZE];
    size_t count = lab_redis_list(session, users, BATCH_MAX, "ZRANGE " PENDING " 0 %d",
                                  session->policy, batch - 1);
    for (size_t i = 0; i < count && !session->failed; i++) {
        /* Whoever has a row already is taken out, too. */
        bool is_written = lab_insert(session, users[i]);
        if (!is_written && !lab_sql_is_duplicate(session))
            return;
        if (!is_written)
            lab_tally(LAB_TALLY_BURNT);
        lab_step(session);
        (void)lab_redis(session, "ZREM " PENDING " %s", session->policy, users[i]);
    }
}

static void decr_zset_sync(struct lab_session *session)
{
    int64_t rows = lab_row_count(session);
    if (rows >= 0)
        (void)lab_redis(session, "SET " REMAINING " %lld", session->policy,
                        (long long)(session->knobs->total - rows));
}

const struct lab_strategy lab_decr_zset = {
    .name = "decr-zset",
    .commands = "DECR remaining; ZADD pending NX now user; worker: ZRANGE 500, INSERT, ZREM",
    .why_of =
        {
            [LAB_POISON] = "One whose INSERT the database refuses stays at the head of ZRANGE, and "
                           "nobody behind gets a row.",
        },
    .why =
        {
            [LAB_WRONG_BURNT] = "DECR takes a unit before anything looks at the user; ZADD NX then "
                                "finds the second press, and nobody puts the unit back.",
            [LAB_WRONG_UNSOLD] = "A server that dies between DECR and ZADD takes its unit with it.",
            [LAB_WRONG_OVERSOLD] = "The sync job's SET remaining = total - rows forgets those who "
                                   "are pending, and their units are given away again.",
            [LAB_WRONG_OVERTOLD] = "The sync job's SET remaining = total - rows forgets those who "
                                   "are pending, and their units are given away again.",
            [LAB_WRONG_TWICE] = "After the worker's ZREM, ZADD NX no longer knows the user: the "
                                "second press wins again, and the row's unique index refuses it.",
            [LAB_WRONG_NO_YES] = "Who tries again after a lost answer meets DECR first, and hears "
                                 "\"sold out\" although the row is there.",
            [LAB_WRONG_OVERTAKEN] = "DECR below 0 is answered before its INCR: the units that come "
                                    "back go to those who ask later.",
        },
    .needs_redis = true,
    .pause_ms = 1000,
    .batch = BATCH_MAX,
    .prepare = decr_zset_prepare,
    .claim = decr_zset_claim,
    .work = decr_zset_work,
    .sync = decr_zset_sync,
};
