/* run.h: one design, one storm, one fault: fresh servers, and in the end the figures.
 *
 * Threads: one.
 */
#pragma once

#include "base/error.h"
#include "lab/count.h"
#include "lab/servers.h"
#include "lab/storm.h"
#include "lab/strategy.h"

enum lab_fault {
    LAB_NO_FAULT,
    LAB_WORKER_KILLED, /* between two of its commands */
    LAB_SERVER_KILLED, /* the same of a front */
    LAB_REDIS_KILLED,  /* kill -9 in the middle, with appendfsync everysec */
    LAB_BROKER_AWAY,   /* it stands still from the middle of the storm on, for some seconds */
    LAB_POISON,        /* one user whose row the database refuses */
    LAB_FAULTS,
};

extern const char *const lab_fault_names[LAB_FAULTS];

/* A strategy of ours, or dibs with some settings. */
struct lab_contestant {
    const char *name;
    const struct lab_strategy *strategy; /* NULL: dibs */
    const char *gate;                    /* of dibs: "local" or "redis" */
    bool has_kafka;
    const char *ack;
};

extern const struct lab_contestant lab_dibs[];

struct lab_setting {
    struct lab_knobs knobs;
    struct storm_shape shape;
    enum lab_fault fault;
    int fronts;          /* one or two */
    int clock_apart_ms;  /* of the second front */
    const char *program; /* of this one, for its fronts and workers */
    const char *dibs;
    void (*on_progress)(void *context, size_t answered);
    void *context;
};

enum status lab_run(struct lab_figures *figures, struct lab_servers *servers,
                    const struct lab_contestant *contestant, const struct lab_setting *setting,
                    struct error *error) MUST_CHECK;
