/* redis.h: the board in Redis, shared by any number of servers.
 *
 * Daily counters and the sums of windows of two and three days are zsets; they, and the place in
 * the feed, change in one call of a function, which compares the place first: it does not matter
 * how many servers follow the feed, or where one of them dies. A board that was wiped, in whole or
 * in part, is noticed by the size that each zset is known to have. What is kept where is in
 * redis_board.lua.
 *
 * Threads: any, as board.h says.
 */
#pragma once

#include "base/zone.h"
#include "ranking/board.h"

struct board_redis_options {
    const char *url;
    const char *password;    /* NULL: as the URL says */
    int64_t timeout_ms;      /* of a call; 0: a second */
    const struct zone *zone; /* in which days end; outlives the board */
};

/* Asks nobody yet: a Redis that is away is a board that cannot be asked. INVALID: the URL. */
enum status board_redis_open(struct board **board, const struct board_redis_options *options,
                             struct error *error) MUST_CHECK;
