/* test_worker_pool.c: who waits in which queue, and that nobody waits behind those below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <semaphore.h>

#include <cmocka.h>

#include "claim/worker_pool.h"

#define POOL_THREADS 8

struct job {
    struct pool_task task;
    sem_t *begun; /* NULL, or told when it begins */
    sem_t *hold;  /* NULL, or awaited before it ends */
    sem_t *done;
};

static void work(struct pool_task *task, struct service *service)
{
    struct job *job = (struct job *)(void *)task;
    (void)service;
    if (job->begun != NULL)
        sem_post(job->begun);
    if (job->hold != NULL)
        sem_wait(job->hold);
    sem_post(job->done);
}

static void await(sem_t *semaphore, unsigned count)
{
    for (unsigned index = 0; index < count; index++) {
        while (sem_wait(semaphore) != 0) {
        }
    }
}

static void let_go(sem_t *semaphore, unsigned count)
{
    for (unsigned index = 0; index < count; index++)
        sem_post(semaphore);
}

struct office {
    struct worker_pool pool;
    sem_t begun;
    sem_t hold;
    sem_t done;
    sem_t own;
};

static int start(void **state)
{
    struct office *office = calloc(1, sizeof(*office));
    struct error error;
    sem_init(&office->begun, 0, 0);
    sem_init(&office->hold, 0, 0);
    sem_init(&office->done, 0, 0);
    sem_init(&office->own, 0, 0);
    *state = office;
    return worker_pool_start(&office->pool, NULL, POOL_THREADS, &error) != STATUS_OK;
}

static int stop(void **state)
{
    struct office *office = *state;
    worker_pool_stop(&office->pool);
    sem_destroy(&office->begun);
    sem_destroy(&office->hold);
    sem_destroy(&office->done);
    sem_destroy(&office->own);
    free(office);
    return 0;
}

/* As many as find room, all of which last until they are let go; how many that were. */
static unsigned fill(struct office *office, struct job *jobs, unsigned max, enum pool_queue queue)
{
    unsigned count = 0;
    for (; count < max; count++) {
        jobs[count] = (struct job){.task = {.work = work, .queue = queue},
                                   .begun = &office->begun,
                                   .hold = &office->hold,
                                   .done = &office->done};
        if (!worker_pool_submit(&office->pool, &jobs[count].task))
            break;
    }
    return count;
}

static bool submit_own(struct office *office, struct job *job, enum pool_queue queue)
{
    *job = (struct job){.task = {.work = work, .queue = queue}, .done = &office->own};
    return worker_pool_submit(&office->pool, &job->task);
}

static void test_worker_pool__strangers_hold_up_nobody(void **state)
{
    struct office *office = *state;
    struct job *crowd = calloc(POOL_STRANGERS_MAX + POOL_THREADS + 1, sizeof(*crowd));
    struct job admins;
    struct job known;
    unsigned count = fill(office, crowd, POOL_STRANGERS_MAX + POOL_THREADS + 1, POOL_STRANGERS);
    /* The rest is turned away, whoever asks above is not. */
    assert_in_range(count, POOL_STRANGERS_MAX, POOL_STRANGERS_MAX + POOL_THREADS);
    assert_int_equal(worker_pool_count(&office->pool, POOL_STRANGERS).refused, 1);
    assert_true(submit_own(office, &admins, POOL_ADMINS));
    await(&office->own, 1);
    assert_true(submit_own(office, &known, POOL_KNOWN));
    await(&office->own, 1);
    assert_true(worker_pool_count(&office->pool, POOL_STRANGERS).waiting >=
                POOL_STRANGERS_MAX - POOL_THREADS);
    let_go(&office->hold, count);
    await(&office->done, count);
    free(crowd);
}

static void test_worker_pool__an_admin_waits_for_nobody_else(void **state)
{
    struct office *office = *state;
    struct job crowd[4 * POOL_THREADS];
    struct job admins;
    unsigned count = fill(office, crowd, 2 * POOL_THREADS, POOL_STRANGERS);
    count += fill(office, crowd + count, 2 * POOL_THREADS, POOL_KNOWN);
    assert_int_equal(count, 4 * POOL_THREADS);
    /* All who may have something to do have it. */
    await(&office->begun, POOL_THREADS - 1);
    assert_true(submit_own(office, &admins, POOL_ADMINS));
    await(&office->own, 1);
    let_go(&office->hold, count);
    await(&office->done, count);
}

/* A pool thread's own queue comes first, so that what waits above does not starve it. */
static void test_worker_pool__strangers_are_served_while_others_queue(void **state)
{
    struct office *office = *state;
    struct job crowd[3];
    struct job stranger;
    struct error error;
    worker_pool_stop(&office->pool);
    assert_int_equal(worker_pool_start(&office->pool, NULL, 1, &error), STATUS_OK);
    assert_int_equal(fill(office, crowd, 3, POOL_ADMINS), 3);
    await(&office->begun, 1);
    assert_true(submit_own(office, &stranger, POOL_STRANGERS));
    let_go(&office->hold, 1);
    await(&office->own, 1);
    let_go(&office->hold, 2);
    await(&office->done, 3);
}

static void test_worker_pool__one_alone_does_everything(void **state)
{
    struct worker_pool pool;
    struct error error;
    struct job jobs[POOL_QUEUES];
    sem_t done;
    (void)state;
    sem_init(&done, 0, 0);
    assert_int_equal(worker_pool_start(&pool, NULL, 1, &error), STATUS_OK);
    for (unsigned queue = 0; queue < POOL_QUEUES; queue++) {
        jobs[queue] = (struct job){.task = {.work = work, .queue = queue}, .done = &done};
        assert_true(worker_pool_submit(&pool, &jobs[queue].task));
    }
    await(&done, POOL_QUEUES);
    worker_pool_stop(&pool);
    sem_destroy(&done);
}

static void test_worker_pool__what_waits_at_the_end_is_done(void **state)
{
    struct worker_pool pool;
    struct error error;
    struct job jobs[3 * POOL_QUEUES];
    sem_t done;
    int count;
    (void)state;
    sem_init(&done, 0, 0);
    assert_int_equal(worker_pool_start(&pool, NULL, 2, &error), STATUS_OK);
    for (unsigned index = 0; index < 3 * POOL_QUEUES; index++) {
        jobs[index] =
            (struct job){.task = {.work = work, .queue = index % POOL_QUEUES}, .done = &done};
        assert_true(worker_pool_submit(&pool, &jobs[index].task));
    }
    worker_pool_stop(&pool);
    sem_getvalue(&done, &count);
    assert_int_equal(count, 3 * POOL_QUEUES);
    sem_destroy(&done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_worker_pool__strangers_hold_up_nobody, start, stop),
        cmocka_unit_test_setup_teardown(test_worker_pool__an_admin_waits_for_nobody_else, start,
                                        stop),
        cmocka_unit_test_setup_teardown(test_worker_pool__strangers_are_served_while_others_queue,
                                        start, stop),
        cmocka_unit_test(test_worker_pool__one_alone_does_everything),
        cmocka_unit_test(test_worker_pool__what_waits_at_the_end_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
