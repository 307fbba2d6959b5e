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

extern const char *const lab_fault_names[LAB_FAULTS];

/* A strategy with its settings, or dibs with some. */
struct lab_contestant {
    const char *name;
    const char *group;                   /* what it gives coupons out of */
    const struct lab_strategy *strategy; /* NULL: dibs */
    int retries;                         /* of the optimistic ones, unless the setting has some */
    int sync_ms;                         /* the same; 0: no sync job */
    const char *gate;                    /* of dibs: "local" or "redis" */
    bool has_kafka;
    const char *ack;
};

extern const struct lab_contestant lab_contestants[]; /* up to the one without a name */
#define LAB_CONTESTANTS_MAX 32

bool lab_has_kafka(const struct lab_contestant *contestant);
bool lab_has_worker(const struct lab_contestant *contestant);
bool lab_has_redis(const struct lab_contestant *contestant);

struct lab_setting {
    struct lab_knobs knobs; /* retries, sync_ms: -1: each design's own */
    struct storm_shape shape;
    enum lab_fault fault;
    bool syncs_always;  /* Redis, its file; else every second */
    bool syncs_amid;    /* the sync job has a turn in the middle of the storm */
    int latency_ms;     /* of the database */
    int fronts;         /* one or two */
    int clock_apart_ms; /* of the second front */
    const char *dibs;   /* the program */
    void (*on_progress)(void *context, size_t answered, size_t count);
    void *context;
};

enum status lab_run(struct lab_figures *figures, struct lab_servers *servers,
                    const struct lab_contestant *contestant, const struct lab_setting *setting,
                    struct error *error) MUST_CHECK;
