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
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char path[192];
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        snprintf(path, sizeof(path), "%s/dibs.db%s", folder, suffixes[i]);
        unlink(path);
    }
    rmdir(folder);
}

int64_t ledger_suite_imbalance(int64_t policy_id)
{
    static const char text[] = LEDGER_SUITE_IMBALANCE("?");
    sqlite3 *database = NULL;
    sqlite3_stmt *prepared = NULL;

    assert_int_equal(
        sqlite3_open_v2(url + strlen("sqlite:"), &database, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(database, text, -1, &prepared, NULL), SQLITE_OK);
    sqlite3_bind_int64(prepared, 1, policy_id);
    assert_int_equal(sqlite3_step(prepared), SQLITE_ROW);
    int64_t imbalance = sqlite3_column_int64(prepared, 0);
    sqlite3_finalize(prepared);
    sqlite3_close(database);
    return imbalance;
}

int main(void)
{
    return ledger_suite_run();
}
