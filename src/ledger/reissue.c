/* reissue.c: a coupon is cancelled and another one takes its place, in one transaction. */
#include "ledger/reissue.h"

#include "base/fault.h"
#include "ledger/inside.h"
#include "ledger/outbox.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

/* A coupon of the user's that the reissue's own request has made: an earlier reissue. */
struct reissue_search {
    const struct request_id *request_id;
    struct coupon *coupon;
    bool is_found;
};

static enum status reissue_read_coupon(void *context, const struct sql_value *columns,
                                       struct error *error)
{
    struct reissue_search *search = context;
    struct coupon coupon;
    enum status status = rows_read_coupon(&coupon, columns, error);

    if (status == STATUS_OK &&
        memcmp(&coupon.claim.request_id, search->request_id, sizeof(*search->request_id)) == 0) {
        *search->coupon = coupon;
        search->is_found = true;
    }
    return status;
}

static enum status reissue_find(struct sql *sql, const struct ledger_reissue *reissue,
                                const struct id *user, struct coupon *coupon, bool *is_found,
                                struct error *error)
{
    struct reissue_search search = {.request_id = &reissue->request_id, .coupon = coupon};
    enum status status =
        SQL_RUN(sql, STATEMENT_coupon_list_of_claimant, reissue_read_coupon, &search, error,
                sql_i64(reissue->policy_id), sql_text(id_span(user)), sql_i64(INT32_MAX));

    *is_found = search.is_found;
    return status;
}

/* Its user may have it back: neither used nor over, and nobody has blocked them. */
static enum status reissue_check(struct sql *sql, const struct coupon *old, int64_t now_ms,
                                 struct error *error)
{
    enum coupon_state state = coupon_state_at(old->state, old->expires_at_ms, now_ms);
    bool is_blocked = false;

    if (state != COUPON_ISSUED)
        return error_set(error, STATUS_CONFLICT, "the coupon is %s", coupon_state_name(state));
    enum status status = SQL_RUN(sql, STATEMENT_blocked_has, rows_note_any, &is_blocked, error,
                                 sql_text(id_span(&old->claim.user)));
    return status == STATUS_OK && is_blocked
               ? error_set(error, STATUS_CONFLICT, "the user is blocked")
               : status;
}

static enum status reissue_take_old(struct sql *sql, const struct ledger_reissue *reissue,
                                    struct coupon *old, struct error *error)
{
    old->state = COUPON_CANCELLED;
    old->cancelled_at_ms = reissue->now_ms;
    outbox_note_coupon(sql->outbox, old, reissue->now_ms, reissue->traceparent);
    return SQL_WRITE(sql, STATEMENT_coupon_cancel, error, sql_i64(old->claim.policy_id),
                     sql_i64(old->claim.seq), sql_i64(reissue->now_ms));
}

/* The unit of the old one: the stock stays as it is. */
static enum status reissue_give_new(struct sql *sql, struct ledger_reissue *reissue,
                                    struct policy *policy, struct error *error)
{
    struct coupon *coupon = &reissue->coupon;
    int64_t ends_at_ms = policy_coupon_ends_ms(policy, reissue->now_ms);

    *coupon = (struct coupon){.claim = {.policy_id = policy->id,
                                        .seq = policy->next_seq,
                                        .requested_at_ms = reissue->now_ms,
                                        .request_id = reissue->request_id,
                                        .nth = reissue->old.claim.nth,
                                        .user = reissue->old.claim.user},
                              .state = COUPON_ISSUED,
                              .issued_at_ms = reissue->now_ms,
                              .expires_at_ms = ends_at_ms};
    struct coupon_row row = {
        .claim = &coupon->claim,
        .state = COUPON_ISSUED,
        .issued_at_ms = reissue->now_ms,
        .expires_at_ms = policy->coupon_valid_days != 0 ? ends_at_ms : 0,
        .ends_at_ms = ends_at_ms,
    };
    enum status status = sql->driver->insert_coupons(sql->session, &row, 1, error);
    if (status == STATUS_CONFLICT || (status == STATUS_OK && row.conflicts))
        return error_set(error, STATUS_BUSY, "the user's place is being taken");
    policy->next_seq++;
    if (status == STATUS_OK)
        status = transaction_save_policy(sql, policy, error);
    if (status == STATUS_OK)
        outbox_note_row(sql->outbox, &row);
    return status;
}

struct reissue_call {
    struct ledger_reissue *reissue;
    bool is_shared;
};

static enum status transaction_reissue(struct sql *sql, void *argument, struct error *error)
{
    const struct reissue_call *call = argument;
    struct ledger_reissue *reissue = call->reissue;
    struct policy policy;
    bool is_done = false;
    enum status status =
        rows_coupon_by_seq(sql, reissue->policy_id, reissue->seq, ROWS_LOCK, &reissue->old, error);

    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, reissue->policy_id, ROWS_LOCK, &policy, error);
    if (status == STATUS_OK)
        status =
            reissue_find(sql, reissue, &reissue->old.claim.user, &reissue->coupon, &is_done, error);
    if (status != STATUS_OK || is_done)
        return status;
    status = reissue_check(sql, &reissue->old, reissue->now_ms, error);
    if (status == STATUS_OK)
        status = reissue_take_old(sql, reissue, &reissue->old, error);
    FAULT_POINT("ledger.while_reissuing");
    if (status == STATUS_OK)
        status = reissue_give_new(sql, reissue, &policy, error);
    if (status == STATUS_OK && call->is_shared)
        status = entering_mark(sql, policy.id, reissue->old.claim.seq, error);
    if (status == STATUS_OK && call->is_shared)
        status = entering_mark(sql, policy.id, reissue->coupon.claim.seq, error);
    return status;
}

enum status ledger_coupon_reissue(struct ledger *ledger, struct ledger_reissue *reissue,
                                  struct error *error)
{
    struct reissue_call call = {.reissue = reissue, .is_shared = ledger_is_shared(ledger)};

    return ledger_write(ledger, transaction_reissue, &call, error);
}

enum status ledger_coupon_reissued(struct ledger *ledger, struct ledger_reissue *reissue,
                                   bool *is_done, struct error *error)
{
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    *is_done = false;
    if (status != STATUS_OK)
        return status;
    status =
        reissue_find(&sql, reissue, &reissue->old.claim.user, &reissue->coupon, is_done, error);
    return ledger_read_end(ledger, sql, status, error);
}
