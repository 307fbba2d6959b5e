/* syncer.h: a thread that syncs one file, so that whoever writes it need not wait.
 *
 * A sync that fails ends the process: what the file holds is not known any more.
 *
 * Threads: asking and waiting are for one thread, the owner's; the syncing is its own.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct syncer {
    int descriptor; /* borrowed */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t asked;
    pthread_cond_t done;
    uint64_t asked_count; /* under the lock, as all below */
    uint64_t done_count;  /* asked for so often before the last sync that is done began */
    int64_t took_ms;      /* by the last sync that is done */
    bool stopping;
};

/* The descriptor stays the caller's and open until the stop. */
enum status syncer_start(struct syncer *syncer, int descriptor, struct error *error) MUST_CHECK;
/* Waits for a sync under way; what was asked for and not begun is left undone. */
void syncer_stop(struct syncer *syncer);

/* All that was written so far is to be synced. */
void syncer_ask(struct syncer *syncer);
/* Whether all that was asked for is durable, after waiting for so long at most (0: not at all). */
bool syncer_wait(struct syncer *syncer, int64_t timeout_ms);
int64_t syncer_took_ms(struct syncer *syncer);
