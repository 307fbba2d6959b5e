/* redis_lanes.c: a table of lanes by id, and those that wait for their turn. */
#include "gate/redis_lanes.h"

#include <stdlib.h>

#include "base/error.h"

#define BUCKETS_MIN 64

void redis_lanes_init(struct redis_lanes *lanes)
{
    *lanes = (struct redis_lanes){.key = hash_key_random(), .mask = BUCKETS_MIN - 1};
    lanes->buckets = calloc(BUCKETS_MIN, sizeof(struct redis_lane *));
    ensure(lanes->buckets != NULL);
    lanes->held_end = &lanes->held;
}

void redis_lanes_release(struct redis_lanes *lanes)
{
    ensure(lanes->count == 0);
    free(lanes->buckets);
}

static struct redis_lane **redis_lanes_bucket(const struct redis_lanes *lanes, int64_t policy_id)
{
    return &lanes->buckets[hash_table(lanes->key, &policy_id, sizeof(policy_id)) & lanes->mask];
}

struct redis_lane *redis_lanes_find(const struct redis_lanes *lanes, int64_t policy_id)
{
    struct redis_lane *lane = *redis_lanes_bucket(lanes, policy_id);

    while (lane != NULL && lane->policy_id != policy_id)
        lane = lane->next;
    return lane;
}

static void redis_lanes_enter(struct redis_lanes *lanes, struct redis_lane *lane)
{
    struct redis_lane **bucket = redis_lanes_bucket(lanes, lane->policy_id);

    lane->next = *bucket;
    *bucket = lane;
}

/* As many buckets as lanes at least, and few again when the crowd has gone. */
static void redis_lanes_resize(struct redis_lanes *lanes, size_t size)
{
    struct redis_lane **old = lanes->buckets;
    size_t old_size = lanes->mask + 1;
    struct redis_lane **buckets = calloc(size, sizeof(*buckets));

    if (buckets == NULL)
        return; /* Only slower. */
    lanes->buckets = buckets;
    lanes->mask = size - 1;
    for (size_t i = 0; i < old_size; i++) {
        struct redis_lane *next;
        for (struct redis_lane *lane = old[i]; lane != NULL; lane = next) {
            next = lane->next;
            redis_lanes_enter(lanes, lane);
        }
    }
    free(old);
}

struct redis_lane *redis_lanes_add(struct redis_lanes *lanes, int64_t policy_id, bool is_unknown)
{
    struct redis_lane *lane = malloc(sizeof(*lane));

    ensure(lane != NULL);
    *lane = (struct redis_lane){.policy_id = policy_id, .is_unknown = is_unknown};
    lane->waiting_end = &lane->waiting;
    if (++lanes->count > lanes->mask)
        redis_lanes_resize(lanes, (lanes->mask + 1) * 2);
    redis_lanes_enter(lanes, lane);
    lanes->unknown_count += is_unknown;
    return lane;
}

void redis_lanes_remove(struct redis_lanes *lanes, struct redis_lane *lane)
{
    struct redis_lane **place = redis_lanes_bucket(lanes, lane->policy_id);

    ensure(lane->busy_count == 0 && !lane->is_held && lane->waiting == NULL);
    while (*place != lane)
        place = &(*place)->next;
    *place = lane->next;
    lanes->unknown_count -= lane->is_unknown;
    free(lane);
    if (--lanes->count == 0 && lanes->mask + 1 > BUCKETS_MIN)
        redis_lanes_resize(lanes, BUCKETS_MIN);
}

bool redis_lanes_hold(struct redis_lanes *lanes, struct redis_lane *lane)
{
    if (!lane->is_unknown || lanes->unknown_count <= REDIS_UNKNOWN_MAX)
        return false;
    lanes->unknown_count--;
    lane->is_held = true;
    *lanes->held_end = lane;
    lanes->held_end = &lane->next_held;
    return true;
}

struct redis_lane *redis_lanes_next(struct redis_lanes *lanes)
{
    struct redis_lane *lane = lanes->held;

    if (lane == NULL || lanes->unknown_count >= REDIS_UNKNOWN_MAX)
        return NULL;
    lanes->held = lane->next_held;
    if (lanes->held == NULL)
        lanes->held_end = &lanes->held;
    lane->next_held = NULL;
    lane->is_held = false;
    lanes->unknown_count++;
    return lane;
}
