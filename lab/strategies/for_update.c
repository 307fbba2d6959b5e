/* for_update.c: SELECT remaining FOR UPDATE; UPDATE stock; INSERT coupon.
 *
 * The row lock is taken first and held to the commit: claims stand in line in the database.
 */
#include "lab/session.h"
#include "lab/strategies/strategies.h"

static enum lab_answer for_update_in_transaction(struct lab_session *session, const char *user)
{
    int64_t remaining =
        lab_stock(session, "SELECT remaining FROM stock WHERE policy_id = $1 FOR UPDATE");
    if (remaining < 0)
        return LAB_FAILED;
    if (lab_has_row(session, user))
        return LAB_ALREADY;
    if (remaining == 0)
        return LAB_SOLD_OUT;
    lab_step(session);
    if (lab_stock(session, "UPDATE stock SET remaining = remaining - 1 WHERE policy_id = $1") != 1)
        return LAB_FAILED;
    return lab_insert(session, user) ? LAB_YES : LAB_FAILED;
}

static enum lab_answer for_update_claim(struct lab_session *session, const char *user)
{
    return lab_in_transaction(session, user, for_update_in_transaction);
}

const struct lab_strategy lab_for_update = {
    .name = "for-update",
    .commands = "SELECT remaining FOR UPDATE; UPDATE stock; INSERT coupon; COMMIT",
    .prepare = lab_stock_prepare,
    .claim = for_update_claim,
};
