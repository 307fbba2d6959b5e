/* test_figures.c: quantiles of known latencies, and outcomes in their bins. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rush/report.h"

#define MS INT64_C(1000000)

static void test_figures__quantiles_are_those_of_the_sorted_latencies(void **state)
{
    struct rush_press presses[1000];
    struct rush_figures figures;
    struct error error;

    (void)state;
    memset(presses, 0, sizeof(presses));
    for (size_t i = 0; i < 1000; i++) {
        /* 1 to 1,000 ms, in no order. */
        int64_t latency_ns = (int64_t)((i * 617) % 1000 + 1) * MS;
        presses[i] = (struct rush_press){.is_sent = true,
                                         .outcome = RUSH_SOLD_OUT,
                                         .due_ns = 5 * MS,
                                         .sent_ns = 9 * MS,
                                         .answered_ns = 5 * MS + latency_ns};
    }
    assert_int_equal(rush_figures_make(&figures, presses, 1000, -1, &error), STATUS_OK);
    assert_int_equal(figures.answered_count, 1000);
    assert_int_equal(figures.min_ns, MS);
    assert_int_equal(figures.max_ns, 1000 * MS);
    assert_int_equal(figures.mean_ns, 500500000);
    assert_int_equal(rush_figures_latency_ns(&figures, 0), MS);
    assert_int_equal(rush_figures_latency_ns(&figures, 0.5), 500 * MS);
    assert_int_equal(rush_figures_latency_ns(&figures, 0.99), 990 * MS);
    assert_int_equal(rush_figures_latency_ns(&figures, 0.999), 999 * MS);
    assert_int_equal(rush_figures_latency_ns(&figures, 1), 1000 * MS);
    /* Four points for each halving, as long as there is somebody above. */
    assert_int_equal(figures.curve_count, 40);
    assert_int_equal(figures.curve[4].ns, 500 * MS);
    assert_int_equal(figures.curve[8].ns, 750 * MS);
    rush_figures_release(&figures);
}

static void test_figures__outcomes_are_counted_when_they_were_answered(void **state)
{
    struct rush_press presses[400];
    struct rush_figures figures;
    struct error error;
    uint64_t sums[RUSH_GROUPS] = {0};

    (void)state;
    memset(presses, 0, sizeof(presses));
    for (size_t i = 0; i < 400; i++) {
        presses[i].is_sent = i < 390;
        presses[i].outcome = i < 100   ? RUSH_WON
                             : i < 380 ? RUSH_SOLD_OUT
                             : i < 385 ? RUSH_NONE
                                       : RUSH_BUSY;
        presses[i].answered_ns = (int64_t)(i + 1) * 10 * MS;
    }
    assert_int_equal(rush_figures_make(&figures, presses, 400, 1000 * MS, &error), STATUS_OK);
    for (size_t bin = 0; bin < figures.whole.bin_count; bin++)
        for (size_t group = 0; group < RUSH_GROUPS; group++)
            sums[group] += figures.whole.counts[bin][group];
    assert_int_equal(sums[RUSH_GROUP_WON], 100);
    assert_int_equal(sums[RUSH_GROUP_SOLD_OUT], 280);
    assert_int_equal(sums[RUSH_GROUP_FAILED], 10);
    /* The first moments end a little after the sell-out. */
    assert_in_range(figures.start.bin_ns * RUSH_BINS, 1500 * MS, 1501 * MS);
    rush_figures_release(&figures);
}

static void test_figures__nobody_pressed(void **state)
{
    struct rush_figures figures;
    struct error error;

    (void)state;
    assert_int_equal(rush_figures_make(&figures, NULL, 0, -1, &error), STATUS_OK);
    assert_int_equal(figures.curve_count, 0);
    assert_int_equal(rush_figures_latency_ns(&figures, 0.99), 0);
    rush_figures_release(&figures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures__quantiles_are_those_of_the_sorted_latencies),
        cmocka_unit_test(test_figures__outcomes_are_counted_when_they_were_answered),
        cmocka_unit_test(test_figures__nobody_pressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
