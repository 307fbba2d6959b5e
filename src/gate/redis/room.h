/* room.h: whether each Redis takes writes, how much memory it has used and how many keys it has.
 *
 * Threads: one thread checks and measures; redis_rooms_copy() from any.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "gate/redis/pool.h"
#include "gate/shared.h"

/* Of so many servers what was measured is kept. */
#define REDIS_ROOMS_MAX 64

struct redis_rooms {
    int64_t again_at_ms; /* monotonic; the measuring thread's own, as the next two */
    struct gate_room next[REDIS_ROOMS_MAX];
    size_t next_count;
    pthread_mutex_t lock;
    struct gate_room rooms[REDIS_ROOMS_MAX]; /* of those that answered the last time */
    size_t count;
};

void redis_rooms_init(struct redis_rooms *rooms);
void redis_rooms_release(struct redis_rooms *rooms);

/* Whether it is time to measure all servers; then redis_rooms_end() shows what was found. */
bool redis_rooms_begin(struct redis_rooms *rooms);
void redis_rooms_end(struct redis_rooms *rooms);

/* A Redis that is full, or cannot write its files, answers and decides nothing. What it knows is
 * looked at all the same, and what the ledger has is told to it. `rooms` NULL: nothing is measured.
 */
enum status redis_room_check(struct redis_pool *pool, const struct redis_address *address,
                             struct redis_rooms *rooms, struct error *error) MUST_CHECK;

size_t redis_rooms_copy(struct redis_rooms *rooms, struct gate_room *copies, size_t max);
