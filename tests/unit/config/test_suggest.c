/* test_suggest.c: near words are found, far ones are not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/suggest.h"

static const char *nearest(const char *word)
{
    static const char *const known[] = {"listen",     "ledger", "log_level",
                                        "log_format", "gate",   "admin_token_file"};
    struct suggestion suggestion;
    suggestion_begin(&suggestion, word);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        suggestion_offer(&suggestion, known[i]);
    }
    return suggestion_best(&suggestion);
}

static void test_suggest__finds_a_dropped_added_changed_or_swapped_character(void **state)
{
    assert_string_equal(nearest("listn"), "listen");
    assert_string_equal(nearest("listeen"), "listen");
    assert_string_equal(nearest("lisden"), "listen");
    assert_string_equal(nearest("agte"), "gate");
}

static void test_suggest__counts_a_swap_once(void **state)
{
    /* Four characters allow one change, and a swap without its own rule would be two. */
    assert_string_equal(nearest("gaet"), "gate");
    assert_null(nearest("gxxe"));
}

static void test_suggest__takes_dashes_and_case_for_what_they_mean(void **state)
{
    assert_string_equal(nearest("log-level"), "log_level");
    assert_string_equal(nearest("LOG_LEVEL"), "log_level");
    assert_string_equal(nearest("admin-token-fil"), "admin_token_file");
}

static void test_suggest__is_silent_when_nothing_is_near(void **state)
{
    assert_null(nearest("kafka"));
    assert_null(nearest(""));
    assert_null(nearest("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suggest__finds_a_dropped_added_changed_or_swapped_character),
        cmocka_unit_test(test_suggest__counts_a_swap_once),
        cmocka_unit_test(test_suggest__takes_dashes_and_case_for_what_they_mean),
        cmocka_unit_test(test_suggest__is_silent_when_nothing_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
