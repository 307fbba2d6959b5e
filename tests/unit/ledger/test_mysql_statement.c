/* test_mysql_statement.c: the numbers of a statement's values, taken out and kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "ledger/mysql_statement.h"

static void test_mysql_statement__values_keep_their_order(void **state)
{
    uint8_t order[LEDGER_MYSQL_VALUES_MAX];
    struct buffer text;

    (void)state;
    buffer_init(&text, 200);
    assert_int_equal(ledger_mysql_take_numbers(
                         &text, SPAN("UPDATE t SET a = ?12, b = ?1\nWHERE c = ?2 OR d = ?1;\n\n"),
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
    assert_int_equal(ledger_mysql_take_numbers(&text, SPAN("SELECT 1;"), order, 1), 0);
    assert_string_equal(text.bytes, "SELECT 1");
    buffer_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mysql_statement__values_keep_their_order),
        cmocka_unit_test(test_mysql_statement__none_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
