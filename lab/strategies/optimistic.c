/* optimistic.c: SELECT remaining, version; UPDATE … WHERE version = $old; INSERT coupon.
 *
 * Whoever finds the version changed tries again, `retries` times. What is left over after that is
 * told to come back, so that in a rush people who asked first go away with nothing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

static enum lab_answer optimistic_in_transaction(struct lab_session *session, const char *user)
{
    char policy[24], version[24];

    if (lab_has_row(session, user))
        return LAB_ALREADY;
    /* Both in one number: they have to be of the same moment. */
    int64_t both = lab_stock(
        session, "SELECT version * 1000000000 + remaining FROM stock WHERE policy_id = $1");
    if (both < 0)
        return LAB_FAILED;
    if (both % 1000000000 == 0)
        return LAB_SOLD_OUT;
    lab_number_text(policy, session->policy);
    lab_number_text(version, both / 1000000000);
    lab_step(session);
    if (lab_sql(session,
                "UPDATE stock SET remaining = remaining - 1, version = version + 1"
                " WHERE policy_id = $1 AND version = $2",
                2, policy, version) != 1)
        return session->sqlstate[0] != '\0' ? LAB_FAILED : LAB_BUSY;
    if (lab_insert(session, user))
        return LAB_YES;
    return lab_sql_is_duplicate(session) ? LAB_ALREADY : LAB_FAILED;
}

enum lab_answer lab_optimistic_claim(struct lab_session *session, const char *user)
{
    enum lab_answer answer = LAB_BUSY;
    for (int i = 0; i <= session->knobs->retries && answer == LAB_BUSY; i++) {
        if (i > 0)
            lab_tally(LAB_TALLY_RETRIES);
        answer = lab_in_transaction(session, user, optimistic_in_transaction);
    }
    return answer;
}

const struct lab_strategy lab_optimistic = {
    .name = "optimistic",
    .commands = "SELECT version; UPDATE stock … WHERE version = old; INSERT coupon; else again",
    .why =
        {
            [LAB_WRONG_SENT_AWAY] = "UPDATE … WHERE version = old finds a newer version each time, "
                                    "and the last retry ends with \"busy\" while there is stock.",
            [LAB_WRONG_UNSOLD] = "Those who were sent away do not come back, and what was left for "
                                 "them stays.",
            [LAB_WRONG_OVERTAKEN] = "Whoever is sent away by the version is passed by those who "
                                    "come later and meet nobody.",
        },
    .prepare = lab_stock_prepare,
    .claim = lab_optimistic_claim,
};
