/* redis_reply.h: the one way into what Redis has answered, which is never trusted.
 *
 * A part of a reply is asked for as what it should be, and is refused when it is anything else:
 * nil, an error inside an array, an integer where a text is due, a number out of its range. NULL
 * stands for a part that is not there and is refused, too, so that questions can be nested without
 * a check between them. No other file looks into a redisReply.
 *
 * Threads: values only.
 */
#ifndef GATE_REDIS_REPLY_H
#define GATE_REDIS_REPLY_H

#include <hiredis/hiredis.h>

#include "base/buffer.h"
#include "base/error.h"

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

#endif
