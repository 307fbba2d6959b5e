/* visit.c: reads all that a gate is built from, in one snapshot. */
#include "ledger/inside.h"
#include "ledger/ledger.h"
#include "ledger/rows.h"

static enum status ledger_visit_row(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct policy policy;
    rows_read_policy(columns, &policy);
    return visitor->policy(visitor->context, &policy, error);
}

static enum status ledger_visit_claim(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct claim claim = {
        .policy_id = columns[0].number,
        .seq = columns[1].number,
        .user = rows_read_user(&columns[2]),
        .nth = (int32_t)columns[3].number,
        .request_id = rows_read_request_id(&columns[5]),
        .requested_at_ms = columns[6].number,
    };
    return visitor->claim(visitor->context, &claim, rows_read_state(&columns[4]), error);
}

static enum status ledger_visit_key(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct key_binding binding = {
        .policy_id = columns[0].number,
        .request_id = rows_read_request_id(&columns[1]),
        .seq = columns[2].number,
    };
    return visitor->key(visitor->context, &binding, error);
}

static enum status ledger_visit_lease(void *context, const struct sql_value *columns,
                                      struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct lease lease = {
        .id = columns[0].number,
        .policy_id = columns[1].number,
        .first_seq = columns[2].number,
        .count = columns[3].number,
        .open = true,
    };
    return visitor->lease(visitor->context, &lease, columns[4].number, columns[5].number, error);
}

static enum status ledger_visit_user(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct user_id user = rows_read_user(&columns[0]);
    return visitor->blocked(visitor->context, &user, error);
}

enum status ledger_visit(struct ledger *ledger, const struct ledger_visitor *visitor,
                         struct error *error)
{
    struct ledger_visitor copy = *visitor;
    struct sql sql = ledger_reader_take(ledger);
    enum status status = sql.driver->begin(sql.session, error);

    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_policy_list, ledger_visit_row, &copy, error, sql_i64(0),
                         sql_i64(INT64_MAX));
    if (status == STATUS_OK)
        status =
            sql_run(&sql, STATEMENT_coupon_scan, NULL, 0, ledger_visit_claim, &copy, NULL, error);
    if (status == STATUS_OK)
        status = sql_run(&sql, STATEMENT_key_scan, NULL, 0, ledger_visit_key, &copy, NULL, error);
    if (status == STATUS_OK)
        status = sql_run(&sql, STATEMENT_lease_list_open, NULL, 0, ledger_visit_lease, &copy, NULL,
                         error);
    if (status == STATUS_OK)
        status =
            sql_run(&sql, STATEMENT_blocked_scan, NULL, 0, ledger_visit_user, &copy, NULL, error);
    sql.driver->rollback(sql.session);
    ledger_reader_return(ledger, sql);
    return status;
}

static enum status ledger_visit_own_key(void *context, const struct sql_value *columns,
                                        struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct key_binding binding = {
        .policy_id = columns[0].number,
        .request_id = rows_read_request_id(&columns[1]),
        .seq = columns[2].number,
        .user = rows_read_user(&columns[3]),
        .nth = (int32_t)columns[4].number,
    };
    return visitor->key(visitor->context, &binding, error);
}

enum status ledger_visit_policy(struct ledger *ledger, int64_t policy_id,
                                const struct ledger_visitor *visitor, struct error *error)
{
    struct ledger_visitor copy = *visitor;
    struct sql sql = ledger_reader_take(ledger);
    enum status status = sql.driver->begin(sql.session, error);

    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_coupon_scan_of_policy, ledger_visit_claim, &copy, error,
                         sql_i64(policy_id));
    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_key_scan_of_policy, ledger_visit_own_key, &copy, error,
                         sql_i64(policy_id));
    sql.driver->rollback(sql.session);
    ledger_reader_return(ledger, sql);
    return status;
}

enum status ledger_visit_blocked(struct ledger *ledger, const struct ledger_visitor *visitor,
                                 struct error *error)
{
    struct ledger_visitor copy = *visitor;
    struct sql sql = ledger_reader_take(ledger);
    enum status status =
        sql_run(&sql, STATEMENT_blocked_scan, NULL, 0, ledger_visit_user, &copy, NULL, error);

    ledger_reader_return(ledger, sql);
    return status;
}
