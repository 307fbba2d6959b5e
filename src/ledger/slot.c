/* slot.c: the user's coupons of the policy, read to find a free place among them. */
#include "ledger/slot.h"

#include "ledger/rows.h"

struct slot_user {
    const struct claim *claim;
    int64_t seqs[PER_USER_LIMIT_MAX + 1]; /* of the coupon in each place; 0: it is free */
    int64_t same_seq;                     /* of the coupon that the same request made; 0: none */
};

static enum status slot_read_coupon(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    struct slot_user *user = context;
    struct coupon coupon;

    (void)error;
    rows_read_coupon(columns, &coupon);
    if (coupon.state == COUPON_VOID || coupon.state == COUPON_MERGED)
        return STATUS_OK;
    if (memcmp(&coupon.claim.request_id, &user->claim->request_id, sizeof(struct request_id)) == 0)
        user->same_seq = coupon.claim.seq;
    if (coupon_state_is_active(coupon.state) && coupon.claim.nth >= 1 &&
        coupon.claim.nth <= PER_USER_LIMIT_MAX)
        user->seqs[coupon.claim.nth] = coupon.claim.seq;
    return STATUS_OK;
}

enum status slot_choose(struct sql *sql, const struct claim *claim, struct slot_choice *choice,
                        struct error *error)
{
    struct slot_user user = {.claim = claim};
    struct policy policy;
    int32_t nth = 1;

    *choice = (struct slot_choice){0};
    enum status status = rows_policy_by_id(sql, claim->policy_id, ROWS_LOOK, &policy, error);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_coupon_list_of_claimant, slot_read_coupon, &user, error,
                         sql_i64(claim->policy_id), sql_text(user_id_span(&claim->user)),
                         sql_i64(INT32_MAX));
    if (status != STATUS_OK || user.seqs[claim->nth] == 0)
        return status;
    while (nth <= policy.per_user_limit && user.seqs[nth] != 0)
        nth++;
    if (user.same_seq == 0 && nth <= policy.per_user_limit) {
        choice->nth = nth;
    } else {
        choice->is_other_wish = user.same_seq == 0;
        choice->merged_into_seq = user.same_seq != 0 ? user.same_seq : user.seqs[claim->nth];
    }
    return STATUS_OK;
}
