/* set_list.c: SADD participants; SCARD; RPUSH queue; a worker every 100 ms, LPOP 50, INSERT.
 *
 * Losers stay in the set, so that they hear "already" when they ask again; and of those who come at
 * the same moment all may see a count above the total. What the worker has popped is nowhere else.
 */
#include <stdio.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define PARTICIPANTS "coupon:%d:participants"
#define QUEUE        "coupon:%d:queue"
#define BATCH_MAX    50

static void set_list_prepare(struct lab_session *session)
{
    (void)session;
}

static enum lab_answer set_list_claim(struct lab_session *session, const char *user)
{
    bool is_new = lab_redis(session, "SADD " PARTICIPANTS " %s", session->policy, user) == 1;
    if (session->failed)
        return LAB_FAILED;
    if (!is_new)
        return LAB_ALREADY;
    lab_step(session);
    int64_t count = lab_redis(session, "SCARD " PARTICIPANTS, session->policy);
    if (session->failed)
        return LAB_FAILED;
    if (count > session->knobs->total)
        return LAB_SOLD_OUT;
    lab_step(session);
    (void)lab_redis(session, "RPUSH " QUEUE " %s", session->policy, user);
    return session->failed ? LAB_FAILED : LAB_YES;
}

static void set_list_work(struct lab_session *session, int batch)
{
    static char users[BATCH_MAX][LAB_ID_SIZE];
    size_t count =
        lab_redis_list(session, users, BATCH_MAX, "LPOP " QUEUE " %d", session->policy, batch);
    for (size_t i = 0; i < count && !session->failed; i++) {
        lab_step(session);
        (void)lab_insert(session, users[i]); /* what fails is logged, and gone */
    }
}

const struct lab_strategy lab_set_list = {
    .name = "set-list",
    .commands = "SADD participants; SCARD <= total; RPUSH queue; worker: LPOP 50, INSERT",
    .why_of =
        {
            [LAB_WORKER_KILLED] = "LPOP hands a batch to the worker and to nobody else: what it "
                                  "had not inserted when it died is gone.",
            [LAB_SERVER_KILLED] = "Whoever was in SADD when the server died, and not in RPUSH yet, "
                                  "holds a place, hears \"already\", and gets nothing.",
            [LAB_POISON] = "LPOP has taken the user out, and an INSERT that fails is only logged: "
                           "told yes, and the unit goes to nobody.",
        },
    .why =
        {
            [LAB_WRONG_UNSOLD] = "All SADD before any looks at SCARD: those who come at the same "
                                 "moment push each other out, and the last units go to nobody.",
            [LAB_WRONG_ALREADY] =
                "SADD keeps the losers in the set: when they ask again it says 0, \"already\".",
            [LAB_WRONG_NO_ROW] = "LPOP hands a batch to the worker and to nobody else: what it had "
                                 "not inserted when it died, or could not, is gone.",
            [LAB_WRONG_OVERTAKEN] = "SCARD counts losers, too: whoever was pushed out asked before "
                                    "others who won.",
        },
    .needs_redis = true,
    .pause_ms = 100,
    .batch = BATCH_MAX,
    .prepare = set_list_prepare,
    .claim = set_list_claim,
    .work = set_list_work,
};
