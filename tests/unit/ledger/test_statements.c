/* test_statements.c: every statement is found in its file, whole and alone. */
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
#include "ledger/statements.h"

static void test_statements__names(void **state)
{
    (void)state;
    assert_string_equal(statement_name(STATEMENT_policy_insert), "policy_insert");
    assert_string_equal(statement_name(STATEMENT_secret_by_name), "secret_by_name");
    for (int i = 0; i < STATEMENT_COUNT; i++) {
        for (int j = 0; j < i; j++)
            assert_string_not_equal(statement_name((enum statement)i),
                                    statement_name((enum statement)j));
    }
}

static void test_statements__text_ends_where_the_next_begins(void **state)
{
    static const char file[] = "-- a comment\n"
                               "-- name: policy_by_id_and_more\nWRONG;\n"
                               "-- name: policy_by_id\nSELECT 1\nFROM a;\n\n"
                               "-- name: policy_list\nSELECT 2;";
    unsigned long length = 0;
    (void)state;

    const char *text = statement_text(file, STATEMENT_policy_by_id, &length);
    assert_non_null(text);
    assert_int_equal(length, strlen("SELECT 1\nFROM a;\n\n"));
    assert_memory_equal(text, "SELECT 1\nFROM a;\n\n", length);
    text = statement_text(file, STATEMENT_policy_list, &length);
    assert_non_null(text);
    assert_int_equal(length, strlen("SELECT 2;"));
    assert_null(statement_text(file, STATEMENT_policy_insert, &length));
    assert_null(statement_text("", STATEMENT_policy_insert, &length));
}

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
        unsigned long length = 0;
        sqlite3_stmt *prepared = NULL;
        const char *name = statement_name((enum statement)i);
        const char *text = statement_text(statement_file("sqlite"), (enum statement)i, &length);
        if (text == NULL)
            fail_msg("%s has no text", name);
        if (strncmp(name, "coupon_insert", strlen("coupon_insert")) == 0)
            continue; /* reads from a table of the driver's own */
        if (sqlite3_prepare_v2(database, text, (int)length, &prepared, NULL) != SQLITE_OK)
            fail_msg("%s: %s", name, sqlite3_errmsg(database));
        sqlite3_finalize(prepared);
    }
    sqlite3_close(database);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statements__names),
        cmocka_unit_test(test_statements__text_ends_where_the_next_begins),
        cmocka_unit_test(test_statements__all_of_sqlite_compile),
    };
    return cmocka_run_group_tests_name("statements", tests, NULL, NULL);
}
