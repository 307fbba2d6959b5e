/* test_metrics.c: text that Prometheus takes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/metrics.h"

static struct buffer out;

static int setup(void **state)
{
    buffer_init(&out, 1 << 20);
    return 0;
}

static int teardown(void **state)
{
    buffer_release(&out);
    return 0;
}

static void test_metrics__family_names_kind_and_help(void **state)
{
    metrics_family(&out, "dibs_claims_total", METRICS_COUNTER, "Claims by result.");
    metrics_family(&out, "dibs_connections", METRICS_GAUGE, "Open \"now\".");
    metrics_family(&out, "dibs_commit_seconds", METRICS_HISTOGRAM, "Commits.");
    assert_string_equal(out.bytes, "# HELP dibs_claims_total Claims by result.\n"
                                   "# TYPE dibs_claims_total counter\n"
                                   "# HELP dibs_connections Open \"now\".\n"
                                   "# TYPE dibs_connections gauge\n"
                                   "# HELP dibs_commit_seconds Commits.\n"
                                   "# TYPE dibs_commit_seconds histogram\n");
}

static void test_metrics__samples_with_and_without_labels(void **state)
{
    metrics_sample_u64(&out, "a_total", NULL, 0);
    metrics_sample_u64(&out, "a_total", "", 1);
    metrics_sample_u64(&out, "a_total", "result=\"issued\"", UINT64_MAX);
    metrics_sample(&out, "b", "x=\"1\",y=\"2\"", 0.1);
    metrics_sample(&out, "b", NULL, 100);
    assert_string_equal(out.bytes, "a_total 0\n"
                                   "a_total 1\n"
                                   "a_total{result=\"issued\"} 18446744073709551615\n"
                                   "b{x=\"1\",y=\"2\"} 0.1\n"
                                   "b 100\n");
}

static void test_metrics__doubles_are_short_and_exact(void **state)
{
    static const double values[] = {0,       1,       -1,           1.5,       0.1,
                                    1.0 / 3, 2.0 / 3, 1e-9,         4.095e-06, 1e15,
                                    1e300,   5e-324,  123456789.25, 0.1 + 0.2, 1794744000.123};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        buffer_clear(&out);
        metrics_sample(&out, "m", NULL, values[i]);
        assert_true(strtod(out.bytes + 2, NULL) == values[i]);
    }
    buffer_clear(&out);
    metrics_sample(&out, "m", NULL, 0.1 + 0.2);
    metrics_sample(&out, "m", NULL, 0.3);
    assert_string_equal(out.bytes, "m 0.30000000000000004\nm 0.3\n");
}

/* Reads the bucket lines back: limits rise, counts never fall, the last one is everything. */
static void check_buckets(const struct histogram_snapshot *snapshot, double divisor)
{
    double limit_before = -1;
    unsigned long long count_before = 0;
    size_t line_count = 0;
    bool ended = false;
    char *rest = out.bytes;
    for (char *text = strsep(&rest, "\n"); rest != NULL; text = strsep(&rest, "\n")) {
        char limit_text[64];
        unsigned long long count;
        if (sscanf(text, "s_bucket{a=\"1\",le=\"%63[^\"]\"} %llu", limit_text, &count) != 2)
            continue;
        double limit = strtod(limit_text, NULL);
        assert_false(ended);
        assert_true(limit > limit_before);
        assert_true(count >= count_before);
        unsigned long long expected = 0;
        for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
            if (isinf(limit) || (double)histogram_bucket_limit(i) / divisor <= limit)
                expected += snapshot->counts[i];
        assert_int_equal(count, expected);
        ended = strcmp(limit_text, "+Inf") == 0;
        limit_before = limit;
        count_before = count;
        line_count++;
    }
    assert_true(ended);
    assert_int_equal(count_before, snapshot->count);
    /* 1, 2 and 5 times each power of ten from 10 us to 1000 s, and what is above. */
    assert_int_equal(line_count, 3 * 8 + 1 + 1);
}

static void test_metrics__histogram_lines_are_cumulative(void **state)
{
    static struct histogram histogram;
    for (uint64_t value = 1; value < UINT64_C(1) << 50; value = value * 3 + 1)
        histogram_record(&histogram, value);
    struct histogram_snapshot snapshot;
    memset(&snapshot, 0, sizeof(snapshot));
    histogram_add_to(&histogram, &snapshot);
    metrics_histogram(&out, "s", "a=\"1\"", &snapshot, 1e9);

    char expected[128];
    snprintf(expected, sizeof(expected), "\ns_count{a=\"1\"} %llu\n",
             (unsigned long long)snapshot.count);
    assert_non_null(strstr(out.bytes, expected));
    const char *sum = strstr(out.bytes, "\ns_sum{a=\"1\"} ");
    assert_non_null(sum);
    assert_true(strtod(strchr(sum, ' '), NULL) == (double)snapshot.sum / 1e9);
    check_buckets(&snapshot, 1e9);
}

static void test_metrics__promises_are_read_off_a_histogram(void **state)
{
    static struct histogram histogram;
    for (uint64_t ms = 1; ms <= 200; ms++)
        histogram_record(&histogram, ms * 1000000);
    struct histogram_snapshot snapshot;
    memset(&snapshot, 0, sizeof(snapshot));
    histogram_add_to(&histogram, &snapshot);
    metrics_histogram(&out, "s", NULL, &snapshot, 1e9);
    assert_non_null(strstr(out.bytes, "s_bucket{le=\"0.01\"} 10\n"));
    assert_non_null(strstr(out.bytes, "s_bucket{le=\"0.1\"} 100\n"));
    assert_non_null(strstr(out.bytes, "s_bucket{le=\"0.2\"} 200\n"));
}

static void test_metrics__an_empty_histogram_exports_zeros(void **state)
{
    struct histogram_snapshot snapshot;
    memset(&snapshot, 0, sizeof(snapshot));
    metrics_histogram(&out, "s", NULL, &snapshot, 1);
    const char *start = "s_bucket{le=\"1\"} 0\ns_bucket{le=\"2\"} 0\ns_bucket{le=\"5\"} 0\n";
    assert_memory_equal(out.bytes, start, strlen(start));
    const char *end = "\ns_bucket{le=\"+Inf\"} 0\ns_sum 0\ns_count 0\n";
    assert_string_equal(out.bytes + out.length - strlen(end), end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_metrics__family_names_kind_and_help, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics__samples_with_and_without_labels, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_metrics__doubles_are_short_and_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(test_metrics__histogram_lines_are_cumulative, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_metrics__promises_are_read_off_a_histogram, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_metrics__an_empty_histogram_exports_zeros, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
