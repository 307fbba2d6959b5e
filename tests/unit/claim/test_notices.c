/* test_notices.c: the last things that happened, and nothing twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "claim/notices.h"

static int start(void **state)
{
    static struct notices notices;
    notices_init(&notices);
    *state = &notices;
    return 0;
}

static int stop(void **state)
{
    notices_release(*state);
    return 0;
}

static void test_notices__tells_of_a_policy_and_of_the_server(void **state)
{
    struct notices *notices = *state;
    struct notice out[10];
    notices_add(notices, 1000, 42, "paused", "by %s", "hand");
    notices_add(notices, 2000, 43, "paused", "another's");
    notices_add(notices, 3000, 0, "dead_letters", "everybody's");
    assert_int_equal(notices_read(notices, 42, 0, UINT64_MAX, out, 10), 2);
    assert_string_equal(out[0].text, "by hand");
    assert_int_equal(out[0].at_ms, 1000);
    assert_string_equal(out[1].event, "dead_letters");
    assert_int_equal(notices_latest(notices), 3);
}

static void test_notices__goes_on_where_it_was(void **state)
{
    struct notices *notices = *state;
    struct notice out[10];
    notices_add(notices, 1, 42, "a", "1");
    uint64_t seen = notices_latest(notices);
    assert_int_equal(notices_read(notices, 42, seen, UINT64_MAX, out, 10), 0);
    notices_add(notices, 2, 42, "b", "2");
    notices_add(notices, 3, 42, "c", "3");
    assert_int_equal(notices_read(notices, 42, seen, UINT64_MAX, out, 10), 2);
    assert_string_equal(out[0].event, "b");
    assert_string_equal(out[1].event, "c");
    /* What came after `until` is left for the next time. */
    assert_int_equal(notices_read(notices, 42, 0, seen, out, 10), 1);
    assert_string_equal(out[0].event, "a");
}

static void test_notices__keeps_the_last(void **state)
{
    struct notices *notices = *state;
    struct notice out[NOTICES_MAX + 10];
    for (int i = 1; i <= 3 * NOTICES_MAX; i++)
        notices_add(notices, i, 42, "changed", "%d", i);
    assert_int_equal(notices_read(notices, 42, 0, UINT64_MAX, out, NOTICES_MAX + 10), NOTICES_MAX);
    assert_int_equal(out[0].at_ms, 2 * NOTICES_MAX + 1);
    assert_int_equal(out[NOTICES_MAX - 1].at_ms, 3 * NOTICES_MAX);
    assert_int_equal(notices_read(notices, 42, 0, UINT64_MAX, out, 5), 5);
    assert_int_equal(out[0].at_ms, 3 * NOTICES_MAX - 4);
}

static void test_notices__cuts_long_words(void **state)
{
    struct notices *notices = *state;
    struct notice out[1];
    char words[400];
    memset(words, 'w', sizeof(words) - 1);
    words[sizeof(words) - 1] = '\0';
    notices_add(notices, 1, 42, "changed", "%s", words);
    assert_int_equal(notices_read(notices, 42, 0, UINT64_MAX, out, 1), 1);
    assert_int_equal(strlen(out[0].text), NOTICE_TEXT_SIZE - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_notices__tells_of_a_policy_and_of_the_server, start,
                                        stop),
        cmocka_unit_test_setup_teardown(test_notices__goes_on_where_it_was, start, stop),
        cmocka_unit_test_setup_teardown(test_notices__keeps_the_last, start, stop),
        cmocka_unit_test_setup_teardown(test_notices__cuts_long_words, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
