/* syncer.c: one thread around fdatasync(). */
#include "ledger/sqlite/syncer.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "ledger/sqlite/store.h"

static void *syncer_main(void *context)
{
    struct syncer *syncer = context;
    struct error error;

    pthread_setname_np(pthread_self(), "ledger-syncer");
    pthread_mutex_lock(&syncer->lock);
    for (;;) {
        while (syncer->done_count == syncer->asked_count && !syncer->stopping)
            pthread_cond_wait(&syncer->asked, &syncer->lock);
        if (syncer->stopping)
            break;
        uint64_t asked_count = syncer->asked_count;
        pthread_mutex_unlock(&syncer->lock);
        int64_t started_ms = clock_monotonic_ms();
        FAULT_POINT("ledger.before_main_sync");
        if (fdatasync(syncer->descriptor) != 0)
            (void)ledger_sqlite_error(NULL, SQLITE_IOERR_FSYNC, "syncing the database", &error);
        FAULT_POINT("ledger.after_main_sync");
        pthread_mutex_lock(&syncer->lock);
        syncer->took_ms = clock_monotonic_ms() - started_ms;
        syncer->done_count = asked_count;
        pthread_cond_signal(&syncer->done);
    }
    pthread_mutex_unlock(&syncer->lock);
    return NULL;
}

enum status syncer_start(struct syncer *syncer, int descriptor, struct error *error)
{
    *syncer = (struct syncer){.descriptor = descriptor};
    pthread_mutex_init(&syncer->lock, NULL);
    pthread_cond_init(&syncer->asked, NULL);
    clock_condition_init(&syncer->done);
    if (pthread_create(&syncer->thread, NULL, syncer_main, syncer) == 0)
        return STATUS_OK;
    pthread_cond_destroy(&syncer->done);
    pthread_cond_destroy(&syncer->asked);
    pthread_mutex_destroy(&syncer->lock);
    return error_set(error, STATUS_UNAVAILABLE, "cannot start the thread that syncs the ledger");
}

void syncer_stop(struct syncer *syncer)
{
    pthread_mutex_lock(&syncer->lock);
    syncer->stopping = true;
    pthread_cond_signal(&syncer->asked);
    pthread_mutex_unlock(&syncer->lock);
    pthread_join(syncer->thread, NULL);
    pthread_cond_destroy(&syncer->done);
    pthread_cond_destroy(&syncer->asked);
    pthread_mutex_destroy(&syncer->lock);
}

void syncer_ask(struct syncer *syncer)
{
    pthread_mutex_lock(&syncer->lock);
    syncer->asked_count++;
    pthread_cond_signal(&syncer->asked);
    pthread_mutex_unlock(&syncer->lock);
}

bool syncer_wait(struct syncer *syncer, int64_t timeout_ms)
{
    struct timespec until = clock_deadline_in_ms(timeout_ms);
    int code = timeout_ms > 0 ? 0 : 1;

    pthread_mutex_lock(&syncer->lock);
    while (code == 0 && syncer->done_count != syncer->asked_count)
        code = pthread_cond_timedwait(&syncer->done, &syncer->lock, &until);
    bool is_done = syncer->done_count == syncer->asked_count;
    pthread_mutex_unlock(&syncer->lock);
    return is_done;
}

int64_t syncer_took_ms(struct syncer *syncer)
{
    pthread_mutex_lock(&syncer->lock);
    int64_t took_ms = syncer->took_ms;
    pthread_mutex_unlock(&syncer->lock);
    return took_ms;
}
