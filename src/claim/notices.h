/* notices.h: the last few things that happened to policies or to the server, for people who watch.
 *
 * A bounded ring: what is old makes room. Nothing depends on a notice having been seen.
 *
 * Threads: every function may be called from any thread, also with other locks held: it takes only
 * its own, for a moment.
 */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define NOTICES_MAX      256
#define NOTICE_TEXT_SIZE 160

struct notice {
    uint64_t number;   /* counts from 1, without gaps */
    int64_t at_ms;     /* wall */
    int64_t policy_id; /* 0: of the server as a whole */
    const char *event; /* a constant: "paused", "sold_out", ... */
    char text[NOTICE_TEXT_SIZE];
};

struct notices {
    pthread_mutex_t lock;
    uint64_t count; /* ever */
    struct notice ring[NOTICES_MAX];
};

void notices_init(struct notices *notices);
void notices_release(struct notices *notices);

void notices_add(struct notices *notices, int64_t at_ms, int64_t policy_id, const char *event,
                 const char *format, ...) PRINTF_LIKE(5, 6);

/* Copies the last `max` notices of the policy and of the server with numbers above `after` and up
 * to `until`, oldest first; returns how many. */
size_t notices_read(struct notices *notices, int64_t policy_id, uint64_t after, uint64_t until,
                    struct notice *out, size_t max);

/* The number of the latest. */
uint64_t notices_latest(struct notices *notices);
