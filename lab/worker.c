/* worker.c: the process beside the fronts: the worker's turns and those of the sync job. */
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "base/clock.h"
#include "lab/front.h"
#include "lab/session.h"

#define WAIT_MAX_MS 50

static volatile sig_atomic_t is_sync_asked; /* a run wants it now */

static void worker_stop(int number)
{
    (void)number;
    _exit(0);
}

static void worker_ask_sync(int number)
{
    (void)number;
    is_sync_asked = 1;
}

/* One turn of work() or sync() for each policy. */
static void worker_turn(struct lab_session *session, const struct lab_strategy *strategy, int batch)
{
    for (int policy = 1; policy <= session->knobs->policies; policy++) {
        lab_session_begin(session);
        session->policy = policy;
        if (session->failed)
            continue;
        if (batch > 0)
            strategy->work(session, batch);
        else
            strategy->sync(session);
    }
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
    bool has_sync = knobs->sync_ms > 0 && strategy->sync != NULL;
    int64_t work_at_ms = clock_monotonic_ms() + pause_ms;
    int64_t sync_at_ms = clock_monotonic_ms() + knobs->sync_ms;

    signal(SIGTERM, worker_stop);
    signal(SIGUSR1, worker_ask_sync);
    for (;;) {
        int64_t now_ms = clock_monotonic_ms();
        if (has_sync && (is_sync_asked != 0 || now_ms >= sync_at_ms)) {
            is_sync_asked = 0;
            worker_turn(&session, strategy, 0);
            sync_at_ms = now_ms + knobs->sync_ms;
        }
        if (now_ms >= work_at_ms) {
            worker_turn(&session, strategy, batch);
            work_at_ms = clock_monotonic_ms() + pause_ms;
        }
        int64_t wait_ms = work_at_ms - clock_monotonic_ms();
        if (wait_ms > 0) /* a signal ends it */
            usleep((useconds_t)(wait_ms < WAIT_MAX_MS ? wait_ms : WAIT_MAX_MS) * 1000);
    }
}
