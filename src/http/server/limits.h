/* limits.h: so many requests per second for each key, and so many connections for each address.
 *
 * A rate limiter is a token bucket kept as one moment per key (GCRA): the time at which the bucket
 * would be full again. The table is bounded; a key that is pushed out by newer ones starts with a
 * full bucket.
 *
 * Threads: safe from any; a rate limiter's table is cut into parts with a lock each.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/address.h"
#include "base/buffer.h"
#include "base/error.h"

/* The part of an address that is one customer: all of IPv4, the first 64 bits of IPv6. `bytes`
 * holds what the span points to. */
#define RATE_LIMIT_ADDRESS_SIZE 9
struct span rate_limit_address(const struct address *address, char bytes[RATE_LIMIT_ADDRESS_SIZE]);

/* --- requests per second --- */

struct rate_limiter;

/* What the RateLimit headers say. */
struct rate_limit {
    bool allowed;
    uint32_t limit;         /* what a full bucket holds */
    uint32_t remaining;     /* what it holds now */
    uint32_t reset_s;       /* until it is full again */
    uint32_t retry_after_s; /* until the next one is allowed; 0 when this one was */
};

/* per_second > 0, burst >= 1; about `keys_max` keys are remembered at a time. */
struct rate_limiter *rate_limiter_new(double per_second, int64_t burst, size_t keys_max);
void rate_limiter_free(struct rate_limiter *limiter);

/* Takes one out of the key's bucket, when there is one. */
struct rate_limit rate_limiter_take(struct rate_limiter *limiter, struct span key, int64_t now_ns);

/* What taking one would say, without taking it. */
struct rate_limit rate_limiter_peek(struct rate_limiter *limiter, struct span key, int64_t now_ns);

/* --- connections per address ---
 *
 * So that no customer takes all of them. This machine itself (127.0.0.1 and ::1) is not counted:
 * that is a proxy that nobody named, or a tool. */

struct per_address;

/* At most `max` each; 0: any number. NULL: no memory. */
struct per_address *per_address_new(size_t max);
void per_address_free(struct per_address *per_address);

/* One more of that address. False: it has as many as it may, or there is no memory for it. */
bool per_address_enter(struct per_address *per_address, const struct address *address);

/* One that entered has gone. */
void per_address_leave(struct per_address *per_address, const struct address *address);
