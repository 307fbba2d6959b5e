/* periodic.h: a thread that does the same thing again and again, with pauses that can be cut short.
 *
 * Threads: start and stop by the owner; wake and is_stopping from any.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* All zero: not started. */
struct periodic {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int64_t (*run)(void *context);
    void *context;
    int64_t pause_ms;
    bool is_started;
    bool is_woken; /* under the lock, as the next */
    bool is_stopping;
};

/* Runs `run` for the first time after `first_ms`, and then as often as it says: it gives the pause
 * until the next time. The name is the thread's, of at most 15 characters. UNAVAILABLE: there is no
 * thread to be had. */
enum status periodic_start(struct periodic *periodic, const char *name,
                           int64_t (*run)(void *context), void *context, int64_t first_ms,
                           struct error *error) MUST_CHECK;

/* Ends the pause; while it runs, the next one. */
void periodic_wake(struct periodic *periodic);

/* For a run that takes long. */
bool periodic_is_stopping(struct periodic *periodic);

/* Waits for a run that has begun; there is none after it. Nothing where it was not started. */
void periodic_stop(struct periodic *periodic);
