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
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/model.h"
#include "base/periodic.h"
#include "gate/gate.h"

struct service;

/* Why the steward is called. */
enum steward_task {
    STEWARD_REFRESH, /* the ledger's stock of this policy changed */
    STEWARD_LEASE,   /* the gate has sold its lease and the ledger still has stock */
};

#define STEWARD_TASKS_MAX 256
#define STEWARD_LOCKS     61 /* of policies, by their ids */
#define STEWARD_USERS     0  /* in the place of a policy: who is blocked */

/* What gate and ledger do not agree on yet, by what may have changed. */
struct steward_doubt {
    enum { DOUBT_POLICY, DOUBT_COUPON, DOUBT_USER, DOUBT_UNITS } about;
    int64_t policy_id;          /* of a user STEWARD_USERS */
    int64_t seq;                /* of a coupon */
    struct lease lease;         /* of a policy: the one that may have been taken; count 0: none */
    struct id user;             /* blocked or not */
    struct lease_shrunk shrunk; /* of units taken out of the gate, which the ledger has not heard */
};

struct steward_doubts {
    struct steward_doubt *items; /* oldest first; taken off under the policy's lock as well */
    size_t count;
    size_t capacity;
};

struct steward {
    struct service *service;
    struct periodic periodic;
    int64_t again_at_ms;                         /* its own: nothing is tried before */
    pthread_mutex_t policy_locks[STEWARD_LOCKS]; /* one change of a policy at a time */
    pthread_mutex_t lock;                        /* of all that follows; taken after those */
    bool is_running;
    struct {
        int64_t policy_id;
        enum steward_task task;
    } tasks[STEWARD_TASKS_MAX];
    size_t task_count;
    bool all_policies;             /* the list overflowed: look at every one */
    struct steward_doubts writes;  /* that answered UNKNOWN */
    struct steward_doubts returns; /* units that the ledger could not be told of yet */
};

void steward_init(struct steward *steward, struct service *service);
void steward_release(struct steward *steward);

/* A step of opening a service. Tasks may be given before the start and after the stop; they are run
 * in between. */
enum status steward_start(struct service *service, struct error *error) MUST_CHECK;
void steward_stop(struct steward *steward);

/* Never blocks on I/O; calling twice for the same task is one task. */
void steward_call(struct steward *steward, int64_t policy_id, enum steward_task task);

/* Never blocks on I/O. Whoever holds the policy's lock meanwhile can be sure that nobody changes
 * its stock before the doubt is settled. */
void steward_doubt(struct steward *steward, const struct steward_doubt *doubt);

void steward_lock(struct steward *steward, int64_t policy_id);
void steward_unlock(struct steward *steward, int64_t policy_id);

/* Of every policy, and of who is blocked. */
void steward_lock_all(struct steward *steward);
void steward_unlock_all(struct steward *steward);

/* True when the gate knows all that was written in doubt about the policy, if need be by survey.
 * While it does not, neither the policy nor its leases may be changed, nor, of STEWARD_USERS, who
 * is blocked. Under the policy's lock. */
bool steward_is_sure(struct steward *steward, int64_t policy_id);

/* True when that is so, the gate has been restored and the ledger has taken all units of the policy
 * that were given back, if need be by trying again. While it has not, no more may be recalled, and
 * the policy's row may not be shown to the gate: it does not count them. Under the policy's lock.
 */
bool steward_is_settled(struct steward *steward, int64_t policy_id);

/* The gate has more policies than before: what is in doubt of them can be settled. From any thread.
 */
void steward_look(struct steward *steward);

/* Whether there is anything to settle, without trying. From any thread. */
bool steward_has_doubts(struct steward *steward);

/* The ledger has just been made what the gate is: units that were given back are in it. Under all
 * locks. */
void steward_repaired(struct steward *steward);

/* Gives units that were recalled from the gate back to the ledger, now or as soon as it takes them.
 * Under the policy's lock. */
void steward_give_back(struct steward *steward, int64_t policy_id,
                       const struct lease_shrunk *shrunk, size_t shrunk_count);
