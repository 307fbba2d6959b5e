/* reads.c: what people ask the ledger for: policies, coupons, leases, who is blocked.
 */

#include "ledger/inside.h"
#include "ledger/ledger.h"
#include "ledger/rows.h"

enum status ledger_read(struct ledger *ledger, const struct sql_call *call, struct error *error)
{
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    status = sql_run(&sql, call, error);
    return ledger_read_end(ledger, sql, status, error);
}

enum status ledger_policy_get(struct ledger *ledger, int64_t id, struct policy *policy,
                              struct error *error)
{
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    status = rows_policy_by_id(&sql, id, ROWS_LOOK, policy, error);
    return ledger_read_end(ledger, sql, status, error);
}

enum status ledger_policy_list(struct ledger *ledger, int64_t after_id, struct policy *policies,
                               size_t max, size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(policies, rows_read_listed_policy, count);

    return LEDGER_READ(ledger, STATEMENT_policy_list, rows_take, &page, error, sql_i64(after_id),
                       sql_i64((int64_t)max));
}

enum status ledger_coupon_get(struct ledger *ledger, int64_t policy_id, int64_t seq,
                              struct coupon *coupon, struct error *error)
{
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    status = rows_coupon_by_seq(&sql, policy_id, seq, ROWS_LOOK, coupon, error);
    return ledger_read_end(ledger, sql, status, error);
}

enum status ledger_coupons_of_user(struct ledger *ledger, const struct id *user,
                                   int64_t after_policy_id, int64_t after_seq,
                                   struct coupon *coupons, size_t max, size_t *count,
                                   struct error *error)
{
    struct rows_page page = ROWS_PAGE(coupons, rows_read_coupon, count);

    return LEDGER_READ(ledger, STATEMENT_coupon_list_of_user, rows_take, &page, error,
                       sql_text(id_span(user)), sql_i64(after_policy_id), sql_i64(after_seq),
                       sql_i64((int64_t)max));
}

enum status ledger_coupons_of_claimant(struct ledger *ledger, int64_t policy_id,
                                       const struct id *user, struct coupon *coupons, size_t max,
                                       size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(coupons, rows_read_coupon, count);

    return LEDGER_READ(ledger, STATEMENT_coupon_list_of_claimant, rows_take, &page, error,
                       sql_i64(policy_id), sql_text(id_span(user)), sql_i64((int64_t)max));
}

enum status ledger_coupons_of_policy(struct ledger *ledger, int64_t policy_id, int64_t after_seq,
                                     struct coupon *coupons, size_t max, size_t *count,
                                     struct error *error)
{
    struct rows_page page = ROWS_PAGE(coupons, rows_read_coupon, count);

    return LEDGER_READ(ledger, STATEMENT_coupon_list_of_policy, rows_take, &page, error,
                       sql_i64(policy_id), sql_i64(after_seq), sql_i64((int64_t)max));
}

enum status ledger_worker_count(struct ledger *ledger, int64_t grace_ms, int64_t *count,
                                struct error *error)
{
    return LEDGER_READ(ledger, STATEMENT_holder_count, rows_take_i64, count, error,
                       sql_i64(grace_ms));
}

enum status ledger_user_blocked(struct ledger *ledger, const struct id *user, bool *blocked,
                                struct error *error)
{
    *blocked = false;
    return LEDGER_READ(ledger, STATEMENT_blocked_has, rows_note_any, blocked, error,
                       sql_text(id_span(user)));
}

static enum status ledger_read_leases(struct ledger *ledger, enum statement statement,
                                      int64_t policy_id, struct lease **leases, size_t *count,
                                      struct error *error)
{
    struct rows_list list = {.read = rows_read_lease, .row_size = sizeof(**leases)};
    struct sql sql = ledger_reader_take(ledger);
    enum status status = SQL_RUN(&sql, statement, rows_gather, &list, error, sql_i64(policy_id));

    ledger_reader_return(ledger, sql);
    *leases = (struct lease *)(void *)list.rows;
    *count = status == STATUS_OK ? list.count : 0;
    return status;
}

enum status ledger_lease_list(struct ledger *ledger, int64_t policy_id, struct lease **leases,
                              size_t *count, struct error *error)
{
    return ledger_read_leases(ledger, STATEMENT_lease_open_of_policy, policy_id, leases, count,
                              error);
}

enum status ledger_lease_history(struct ledger *ledger, int64_t policy_id, struct lease **leases,
                                 size_t *count, struct error *error)
{
    return ledger_read_leases(ledger, STATEMENT_lease_all_of_policy, policy_id, leases, count,
                              error);
}
