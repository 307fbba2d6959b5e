/* database.h: an empty SQLite ledger in a folder of its own for one test, a writer's session on it
 * or a whole ledger, and a look into its tables from beside.
 *
 * Threads: the test's own.
 */
#pragma once

#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/log.h"
#include "ledger/driver.h"
#include "ledger/migrate.h"
#include "ledger/transactions.h"

struct database {
    char folder[64];
    char url[96];
    struct ledger_store *store;
    struct sql sql;
    struct error error;
};

static inline void database_check(struct database *database, enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", database->error.text);
}

static inline void database_make_folder(struct database *database)
{
    log_configure(LOG_ERROR + 1, LOG_LOGFMT, STDERR_FILENO);
    snprintf(database->folder, sizeof(database->folder), "%s/dibs-ledger-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(database->folder));
    snprintf(database->url, sizeof(database->url), "sqlite:%s/dibs.db", database->folder);
}

static inline void database_remove_folder(struct database *database)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    char path[128];

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        snprintf(path, sizeof(path), "%s/dibs.db%s", database->folder, suffixes[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(database->folder), 0);
}

static inline void database_open(struct database *database)
{
    const struct ledger_driver *driver = &ledger_sqlite_driver;

    database_make_folder(database);
    struct store_options options = {.url = database->url, .integrity = LEDGER_CHECK_OFF};
    database_check(database, driver->store_open(&database->store, &options, &database->error));
    database->sql.driver = driver;
    database_check(database, driver->session_open(database->store, SESSION_WRITER,
                                                  &database->sql.session, &database->error));
    database_check(database, migrate_run(&database->sql, LEDGER_MIGRATION_APPLY, NULL, NULL,
                                         &database->error));
}

static inline void database_close(struct database *database)
{
    database->sql.driver->session_close(database->sql.session);
    database->sql.driver->store_close(database->store);
    database_remove_folder(database);
}

/* --- a whole ledger --- */

/* For a ledger through which nobody issues, and on which nobody waits. */
static inline void database_no_claims(void *context, const struct claim *claims,
                                      const enum coupon_state *states, size_t count)
{
    (void)context;
    (void)claims;
    (void)states;
    (void)count;
}

static inline void database_no_waiters(void *context)
{
    (void)context;
}

/* Opens a ledger with these options in the folder. */
static inline struct ledger *database_ledger(struct database *database,
                                             struct ledger_options options)
{
    struct ledger *ledger = NULL;

    options.url = database->url;
    if (options.on_issued == NULL)
        options.on_issued = database_no_claims;
    if (options.on_durable == NULL)
        options.on_durable = database_no_waiters;
    database_check(database, ledger_open(&ledger, &options, &database->error));
    return ledger;
}

/* --- transactions --- */

static inline void database_begin(struct database *database)
{
    database_check(database, database->sql.driver->begin(database->sql.session, &database->error));
}

static inline void database_commit(struct database *database)
{
    database_check(database, database->sql.driver->commit(database->sql.session, &database->error));
}

typedef enum status (*database_write_fn)(struct sql *sql, void *argument, struct error *error);

/* A write that has to work. */
static inline void database_write(struct database *database, database_write_fn write,
                                  void *argument)
{
    database_begin(database);
    database_check(database, write(&database->sql, argument, &database->error));
    database_commit(database);
}

/* --- from beside --- */

static inline sqlite3 *database_beside(const struct database *database)
{
    sqlite3 *beside = NULL;
    assert_int_equal(sqlite3_open(database->url + strlen("sqlite:"), &beside), SQLITE_OK);
    sqlite3_busy_timeout(beside, 5000);
    return beside;
}

/* Runs statements of the test's own. */
static inline void database_execute(const struct database *database, const char *text)
{
    char *words = NULL;
    sqlite3 *beside = database_beside(database);

    if (sqlite3_exec(beside, text, NULL, NULL, &words) != SQLITE_OK)
        fail_msg("%s: %s", text, words);
    sqlite3_close(beside);
}

/* The first number that a query answers. */
static inline int64_t database_number(const struct database *database, const char *text)
{
    sqlite3_stmt *prepared = NULL;
    sqlite3 *beside = database_beside(database);

    if (sqlite3_prepare_v2(beside, text, -1, &prepared, NULL) != SQLITE_OK)
        fail_msg("%s: %s", text, sqlite3_errmsg(beside));
    assert_int_equal(sqlite3_step(prepared), SQLITE_ROW);
    int64_t number = sqlite3_column_int64(prepared, 0);
    sqlite3_finalize(prepared);
    sqlite3_close(beside);
    return number;
}

/* The conservation of stock over all policies: 0 when each unit is in one place. */
static inline int64_t database_imbalance(const struct database *database)
{
    return database_number(
        database,
        "SELECT COALESCE(SUM(ABS(p.unleased - p.total"
        " + (SELECT COALESCE(SUM(l.count - (SELECT COUNT(*) FROM coupon c"
        "      WHERE c.policy_id = l.policy_id AND c.seq >= l.first_seq"
        "        AND c.seq < l.first_seq + l.count)"
        "      - (SELECT COUNT(*) FROM refused_claim r"
        "      WHERE r.policy_id = l.policy_id AND r.seq >= l.first_seq"
        "        AND r.seq < l.first_seq + l.count)), 0)"
        "    FROM lease l WHERE l.policy_id = p.id AND l.state = 'OPEN')"
        " + (SELECT COUNT(*) FROM coupon c WHERE c.policy_id = p.id AND c.slot IS NOT NULL))), 0)"
        " FROM policy p");
}
