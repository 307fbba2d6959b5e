/* optimistic_lock.c: SET lock NX PX; SELECT version; UPDATE … WHERE version = old; INSERT; DEL
 * lock.
 *
 * The version column of `optimistic` inside the lock of `redis-lock`. The version makes up for a
 * lock that ran out; the price of both is paid by every claim.
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
    .why =
        {
            [LAB_WRONG_SENT_AWAY] =
                "SET lock NX is not granted in time, and the claim ends with \"busy\".",
            [LAB_WRONG_OVERTAKEN] =
                "The lock is no queue: whoever asks for it at the right moment passes all others.",
        },
    .needs_redis = true,
    .prepare = lab_stock_prepare,
    .claim = optimistic_lock_claim,
};
