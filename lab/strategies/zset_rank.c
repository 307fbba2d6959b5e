/* zset_rank.c: ZADD queue now user; ZRANK < total; INSERT coupon in the same request.
 *
 * The clock of the server that was asked decides: a place that is taken later with an earlier time
 * comes before one that was told yes already, and both are winners.
 */
#include <stdio.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define QUEUE "coupon:zrank"

static void zset_rank_prepare(struct lab_session *session)
{
    (void)session;
}

static enum lab_answer zset_rank_claim(struct lab_session *session, const char *user)
{
    bool is_new =
        lab_redis(session, "ZADD %s NX %lld %s", QUEUE, (long long)lab_now_ms(session), user) == 1;
    if (session->failed)
        return LAB_FAILED;
    if (!is_new)
        return LAB_ALREADY;
    lab_step(session);
    int64_t rank = lab_redis(session, "ZRANK %s %s", QUEUE, user);
    if (session->failed)
        return LAB_FAILED;
    if (rank >= session->knobs->total)
        return LAB_SOLD_OUT;
    lab_step(session);
    return lab_insert(session, user) ? LAB_YES : LAB_FAILED;
}

const struct lab_strategy lab_zset_rank = {
    .name = "zset-rank",
    .commands = "ZADD queue NX now user; ZRANK < total; INSERT coupon",
    .flaw = "a late place with an earlier time makes one winner too many; losers hear \"already\"",
    .needs_redis = true,
    .prepare = zset_rank_prepare,
    .claim = zset_rank_claim,
};
