/* test_histogram.c: buckets without gaps, and quantiles against sorted values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/metrics.h"

/* The bucket a value was counted in. */
static unsigned recorded_bucket(uint64_t value)
{
    struct histogram histogram;
    memset(&histogram, 0, sizeof(histogram));
    histogram_record(&histogram, value);
    unsigned bucket = HISTOGRAM_BUCKETS;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (atomic_load(&histogram.counts[i]) == 1) {
            assert_int_equal(bucket, HISTOGRAM_BUCKETS);
            bucket = i;
        }
    }
    assert_true(bucket < HISTOGRAM_BUCKETS);
    assert_int_equal(atomic_load(&histogram.sum), value);
    return bucket;
}

static void test_histogram__limits_and_buckets_agree(void **state)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t limit = histogram_bucket_limit(i);
        assert_int_equal(recorded_bucket(limit), i);
        if (i + 1 < HISTOGRAM_BUCKETS) {
            assert_true(limit < histogram_bucket_limit(i + 1));
            assert_int_equal(recorded_bucket(limit + 1), i + 1);
        }
    }
    assert_int_equal(histogram_bucket_limit(HISTOGRAM_BUCKETS - 1), UINT64_MAX);
}

static void test_histogram__there_are_ten_buckets_per_power_of_ten(void **state)
{
    static const uint64_t limits[] = {0,  1,  2,  3,  4,  5,  6,   8,   10,  12,  16, 20,
                                      25, 31, 40, 50, 63, 80, 100, 125, 160, 200, 250};
    for (size_t i = 0; i < COUNT_OF(limits); i++)
        assert_int_equal(histogram_bucket_limit(i), limits[i]);
    for (unsigned i = 18; i + 12 < HISTOGRAM_BUCKETS; i++)
        assert_int_equal(histogram_bucket_limit(i + 10), 10 * histogram_bucket_limit(i));
}

static void test_histogram__round_numbers_end_a_bucket(void **state)
{
    static const uint64_t digits[] = {1, 2, 5};
    for (uint64_t power = 1; power < UINT64_C(1000000000000); power *= 10) {
        for (size_t i = 0; i < COUNT_OF(digits); i++) {
            unsigned bucket = recorded_bucket(digits[i] * power);
            assert_int_equal(histogram_bucket_limit(bucket), digits[i] * power);
            assert_true(histogram_bucket_is_round(bucket));
        }
    }
    assert_false(histogram_bucket_is_round(recorded_bucket(0)));
    assert_false(histogram_bucket_is_round(recorded_bucket(250)));
    assert_false(histogram_bucket_is_round(HISTOGRAM_BUCKETS - 1));
}

static void test_histogram__a_minute_in_nanoseconds_has_a_finite_bucket(void **state)
{
    unsigned bucket = recorded_bucket(UINT64_C(60000000000));
    assert_true(histogram_bucket_limit(bucket) < UINT64_C(90000000000));
}

static void test_histogram__an_empty_one_has_no_quantiles(void **state)
{
    struct histogram_snapshot snapshot;
    memset(&snapshot, 0, sizeof(snapshot));
    assert_int_equal(histogram_quantile(&snapshot, 0.5), 0);
    assert_int_equal(histogram_quantile(&snapshot, 1), 0);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Of the last bucket, which has no end: where it begins. */
static uint64_t middle_of(unsigned bucket)
{
    uint64_t least = bucket > 0 ? histogram_bucket_limit(bucket - 1) + 1 : 0;
    return bucket + 1 == HISTOGRAM_BUCKETS ? least : (least + histogram_bucket_limit(bucket)) / 2;
}

static void test_histogram__quantiles_are_the_bucket_of_the_sorted_value(void **state)
{
    enum { COUNT = 5000 };
    static uint64_t values[COUNT];
    static struct histogram histogram;
    uint64_t number = 42;
    uint64_t sum = 0;
    for (int i = 0; i < COUNT; i++) {
        number = number * UINT64_C(6364136223846793005) + 1;
        values[i] = number >> (24 + number % 40); /* spread over all powers of two */
        sum += values[i];
        histogram_record(&histogram, values[i]);
    }
    qsort(values, COUNT, sizeof(values[0]), compare);
    struct histogram_snapshot snapshot;
    memset(&snapshot, 0, sizeof(snapshot));
    histogram_add_to(&histogram, &snapshot);
    assert_int_equal(snapshot.count, COUNT);
    assert_int_equal(snapshot.sum, sum);

    static const double quantiles[] = {0, 0.0001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
        size_t rank = (size_t)ceil(quantiles[i] * COUNT);
        uint64_t exact = values[rank > 0 ? rank - 1 : 0];
        assert_int_equal(histogram_quantile(&snapshot, quantiles[i]),
                         middle_of(recorded_bucket(exact)));
    }
}

static void test_histogram__a_quantile_is_within_a_fifth(void **state)
{
    for (uint64_t value = 4; value < UINT64_C(10000000000); value = value * 5 / 4 + 1) {
        struct histogram_snapshot snapshot = {.count = 1};
        snapshot.counts[recorded_bucket(value)] = 1;
        double told = (double)histogram_quantile(&snapshot, 0.5);
        assert_true(told > (double)value * 0.8 && told < (double)value * 1.2);
    }
}

static void test_histogram__several_recorders_add_up(void **state)
{
    static struct histogram a;
    static struct histogram b;
    histogram_record(&a, 1);
    histogram_record(&a, 10);
    histogram_record(&b, 10);
    struct histogram_snapshot snapshot;
    memset(&snapshot, 0, sizeof(snapshot));
    histogram_add_to(&a, &snapshot);
    histogram_add_to(&b, &snapshot);
    assert_int_equal(snapshot.count, 3);
    assert_int_equal(snapshot.sum, 21);
    assert_int_equal(snapshot.counts[1], 1);
    assert_int_equal(snapshot.counts[recorded_bucket(10)], 2);
    assert_int_equal(histogram_quantile(&snapshot, 0.34), 9); /* of 9 and 10 */
    assert_int_equal(histogram_quantile(&snapshot, 0.33), 1);
    assert_int_equal(histogram_quantile(&snapshot, 0), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram__limits_and_buckets_agree),
        cmocka_unit_test(test_histogram__there_are_ten_buckets_per_power_of_ten),
        cmocka_unit_test(test_histogram__round_numbers_end_a_bucket),
        cmocka_unit_test(test_histogram__a_minute_in_nanoseconds_has_a_finite_bucket),
        cmocka_unit_test(test_histogram__an_empty_one_has_no_quantiles),
        cmocka_unit_test(test_histogram__quantiles_are_the_bucket_of_the_sorted_value),
        cmocka_unit_test(test_histogram__a_quantile_is_within_a_fifth),
        cmocka_unit_test(test_histogram__several_recorders_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
