/* test_clerk.c: who waits in which queue, and that nobody waits behind those below. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <semaphore.h>

#include <cmocka.h>

#include "claim/clerk.h"

#define CLERKS 8

struct job {
    struct clerk_task task;
    sem_t *begun; /* NULL, or told when it begins */
    sem_t *hold;  /* NULL, or awaited before it ends */
    sem_t *done;
};

static void work(struct clerk_task *task, struct service *service)
{
    struct job *job = (struct job *)(void *)task;
    (void)service;
    if (job->begun != NULL) {
        sem_post(job->begun);
    }
    if (job->hold != NULL) {
        sem_wait(job->hold);
    }
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
    for (unsigned index = 0; index < count; index++) {
        sem_post(semaphore);
    }
}

struct office {
    struct clerks clerks;
    sem_t begun;
    sem_t hold;
    sem_t done;
    sem_t own;
};

static int start(void **state)
{
    struct office *office = calloc(1, sizeof *office);
    struct error error;
    sem_init(&office->begun, 0, 0);
    sem_init(&office->hold, 0, 0);
    sem_init(&office->done, 0, 0);
    sem_init(&office->own, 0, 0);
    *state = office;
    return clerks_start(&office->clerks, NULL, CLERKS, &error) != STATUS_OK;
}

static int stop(void **state)
{
    struct office *office = *state;
    clerks_stop(&office->clerks);
    sem_destroy(&office->begun);
    sem_destroy(&office->hold);
    sem_destroy(&office->done);
    sem_destroy(&office->own);
    free(office);
    return 0;
}

/* As many as find room, all of which last until they are let go; how many that were. */
static unsigned fill(struct office *office, struct job *jobs, unsigned max, enum clerk_queue queue)
{
    unsigned count = 0;
    for (; count < max; count++) {
        jobs[count] = (struct job){.task = {.work = work, .queue = queue},
                                   .begun = &office->begun,
                                   .hold = &office->hold,
                                   .done = &office->done};
        if (!clerks_submit(&office->clerks, &jobs[count].task)) {
            break;
        }
    }
    return count;
}

static bool submit_own(struct office *office, struct job *job, enum clerk_queue queue)
{
    *job = (struct job){.task = {.work = work, .queue = queue}, .done = &office->own};
    return clerks_submit(&office->clerks, &job->task);
}

static void test_clerk__strangers_hold_up_nobody(void **state)
{
    struct office *office = *state;
    struct job *crowd = calloc(CLERK_STRANGERS_MAX + CLERKS + 1, sizeof *crowd);
    struct job admins;
    struct job known;
    unsigned count = fill(office, crowd, CLERK_STRANGERS_MAX + CLERKS + 1, CLERK_STRANGERS);
    /* The rest is turned away, whoever asks above is not. */
    assert_in_range(count, CLERK_STRANGERS_MAX, CLERK_STRANGERS_MAX + CLERKS);
    assert_int_equal(clerks_count(&office->clerks, CLERK_STRANGERS).refused, 1);
    assert_true(submit_own(office, &admins, CLERK_ADMINS));
    await(&office->own, 1);
    assert_true(submit_own(office, &known, CLERK_KNOWN));
    await(&office->own, 1);
    assert_true(clerks_count(&office->clerks, CLERK_STRANGERS).waiting >=
                CLERK_STRANGERS_MAX - CLERKS);
    let_go(&office->hold, count);
    await(&office->done, count);
    free(crowd);
}

static void test_clerk__an_admin_waits_for_nobody_else(void **state)
{
    struct office *office = *state;
    struct job crowd[4 * CLERKS];
    struct job admins;
    unsigned count = fill(office, crowd, 2 * CLERKS, CLERK_STRANGERS);
    count += fill(office, crowd + count, 2 * CLERKS, CLERK_KNOWN);
    assert_int_equal(count, 4 * CLERKS);
    /* All who may have something to do have it. */
    await(&office->begun, CLERKS - 1);
    assert_true(submit_own(office, &admins, CLERK_ADMINS));
    await(&office->own, 1);
    let_go(&office->hold, count);
    await(&office->done, count);
}

/* A clerk's own queue comes first, so that what waits above does not starve it. */
static void test_clerk__strangers_are_served_while_others_queue(void **state)
{
    struct office *office = *state;
    struct job crowd[3];
    struct job stranger;
    struct error error;
    clerks_stop(&office->clerks);
    assert_int_equal(clerks_start(&office->clerks, NULL, 1, &error), STATUS_OK);
    assert_int_equal(fill(office, crowd, 3, CLERK_ADMINS), 3);
    await(&office->begun, 1);
    assert_true(submit_own(office, &stranger, CLERK_STRANGERS));
    let_go(&office->hold, 1);
    await(&office->own, 1);
    let_go(&office->hold, 2);
    await(&office->done, 3);
}

static void test_clerk__one_alone_does_everything(void **state)
{
    struct clerks clerks;
    struct error error;
    struct job jobs[CLERK_QUEUES];
    sem_t done;
    (void)state;
    sem_init(&done, 0, 0);
    assert_int_equal(clerks_start(&clerks, NULL, 1, &error), STATUS_OK);
    for (unsigned queue = 0; queue < CLERK_QUEUES; queue++) {
        jobs[queue] = (struct job){.task = {.work = work, .queue = queue}, .done = &done};
        assert_true(clerks_submit(&clerks, &jobs[queue].task));
    }
    await(&done, CLERK_QUEUES);
    clerks_stop(&clerks);
    sem_destroy(&done);
}

static void test_clerk__what_waits_at_the_end_is_done(void **state)
{
    struct clerks clerks;
    struct error error;
    struct job jobs[3 * CLERK_QUEUES];
    sem_t done;
    int count;
    (void)state;
    sem_init(&done, 0, 0);
    assert_int_equal(clerks_start(&clerks, NULL, 2, &error), STATUS_OK);
    for (unsigned index = 0; index < 3 * CLERK_QUEUES; index++) {
        jobs[index] =
            (struct job){.task = {.work = work, .queue = index % CLERK_QUEUES}, .done = &done};
        assert_true(clerks_submit(&clerks, &jobs[index].task));
    }
    clerks_stop(&clerks);
    sem_getvalue(&done, &count);
    assert_int_equal(count, 3 * CLERK_QUEUES);
    sem_destroy(&done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_clerk__strangers_hold_up_nobody, start, stop),
        cmocka_unit_test_setup_teardown(test_clerk__an_admin_waits_for_nobody_else, start, stop),
        cmocka_unit_test_setup_teardown(test_clerk__strangers_are_served_while_others_queue, start,
                                        stop),
        cmocka_unit_test(test_clerk__one_alone_does_everything),
        cmocka_unit_test(test_clerk__what_waits_at_the_end_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
