/* sqlite_batch.c: a virtual table over the rows of a batch, read once from front to back. */
#include "ledger/sqlite_batch.h"

#include <stdlib.h>

/* In the order of the columns of coupon_insert. */
enum batch_column {
    COLUMN_POLICY_ID,
    COLUMN_SEQ,
    COLUMN_USER_ID,
    COLUMN_NTH,
    COLUMN_SLOT,
    COLUMN_STATE,
    COLUMN_REQUEST_ID,
    COLUMN_LEASE_ID,
    COLUMN_REQUESTED_AT,
    COLUMN_ISSUED_AT,
    COLUMN_EXPIRES_AT,
    COLUMN_MERGED_INTO,
    COLUMN_REASON,
};

static const char batch_schema[] =
    "CREATE TABLE incoming_coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id,"
    " requested_at, issued_at, expires_at, merged_into, reason)";

struct batch_table {
    sqlite3_vtab base;
    struct sqlite_batch *batch;
};

static struct sqlite_batch *batch_of(sqlite3_vtab_cursor *cursor)
{
    return ((struct batch_table *)cursor->pVtab)->batch;
}

static int batch_connect(sqlite3 *database, void *context, int argument_count,
                         const char *const *arguments, sqlite3_vtab **table, char **error)
{
    struct batch_table *made = calloc(1, sizeof(*made));

    (void)argument_count;
    (void)arguments;
    (void)error;
    if (made == NULL)
        return SQLITE_NOMEM;
    made->batch = context;
    *table = &made->base;
    return sqlite3_declare_vtab(database, batch_schema);
}

static int batch_disconnect(sqlite3_vtab *table)
{
    free(table);
    return SQLITE_OK;
}

static int batch_best_index(sqlite3_vtab *table, sqlite3_index_info *info)
{
    (void)table;
    info->estimatedCost = 1;
    info->estimatedRows = 100;
    return SQLITE_OK;
}

static int batch_open(sqlite3_vtab *table, sqlite3_vtab_cursor **cursor)
{
    (void)table;
    *cursor = calloc(1, sizeof(**cursor));
    return *cursor == NULL ? SQLITE_NOMEM : SQLITE_OK;
}

static int batch_close(sqlite3_vtab_cursor *cursor)
{
    free(cursor);
    return SQLITE_OK;
}

/* The batch itself remembers the place: reading goes on where it stopped. */
static int batch_filter(sqlite3_vtab_cursor *cursor, int index, const char *index_text,
                        int argument_count, sqlite3_value **arguments)
{
    (void)cursor;
    (void)index;
    (void)index_text;
    (void)argument_count;
    (void)arguments;
    return SQLITE_OK;
}

static int batch_next(sqlite3_vtab_cursor *cursor)
{
    batch_of(cursor)->next++;
    return SQLITE_OK;
}

static int batch_eof(sqlite3_vtab_cursor *cursor)
{
    const struct sqlite_batch *batch = batch_of(cursor);
    return batch->next >= batch->count;
}

static int batch_rowid(sqlite3_vtab_cursor *cursor, sqlite3_int64 *rowid)
{
    *rowid = (sqlite3_int64)batch_of(cursor)->next;
    return SQLITE_OK;
}

/* 0 stands for "none" in our structs and is NULL in the tables. */
static void batch_result_or_null(sqlite3_context *context, int64_t number)
{
    if (number != 0)
        sqlite3_result_int64(context, number);
    else
        sqlite3_result_null(context);
}

static int batch_column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int column)
{
    const struct sqlite_batch *batch = batch_of(cursor);
    const struct coupon_row *row = &batch->rows[batch->next];
    const struct claim *claim = row->claim;

    switch ((enum batch_column)column) {
    case COLUMN_POLICY_ID:
        sqlite3_result_int64(context, claim->policy_id);
        break;
    case COLUMN_SEQ:
        sqlite3_result_int64(context, claim->seq);
        break;
    case COLUMN_USER_ID:
        sqlite3_result_text(context, claim->user.bytes, claim->user.length, SQLITE_STATIC);
        break;
    case COLUMN_NTH:
        sqlite3_result_int(context, coupon_row_nth(row));
        break;
    case COLUMN_SLOT:
        batch_result_or_null(context, coupon_state_is_active(row->state) ? coupon_row_nth(row) : 0);
        break;
    case COLUMN_STATE:
        sqlite3_result_text(context, coupon_state_name(row->state), -1, SQLITE_STATIC);
        break;
    case COLUMN_REQUEST_ID:
        sqlite3_result_blob(context, claim->request_id.bytes, sizeof(claim->request_id.bytes),
                            SQLITE_STATIC);
        break;
    case COLUMN_LEASE_ID:
        sqlite3_result_int64(context, claim->lease_id);
        break;
    case COLUMN_REQUESTED_AT:
        sqlite3_result_int64(context, claim->requested_at_ms);
        break;
    case COLUMN_ISSUED_AT:
        sqlite3_result_int64(context, row->issued_at_ms);
        break;
    case COLUMN_EXPIRES_AT:
        batch_result_or_null(context, row->expires_at_ms);
        break;
    case COLUMN_MERGED_INTO:
        batch_result_or_null(context, row->merged_into_seq);
        break;
    case COLUMN_REASON:
        if (row->reason != NULL)
            sqlite3_result_text(context, row->reason, -1, SQLITE_STATIC);
        break;
    }
    return SQLITE_OK;
}

/* Without xCreate the table exists by itself, under the name of its module. */
static const sqlite3_module batch_module = {
    .xConnect = batch_connect,
    .xBestIndex = batch_best_index,
    .xDisconnect = batch_disconnect,
    .xOpen = batch_open,
    .xClose = batch_close,
    .xFilter = batch_filter,
    .xNext = batch_next,
    .xEof = batch_eof,
    .xColumn = batch_column,
    .xRowid = batch_rowid,
};

int sqlite_batch_register(sqlite3 *database, struct sqlite_batch *batch)
{
    return sqlite3_create_module(database, "incoming_coupon", &batch_module, batch);
}
