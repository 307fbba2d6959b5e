/* front.h: the processes of a run: a front that answers claims, and a worker that writes rows.
 *
 * Threads: each is the whole of its process.
 */
#pragma once

#include "base/error.h"
#include "lab/strategy.h"

struct lab_process {
    const struct lab_strategy *strategy;
    struct lab_knobs knobs;
    const char *redis_address;
    const char *database;
    const char *kafka_address;
    int kill_at; /* as in session.h */
};

/* Serves on that port until it is told to stop. */
enum status lab_front_run(const struct lab_process *process, int port,
                          struct error *error) MUST_CHECK;

/* Works until it is told to stop. */
void lab_worker_run(const struct lab_process *process);
