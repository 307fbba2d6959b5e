/* totals.c: adds minutes to minutes or hours, each batch once, and reads them. */
#include "ledger/totals.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "ledger/inside.h"
#include "ledger/list.h"
#include "ledger/rows.h"

#define MINUTE_MS    INT64_C(60000)
#define HOUR_MS      (60 * MINUTE_MS)
#define AT_ONCE      1000
#define FORGOTTEN_MS (7 * 24 * HOUR_MS) /* a batch that is repeated so late is none of ours */

struct totals_write {
    const struct claim_totals_batch *batch;
    struct claim_total *rows; /* as they are written */
    size_t count;
    struct buffer text;
};

/* Two servers that write the same rows lock them in the same order. */
static int totals_compare(const void *a, const void *b)
{
    const struct claim_total *first = a;
    const struct claim_total *second = b;

    if (first->policy_id != second->policy_id)
        return first->policy_id < second->policy_id ? -1 : 1;
    if (first->starts_at_ms != second->starts_at_ms)
        return first->starts_at_ms < second->starts_at_ms ? -1 : 1;
    if (first->seconds != second->seconds)
        return first->seconds < second->seconds ? -1 : 1;
    return strcmp(first->result, second->result);
}

/* The minute as it is kept: itself in the first hour, else the hour that it is in. */
static void totals_place(struct claim_total *total, int64_t opened_at_ms)
{
    int64_t since_ms = total->starts_at_ms - (opened_at_ms - opened_at_ms % MINUTE_MS);
    bool is_early = since_ms >= 0 && since_ms < HOUR_MS;

    total->seconds = is_early ? 60 : 3600;
    if (!is_early)
        total->starts_at_ms -= total->starts_at_ms % HOUR_MS;
}

static enum status totals_prepare(struct sql *sql, struct totals_write *write, struct error *error)
{
    const struct claim_totals_batch *batch = write->batch;
    int64_t policy_id = 0;
    int64_t opened_at_ms = 0;
    enum status status = STATUS_OK;

    write->count = 0;
    for (size_t i = 0; i < batch->count && status == STATUS_OK; i++) {
        struct claim_total *row = &write->rows[write->count];
        *row = batch->totals[i];
        if (row->policy_id != policy_id) {
            policy_id = row->policy_id;
            opened_at_ms = 0;
            status = SQL_RUN(sql, STATEMENT_total_opening, rows_take_i64, &opened_at_ms, error,
                             sql_i64(policy_id));
        }
        if (opened_at_ms == 0)
            continue;
        totals_place(row, opened_at_ms);
        write->count++;
    }
    if (status != STATUS_OK || write->count == 0)
        return status;
    qsort(write->rows, write->count, sizeof(*write->rows), totals_compare);
    size_t kept = 1;
    for (size_t i = 1; i < write->count; i++)
        if (totals_compare(&write->rows[kept - 1], &write->rows[i]) == 0)
            write->rows[kept - 1].count += write->rows[i].count;
        else
            write->rows[kept++] = write->rows[i];
    write->count = kept;
    return STATUS_OK;
}

static enum status totals_add_some(struct sql *sql, struct totals_write *write, size_t first,
                                   struct error *error)
{
    size_t end = write->count - first > AT_ONCE ? first + AT_ONCE : write->count;
    struct sql_value rows;

    list_begin(&write->text);
    for (size_t i = first; i < end; i++) {
        const struct claim_total *row = &write->rows[i];
        LIST_ROW(&write->text, sql_i64(row->policy_id), sql_i64(row->starts_at_ms),
                 sql_i64(row->seconds), sql_text(span_of(row->result)), sql_i64(row->count));
    }
    enum status status = list_end(&write->text, &rows, error);
    return status == STATUS_OK ? SQL_WRITE(sql, STATEMENT_total_add, error, rows) : status;
}

static enum status totals_write(struct sql *sql, void *argument, struct error *error)
{
    struct totals_write *write = argument;
    const struct claim_totals_batch *batch = write->batch;
    int64_t number = 0;
    enum status status = SQL_RUN(sql, STATEMENT_total_batch_read, rows_take_i64, &number, error,
                                 sql_i64(batch->process));

    if (status != STATUS_OK || number >= batch->number)
        return status;
    if (batch->number == 1)
        status = SQL_WRITE(sql, STATEMENT_total_batch_trim, error,
                           sql_i64(batch->now_ms - FORGOTTEN_MS));
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_total_batch_put, error, sql_i64(batch->process),
                           sql_i64(batch->number), sql_i64(batch->now_ms));
    if (status == STATUS_OK)
        status = totals_prepare(sql, write, error);
    for (size_t i = 0; i < write->count && status == STATUS_OK; i += AT_ONCE)
        status = totals_add_some(sql, write, i, error);
    return status;
}

enum status ledger_totals_add(struct ledger *ledger, const struct claim_totals_batch *batch,
                              struct error *error)
{
    struct totals_write write = {.batch = batch,
                                 .rows = malloc((batch->count + 1) * sizeof(*write.rows))};

    if (write.rows == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the totals of claims");
    buffer_init(&write.text, LIST_LENGTH_MAX);
    enum status status = ledger_write_counts(ledger, totals_write, &write, error);
    buffer_release(&write.text);
    free(write.rows);
    return status;
}

static enum status totals_end(struct sql *sql, void *argument, struct error *error)
{
    return SQL_WRITE(sql, STATEMENT_total_batch_drop, error, sql_i64(*(const int64_t *)argument));
}

enum status ledger_totals_end(struct ledger *ledger, int64_t process, struct error *error)
{
    return ledger_write(ledger, totals_end, &process, error);
}

/* --- reading --- */

struct totals_read {
    struct claim_total *totals;
    size_t count;
    size_t capacity;
    int64_t policy_id;
};

static enum status totals_take(void *context, const struct sql_value *columns, struct error *error)
{
    struct totals_read *read = context;

    if (!array_make_room(read->totals, read->count, read->capacity))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the totals of claims");
    struct claim_total *total = &read->totals[read->count++];
    *total = (struct claim_total){.policy_id = read->policy_id,
                                  .starts_at_ms = columns[0].number,
                                  .seconds = columns[1].number,
                                  .count = columns[3].number};
    rows_read_text(&columns[2], total->result, sizeof(total->result));
    return STATUS_OK;
}

enum status ledger_totals(struct ledger *ledger, int64_t policy_id, struct claim_total **totals,
                          size_t *count, struct error *error)
{
    struct totals_read read = {.policy_id = policy_id};
    enum status status =
        LEDGER_READ(ledger, STATEMENT_total_list, totals_take, &read, error, sql_i64(policy_id));

    *totals = read.totals;
    *count = status == STATUS_OK ? read.count : 0;
    return status;
}
