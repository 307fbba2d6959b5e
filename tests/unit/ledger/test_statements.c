/* test_statements.c: every statement is one that SQLite takes; the contract suites try the others'.
 */
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/embedded.h"
#include "embedded_migrations.h"
#include "ledger_statements.h"

/* Against the schema, so that a statement cannot name a column that is not there. */
static void test_statements__all_of_sqlite_compile(void **state)
{
    sqlite3 *database = NULL;
    (void)state;

    assert_int_equal(sqlite3_open(":memory:", &database), SQLITE_OK);
    for (size_t i = 0; i < embedded_migrations_count; i++) {
        if (strstr(embedded_migrations[i].name, ".sqlite.sql") == NULL)
            continue;
        if (sqlite3_exec(database, (const char *)embedded_migrations[i].bytes, NULL, NULL, NULL) !=
            SQLITE_OK)
            fail_msg("%s: %s", embedded_migrations[i].name, sqlite3_errmsg(database));
    }
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        sqlite3_stmt *prepared = NULL;
        /* coupon_insert reads from a table of the driver's own. */
        if (sqlite_statements[i] == NULL || i == STATEMENT_coupon_insert)
            continue;
        if (sqlite3_prepare_v2(database, sqlite_statements[i], -1, &prepared, NULL) != SQLITE_OK)
            fail_msg("%s: %s", statement_names[i], sqlite3_errmsg(database));
        sqlite3_finalize(prepared);
    }
    sqlite3_close(database);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statements__all_of_sqlite_compile),
    };
    return cmocka_run_group_tests_name("statements", tests, NULL, NULL);
}
