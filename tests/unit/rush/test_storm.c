/* test_storm.c: who presses, and when each press is due. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rush/storm.h"

static struct rush_plan make(struct rush_plan_options options)
{
    struct rush_plan plan;
    struct error error = {""};

    options.seed = 7;
    assert_int_equal(rush_plan_make(&plan, &options, &error), STATUS_OK);
    return plan;
}

static void test_storm__everybody_presses_once_in_order(void **state)
{
    struct rush_plan plan = make((struct rush_plan_options){.user_count = 1000});

    (void)state;
    assert_int_equal(plan.press_count, 1000);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(plan.users[i], i);
        assert_int_equal(rush_plan_due_ns(&plan, i), 0);
    }
    rush_plan_release(&plan);
}

static void test_storm__a_steady_rate_is_on_an_absolute_schedule(void **state)
{
    struct rush_plan plan = make((struct rush_plan_options){
        .shape = RUSH_STEADY, .user_count = 100, .rate_per_s = 50, .duration_s = 10});

    (void)state;
    assert_int_equal(plan.press_count, 500);
    for (size_t i = 0; i < 500; i++)
        assert_int_equal(rush_plan_due_ns(&plan, i), (int64_t)i * 20000000);
    /* After everybody has pressed once, they press again. */
    bool seen_again[100] = {false};
    for (size_t i = 100; i < 500; i++) {
        assert_true(plan.users[i] < 100);
        seen_again[plan.users[i]] = true;
    }
    size_t again_count = 0;
    for (size_t i = 0; i < 100; i++)
        again_count += seen_again[i];
    assert_true(again_count > 80);
    rush_plan_release(&plan);
}

static void test_storm__a_short_duration_leaves_the_last_users_out(void **state)
{
    struct rush_plan plan = make((struct rush_plan_options){
        .shape = RUSH_STEADY, .user_count = 100, .rate_per_s = 10, .duration_s = 2});

    (void)state;
    assert_int_equal(plan.press_count, 20);
    assert_int_equal(plan.users[19], 19);
    rush_plan_release(&plan);
}

static void test_storm__a_ramp_rises_evenly_to_its_rate(void **state)
{
    struct rush_plan plan = make((struct rush_plan_options){
        .shape = RUSH_RAMP, .user_count = 10, .rate_per_s = 1000, .duration_s = 10});

    (void)state;
    assert_int_equal(plan.press_count, 5000);
    /* Half the time has a quarter of the presses; the last second, a fifth of them less a bit. */
    size_t first_half = 0;
    size_t last_second = 0;
    for (size_t i = 0; i < plan.press_count; i++) {
        int64_t due_ns = rush_plan_due_ns(&plan, i);
        assert_true(i == 0 || due_ns >= rush_plan_due_ns(&plan, i - 1));
        assert_true(due_ns <= INT64_C(10000000000));
        first_half += due_ns < INT64_C(5000000000);
        last_second += due_ns >= INT64_C(9000000000);
    }
    assert_in_range(first_half, 1249, 1251);
    assert_in_range(last_second, 949, 951);
    rush_plan_release(&plan);
}

static void test_storm__bursts_come_together(void **state)
{
    struct rush_plan plan = make((struct rush_plan_options){.shape = RUSH_BURSTS,
                                                            .user_count = 2000,
                                                            .burst_size = 200,
                                                            .burst_interval_ns = 1000000000});

    (void)state;
    assert_int_equal(plan.press_count, 2000);
    for (size_t i = 0; i < 2000; i++)
        assert_int_equal(rush_plan_due_ns(&plan, i), (int64_t)(i / 200) * 1000000000);
    rush_plan_release(&plan);
}

static void test_storm__some_press_twice_and_soon(void **state)
{
    struct rush_plan plan =
        make((struct rush_plan_options){.user_count = 20000, .duplicate_share = 0.1});
    size_t first_at[20000];
    size_t twice_count = 0;

    (void)state;
    memset(first_at, 0xff, sizeof(first_at));
    for (size_t i = 0; i < plan.press_count; i++) {
        uint32_t user = plan.users[i];
        assert_true(user < 20000);
        if (first_at[user] == SIZE_MAX) {
            first_at[user] = i;
            continue;
        }
        twice_count++;
        assert_true(i - first_at[user] < 400);
    }
    assert_in_range(twice_count, 1800, 2200);
    assert_int_equal(plan.press_count, 20000 + twice_count);
    rush_plan_release(&plan);
}

static void test_storm__too_many_presses_are_refused(void **state)
{
    struct rush_plan plan;
    struct error error = {""};
    struct rush_plan_options options = {
        .shape = RUSH_STEADY, .user_count = 1, .rate_per_s = 1e6, .duration_s = 3600};

    (void)state;
    assert_int_equal(rush_plan_make(&plan, &options, &error), STATUS_INVALID);
    assert_non_null(strstr(error.text, "3600000000"));
    rush_plan_release(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storm__everybody_presses_once_in_order),
        cmocka_unit_test(test_storm__a_steady_rate_is_on_an_absolute_schedule),
        cmocka_unit_test(test_storm__a_short_duration_leaves_the_last_users_out),
        cmocka_unit_test(test_storm__a_ramp_rises_evenly_to_its_rate),
        cmocka_unit_test(test_storm__bursts_come_together),
        cmocka_unit_test(test_storm__some_press_twice_and_soon),
        cmocka_unit_test(test_storm__too_many_presses_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
