/* entering.h: tells a shared gate of coupons that the ledger gave while it was away.
 *
 * The ledger keeps a mark on each of them until that is done, so that any process can do it: the
 * server that gave them, one that starts after it ended, or a worker.
 *
 * Threads: every function may be called from any thread, also for one policy at once.
 */
#ifndef CLAIM_ENTERING_H
#define CLAIM_ENTERING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct service;

/* Tells the gate of some of the policy's coupons. *is_done: there were no others. A policy that is
 * over, and that the gate has let go, has none. Blocks. UNAVAILABLE: the gate or the ledger is
 * away, which is told of a gate also when there are no coupons. */
enum status entering_tell(struct service *service, int64_t policy_id, bool *is_done,
                          struct error *error) MUST_CHECK;

#endif
