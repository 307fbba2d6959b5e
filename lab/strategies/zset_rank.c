/* zset_rank.c: ZADD queue now user; ZRANK < total; INSERT coupon in the same request.
 *
 * The clock of the server that was asked decides: a place that is taken later with an earlier time
 * comes before one that was told yes already, and both are winners.
 */
#include <stdio.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define QUEUE "coupon:%d:zrank"

static void zset_rank_prepare(struct lab_session *session)
{
    (void)session;
}

static enum lab_answer zset_rank_claim(struct lab_session *session, const char *user)
{
    bool is_new = lab_redis(session, "ZADD " QUEUE " NX %lld %s", session->policy,
                            (long long)lab_now_ms(session), user) == 1;
    if (session->failed)
        return LAB_FAILED;
    if (!is_new)
        return LAB_ALREADY;
    lab_step(session);
    int64_t rank = lab_redis(session, "ZRANK " QUEUE " %s", session->policy, user);
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
    .why =
        {
            [LAB_WRONG_OVERSOLD] =
                "ZADD with an earlier time, or the same and a smaller name, comes "
                "before one whose ZRANK was fine: both are winners.",
            [LAB_WRONG_OVERTOLD] =
                "ZADD with an earlier time, or the same and a smaller name, comes "
                "before one whose ZRANK was fine: both are winners.",
            [LAB_WRONG_UNSOLD] =
                "A server that dies between ZADD and INSERT leaves the place taken "
                "by somebody who has no row.",
            [LAB_WRONG_ALREADY] =
                "ZADD NX keeps losers, and those whose server died, in the queue: "
                "when they ask again it says 0, \"already\".",
            [LAB_WRONG_SENT_AWAY] = "An INSERT that the database refuses is an error to the user, "
                                    "whose place stays taken.",
            [LAB_WRONG_OVERTAKEN] = "The score is a server's clock, not the order in which people "
                                    "asked.",
        },
    .needs_redis = true,
    .prepare = zset_rank_prepare,
    .claim = zset_rank_claim,
};
