/* redis_scan.h: reads what Redis tells page by page, from a cursor to the next one.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef GATE_REDIS_SCAN_H
#define GATE_REDIS_SCAN_H

#include "gate/redis_pool.h"

enum redis_scanned {
    SCAN_POLICIES, /* names of keys */
    SCAN_USERS,    /* users, and what they hold */
    SCAN_CLAIMS,   /* the same, with the states that hold now */
    SCAN_KEYS,     /* request ids, and whose claims they are */
};

/* Reads all pages. `take` gets each field with its value, or each name twice, some of them more
 * than once; false: it is not readable. `keys` are not needed for policies. UNAVAILABLE; FAILED:
 * what is there cannot be read, and stays so. */
enum status redis_scan(struct redis_pool *pool, const struct redis_address *address,
                       const struct redis_keys *keys, enum redis_scanned what,
                       bool (*take)(void *context, struct span name, struct span value),
                       void *context, struct error *error) MUST_CHECK;

#endif
