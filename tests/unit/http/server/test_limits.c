/* test_limits.c: exactly the burst, then one per interval, for each key by itself. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/server/limits.h"

#define SECOND_NS INT64_C(1000000000)
#define NOW_NS    (INT64_C(5000) * SECOND_NS)

static void test_rate_limit__gives_the_burst_and_no_more(void **state)
{
    (void)state;
    struct rate_limiter *limiter = rate_limiter_new(1, 5, 1000);
    for (uint32_t i = 0; i < 5; i++) {
        struct rate_limit limit = rate_limiter_take(limiter, SPAN("u1"), NOW_NS);
        assert_true(limit.allowed);
        assert_int_equal(limit.limit, 5);
        assert_int_equal(limit.remaining, 4 - i);
        assert_int_equal(limit.reset_s, i + 1);
        assert_int_equal(limit.retry_after_s, 0);
    }
    for (int i = 0; i < 3; i++) {
        struct rate_limit limit = rate_limiter_take(limiter, SPAN("u1"), NOW_NS);
        assert_false(limit.allowed);
        assert_int_equal(limit.remaining, 0);
        assert_int_equal(limit.reset_s, 5);
        assert_int_equal(limit.retry_after_s, 1);
    }
    assert_true(rate_limiter_take(limiter, SPAN("u2"), NOW_NS).allowed);
    rate_limiter_free(limiter);
}

static void test_rate_limit__refills_one_per_interval(void **state)
{
    (void)state;
    struct rate_limiter *limiter = rate_limiter_new(4, 2, 1000);
    assert_true(rate_limiter_take(limiter, SPAN("k"), NOW_NS).allowed);
    assert_true(rate_limiter_take(limiter, SPAN("k"), NOW_NS).allowed);
    int64_t quarter = SECOND_NS / 4;
    assert_false(rate_limiter_take(limiter, SPAN("k"), NOW_NS + quarter - 1).allowed);
    assert_true(rate_limiter_take(limiter, SPAN("k"), NOW_NS + quarter).allowed);
    assert_false(rate_limiter_take(limiter, SPAN("k"), NOW_NS + quarter).allowed);
    /* Refused ones cost nothing, and a rest fills the bucket to its burst, not above. */
    assert_int_equal(rate_limiter_take(limiter, SPAN("k"), NOW_NS + 100 * SECOND_NS).remaining, 1);
    assert_true(rate_limiter_take(limiter, SPAN("k"), NOW_NS + 100 * SECOND_NS).allowed);
    assert_false(rate_limiter_take(limiter, SPAN("k"), NOW_NS + 100 * SECOND_NS).allowed);
    rate_limiter_free(limiter);
}

static void test_rate_limit__extremes_do_not_overflow(void **state)
{
    (void)state;
    struct rate_limiter *slow = rate_limiter_new(1e-9, INT64_MAX, 10);
    struct rate_limit limit = rate_limiter_take(slow, SPAN("k"), NOW_NS);
    assert_true(limit.allowed);
    assert_int_equal(limit.limit, UINT32_MAX);
    assert_int_equal(limit.remaining, UINT32_MAX - 1);
    rate_limiter_free(slow);
    struct rate_limiter *slowest = rate_limiter_new(1e-30, 1, 10);
    assert_true(rate_limiter_take(slowest, SPAN("k"), NOW_NS).allowed);
    assert_false(rate_limiter_take(slowest, SPAN("k"), NOW_NS + SECOND_NS).allowed);
    rate_limiter_free(slowest);
    struct rate_limiter *fast = rate_limiter_new(1e30, 1, 10);
    assert_true(rate_limiter_take(fast, SPAN("k"), NOW_NS).allowed);
    assert_true(rate_limiter_take(fast, SPAN("k"), NOW_NS + 1).allowed);
    rate_limiter_free(fast);
}

/* A crowd of strangers pushes out whoever is idle, not those who are being held back. */
static void test_rate_limit__table_is_bounded_and_forgets_the_idle_first(void **state)
{
    (void)state;
    struct rate_limiter *limiter = rate_limiter_new(1, 100, 512);
    for (int i = 0; i < 100; i++)
        assert_true(rate_limiter_take(limiter, SPAN("busy"), NOW_NS).allowed);
    assert_false(rate_limiter_take(limiter, SPAN("busy"), NOW_NS).allowed);
    for (int i = 0; i < 100000; i++) {
        char key[16];
        int length = snprintf(key, sizeof(key), "u%d", i);
        struct span span = {key, (size_t)length};
        assert_true(rate_limiter_take(limiter, span, NOW_NS).allowed);
    }
    assert_false(rate_limiter_take(limiter, SPAN("busy"), NOW_NS).allowed);
    rate_limiter_free(limiter);
}

static void test_rate_limit__looking_takes_nothing(void **state)
{
    (void)state;
    struct rate_limiter *limiter = rate_limiter_new(1, 2, 64);
    assert_non_null(limiter);
    for (int i = 0; i < 5; i++) {
        struct rate_limit limit = rate_limiter_peek(limiter, SPAN("a"), 1000);
        assert_true(limit.allowed);
        assert_int_equal(limit.remaining, 2);
    }
    assert_true(rate_limiter_take(limiter, SPAN("a"), 1000).allowed);
    assert_int_equal(rate_limiter_peek(limiter, SPAN("a"), 1000).remaining, 1);
    assert_true(rate_limiter_take(limiter, SPAN("a"), 1000).allowed);
    assert_false(rate_limiter_peek(limiter, SPAN("a"), 1000).allowed);
    rate_limiter_free(limiter);
}

struct race {
    struct rate_limiter *limiter;
    int allowed;
};

static void *take_many(void *context)
{
    struct race *race = context;
    for (int i = 0; i < 10000; i++)
        race->allowed += rate_limiter_take(race->limiter, SPAN("k"), NOW_NS).allowed;
    return NULL;
}

static void test_rate_limit__threads_share_one_bucket(void **state)
{
    (void)state;
    struct rate_limiter *limiter = rate_limiter_new(1, 12345, 1000);
    pthread_t threads[4];
    struct race races[4];
    int allowed = 0;
    for (int i = 0; i < 4; i++) {
        races[i] = (struct race){.limiter = limiter};
        assert_int_equal(pthread_create(&threads[i], NULL, take_many, &races[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        allowed += races[i].allowed;
    }
    assert_int_equal(allowed, 12345);
    rate_limiter_free(limiter);
}

static struct span key_of(const char *text, char bytes[RATE_LIMIT_ADDRESS_SIZE])
{
    struct address address;
    assert_true(address_parse(span_of(text), &address));
    return rate_limit_address(&address, bytes);
}

static void test_rate_limit__addresses_are_customers(void **state)
{
    (void)state;
    static const struct {
        const char *one;
        const char *other;
        bool same;
    } cases[] = {
        {"10.0.0.1", "10.0.0.1", true},
        {"10.0.0.1", "10.0.0.2", false},
        {"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
        {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
        {"::ffff:10.0.0.1", "10.0.0.1", true},
        {"::ffff:10.0.0.1", "::ffff:10.0.0.2", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char one[RATE_LIMIT_ADDRESS_SIZE];
        char other[RATE_LIMIT_ADDRESS_SIZE];
        assert_int_equal(span_equal(key_of(cases[i].one, one), key_of(cases[i].other, other)),
                         cases[i].same);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate_limit__gives_the_burst_and_no_more),
        cmocka_unit_test(test_rate_limit__refills_one_per_interval),
        cmocka_unit_test(test_rate_limit__extremes_do_not_overflow),
        cmocka_unit_test(test_rate_limit__table_is_bounded_and_forgets_the_idle_first),
        cmocka_unit_test(test_rate_limit__looking_takes_nothing),
        cmocka_unit_test(test_rate_limit__threads_share_one_bucket),
        cmocka_unit_test(test_rate_limit__addresses_are_customers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
