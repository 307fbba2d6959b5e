/* random.h: unpredictable bytes from the kernel, and cheap jitter.
 * Threads: safe from any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Fills with bytes fit for keys. Aborts when the kernel has none, which does not happen. */
void random_bytes(void *bytes, size_t length);

/* A number in [0, limit), for jitter; limit > 0. */
uint64_t random_below(uint64_t limit);
