/* hash_zset_nx.c: HGET stock; ZADD queue NX now user; EXPIRE of three minutes; ZRANK < stock.
 *
 * The rank is looked at after the place was taken, and a smaller time that comes later pushes those
 * behind it back: somebody who was told yes may no longer be among the first. When the keys have
 * expired, the queue begins anew.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define COUPON    "coupon:%d:info"
#define QUEUE     "coupon:%d:rank"
#define BATCH_MAX 100

/* The stock as the cache has it; from the database when the cache has forgotten it. */
static int64_t hash_zset_nx_stock(struct lab_session *session)
{
    char text[24];
    if (lab_redis_text(session, text, sizeof(text), "HGET " COUPON " stock", session->policy))
        return atoll(text);
    int64_t stock = lab_stock(session, "SELECT remaining FROM stock WHERE policy_id = $1");
    (void)lab_redis(session, "HSET " COUPON " stock %lld", session->policy, (long long)stock);
    (void)lab_redis(session, "EXPIRE " COUPON " %d", session->policy, session->knobs->ttl_s);
    return stock;
}

static enum lab_answer hash_zset_nx_claim(struct lab_session *session, const char *user)
{
    int64_t stock = hash_zset_nx_stock(session);
    if (session->failed)
        return LAB_FAILED;
    if (stock <= 0)
        return LAB_SOLD_OUT;
    bool is_new = lab_redis(session, "ZADD " QUEUE " NX %lld %s", session->policy,
                            (long long)lab_now_ms(session), user) == 1;
    if (session->failed)
        return LAB_FAILED;
    if (!is_new)
        return LAB_ALREADY;
    lab_step(session);
    (void)lab_redis(session, "EXPIRE " QUEUE " %d", session->policy, session->knobs->ttl_s);
    int64_t rank = lab_redis(session, "ZRANK " QUEUE " %s", session->policy, user);
    if (session->failed)
        return LAB_FAILED;
    return rank < stock ? LAB_YES : LAB_SOLD_OUT;
}

/* The first ones of the queue, as many as there are coupons, get their rows. */
static void hash_zset_nx_work(struct lab_session *session, int batch)
{
    static char users[BATCH_MAX][LAB_ID_SIZE];
    int64_t rows = lab_row_count(session);
    int64_t last = rows + batch < session->knobs->total ? rows + batch : session->knobs->total;
    if (rows < 0 || last <= rows)
        return;
    size_t count = lab_redis_list(session, users, BATCH_MAX, "ZRANGE " QUEUE " %lld %lld",
                                  session->policy, (long long)rows, (long long)last - 1);
    for (size_t i = 0; i < count && !session->failed; i++) {
        lab_step(session);
        (void)lab_insert(session, users[i]);
    }
}

const struct lab_strategy lab_hash_zset_nx = {
    .name = "hash-zset-nx",
    .commands =
        "HGET stock; ZADD queue NX now user; EXPIRE 180; ZRANK < stock; worker: ZRANGE, INSERT",
    .why_of =
        {
            [LAB_POISON] = "The INSERT that fails is tried with every ZRANGE; the user was told "
                           "yes, and the place is nobody else's.",
        },
    .why =
        {
            [LAB_WRONG_ALREADY] = "ZADD NX keeps the losers in the queue: when they ask again it "
                                  "says 0, \"already\".",
            [LAB_WRONG_OVERTOLD] = "A place with an earlier time pushes back those whose ZRANK was "
                                   "looked at before, or EXPIRE has emptied the queue.",
            [LAB_WRONG_NO_ROW] = "Whoever was told yes and is pushed behind the last rank, or "
                                 "comes after EXPIRE, is not in the worker's ZRANGE.",
            [LAB_WRONG_NO_YES] = "The worker's ZRANGE has somebody among the first who was told "
                                 "no when ZRANK was looked at.",
            [LAB_WRONG_TWICE] = "After EXPIRE nobody knows who has won: the same user wins again.",
            [LAB_WRONG_UNSOLD] = "The worker goes by how many rows there are: who moves to a rank "
                                 "before that is passed over.",
            [LAB_WRONG_OVERTAKEN] = "The score is a server's clock, not the order in which people "
                                    "asked.",
        },
    .needs_redis = true,
    .pause_ms = 100,
    .batch = BATCH_MAX,
    .prepare = lab_stock_prepare,
    .claim = hash_zset_nx_claim,
    .work = hash_zset_nx_work,
};
