/* test_preflight.c: how what was seen before a drop is judged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "claim/preflight.h"

#define NOW_MS INT64_C(1763200000000)
#define MB     (INT64_C(1024) * 1024)

static void assert_check(struct preflight_check check, const char *name, enum preflight_state state,
                         const char *text)
{
    assert_string_equal(check.name, name);
    assert_int_equal(check.state, state);
    if (strstr(check.text, text) == NULL) {
        print_error("\"%s\" is not in \"%s\"\n", text, check.text);
        fail();
    }
}

static void test_preflight__window(void **state)
{
    (void)state;
    static const struct {
        enum policy_state state;
        int64_t opens_in_ms;
        int64_t closes_in_ms; /* 0: never */
        enum preflight_state verdict;
        const char *text;
    } cases[] = {
        {POLICY_SCHEDULED, 1, 0, PREFLIGHT_OK, "Opens in 1 s."},
        {POLICY_SCHEDULED, 59000, 0, PREFLIGHT_OK, "Opens in 59 s."},
        {POLICY_SCHEDULED, 60000, 0, PREFLIGHT_OK, "Opens in 1 min 0 s."},
        {POLICY_SCHEDULED, 3723000, 0, PREFLIGHT_OK, "Opens in 1 h 2 min."},
        {POLICY_SCHEDULED, 183600000, 0, PREFLIGHT_OK, "Opens in 2 d 3 h."},
        {POLICY_OPEN, 0, 0, PREFLIGHT_OK, "closed by hand"},
        {POLICY_OPEN, 0, 7000, PREFLIGHT_OK, "closes in 7 s"},
        {POLICY_PAUSED, 0, 0, PREFLIGHT_WARN, "paused"},
        {POLICY_CLOSED, 0, 0, PREFLIGHT_FAIL, "closed"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gate_numbers numbers = {
            .state = cases[i].state,
            .opens_at_ms = NOW_MS + cases[i].opens_in_ms,
            .closes_at_ms = cases[i].closes_in_ms == 0 ? 0 : NOW_MS + cases[i].closes_in_ms,
        };
        assert_check(preflight_judge_window(&numbers, NOW_MS), "window", cases[i].verdict,
                     cases[i].text);
    }
}

static void test_preflight__stock(void **state)
{
    (void)state;
    struct gate_numbers numbers = {.state = POLICY_OPEN, .total = 1000, .remaining = 7};
    assert_check(preflight_judge_stock(&numbers), "stock", PREFLIGHT_OK, "7 of 1000");
    numbers.remaining = 0;
    assert_check(preflight_judge_stock(&numbers), "stock", PREFLIGHT_FAIL, "None of the 1000");
}

static void test_preflight__clock(void **state)
{
    (void)state;
    assert_check(preflight_judge_clock(0, true), "clock", PREFLIGHT_OK, "agree");
    assert_check(preflight_judge_clock(-100, true), "clock", PREFLIGHT_OK, "100 ms");
    assert_check(preflight_judge_clock(0, false), "clock", PREFLIGHT_WARN, "time service");
    assert_check(preflight_judge_clock(101, true), "clock", PREFLIGHT_WARN, "101 ms ahead of");
    assert_check(preflight_judge_clock(-1000, false), "clock", PREFLIGHT_WARN, "1000 ms behind");
    assert_check(preflight_judge_clock(-1001, true), "clock", PREFLIGHT_FAIL, "1001 ms behind");
}

static void test_preflight__disk(void **state)
{
    (void)state;
    /* A million coupons take 381 MB and the logs 64. */
    const int64_t coupons = 1000000;
    const int64_t wanted = coupons * 400 + 64 * MB;
    assert_check(preflight_judge_disk(-1, coupons), "disk", PREFLIGHT_OK, "445 MB");
    assert_check(preflight_judge_disk(0, 0), "disk", PREFLIGHT_FAIL, "0 MB are free");
    assert_check(preflight_judge_disk(wanted - 1, coupons), "disk", PREFLIGHT_FAIL, "445 MB");
    assert_check(preflight_judge_disk(wanted, coupons), "disk", PREFLIGHT_WARN, "445 MB");
    assert_check(preflight_judge_disk(79239 * MB, coupons), "disk", PREFLIGHT_OK, "79 GB are free");
    assert_check(preflight_judge_disk(2 * wanted, coupons), "disk", PREFLIGHT_OK, "890 MB");
    assert_check(preflight_judge_disk(INT64_MAX, 100000000), "disk", PREFLIGHT_OK, "free");
}

static void test_preflight__loss(void **state)
{
    (void)state;
    assert_check(preflight_judge_loss(GATE_LOSES_NOTHING, 0), "loss", PREFLIGHT_OK,
                 "Nothing: a winner is told");
    assert_check(preflight_judge_loss(GATE_LOSES_ACCEPTED, 0), "loss", PREFLIGHT_OK,
                 "Nothing that was answered 201");
    assert_check(preflight_judge_loss(GATE_LOSES_AT_FAILOVER, 0), "loss", PREFLIGHT_OK,
                 "a failover may lose the last 202s");
    assert_check(preflight_judge_loss(GATE_LOSES_AT_FAILOVER, 2), "loss", PREFLIGHT_OK,
                 "none of the 2");
    assert_check(preflight_judge_loss(GATE_LOSES_SECONDS, 0), "loss", PREFLIGHT_WARN,
                 "up to 2 s of 202s");
    assert_check(preflight_judge_loss(GATE_LOSES_PENDING, 0), "loss", PREFLIGHT_FAIL, "every 202");
}

static void test_preflight__one_failure_is_enough(void **state)
{
    (void)state;
    struct preflight preflight = {.count = 2};
    preflight.checks[1].state = PREFLIGHT_WARN;
    assert_true(preflight_is_ready(&preflight));
    preflight.checks[0].state = PREFLIGHT_FAIL;
    assert_false(preflight_is_ready(&preflight));
    preflight.count = 0;
    assert_true(preflight_is_ready(&preflight));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_preflight__window),
        cmocka_unit_test(test_preflight__stock),
        cmocka_unit_test(test_preflight__clock),
        cmocka_unit_test(test_preflight__disk),
        cmocka_unit_test(test_preflight__loss),
        cmocka_unit_test(test_preflight__one_failure_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
