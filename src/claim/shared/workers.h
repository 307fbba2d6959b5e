/* workers.h: drain a gate that processes share into the ledger, and are the stewards of its
 * policies: one worker for each place of the gate, so that none waits for a server that another
 * looks after.
 *
 * A claim leaves the gate only after the ledger has it. Of all processes one attends to a policy at
 * a time, as the ledger's clock says; that they overlap when one was stalled is harmless, because
 * the ledger takes a claim once and the gate a lease once.
 *
 * Threads: workers_start(), workers_run(), workers_stop() and workers_end() from the owner; the
 * others from any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"

struct service;
struct workers;

/* Steps of opening a service; nothing where it does not work. Ready to hear from the ledger;
 * nothing is drained before workers_run(). */
enum status workers_start(struct service *service, struct error *error) MUST_CHECK;
enum status workers_run(struct service *service, struct error *error) MUST_CHECK;

/* Drain what is pending, until then at the latest (monotonic). The ledger may still tell of
 * commits. */
void workers_stop(struct workers *workers, int64_t stop_at_ms);

/* Tell the gate of the last commits and end. After the ledger is closed. */
void workers_end(struct workers *workers);

/* Slots of struct topology; `context` is the service. */
void workers_on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                       size_t count);
void workers_on_durable(void *context);

/* The name of this process among the stewards. */
const char *workers_holder(const struct workers *workers);
