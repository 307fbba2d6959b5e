/* hash_zset_nx.c: HGET stock; ZADD queue NX now user; ZRANK < stock; EXPIRE of three minutes.
 *
 * The rank is looked at after the place was taken, and a smaller time that comes later pushes those
 * behind it back: somebody who was told yes may no longer be among the first.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define COUPON    "coupon:info"
#define QUEUE     "coupon:rank"
#define TTL_S     180
#define BATCH_MAX 100

static void hash_zset_nx_prepare(struct lab_session *session)
{
    (void)lab_redis(session, "HSET %s stock %lld", COUPON, (long long)session->knobs->total);
    (void)lab_redis(session, "EXPIRE %s %d", COUPON, TTL_S);
}

static enum lab_answer hash_zset_nx_claim(struct lab_session *session, const char *user)
{
    char stock[24] = "0";
    (void)lab_redis_text(session, stock, sizeof(stock), "HGET %s stock", COUPON);
    if (session->failed)
        return LAB_FAILED;
    if (atoll(stock) <= 0)
        return LAB_SOLD_OUT;
    bool is_new =
        lab_redis(session, "ZADD %s NX %lld %s", QUEUE, (long long)lab_now_ms(session), user) == 1;
    if (session->failed)
        return LAB_FAILED;
    if (!is_new)
        return LAB_ALREADY;
    lab_step(session);
    (void)lab_redis(session, "EXPIRE %s %d", QUEUE, TTL_S);
    int64_t rank = lab_redis(session, "ZRANK %s %s", QUEUE, user);
    if (session->failed)
        return LAB_FAILED;
    return rank < session->knobs->total ? LAB_YES : LAB_SOLD_OUT;
}

/* The first ones of the queue, as many as there are coupons, get their rows. */
static void hash_zset_nx_work(struct lab_session *session, int batch)
{
    static char users[BATCH_MAX][LAB_ID_SIZE];
    int64_t rows = lab_sql(session, "SELECT count(*) FROM coupon", 0);
    int64_t last = rows + batch < session->knobs->total ? rows + batch : session->knobs->total;
    if (rows < 0 || last <= rows)
        return;
    size_t count = lab_redis_list(session, users, BATCH_MAX, "ZRANGE %s %lld %lld", QUEUE,
                                  (long long)rows, (long long)last - 1);
    for (size_t i = 0; i < count && !session->failed; i++) {
        lab_step(session);
        (void)lab_insert(session, users[i]);
    }
}

const struct lab_strategy lab_hash_zset_nx = {
    .name = "hash-zset-nx",
    .commands =
        "HGET stock; ZADD queue NX now user; EXPIRE 180; ZRANK < stock; worker: ZRANGE, INSERT",
    .flaw =
        "ranks move after they were told, and the same user comes again once the keys have expired",
    .needs_redis = true,
    .pause_ms = 100,
    .batch = BATCH_MAX,
    .prepare = hash_zset_nx_prepare,
    .claim = hash_zset_nx_claim,
    .work = hash_zset_nx_work,
};
