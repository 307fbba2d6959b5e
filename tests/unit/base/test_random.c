/* test_random.c: bytes that differ, and jitter that stays below its limit. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include <cmocka.h>

#include "base/random.h"

static void test_random__bytes_fill_all_and_only_what_was_asked(void **state)
{
    /* More than the kernel gives in one uninterruptible piece. */
    static unsigned char bytes[1024];
    static unsigned char seen[1024];
    for (int round = 0; round < 100; round++) {
        memset(bytes, 0, sizeof(bytes));
        random_bytes(bytes, sizeof(bytes) - 1);
        for (size_t i = 0; i < sizeof(bytes); i++)
            seen[i] |= bytes[i];
    }
    for (size_t i = 0; i < sizeof(bytes) - 1; i++)
        assert_int_not_equal(seen[i], 0);
    assert_int_equal(seen[sizeof(bytes) - 1], 0);
    random_bytes(bytes, 0);
}

static volatile sig_atomic_t interruptions;

static void count_interruption(int signal_number)
{
    interruptions++;
}

static void test_random__signals_leave_no_gap(void **state)
{
    /* Long enough for many ticks of a millisecond; the kernel stops early at each. */
    size_t length = 1 << 23;
    unsigned char *bytes = calloc(1, length);
    assert_non_null(bytes);
    struct sigaction action = {.sa_handler = count_interruption};
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    struct itimerval ticks = {.it_interval.tv_usec = 1000, .it_value.tv_usec = 1000};
    assert_int_equal(setitimer(ITIMER_REAL, &ticks, NULL), 0);
    while (interruptions == 0) {
        memset(bytes, 0, length);
        random_bytes(bytes, length);
    }
    ticks = (struct itimerval){0};
    assert_int_equal(setitimer(ITIMER_REAL, &ticks, NULL), 0);

    unsigned char any = 0;
    for (size_t i = length - 64; i < length; i++)
        any |= bytes[i];
    assert_int_not_equal(any, 0);
    free(bytes);
}

static void test_random__below_one_is_zero(void **state)
{
    for (int i = 0; i < 100; i++)
        assert_int_equal(random_below(1), 0);
}

static void test_random__below_reaches_every_number_and_no_other(void **state)
{
    int counts[10] = {0};
    for (int i = 0; i < 10000; i++) {
        uint64_t number = random_below(10);
        assert_true(number < 10);
        counts[number]++;
    }
    /* 1000 each is expected; outside of 800 to 1200 is more than six deviations away. */
    for (int i = 0; i < 10; i++)
        assert_in_range(counts[i], 800, 1200);
}

static void test_random__below_takes_the_largest_limit(void **state)
{
    uint64_t all = 0;
    for (int i = 0; i < 200; i++)
        all |= random_below(UINT64_MAX);
    assert_true(all >> 56 == 0xff);
}

static void *jitter_of_a_thread(void *slot)
{
    *(uint64_t *)slot = random_below(UINT64_MAX);
    return NULL;
}

static void test_random__threads_have_jitter_of_their_own(void **state)
{
    uint64_t slots[2];
    for (int i = 0; i < 2; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, jitter_of_a_thread, &slots[i]), 0);
        pthread_join(thread, NULL);
    }
    assert_true(slots[0] != slots[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random__bytes_fill_all_and_only_what_was_asked),
        cmocka_unit_test(test_random__signals_leave_no_gap),
        cmocka_unit_test(test_random__below_one_is_zero),
        cmocka_unit_test(test_random__below_reaches_every_number_and_no_other),
        cmocka_unit_test(test_random__below_takes_the_largest_limit),
        cmocka_unit_test(test_random__threads_have_jitter_of_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
