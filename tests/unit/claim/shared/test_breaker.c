/* test_breaker.c: when a gate is asked, left alone and tried again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs those above it. */
#include <cmocka.h>

#include "claim/shared/breaker.h"

static struct breaker opened(int64_t now_ms)
{
    struct breaker breaker = {.state = BREAKER_CLOSED};

    for (int i = 0; i < BREAKER_FAILURES_MAX; i++)
        (void)breaker_note(&breaker, true, now_ms);
    assert_int_equal(breaker.state, BREAKER_OPEN);
    return breaker;
}

static void test_breaker__quick_one_opens_at_the_first_failure(void **state)
{
    struct breaker breaker = {.state = BREAKER_CLOSED, .is_quick = true};

    (void)state;
    assert_false(breaker_note(&breaker, false, 10));
    assert_true(breaker_note(&breaker, true, 10));
    assert_int_equal(breaker.state, BREAKER_OPEN);
}

static void test_breaker__opens_after_failures_in_a_row(void **state)
{
    struct breaker breaker = {.state = BREAKER_CLOSED};

    (void)state;
    for (int i = 1; i < BREAKER_FAILURES_MAX; i++)
        assert_false(breaker_note(&breaker, true, 10));
    /* One that was answered begins the count anew. */
    assert_false(breaker_note(&breaker, false, 11));
    for (int i = 1; i < BREAKER_FAILURES_MAX; i++) {
        assert_false(breaker_note(&breaker, true, 12));
        assert_true(breaker_lets_through(&breaker, 12));
    }
    assert_true(breaker_note(&breaker, true, 13));
    assert_int_equal(breaker.state, BREAKER_OPEN);
    assert_int_equal(breaker.probe_at_ms, 13 + BREAKER_PAUSE_MIN_MS);
    assert_false(breaker_lets_through(&breaker, 13 + BREAKER_PAUSE_MAX_MS));
}

static void test_breaker__what_was_asked_before_changes_nothing(void **state)
{
    struct breaker breaker = opened(10);

    (void)state;
    assert_false(breaker_note(&breaker, true, 20));
    assert_false(breaker_note(&breaker, false, 20));
    assert_int_equal(breaker.state, BREAKER_OPEN);
    assert_int_equal(breaker.probe_at_ms, 10 + BREAKER_PAUSE_MIN_MS);
}

static void test_breaker__half_open_lets_one_through(void **state)
{
    struct breaker breaker = opened(10);

    (void)state;
    breaker_try(&breaker, 20);
    assert_int_equal(breaker.state, BREAKER_HALF_OPEN);
    assert_true(breaker_lets_through(&breaker, 21));
    assert_false(breaker_lets_through(&breaker, 22));
    assert_false(breaker_lets_through(&breaker, 20 + BREAKER_PROBE_MS));
    assert_true(breaker_note(&breaker, false, 23));
    assert_int_equal(breaker.state, BREAKER_CLOSED);
    assert_true(breaker_lets_through(&breaker, 24));
    /* All failures are forgotten. */
    assert_false(breaker_note(&breaker, true, 25));
    assert_int_equal(breaker.state, BREAKER_CLOSED);
}

static void test_breaker__a_failed_probe_opens_it_again(void **state)
{
    struct breaker breaker = opened(10);

    (void)state;
    breaker_try(&breaker, 20);
    assert_true(breaker_lets_through(&breaker, 21));
    assert_true(breaker_note(&breaker, true, 30));
    assert_int_equal(breaker.state, BREAKER_OPEN);
    assert_false(breaker_lets_through(&breaker, 31));
}

static void test_breaker__a_lost_probe_is_sent_again(void **state)
{
    struct breaker breaker = opened(10);

    (void)state;
    breaker_try(&breaker, 20);
    assert_true(breaker_lets_through(&breaker, 21));
    assert_true(breaker_lets_through(&breaker, 21 + BREAKER_PROBE_MS));
    assert_false(breaker_lets_through(&breaker, 22 + BREAKER_PROBE_MS));
}

static void test_breaker__looks_become_rarer_and_are_spread(void **state)
{
    struct breaker breaker = opened(0);
    int64_t now_ms = 0;

    (void)state;
    for (int i = 0; i < 10; i++) {
        struct breaker early = breaker;
        struct breaker late = breaker;
        breaker_put_off(&early, now_ms, 0);
        breaker_put_off(&late, now_ms, 1023);
        assert_true(early.probe_at_ms - now_ms >= BREAKER_PAUSE_MIN_MS);
        assert_true(late.probe_at_ms - early.probe_at_ms > early.pause_ms / 3);
        assert_true(late.probe_at_ms - now_ms <= BREAKER_PAUSE_MAX_MS);
        assert_true(early.pause_ms >= breaker.pause_ms);
        breaker = late;
        now_ms = late.probe_at_ms;
    }
    assert_int_equal(breaker.pause_ms, BREAKER_PAUSE_MAX_MS);
}

static void test_breaker__one_that_nobody_uses_closes(void **state)
{
    struct breaker breaker = opened(10);

    (void)state;
    assert_false(breaker_forget(&breaker, 10 + 10 * BREAKER_FORGET_MS));
    breaker_try(&breaker, 20);
    assert_false(breaker_forget(&breaker, 19 + BREAKER_FORGET_MS));
    assert_true(breaker_forget(&breaker, 20 + BREAKER_FORGET_MS));
    assert_int_equal(breaker.state, BREAKER_CLOSED);
    /* A single failure is forgotten as well, which changes no state. */
    assert_false(breaker_note(&breaker, true, 50000));
    assert_false(breaker_forget(&breaker, 50000 + BREAKER_FORGET_MS));
    assert_int_equal(breaker.failure_count, 0);
    /* While a probe is under way it stays as it is. */
    breaker_try(&breaker, 60000);
    assert_true(breaker_lets_through(&breaker, 60000 + BREAKER_FORGET_MS - 1));
    assert_false(breaker_forget(&breaker, 60000 + BREAKER_FORGET_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_breaker__opens_after_failures_in_a_row),
        cmocka_unit_test(test_breaker__quick_one_opens_at_the_first_failure),
        cmocka_unit_test(test_breaker__what_was_asked_before_changes_nothing),
        cmocka_unit_test(test_breaker__half_open_lets_one_through),
        cmocka_unit_test(test_breaker__a_failed_probe_opens_it_again),
        cmocka_unit_test(test_breaker__a_lost_probe_is_sent_again),
        cmocka_unit_test(test_breaker__looks_become_rarer_and_are_spread),
        cmocka_unit_test(test_breaker__one_that_nobody_uses_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
