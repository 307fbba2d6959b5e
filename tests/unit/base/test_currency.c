/* Unit tests of base/currency. */
#include "base/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
/* cmocka needs the above */
#include <cmocka.h>

static void test_currency__codes_come_back(void **state)
{
    static const char *const good[] = {"KRW", "USD", "EUR", "JPY", "KWD", "CLF", "AED", "ZWG"};
    static const char *const bad[] = {"", "KR", "KRWX", "krw", "ZZZ", "A B", "D A", "SD ", "QQQ"};
    char text[CURRENCY_TEXT_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int32_t currency = currency_of(span_of(good[i]));
        assert_true(currency > CURRENCY_NONE && currency <= CURRENCY_MAX);
        assert_string_equal(currency_text(currency, text), good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(currency_of(span_of(bad[i])), CURRENCY_NONE);
    assert_string_equal(currency_text(CURRENCY_NONE, text), "");
}

static void test_currency__amounts_are_in_the_smallest_unit(void **state)
{
    static const struct {
        const char *code;
        int64_t amount;
        const char *shown;
    } cases[] = {{"KRW", 5000, "5000 KRW"},
                 {"USD", 500, "5.00 USD"},
                 {"USD", 5, "0.05 USD"},
                 {"KWD", 1234, "1.234 KWD"},
                 {"CLF", 10001, "1.0001 CLF"},
                 {"EUR", INT64_C(1000000000000), "10000000000.00 EUR"},
                 {"", 500, "500"}};
    char text[CURRENCY_AMOUNT_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(
            currency_amount(currency_of(span_of(cases[i].code)), cases[i].amount, text),
            cases[i].shown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_currency__codes_come_back),
        cmocka_unit_test(test_currency__amounts_are_in_the_smallest_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
