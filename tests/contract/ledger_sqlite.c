/* ledger_sqlite.c: the ledger suite on SQLite, in a folder of its own. */
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

#include "ledger_suite.h"

static char folder[64];
static char url[128];

const char *ledger_suite_create(void)
{
    snprintf(folder, sizeof(folder), "/tmp/dibs-ledger-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(url, sizeof(url), "sqlite:%s/dibs.db", folder);
    return url;
}

void ledger_suite_drop(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-lock"};
    char path[192];
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        snprintf(path, sizeof(path), "%s/dibs.db%s", folder, suffixes[i]);
        unlink(path);
    }
    rmdir(folder);
}

struct ledger_suite_session *ledger_suite_session_open(void)
{
    sqlite3 *database = NULL;

    ensure(sqlite3_open(url + strlen("sqlite:"), &database) == SQLITE_OK);
    sqlite3_busy_timeout(database, 10000);
    return (struct ledger_suite_session *)database;
}

void ledger_suite_session_close(struct ledger_suite_session *session)
{
    ensure(sqlite3_close((sqlite3 *)session) == SQLITE_OK);
}

int64_t ledger_suite_ask(struct ledger_suite_session *session, const char *text)
{
    sqlite3 *database = (sqlite3 *)session;
    sqlite3_stmt *prepared = NULL;
    int64_t number = 0;

    int code = sqlite3_prepare_v2(database, text, -1, &prepared, NULL);
    if (code == SQLITE_OK && (code = sqlite3_step(prepared)) == SQLITE_ROW)
        number = sqlite3_column_int64(prepared, 0);
    if (code != SQLITE_ROW && code != SQLITE_DONE)
        print_error("%s: %s\n", text, sqlite3_errmsg(database));
    ensure(code == SQLITE_ROW || code == SQLITE_DONE);
    sqlite3_finalize(prepared);
    return number;
}

const char ledger_suite_refuse_bad[] =
    "CREATE TRIGGER refuse_bad BEFORE INSERT ON coupon WHEN NEW.user_id LIKE 'bad%'"
    " BEGIN SELECT RAISE(ABORT, 'no bad users here'); END";

/* One process has the file, and no more. */
const bool ledger_suite_is_shared = false;
const struct ledger_driver *const ledger_suite_driver = &ledger_sqlite_driver;
const char ledger_suite_lock_waits[] = "SELECT 0";
const char ledger_suite_for_share[] = "";

int main(void)
{
    return ledger_suite_run();
}
