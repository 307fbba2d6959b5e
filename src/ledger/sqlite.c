/* sqlite.c: the ledger in one SQLite file: WAL, synchronous=FULL, one writing session.
 *
 * Only the writer checkpoints, and it does so itself after a commit instead of through SQLite's
 * automatic checkpoints, which would swallow a failed fsync. Readers open the file read-only. */
#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "ledger/driver.h"
#include "ledger/owner.h"
#include "ledger/sqlite_batch.h"
#include "ledger/sqlite_vfs.h"

/* A claim changes one page of the table's end, shared by its batch, and one page of the users'
 * index, which is its own. Small pages make that cheap, and a long WAL lets many changes of an
 * index page share one checkpoint. */
#define PAGE_SIZE             2048
#define CHECKPOINT_FRAMES     64000 /* 128 MiB of WAL */
#define BUSY_TIMEOUT_MS       5000
#define PAGE_CACHE_KIB_WRITER 32768
#define PAGE_CACHE_KIB_READER 2048

struct ledger_store {
    char *path;
    bool is_still; /* only looked at, and nobody has it open: its path is a URI that says so */
    struct owner_lock owner;
    bool has_writer; /* there is never a second one */
};

struct ledger_session {
    struct ledger_store *store;
    enum session_kind kind;
    sqlite3 *database;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    int wal_frames;
    struct sqlite_batch batch; /* of the writer: what insert_coupons is writing */
};

/* After a failed fsync the kernel may have dropped the pages it could not write and report success
 * the next time. Nothing this process believes about the file can be trusted any more; a restart
 * reads what is really there. */
static void ledger_sqlite_die(const char *words)
{
    log_event(LOG_ERROR, "fsync_failed", LOG_FIELD("error", LOG_TEXT(words)),
              LOG_FIELD("next", LOG_TEXT("the process ends; check the disk, then start again")));
    log_flush();
    _exit(1);
}

static enum status ledger_sqlite_error(sqlite3 *database, int code, const char *what,
                                       struct error *error)
{
    const char *words = database != NULL ? sqlite3_errmsg(database) : sqlite3_errstr(code);

    switch (code) {
    case SQLITE_IOERR_FSYNC:
    case SQLITE_IOERR_DIR_FSYNC:
        ledger_sqlite_die(words);
        break;
    default:
        break;
    }
    switch (code & 0xff) {
    case SQLITE_FULL:
        return error_set(error, STATUS_UNAVAILABLE, "%s: the disk is full", what);
    case SQLITE_IOERR:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_NOMEM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_INTERRUPT:
        return error_set(error, STATUS_UNAVAILABLE, "%s: %s (%d)", what, words, code);
    default:
        return error_set(error, STATUS_FAILED, "%s: %s (%d)", what, words, code);
    }
}

static enum status ledger_sqlite_execute(sqlite3 *database, const char *text, const char *what,
                                         struct error *error)
{
    if (sqlite3_exec(database, text, NULL, NULL, NULL) == SQLITE_OK)
        return STATUS_OK;
    return ledger_sqlite_error(database, sqlite3_extended_errcode(database), what, error);
}

/* --- opening --- */

static int ledger_sqlite_keep_text(void *context, int count, char **values, char **names)
{
    (void)names;
    if (count > 0 && values[0] != NULL)
        error_set(context, STATUS_OK, "%s", values[0]);
    return 0;
}

/* The single text a pragma answers. */
static enum status ledger_sqlite_pragma(sqlite3 *database, const char *text, struct error *answer,
                                        struct error *error)
{
    answer->text[0] = '\0';
    if (sqlite3_exec(database, text, ledger_sqlite_keep_text, answer, NULL) == SQLITE_OK)
        return STATUS_OK;
    return ledger_sqlite_error(database, sqlite3_extended_errcode(database), text, error);
}

static enum status ledger_sqlite_configure_writer(sqlite3 *database, struct error *error)
{
    struct error answer;
    char page_size[64];

    sqlite3_snprintf(sizeof(page_size), page_size, "PRAGMA page_size = %d", PAGE_SIZE);
    enum status status = ledger_sqlite_execute(database, page_size, "page_size", error);
    if (status == STATUS_OK)
        status = ledger_sqlite_pragma(database, "PRAGMA journal_mode = WAL", &answer, error);
    if (status != STATUS_OK)
        return status;
    if (strcmp(answer.text, "wal") != 0)
        return error_set(error, STATUS_FAILED,
                         "the file system does not allow WAL mode (journal_mode is %s); use a "
                         "local disk",
                         answer.text);
    return ledger_sqlite_execute(database,
                                 "PRAGMA synchronous = FULL;"
                                 "PRAGMA wal_autocheckpoint = 0;"
                                 "PRAGMA journal_size_limit = 134217728;"
                                 "PRAGMA foreign_keys = ON;"
                                 "PRAGMA secure_delete = OFF;"
                                 "PRAGMA temp_store = MEMORY;",
                                 "setting up the database", error);
}

static enum status ledger_sqlite_connect(const struct ledger_store *store, enum session_kind kind,
                                         sqlite3 **database, struct error *error)
{
    const char *path = store->path;
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                (store->is_still ? SQLITE_OPEN_URI : 0) |
                (kind == SESSION_READER ? SQLITE_OPEN_READONLY
                                        : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    int code = sqlite3_open_v2(path, database, flags, sqlite_vfs_register());
    enum status status = STATUS_OK;

    if (code != SQLITE_OK) {
        status = ledger_sqlite_error(*database, code, path, error);
    } else {
        char cache[64];
        sqlite3_snprintf(sizeof(cache), cache, "PRAGMA cache_size = -%d",
                         kind == SESSION_WRITER ? PAGE_CACHE_KIB_WRITER : PAGE_CACHE_KIB_READER);
        sqlite3_busy_timeout(*database, BUSY_TIMEOUT_MS);
        status = ledger_sqlite_execute(*database, cache, path, error);
    }
    if (status == STATUS_OK && kind != SESSION_READER)
        status = ledger_sqlite_configure_writer(*database, error);
    if (status != STATUS_OK) {
        sqlite3_close(*database);
        *database = NULL;
    }
    return status;
}

static enum status ledger_sqlite_check(sqlite3 *database, const char *path,
                                       enum ledger_integrity integrity, struct error *error)
{
    struct error answer;

    if (integrity == LEDGER_CHECK_OFF)
        return STATUS_OK;
    enum status status = ledger_sqlite_pragma(
        database,
        integrity == LEDGER_CHECK_FULL ? "PRAGMA integrity_check(1)" : "PRAGMA quick_check(1)",
        &answer, error);
    if (status == STATUS_OK && strcmp(answer.text, "ok") != 0)
        return error_set(error, STATUS_FAILED,
                         "%s is damaged: %s; restore a backup, or save what is left with "
                         "`sqlite3 %s .recover`",
                         path, answer.text, path);
    return status;
}

static void ledger_sqlite_store_close(struct ledger_store *store)
{
    if (store == NULL)
        return;
    owner_lock_release(&store->owner);
    free(store->path);
    free(store);
}

static const char *ledger_sqlite_path(const char *url)
{
    return url + strlen("sqlite:");
}

/* "file:PATH?immutable=1", with what URIs give a meaning to escaped. */
static char *ledger_sqlite_still_uri(const char *path)
{
    struct buffer uri;

    buffer_init(&uri, 4 * strlen(path) + 64);
    buffer_append_text(&uri, "file:");
    for (const char *at = path; *at != '\0'; at++)
        buffer_printf(&uri, strchr("%?#", *at) != NULL ? "%%%02X" : "%c", (unsigned char)*at);
    buffer_append_text(&uri, "?immutable=1");
    char *text = uri.overflowed ? NULL : strndup(uri.bytes, uri.length);
    buffer_release(&uri);
    return text;
}

/* A database that is only looked at and does not exist is an empty one in memory. One that nobody
 * has open has no log beside it; opened as usual, SQLite would make one. */
static enum status ledger_sqlite_store_look(struct ledger_store *store, struct error *error)
{
    char *log_path = sqlite3_mprintf("%s-wal", store->path);
    char *path = NULL;
    bool exists = access(store->path, F_OK) == 0 || errno != ENOENT;

    store->is_still = exists && log_path != NULL && access(log_path, F_OK) != 0;
    sqlite3_free(log_path);
    if (exists && !store->is_still)
        return STATUS_OK;
    path = exists ? ledger_sqlite_still_uri(store->path) : strdup(":memory:");
    free(store->path);
    store->path = path;
    return path != NULL ? STATUS_OK : error_set(error, STATUS_UNAVAILABLE, "no memory");
}

/* Locks the file and checks it. */
static enum status ledger_sqlite_store_own(struct ledger_store *store,
                                           enum ledger_integrity integrity, struct error *error)
{
    sqlite3 *database = NULL;
    enum status status = owner_lock_take(&store->owner, store->path, error);

    if (status == STATUS_OK)
        status = ledger_sqlite_connect(store, SESSION_WRITER, &database, error);
    if (status == STATUS_OK)
        status = ledger_sqlite_check(database, store->path, integrity, error);
    sqlite3_close(database);
    return status;
}

static enum status ledger_sqlite_store_open(struct ledger_store **store,
                                            const struct store_options *options,
                                            struct error *error)
{
    const char *path = ledger_sqlite_path(options->url);
    struct ledger_store *opened = calloc(1, sizeof(*opened));

    *store = NULL;
    if (path[0] == '\0' || strcmp(path, ":memory:") == 0) {
        free(opened);
        return error_set(error, STATUS_INVALID, "sqlite: needs a file name, as in sqlite:dibs.db");
    }
    if (opened == NULL || (opened->path = strdup(path)) == NULL) {
        free(opened);
        return error_set(error, STATUS_UNAVAILABLE, "no memory to open %s", path);
    }
    enum status status = options->looks_only
                             ? ledger_sqlite_store_look(opened, error)
                             : ledger_sqlite_store_own(opened, options->integrity, error);
    if (status != STATUS_OK) {
        ledger_sqlite_store_close(opened);
        return status;
    }
    *store = opened;
    return STATUS_OK;
}

/* --- sessions --- */

static void ledger_sqlite_session_close(struct ledger_session *session)
{
    if (session == NULL)
        return;
    for (size_t i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(session->statements[i]);
    sqlite3_close(session->database);
    if (session->kind == SESSION_WRITER)
        session->store->has_writer = false;
    free(session);
}

static int ledger_sqlite_note_frames(void *context, sqlite3 *database, const char *name, int frames)
{
    struct ledger_session *session = context;
    (void)database;
    (void)name;
    session->wal_frames = frames;
    return SQLITE_OK;
}

static enum status ledger_sqlite_session_open(struct ledger_store *store, enum session_kind kind,
                                              struct ledger_session **session, struct error *error)
{
    struct ledger_session *opened = calloc(1, sizeof(*opened));

    *session = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a session");
    enum status status = ledger_sqlite_connect(store, kind, &opened->database, error);
    if (status != STATUS_OK) {
        free(opened);
        return status;
    }
    opened->store = store;
    opened->kind = kind;
    if (kind == SESSION_WRITER) {
        ensure(!store->has_writer);
        store->has_writer = true;
        sqlite3_wal_hook(opened->database, ledger_sqlite_note_frames, opened);
        ensure(sqlite_batch_register(opened->database, &opened->batch) == SQLITE_OK);
    }
    *session = opened;
    return STATUS_OK;
}

static enum status ledger_sqlite_prepare(struct ledger_session *session, enum statement statement,
                                         sqlite3_stmt **prepared, struct error *error)
{
    unsigned long length = 0;

    *prepared = session->statements[statement];
    if (*prepared != NULL)
        return STATUS_OK;
    const char *text = statement_text(statement_file("sqlite"), statement, &length);
    ensure(text != NULL);
    int code = sqlite3_prepare_v3(session->database, text, (int)length, SQLITE_PREPARE_PERSISTENT,
                                  prepared, NULL);
    if (code != SQLITE_OK)
        return ledger_sqlite_error(session->database, code, statement_name(statement), error);
    session->statements[statement] = *prepared;
    return STATUS_OK;
}

/* --- transactions --- */

static enum status ledger_sqlite_begin(struct ledger_session *session, struct error *error)
{
    return ledger_sqlite_execute(session->database,
                                 session->kind == SESSION_WRITER ? "BEGIN IMMEDIATE" : "BEGIN",
                                 "begin", error);
}

static enum status ledger_sqlite_commit(struct ledger_session *session, struct error *error)
{
    return ledger_sqlite_execute(session->database, "COMMIT", "commit", error);
}

static void ledger_sqlite_rollback(struct ledger_session *session)
{
    if (!sqlite3_get_autocommit(session->database))
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

static enum status ledger_sqlite_run(struct ledger_session *session, enum statement statement,
                                     const struct sql_value *values, size_t value_count,
                                     sql_row_fn row, void *context, int64_t *changed,
                                     struct error *error)
{
    sqlite3_stmt *prepared = NULL;
    struct sql_value columns[SQL_COLUMNS_MAX];
    enum status status = ledger_sqlite_prepare(session, statement, &prepared, error);
    int code = SQLITE_OK;

    if (status != STATUS_OK)
        return status;
    for (size_t i = 0; i < value_count && code == SQLITE_OK; i++)
        code = ledger_sqlite_bind(prepared, (int)i + 1, &values[i]);
    if (code == SQLITE_OK) {
        while ((code = sqlite3_step(prepared)) == SQLITE_ROW && status == STATUS_OK) {
            if (row == NULL)
                continue;
            ledger_sqlite_read_row(prepared, columns);
            status = row(context, columns, error);
        }
    }
    if (changed != NULL)
        *changed = sqlite3_changes64(session->database);
    if (status == STATUS_OK && code != SQLITE_DONE)
        status = ledger_sqlite_error(session->database, code, statement_name(statement), error);
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
    (void)session;
    (void)error;
    return STATUS_OK;
}

static void ledger_sqlite_schema_unlock(struct ledger_session *session)
{
    (void)session;
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

/* --- checkpoints --- */

static bool ledger_sqlite_tend(struct ledger_session *session)
{
    ensure(session->kind == SESSION_WRITER);
    if (session->wal_frames < CHECKPOINT_FRAMES)
        return false;
    FAULT_POINT("ledger.before_checkpoint");
    int code =
        sqlite3_wal_checkpoint_v2(session->database, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    session->wal_frames = 0;
    if (code != SQLITE_OK && code != SQLITE_BUSY) {
        struct error error;
        (void)ledger_sqlite_error(session->database, code, "checkpoint", &error);
        log_event(LOG_WARN, "checkpoint_failed", LOG_FIELD("error", LOG_TEXT(error.text)),
                  LOG_FIELD("next", LOG_TEXT("the log file grows until one succeeds")));
        return false;
    }
    return code == SQLITE_OK;
}

static const char *const ledger_sqlite_schemes[] = {"sqlite", NULL};

static int64_t ledger_sqlite_room(const struct ledger_store *store)
{
    struct statvfs disk;

    return statvfs(store->path, &disk) == 0 ? (int64_t)(disk.f_bavail * disk.f_frsize) : -1;
}

const struct ledger_driver ledger_sqlite_driver = {
    .name = "sqlite",
    .schemes = ledger_sqlite_schemes,
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
    .tend = ledger_sqlite_tend,
    .room = ledger_sqlite_room,
    .schema_lock = ledger_sqlite_schema_lock,
    .schema_unlock = ledger_sqlite_schema_unlock,
    .schema_version = ledger_sqlite_schema_version,
    .schema_apply = ledger_sqlite_schema_apply,
};
