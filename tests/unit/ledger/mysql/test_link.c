/* test_link.c: which error numbers may pass, which end a connection, which a transaction; and the
 * numbers of a statement's values, taken out and kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "ledger/mysql/link.h"

static enum status status_of(unsigned code)
{
    return ledger_mysql_status(code, "words");
}

static void test_mysql_error__others_in_the_way(void **state)
{
    static const unsigned codes[] = {1205, 1213, 1020, 3101, 3572};

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_int_equal(status_of(codes[i]), STATUS_BUSY);
        assert_true(ledger_mysql_ends_transaction(codes[i]));
        assert_false(ledger_mysql_is_lost(codes[i]));
        assert_false(ledger_mysql_leaves_doubt(codes[i]));
    }
}

/* Gone, killed, idle for too long, shutting down, read-only: what was open on it is over. */
static void test_mysql_error__lost_connections(void **state)
{
    static const unsigned codes[] = {2002, 2003, 2006, 2013, 2014, 2026, 2055, 5014,
                                     1053, 1290, 1836, 1927, 3032, 3169, 4031};

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_int_equal(status_of(codes[i]), STATUS_UNAVAILABLE);
        assert_true(ledger_mysql_is_lost(codes[i]));
        assert_true(ledger_mysql_leaves_doubt(codes[i]));
    }
}

static void test_mysql_error__not_now(void **state)
{
    static const unsigned codes[] = {1021, 1040, 1041, 1114, 1203, 1226, 1317, 1969, 3024};

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_int_equal(status_of(codes[i]), STATUS_UNAVAILABLE);
        assert_false(ledger_mysql_is_lost(codes[i]));
        assert_false(ledger_mysql_ends_transaction(codes[i]));
    }
    assert_int_equal(ledger_mysql_status(1030, "Got error 28 \"No space left on device\" from "
                                               "storage engine InnoDB"),
                     STATUS_UNAVAILABLE);
}

static void test_mysql_error__wrong(void **state)
{
    static const unsigned codes[] = {1054, 1064, 1142, 1146, 1062, 1792};

    (void)state;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        assert_int_equal(status_of(codes[i]), STATUS_FAILED);
        assert_false(ledger_mysql_is_lost(codes[i]));
    }
    assert_int_equal(ledger_mysql_status(1030, "Got error 168 from storage engine"), STATUS_FAILED);
}

/* A COMMIT that was interrupted, or that failed while it was under way, may be done. */
static void test_mysql_error__doubt(void **state)
{
    (void)state;
    assert_true(ledger_mysql_leaves_doubt(1180));
    assert_true(ledger_mysql_leaves_doubt(1317));
    assert_true(ledger_mysql_leaves_doubt(2013));
    assert_false(ledger_mysql_leaves_doubt(1213));
    assert_false(ledger_mysql_leaves_doubt(1114));
}

static void test_mysql_error__refused_rows(void **state)
{
    (void)state;
    assert_true(ledger_mysql_refuses_row(4025, "23000"));
    assert_true(ledger_mysql_refuses_row(3819, "HY000"));
    assert_true(ledger_mysql_refuses_row(1406, "22001"));
    assert_true(ledger_mysql_refuses_row(9999, "45000"));
    assert_false(ledger_mysql_refuses_row(1142, "42000"));
    assert_false(ledger_mysql_refuses_row(1064, "42000"));
}

static void test_mysql_statement__values_keep_their_order(void **state)
{
    uint8_t order[LEDGER_MYSQL_VALUES_MAX];
    struct buffer text;

    (void)state;
    buffer_init(&text, 200);
    assert_int_equal(
        ledger_mysql_take_numbers(&text, "UPDATE t SET a = ?12, b = ?1\nWHERE c = ?2 OR d = ?1",
                                  order, LEDGER_MYSQL_VALUES_MAX),
        4);
    assert_string_equal(text.bytes, "UPDATE t SET a = ?, b = ?\nWHERE c = ? OR d = ?");
    assert_memory_equal(order, ((uint8_t[]){11, 0, 1, 0}), 4);
    buffer_release(&text);
}

static void test_mysql_statement__none_is_fine(void **state)
{
    uint8_t order[1];
    struct buffer text;

    (void)state;
    buffer_init(&text, 200);
    assert_int_equal(ledger_mysql_take_numbers(&text, "SELECT 1", order, 1), 0);
    assert_string_equal(text.bytes, "SELECT 1");
    buffer_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mysql_error__others_in_the_way),
        cmocka_unit_test(test_mysql_error__lost_connections),
        cmocka_unit_test(test_mysql_error__not_now),
        cmocka_unit_test(test_mysql_error__wrong),
        cmocka_unit_test(test_mysql_error__doubt),
        cmocka_unit_test(test_mysql_error__refused_rows),
        cmocka_unit_test(test_mysql_statement__values_keep_their_order),
        cmocka_unit_test(test_mysql_statement__none_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
