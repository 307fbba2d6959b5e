/* strategy.h: one way to hand out coupons, as teams write it.
 *
 * A strategy is blocking code that runs in one of the front's threads, with a Redis and a database
 * connection of that thread: what a service with a thread per request does. Between two commands it
 * calls lab_step(), where a run may hold the process up or kill it.
 *
 * Threads: a session belongs to one thread; a strategy is constant.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lab/anomalies.h"

/* What a person is told. */
enum lab_answer {
    LAB_YES,
    LAB_SOLD_OUT,
    LAB_ALREADY, /* "you have one already" */
    LAB_BUSY,    /* a lock or a retry ran out: try again */
    LAB_FAILED,  /* an error, such as a lost connection */
};

/* What a run can change; the same for every strategy. */
struct lab_knobs {
    int64_t total; /* of each policy */
    int policies;
    int retries;          /* of the optimistic ones */
    int lock_wait_ms;     /* how long somebody waits for a lock */
    int lock_lease_ms;    /* after which a lock is taken from its holder */
    int worker_pause_ms;  /* 0: the strategy's own */
    int worker_batch;     /* 0: the strategy's own */
    int sync_ms;          /* how often the sync job runs; 0: never */
    int ttl_s;            /* of keys that expire */
    int pause_ms;         /* a step takes up to so long, as the seed has it */
    int64_t clock_off_ms; /* of this process */
    uint64_t seed;
};

struct lab_session;

struct lab_strategy {
    const char *name;
    const char *commands; /* the sequence that it stands for, in one line */
    /* Of each anomaly that a run can show: which commands lead to it, in one sentence. */
    const char *why[LAB_WRONGS];
    const char *why_of[LAB_FAULTS]; /* the same of a fault, whatever it leads to; comes first */
    bool needs_redis;
    int pause_ms; /* of its worker; 0: it has none */
    int batch;
    const char *topic; /* of Kafka, which is there before anybody presses; NULL: it has none */

    /* Makes an empty Redis and database ready for `total` coupons of the session's policy. */
    void (*prepare)(struct lab_session *session);

    /* Somebody presses the button of the session's policy. */
    enum lab_answer (*claim)(struct lab_session *session, const char *user);

    /* One turn of the worker, which writes rows of the policy; NULL: claims write their own. */
    void (*work)(struct lab_session *session, int batch);

    /* One turn of the sync job; NULL: there is none. */
    void (*sync)(struct lab_session *session);
};

const struct lab_strategy *lab_strategy_find(const char *name);
