/* driver.c: the ledger in one SQLite file: WAL, synchronous=FULL, one writing session.
 *
 * Only the writer checkpoints, and it does so itself after a commit (checkpoint.h) instead of
 * through SQLite's automatic checkpoints, which would swallow a failed fsync. Readers open the file
 * read-only. */
#include <sqlite3.h>
#include <stdlib.h>

#include "ledger/rows.h"
#include "ledger/sqlite/checkpoint.h"

/* What the table `incoming_coupon` shows: rows from `next` on. `next` is the row being written, so
 * that after a failure it tells which one it was. */
struct sqlite_batch {
    const struct coupon_row *rows;
    size_t count;
    size_t next;
};

struct ledger_session {
    struct ledger_store *store;
    enum session_kind kind;
    unsigned generation; /* of the store, when this was connected */
    sqlite3 *database;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    int wal_frames; /* of the writer, as this too: as of the last commit */
    struct checkpointer checkpointer;
    struct sqlite_batch batch; /* what insert_coupons is writing */
};

/* --- the rows about to be written, as a table that SQLite can read ---
 *
 * One INSERT … SELECT from it writes a whole batch, which spares SQLite the start and the end of a
 * statement per row and lets it append to the end of the table without searching for it. */

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
    info->estimatedCost = 1;
    info->estimatedRows = 100;
    return SQLITE_OK;
}

static int batch_open(sqlite3_vtab *table, sqlite3_vtab_cursor **cursor)
{
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

static int batch_column(sqlite3_vtab_cursor *cursor, sqlite3_context *context, int column)
{
    const struct sqlite_batch *batch = batch_of(cursor);
    const struct sql_value value =
        rows_coupon_value(&batch->rows[batch->next], (enum coupon_column)column);

    switch (value.kind) {
    case SQL_I64:
        sqlite3_result_int64(context, value.number);
        break;
    case SQL_TEXT:
        sqlite3_result_text(context, value.bytes.bytes, (int)value.bytes.length, SQLITE_STATIC);
        break;
    case SQL_BLOB:
        sqlite3_result_blob(context, value.bytes.bytes, (int)value.bytes.length, SQLITE_STATIC);
        break;
    case SQL_NULL:
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

/* --- sessions --- */

static void ledger_sqlite_session_disconnect(struct ledger_session *session)
{
    for (size_t i = 0; i < STATEMENT_COUNT; i++) {
        sqlite3_finalize(session->statements[i]);
        session->statements[i] = NULL;
    }
    checkpointer_close(&session->checkpointer);
    ledger_sqlite_disconnect(session->store, session->database);
    session->database = NULL;
}

static void ledger_sqlite_session_close(struct ledger_session *session)
{
    if (session == NULL)
        return;
    /* The writer's connection is the last one: that folds the log in. */
    if (session->kind == SESSION_WRITER)
        sqlite_check_stop(&session->store->check);
    ledger_sqlite_session_disconnect(session);
    if (session->kind == SESSION_WRITER)
        session->store->has_writer = false;
    free(session);
}

static int ledger_sqlite_note_frames(void *context, sqlite3 *database, const char *name, int frames)
{
    struct ledger_session *session = context;
    session->wal_frames = frames;
    return SQLITE_OK;
}

static enum status ledger_sqlite_session_connect(struct ledger_session *session,
                                                 struct error *error)
{
    struct ledger_store *store = session->store;
    enum status status = ledger_sqlite_connect(store, session->kind, &session->database, error);

    if (status != STATUS_OK)
        return status;
    session->generation = atomic_load(&store->generation);
    if (session->kind == SESSION_WRITER) {
        store->log = ledger_sqlite_identify(store->path, "-wal");
        sqlite3_wal_hook(session->database, ledger_sqlite_note_frames, session);
        ensure(sqlite3_create_module(session->database, "incoming_coupon", &batch_module,
                                     &session->batch) == SQLITE_OK);
        session->wal_frames = 0;
        status = checkpointer_open(&session->checkpointer, store, session->database,
                                   &checkpoint_limits_default, error);
    }
    if (status != STATUS_OK)
        ledger_sqlite_session_disconnect(session);
    return status;
}

/* Outside a transaction: another file may have taken the place of the one it is connected to. */
static enum status ledger_sqlite_session_follow(struct ledger_session *session, struct error *error)
{
    if (session->database != NULL &&
        session->generation == atomic_load(&session->store->generation))
        return STATUS_OK;
    ledger_sqlite_session_disconnect(session);
    return ledger_sqlite_session_connect(session, error);
}

static enum status ledger_sqlite_session_open(struct ledger_store *store, enum session_kind kind,
                                              struct ledger_session **session, struct error *error)
{
    struct ledger_session *opened = calloc(1, sizeof(*opened));
    enum status status = STATUS_OK;

    *session = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a session");
    *opened = (struct ledger_session){.store = store, .kind = kind};
    if (kind == SESSION_SCHEMA && !ledger_sqlite_is_there(store))
        status = ledger_sqlite_adopt(store, error);
    if (status == STATUS_OK)
        status = ledger_sqlite_session_connect(opened, error);
    if (status != STATUS_OK) {
        free(opened);
        return status;
    }
    if (kind == SESSION_WRITER) {
        ensure(!store->has_writer);
        store->has_writer = true;
    }
    *session = opened;
    return STATUS_OK;
}

static enum status ledger_sqlite_prepare(struct ledger_session *session, enum statement statement,
                                         sqlite3_stmt **prepared, struct error *error)
{
    *prepared = session->statements[statement];
    if (*prepared != NULL)
        return STATUS_OK;
    ensure(sqlite_statements[statement] != NULL);
    int code = sqlite3_prepare_v3(session->database, sqlite_statements[statement], -1,
                                  SQLITE_PREPARE_PERSISTENT, prepared, NULL);
    if (code != SQLITE_OK)
        return ledger_sqlite_error(session->database, code, statement_names[statement], error);
    session->statements[statement] = *prepared;
    return STATUS_OK;
}

/* --- transactions --- */

static enum status ledger_sqlite_begin(struct ledger_session *session, struct error *error)
{
    enum status status = ledger_sqlite_session_follow(session, error);

    if (status != STATUS_OK)
        return status;
    if (session->kind == SESSION_WRITER && !ledger_sqlite_is_there(session->store))
        return ledger_sqlite_exchanged(session->store, error);
    return ledger_sqlite_execute(session->database,
                                 session->kind == SESSION_WRITER ? "BEGIN IMMEDIATE" : "BEGIN",
                                 "begin", error);
}

static enum status ledger_sqlite_commit(struct ledger_session *session, struct error *error)
{
    if (session->kind == SESSION_WRITER && !ledger_sqlite_is_there(session->store))
        return ledger_sqlite_exchanged(session->store, error);
    return ledger_sqlite_execute(session->database, "COMMIT", "commit", error);
}

static void ledger_sqlite_rollback(struct ledger_session *session)
{
    if (session->database != NULL && !sqlite3_get_autocommit(session->database))
        sqlite3_exec(session->database, "ROLLBACK", NULL, NULL, NULL);
}

static enum status ledger_sqlite_savepoint(struct ledger_session *session, struct error *error)
{
    return ledger_sqlite_execute(session->database, "SAVEPOINT one_write", "savepoint", error);
}

static enum status ledger_sqlite_savepoint_end(struct ledger_session *session, bool keep,
                                               struct error *error)
{
    return ledger_sqlite_execute(
        session->database, keep ? "RELEASE one_write" : "ROLLBACK TO one_write; RELEASE one_write",
        "savepoint", error);
}

/* --- statements --- */

static int ledger_sqlite_bind(sqlite3_stmt *prepared, int at, const struct sql_value *value)
{
    switch (value->kind) {
    case SQL_I64:
        return sqlite3_bind_int64(prepared, at, value->number);
    case SQL_TEXT:
        return sqlite3_bind_text(prepared, at, value->bytes.bytes, (int)value->bytes.length,
                                 SQLITE_STATIC);
    case SQL_BLOB:
        return sqlite3_bind_blob(prepared, at, value->bytes.bytes, (int)value->bytes.length,
                                 SQLITE_STATIC);
    case SQL_NULL:
        break;
    }
    return sqlite3_bind_null(prepared, at);
}

static void ledger_sqlite_read_row(sqlite3_stmt *prepared, struct sql_value *columns)
{
    int count = sqlite3_data_count(prepared);

    ensure(count <= SQL_COLUMNS_MAX);
    for (int i = 0; i < count; i++) {
        switch (sqlite3_column_type(prepared, i)) {
        case SQLITE_INTEGER:
            columns[i] = sql_i64(sqlite3_column_int64(prepared, i));
            break;
        case SQLITE_TEXT:
            columns[i] = (struct sql_value){.kind = SQL_TEXT};
            columns[i].bytes.bytes = (const char *)sqlite3_column_text(prepared, i);
            columns[i].bytes.length = (size_t)sqlite3_column_bytes(prepared, i);
            break;
        case SQLITE_BLOB:
            columns[i] = (struct sql_value){.kind = SQL_BLOB};
            columns[i].bytes.bytes = sqlite3_column_blob(prepared, i);
            columns[i].bytes.length = (size_t)sqlite3_column_bytes(prepared, i);
            break;
        default:
            columns[i] = sql_null();
            break;
        }
    }
}

static enum status ledger_sqlite_run(struct ledger_session *session, const struct sql_call *call,
                                     struct error *error)
{
    sqlite3_stmt *prepared = NULL;
    struct sql_value columns[SQL_COLUMNS_MAX];
    int code = SQLITE_OK;
    enum status status = STATUS_OK;

    if (session->database == NULL || sqlite3_get_autocommit(session->database))
        status = ledger_sqlite_session_follow(session, error);
    if (status == STATUS_OK)
        status = ledger_sqlite_prepare(session, call->statement, &prepared, error);
    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < call->value_count && code == SQLITE_OK; i++)
        code = ledger_sqlite_bind(prepared, (int)i + 1, &call->values[i]);
    if (code == SQLITE_OK) {
        while ((code = sqlite3_step(prepared)) == SQLITE_ROW && status == STATUS_OK) {
            if (call->row == NULL)
                continue;
            ledger_sqlite_read_row(prepared, columns);
            status = call->row(call->context, columns, error);
        }
    }
    if (call->changed != NULL)
        *call->changed = sqlite3_changes64(session->database);
    if (status == STATUS_OK && code != SQLITE_DONE)
        status =
            ledger_sqlite_error(session->database, code, statement_names[call->statement], error);
    sqlite3_reset(prepared);
    return status;
}

/* OR FAIL keeps the rows before the one that conflicts; that one is noted and passed over. When the
 * table has triggers, SQLite reads all rows before it writes the first: then it is only known that
 * one of them conflicts. */
static enum status ledger_sqlite_insert_coupons(struct ledger_session *session,
                                                struct coupon_row *rows, size_t count,
                                                struct error *error)
{
    sqlite3_stmt *prepared = NULL;
    struct sqlite_batch *batch = &session->batch;
    enum status status = ledger_sqlite_prepare(session, STATEMENT_coupon_insert, &prepared, error);

    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        rows[i].conflicts = false;
    *batch = (struct sqlite_batch){.rows = rows, .count = count};
    while (batch->next < count && status == STATUS_OK) {
        int code = sqlite3_step(prepared);
        sqlite3_reset(prepared);
        bool is_conflict = code == SQLITE_CONSTRAINT_PRIMARYKEY || code == SQLITE_CONSTRAINT_UNIQUE;
        if (is_conflict && count == 1)
            batch->next = 0;
        if (is_conflict && batch->next < count)
            rows[batch->next++].conflicts = true;
        else if (is_conflict)
            status = error_set(error, STATUS_CONFLICT, "one of %zu rows is there already", count);
        else if ((code & 0xff) == SQLITE_CONSTRAINT || code == SQLITE_MISMATCH)
            status = error_set(error, STATUS_INVALID, "a row is refused: %s",
                               sqlite3_errmsg(session->database));
        else if (code != SQLITE_DONE)
            status = ledger_sqlite_error(session->database, code, "coupon_insert", error);
    }
    return status;
}

/* --- the schema --- */

/* The file's lock keeps others away already. */
static enum status ledger_sqlite_schema_lock(struct ledger_session *session, struct error *error)
{
    return STATUS_OK;
}

static void ledger_sqlite_schema_unlock(struct ledger_session *session)
{
}

static enum status ledger_sqlite_schema_version(struct ledger_session *session, int *version,
                                                struct error *error)
{
    struct error answer;
    enum status status =
        ledger_sqlite_pragma(session->database, "PRAGMA user_version", &answer, error);
    if (status == STATUS_OK)
        *version = (int)strtol(answer.text, NULL, 10);
    return status;
}

/* Moves user_version in the same transaction. */
static enum status ledger_sqlite_schema_apply(struct ledger_session *session, int number,
                                              const char *name, const char *text,
                                              struct error *error)
{
    sqlite3 *database = session->database;
    char move[64];
    sqlite3_snprintf(sizeof(move), move, "PRAGMA user_version = %d", number);

    enum status status = ledger_sqlite_execute(database, "BEGIN IMMEDIATE", name, error);
    if (status == STATUS_OK)
        status = ledger_sqlite_execute(database, text, name, error);
    if (status == STATUS_OK)
        status = ledger_sqlite_execute(database, move, name, error);
    if (status == STATUS_OK)
        status = ledger_sqlite_execute(database, "COMMIT", name, error);
    if (status != STATUS_OK)
        sqlite3_exec(database, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

/* --- between two commits --- */

static int64_t ledger_sqlite_tend(struct ledger_session *session, struct ledger_stats *stats)
{
    ensure(session->kind == SESSION_WRITER);
    if (session->database == NULL)
        return 0;
    struct checkpoint_progress progress =
        checkpointer_step(&session->checkpointer, session->wal_frames);
    atomic_store_explicit(&stats->log_bytes, checkpointer_log_bytes(&session->checkpointer),
                          memory_order_relaxed);
    if (progress.is_over)
        atomic_fetch_add_explicit(&stats->checkpoints, 1, memory_order_relaxed);
    if (progress.pause_ms > 0)
        atomic_fetch_add_explicit(&stats->slowed_commits, 1, memory_order_relaxed);
    return progress.pause_ms;
}

const struct ledger_driver ledger_sqlite_driver = {
    .name = "sqlite",
    .is_remote = false,
    .store_open = ledger_sqlite_store_open,
    .store_close = ledger_sqlite_store_close,
    .session_open = ledger_sqlite_session_open,
    .session_close = ledger_sqlite_session_close,
    .begin = ledger_sqlite_begin,
    .commit = ledger_sqlite_commit,
    .rollback = ledger_sqlite_rollback,
    .savepoint = ledger_sqlite_savepoint,
    .savepoint_end = ledger_sqlite_savepoint_end,
    .run = ledger_sqlite_run,
    .insert_coupons = ledger_sqlite_insert_coupons,
    .file = &(const struct ledger_file){.tend = ledger_sqlite_tend,
                                        .room = ledger_sqlite_room,
                                        .backup = ledger_sqlite_backup,
                                        .restore = ledger_sqlite_restore},
    .schema_lock = ledger_sqlite_schema_lock,
    .schema_unlock = ledger_sqlite_schema_unlock,
    .schema_version = ledger_sqlite_schema_version,
    .schema_apply = ledger_sqlite_schema_apply,
};
