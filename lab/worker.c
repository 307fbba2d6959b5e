/* worker.c: the process beside the fronts: the worker's turns and those of the sync job. */
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/clock.h"
#include "lab/front.h"
#include "lab/session.h"

static void worker_stop(int number)
{
    (void)number;
    _exit(0);
}

void lab_worker_run(const struct lab_process *process)
{
    const struct lab_strategy *strategy = process->strategy;
    const struct lab_knobs *knobs = &process->knobs;
    struct lab_session session = {
        .knobs = knobs,
        .redis_address = process->redis_address,
        .database = process->database,
        .kafka_address = process->kafka_address,
        .kill_at = process->kill_at,
    };
    int pause_ms = knobs->worker_pause_ms > 0 ? knobs->worker_pause_ms : strategy->pause_ms;
    int batch = knobs->worker_batch > 0 && knobs->worker_batch < strategy->batch
                    ? knobs->worker_batch
                    : strategy->batch;
    int64_t sync_at_ms = clock_monotonic_ms() + knobs->sync_ms;

    signal(SIGTERM, worker_stop);
    for (;;) {
        lab_session_begin(&session);
        if (!session.failed)
            strategy->work(&session, batch);
        if (knobs->sync_ms > 0 && strategy->sync != NULL && clock_monotonic_ms() >= sync_at_ms) {
            strategy->sync(&session);
            sync_at_ms += knobs->sync_ms;
        }
        usleep((useconds_t)pause_ms * 1000);
    }
}
