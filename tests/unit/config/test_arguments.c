/* test_arguments.c: a command line is cut into flags, values and words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "config/arguments.h"

static struct arguments walk;
static struct argument argument;

static void begin(char **argv)
{
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    arguments_begin(&walk, argc, argv);
}

static void next_flag(const char *name)
{
    assert_true(arguments_next(&walk, &argument));
    assert_true(argument.is_flag);
    assert_string_equal(argument.name, name);
}

static void next_word(const char *text)
{
    assert_true(arguments_next(&walk, &argument));
    assert_false(argument.is_flag);
    assert_string_equal(argument.text, text);
}

static void test_arguments__takes_a_value_after_an_equals_sign_or_as_the_next_one(void **state)
{
    begin((char *[]){(char[]){"--listen=a=b"}, (char[]){"--gate"}, (char[]){"local"},
                     (char[]){"--name="}, NULL});
    next_flag("listen");
    assert_string_equal(arguments_value(&walk, &argument), "a=b");
    next_flag("gate");
    assert_string_equal(arguments_value(&walk, &argument), "local");
    next_flag("name");
    assert_string_equal(arguments_value(&walk, &argument), "");
    assert_false(arguments_next(&walk, &argument));
}

static void test_arguments__does_not_take_the_next_flag_for_a_value(void **state)
{
    begin((char *[]){(char[]){"--listen"}, (char[]){"--gate"}, NULL});
    next_flag("listen");
    assert_null(arguments_value(&walk, &argument));
    next_flag("gate");
    assert_null(arguments_value(&walk, &argument));
    assert_false(arguments_next(&walk, &argument));
}

static void test_arguments__mixes_words_and_flags(void **state)
{
    begin((char *[]){(char[]){"42"}, (char[]){"-h"}, (char[]){"u1"}, (char[]){"-"}, NULL});
    next_word("42");
    next_flag("h");
    next_word("u1");
    next_word("-");
    assert_false(arguments_next(&walk, &argument));
}

static void test_arguments__takes_everything_after_two_dashes_as_words(void **state)
{
    begin((char *[]){(char[]){"--"}, (char[]){"--user"}, (char[]){"--"}, NULL});
    next_word("--user");
    next_word("--");
    assert_false(arguments_next(&walk, &argument));
}

static void test_arguments__cuts_a_name_that_is_too_long(void **state)
{
    char flag[256] = "--";
    for (size_t i = 2; i < sizeof(flag) - 1; i++)
        flag[i] = 'x';
    begin((char *[]){flag, NULL});
    assert_true(arguments_next(&walk, &argument));
    assert_true(argument.is_flag);
    assert_int_equal(argument.name[ARGUMENT_NAME_SIZE - 1], '\0');
}

static const char *nearest(const char *word)
{
    static const char *const known[] = {"listen",     "ledger", "log_level",
                                        "log_format", "gate",   "admin_token_file"};
    static struct suggestion suggestion;
    suggestion_begin(&suggestion, word);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        suggestion_offer(&suggestion, known[i]);
    return suggestion_hint(&suggestion, "", NULL);
}

static void test_arguments__finds_a_dropped_added_changed_or_swapped_character(void **state)
{
    assert_string_equal(nearest("listn"), "; did you mean listen?");
    assert_string_equal(nearest("listeen"), "; did you mean listen?");
    assert_string_equal(nearest("lisden"), "; did you mean listen?");
    assert_string_equal(nearest("agte"), "; did you mean gate?");
}

static void test_arguments__counts_a_swap_once(void **state)
{
    /* Four characters allow one change, and a swap without its own rule would be two. */
    assert_string_equal(nearest("gaet"), "; did you mean gate?");
    assert_null(nearest("gxxe"));
}

static void test_arguments__takes_dashes_and_case_for_what_they_mean(void **state)
{
    assert_string_equal(nearest("log-level"), "; did you mean log_level?");
    assert_string_equal(nearest("LOG_LEVEL"), "; did you mean log_level?");
    assert_string_equal(nearest("admin-token-fil"), "; did you mean admin_token_file?");
}

static void test_arguments__is_silent_when_nothing_is_near(void **state)
{
    assert_null(nearest("kafka"));
    assert_null(nearest(""));
    assert_null(nearest("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments__takes_a_value_after_an_equals_sign_or_as_the_next_one),
        cmocka_unit_test(test_arguments__does_not_take_the_next_flag_for_a_value),
        cmocka_unit_test(test_arguments__mixes_words_and_flags),
        cmocka_unit_test(test_arguments__takes_everything_after_two_dashes_as_words),
        cmocka_unit_test(test_arguments__cuts_a_name_that_is_too_long),
        cmocka_unit_test(test_arguments__finds_a_dropped_added_changed_or_swapped_character),
        cmocka_unit_test(test_arguments__counts_a_swap_once),
        cmocka_unit_test(test_arguments__takes_dashes_and_case_for_what_they_mean),
        cmocka_unit_test(test_arguments__is_silent_when_nothing_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
