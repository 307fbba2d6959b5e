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
#include "claim/workers.h"

#define WORKER_SYNC_MS 10000

/* Claims that the ledger has and the gate is to hear of. */
struct settled_batch {
    struct settled_batch *next;
    size_t count;
    struct claim *claims;
    enum coupon_state *states;
};

/* A policy as the ledger had it when they were last listed. */
struct worker_policy {
    int64_t id;
    int64_t version;
    int64_t ends_at_ms; /* wall: when it was closed, or closes by itself; 0: never */
    bool is_entering;   /* it has coupons that the gate has not heard of */
};

/* Those of one place, in rising order of ids. */
struct worker_roster {
    size_t count;
    size_t capacity;
    struct worker_policy *policies;
};

/* Looks after the policies at one place of the gate. */
struct worker {
    struct workers *workers; /* constant, as the next ones */
    struct service *service;
    size_t place;
    const char *holder; /* the name of this process among the stewards */
    pthread_t drain_thread;
    pthread_t ack_thread;
    bool has_drain_thread;
    bool has_ack_thread;
    pthread_mutex_t lock;
    pthread_cond_t drain_work; /* durable, settled, a new roster, or stop */
    pthread_cond_t ack_work;
    bool is_stopping;
    int64_t stop_at_ms; /* monotonic */
    bool acks_end;
    struct settled_batch *settled;
    struct settled_batch **settled_end;
    uint64_t settled_count; /* batches that came, and those of them that the gate was told of */
    uint64_t told_count;
    struct worker_roster roster; /* the newest; NULL policies: it is taken already */
    bool has_roster;
    struct worker_numbers numbers;
    /* The draining thread's own. */
    struct duty *duties; /* in rising order of policy ids */
    size_t duty_count;
    int64_t measured_at_ms; /* when the rate was last measured, and the progress told */
    int64_t told_at_ms;
    uint64_t measured_drained;
    uint64_t told_drained;
    struct gate_pending *pending;
};

/* Life, of the workers: ready to hear from the ledger; drains; is to end by that time, by the
 * monotonic clock; has drained; the ledger is closed, and the gate hears the last of it. */
enum status worker_open(struct worker **worker, struct workers *workers, struct service *service,
                        size_t place, const char *holder, struct error *error) MUST_CHECK;
enum status worker_run(struct worker *worker, struct error *error) MUST_CHECK;
void worker_tell_to_stop(struct worker *worker, int64_t stop_at_ms);
void worker_await_stop(struct worker *worker);
void worker_close(struct worker *worker);

/* The ledger has these claims: the gate is to hear of them. */
void worker_settled(struct worker *worker, const struct claim *claims,
                    const enum coupon_state *states, size_t count);

/* Tickets have become durable. */
void worker_wake(struct worker *worker);

/* The policies at its place are these from now on; takes the roster over. */
void worker_take_roster(struct worker *worker, struct worker_roster *roster);

void worker_count(struct worker *worker, struct worker_numbers *numbers);

/* --- what all workers of a process share: in workers.c --- */

/* Claims that the ledger was given, and of which the gate has been told. */
void workers_note_issued(struct workers *workers, const struct claim *claims, size_t count);
void workers_note_told(struct workers *workers, const struct claim *claims,
                       const enum coupon_state *states, size_t count);

/* Takes out the claims that the ledger refused a moment ago; returns how many are left. */
size_t workers_sift(struct workers *workers, struct claim *claims, size_t count);

size_t workers_outstanding(struct workers *workers, int64_t policy_id);
size_t workers_waiting(struct workers *workers, int64_t policy_id);
struct service *workers_service(struct workers *workers);

/* What the relay needs of them: in worker_outlet.c. */
struct relay_outlet workers_outlet(struct workers *workers);

/* --- what duties need --- */

/* Hands claims and keys to the ledger. Returns the ticket. */
uint64_t worker_issue(struct worker *worker, const struct claim *claims, size_t claim_count,
                      const struct key_binding *bindings, size_t binding_count);

/* Waits until that ticket is durable and the gate has heard of it. False: it took too long, or the
 * worker is to end. */
bool worker_settle(struct worker *worker, uint64_t ticket, int64_t timeout_ms);

/* Whether it is to end now, whatever it is at: asked by everything that takes long. */
bool worker_must_end(struct worker *worker);

/* How often what rarely changes is looked at. */
static inline int64_t worker_sync_ms(const struct worker *worker)
{
    int64_t interval_ms = worker->service->options.sync_interval_ms;
    return interval_ms == 0 ? WORKER_SYNC_MS : interval_ms;
}

#endif
