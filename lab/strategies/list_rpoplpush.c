/* list_rpoplpush.c: LPOP stock; LPUSH queue; worker: RPOPLPUSH queue processing, INSERT, LREM.
 *
 * The stock is a list with one entry for each coupon. What stands in the second list when a worker
 * dies is looked at by nobody: told yes, and no row. Nothing knows who was there before.
 */
#include <stdio.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define STOCK      "coupon:stock"
#define QUEUE      "coupon:waiting"
#define PROCESSING "coupon:processing"
#define BATCH      100

static void list_rpoplpush_prepare(struct lab_session *session)
{
    for (int64_t i = 0; i < session->knobs->total && !session->failed; i++)
        (void)lab_redis(session, "RPUSH %s %lld", STOCK, (long long)i);
}

static enum lab_answer list_rpoplpush_claim(struct lab_session *session, const char *user)
{
    char unit[24];
    if (lab_has_row(session, user))
        return LAB_ALREADY;
    if (!lab_redis_text(session, unit, sizeof(unit), "LPOP %s", STOCK))
        return session->failed ? LAB_FAILED : LAB_SOLD_OUT;
    lab_step(session);
    (void)lab_redis(session, "LPUSH %s %s", QUEUE, user);
    return session->failed ? LAB_FAILED : LAB_YES;
}

static void list_rpoplpush_work(struct lab_session *session, int batch)
{
    char user[LAB_ID_SIZE];
    for (int i = 0; i < batch; i++) {
        if (!lab_redis_text(session, user, sizeof(user), "RPOPLPUSH %s %s", QUEUE, PROCESSING))
            return;
        lab_step(session);
        (void)lab_insert(session, user);
        (void)lab_redis(session, "LREM %s 1 %s", PROCESSING, user);
    }
}

const struct lab_strategy lab_list_rpoplpush = {
    .name = "list-rpoplpush",
    .commands = "LPOP stock; LPUSH queue user; worker: RPOPLPUSH queue processing, INSERT, LREM",
    .flaw =
        "what a dead worker had taken is told yes and never gets a row; two presses take two units",
    .needs_redis = true,
    .pause_ms = 100,
    .batch = BATCH,
    .prepare = list_rpoplpush_prepare,
    .claim = list_rpoplpush_claim,
    .work = list_rpoplpush_work,
};
