/* balance.c: counts leases and coupons. */
#include "ledger/balance.h"

#include "ledger/rows.h"

static enum status balance_read_i64(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    (void)error;
    *(int64_t *)context = columns[0].number;
    return STATUS_OK;
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
        status =
            SQL_RUN(sql, STATEMENT_lease_balance, balance_read_i64, &balance->leased, error, id);
    if (status == STATUS_OK)
        status =
            SQL_RUN(sql, STATEMENT_coupon_active, balance_read_i64, &balance->active, error, id);
    sql->driver->rollback(sql->session);
    if (status == STATUS_OK) {
        balance->total = policy.total;
        balance->unleased = policy.unleased;
    }
    return status;
}
