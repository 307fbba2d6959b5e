/* redis_channel.h: a loop's pipelined connections to Redis, one per server, made again after a
 * pause that grows while they cannot be.
 *
 * On any error a connection is dropped at once, so that a late reply never answers someone else;
 * what was on it comes back with no reply.
 *
 * Threads: the loop's.
 */
#ifndef GATE_REDIS_CHANNEL_H
#define GATE_REDIS_CHANNEL_H

#include <hiredis/async.h>
#include <uv.h>

#include "gate/redis_target.h"

struct redis_channel {
    struct redis_channels *all;
    struct redis_address address;
    redisAsyncContext *link; /* NULL: not connected */
    int64_t lost_at_ms;      /* monotonic */
    int64_t retry_at_ms;
    int64_t retry_pause_ms;
    struct redis_channel *next;
};

struct redis_channels {
    const struct redis_target *target;
    uv_loop_t *loop;
    struct redis_channel *first;
};

/* The target is borrowed. */
void redis_channels_init(struct redis_channels *channels, const struct redis_target *target,
                         uv_loop_t *loop);

/* Drops and frees them all. */
void redis_channels_release(struct redis_channels *channels);

/* The one to that server; it may not be connected. */
struct redis_channel *redis_channels_find(struct redis_channels *channels,
                                          const struct redis_address *address);

/* The connection, made when there is none and it is time. NULL: not now. */
redisAsyncContext *redis_channel_open(struct redis_channel *channel);

/* Ends the connection at once; what is on it comes back with no reply. */
void redis_channel_drop(struct redis_channel *channel);

/* It works: the next pause is short again. */
void redis_channel_is_well(struct redis_channel *channel);

/* Somebody else has seen the server: the pause is over. */
void redis_channel_hurry(struct redis_channel *channel);

#endif
