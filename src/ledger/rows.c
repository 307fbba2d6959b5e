/* rows.c: reads columns; NULL becomes 0 or the empty text, as base/model.h has it. */
#include "ledger/rows.h"

static int64_t rows_read_i64(const struct sql_value *column)
{
    return column->kind == SQL_I64 ? column->number : 0;
}

enum status rows_take_i64(void *number, const struct sql_value *columns, struct error *error)
{
    (void)error;
    *(int64_t *)number = rows_read_i64(&columns[0]);
    return STATUS_OK;
}

enum status rows_note_any(void *is_there, const struct sql_value *columns, struct error *error)
{
    (void)columns;
    (void)error;
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

struct user_id rows_read_user(const struct sql_value *column)
{
    if (column->kind != SQL_TEXT || column->bytes.length > ID_LENGTH_MAX)
        return (struct user_id){0};
    return user_id_of(column->bytes);
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
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        if (column->kind == SQL_TEXT &&
            span_equal(column->bytes, span_of(coupon_state_name(states[i]))))
            return states[i];
    }
    return COUPON_VOID;
}

void rows_read_policy(const struct sql_value *columns, void *row)
{
    struct policy *policy = row;

    *policy = (struct policy){
        .id = columns[0].number,
        .discount_type =
            span_equal(columns[2].bytes, SPAN("fixed")) ? DISCOUNT_FIXED : DISCOUNT_PERCENT,
        .discount_value = columns[3].number,
        .total = columns[4].number,
        .per_user_limit = (int32_t)columns[5].number,
        .opens_at_ms = rows_read_i64(&columns[6]),
        .closes_at_ms = rows_read_i64(&columns[7]),
        .coupon_valid_days = (int32_t)rows_read_i64(&columns[8]),
        .reserve = columns[9].number,
        .paused = columns[10].number != 0,
        .closed_at_ms = rows_read_i64(&columns[11]),
        .created_at_ms = columns[12].number,
        .version = columns[13].number,
        .unleased = columns[14].number,
        .next_seq = columns[15].number,
    };
    rows_read_text(&columns[1], policy->name, sizeof(policy->name));
}

void rows_read_coupon(const struct sql_value *columns, void *row)
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
}

enum status rows_take(void *context, const struct sql_value *columns, struct error *error)
{
    const struct rows_page *page = context;

    (void)error;
    page->read(columns, page->rows + page->row_size * (*page->count)++);
    return STATUS_OK;
}

/* One row expected: where it goes, and whether it came. */
struct rows_one {
    void *target;
    bool found;
};

static enum status rows_one_policy(void *context, const struct sql_value *columns,
                                   struct error *error)
{
    struct rows_one *one = context;
    (void)error;
    rows_read_policy(columns, one->target);
    one->found = true;
    return STATUS_OK;
}

static enum status rows_one_coupon(void *context, const struct sql_value *columns,
                                   struct error *error)
{
    struct rows_one *one = context;
    (void)error;
    rows_read_coupon(columns, one->target);
    one->found = true;
    return STATUS_OK;
}

static enum status rows_one_lease(void *context, const struct sql_value *columns,
                                  struct error *error)
{
    struct rows_one *one = context;
    (void)error;
    *(struct lease *)one->target = (struct lease){
        .id = columns[0].number,
        .policy_id = columns[1].number,
        .first_seq = columns[2].number,
        .count = columns[3].number,
        .open = columns[4].number != 0,
    };
    one->found = true;
    return STATUS_OK;
}

enum status rows_policy_by_id(struct sql *sql, int64_t id, enum rows_lock lock,
                              struct policy *policy, struct error *error)
{
    struct rows_one one = {.target = policy};
    enum status status =
        SQL_RUN(sql, lock == ROWS_LOCK ? STATEMENT_policy_for_update : STATEMENT_policy_by_id,
                rows_one_policy, &one, error, sql_i64(id));
    if (status == STATUS_OK && !one.found)
        return error_set(error, STATUS_NOT_FOUND, "there is no policy %lld", (long long)id);
    return status;
}

enum status rows_coupon_by_seq(struct sql *sql, int64_t policy_id, int64_t seq, enum rows_lock lock,
                               struct coupon *coupon, struct error *error)
{
    struct rows_one one = {.target = coupon};
    enum status status =
        SQL_RUN(sql, lock == ROWS_LOCK ? STATEMENT_coupon_for_update : STATEMENT_coupon_by_seq,
                rows_one_coupon, &one, error, sql_i64(policy_id), sql_i64(seq));
    /* One that a rule of the shop's keeps out of the table is VOID, and stays so. */
    if (status == STATUS_OK && !one.found)
        status = SQL_RUN(sql, STATEMENT_refused_by_seq, rows_one_coupon, &one, error,
                         sql_i64(policy_id), sql_i64(seq));
    if (status == STATUS_OK && !one.found)
        return error_set(error, STATUS_NOT_FOUND, "there is no coupon %lld-%lld",
                         (long long)policy_id, (long long)seq);
    return status;
}

enum status rows_lease_lock(struct sql *sql, int64_t id, struct lease *lease, struct error *error)
{
    struct rows_one one = {.target = lease};
    enum status status =
        SQL_RUN(sql, STATEMENT_lease_for_update, rows_one_lease, &one, error, sql_i64(id));
    if (status == STATUS_OK && !one.found)
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
