/* entering.c: coupons that were given while the gate was away: marked, listed, and unmarked when
 * the gate has heard of them. */
#include "ledger/entering.h"

#include "ledger/inside.h"
#include "ledger/ledger.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

#define COUPON_COLUMNS 15 /* those that rows_read_coupon() takes */

enum status entering_mark(struct sql *sql, int64_t policy_id, int64_t seq, struct error *error)
{
    return SQL_RUN(sql, STATEMENT_entering_insert, NULL, NULL, error, sql_i64(policy_id),
                   sql_i64(seq));
}

/* --- reading --- */

static void entering_read_id(const struct sql_value *columns, void *id)
{
    *(int64_t *)id = columns[0].number;
}

static enum status list_policies(struct ledger *ledger, enum statement statement, int64_t after_id,
                                 int64_t *ids, size_t max, size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(ids, entering_read_id, count);

    return LEDGER_READ(ledger, statement, rows_take, &page, error, sql_i64(after_id),
                       sql_i64((int64_t)max));
}

enum status ledger_entering_policies(struct ledger *ledger, int64_t after_id, int64_t *ids,
                                     size_t max, size_t *count, struct error *error)
{
    return list_policies(ledger, STATEMENT_entering_policies, after_id, ids, max, count, error);
}

enum status ledger_short_code_policies(struct ledger *ledger, int64_t after_id, int64_t *ids,
                                       size_t max, size_t *count, struct error *error)
{
    return list_policies(ledger, STATEMENT_short_code_policies, after_id, ids, max, count, error);
}

struct entering_page {
    struct entering_coupon *coupons;
    size_t count;
    enum status (*key)(void *context, const struct key_binding *binding, struct error *error);
    void *context;
};

static enum status entering_note_coupon(void *context, const struct sql_value *columns,
                                        struct error *error)
{
    struct entering_page *page = context;
    struct entering_coupon *entering = &page->coupons[page->count++];

    (void)error;
    rows_read_coupon(columns, &entering->coupon);
    entering->changes = columns[COUPON_COLUMNS].number;
    return STATUS_OK;
}

static enum status entering_note_key(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    const struct entering_page *page = context;
    struct key_binding binding = rows_read_key(columns);

    return page->key(page->context, &binding, error);
}

enum status ledger_entering(struct ledger *ledger, int64_t policy_id,
                            struct entering_coupon *coupons, size_t max, size_t *count,
                            enum status (*key)(void *context, const struct key_binding *binding,
                                               struct error *error),
                            void *context, struct error *error)
{
    struct entering_page page = {.coupons = coupons, .key = key, .context = context};
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    *count = 0;
    if (status != STATUS_OK)
        return status;
    status = SQL_RUN(&sql, STATEMENT_entering_list, entering_note_coupon, &page, error,
                     sql_i64(policy_id), sql_i64((int64_t)max));
    *count = page.count;
    if (status == STATUS_OK && page.count > 0)
        status = SQL_RUN(&sql, STATEMENT_entering_keys, entering_note_key, &page, error,
                         sql_i64(policy_id), sql_i64(coupons[page.count - 1].coupon.claim.seq));
    return ledger_read_end(ledger, sql, status, error);
}

/* --- unmarking --- */

struct entered {
    const struct entering_coupon *coupons;
    size_t count;
    size_t *left_count;
};

static enum status entering_unmark(struct sql *sql, void *argument, struct error *error)
{
    const struct entered *entered = argument;
    enum status status = STATUS_OK;

    *entered->left_count = 0;
    for (size_t i = 0; i < entered->count && status == STATUS_OK; i++) {
        const struct coupon *coupon = &entered->coupons[i].coupon;
        const struct sql_value values[] = {sql_i64(coupon->claim.policy_id),
                                           sql_i64(coupon->claim.seq),
                                           sql_i64(entered->coupons[i].changes),
                                           sql_text(span_of(coupon_state_name(coupon->state)))};
        int64_t changed = 0;
        status = sql_run(sql, STATEMENT_entering_delete, values, 4, NULL, NULL, &changed, error);
        *entered->left_count += changed == 0;
    }
    return status;
}

enum status ledger_entered(struct ledger *ledger, const struct entering_coupon *coupons,
                           size_t count, size_t *left_count, struct error *error)
{
    struct entered entered = {.coupons = coupons, .count = count, .left_count = left_count};
    return ledger_write(ledger, entering_unmark, &entered, error);
}

static enum status entering_forget(struct sql *sql, void *argument, struct error *error)
{
    const int64_t *policy_id = argument;
    return SQL_RUN(sql, STATEMENT_entering_forget, NULL, NULL, error, sql_i64(*policy_id));
}

enum status ledger_entering_forget(struct ledger *ledger, int64_t policy_id, struct error *error)
{
    return ledger_write(ledger, entering_forget, &policy_id, error);
}
