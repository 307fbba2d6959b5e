/* storm.h: presses the button for everybody in the plan and writes down what each was told.
 *
 * Times are nanoseconds from the start of the storm. The latency of a press counts from when it was
 * due, so that waiting for a free connection or a stalled server is in it.
 *
 * Threads: a storm belongs to one thread.
 */
#ifndef RUSH_STORM_H
#define RUSH_STORM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/histogram.h"
#include "rush/plan.h"
#include "rush/reply.h"
#include "rush/wire.h"

/* One press, and its last answer. */
struct rush_press {
    uint32_t user;
    uint16_t status; /* of the last reply; 0: there was none */
    uint8_t outcome; /* enum rush_outcome */
    uint8_t tries;
    int32_t nth;
    bool is_issued;
    bool is_sent;
    bool may_be_done; /* a try before the last one had no answer that tells */
    int64_t seq;
    int64_t due_ns;
    int64_t sent_ns; /* the first time */
    int64_t answered_ns;
};

struct storm_numbers {
    uint64_t press_count;
    uint64_t sent;
    uint64_t answered;
    uint64_t outcomes[RUSH_OUTCOMES];
    uint64_t retries;
    uint64_t failures; /* tries without an answer */
    int64_t elapsed_ns;
    int64_t slip_ns; /* the longest that a press was sent after it was due */
    uint64_t p50_us;
    uint64_t p99_us;
    struct wire_numbers wire;
};

struct storm_options {
    struct wire *wire;
    const struct rush_plan *plan;
    const char *base;      /* in front of every path */
    const char *authority; /* of the Host header */
    const char *token;     /* "": none */
    const char *run;       /* the run's name: 8 characters in the names of users and keys */
    int64_t policy_id;
    bool sends_keys; /* an Idempotency-Key for every press, the same on every try of it */
    int retry_max;   /* how often a press is repeated that was not done, or may not have been */
    const volatile sig_atomic_t *stop; /* not 0: nobody presses any more */
    void (*tell)(void *context, const struct storm_numbers *numbers); /* a few times a second */
    void *context;
};

struct storm {
    struct storm_options options;
    struct rush_press *presses; /* in the order of the plan */
    size_t press_count;
    struct storm_numbers numbers;
    char first_refusal[160]; /* in the server's words; "": none */

    /* its own */
    struct histogram latencies_us;
    int64_t start_ns;
    size_t next_press;
    struct storm_retry *retries; /* a heap */
    size_t retry_count;
    uint64_t random;
    char request[6144];
    size_t request_length;
    size_t user_at;
    size_t key_at; /* 0: no key */
};

/* "rush-RRRRRRRR-NNNNNNNN" and a NUL. */
#define RUSH_USER_SIZE 23
void rush_user_name(char name[RUSH_USER_SIZE], const char *run, uint32_t user);

/* Runs to its end, or until it is stopped: then presses that were not sent stay so. */
enum status storm_run(struct storm *storm, const struct storm_options *options,
                      struct error *error) MUST_CHECK;
void storm_release(struct storm *storm);

#endif
