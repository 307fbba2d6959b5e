/* list_rpoplpush.c: LPOP stock; LPUSH queue; worker: RPOPLPUSH queue processing, INSERT, LREM.
 *
 * The stock is a list with one entry for each coupon. What stands in the second list when a worker
 * dies is looked at by nobody: told yes, and no row. Nothing knows who was there before.
 */
#include <stdio.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define STOCK      "coupon:%d:stock"
#define QUEUE      "coupon:%d:waiting"
#define PROCESSING "coupon:%d:processing"
#define BATCH      100

static void list_rpoplpush_prepare(struct lab_session *session)
{
    for (int64_t i = 0; i < session->knobs->total && !session->failed; i++)
        (void)lab_redis(session, "RPUSH " STOCK " %lld", session->policy, (long long)i);
}

static enum lab_answer list_rpoplpush_claim(struct lab_session *session, const char *user)
{
    char unit[24];
    if (lab_has_row(session, user))
        return LAB_ALREADY;
    if (!lab_redis_text(session, unit, sizeof(unit), "LPOP " STOCK, session->policy))
        return session->failed ? LAB_FAILED : LAB_SOLD_OUT;
    lab_step(session);
    (void)lab_redis(session, "LPUSH " QUEUE " %s", session->policy, user);
    return session->failed ? LAB_FAILED : LAB_YES;
}

static void list_rpoplpush_work(struct lab_session *session, int batch)
{
    char user[LAB_ID_SIZE];
    for (int i = 0; i < batch; i++) {
        if (!lab_redis_text(session, user, sizeof(user), "RPOPLPUSH " QUEUE " " PROCESSING,
                            session->policy, session->policy))
            return;
        lab_step(session);
        if (!lab_insert(session, user) && lab_sql_is_duplicate(session))
            lab_tally(LAB_TALLY_BURNT); /* for the lab: the design knows nothing of it */
        (void)lab_redis(session, "LREM " PROCESSING " 1 %s", session->policy, user);
    }
}

const struct lab_strategy lab_list_rpoplpush = {
    .name = "list-rpoplpush",
    .commands = "LPOP stock; LPUSH queue user; worker: RPOPLPUSH queue processing, INSERT, LREM",
    .why_of =
        {
            [LAB_WORKER_KILLED] = "RPOPLPUSH leaves what a worker had when it died in "
                                  "`processing`, where nobody looks.",
            [LAB_POISON] =
                "LREM takes out whom the INSERT refused: told yes, and the unit goes to nobody.",
        },
    .why =
        {
            [LAB_WRONG_BURNT] = "LPOP stock knows no users: two presses take two units, and the "
                                "row's unique index refuses the second.",
            [LAB_WRONG_TWICE] = "LPOP stock knows no users: until the row is there, the second "
                                "press wins as well.",
            [LAB_WRONG_NO_ROW] = "RPOPLPUSH leaves what a worker had when it died in `processing`, "
                                 "where nobody looks; an INSERT that fails is taken out as well.",
            [LAB_WRONG_NO_YES] = "Who tries again after a lost answer meets LPOP before the row is "
                                 "there, and hears \"sold out\".",
            [LAB_WRONG_UNSOLD] =
                "A server that dies between LPOP and LPUSH takes its unit with it; "
                "so does a worker between RPOPLPUSH and INSERT.",
        },
    .needs_redis = true,
    .pause_ms = 100,
    .batch = BATCH,
    .prepare = list_rpoplpush_prepare,
    .claim = list_rpoplpush_claim,
    .work = list_rpoplpush_work,
};
