/* steward.h: the duty that keeps gate and ledger agreed on stock: leases are taken when the gate
 * has sold what it had, and units that came back are made known. What was written while nobody
 * could tell whether it was committed is looked up when the ledger can be asked again, and the gate
 * hears of it then.
 *
 * One thread; changes of policies by others go through steward_lock(), so that one change of a
 * policy's stock is made at a time.
 *
 * Threads: steward_call(), steward_doubt(), steward_lock() and steward_unlock() from any.
 */
#ifndef CLAIM_STEWARD_H
#define CLAIM_STEWARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"
#include "gate/gate.h"

struct service;

/* Why the steward is called. */
enum steward_errand {
    STEWARD_REFRESH, /* the ledger's stock of this policy changed */
    STEWARD_LEASE,   /* the gate has sold its lease and the ledger still has stock */
};

#define STEWARD_ERRANDS_MAX 256
#define STEWARD_RETURNS_MAX GATE_RECALL_LEASES_MAX

/* Units taken out of the gate that the ledger could not be told of yet. */
struct steward_return {
    int64_t policy_id;
    struct lease_shrunk shrunk;
};

/* A write that answered UNKNOWN, by what it may have changed. */
struct steward_doubt {
    enum { DOUBT_POLICY, DOUBT_COUPON, DOUBT_USER } about;
    int64_t policy_id;
    int64_t seq;         /* of a coupon */
    struct lease lease;  /* of a policy: the one that may have been taken; count 0: none */
    struct user_id user; /* blocked or not */
};

struct steward {
    struct service *service;
    pthread_t thread;
    bool started;
    pthread_mutex_t policy_lock; /* one change of policies at a time */
    pthread_mutex_t lock;        /* the errands */
    pthread_cond_t work;
    struct {
        int64_t policy_id;
        enum steward_errand errand;
    } errands[STEWARD_ERRANDS_MAX];
    size_t errand_count;
    bool all_policies;            /* the list overflowed: look at every one */
    struct steward_doubt *doubts; /* oldest first; taken off under policy_lock as well */
    size_t doubt_count;
    size_t doubt_capacity;
    bool stopping;
    struct steward_return returns[STEWARD_RETURNS_MAX]; /* under policy_lock */
    size_t return_count;
};

void steward_init(struct steward *steward, struct service *service);
void steward_release(struct steward *steward);

/* Errands may be given before the start and after the stop; they are run in between. */
enum status steward_start(struct steward *steward, struct error *error) MUST_CHECK;
void steward_stop(struct steward *steward);

/* Never blocks on I/O; calling twice for the same errand is one errand. */
void steward_call(struct steward *steward, int64_t policy_id, enum steward_errand errand);

/* Never blocks on I/O. Whoever holds steward_lock() meanwhile can be sure that nobody changes the
 * stock before the doubt is settled. */
void steward_doubt(struct steward *steward, const struct steward_doubt *doubt);

void steward_lock(struct steward *steward);
void steward_unlock(struct steward *steward);

/* True when the gate knows all that was written in doubt, if need be by looking. While it does not,
 * no policy, lease or blocked user may be changed. Under steward_lock(). */
bool steward_is_sure(struct steward *steward);

/* True when that is so and the ledger has taken all units that were given back, if need be by
 * trying again. While it has not, no more may be recalled, and no policy's row may be shown to the
 * gate: it does not count them. Under steward_lock(). */
bool steward_is_settled(struct steward *steward);

/* Whether there is anything to settle, without trying. From any thread. */
bool steward_has_doubts(struct steward *steward);

/* The ledger has just been made what the gate is: units that were given back are in it. Under
 * steward_lock(). */
void steward_repaired(struct steward *steward);

/* Gives units that were recalled from the gate back to the ledger, now or as soon as it takes
 * them: at most GATE_RECALL_LEASES_MAX leases wait. Under steward_lock(). */
void steward_give_back(struct steward *steward, int64_t policy_id,
                       const struct lease_shrunk *shrunk, size_t shrunk_count);

#endif
