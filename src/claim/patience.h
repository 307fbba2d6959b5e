/* patience.h: the pending claims that the ledger refused, and when each is tried again, so that one
 * that is always refused neither keeps the worker busy nor those behind it waiting.
 *
 * Threads: values only; the owner locks.
 */
#ifndef CLAIM_PATIENCE_H
#define CLAIM_PATIENCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/model.h"

#define PATIENCE_PAUSE_MS 200 /* after the first refusal; twice as long after each more */

struct patience_claim {
    int64_t policy_id;
    int64_t seq;
    int32_t attempt;     /* refusals so far */
    int64_t again_at_ms; /* monotonic */
};

struct patience {
    struct patience_claim *claims;
    size_t count;
    size_t capacity;
};

void patience_release(struct patience *patience);

/* The ledger has refused it once more. Without memory it is tried again at once. */
void patience_note(struct patience *patience, const struct claim *claim, int64_t now_ms);

/* It is settled. */
void patience_forget(struct patience *patience, const struct claim *claim);

/* Takes out those whose time has not come, and notes in the others how often they were refused.
 * Returns how many are left. */
size_t patience_sift(const struct patience *patience, struct claim *claims, size_t count,
                     int64_t now_ms);

/* How many of a policy's claims wait for their time. */
size_t patience_waiting(const struct patience *patience, int64_t policy_id, int64_t now_ms);

/* Forgets claims that nobody has tried for long: another worker has settled them. */
void patience_sweep(struct patience *patience, int64_t now_ms);

#endif
