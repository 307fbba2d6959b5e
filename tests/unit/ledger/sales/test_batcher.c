/* test_batcher.c: orders of many callers are written together, each is told what became of its own.
 */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "ledger/sales/batcher.h"

#define CALLERS 6

/* Stands where the ledger would: the first batch is held until the others have come. */
struct book {
    struct batcher batcher;
    sem_t arrived;
    sem_t go_on;
    bool holds;
    size_t batch_sizes[32];
    size_t batch_count;
    int64_t bad_ms;      /* a share of that time is refused, and whatever it is written with */
    enum status refusal; /* how */
};

static enum status write_shares(struct ledger *ledger, struct batcher_share *shares,
                                struct error *error)
{
    struct book *book = (struct book *)ledger;
    enum status status = STATUS_OK;
    size_t size = 0;
    size_t count = 0;

    if (book->holds) {
        book->holds = false;
        sem_post(&book->arrived);
        sem_wait(&book->go_on);
    }
    for (struct batcher_share *share = shares; share != NULL; share = share->next) {
        size++;
        count += share->count;
        if (share->now_ms == book->bad_ms)
            status = error_set(error, book->refusal, "share %lld is bad", (long long)book->bad_ms);
    }
    assert_true(count <= ORDER_BATCH_MAX);
    book->batch_sizes[book->batch_count++] = size;
    return status;
}

struct caller {
    struct book *book;
    struct batcher_share share;
    struct error error;
    pthread_t thread;
    enum status status;
};

static void *act_caller(void *context)
{
    struct caller *caller = context;

    caller->share.error = &caller->error;
    caller->status = batcher_add(&caller->book->batcher, &caller->share,
                                 (struct ledger *)caller->book, write_shares);
    return NULL;
}

static size_t waiting_count(struct batcher *batcher)
{
    size_t count = 0;

    pthread_mutex_lock(&batcher->lock);
    for (struct batcher_share *share = batcher->waiting; share != NULL; share = share->next)
        count++;
    pthread_mutex_unlock(&batcher->lock);
    return count;
}

/* One caller is being written while the others, with so many orders each, come. */
static void let_them_come(struct book *book, struct caller callers[CALLERS], size_t order_count)
{
    batcher_init(&book->batcher);
    sem_init(&book->arrived, 0, 0);
    sem_init(&book->go_on, 0, 0);
    book->holds = true;
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){
            .book = book,
            .share = {.count = order_count, .item_count = order_count, .now_ms = (int64_t)i}};
        pthread_create(&callers[i].thread, NULL, act_caller, &callers[i]);
        if (i == 0)
            sem_wait(&book->arrived);
        while (i > 0 && waiting_count(&book->batcher) < i)
            sched_yield();
    }
    sem_post(&book->go_on);
    for (size_t i = 0; i < CALLERS; i++)
        pthread_join(callers[i].thread, NULL);
    assert_int_equal(waiting_count(&book->batcher), 0);
    batcher_release(&book->batcher);
    sem_destroy(&book->arrived);
    sem_destroy(&book->go_on);
}

static void test_batcher__those_who_wait_are_written_together(void **state)
{
    struct book book = {.bad_ms = -1};
    struct caller callers[CALLERS];

    (void)state;
    let_them_come(&book, callers, 1);
    assert_int_equal(book.batch_count, 2);
    assert_int_equal(book.batch_sizes[0], 1);
    assert_int_equal(book.batch_sizes[1], CALLERS - 1);
    for (size_t i = 0; i < CALLERS; i++)
        assert_int_equal(callers[i].status, STATUS_OK);
}

static void test_batcher__a_batch_is_never_too_large(void **state)
{
    struct book book = {.bad_ms = -1};
    struct caller callers[CALLERS];

    (void)state;
    let_them_come(&book, callers, ORDER_BATCH_MAX / 2);
    assert_int_equal(book.batch_count, 4);
    assert_int_equal(book.batch_sizes[1], 2);
    assert_int_equal(book.batch_sizes[2], 2);
    assert_int_equal(book.batch_sizes[3], 1);
}

/* Trap 22: one that is refused for good does not keep the others out. */
static void test_batcher__a_bad_share_fails_alone(void **state)
{
    struct book book = {.bad_ms = 3, .refusal = STATUS_FAILED};
    struct caller callers[CALLERS];

    (void)state;
    let_them_come(&book, callers, 1);
    for (size_t i = 0; i < CALLERS; i++)
        assert_int_equal(callers[i].status, i == 3 ? STATUS_FAILED : STATUS_OK);
    assert_string_equal(callers[3].error.text, "share 3 is bad");
    assert_int_equal(book.batch_count, 2 + CALLERS - 1);
}

/* What may work later, or may have been done, is told to all and not tried again. */
static void test_batcher__a_database_that_is_away_is_told_to_all(void **state)
{
    static const enum status statuses[] = {STATUS_UNAVAILABLE, STATUS_UNKNOWN};

    (void)state;
    for (size_t s = 0; s < 2; s++) {
        struct book book = {.bad_ms = 3, .refusal = statuses[s]};
        struct caller callers[CALLERS];
        let_them_come(&book, callers, 1);
        assert_int_equal(book.batch_count, 2);
        assert_int_equal(callers[0].status, STATUS_OK);
        for (size_t i = 1; i < CALLERS; i++) {
            assert_int_equal(callers[i].status, statuses[s]);
            assert_string_equal(callers[i].error.text, "share 3 is bad");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batcher__those_who_wait_are_written_together),
        cmocka_unit_test(test_batcher__a_batch_is_never_too_large),
        cmocka_unit_test(test_batcher__a_bad_share_fails_alone),
        cmocka_unit_test(test_batcher__a_database_that_is_away_is_told_to_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
