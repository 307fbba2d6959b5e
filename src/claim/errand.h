/* errand.h: claims that clerks decide in the ledger for a desk, while the gate is away, or when it
 * has let go of a policy that is closed.
 *
 * Threads: a desk's errands belong to its loop's thread; clerks bring them back from theirs.
 */
#ifndef CLAIM_ERRAND_H
#define CLAIM_ERRAND_H

#include "claim/service.h"

struct errands;
struct wish;

/* Why the gate does not decide. */
enum errand_cause {
    ERRAND_AWAY,   /* it is away: fallback_admit() or fallback_note() has told to serve the wish */
    ERRAND_CLOSED, /* it has let go of the policy, which is closed for good */
};

/* The beginning of what a desk gives a clerk; from malloc(). */
struct errand {
    struct clerk_task task;
    struct errand *next;
    struct errands *errands;
    struct wish *wish; /* within the same allocation */
    enum errand_cause cause;
};

/* `wake` is called from any thread when one has been done. NULL: no memory. */
struct errands *errands_open(struct service *service, void (*wake)(void *context), void *context);

/* Those that are still with the clerks are thrown away when they are done. */
void errands_close(struct errands *errands);

/* Lets a clerk decide the wish. False: they have too much to do; it is still the caller's, and need
 * not be served any more. */
bool errands_send(struct errands *errands, struct errand *errand, struct wish *wish,
                  enum errand_cause cause);

/* Those that are done, the caller's to free. */
struct errand *errands_take(struct errands *errands);

#endif
