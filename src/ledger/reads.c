/* reads.c: what people ask the ledger for: policies, coupons, dead letters, leases, who is blocked.
 */
#include <stdlib.h>

#include "ledger/inside.h"
#include "ledger/ledger.h"
#include "ledger/letters.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

enum status ledger_read(struct ledger *ledger, enum statement statement,
                        const struct sql_value *values, size_t value_count, sql_row_fn row,
                        void *context, struct error *error)
{
    struct sql sql;
    enum status status = ledger_read_begin(ledger, &sql, error);

    if (status != STATUS_OK)
        return status;
    status = sql_run(&sql, statement, values, value_count, row, context, NULL, error);
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
    struct rows_page page = ROWS_PAGE(policies, rows_read_policy, count);

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

enum status ledger_coupons_of_user(struct ledger *ledger, const struct user_id *user,
                                   int64_t after_policy_id, int64_t after_seq,
                                   struct coupon *coupons, size_t max, size_t *count,
                                   struct error *error)
{
    struct rows_page page = ROWS_PAGE(coupons, rows_read_coupon, count);

    return LEDGER_READ(ledger, STATEMENT_coupon_list_of_user, rows_take, &page, error,
                       sql_text(user_id_span(user)), sql_i64(after_policy_id), sql_i64(after_seq),
                       sql_i64((int64_t)max));
}

enum status ledger_coupons_of_claimant(struct ledger *ledger, int64_t policy_id,
                                       const struct user_id *user, struct coupon *coupons,
                                       size_t max, size_t *count, struct error *error)
{
    struct rows_page page = ROWS_PAGE(coupons, rows_read_coupon, count);

    return LEDGER_READ(ledger, STATEMENT_coupon_list_of_claimant, rows_take, &page, error,
                       sql_i64(policy_id), sql_text(user_id_span(user)), sql_i64((int64_t)max));
}

enum status ledger_coupons_of_policy(struct ledger *ledger, int64_t policy_id, int64_t after_seq,
                                     struct coupon *coupons, size_t max, size_t *count,
                                     struct error *error)
{
    struct rows_page page = ROWS_PAGE(coupons, rows_read_coupon, count);

    return LEDGER_READ(ledger, STATEMENT_coupon_list_of_policy, rows_take, &page, error,
                       sql_i64(policy_id), sql_i64(after_seq), sql_i64((int64_t)max));
}

enum status ledger_letters(struct ledger *ledger, int64_t after_policy_id, int64_t after_seq,
                           struct dead_letter *letters, size_t max, size_t *count,
                           struct error *error)
{
    struct sql sql = ledger_reader_take(ledger);
    enum status status = letters_list(&sql, after_policy_id, after_seq, letters, max, count, error);
    return ledger_read_end(ledger, sql, status, error);
}

enum status ledger_letter_get(struct ledger *ledger, int64_t policy_id, int64_t seq,
                              struct dead_letter *letter, struct error *error)
{
    struct sql sql = ledger_reader_take(ledger);
    enum status status = letters_read(&sql, policy_id, seq, letter, error);
    return ledger_read_end(ledger, sql, status, error);
}

enum status ledger_worker_count(struct ledger *ledger, int64_t grace_ms, int64_t *count,
                                struct error *error)
{
    struct sql sql = ledger_reader_take(ledger);
    enum status status =
        SQL_RUN(&sql, STATEMENT_holder_count, rows_take_i64, count, error, sql_i64(grace_ms));
    return ledger_read_end(ledger, sql, status, error);
}

enum status ledger_letter_count(struct ledger *ledger, int64_t *count, struct error *error)
{
    struct sql sql = ledger_reader_take(ledger);
    enum status status = letters_count(&sql, count, error);
    return ledger_read_end(ledger, sql, status, error);
}

enum status ledger_letters_write(struct ledger *ledger, const struct dead_letter *letters,
                                 size_t count, struct error *error)
{
    struct write_letters write = {.letters = letters, .count = count};
    return ledger_write(ledger, letters_write_all, &write, error);
}

enum status ledger_letter_drop(struct ledger *ledger, int64_t policy_id, int64_t seq,
                               struct dead_letter *letter, struct error *error)
{
    struct drop_letter drop = {.policy_id = policy_id, .seq = seq, .letter = letter};
    return ledger_write(ledger, letters_drop, &drop, error);
}

enum status ledger_user_blocked(struct ledger *ledger, const struct user_id *user, bool *blocked,
                                struct error *error)
{
    *blocked = false;
    return LEDGER_READ(ledger, STATEMENT_blocked_has, rows_note_any, blocked, error,
                       sql_text(user_id_span(user)));
}

struct ledger_leases {
    struct lease *leases;
    size_t count;
    size_t capacity;
};

static enum status ledger_note_lease(void *context, const struct sql_value *columns,
                                     struct error *error)
{
    struct ledger_leases *list = context;

    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : list->capacity * 2;
        struct lease *grown = realloc(list->leases, capacity * sizeof(*grown));
        if (grown == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "no memory for the leases of a policy");
        list->leases = grown;
        list->capacity = capacity;
    }
    list->leases[list->count++] = (struct lease){.id = columns[0].number,
                                                 .policy_id = columns[1].number,
                                                 .first_seq = columns[2].number,
                                                 .count = columns[3].number,
                                                 .open = true};
    return STATUS_OK;
}

enum status ledger_lease_list(struct ledger *ledger, int64_t policy_id, struct lease **leases,
                              size_t *count, struct error *error)
{
    struct ledger_leases list = {0};
    struct sql sql = ledger_reader_take(ledger);
    enum status status = SQL_RUN(&sql, STATEMENT_lease_open_of_policy, ledger_note_lease, &list,
                                 error, sql_i64(policy_id));

    ledger_reader_return(ledger, sql);
    *leases = list.leases;
    *count = status == STATUS_OK ? list.count : 0;
    return status;
}
