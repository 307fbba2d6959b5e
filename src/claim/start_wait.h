/* start_wait.h: a start that waits for a Redis or a database which is not there yet, and says so.
 *
 * Systems are started in any order: a connection that is refused or reset, or a server that is
 * still loading, passes by itself. What does not (a wrong password, an owner, a newer schema) has
 * another status and is not waited for.
 *
 * Threads: one start, one thread.
 */
#ifndef CLAIM_START_WAIT_H
#define CLAIM_START_WAIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct start_wait {
    int64_t timeout_ms; /* for the whole start; 0: do not wait */
    int64_t since_ms;   /* of the first failure; 0: none yet */
    int64_t said_ms;    /* when the log last told of it */
    int64_t pause_ms;
};

/* After a step that ended with `status`: true when it is to be taken again, after a pause. When the
 * time is over, the error says so. */
bool start_wait_again(struct start_wait *wait, enum status status, struct error *error);

#endif
