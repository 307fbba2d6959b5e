/* visit.c: reads all that a gate is built from, in one snapshot. */
#include <stdlib.h>

#include "ledger/inside.h"
#include "ledger/ledger.h"
#include "ledger/rows.h"

static enum status ledger_visit_row(void *context, const struct sql_value *columns,
                                    struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct policy policy;
    enum status status = rows_read_listed_policy(&policy, columns, error);

    return status == STATUS_OK ? visitor->policy(visitor->context, &policy, error) : status;
}

/* --- claims --- */

/* Those that were refused are few: they are read first, and told where their seqs belong. */
struct visit_claims {
    const struct ledger_visitor *visitor;
    struct rows_list refused; /* struct claim */
    size_t refused_at;        /* the first that is not told yet */
};

static enum status visit_read_claim(void *claim, const struct sql_value *columns,
                                    struct error *error)
{
    *(struct claim *)claim = (struct claim){
        .policy_id = columns[0].number,
        .seq = columns[1].number,
        .user = rows_read_user(&columns[2]),
        .nth = (int32_t)columns[3].number,
        .request_id = rows_read_request_id(&columns[5]),
        .requested_at_ms = columns[6].number,
    };
    return STATUS_OK;
}

/* Tells the refused claims in front of `next`; NULL: all that are left. */
static enum status visit_tell_refused(struct visit_claims *claims, const struct claim *next,
                                      struct error *error)
{
    enum status status = STATUS_OK;

    while (claims->refused_at < claims->refused.count && status == STATUS_OK) {
        const struct claim *claim =
            (const struct claim *)(const void *)claims->refused.rows + claims->refused_at;
        if (next != NULL && (claim->policy_id > next->policy_id ||
                             (claim->policy_id == next->policy_id && claim->seq > next->seq)))
            break;
        claims->refused_at++;
        status = claims->visitor->claim(claims->visitor->context, claim, COUPON_VOID, error);
    }
    return status;
}

static enum status visit_claim(void *context, const struct sql_value *columns, struct error *error)
{
    struct visit_claims *claims = context;
    struct claim claim;
    enum status status = visit_read_claim(&claim, columns, error);

    if (status == STATUS_OK)
        status = visit_tell_refused(claims, &claim, error);
    return status == STATUS_OK ? claims->visitor->claim(claims->visitor->context, &claim,
                                                        rows_read_state(&columns[4]), error)
                               : status;
}

/* Of one policy, or with a NULL id of all. */
static enum status visit_claims(struct sql *sql, const struct ledger_visitor *visitor,
                                const struct sql_value *policy_id, struct error *error)
{
    struct visit_claims claims = {
        .visitor = visitor,
        .refused = {.read = visit_read_claim, .row_size = sizeof(struct claim)}};
    enum status status =
        policy_id != NULL
            ? SQL_RUN(sql, STATEMENT_refused_scan_of_policy, rows_gather, &claims.refused, error,
                      *policy_id)
            : SQL_RUN(sql, STATEMENT_refused_scan, rows_gather, &claims.refused, error);

    if (status == STATUS_OK)
        status = policy_id != NULL
                     ? SQL_RUN(sql, STATEMENT_coupon_scan_of_policy, visit_claim, &claims, error,
                               *policy_id)
                     : SQL_RUN(sql, STATEMENT_coupon_scan, visit_claim, &claims, error);
    if (status == STATUS_OK)
        status = visit_tell_refused(&claims, NULL, error);
    free(claims.refused.rows);
    return status;
}

/* --- the rest --- */

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
    struct lease lease;
    enum status status = rows_read_lease(&lease, columns, error);

    if (status == STATUS_FAILED) {
        struct policy damaged = rows_damaged_policy(lease.policy_id);
        return visitor->policy(visitor->context, &damaged, error);
    }
    return status == STATUS_OK ? visitor->lease(visitor->context, &lease, columns[5].number,
                                                columns[6].number, error)
                               : status;
}

static enum status ledger_visit_user(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct id user = rows_read_user(&columns[0]);
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
        status = visit_claims(&sql, visitor, NULL, error);
    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_key_scan, ledger_visit_key, &copy, error);
    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_lease_list_open, ledger_visit_lease, &copy, error);
    if (status == STATUS_OK)
        status = SQL_RUN(&sql, STATEMENT_blocked_scan, ledger_visit_user, &copy, error);
    sql.driver->rollback(sql.session);
    ledger_reader_return(ledger, sql);
    return status;
}

static enum status ledger_visit_own_key(void *context, const struct sql_value *columns,
                                        struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct key_binding binding = rows_read_key(columns);

    return visitor->key(visitor->context, &binding, error);
}

enum status ledger_visit_policy(struct ledger *ledger, int64_t policy_id,
                                const struct ledger_visitor *visitor, struct error *error)
{
    struct ledger_visitor copy = *visitor;
    struct sql_value id = sql_i64(policy_id);
    struct sql sql = ledger_reader_take(ledger);
    enum status status = sql.driver->begin(sql.session, error);

    if (status == STATUS_OK)
        status = visit_claims(&sql, visitor, &id, error);
    if (status == STATUS_OK)
        status =
            SQL_RUN(&sql, STATEMENT_key_scan_of_policy, ledger_visit_own_key, &copy, error, id);
    sql.driver->rollback(sql.session);
    ledger_reader_return(ledger, sql);
    return status;
}

enum status ledger_visit_blocked(struct ledger *ledger, const struct ledger_visitor *visitor,
                                 struct error *error)
{
    struct ledger_visitor copy = *visitor;
    struct sql sql = ledger_reader_take(ledger);
    enum status status = SQL_RUN(&sql, STATEMENT_blocked_scan, ledger_visit_user, &copy, error);

    ledger_reader_return(ledger, sql);
    return status;
}
