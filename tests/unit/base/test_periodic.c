/* test_periodic.c: a thread that does the same thing again and again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/periodic.h"

#define HOUR_MS 3600000

struct work {
    struct periodic periodic;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int runs;
    int64_t pause_ms;
    bool waits_for_stop;
};

static int64_t work_run(void *context)
{
    struct work *work = context;

    pthread_mutex_lock(&work->lock);
    work->runs++;
    pthread_cond_broadcast(&work->moved);
    pthread_mutex_unlock(&work->lock);
    while (work->waits_for_stop && !periodic_is_stopping(&work->periodic))
        continue;
    return work->pause_ms;
}

static void work_await(struct work *work, int runs)
{
    pthread_mutex_lock(&work->lock);
    while (work->runs < runs)
        pthread_cond_wait(&work->moved, &work->lock);
    pthread_mutex_unlock(&work->lock);
}

static void work_start(struct work *work, int64_t first_ms)
{
    pthread_mutex_init(&work->lock, NULL);
    pthread_cond_init(&work->moved, NULL);
    assert_int_equal(periodic_start(&work->periodic, "test", work_run, work, first_ms, NULL),
                     STATUS_OK);
}

static void test_periodic__runs_again_and_again(void **state)
{
    (void)state;
    struct work work = {.pause_ms = 1};

    work_start(&work, 0);
    work_await(&work, 5);
    periodic_stop(&work.periodic);
    int runs = work.runs;
    periodic_stop(&work.periodic);
    assert_int_equal(work.runs, runs);
}

static void test_periodic__is_woken_out_of_its_pause(void **state)
{
    (void)state;
    struct work work = {.pause_ms = HOUR_MS};

    work_start(&work, HOUR_MS);
    for (int runs = 1; runs <= 3; runs++) {
        periodic_wake(&work.periodic);
        work_await(&work, runs);
    }
    periodic_stop(&work.periodic);
    assert_int_equal(work.runs, 3);
}

static void test_periodic__stops_in_its_first_pause(void **state)
{
    (void)state;
    struct work work = {.pause_ms = HOUR_MS};

    work_start(&work, HOUR_MS);
    periodic_stop(&work.periodic);
    assert_int_equal(work.runs, 0);
}

static void test_periodic__a_long_run_sees_that_it_is_to_stop(void **state)
{
    (void)state;
    struct work work = {.waits_for_stop = true};

    work_start(&work, 0);
    work_await(&work, 1);
    periodic_stop(&work.periodic);
    assert_int_equal(work.runs, 1);
}

static void test_periodic__one_that_never_began_need_not_be_stopped(void **state)
{
    (void)state;
    struct periodic periodic = {0};

    periodic_stop(&periodic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_periodic__runs_again_and_again),
        cmocka_unit_test(test_periodic__is_woken_out_of_its_pause),
        cmocka_unit_test(test_periodic__stops_in_its_first_pause),
        cmocka_unit_test(test_periodic__a_long_run_sees_that_it_is_to_stop),
        cmocka_unit_test(test_periodic__one_that_never_began_need_not_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
