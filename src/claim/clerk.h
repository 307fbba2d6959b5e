/* clerk.h: a few threads that do what blocks, so that loops never do.
 *
 * Threads: clerks_submit() and clerks_waiting() from any; start and stop from the owner.
 */
#ifndef CLAIM_CLERK_H
#define CLAIM_CLERK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"

struct service;
struct clerk_task;

#define CLERKS_MAX      64
#define CLERK_TASKS_MAX 20000 /* waiting; more are turned away */

struct clerks {
    struct service *service;
    pthread_t threads[CLERKS_MAX];
    unsigned thread_count;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct clerk_task *first;
    struct clerk_task **end;
    _Atomic size_t waiting_count;
    bool stopping;
};

enum status clerks_start(struct clerks *clerks, struct service *service, unsigned count,
                         struct error *error) MUST_CHECK;
/* Finishes what was submitted, then ends the threads. */
void clerks_stop(struct clerks *clerks);
bool clerks_submit(struct clerks *clerks, struct clerk_task *task);

#endif
