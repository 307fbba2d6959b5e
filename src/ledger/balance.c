/* balance.c: counts leases and coupons. */
#include "ledger/balance.h"

#include "ledger/rows.h"

static enum status balance_read_sums(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    struct ledger_balance *balance = context;

    (void)error;
    balance->coupons = columns[0].number;
    balance->active = columns[1].number;
    balance->highest_seq = columns[2].number;
    balance->misplaced = columns[3].number;
    return STATUS_OK;
}

enum status balance_sum(struct sql *sql, int64_t policy_id, struct ledger_balance *balance,
                        struct error *error)
{
    struct sql_value id = sql_i64(policy_id);
    enum status status =
        SQL_RUN(sql, STATEMENT_lease_balance, rows_take_i64, &balance->leased, error, id);

    return status == STATUS_OK
               ? SQL_RUN(sql, STATEMENT_coupon_sums, balance_read_sums, balance, error, id)
               : status;
}

enum status balance_read(struct sql *sql, int64_t policy_id, struct ledger_balance *balance,
                         struct error *error)
{
    struct policy policy;
    struct sql_value id = sql_i64(policy_id);
    enum status status = sql->driver->begin(sql->session, error);

    *balance = (struct ledger_balance){0};
    if (status == STATUS_OK)
        status = rows_policy_by_id(sql, policy_id, ROWS_LOOK, &policy, error);
    if (status == STATUS_OK)
        status = balance_sum(sql, policy_id, balance, error);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_user_over_limit, rows_take_i64, &balance->over_limit, error,
                         id, sql_i64(policy.per_user_limit));
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_coupon_stray, rows_take_i64, &balance->stray, error, id);
    sql->driver->rollback(sql->session);
    if (status == STATUS_OK) {
        balance->total = policy.total;
        balance->unleased = policy.unleased;
        balance->version = policy.version;
        balance->next_seq = policy.next_seq;
    }
    return status;
}
