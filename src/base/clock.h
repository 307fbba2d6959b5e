/* clock.h: the time, read in one place, and RFC 3339 text.
 *
 * Wall time is for people and for windows (opens_at); monotonic time is for durations and
 * deadlines. Both in milliseconds unless the name says otherwise.
 *
 * Threads: safe from any.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/buffer.h"

/* Years 1970 to 9999: what an API time may say. */
#define CLOCK_WALL_MAX_MS INT64_C(253402300799999)

int64_t clock_wall_ms(void);
int64_t clock_monotonic_ms(void);
int64_t clock_monotonic_ns(void);

/* A condition whose deadlines are of the monotonic clock, so that nobody who sets the time makes
 * anyone wait; and such deadlines, for pthread_cond_timedwait(). */
void clock_condition_init(pthread_cond_t *condition);
struct timespec clock_deadline_at_ms(int64_t monotonic_ms);
struct timespec clock_deadline_in_ms(int64_t wait_ms);
struct timespec clock_deadline_in_ns(int64_t wait_ns);

/* "2026-11-15T12:00:00.000Z", 24 characters and a NUL. */
#define CLOCK_TEXT_SIZE 25
void clock_format_rfc3339(int64_t wall_ms, char text[CLOCK_TEXT_SIZE]);

/* "Sun, 15 Nov 2026 12:00:00 GMT" for the Date header, 29 characters and a NUL. */
#define CLOCK_HTTP_DATE_SIZE 30
void clock_format_http_date(int64_t wall_ms, char text[CLOCK_HTTP_DATE_SIZE]);

/* Takes full RFC 3339 date-times with "Z" or an offset, up to 9 fraction digits (cut to
 * milliseconds), upper- or lower-case t and z, a leap second read as the next second. False for
 * everything else, also for days that do not exist. */
bool clock_parse_rfc3339(struct span text, int64_t *wall_ms);
