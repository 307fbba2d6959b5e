/* clerk.h: a few threads that do what blocks, so that loops never do.
 *
 * Tasks wait in a queue for each kind of people who ask. Every clerk has one of the queues as its
 * own: it does what waits there first, then what waits in those above it, and never what waits
 * below. So whoever fills a lower queue holds up nobody above, and nobody above starves those below
 * for good.
 *
 * Threads: clerks_submit() and clerks_count() from any; start and stop from the owner.
 */
#ifndef CLAIM_CLERK_H
#define CLAIM_CLERK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct service;

/* From the lowest up. */
enum clerk_queue {
    CLERK_STRANGERS, /* people who show no token */
    CLERK_KNOWN,     /* users, the shop's backend, claims that the ledger decides */
    CLERK_ADMINS,
    CLERK_QUEUES,
};

struct clerk_task {
    /* On a clerk's thread. When it returns the task is the caller's again: its last act is usually
     * to post the answer to a loop. */
    void (*work)(struct clerk_task *task, struct service *service);
    enum clerk_queue queue;
    struct clerk_task *next;
};

#define CLERKS_MAX          64
#define CLERK_TASKS_MAX     20000 /* waiting in a queue; more are turned away */
#define CLERK_STRANGERS_MAX 500   /* the same of strangers, who would rather be told at once */

/* How a queue stands. */
struct clerk_numbers {
    size_t waiting;
    uint64_t refused; /* turned away so far */
};

struct clerks;

struct clerk {
    struct clerks *clerks;
    pthread_t thread;
    pthread_cond_t woken;
    enum clerk_queue own; /* the lowest that it looks after */
    bool is_idle;         /* until a task has come for it */
};

struct clerk_line {
    struct clerk_task *first;
    struct clerk_task **end;
    struct clerk_numbers numbers;
};

struct clerks {
    struct service *service;
    unsigned thread_count;
    struct clerk threads[CLERKS_MAX];
    pthread_mutex_t lock;
    struct clerk_line lines[CLERK_QUEUES];
    bool stopping;
};

/* Of several clerks one is the admins' alone, and half of the others know no strangers. */
enum status clerks_start(struct clerks *clerks, struct service *service, unsigned count,
                         struct error *error) MUST_CHECK;
/* Finishes what was submitted, then ends the threads. */
void clerks_stop(struct clerks *clerks);
/* Into the queue that the task names. False: it is full. */
bool clerks_submit(struct clerks *clerks, struct clerk_task *task);
struct clerk_numbers clerks_count(struct clerks *clerks, enum clerk_queue queue);

#endif
