/* update_where.c: UPDATE stock SET remaining = remaining - 1 WHERE remaining > 0; INSERT coupon.
 *
 * One transaction for each claim, all of them on one row. The unique index on the user refuses the
 * second press. It is right; every claim waits for the commit of the one before.
 */
#include "lab/session.h"
#include "lab/strategies/strategies.h"

void lab_stock_prepare(struct lab_session *session)
{
    char policy[24], total[24];
    lab_number_text(policy, session->policy);
    lab_number_text(total, session->knobs->total);
    (void)lab_sql(session, "INSERT INTO stock (policy_id, remaining, version) VALUES ($1, $2, 0)",
                  2, policy, total);
}

static enum lab_answer update_where_in_transaction(struct lab_session *session, const char *user)
{
    if (lab_has_row(session, user))
        return LAB_ALREADY;
    if (lab_stock(session, "UPDATE stock SET remaining = remaining - 1"
                           " WHERE policy_id = $1 AND remaining > 0") != 1)
        return session->sqlstate[0] != '\0' ? LAB_FAILED : LAB_SOLD_OUT;
    lab_step(session);
    if (lab_insert(session, user))
        return LAB_YES;
    return lab_sql_is_duplicate(session) ? LAB_ALREADY : LAB_FAILED;
}

enum lab_answer lab_in_transaction(struct lab_session *session, const char *user,
                                   enum lab_answer (*claim)(struct lab_session *, const char *))
{
    (void)lab_sql(session, "BEGIN", 0);
    enum lab_answer answer = claim(session, user);
    if (answer == LAB_YES) {
        lab_step(session);
        (void)lab_sql(session, "COMMIT", 0);
        if (session->sqlstate[0] != '\0')
            answer = LAB_FAILED;
    } else {
        (void)lab_sql(session, "ROLLBACK", 0);
    }
    return session->failed ? LAB_FAILED : answer;
}

static enum lab_answer update_where_claim(struct lab_session *session, const char *user)
{
    return lab_in_transaction(session, user, update_where_in_transaction);
}

const struct lab_strategy lab_update_where = {
    .name = "update-where",
    .commands = "UPDATE stock … WHERE remaining > 0; INSERT coupon; COMMIT",
    .prepare = lab_stock_prepare,
    .claim = update_where_claim,
};
