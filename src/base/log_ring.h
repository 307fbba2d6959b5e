/* log_ring.h: a bounded ring of log lines and the thread that writes them; log.h is for everybody
 * else.
 *
 * Putting a line never waits for the one who reads the log. Lines leave in the order they came, as
 * many whole ones at a time as a pipe takes without mixing them with somebody else's.
 *
 * Threads: safe from any; start and stop by the one that starts the others.
 */
#ifndef BASE_LOG_RING_H
#define BASE_LOG_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* `report` is called on the writing thread when lines were dropped since it was last called. */
void log_ring_start(int file_descriptor, void (*report)(uint64_t dropped));

/* A whole line of at most 4 KiB with its newline. False when the ring does not run: then it is for
 * the caller to write. */
bool log_ring_put(struct span line);

/* Writes all of it, however often it is interrupted. False when that cannot be. */
bool log_ring_write(int file_descriptor, struct span bytes);

/* See log.h. */
void log_ring_flush(void);
void log_ring_stop(void);
uint64_t log_ring_dropped(void);

#endif
