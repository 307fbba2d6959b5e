/* worker_pool.h: a few threads that do what blocks, so that loops never do.
 *
 * Tasks wait in a queue for each kind of people who ask. Every pool thread has one of the queues as
 * its own: it does what waits there first, then what waits in those above it, and never what waits
 * below. So whoever fills a lower queue holds up nobody above, and nobody above starves those below
 * for good.
 *
 * Threads: worker_pool_submit() and worker_pool_count() from any; start and stop from the owner.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct service;

/* From the lowest up. */
enum pool_queue {
    POOL_STRANGERS, /* people who show no token */
    POOL_KNOWN,     /* users, the shop's backend, claims that the ledger decides */
    POOL_ADMINS,
    POOL_QUEUES,
};

struct pool_task {
    /* On a pool thread. When it returns the task is the caller's again: its last act is usually
     * to post the answer to a loop. */
    void (*work)(struct pool_task *task, struct service *service);
    enum pool_queue queue;
    struct pool_task *next;
};

#define POOL_THREADS_MAX   64
#define POOL_TASKS_MAX     20000 /* waiting in a queue; more are turned away */
#define POOL_STRANGERS_MAX 500   /* the same of strangers, who would rather be told at once */

/* How a queue stands. */
struct pool_numbers {
    size_t waiting;
    uint64_t refused; /* turned away so far */
};

struct worker_pool;

struct pool_thread {
    struct worker_pool *pool;
    pthread_t thread;
    pthread_cond_t woken;
    enum pool_queue own; /* the lowest that it looks after */
    bool is_idle;        /* until a task has come for it */
};

struct pool_line {
    struct pool_task *first;
    struct pool_task **end;
    struct pool_numbers numbers;
};

struct worker_pool {
    struct service *service;
    unsigned thread_count;
    struct pool_thread threads[POOL_THREADS_MAX];
    pthread_mutex_t lock;
    struct pool_line lines[POOL_QUEUES];
    bool stopping;
};

/* Of several pool threads one is the admins' alone, and half of the others know no strangers. */
enum status worker_pool_start(struct worker_pool *pool, struct service *service, unsigned count,
                              struct error *error) MUST_CHECK;
/* Finishes what was submitted, then ends the threads. */
void worker_pool_stop(struct worker_pool *pool);
/* Into the queue that the task names. False: it is full. */
bool worker_pool_submit(struct worker_pool *pool, struct pool_task *task);
struct pool_numbers worker_pool_count(struct worker_pool *pool, enum pool_queue queue);
