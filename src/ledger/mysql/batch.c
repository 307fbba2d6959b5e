/* batch.c: rows laid out where prepared statements of each size find them. */
#include "ledger/mysql/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#define SIZES_COUNT     10
#define ROWS_MAX        ((size_t)1 << (SIZES_COUNT - 1))
#define COLUMNS_COUNT   13
#define RUNS_SOUGHT_MAX 32
#define TRIES_COUNT     3
#define ASKED_MAX       (ROWS_MAX * (2 * ID_LENGTH_MAX + 96))
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
    struct coupon_row *chosen[ROWS_MAX]; /* those to be written */
    struct buffer asked;                 /* of the look */
    unsigned runs_left; /* how many more runs are looked for before they are written */
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
    row->nth = coupon_row_nth(coupon);
    row->slot = coupon_row_nth(coupon);
    row->has_no_slot = !coupon_state_is_active(coupon->state);
    row->user_length = batch_copy_text(row->user, sizeof(row->user), id_span(&claim->user));
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
    if (batch != NULL)
        buffer_init(&batch->asked, ASKED_MAX);
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
    if (batch == NULL)
        return;
    ledger_mysql_batch_reset(batch);
    buffer_release(&batch->asked);
    free(batch);
}

/* --- statements --- */

/* "INSERT … VALUES (?, …)" with its group once per row. */
static void batch_write_text(struct buffer *text, size_t row_count)
{
    uint8_t order[COLUMNS_COUNT];
    struct buffer one;

    buffer_init(&one, TEXT_LENGTH_MAX);
    size_t count = ledger_mysql_take_numbers(&one, mysql_statements[STATEMENT_coupon_insert], order,
                                             COLUMNS_COUNT);
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
    enum status status = STATUS_OK;
    struct buffer text;

    if (batch->handles[size] != NULL)
        return STATUS_OK;
    buffer_init(&text, TEXT_LENGTH_MAX);
    batch_write_text(&text, (size_t)1 << size);
    MYSQL_STMT *handle = text.overflowed ? NULL : mysql_stmt_init(link->mysql);
    if (handle == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for a batch");
    else if (mysql_stmt_prepare(handle, text.bytes, text.length) != 0 ||
             mysql_stmt_bind_param(handle, batch->binds) != 0)
        status = ledger_mysql_link_fail(link, handle, "coupon_insert", error);
    buffer_release(&text);
    if (status == STATUS_OK)
        batch->handles[size] = handle;
    else if (handle != NULL)
        mysql_stmt_close(handle);
    return status;
}

/* 1 << size rows in one statement, of which all or none are written. */
static enum status batch_write(struct ledger_mysql_batch *batch, struct ledger_mysql_link *link,
                               struct coupon_row *const *rows, size_t size, struct error *error)
{
    enum status status = batch_prepare(batch, link, size, error);

    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < (size_t)1 << size; i++)
        batch_fill_row(&batch->rows[i], rows[i]);
    if (mysql_stmt_execute(batch->handles[size]) == 0)
        return STATUS_OK;
    status = ledger_mysql_link_fail(link, batch->handles[size], "coupon_insert", error);
    if (link->code == LEDGER_MYSQL_DUPLICATE)
        return STATUS_CONFLICT;
    return status == STATUS_FAILED && ledger_mysql_refuses_row(link->code, link->sql_state)
               ? STATUS_INVALID
               : status;
}

/* --- looking --- */

/* Those flagged already are left out. */
static size_t batch_choose(struct ledger_mysql_batch *batch, struct coupon_row *rows, size_t count)
{
    size_t chosen_count = 0;

    for (size_t i = 0; i < count; i++)
        if (!rows[i].conflicts)
            batch->chosen[chosen_count++] = &rows[i];
    return chosen_count;
}

static bool batch_conflicts(const struct coupon_row *a, const struct coupon_row *b)
{
    if (a->claim->policy_id != b->claim->policy_id)
        return false;
    if (a->claim->seq == b->claim->seq)
        return true;
    return coupon_state_is_active(a->state) && coupon_state_is_active(b->state) &&
           coupon_row_nth(a) == coupon_row_nth(b) && id_equal(&a->claim->user, &b->claim->user);
}

/* Of rows that are in each other's way, the first stays. */
static void batch_flag_repeats(struct coupon_row *rows, size_t count)
{
    for (size_t i = 1; i < count; i++)
        for (size_t j = 0; j < i && !rows[i].conflicts; j++)
            rows[i].conflicts = !rows[j].conflicts && batch_conflicts(&rows[i], &rows[j]);
}

static enum status batch_flag_row(void *context, const struct sql_value *columns,
                                  struct error *error)
{
    struct ledger_mysql_batch *batch = context;

    ensure(columns[0].number >= 1 && columns[0].number <= (int64_t)ROWS_MAX);
    batch->chosen[columns[0].number - 1]->conflicts = true;
    return STATUS_OK;
}

/* Asks for the rows that are in the way. */
static enum status batch_find_runs(struct ledger_mysql_batch *batch, struct ledger_mysql_link *link,
                                   size_t count, struct error *error)
{
    struct buffer *asked = &batch->asked;

    buffer_clear(asked);
    for (size_t i = 0; i < count; i++) {
        const struct claim *claim = batch->chosen[i]->claim;
        buffer_printf(asked, "%s[%lld, %lld, ", i == 0 ? "[" : ", ", (long long)claim->policy_id,
                      (long long)claim->seq);
        json_append_text(asked, id_span(&claim->user));
        if (coupon_state_is_active(batch->chosen[i]->state))
            buffer_printf(asked, ", %d", (int)coupon_row_nth(batch->chosen[i]));
        buffer_append_text(asked, "]");
    }
    buffer_append_text(asked, "]");
    if (asked->overflowed)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a batch");
    return ledger_mysql_link_run(
        link,
        SQL_CALL(STATEMENT_coupon_conflicting, batch_flag_row, batch,
                 sql_text((struct span){.bytes = asked->bytes, .length = asked->length})),
        error);
}

static enum status batch_flag(struct ledger_mysql_batch *batch, struct ledger_mysql_link *link,
                              struct coupon_row *rows, size_t count, struct error *error)
{
    if (batch->runs_left == 0)
        return STATUS_OK;
    batch->runs_left--;
    enum status status = batch_find_runs(batch, link, batch_choose(batch, rows, count), error);
    if (status == STATUS_OK)
        batch_flag_repeats(rows, count);
    return status;
}

/* --- all of it --- */

/* Writes the chosen rows, of which there are `count`; `written_count` says how many it were. */
static enum status batch_write_chosen(struct ledger_mysql_batch *batch,
                                      struct ledger_mysql_link *link, size_t count,
                                      size_t *written_count, struct error *error)
{
    enum status status = STATUS_OK;

    *written_count = 0;
    while (*written_count < count) {
        size_t size = SIZES_COUNT - 1;
        while ((size_t)1 << size > count - *written_count)
            size--;
        status = batch_write(batch, link, batch->chosen + *written_count, size, error);
        if (status != STATUS_OK)
            break;
        *written_count += (size_t)1 << size;
    }
    return status;
}

/* Up to ROWS_MAX rows. After a duplicate, the rows from the first that is not written are looked
 * for and written again; that one is met more often is the doing of others at the same moment. */
static enum status batch_insert_some(struct ledger_mysql_batch *batch,
                                     struct ledger_mysql_link *link, struct coupon_row *rows,
                                     size_t count, struct error *error)
{
    struct coupon_row *end = rows + count;
    enum status status = STATUS_CONFLICT;

    for (int i = 0; i < TRIES_COUNT && status == STATUS_CONFLICT; i++) {
        size_t written_count = 0;
        status = batch_flag(batch, link, rows, (size_t)(end - rows), error);
        if (status != STATUS_OK)
            return status;
        size_t chosen_count = batch_choose(batch, rows, (size_t)(end - rows));
        status = batch_write_chosen(batch, link, chosen_count, &written_count, error);
        if (status == STATUS_CONFLICT) {
            batch->runs_left = RUNS_SOUGHT_MAX;
            rows = batch->chosen[written_count];
        }
    }
    return status == STATUS_CONFLICT ? STATUS_BUSY : status;
}

enum status ledger_mysql_batch_insert(struct ledger_mysql_batch *batch,
                                      struct ledger_mysql_link *link, struct coupon_row *rows,
                                      size_t count, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count; i++)
        rows[i].conflicts = false;
    while (count > 0 && status == STATUS_OK) {
        size_t some = count < ROWS_MAX ? count : ROWS_MAX;
        status = batch_insert_some(batch, link, rows, some, error);
        rows += some;
        count -= some;
    }
    return status;
}
