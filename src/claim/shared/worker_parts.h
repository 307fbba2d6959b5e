/* worker_parts.h: what a worker is made of; for its own files only.
 *
 * Threads: everything is under `lock` but what says otherwise; a duty is its worker's draining
 * thread's.
 */
#pragma once

#include <pthread.h>

#include "claim/parts.h"

#define WORKER_SYNC_MS 10000

/* --- the way of claims to the ledger: in worker_relay.c --- */

/* The pending claims that the ledger refused, and when each is tried again, so that one that is
 * always refused neither keeps the worker busy nor those behind it waiting. The owner locks, and
 * frees the claims. */
#define RETRY_PAUSE_MS 200 /* after the first refusal; twice as long after each more */

struct retry_list {
    struct retry_claim {
        int64_t policy_id;
        int64_t seq;
        int32_t attempt;     /* refusals so far */
        int64_t again_at_ms; /* monotonic */
    } *claims;
    size_t count;
    size_t capacity;
};

/* The ledger has refused it once more. Without memory it is tried again at once. */
void retry_list_note(struct retry_list *retries, const struct claim *claim, int64_t now_ms);

/* It is settled. */
void retry_list_forget(struct retry_list *retries, const struct claim *claim);

/* Takes out those whose time has not come, and notes in the others how often they were refused.
 * Returns how many are left. Forgets claims that nobody has tried for long: another worker has
 * settled them. */
size_t retry_list_filter(struct retry_list *retries, struct claim *claims, size_t count,
                         int64_t now_ms);

/* How many of a policy's claims wait for their time. */
size_t retry_list_waiting(const struct retry_list *retries, int64_t policy_id, int64_t now_ms);

/* What all workers of a process share: the relay that goes straight to the ledger, and what is on
 * its way through the ledger by any relay. */
struct worker_relay {
    struct relay relay; /* first: this is what others know */
    struct service *service;
    pthread_mutex_t lock; /* of what follows; nothing else is locked while it is held */
    /* Claims of a policy that were handed to the ledger and that the gate has not been told of, in
     * rising order of policy ids, none with 0 claims. */
    struct sent_claims {
        int64_t policy_id;
        size_t place; /* when the first of them was handed over */
        size_t count;
    } *sent;
    size_t sent_count;
    size_t sent_capacity;
    size_t outstanding[GATE_PLACES_MAX]; /* their sums */
    struct retry_list retries;
};

/* It is the service's relay from now on. */
void worker_relay_init(struct worker_relay *relay, struct service *service);
void worker_relay_release(struct worker_relay *relay);

/* Claims come out of Kafka from now on, and go there unless they are to go straight, too. */
enum status worker_relay_run(struct worker_relay *relay, struct error *error) MUST_CHECK;

/* Hands claims and keys to the ledger. Returns the ticket. */
uint64_t worker_relay_issue(struct worker_relay *relay, const struct claim *claims,
                            size_t claim_count, const struct key_binding *bindings,
                            size_t binding_count);

/* The gate has been told of these, but for those that the ledger refused. */
void worker_relay_told(struct worker_relay *relay, const struct claim *claims,
                       const enum coupon_state *states, size_t count);

/* Takes out the claims that the ledger refused a moment ago; returns how many are left. */
size_t worker_relay_filter(struct worker_relay *relay, struct claim *claims, size_t count);

/* How many of the claims, from the first on, are of the same policy. */
static inline size_t claims_of_one_policy(const struct claim *claims, size_t count)
{
    size_t length = 1;

    while (length < count && claims[length].policy_id == claims[0].policy_id)
        length++;
    return length;
}

/* --- one worker: in worker.c --- */

/* Claims that the ledger has and the gate is to hear of; allocated as one piece. */
struct settled_batch {
    struct settled_batch *next;
    enum coupon_state *states;
    size_t count;
    struct claim claims[];
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

/* What gate and ledger differ by, and since when it is so much. */
struct duty_drift {
    int64_t amount;
    int64_t since_ms;
};

/* One policy a worker looks after. */
struct duty {
    int64_t policy_id;
    int64_t version;            /* of the policy, as last pushed to the gate */
    int64_t ends_at_ms;         /* wall: when it was closed, or closes by itself; 0: never */
    bool is_closed;             /* by the gate's clock, when it was last looked at */
    bool is_retired;            /* closed and drained: the gate has been told to let go */
    struct relay_stream stream; /* of its claims to the ledger */
    bool is_passing;            /* of this term: false when the stewardship is new */
    struct key_binding *keys;   /* that the ledger was given; NULL: none */
    size_t key_count;
    uint64_t keys_ticket;      /* under which they become durable */
    bool is_entering;          /* the ledger gave coupons that the gate has not heard of */
    bool is_built;             /* anew, and not armed yet */
    int64_t built_count;       /* active coupons that were restored */
    int64_t next_attend_ms;    /* monotonic, as all of these */
    int64_t arm_at_ms;         /* when servers have forgotten what was before */
    int64_t busy_at_ms;        /* when there was last something to drain */
    int64_t pause_ms;          /* between looks while there is nothing to do */
    int64_t term;              /* in which this worker is the policy's steward; 0: it is not */
    int64_t previous;          /* the newest term before: a gate that is in it may go on */
    int64_t gate_term;         /* the latest that the gate has heard of, as last seen */
    bool is_told;              /* the gate has heard of this one */
    bool is_used;              /* a gate may be armed in this term, here or elsewhere */
    bool lends_again;          /* leases may have been taken and not lent */
    int64_t taken_at_ms;       /* when the term began */
    int64_t take_at_ms;        /* when it may next be tried to become the steward */
    int64_t over_at_ms;        /* when nothing of an earlier term is armed any more, anywhere */
    int64_t checked_at_ms;     /* when it was last asked whether what the gate sells is lent */
    int64_t checked_remaining; /* what the gate had left then */
    int64_t pushed_at_ms;      /* when the policy was last pushed */
    int64_t synced_at_ms;      /* when its leases were last compared with the ledger's; 0: never */
    struct duty_drift units;   /* that leases have fewer in the gate than in the ledger */
    int64_t counted_version;   /* of the policy when gate and ledger had as many active coupons */
    int64_t counted_at_ms;     /* when they were last counted */
    struct duty_drift surplus; /* active coupons that the gate has and the ledger has not */
    int64_t lend_at_ms;        /* when announced stock may be lent to an empty gate; 0: none is */
    int64_t refill_at_ms;      /* before it the ledger is not asked again for stock to lend */
    const char *said;          /* the event that was logged last, and when */
    int64_t said_at_ms;
    int64_t pending_count; /* as last seen, without what no user holds */
    int64_t stray_count;   /* what is pending and no user holds */
    int64_t oldest_requested_ms;
};

/* Looks after the policies at one place of the gate. */
struct worker {
    struct worker_relay *relay; /* constant, as the next ones */
    struct service *service;
    size_t place;
    const char *holder; /* the name of this process among the stewards */
    pthread_t drain_thread;
    pthread_t ack_thread;
    bool has_drain_thread;
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
    int64_t others_at_ms;   /* when those beside one that is built are served next */
    int64_t measured_at_ms; /* when the rate was last measured, and the progress told */
    int64_t told_at_ms;
    uint64_t measured_drained;
    uint64_t told_drained;
    struct gate_pending *pending;
};

/* Life, of the workers: ready to hear from the ledger; drains; is to end by that time, by the
 * monotonic clock; has drained; the ledger is closed, and the gate hears the last of it. */
enum status worker_open(struct worker **worker, struct worker_relay *relay, size_t place,
                        const char *holder, struct error *error) MUST_CHECK;
enum status worker_run(struct worker *worker, struct error *error) MUST_CHECK;
void worker_tell_to_stop(struct worker *worker, int64_t stop_at_ms);
void worker_await_stop(struct worker *worker);
void worker_close(struct worker *worker);

/* The ledger has these claims: the gate is to hear of them. Takes the batch over. */
void worker_settled(struct worker *worker, struct settled_batch *batch);

/* Tickets have become durable. */
void worker_wake(struct worker *worker);

/* The policies at its place are these from now on; takes the roster over. */
void worker_take_roster(struct worker *worker, struct worker_roster *roster);

void worker_count(struct worker *worker, struct worker_numbers *numbers);

/* Waits until that ticket is durable and the gate has heard of it. False: it took too long, or the
 * worker is to end. */
bool worker_settle(struct worker *worker, uint64_t ticket, int64_t timeout_ms);

/* Whether it is to end now, whatever it is at: asked by everything that takes long. */
bool worker_must_end(struct worker *worker);

/* While a policy is built its worker's others are served all the same. Called often; `built` is
 * left out, and what has been read of what is pending is gone afterwards. */
void worker_serve_others(struct worker *worker, const struct duty *built);

/* The older of two times at which a pending claim was requested; 0: none. */
static inline void worker_note_oldest(struct worker_numbers *numbers, int64_t requested_ms)
{
    if (requested_ms != 0 &&
        (numbers->oldest_requested_ms == 0 || requested_ms < numbers->oldest_requested_ms))
        numbers->oldest_requested_ms = requested_ms;
}

/* How often what rarely changes is looked at. */
static inline int64_t worker_sync_ms(const struct worker *worker)
{
    int64_t interval_ms = worker->service->options.sync_interval_ms;
    return interval_ms == 0 ? WORKER_SYNC_MS : interval_ms;
}

/* --- what it does for one policy --- */

#define DUTY_PAUSE_MS   10  /* until the next look, at least */
#define DUTY_REFUSED_MS 200 /* the same of a gate or ledger that has refused */

/* Looks at the policy and does what is to be done: in duty.c. */
void duty_attend(struct worker *worker, struct duty *duty, int64_t now_ms);

/* Only what cannot wait while another policy is built: drains an armed policy and lends to it. */
void duty_serve(struct worker *worker, struct duty *duty, int64_t now_ms);

/* Logs trouble with the policy; the same again only after a while. */
void duty_say(struct duty *duty, const char *event, const struct error *error);

/* Lends what is unleased but `keep` units. A lease that the gate does not take goes back. */
enum status duty_lend(struct worker *worker, struct duty *duty, int64_t keep,
                      struct error *error) MUST_CHECK;

/* A term begins where the one before has left off. */
enum status duty_begin(struct worker *worker, struct duty *duty, struct error *error) MUST_CHECK;

/* Whether this worker is the policy's steward, and goes on being it; it tries to become so. */
bool duty_is_held(struct worker *worker, struct duty *duty, int64_t now_ms);

/* Takes the next term, and tells the gate of it. */
void duty_take_next(struct worker *worker, struct duty *duty);

/* Builds a policy anew that the gate does not answer for, and arms it: in duty_build.c. */
void duty_reconcile(struct worker *worker, struct duty *duty, int64_t now_ms);

/* Compares an armed policy's leases, and how many coupons are active, in the gate and in the
 * ledger, each when it is time: in duty_sync.c. */
void duty_sync_leases(struct worker *worker, struct duty *duty, int64_t now_ms);
void duty_sync_users(struct worker *worker, struct duty *duty, int64_t now_ms);
