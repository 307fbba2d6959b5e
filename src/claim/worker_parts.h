/* worker_parts.h: what a worker is made of; for its own files only.
 *
 * Threads: everything is under `lock` but what says otherwise.
 */
#ifndef CLAIM_WORKER_PARTS_H
#define CLAIM_WORKER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "claim/duty.h"
#include "claim/parts.h"
#include "claim/patience.h"
#include "claim/worker.h"

#define WORKER_SYNC_MS 10000

/* Claims that the ledger has and the gate is to hear of. */
struct settled_batch {
    struct settled_batch *next;
    size_t count;
    struct claim *claims;
    enum coupon_state *states;
};

struct worker {
    struct service *service; /* constant */
    char holder[64];         /* constant: this worker's name among the stewards */
    pthread_t drain_thread;
    pthread_t ack_thread;
    bool has_drain_thread;
    bool has_ack_thread;
    pthread_mutex_t lock;
    pthread_cond_t drain_work; /* durable, settled, or stop */
    pthread_cond_t ack_work;
    bool is_stopping;
    int64_t stop_at_ms; /* monotonic */
    bool acks_end;
    struct settled_batch *settled;
    struct settled_batch **settled_end;
    uint64_t settled_count; /* batches that came, and those of them that the gate was told of */
    uint64_t told_count;
    size_t outstanding; /* claims handed to the ledger that the gate has not been told of */
    struct patience patience;
    struct worker_numbers numbers;
    /* The draining thread's own. */
    struct duty *duties; /* in rising order of policy ids */
    size_t duty_count;
    size_t duty_capacity;
    int64_t listed_at_ms;
    int64_t measured_at_ms; /* when the rate was last measured, and the progress told */
    int64_t told_at_ms;
    uint64_t measured_drained;
    uint64_t told_drained;
    struct gate_pending *pending;
};

/* Hands claims and keys to the ledger. Returns the ticket. */
uint64_t worker_issue(struct worker *worker, const struct claim *claims, size_t claim_count,
                      const struct key_binding *bindings, size_t binding_count);

/* Takes out the claims that the ledger refused a moment ago; returns how many are left. */
size_t worker_sift(struct worker *worker, struct claim *claims, size_t count);

/* Waits until that ticket is durable and the gate has heard of it. False: it took too long, or the
 * worker is to end. */
bool worker_settle(struct worker *worker, uint64_t ticket, int64_t timeout_ms);

/* Whether it is to end now, whatever it is at: asked by everything that takes long. */
bool worker_must_end(struct worker *worker);

/* What the relay needs of the worker: in worker_outlet.c. */
struct relay_outlet worker_outlet(struct worker *worker);

/* How often what rarely changes is looked at. */
static inline int64_t worker_sync_ms(const struct worker *worker)
{
    int64_t interval_ms = worker->service->options.sync_interval_ms;
    return interval_ms == 0 ? WORKER_SYNC_MS : interval_ms;
}

#endif
