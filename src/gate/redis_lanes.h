/* redis_lanes.h: what one loop has to ask Redis, policy by policy.
 *
 * A lane is there only while something of its policy is under way or waits, so that an id that
 * somebody made up leaves nothing behind. Only a few lanes of ids that this process has never heard
 * of are under way at a time: the others are held in the order they came, so that a crowd that
 * makes up ids is never long in front of those who claim what there is.
 *
 * Threads: the loop's.
 */
#ifndef GATE_REDIS_LANES_H
#define GATE_REDIS_LANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

/* Lanes of unknown ids that are under way at a time. */
#define REDIS_UNKNOWN_MAX 32

struct redis_flight;

/* The calls about one policy. */
struct redis_lane {
    int64_t policy_id;
    size_t busy_count;            /* calls under way, and whoever is sending some */
    bool is_unknown;              /* nobody here has heard of the policy */
    bool is_held;                 /* among the held ones */
    struct redis_flight *waiting; /* to depart, in order */
    struct redis_flight **waiting_end;
    struct redis_lane *next; /* in its bucket */
    struct redis_lane *next_held;
};

struct redis_lanes {
    struct hash_key key;
    struct redis_lane **buckets;
    size_t mask;
    size_t count;
    size_t unknown_count; /* under way */
    struct redis_lane *held;
    struct redis_lane **held_end;
};

void redis_lanes_init(struct redis_lanes *lanes);
/* All lanes are gone. */
void redis_lanes_release(struct redis_lanes *lanes);

/* NULL: there is none. */
struct redis_lane *redis_lanes_find(const struct redis_lanes *lanes, int64_t policy_id);

/* A new one. */
struct redis_lane *redis_lanes_add(struct redis_lanes *lanes, int64_t policy_id, bool is_unknown);

/* Frees one that is neither busy nor held, and has nothing waiting. */
void redis_lanes_remove(struct redis_lanes *lanes, struct redis_lane *lane);

/* Whether a new lane has to wait for others; then it is held. */
bool redis_lanes_hold(struct redis_lanes *lanes, struct redis_lane *lane);

/* The next one that need not wait any longer, or NULL. */
struct redis_lane *redis_lanes_next(struct redis_lanes *lanes);

#endif
