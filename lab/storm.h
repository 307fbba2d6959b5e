/* storm.h: a crowd that presses the button, and what each was told.
 *
 * Threads: a storm runs in the calling thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum storm_outcome {
    STORM_UNSENT,
    STORM_WON,  /* 201 or 202 */
    STORM_HELD, /* 200: the claim that one has */
    STORM_SOLD_OUT,
    STORM_ALREADY, /* told to have one, without being shown it */
    STORM_BUSY,    /* 503 */
    STORM_FAILED,  /* 500 */
    STORM_LOST,    /* no answer */
};

struct storm_press {
    uint32_t user;
    int policy; /* from 1 */
    enum storm_outcome outcome;
    int tries;
    int64_t due_ns;  /* from the start, as the others; of the next try */
    int64_t sent_ns; /* the first time */
    int64_t answered_ns;
};

struct storm_fronts {
    const char *const *addresses; /* "127.0.0.1:8080" */
    size_t count;
};

struct storm_shape {
    uint32_t users; /* of each policy */
    int policies;
    unsigned duplicates; /* percent of the users who press twice */
    size_t connections;
    uint32_t burst; /* so many at once; 0: each connection as soon as it has an answer */
    int every_ms;   /* between bursts */
    int again_ms;   /* so long after all others the second presses come; 0: among them */
    int retries;    /* after a 5xx or no answer, a fifth of a second later */
    uint64_t seed;
    bool has_poison; /* one of the users is called "poison", and is among the first */
};

struct lab_storm {
    struct storm_press *presses; /* in the order in which they are due */
    size_t press_count;
    int64_t started_wall_ms;
    int64_t elapsed_ns;
};

/* "u-17"; the poisoned one is called so. */
#define STORM_NAME_SIZE 24
#define STORM_POISON    "poison"
uint32_t storm_poisoned(const struct storm_shape *shape);
void storm_user_name(char name[STORM_NAME_SIZE], const struct storm_shape *shape, uint32_t user);

/* Presses until everybody has. `on_progress` is told every 20 ms how many are answered. */
enum status lab_storm_run(struct lab_storm *storm, const struct storm_shape *shape,
                          const struct storm_fronts *fronts,
                          void (*on_progress)(void *context, size_t answered), void *context,
                          struct error *error) MUST_CHECK;
void lab_storm_release(struct lab_storm *storm);
