/* visit.c: reads all that a gate is built from, in one snapshot. */
#include <stdlib.h>

#include "ledger/inside.h"
#include "ledger/ledger.h"
#include "ledger/rows.h"

/* One stretch: of many small policies so many, of large ones so many claims or one policy. */
#define STRETCH_POLICIES 1024
#define STRETCH_CLAIMS   (256 * 1024)

struct visit_stretch {
    const struct ledger_visitor *visitor;
    int64_t lowest_id;
    int64_t row_count;
    int64_t claim_count; /* at most, as far as seqs were lent */
};

/* Policies that do not belong to it any more are passed over. */
static enum status visit_policy(void *context, const struct sql_value *columns, struct error *error)
{
    struct visit_stretch *stretch = context;
    struct policy policy;

    stretch->row_count++;
    if (stretch->claim_count >= STRETCH_CLAIMS)
        return STATUS_OK;
    enum status status = rows_read_listed_policy(&policy, columns, error);
    if (status != STATUS_OK)
        return status;
    stretch->lowest_id = policy.id;
    stretch->claim_count += policy.next_seq - 1;
    return stretch->visitor->policy(stretch->visitor->context, &policy, error);
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

/* Of one policy, or of a stretch of them. */
static enum status visit_claims(struct sql *sql, const struct ledger_visitor *visitor,
                                int64_t lowest_id, int64_t highest_id, struct error *error)
{
    struct sql_value lowest = sql_i64(lowest_id);
    struct sql_value highest = sql_i64(highest_id);
    bool is_one = lowest_id == highest_id;
    struct visit_claims claims = {
        .visitor = visitor,
        .refused = {.read = visit_read_claim, .row_size = sizeof(struct claim)}};
    enum status status = is_one ? SQL_RUN(sql, STATEMENT_refused_scan_of_policy, rows_gather,
                                          &claims.refused, error, lowest)
                                : SQL_RUN(sql, STATEMENT_refused_scan, rows_gather, &claims.refused,
                                          error, lowest, highest);

    if (status == STATUS_OK)
        status =
            is_one
                ? SQL_RUN(sql, STATEMENT_coupon_scan_of_policy, visit_claim, &claims, error, lowest)
                : SQL_RUN(sql, STATEMENT_coupon_scan, visit_claim, &claims, error, lowest, highest);
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
    return status == STATUS_OK ? visitor->lease(visitor->context, &lease, error) : status;
}

static enum status ledger_visit_user(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    const struct ledger_visitor *visitor = context;
    struct id user = rows_read_user(&columns[0]);
    return visitor->blocked(visitor->context, &user, error);
}

/* Up to the stretch before, so that claims of nobody's policy are met. */
static enum status visit_stretch(struct sql *sql, int64_t below_id, struct visit_stretch *stretch,
                                 struct error *error)
{
    struct ledger_visitor visitor = *stretch->visitor;
    enum status status = SQL_RUN(sql, STATEMENT_policy_list_below, visit_policy, stretch, error,
                                 sql_i64(below_id), sql_i64(STRETCH_POLICIES));

    if (status != STATUS_OK || stretch->row_count == 0)
        return status;
    struct sql_value lowest = sql_i64(stretch->lowest_id);
    struct sql_value highest = sql_i64(below_id - 1);
    status = visit_claims(sql, &visitor, stretch->lowest_id, below_id - 1, error);
    if (status == STATUS_OK)
        status =
            SQL_RUN(sql, STATEMENT_key_scan, ledger_visit_key, &visitor, error, lowest, highest);
    if (status == STATUS_OK)
        status = SQL_RUN(sql, STATEMENT_lease_list_open, ledger_visit_lease, &visitor, error,
                         lowest, highest);
    return status;
}

enum status ledger_visit_below(struct ledger *ledger, int64_t *below_id,
                               const struct ledger_visitor *visitor, struct error *error)
{
    struct visit_stretch stretch = {.visitor = visitor};
    struct sql sql = ledger_reader_take(ledger);
    enum status status = sql.driver->begin(sql.session, error);

    if (status == STATUS_OK)
        status = visit_stretch(&sql, *below_id, &stretch, error);
    sql.driver->rollback(sql.session);
    ledger_reader_return(ledger, sql);
    if (status == STATUS_OK)
        *below_id = stretch.lowest_id;
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
    struct sql sql = ledger_reader_take(ledger);
    enum status status = sql.driver->begin(sql.session, error);

    if (status == STATUS_OK)
        status = visit_claims(&sql, visitor, policy_id, policy_id, error);
    if (status == STATUS_OK && visitor->key != NULL)
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
    enum status status = SQL_RUN(&sql, STATEMENT_blocked_scan, ledger_visit_user, &copy, error);

    ledger_reader_return(ledger, sql);
    return status;
}
