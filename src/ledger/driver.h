/* driver.h: what the ledger needs of a database. A driver only translates; what a transaction
 * means is in transactions.c and issue.c, once for all databases.
 *
 * Statements are named (statements.h) and written in the database's own words in its .sql file.
 *
 * Threads: a session is used by one thread at a time; different sessions are independent.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/ledgers.h"
#include "base/model.h"
#include "ledger/backup.h"
#include "ledger/ledger.h"
#include "ledger_statements.h"

enum sql_kind { SQL_NULL, SQL_I64, SQL_TEXT, SQL_BLOB };

struct sql_value {
    enum sql_kind kind;
    int64_t number;
    struct span bytes; /* TEXT and BLOB; borrowed for the call */
};

#define SQL_COLUMNS_MAX 20

static inline struct sql_value sql_i64(int64_t number)
{
    return (struct sql_value){.kind = SQL_I64, .number = number};
}

/* 0 stands for "none" in our structs and is NULL in the tables. */
static inline struct sql_value sql_i64_or_null(int64_t number)
{
    return (struct sql_value){.kind = number == 0 ? SQL_NULL : SQL_I64, .number = number};
}

static inline struct sql_value sql_text(struct span text)
{
    return (struct sql_value){.kind = SQL_TEXT, .bytes = text};
}

static inline struct sql_value sql_blob(const void *bytes, size_t length)
{
    return (struct sql_value){.kind = SQL_BLOB, .bytes = {.bytes = bytes, .length = length}};
}

static inline struct sql_value sql_null(void)
{
    return (struct sql_value){.kind = SQL_NULL};
}

/* Called per row; the columns are borrowed. A status other than OK ends the statement and is
 * returned by it. */
typedef enum status (*sql_row_fn)(void *context, const struct sql_value *columns,
                                  struct error *error);

/* A statement with what it is given, and where its answer goes. */
struct sql_call {
    enum statement statement;
    const struct sql_value *values;
    size_t value_count;
    sql_row_fn row; /* NULL: rows are of no interest */
    void *context;
    int64_t *changed; /* how many rows it has changed; NULL: that is of no interest */
};

/* A coupon row about to be written. */
struct coupon_row {
    const struct claim *claim;
    enum coupon_state state;
    int64_t issued_at_ms;
    int64_t expires_at_ms;
    int64_t
        ends_at_ms; /* where it has no end of its own, as its policy is now; for the event only */
    int64_t merged_into_seq;
    int32_t moved_nth;  /* its place among the user's coupons where the claim's is taken; 0 */
    const char *reason; /* NULL: none */
    bool conflicts;     /* out: a row with its seq, or with its user's slot, is there already */
    bool is_refused;    /* issue.c: the database does not take it, so there is no row */
    bool is_kept;       /* issue.c: when it is refused it stays pending, and is tried again */
    bool is_buried;     /* issue.c: refused for good, and written down as such */
    bool is_news;       /* issue.c: it was decided just now that it is VOID */
    bool is_other_wish; /* issue.c: the one it is merged into was made for another key */
    char *refusal;      /* issue.c: the database's words; NULL, or to be freed */
};

/* Its place among the user's coupons. */
static inline int32_t coupon_row_nth(const struct coupon_row *row)
{
    return row->moved_nth != 0 ? row->moved_nth : row->claim->nth;
}

struct ledger_store;   /* one database */
struct ledger_session; /* one connection */

enum session_kind {
    SESSION_WRITER, /* writes; it holds the ownership, or a share of it, while connected */
    SESSION_READER, /* only looks; a transaction of its is one snapshot */
    SESSION_TERMS,  /* of a remote database: writes who looks after what, beside the writer */
    SESSION_SCHEMA, /* changes the schema */
};

struct store_options {
    const char *url;      /* the whole of it, with its scheme */
    const char *password; /* NULL: as the URL, the environment or the client library's files say */
    enum ledger_use use;
    enum ledger_integrity integrity;
    int64_t timeout_ms; /* for a connection, a statement, a lock; then UNAVAILABLE */
    bool reads_only;    /* opens and creates nothing that is not there, owns nothing */
    /* On the thread of a writer's session that has lost its connection, before it connects again:
     * its ownership went with the connection, and may be another process's by now. May be NULL. */
    void (*on_lost)(void *context);
    void *context;
};

/* What a file of our own needs; a database that is another process does it itself. */
struct ledger_file {
    /* After each commit: checkpoints and the like. Returns for how many milliseconds the next
     * commit is to be held back because they do not keep up. */
    int64_t (*tend)(struct ledger_session *session, struct ledger_stats *stats);
    /* Bytes left where it writes; -1: not known. */
    int64_t (*room)(const struct ledger_store *store);
    /* As ledger_backup() and ledger_restore() of the file at `path`. */
    enum status (*backup)(const char *path, const char *to, struct ledger_copy *copy,
                          struct error *error);
    enum status (*restore)(const char *path, const char *from, enum ledger_restore how,
                           struct ledger_copy *copy, struct error *error);
};

/* The statuses a driver answers with:
 *   BUSY         not done because of another transaction (deadlock, lock timeout): do it again
 *   CONFLICT     (insert_coupons) a row in it violates a unique key, and nothing of it was written
 *   INVALID      (insert_coupons) the database refuses a row in it (a check, a trigger, a type);
 *                nothing of it may be kept
 *   UNAVAILABLE  not done, may work later: the connection is lost, the database refuses
 *   UNKNOWN      (commit) the connection was lost while committing: look before doing it again
 *   NOT_FOUND    (begin, commit, of a writer) nothing was done: the database at the URL is not the
 * one that was opened. Opening a SESSION_SCHEMA makes it the one that all sessions use CONFLICT
 * (begin, or the first run after it) a writer that connected again is not the owner any more:
 * another connection is, a lost one of its own or that of another process FAILED       the
 * statement itself is wrong, a right is missing, or the database is damaged A session whose
 * connection is lost connects again by itself in the next begin(), or in the next run() outside a
 * transaction, which is tried a second time then. After BUSY, CONFLICT, INVALID and FAILED the
 * transaction may have to be rolled back as a whole, unless a savepoint was set. A driver that
 * learns that data it called safe may not be (a failed fsync) ends the process. Every slot is
 * required. */
struct ledger_driver {
    const char *name; /* as base/ledgers.h has it: "sqlite" */
    /* True when the database is another process: a commit may be lost on the way, and the database
     * may be exchanged under us. Then every transaction moves the writer's mark. */
    bool is_remote;
    /* UNAVAILABLE, INVALID (the URL), CONFLICT (another process owns it; the words say which). */
    enum status (*store_open)(struct ledger_store **store, const struct store_options *options,
                              struct error *error);
    void (*store_close)(struct ledger_store *store);
    /* CONFLICT: a writer cannot become the owner, because another process is; the words say who. */
    enum status (*session_open)(struct ledger_store *store, enum session_kind kind,
                                struct ledger_session **session, struct error *error);
    void (*session_close)(struct ledger_session *session);
    enum status (*begin)(struct ledger_session *session, struct error *error);
    enum status (*commit)(struct ledger_session *session, struct error *error);
    void (*rollback)(struct ledger_session *session);
    enum status (*savepoint)(struct ledger_session *session, struct error *error);
    enum status (*savepoint_end)(struct ledger_session *session, bool keep, struct error *error);
    enum status (*run)(struct ledger_session *session, const struct sql_call *call,
                       struct error *error);
    /* Writes all rows but those that stand in the table with the same (policy, seq), whose
     * `conflicts` is set. A driver may also flag rows whose user's slot is taken; one that cannot
     * answers CONFLICT instead, having written nothing. */
    enum status (*insert_coupons)(struct ledger_session *session, struct coupon_row *rows,
                                  size_t count, struct error *error);
    const struct ledger_file *file; /* NULL: nothing of that is needed */
    /* The schema, on a session of any kind that may write: keeps others from migrating until the
     * unlock, reads the number of the last migration (0: an empty database), runs one and notes its
     * number. A migration that was cut short can be run again. */
    enum status (*schema_lock)(struct ledger_session *session, struct error *error);
    void (*schema_unlock)(struct ledger_session *session);
    enum status (*schema_version)(struct ledger_session *session, int *version,
                                  struct error *error);
    enum status (*schema_apply)(struct ledger_session *session, int number, const char *name,
                                const char *text, struct error *error);
};

/* ledger_sqlite_driver and so on, each in its folder. */
#define LEDGER_DRIVER_DECLARE(kind, ...) extern const struct ledger_driver ledger_##kind##_driver;
LEDGER_KINDS(LEDGER_DRIVER_DECLARE)

/* What to do about a connection that cannot be made, for the end of a driver's words. */
#define LEDGER_CONNECT_ADVICE \
    "see that the server runs and takes connections, and that --ledger and its password are right"

/* A session with its driver, as the transactions pass it around. */
struct sql {
    const struct ledger_driver *driver;
    struct ledger_session *session;
    struct ledger_store *store; /* of the writer's, to look past its own session; else NULL */
    struct outbox *outbox;      /* of the writer's, when events are wanted; else NULL */
};

static inline enum status MUST_CHECK sql_run(struct sql *sql, const struct sql_call *call,
                                             struct error *error)
{
    return sql->driver->run(sql->session, call, error);
}

#define SQL_CALL(name, reader, into, ...) \
    (&(const struct sql_call){            \
        .statement = (name), .row = (reader), .context = (into), SQL_VALUES(__VA_ARGS__)})
#define SQL_VALUES(...)                                \
    .values = (const struct sql_value[]){__VA_ARGS__}, \
    .value_count = sizeof((const struct sql_value[]){__VA_ARGS__}) / sizeof(struct sql_value)

/* SQL_RUN(sql, STATEMENT_x, row, context, error, sql_i64(1), ...) reads; SQL_WRITE() only changes,
 * and SQL_CHANGE() counts into an int64_t how many rows that were. */
#define SQL_RUN(sql, name, reader, into, error, ...) \
    sql_run(sql, SQL_CALL(name, reader, into, __VA_ARGS__), error)
#define SQL_WRITE(sql, name, error, ...) SQL_RUN(sql, name, NULL, NULL, error, __VA_ARGS__)
#define SQL_CHANGE(sql, name, count, error, ...)                                   \
    sql_run(sql,                                                                   \
            &(const struct sql_call){                                              \
                .statement = (name), .changed = (count), SQL_VALUES(__VA_ARGS__)}, \
            error)
