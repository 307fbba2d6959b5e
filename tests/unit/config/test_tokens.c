/* test_tokens.c: lines of NAME ROLE TOKEN, and what is said about those that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "config/tokens.h"

#define TOKEN "0123456789abcdef"

static struct named_token tokens[NAMED_TOKENS_MAX];
static struct error error;

static void test_tokens__reads_each_line(void **state)
{
    size_t count;

    (void)state;
    assert_int_equal(named_tokens_read(SPAN("# the night shift\n"
                                            "  vera\tviewer " TOKEN "  \r\n"
                                            "\n"
                                            "o.t-t_o operator other-" TOKEN),
                                       tokens, &count, &error),
                     STATUS_OK);
    assert_int_equal(count, 2);
    assert_string_equal(tokens[0].name, "vera");
    assert_int_equal(tokens[0].role, ACCESS_VIEWER);
    assert_true(span_equal(tokens[0].token, SPAN(TOKEN)));
    assert_string_equal(tokens[1].name, "o.t-t_o");
    assert_int_equal(tokens[1].role, ACCESS_OPERATOR);
}

static void test_tokens__says_which_line_is_wrong(void **state)
{
    static const struct {
        const char *text;
        const char *words;
    } cases[] = {
        {"vera viewer", "line 1: the token must be at least 16"},
        {"vera viewer short", "line 1: the token must be at least 16"},
        {"\n#\nvera boss " TOKEN, "line 3: a line is NAME ROLE TOKEN"},
        {"vera viewer " TOKEN " more", "line 1: a line is NAME ROLE TOKEN"},
        {"v/a viewer " TOKEN, "line 1: the name must be"},
        {"a123456789012345678901234567890123 viewer " TOKEN, "line 1: the name must be"},
        {"vera viewer " TOKEN "\nvera admin x" TOKEN,
         "line 2: the name or the token is there twice"},
        {"vera viewer " TOKEN "\notto admin " TOKEN,
         "line 2: the name or the token is there twice"},
    };
    size_t count;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(named_tokens_read(span_of(cases[i].text), tokens, &count, &error),
                         STATUS_INVALID);
        if (strstr(error.text, cases[i].words) != error.text)
            fail_msg("%s: %s", cases[i].text, error.text);
        assert_null(strstr(error.text, TOKEN));
    }
}

static void test_tokens__there_are_64_at_most(void **state)
{
    char text[65 * 40] = "";
    size_t count;

    (void)state;
    for (int i = 0; i < 65; i++) {
        char line[40];
        snprintf(line, sizeof(line), "n%d viewer token-%010d\n", i, i);
        strcat(text, line);
        if (i == 63)
            assert_int_equal(named_tokens_read(span_of(text), tokens, &count, &error), STATUS_OK);
    }
    assert_int_equal(count, 64);
    assert_int_equal(named_tokens_read(span_of(text), tokens, &count, &error), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens__reads_each_line),
        cmocka_unit_test(test_tokens__says_which_line_is_wrong),
        cmocka_unit_test(test_tokens__there_are_64_at_most),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
