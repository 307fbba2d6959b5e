/* mysql_batch.c: rows laid out where prepared statements of each size find them. */
#include "ledger/mysql_batch.h"

#include <stdlib.h>
#include <string.h>

#include "ledger/mysql_error.h"

#define SIZES_COUNT     10
#define ROWS_MAX        ((size_t)1 << (SIZES_COUNT - 1))
#define COLUMNS_COUNT   13
#define TEXT_LENGTH_MAX (1024 + ROWS_MAX * COLUMNS_COUNT * 4)

/* One row as the client library reads it, in the order of coupon_insert. */
struct batch_row {
    int64_t policy_id;
    int64_t seq;
    int64_t lease_id;
    int64_t requested_at;
    int64_t issued_at;
    int64_t expires_at;
    int64_t merged_into;
    int32_t nth;
    int32_t slot;
    unsigned long user_length;
    unsigned long state_length;
    unsigned long reason_length;
    my_bool has_no_slot;
    my_bool has_no_expiry;
    my_bool is_not_merged;
    my_bool has_no_reason;
    char user[ID_LENGTH_MAX];
    char state[16];
    char request_id[16];
    char reason[REASON_SIZE];
};

struct ledger_mysql_batch {
    MYSQL_STMT *handles[SIZES_COUNT]; /* of 1 << i rows; NULL: not prepared yet */
    struct batch_row rows[ROWS_MAX];
    MYSQL_BIND binds[ROWS_MAX * COLUMNS_COUNT];
};

/* --- laying out --- */

static MYSQL_BIND batch_bind_i64(int64_t *number, my_bool *is_null)
{
    return (MYSQL_BIND){.buffer_type = MYSQL_TYPE_LONGLONG, .buffer = number, .is_null = is_null};
}

static MYSQL_BIND batch_bind_i32(int32_t *number, my_bool *is_null)
{
    return (MYSQL_BIND){.buffer_type = MYSQL_TYPE_LONG, .buffer = number, .is_null = is_null};
}

static MYSQL_BIND batch_bind_text(char *bytes, unsigned long *length, my_bool *is_null)
{
    return (MYSQL_BIND){
        .buffer_type = MYSQL_TYPE_STRING, .buffer = bytes, .length = length, .is_null = is_null};
}

static void batch_bind_row(MYSQL_BIND *binds, struct batch_row *row)
{
    *binds++ = batch_bind_i64(&row->policy_id, NULL);
    *binds++ = batch_bind_i64(&row->seq, NULL);
    *binds++ = batch_bind_text(row->user, &row->user_length, NULL);
    *binds++ = batch_bind_i32(&row->nth, NULL);
    *binds++ = batch_bind_i32(&row->slot, &row->has_no_slot);
    *binds++ = batch_bind_text(row->state, &row->state_length, NULL);
    *binds++ = (MYSQL_BIND){.buffer_type = MYSQL_TYPE_BLOB,
                            .buffer = row->request_id,
                            .buffer_length = sizeof(row->request_id)};
    *binds++ = batch_bind_i64(&row->lease_id, NULL);
    *binds++ = batch_bind_i64(&row->requested_at, NULL);
    *binds++ = batch_bind_i64(&row->issued_at, NULL);
    *binds++ = batch_bind_i64(&row->expires_at, &row->has_no_expiry);
    *binds++ = batch_bind_i64(&row->merged_into, &row->is_not_merged);
    *binds++ = batch_bind_text(row->reason, &row->reason_length, &row->has_no_reason);
}

static unsigned long batch_copy_text(char *target, size_t size, struct span text)
{
    ensure(text.length <= size);
    if (text.length > 0)
        memcpy(target, text.bytes, text.length);
    return text.length;
}

static void batch_fill_row(struct batch_row *row, const struct coupon_row *coupon)
{
    const struct claim *claim = coupon->claim;

    row->policy_id = claim->policy_id;
    row->seq = claim->seq;
    row->lease_id = claim->lease_id;
    row->requested_at = claim->requested_at_ms;
    row->issued_at = coupon->issued_at_ms;
    row->expires_at = coupon->expires_at_ms;
    row->has_no_expiry = coupon->expires_at_ms == 0;
    row->merged_into = coupon->merged_into_seq;
    row->is_not_merged = coupon->merged_into_seq == 0;
    row->nth = claim->nth;
    row->slot = claim->nth;
    row->has_no_slot = !coupon_state_is_active(coupon->state);
    row->user_length = batch_copy_text(row->user, sizeof(row->user), user_id_span(&claim->user));
    row->state_length =
        batch_copy_text(row->state, sizeof(row->state), span_of(coupon_state_name(coupon->state)));
    memcpy(row->request_id, claim->request_id.bytes, sizeof(row->request_id));
    row->has_no_reason = coupon->reason == NULL;
    row->reason_length = batch_copy_text(row->reason, sizeof(row->reason),
                                         span_of(coupon->reason != NULL ? coupon->reason : ""));
}

/* --- life --- */

struct ledger_mysql_batch *ledger_mysql_batch_new(void)
{
    struct ledger_mysql_batch *batch = calloc(1, sizeof(*batch));

    for (size_t i = 0; batch != NULL && i < ROWS_MAX; i++)
        batch_bind_row(batch->binds + i * COLUMNS_COUNT, &batch->rows[i]);
    return batch;
}

void ledger_mysql_batch_reset(struct ledger_mysql_batch *batch)
{
    for (size_t i = 0; batch != NULL && i < SIZES_COUNT; i++) {
        if (batch->handles[i] != NULL)
            mysql_stmt_close(batch->handles[i]);
        batch->handles[i] = NULL;
    }
}

void ledger_mysql_batch_free(struct ledger_mysql_batch *batch)
{
    ledger_mysql_batch_reset(batch);
    free(batch);
}

/* --- statements --- */

/* "INSERT … VALUES (?, …)" with its group once per row. */
static void batch_write_text(struct buffer *text, size_t row_count)
{
    uint8_t order[COLUMNS_COUNT];
    unsigned long length = 0;
    const char *numbered =
        statement_text(statement_file("mysql"), STATEMENT_coupon_insert, &length);
    struct buffer one;

    ensure(numbered != NULL);
    buffer_init(&one, TEXT_LENGTH_MAX);
    size_t count = ledger_mysql_take_numbers(
        &one, (struct span){.bytes = numbered, .length = length}, order, COLUMNS_COUNT);
    ensure(count == COLUMNS_COUNT);
    for (size_t i = 0; i < count; i++)
        ensure(order[i] == i);
    if (!one.overflowed) {
        const char *group = strrchr(one.bytes, '(');
        buffer_append(text, one.bytes, one.length);
        for (size_t i = 1; i < row_count; i++) {
            buffer_append_text(text, ", ");
            buffer_append_text(text, group);
        }
    }
    text->overflowed |= one.overflowed;
    buffer_release(&one);
}

static enum status batch_prepare(struct ledger_mysql_batch *batch, struct ledger_mysql_link *link,
                                 size_t size, struct error *error)
{
    struct ledger_mysql_result result = {0};
    struct buffer text;

    if (batch->handles[size] != NULL)
        return STATUS_OK;
    buffer_init(&text, TEXT_LENGTH_MAX);
    batch_write_text(&text, (size_t)1 << size);
    MYSQL_STMT *handle = text.overflowed ? NULL : mysql_stmt_init(link->mysql);
    if (handle == NULL)
        ledger_mysql_result_no_memory(&result);
    else if (mysql_stmt_prepare(handle, text.bytes, text.length) != 0 ||
             mysql_stmt_bind_param(handle, batch->binds) != 0)
        ledger_mysql_result_fail(&result, handle, link->mysql);
    buffer_release(&text);
    if (result.code == 0) {
        batch->handles[size] = handle;
        return STATUS_OK;
    }
    if (handle != NULL)
        mysql_stmt_close(handle);
    return ledger_mysql_link_fail(link, &result, "coupon_insert", error);
}

/* 1 << size rows in one statement, of which all or none are written. */
static enum status batch_write(struct ledger_mysql_batch *batch, struct ledger_mysql_link *link,
                               const struct coupon_row *rows, size_t size, struct error *error)
{
    struct ledger_mysql_result result = {0};
    enum status status = batch_prepare(batch, link, size, error);

    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < (size_t)1 << size; i++)
        batch_fill_row(&batch->rows[i], &rows[i]);
    if (mysql_stmt_execute(batch->handles[size]) == 0)
        return STATUS_OK;
    ledger_mysql_result_fail(&result, batch->handles[size], link->mysql);
    status = ledger_mysql_link_fail(link, &result, "coupon_insert", error);
    if (result.code == LEDGER_MYSQL_DUPLICATE)
        return STATUS_CONFLICT;
    return status == STATUS_FAILED && ledger_mysql_refuses_row(result.code, result.sql_state)
               ? STATUS_INVALID
               : status;
}

static enum status batch_write_halved(struct ledger_mysql_batch *batch,
                                      struct ledger_mysql_link *link, struct coupon_row *rows,
                                      size_t size, struct error *error)
{
    enum status status = batch_write(batch, link, rows, size, error);

    if (status != STATUS_CONFLICT)
        return status;
    if (size == 0) {
        rows->conflicts = true;
        return STATUS_OK;
    }
    status = batch_write_halved(batch, link, rows, size - 1, error);
    if (status == STATUS_OK)
        status = batch_write_halved(batch, link, rows + ((size_t)1 << (size - 1)), size - 1, error);
    return status;
}

enum status ledger_mysql_batch_insert(struct ledger_mysql_batch *batch,
                                      struct ledger_mysql_link *link, struct coupon_row *rows,
                                      size_t count, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count; i++)
        rows[i].conflicts = false;
    while (count > 0 && status == STATUS_OK) {
        size_t size = SIZES_COUNT - 1;
        while ((size_t)1 << size > count)
            size--;
        status = batch_write_halved(batch, link, rows, size, error);
        rows += (size_t)1 << size;
        count -= (size_t)1 << size;
    }
    return status;
}
