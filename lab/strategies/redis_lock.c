/* redis_lock.c: SET lock NX PX; SELECT remaining; UPDATE stock; INSERT coupon; DEL lock.
 *
 * The lock is waited for by asking again, and is lost when its time is over, whoever holds it: two
 * are inside then. The database's own check of the stock is left out, as the lock is there for
 * that.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define LOCK     "lock:coupon:%d"
#define AGAIN_US 5000

/* Waits for the lock; false: not in time. `holder` gets what tells that it is still one's own. */
static bool redis_lock_take(struct lab_session *session, char holder[24])
{
    int64_t deadline_ms = clock_monotonic_ms() + session->knobs->lock_wait_ms;
    lab_number_text(holder, (int64_t)random_below(INT64_MAX));
    for (;;) {
        if (lab_redis(session, "SET " LOCK " %s NX PX %d", session->policy, holder,
                      session->knobs->lock_lease_ms) == 1)
            return true;
        if (session->failed)
            return false;
        if (clock_monotonic_ms() >= deadline_ms) {
            lab_tally(LAB_TALLY_LOCK_TIMEOUT);
            return false;
        }
        usleep((useconds_t)(AGAIN_US + random_below(AGAIN_US)));
    }
}

static void redis_lock_give(struct lab_session *session, const char *holder)
{
    char found[24];
    if (lab_redis_text(session, found, sizeof(found), "GET " LOCK, session->policy) &&
        strcmp(found, holder) == 0)
        (void)lab_redis(session, "DEL " LOCK, session->policy);
}

/* Each statement commits by itself, as it does with a lock instead of a transaction. */
static enum lab_answer redis_lock_locked(struct lab_session *session, const char *user)
{
    char policy[24], remaining[24];

    if (lab_has_row(session, user))
        return LAB_ALREADY;
    int64_t found = lab_stock(session, "SELECT remaining FROM stock WHERE policy_id = $1");
    if (found < 0)
        return LAB_FAILED;
    if (found == 0)
        return LAB_SOLD_OUT;
    lab_step(session);
    lab_number_text(policy, session->policy);
    lab_number_text(remaining, found - 1);
    if (lab_sql(session, "UPDATE stock SET remaining = $2 WHERE policy_id = $1", 2, policy,
                remaining) != 1)
        return LAB_FAILED;
    lab_step(session);
    return lab_insert(session, user) ? LAB_YES : LAB_FAILED;
}

enum lab_answer lab_in_lock(struct lab_session *session, const char *user,
                            enum lab_answer (*claim)(struct lab_session *, const char *))
{
    char holder[24];
    if (!redis_lock_take(session, holder))
        return session->failed ? LAB_FAILED : LAB_BUSY;
    enum lab_answer answer = claim(session, user);
    redis_lock_give(session, holder);
    return answer;
}

static enum lab_answer redis_lock_claim(struct lab_session *session, const char *user)
{
    return lab_in_lock(session, user, redis_lock_locked);
}

const struct lab_strategy lab_redis_lock = {
    .name = "redis-lock",
    .commands = "SET lock NX PX; SELECT remaining; UPDATE stock; INSERT coupon; DEL lock",
    .why =
        {
            [LAB_WRONG_OVERSOLD] = "The lock's PX runs out between SELECT and UPDATE: two are "
                                   "inside, and both write down the same remaining - 1.",
            [LAB_WRONG_OVERTOLD] = "The lock's PX runs out between SELECT and UPDATE: two are "
                                   "inside, and both write down the same remaining - 1.",
            [LAB_WRONG_UNSOLD] = "A server that dies between UPDATE and INSERT takes a unit with "
                                 "it: a lock is no transaction.",
            [LAB_WRONG_SENT_AWAY] =
                "SET lock NX is not granted in time, and the claim ends with \"busy\".",
            [LAB_WRONG_OVERTAKEN] =
                "The lock is no queue: whoever asks for it at the right moment passes all others.",
        },
    .needs_redis = true,
    .prepare = lab_stock_prepare,
    .claim = redis_lock_claim,
};
