/* mark.c: enters, moves and looks up the writer's mark. */
#include "ledger/mark.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"
#include "ledger/rows.h"

#define OWNER_NAME   "owner"
#define SHARE_PREFIX "share-"

#define HOLDER_SIZE  sizeof(((struct mark *)0)->holder)

struct mark_row {
    bool found;
    int64_t value;
    char holder[HOLDER_SIZE];
};

static enum status mark_read_row(void *context, const struct sql_value *columns,
                                 struct error *error)
{
    struct mark_row *row = context;

    *row = (struct mark_row){.found = true, .value = columns[0].number};
    rows_read_text(&columns[1], row->holder, sizeof(row->holder));
    return STATUS_OK;
}

/* Reads the row without its lock. */
static enum status mark_peek(const char *name, struct sql *sql, struct mark_row *row,
                             struct error *error)
{
    *row = (struct mark_row){0};
    return SQL_RUN(sql, STATEMENT_writer_peek, mark_read_row, row, error, sql_text(span_of(name)));
}

/* Another connection owns the ledger. It is one of ours, which we lost and the server has not, or
 * that of another process: then that one has entered, which a session of any kind can see. */
static enum status mark_not_owner(struct mark *mark, struct sql *sql, struct error *error)
{
    struct sql other = {.driver = sql->driver};
    struct mark_row row = {0};
    struct error unheard;

    if (sql->store != NULL && sql->driver->session_open(sql->store, SESSION_READER, &other.session,
                                                        &unheard) == STATUS_OK) {
        if (mark_peek(mark->name, &other, &row, &unheard) != STATUS_OK)
            row.found = false;
        sql->driver->session_close(other.session);
    }
    if (!row.found || (row.value <= mark->value + 1 && strcmp(row.holder, mark->holder) == 0))
        return STATUS_UNAVAILABLE;
    if (error != NULL)
        error_prefix(error, "%s has taken this ledger over", row.holder);
    return STATUS_CONFLICT;
}

/* The driver says NOT_FOUND when what it has open is not what is there. */
static enum status mark_note_exchange(struct mark *mark, enum status status, struct error *error)
{
    if (status == STATUS_OK || status == STATUS_NOT_FOUND)
        mark->is_behind = status == STATUS_NOT_FOUND || mark->is_another;
    if (!mark->is_behind || (status != STATUS_OK && status != STATUS_NOT_FOUND))
        return status;
    return error_set(error, STATUS_FAILED,
                     "the ledger's file was replaced or deleted while this server runs; bring the "
                     "newer one back, or write what the one there lacks from this server's memory "
                     "with `dibs audit --repair`");
}

enum status mark_begin(struct mark *mark, struct sql *sql, struct error *error)
{
    enum status status = sql->driver->begin(sql->session, error);

    if (status == STATUS_CONFLICT)
        return mark_not_owner(mark, sql, error);
    return sql->driver->is_remote ? status : mark_note_exchange(mark, status, error);
}

enum status mark_commit(struct mark *mark, struct sql *sql, struct error *error)
{
    enum status status = sql->driver->commit(sql->session, error);

    return sql->driver->is_remote ? status : mark_note_exchange(mark, status, error);
}

static enum status mark_read(struct mark *mark, struct sql *sql, struct mark_row *row,
                             struct error *error)
{
    *row = (struct mark_row){0};
    mark->is_behind = false;
    enum status status = SQL_RUN(sql, STATEMENT_writer_read, mark_read_row, row, error,
                                 sql_text(span_of(mark->name)));
    if (status == STATUS_CONFLICT)
        return mark_not_owner(mark, sql, error);
    if (status == STATUS_OK && mark->repaired != 0) {
        if (row->found && row->value == mark->repaired)
            mark->value = mark->repaired;
        mark->repaired = 0;
    }
    return status;
}

/* The ledger's mark is not where we left it: what does that mean? */
static enum status mark_explain(struct mark *mark, const struct mark_row *row, struct error *error)
{
    if (row->found && row->value == mark->value)
        return STATUS_OK;
    if (row->found && row->value > mark->value)
        return error_set(error, STATUS_CONFLICT,
                         "another process has taken this ledger over (mark %lld, we left it at "
                         "%lld)",
                         (long long)row->value, (long long)mark->value);
    mark->is_behind = true;
    if (strncmp(mark->name, SHARE_PREFIX, strlen(SHARE_PREFIX)) == 0)
        return error_set(
            error, STATUS_FAILED,
            "the ledger is older than this process: restored from a backup, or failed over to a "
            "replica that lagged (mark %lld, we left it at %lld); bring the newer database back",
            row->found ? (long long)row->value : 0LL, (long long)mark->value);
    return error_set(error, STATUS_FAILED,
                     "the ledger is older than this server: restored from a backup, or failed over "
                     "to a replica that lagged (mark %lld, we left it at %lld); bring the newer "
                     "database back, or write what it lacks from this server's memory with "
                     "`dibs audit --repair`",
                     row->found ? (long long)row->value : 0LL, (long long)mark->value);
}

static void mark_name(struct mark *mark, enum ledger_use use)
{
    char host[128] = "?";
    uint64_t number;

    random_bytes(&number, sizeof(number));
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(mark->holder, sizeof(mark->holder), "process %d on %s", (int)getpid(), host);
    if (use == LEDGER_OWN)
        snprintf(mark->name, sizeof(mark->name), OWNER_NAME);
    else
        snprintf(mark->name, sizeof(mark->name), SHARE_PREFIX "%016llx",
                 (unsigned long long)number);
}

enum status mark_enter(struct mark *mark, struct sql *sql, enum ledger_use use, struct error *error)
{
    struct mark_row row;

    mark_name(mark, use);
    enum status status = sql->driver->begin(sql->session, error);
    if (status == STATUS_OK)
        status = SQL_WRITE(sql, STATEMENT_writer_enter, error, sql_text(span_of(mark->name)),
                           sql_text(span_of(mark->holder)));
    if (status == STATUS_OK)
        status = mark_read(mark, sql, &row, error);
    if (status == STATUS_OK)
        status = sql->driver->commit(sql->session, error);
    if (status != STATUS_OK) {
        sql->driver->rollback(sql->session);
        return status;
    }
    mark->value = row.value;
    return STATUS_OK;
}

void mark_name_owner(struct sql *sql, struct error *error)
{
    struct mark_row row;
    struct error unheard;

    if (mark_peek(OWNER_NAME, sql, &row, &unheard) == STATUS_OK && row.found)
        error_prefix(error, "the ledger was last taken by %s", row.holder);
}

void mark_leave(struct mark *mark, struct sql *sql, enum ledger_use use)
{
    struct error error = {""};

    if (use == LEDGER_OWN)
        return;
    if (SQL_WRITE(sql, STATEMENT_writer_leave, &error, sql_text(span_of(mark->name))) != STATUS_OK)
        log_event(LOG_WARN, "mark_left_behind", LOG_FIELD("error", LOG_TEXT(error.text)));
}

enum status mark_move(struct mark *mark, struct sql *sql, struct error *error)
{
    struct mark_row row;
    int64_t changed = 0;
    enum status status =
        SQL_CHANGE(sql, STATEMENT_writer_move, &changed, error, sql_text(span_of(mark->name)),
                   sql_i64(mark->value), sql_i64(mark->value + 1));

    if (status == STATUS_CONFLICT)
        return mark_not_owner(mark, sql, error);
    if (status != STATUS_OK || changed == 1)
        return status;
    status = mark_read(mark, sql, &row, error);
    if (status == STATUS_OK)
        status = mark_explain(mark, &row, error);
    /* Read right after, the row is where we left it: something moved it back and forth. */
    return status == STATUS_OK ? error_set(error, STATUS_BUSY, "the writer's mark moved") : status;
}

/* Reads the row in a transaction of its own. */
static enum status mark_fetch(struct mark *mark, struct sql *sql, struct mark_row *row,
                              struct error *error)
{
    enum status status = mark_begin(mark, sql, error);

    if (status == STATUS_OK)
        status = mark_read(mark, sql, row, error);
    sql->driver->rollback(sql->session);
    return status;
}

enum status mark_check(struct mark *mark, struct sql *sql, struct error *error)
{
    struct mark_row row;

    if (!sql->driver->is_remote) {
        enum status begun = mark_begin(mark, sql, error);
        sql->driver->rollback(sql->session);
        return begun;
    }
    enum status status = mark_fetch(mark, sql, &row, error);

    return status == STATUS_OK ? mark_explain(mark, &row, error) : status;
}

enum status mark_verify(struct mark *mark, struct sql *sql, struct error *error)
{
    struct mark_row row;
    enum status status = mark_fetch(mark, sql, &row, error);

    if (status == STATUS_UNAVAILABLE || status == STATUS_BUSY)
        return STATUS_UNKNOWN;
    if (status != STATUS_OK)
        return status;
    if (row.found && row.value == mark->value + 1)
        return STATUS_OK;
    if (row.found && row.value == mark->value)
        return error_set(error, STATUS_UNAVAILABLE, "the connection broke before the commit");
    return mark_explain(mark, &row, error);
}

enum status mark_compare(struct mark *mark, struct sql *sql, struct error *error)
{
    struct mark_row row;
    enum status status = mark_read(mark, sql, &row, error);

    return status == STATUS_OK ? mark_explain(mark, &row, error) : status;
}

/* A commit of ours that was not answered may have moved the mark by one, in the database that this
 * one replaces: by two, a repair is not taken for it. */
enum status mark_repair(struct mark *mark, struct sql *sql, struct error *error)
{
    struct mark_row row;
    int64_t changed = 0;
    int64_t value = mark->value + 2;
    enum status status = mark_read(mark, sql, &row, error);

    if (status == STATUS_OK && !row.found) {
        status = SQL_WRITE(sql, STATEMENT_writer_enter, error, sql_text(span_of(mark->name)),
                           sql_text(span_of(mark->holder)));
        if (status == STATUS_OK)
            status = mark_read(mark, sql, &row, error);
    }
    if (status != STATUS_OK)
        return status;
    status = SQL_CHANGE(sql, STATEMENT_writer_move, &changed, error, sql_text(span_of(mark->name)),
                        sql_i64(row.value), sql_i64(value));
    if (status == STATUS_OK && changed != 1)
        return error_set(error, STATUS_BUSY, "the writer's mark moved");
    mark->repaired = value;
    return status;
}

void mark_repaired(struct mark *mark, enum status status)
{
    if (status == STATUS_OK)
        mark->value = mark->repaired;
    if (status != STATUS_UNKNOWN)
        mark->repaired = 0;
}
