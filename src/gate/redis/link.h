/* link.h: connections to one Redis server, and what it answers on them, which is never trusted.
 *
 * A part of a reply is asked for as what it should be, and is refused when it is anything else:
 * nil, an error inside an array, an integer where a text is due, a number out of its range. NULL
 * stands for a part that is not there and is refused, too, so that questions can be nested without
 * a check between them. No other file looks into a redisReply.
 *
 * A loop has one pipelined connection per server, a channel, made again after a pause that grows
 * while it cannot be. On any error a connection is dropped at once, so that a late reply never
 * answers someone else; what was on it comes back with no reply.
 *
 * Threads: a connection belongs to one thread at a time, a channel to its loop's; replies are
 * values.
 */
#pragma once

#include <hiredis/async.h>
#include <uv.h>

#include "base/buffer.h"
#include "gate/redis/servers.h"

/* --- replies --- */

/* Lua counts exactly up to here, and sums of a few such numbers do not overflow. */
#define REDIS_NUMBER_MAX (INT64_C(1) << 53)

/* How many there can be of anything in one Redis. */
#define REDIS_COUNT_MAX INT64_C(4294967296)

/* What kind of answer it is, where several are right. */
bool redis_reply_is_array(const redisReply *reply);
bool redis_reply_is_nil(const redisReply *reply);

/* The words of an error; NULL: it is none. */
const char *redis_reply_error(const redisReply *reply);

/* How many parts an array has; 0: none, or it is no array. */
size_t redis_reply_count(const redisReply *reply);

/* A part of an array; NULL: there is no such part. */
const redisReply *redis_reply_at(const redisReply *reply, size_t at);

/* A text as long as the reply lives; there is a NUL behind it, and there may be others in it. */
bool redis_reply_text(const redisReply *reply, struct span *text);

/* The same, copied with its NUL. False, too, when it does not fit or has a NUL in it. */
bool redis_reply_copy(const redisReply *reply, char *text, size_t size);

/* A whole number, as an integer or in digits. */
bool redis_reply_number(const redisReply *reply, int64_t minimum, int64_t maximum, int64_t *number);

/* The first numbers of an array, each of at most REDIS_NUMBER_MAX and not below its negative. */
bool redis_reply_numbers(const redisReply *reply, size_t count, int64_t *numbers);

/* Takes that character off the beginning of a text. */
bool redis_text_take(struct span *text, char wanted);

/* Takes so many numbers from 0 to REDIS_NUMBER_MAX, with colons between them, off the beginning of
 * a text. */
bool redis_text_take_numbers(struct span *text, size_t count, int64_t *numbers);

/* The status of an answer that is not what the function should have said: FAILED, and words. */
enum status redis_reply_is_strange(const char *function, struct error *error);

/* --- connections --- */

/* What an error reply of Redis, or of our functions, asks for. None of them is a verdict. */
enum redis_trouble {
    REDIS_TROUBLE_NONE,       /* no error at all */
    REDIS_TROUBLE_LATER,      /* loading, busy, out of memory, cluster down, …: try again later */
    REDIS_TROUBLE_DROP,       /* read-only, a replica, no rights: ask someone else */
    REDIS_TROUBLE_MOVED,      /* the slot lives elsewhere */
    REDIS_TROUBLE_ASK,        /* this key is on its way elsewhere */
    REDIS_TROUBLE_NO_LIBRARY, /* our functions are not loaded */
    REDIS_TROUBLE_NO_POLICY,  /* the gate does not have it */
    REDIS_TROUBLE_OTHER,      /* what else our functions refuse, or what should not happen */
};
enum redis_trouble redis_trouble_of(const redisReply *reply);

/* Has a connection break at an array that is longer than any of ours, before there is room made for
 * it. Every connection that is opened here is so. */
void redis_link_limit(redisContext *link);

/* Sends a call that is written, and waits for its reply. NULL: the connection broke, and what
 * became of the call is not known; `errstr` says why. */
redisReply *redis_link_call(redisContext *link, const struct buffer *text);

/* Connects, authenticates and chooses the database, each within the target's timeout. UNAVAILABLE,
 * or FAILED: the server refuses us (password, rights). */
enum status redis_link_open(redisContext **link, const struct redis_target *target,
                            const struct redis_address *address, struct error *error) MUST_CHECK;

/* --- a loop's connections --- */

/* First of all in every reply's callback: ends the connection after it when more has come than was
 * asked for. hiredis would abort the process over such a reply. */
void redis_uv_mind(redisAsyncContext *link);

struct redis_channel {
    struct redis_channels *all;
    struct redis_address address;
    redisAsyncContext *link; /* NULL: not connected */
    int64_t lost_at_ms;      /* monotonic */
    int64_t retry_at_ms;     /* 0: now; somebody else has seen the server */
    int64_t retry_pause_ms;
    struct redis_channel *next;
};

struct redis_channels {
    const struct redis_target *target; /* borrowed */
    uv_loop_t *loop;
    struct redis_channel *first;
};

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
