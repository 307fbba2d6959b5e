/* optimistic_lock.c: the version column of `optimistic` inside the lock of `redis-lock`.
 *
 * The version makes up for a lock that ran out; the price of both is paid by every claim.
 */
#include "lab/session.h"
#include "lab/strategies/strategies.h"

static enum lab_answer optimistic_lock_claim(struct lab_session *session, const char *user)
{
    return lab_in_lock(session, user, lab_optimistic_claim);
}

const struct lab_strategy lab_optimistic_lock = {
    .name = "optimistic+lock",
    .commands = "SET lock NX PX; SELECT version; UPDATE … WHERE version = old; INSERT; DEL lock",
    .flaw = "whoever waits too long for the lock goes away with nothing",
    .needs_redis = true,
    .prepare = lab_stock_prepare,
    .claim = optimistic_lock_claim,
};
