/* worker.h: drains a gate that processes share into the ledger, and is the steward of its policies.
 *
 * A claim leaves the gate only after the ledger has it. Of all workers one attends to a policy at a
 * time, as the ledger's clock says; that they overlap when one was stalled is harmless, because the
 * ledger takes a claim once and the gate a lease once.
 *
 * Threads: worker_start() and worker_stop() from the owner; the others from any.
 */
#ifndef CLAIM_WORKER_H
#define CLAIM_WORKER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"

struct service;
struct worker;

/* Ready to hear from the ledger; nothing is drained before worker_run(). */
enum status worker_start(struct worker **worker, struct service *service,
                         struct error *error) MUST_CHECK;
enum status worker_run(struct worker *worker, struct error *error) MUST_CHECK;

/* Drains what is pending, for at most so long. The ledger may still tell of commits. */
void worker_stop(struct worker *worker, int64_t timeout_ms);

/* Tells the gate of the last commits and ends. After the ledger is closed. */
void worker_end(struct worker *worker);

/* On the ledger's thread, after a commit: the gate is to hear of these. */
void worker_on_issued(struct worker *worker, const struct claim *claims,
                      const enum coupon_state *states, size_t count);

/* On the ledger's thread: tickets have become durable. */
void worker_on_durable(struct worker *worker);

struct worker_numbers;
void worker_count(struct worker *worker, struct worker_numbers *numbers);

#endif
