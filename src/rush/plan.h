/* plan.h: who presses the button when: the schedule of a storm, worked out before it begins.
 *
 * A press has a user and, in an open storm, the moment it is due, counted from the start; nothing
 * the server does moves it, so a server that stalls shows in every latency behind the stall. In a
 * closed storm a press is due when a connection is free.
 *
 * Threads: a plan belongs to one owner; once made it is only read.
 */
#ifndef RUSH_PLAN_H
#define RUSH_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define RUSH_USERS_MAX   10000000
#define RUSH_PRESSES_MAX 20000000

enum rush_shape {
    RUSH_CLOSED, /* as fast as the answers come */
    RUSH_STEADY, /* at one rate from the first moment on */
    RUSH_RAMP,   /* from nothing to the rate, evenly */
    RUSH_BURSTS, /* so many at once, again and again */
};

struct rush_plan_options {
    enum rush_shape shape;
    uint32_t user_count;
    double rate_per_s;         /* of STEADY, and the last one of RAMP */
    double duration_s;         /* 0: until every user has pressed once */
    uint32_t burst_size;       /* of BURSTS */
    int64_t burst_interval_ns; /* of BURSTS */
    double duplicate_share;    /* of the users, who press twice in quick succession */
    uint64_t seed;
};

struct rush_plan {
    struct rush_plan_options options;
    uint32_t *users; /* of each press, in order */
    size_t press_count;
};

/* Every user presses once, in order, some twice; when the duration asks for more presses, users
 * picked at random press again, and when it asks for fewer, the last users do not come. INVALID:
 * more than RUSH_PRESSES_MAX presses. */
enum status rush_plan_make(struct rush_plan *plan, const struct rush_plan_options *options,
                           struct error *error) MUST_CHECK;
void rush_plan_release(struct rush_plan *plan);

/* When a press is due, in nanoseconds from the start; 0 in a closed storm. */
int64_t rush_plan_due_ns(const struct rush_plan *plan, size_t press);

#endif
