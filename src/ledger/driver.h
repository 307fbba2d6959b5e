/* driver.h: what the ledger needs of a database. A driver only translates; what a transaction
 * means is in ledger.c and issue.c, once for all databases.
 *
 * Statements are named (statements.h) and written in the database's own words in its .sql file.
 *
 * Threads: a session is used by one thread at a time; different sessions are independent.
 */
#ifndef LEDGER_DRIVER_H
#define LEDGER_DRIVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"
#include "ledger/ledger.h"
#include "ledger/statements.h"

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

/* A coupon row about to be written. */
struct coupon_row {
    const struct claim *claim;
    enum coupon_state state;
    int64_t issued_at_ms;
    int64_t expires_at_ms;
    int64_t merged_into_seq;
    const char *reason; /* NULL: none */
    bool conflicts;     /* out: a row with its seq, or with its user's slot, is there already */
};

struct ledger_store;   /* one database, owned by this process */
struct ledger_session; /* one connection */
enum session_kind { SESSION_WRITER, SESSION_READER };

/* UNAVAILABLE: not done, may work later. FAILED: the statement itself is wrong or the database is
 * damaged. A commit whose outcome cannot be known is UNKNOWN. A driver that learns that data it
 * called safe may not be (a failed fsync) ends the process. Every slot is required. */
struct ledger_driver {
    const char *scheme;
    enum status (*store_open)(struct ledger_store **store, const char *location,
                              enum ledger_integrity integrity, struct error *error);
    void (*store_close)(struct ledger_store *store);
    enum status (*session_open)(struct ledger_store *store, enum session_kind kind,
                                struct ledger_session **session, struct error *error);
    void (*session_close)(struct ledger_session *session);
    enum status (*begin)(struct ledger_session *session, struct error *error);
    enum status (*commit)(struct ledger_session *session, struct error *error);
    void (*rollback)(struct ledger_session *session);
    enum status (*savepoint)(struct ledger_session *session, struct error *error);
    enum status (*savepoint_end)(struct ledger_session *session, bool keep, struct error *error);
    enum status (*run)(struct ledger_session *session, enum statement statement,
                       const struct sql_value *values, size_t value_count, sql_row_fn row,
                       void *context, int64_t *changed, struct error *error);
    enum status (*insert_coupons)(struct ledger_session *session, struct coupon_row *rows,
                                  size_t count, struct error *error);
    /* After a commit, when there is time: checkpoints and the like. True when one was done. */
    bool (*tend)(struct ledger_session *session);
};

extern const struct ledger_driver ledger_sqlite_driver;

/* A session with its driver, as the transactions pass it around. */
struct sql {
    const struct ledger_driver *driver;
    struct ledger_session *session;
};

enum status sql_run(struct sql *sql, enum statement statement, const struct sql_value *values,
                    size_t value_count, sql_row_fn row, void *context, int64_t *changed,
                    struct error *error) MUST_CHECK;

/* SQL_RUN(sql, STATEMENT_X, row, context, error, sql_i64(1), ...) */
#define SQL_RUN(sql, statement, row, context, error, ...)                                    \
    sql_run(sql, statement, (const struct sql_value[]){__VA_ARGS__},                         \
            sizeof((const struct sql_value[]){__VA_ARGS__}) / sizeof(struct sql_value), row, \
            context, NULL, error)

#endif
