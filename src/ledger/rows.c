/* rows.c: reads columns; NULL becomes 0 or the empty text, as base/model.h has it. */
#include "ledger/rows.h"

#include "base/array.h"

static int64_t rows_read_i64(const struct sql_value *column)
{
    return column->kind == SQL_I64 ? column->number : 0;
}

enum status rows_take_i64(void *number, const struct sql_value *columns, struct error *error)
{
    *(int64_t *)number = rows_read_i64(&columns[0]);
    return STATUS_OK;
}

enum status rows_note_any(void *is_there, const struct sql_value *columns, struct error *error)
{
    *(bool *)is_there = true;
    return STATUS_OK;
}

void rows_read_text(const struct sql_value *column, char *text, size_t size)
{
    size_t length = column->kind == SQL_TEXT ? column->bytes.length : 0;
    if (length >= size)
        length = size - 1;
    if (length > 0)
        memcpy(text, column->bytes.bytes, length);
    text[length] = '\0';
}

struct id rows_read_user(const struct sql_value *column)
{
    if (column->kind != SQL_TEXT || column->bytes.length > ID_LENGTH_MAX)
        return (struct id){0};
    return id_of(column->bytes);
}

struct request_id rows_read_request_id(const struct sql_value *column)
{
    struct request_id id = {{0}};
    if (column->kind == SQL_BLOB && column->bytes.length == sizeof(id.bytes))
        memcpy(id.bytes, column->bytes.bytes, sizeof(id.bytes));
    return id;
}

enum coupon_state rows_read_state(const struct sql_value *column)
{
    static const enum coupon_state states[] = {COUPON_ISSUED, COUPON_REDEEMED, COUPON_CANCELLED,
                                               COUPON_VOID, COUPON_MERGED};
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
        if (column->kind == SQL_TEXT &&
            span_equal(column->bytes, span_of(coupon_state_name(states[i]))))
            return states[i];
    return COUPON_VOID;
}

/* By anything but dibs: someone who repaired by hand, a disk, an attacker. */
static enum status rows_refuse(const char *what, int64_t id, const char *column, int64_t number,
                               struct error *error)
{
    return error_set(error, STATUS_FAILED,
                     "the ledger is damaged, or was changed by hand: the %s of %s %lld is %lld",
                     column, what, (long long)id, (long long)number);
}

enum status rows_read_policy(void *row, const struct sql_value *columns, struct error *error)
{
    struct policy *policy = row;

    *policy = (struct policy){
        .discount_type = span_equal(columns[POLICY_COLUMN_discount_type].bytes, SPAN("fixed"))
                             ? DISCOUNT_FIXED
                             : DISCOUNT_PERCENT,
    };
    rows_read_text(&columns[POLICY_COLUMN_name], policy->name, sizeof(policy->name));
    for (int i = 0; i < POLICY_COLUMN_COUNT; i++) {
        const struct policy_column_rule *rule = &policy_columns[i];
        int64_t number = rule->kind == POLICY_CURRENCY && columns[i].kind == SQL_TEXT
                             ? currency_of(columns[i].bytes)
                             : rows_read_i64(&columns[i]);
        if (rule->kind != POLICY_TEXT && rule->kind != POLICY_DISCOUNT &&
            !policy_set_number(policy, (enum policy_column)i, number))
            return rows_refuse("policy", columns[0].number, rule->name, number, error);
    }
    return STATUS_OK;
}

enum status rows_read_listed_policy(void *row, const struct sql_value *columns, struct error *error)
{
    enum status status = rows_read_policy(row, columns, error);

    /* Nobody can name one with such an id. */
    if (status != STATUS_FAILED || columns[0].number > POLICY_ID_MAX)
        return status;
    *(struct policy *)row = rows_damaged_policy(columns[0].number);
    return STATUS_OK;
}

static struct sql_value rows_policy_value(const struct policy *policy, enum policy_column column,
                                          char currency[CURRENCY_TEXT_SIZE])
{
    switch (policy_columns[column].kind) {
    case POLICY_TEXT:
        return sql_text(span_of((const char *)policy + policy_columns[column].offset));
    case POLICY_DISCOUNT:
        return sql_text(policy->discount_type == DISCOUNT_FIXED ? SPAN("fixed") : SPAN("percent"));
    case POLICY_CURRENCY:
        return policy->currency == CURRENCY_NONE
                   ? sql_null()
                   : sql_text(span_of(currency_text(policy->currency, currency)));
    case POLICY_NUMBER_OR_NONE:
    case POLICY_TIME_OR_NONE:
        return sql_i64_or_null(policy_number(policy, column));
    default:
        return sql_i64(policy_number(policy, column));
    }
}

enum status rows_write_policy(struct sql *sql, enum statement statement,
                              const struct policy *policy, struct error *error)
{
    struct sql_value values[POLICY_COLUMN_COUNT];
    char currency[CURRENCY_TEXT_SIZE];

    for (int i = 0; i < POLICY_COLUMN_COUNT; i++)
        values[i] = rows_policy_value(policy, (enum policy_column)i, currency);
    const struct sql_call call = {
        .statement = statement, .values = values, .value_count = POLICY_COLUMN_COUNT};
    return sql_run(sql, &call, error);
}

/* Its end is a seq, too, and sums of either stay numbers. */
enum status rows_read_lease(void *row, const struct sql_value *columns, struct error *error)
{
    struct lease *lease = row;

    *lease = (struct lease){
        .id = columns[0].number,
        .policy_id = columns[1].number,
        .first_seq = columns[2].number,
        .count = columns[3].number,
        .open = columns[4].number != 0,
    };
    if (lease->first_seq < 0 || lease->first_seq > POLICY_ID_MAX)
        return rows_refuse("lease", lease->id, "first_seq", lease->first_seq, error);
    if (lease->count < 0 || lease->count > POLICY_ID_MAX)
        return rows_refuse("lease", lease->id, "count", lease->count, error);
    return STATUS_OK;
}

enum status rows_read_coupon(void *row, const struct sql_value *columns, struct error *error)
{
    struct coupon *coupon = row;

    *coupon = (struct coupon){
        .claim =
            {
                .policy_id = columns[0].number,
                .seq = columns[1].number,
                .user = rows_read_user(&columns[2]),
                .nth = (int32_t)columns[3].number,
                .request_id = rows_read_request_id(&columns[5]),
                .lease_id = columns[6].number,
                .requested_at_ms = columns[7].number,
            },
        .state = rows_read_state(&columns[4]),
        .issued_at_ms = columns[8].number,
        .expires_at_ms = rows_read_i64(&columns[9]),
        .redeemed_at_ms = rows_read_i64(&columns[10]),
        .cancelled_at_ms = rows_read_i64(&columns[11]),
        .order_id = rows_read_user(&columns[12]),
        .merged_into_seq = rows_read_i64(&columns[13]),
    };
    rows_read_text(&columns[14], coupon->reason, sizeof(coupon->reason));
    return STATUS_OK;
}

struct sql_value rows_coupon_value(const struct coupon_row *row, enum coupon_column column)
{
    const struct claim *claim = row->claim;

    switch (column) {
    case COUPON_COLUMN_POLICY_ID:
        return sql_i64(claim->policy_id);
    case COUPON_COLUMN_SEQ:
        return sql_i64(claim->seq);
    case COUPON_COLUMN_USER_ID:
        return sql_text(id_span(&claim->user));
    case COUPON_COLUMN_NTH:
        return sql_i64(coupon_row_nth(row));
    case COUPON_COLUMN_SLOT:
        return sql_i64_or_null(coupon_state_is_active(row->state) ? coupon_row_nth(row) : 0);
    case COUPON_COLUMN_STATE:
        return sql_text(span_of(coupon_state_name(row->state)));
    case COUPON_COLUMN_REQUEST_ID:
        return sql_blob(claim->request_id.bytes, sizeof(claim->request_id.bytes));
    case COUPON_COLUMN_LEASE_ID:
        return sql_i64(claim->lease_id);
    case COUPON_COLUMN_REQUESTED_AT:
        return sql_i64(claim->requested_at_ms);
    case COUPON_COLUMN_ISSUED_AT:
        return sql_i64(row->issued_at_ms);
    case COUPON_COLUMN_EXPIRES_AT:
        return sql_i64_or_null(row->expires_at_ms);
    case COUPON_COLUMN_MERGED_INTO:
        return sql_i64_or_null(row->merged_into_seq);
    case COUPON_COLUMN_REASON:
        return row->reason != NULL ? sql_text(span_of(row->reason)) : sql_null();
    case COUPON_COLUMN_COUNT:
        break;
    }
    return sql_null();
}

enum status rows_take(void *context, const struct sql_value *columns, struct error *error)
{
    const struct rows_page *page = context;

    return page->read(page->rows + page->row_size * (*page->count)++, columns, error);
}

enum status rows_gather(void *context, const struct sql_value *columns, struct error *error)
{
    struct rows_list *list = context;

    if (!array_grow(&list->rows, list->count + 1, &list->capacity, list->row_size))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the rows of a statement");
    return list->read(list->rows + list->row_size * list->count++, columns, error);
}

enum status rows_policy_by_id(struct sql *sql, int64_t id, enum rows_lock lock,
                              struct policy *policy, struct error *error)
{
    size_t count;
    struct rows_page page = ROWS_PAGE(policy, rows_read_policy, &count);
    enum status status =
        SQL_RUN(sql, lock == ROWS_LOCK ? STATEMENT_policy_for_update : STATEMENT_policy_by_id,
                rows_take, &page, error, sql_i64(id));

    if (status == STATUS_OK && count == 0)
        return error_set(error, STATUS_NOT_FOUND, "there is no policy %lld", (long long)id);
    return status;
}

enum status rows_coupon_by_seq(struct sql *sql, int64_t policy_id, int64_t seq, enum rows_lock lock,
                               struct coupon *coupon, struct error *error)
{
    size_t count;
    struct rows_page page = ROWS_PAGE(coupon, rows_read_coupon, &count);
    enum status status =
        SQL_RUN(sql, lock == ROWS_LOCK ? STATEMENT_coupon_for_update : STATEMENT_coupon_by_seq,
                rows_take, &page, error, sql_i64(policy_id), sql_i64(seq));

    /* One that a rule of the shop's keeps out of the table is VOID, and stays so. */
    if (status == STATUS_OK && count == 0)
        status = SQL_RUN(sql, STATEMENT_refused_by_seq, rows_take, &page, error, sql_i64(policy_id),
                         sql_i64(seq));
    if (status == STATUS_OK && count == 0)
        return error_set(error, STATUS_NOT_FOUND, "there is no coupon %lld-%lld",
                         (long long)policy_id, (long long)seq);
    return status;
}

enum status rows_lease_lock(struct sql *sql, int64_t id, struct lease *lease, struct error *error)
{
    size_t count;
    struct rows_page page = ROWS_PAGE(lease, rows_read_lease, &count);
    enum status status =
        SQL_RUN(sql, STATEMENT_lease_for_update, rows_take, &page, error, sql_i64(id));

    if (status == STATUS_OK && count == 0)
        return error_set(error, STATUS_NOT_FOUND, "there is no lease %lld", (long long)id);
    return status;
}

struct key_binding rows_read_key(const struct sql_value *columns)
{
    return (struct key_binding){
        .policy_id = columns[0].number,
        .request_id = rows_read_request_id(&columns[1]),
        .seq = columns[2].number,
        .user = rows_read_user(&columns[3]),
        .nth = (int32_t)columns[4].number,
    };
}
