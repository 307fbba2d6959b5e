/* steward.h: the duty that keeps gate and ledger agreed on stock: leases are taken when the gate
 * has sold what it had, and units that came back are made known. What was written while nobody
 * could tell whether it was committed is looked up when the ledger can be asked again, and the gate
 * hears of it then.
 *
 * One thread; changes of a policy by others go through steward_lock(), so that one change of its
 * stock is made at a time. What is in doubt about a policy, or waits for the ledger, holds up that
 * policy and no other.
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
#define STEWARD_LOCKS       61 /* of policies, by their ids */
#define STEWARD_USERS       0  /* in the place of a policy: who is blocked */

/* Units taken out of the gate that the ledger could not be told of yet. */
struct steward_return {
    int64_t policy_id;
    struct lease_shrunk shrunk;
};

/* A write that answered UNKNOWN, by what it may have changed. */
struct steward_doubt {
    enum { DOUBT_POLICY, DOUBT_COUPON, DOUBT_USER } about;
    int64_t policy_id;   /* of a user STEWARD_USERS */
    int64_t seq;         /* of a coupon */
    struct lease lease;  /* of a policy: the one that may have been taken; count 0: none */
    struct user_id user; /* blocked or not */
};

struct steward {
    struct service *service;
    pthread_t thread;
    bool started;
    pthread_mutex_t policy_locks[STEWARD_LOCKS]; /* one change of a policy at a time */
    pthread_mutex_t lock;                        /* of all that follows; taken after those */
    pthread_cond_t work;
    struct {
        int64_t policy_id;
        enum steward_errand errand;
    } errands[STEWARD_ERRANDS_MAX];
    size_t errand_count;
    bool all_policies;            /* the list overflowed: look at every one */
    struct steward_doubt *doubts; /* oldest first; taken off under the policy's lock as well */
    size_t doubt_count;
    size_t doubt_capacity;
    bool stopping;
    struct steward_return *returns; /* changed under the policy's lock as well */
    size_t return_count;
    size_t return_capacity;
};

void steward_init(struct steward *steward, struct service *service);
void steward_release(struct steward *steward);

/* Errands may be given before the start and after the stop; they are run in between. */
enum status steward_start(struct steward *steward, struct error *error) MUST_CHECK;
void steward_stop(struct steward *steward);

/* Never blocks on I/O; calling twice for the same errand is one errand. */
void steward_call(struct steward *steward, int64_t policy_id, enum steward_errand errand);

/* Never blocks on I/O. Whoever holds the policy's lock meanwhile can be sure that nobody changes
 * its stock before the doubt is settled. */
void steward_doubt(struct steward *steward, const struct steward_doubt *doubt);

void steward_lock(struct steward *steward, int64_t policy_id);
void steward_unlock(struct steward *steward, int64_t policy_id);

/* Of every policy, and of who is blocked. */
void steward_lock_all(struct steward *steward);
void steward_unlock_all(struct steward *steward);

/* True when the gate knows all that was written in doubt about the policy, if need be by looking.
 * While it does not, neither the policy nor its leases may be changed, nor, of STEWARD_USERS, who
 * is blocked. Under the policy's lock. */
bool steward_is_sure(struct steward *steward, int64_t policy_id);

/* True when that is so and the ledger has taken all units of the policy that were given back, if
 * need be by trying again. While it has not, no more may be recalled, and the policy's row may not
 * be shown to the gate: it does not count them. Under the policy's lock. */
bool steward_is_settled(struct steward *steward, int64_t policy_id);

/* Whether there is anything to settle, without trying. From any thread. */
bool steward_has_doubts(struct steward *steward);

/* The ledger has just been made what the gate is: units that were given back are in it. Under all
 * locks. */
void steward_repaired(struct steward *steward);

/* Gives units that were recalled from the gate back to the ledger, now or as soon as it takes them.
 * Under the policy's lock. */
void steward_give_back(struct steward *steward, int64_t policy_id,
                       const struct lease_shrunk *shrunk, size_t shrunk_count);

#endif
