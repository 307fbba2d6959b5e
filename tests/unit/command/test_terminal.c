/* test_terminal.c: tables line up, and nothing from the network can drive the terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "command/terminal.h"

static const struct table_column columns[] = {
    COLUMN("ID", RIGHT, NULL), COLUMN("STATE", LEFT, NULL), COLUMN("NAME", LEFT, NULL)};
static const struct table_column untitled[] = {FACT(NULL, NULL), FACT(NULL, NULL)};

static void assert_table(const struct table *table, bool in_colour, const char *expected)
{
    struct buffer out;
    buffer_init(&out, 4096);
    table_append(&out, table, in_colour);
    assert_string_equal(out.bytes, expected);
    buffer_release(&out);
}

static void test_terminal__lines_columns_up(void **state)
{
    struct table table;
    table_init(&table, columns, 3);
    const char *const cells[] = {"7", "OPEN", "short", "1042", "SCHEDULED", "추석 쿠폰"};
    for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
        table_add(&table, cells[i]);
    assert_table(&table, false,
                 "  ID  STATE      NAME\n"
                 "   7  OPEN       short\n"
                 "1042  SCHEDULED  추석 쿠폰\n");
    table_release(&table);
}

static void test_terminal__counts_characters_and_not_bytes(void **state)
{
    struct table table;
    table_init(&table, untitled, 2);
    table_add(&table, "größe");
    table_add(&table, "1");
    table_add(&table, "other");
    table_add(&table, "2");
    assert_table(&table, false, "größe  1\nother  2\n");
    table_release(&table);
}

static void test_terminal__colours_states_without_moving_columns(void **state)
{
    struct table table;
    table_init(&table, untitled, 2);
    table_add(&table, "OPEN");
    table_add(&table, "a");
    table_add(&table, "CLOSEDX");
    table_add(&table, "b");
    assert_table(&table, true, "\x1b[32mOPEN\x1b[0m     a\nCLOSEDX  b\n");
    assert_table(&table, false, "OPEN     a\nCLOSEDX  b\n");
    table_release(&table);
}

static void test_terminal__escapes_control_characters(void **state)
{
    struct table table;
    table_init(&table, untitled, 2);
    table_add(&table, "\x1b]0;owned\x07");
    table_add(&table, "a\nb\x7f\xc2\x9bm\xc2\xa0");
    assert_table(&table, false, "\\u001b]0;owned\\u0007  a\\u000ab\\u007f\\u009bm\xc2\xa0\n");
    table_release(&table);
}

static void test_terminal__wants_no_colour_off_a_terminal(void **state)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_false(terminal_wants_colour(file));
    fclose(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_terminal__lines_columns_up),
        cmocka_unit_test(test_terminal__counts_characters_and_not_bytes),
        cmocka_unit_test(test_terminal__colours_states_without_moving_columns),
        cmocka_unit_test(test_terminal__escapes_control_characters),
        cmocka_unit_test(test_terminal__wants_no_colour_off_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
