/* test_digits.c: text that is a number, and text that is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/digits.h"

static void assert_read(const char *text, uint64_t most, uint64_t expected)
{
    uint64_t number;
    assert_true(digits_read(span_of(text), most, &number));
    assert_int_equal(number, expected);
}

static void test_digits__reads_whole_numbers_up_to_the_most(void **state)
{
    assert_read("0", 0, 0);
    assert_read("00042", 42, 42);
    assert_read("65535", 65535, 65535);
    assert_read("9223372036854775807", INT64_MAX, INT64_MAX);
}

static void test_digits__refuses_everything_else(void **state)
{
    static const char *const wrong[] = {"",    " 1",  "1 ",    "+1",         "-1",
                                        "1.0", "0x1", "65536", "4294967297", "18446744073709551617",
                                        "1e3"};
    uint64_t number;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(digits_read(span_of(wrong[i]), 65535, &number));
    assert_false(digits_read(SPAN("9"), 5, &number));
    assert_false(digits_read(SPAN("99999999999999999999999"), 5, &number));
    assert_false(digits_read(SPAN("9223372036854775808"), INT64_MAX, &number));
    assert_false(digits_read(SPAN("1\0002"), 65535, &number));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digits__reads_whole_numbers_up_to_the_most),
        cmocka_unit_test(test_digits__refuses_everything_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
