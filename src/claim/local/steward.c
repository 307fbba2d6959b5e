/* steward.c: runs tasks, one policy at a time. */
#include "claim/local/steward.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "claim/parts.h"

#define RETRY_PAUSE_MS 200
#define IDLE_MS        60000 /* while there is nothing to do: then it is woken */

void steward_lock(struct steward *steward, int64_t policy_id)
{
    pthread_mutex_lock(&steward->policy_locks[policy_id % STEWARD_LOCKS]);
}

void steward_unlock(struct steward *steward, int64_t policy_id)
{
    pthread_mutex_unlock(&steward->policy_locks[policy_id % STEWARD_LOCKS]);
}

void steward_lock_all(struct steward *steward)
{
    for (size_t i = 0; i < STEWARD_LOCKS; i++)
        pthread_mutex_lock(&steward->policy_locks[i]);
}

void steward_unlock_all(struct steward *steward)
{
    for (size_t i = STEWARD_LOCKS; i > 0; i--)
        pthread_mutex_unlock(&steward->policy_locks[i - 1]);
}

/* Under the lock. What is given before the start or after the stop waits. */
static void steward_wake(struct steward *steward)
{
    if (steward->is_running)
        periodic_wake(&steward->periodic);
}

void steward_look(struct steward *steward)
{
    pthread_mutex_lock(&steward->lock);
    steward_wake(steward);
    pthread_mutex_unlock(&steward->lock);
}

void steward_call(struct steward *steward, int64_t policy_id, enum steward_task task)
{
    size_t at = 0;

    pthread_mutex_lock(&steward->lock);
    while (at < steward->task_count && steward->tasks[at].policy_id != policy_id)
        at++;
    if (at == STEWARD_TASKS_MAX) {
        steward->all_policies = true;
    } else if (at == steward->task_count) {
        steward->tasks[steward->task_count].policy_id = policy_id;
        steward->tasks[steward->task_count++].task = task;
    } else if (task > steward->tasks[at].task) {
        steward->tasks[at].task = task;
    }
    steward_wake(steward);
    pthread_mutex_unlock(&steward->lock);
}

/* --- doubts --- */

static void steward_add(struct steward *steward, struct steward_doubts *doubts,
                        const struct steward_doubt *doubt)
{
    pthread_mutex_lock(&steward->lock);
    ensure(array_make_room(doubts->items, doubts->count, doubts->capacity));
    doubts->items[doubts->count++] = *doubt;
    steward_wake(steward);
    pthread_mutex_unlock(&steward->lock);
}

void steward_doubt(struct steward *steward, const struct steward_doubt *doubt)
{
    steward_add(steward, &steward->writes, doubt);
}

bool steward_has_doubts(struct steward *steward)
{
    pthread_mutex_lock(&steward->lock);
    bool has_doubts = steward->writes.count > 0;
    pthread_mutex_unlock(&steward->lock);
    return has_doubts;
}

/* Under the lock: the place of the oldest doubt about the policy; count: there is none. */
static size_t steward_find(const struct steward_doubts *doubts, int64_t policy_id)
{
    size_t at = 0;

    while (at < doubts->count && doubts->items[at].policy_id != policy_id)
        at++;
    return at;
}

static bool steward_first(struct steward *steward, const struct steward_doubts *doubts,
                          int64_t policy_id, struct steward_doubt *doubt)
{
    pthread_mutex_lock(&steward->lock);
    size_t at = steward_find(doubts, policy_id);
    bool found = at < doubts->count;
    if (found)
        *doubt = doubts->items[at];
    pthread_mutex_unlock(&steward->lock);
    return found;
}

static void steward_drop(struct steward *steward, struct steward_doubts *doubts, int64_t policy_id)
{
    pthread_mutex_lock(&steward->lock);
    array_remove(doubts->items, steward_find(doubts, policy_id), doubts->count);
    pthread_mutex_unlock(&steward->lock);
}

static enum status steward_return(struct service *service, const struct steward_doubt *back,
                                  struct error *error)
{
    const struct policy_change nothing = {0};
    struct policy policy;
    enum status status = ledger_policy_change(service->ledger, back->policy_id, &nothing,
                                              &back->shrunk, 1, &policy, error);

    return status == STATUS_OK ? gate_policy_set(service->gate, &policy, error) : status;
}

static enum status steward_resolve(struct service *service, const struct steward_doubt *doubt,
                                   struct error *error)
{
    switch (doubt->about) {
    case DOUBT_POLICY:
        return service_policy_settle(service, doubt->policy_id, &doubt->lease, error);
    case DOUBT_COUPON:
        return service_coupon_settle(service, doubt->policy_id, doubt->seq, error);
    case DOUBT_USER:
        return service_user_settle(service, &doubt->user, error);
    case DOUBT_UNITS:
        return steward_return(service, doubt, error);
    }
    return STATUS_OK;
}

bool steward_is_sure(struct steward *steward, int64_t policy_id)
{
    struct steward_doubt doubt;

    while (steward_first(steward, &steward->writes, policy_id, &doubt)) {
        struct error error = {""};
        /* Before the ledger knows what became of the transaction a look would be too early. */
        if (!ledger_healthy(steward->service->ledger) ||
            !restore_has(steward->service->restore, policy_id))
            return false;
        if (steward_resolve(steward->service, &doubt, &error) != STATUS_OK) {
            log_event(LOG_WARN, "doubt_remains", LOG_FIELD("policy", LOG_I64(doubt.policy_id)),
                      LOG_FIELD("error", LOG_TEXT(error.text)));
            return false;
        }
        steward_drop(steward, &steward->writes, policy_id);
        service_stock_changed(steward->service);
    }
    return true;
}

/* --- units on their way back --- */

void steward_give_back(struct steward *steward, int64_t policy_id,
                       const struct lease_shrunk *shrunk, size_t shrunk_count)
{
    for (size_t i = 0; i < shrunk_count; i++) {
        const struct steward_doubt back = {
            .about = DOUBT_UNITS, .policy_id = policy_id, .shrunk = shrunk[i]};
        struct error error = {""};
        if (steward_resolve(steward->service, &back, &error) == STATUS_OK)
            continue;
        log_event(LOG_WARN, "units_wait_for_ledger", LOG_FIELD("policy", LOG_I64(policy_id)),
                  LOG_FIELD("lease", LOG_I64(shrunk[i].lease_id)),
                  LOG_FIELD("error", LOG_TEXT(error.text)));
        steward_add(steward, &steward->returns, &back);
        steward_call(steward, policy_id, STEWARD_REFRESH);
    }
}

bool steward_is_settled(struct steward *steward, int64_t policy_id)
{
    struct steward_doubt back;
    struct error error;

    if (!restore_has(steward->service->restore, policy_id) || !steward_is_sure(steward, policy_id))
        return false;
    while (steward_first(steward, &steward->returns, policy_id, &back)) {
        if (steward_resolve(steward->service, &back, &error) != STATUS_OK)
            return false;
        steward_drop(steward, &steward->returns, policy_id);
    }
    return true;
}

void steward_repaired(struct steward *steward)
{
    pthread_mutex_lock(&steward->lock);
    steward->returns.count = 0;
    pthread_mutex_unlock(&steward->lock);
}

/* --- tasks --- */

/* The gate gets the lease before it hears that the ledger has nothing left, so that nobody is told
 * SOLD_OUT in between. A lease that the gate does not take goes back. */
static enum status steward_lease(struct steward *steward, int64_t policy_id, struct error *error)
{
    struct service *service = steward->service;
    struct lease lease;
    struct policy policy;
    enum status status =
        ledger_lease_take(service->ledger, policy_id, LEDGER_NO_TERM, 0, &lease, &policy, error);

    if (status == STATUS_UNKNOWN)
        steward_doubt(steward, &(struct steward_doubt){
                                   .about = DOUBT_POLICY, .policy_id = policy_id, .lease = lease});
    if (status != STATUS_OK)
        return status;
    if (lease.count > 0) {
        status = gate_lend(service->gate, &lease, 0, LEDGER_NO_TERM, error);
        log_event(LOG_INFO, "lease_taken", LOG_FIELD("policy", LOG_I64(policy_id)),
                  LOG_FIELD("lease", LOG_I64(lease.id)),
                  LOG_FIELD("first_seq", LOG_I64(lease.first_seq)),
                  LOG_FIELD("count", LOG_I64(lease.count)));
    }
    if (status == STATUS_OK)
        return gate_policy_set(service->gate, &policy, error);
    steward_give_back(steward, policy_id, &(struct lease_shrunk){.lease_id = lease.id}, 1);
    return status;
}

static enum status steward_run(struct steward *steward, int64_t policy_id, enum steward_task task)
{
    struct policy policy;
    struct error error = {""};
    enum status status;

    steward_lock(steward, policy_id);
    if (!steward_is_settled(steward, policy_id))
        status = error_set(&error, STATUS_UNAVAILABLE, "earlier changes wait for the ledger");
    else if (task == STEWARD_LEASE)
        status = steward_lease(steward, policy_id, &error);
    else
        status = service_refresh(steward->service, policy_id, &policy, &error);
    steward_unlock(steward, policy_id);
    if (status != STATUS_OK)
        log_event(LOG_WARN, "steward_failed", LOG_FIELD("policy", LOG_I64(policy_id)),
                  LOG_FIELD("error", LOG_TEXT(error.text)));
    service_stock_changed(steward->service);
    return status;
}

static void steward_run_all(struct steward *steward)
{
    int64_t ids[64];
    int64_t after_id = 0;
    size_t count;

    while ((count = gate_list(steward->service->gate, after_id, ids, 64)) > 0) {
        for (size_t i = 0; i < count; i++)
            (void)steward_run(steward, ids[i], STEWARD_REFRESH);
        after_id = ids[count - 1];
    }
}

/* The gate's server that has the policy, where there are several. */
static size_t steward_place(const struct steward *steward, int64_t policy_id)
{
    struct shared_gate *shared = steward->service->shared;

    return shared != NULL ? gate_place(shared, policy_id) : 0;
}

/* The policy of the next doubt, from that place of the list on, which is not at a server where an
 * earlier one could not be settled: each try there takes as long as its time-out. Those of a policy
 * that is still to come hold nobody up. */
static bool steward_next_doubt(struct steward *steward, size_t *at, int64_t *policy_id,
                               const bool is_stuck[GATE_PLACES_MAX])
{
    const struct restore *restore = steward->service->restore;
    bool found = false;

    pthread_mutex_lock(&steward->lock);
    while (!found && *at < steward->writes.count && steward->is_running) {
        *policy_id = steward->writes.items[(*at)++].policy_id;
        found = !is_stuck[steward_place(steward, *policy_id)] && restore_has(restore, *policy_id);
    }
    pthread_mutex_unlock(&steward->lock);
    return found;
}

/* Tries each policy's once. True: none is left. */
static bool steward_settle_doubts(struct steward *steward)
{
    bool is_stuck[GATE_PLACES_MAX] = {false};
    bool are_all_sure = true;
    int64_t policy_id;
    size_t at = 0;

    while (steward_next_doubt(steward, &at, &policy_id, is_stuck)) {
        steward_lock(steward, policy_id);
        bool is_sure = steward_is_sure(steward, policy_id);
        steward_unlock(steward, policy_id);
        if (is_sure)
            at = 0; /* Those that are settled are gone from the list. */
        else
            is_stuck[steward_place(steward, policy_id)] = true;
        are_all_sure = are_all_sure && is_sure;
    }
    return are_all_sure;
}

/* Takes the next task out. False: there is none, but maybe all policies are to be looked at. */
static bool steward_take(struct steward *steward, int64_t *policy_id, enum steward_task *task,
                         bool *takes_all)
{
    pthread_mutex_lock(&steward->lock);
    bool found = steward->task_count > 0;
    *takes_all = !found && steward->all_policies;
    if (found) {
        *policy_id = steward->tasks[0].policy_id;
        *task = steward->tasks[0].task;
        steward->tasks[0] = steward->tasks[--steward->task_count];
    } else {
        steward->all_policies = false;
    }
    pthread_mutex_unlock(&steward->lock);
    return found;
}

/* Claims that wait for stock wake the steward again at once, so every failure is followed by a
 * pause that no wake cuts short. */
static int64_t steward_round(void *context)
{
    struct steward *steward = context;
    int64_t now_ms = clock_monotonic_ms();
    int64_t policy_id;
    enum steward_task task;
    bool takes_all;

    if (now_ms < steward->again_at_ms)
        return steward->again_at_ms - now_ms;
    bool is_well = steward_settle_doubts(steward);
    bool has_task = steward_take(steward, &policy_id, &task, &takes_all);
    if (has_task) {
        enum status status = steward_run(steward, policy_id, task);
        if (status == STATUS_UNAVAILABLE)
            steward_call(steward, policy_id, task);
        is_well = is_well && status == STATUS_OK;
    }
    if (takes_all)
        steward_run_all(steward);
    if (!is_well)
        steward->again_at_ms = clock_monotonic_ms() + RETRY_PAUSE_MS;
    return is_well && !has_task && !takes_all ? IDLE_MS : 0;
}

void steward_init(struct steward *steward, struct service *service)
{
    *steward = (struct steward){.service = service};
    for (size_t i = 0; i < STEWARD_LOCKS; i++)
        pthread_mutex_init(&steward->policy_locks[i], NULL);
    pthread_mutex_init(&steward->lock, NULL);
}

void steward_release(struct steward *steward)
{
    pthread_mutex_destroy(&steward->lock);
    for (size_t i = 0; i < STEWARD_LOCKS; i++)
        pthread_mutex_destroy(&steward->policy_locks[i]);
    free(steward->writes.items);
    free(steward->returns.items);
}

enum status steward_start(struct service *service, struct error *error)
{
    struct steward *steward = &service->steward;

    pthread_mutex_lock(&steward->lock);
    enum status status =
        periodic_start(&steward->periodic, "steward", steward_round, steward, 0, error);
    steward->is_running = status == STATUS_OK;
    pthread_mutex_unlock(&steward->lock);
    return status;
}

void steward_stop(struct steward *steward)
{
    pthread_mutex_lock(&steward->lock);
    steward->is_running = false;
    pthread_mutex_unlock(&steward->lock);
    periodic_stop(&steward->periodic);
}
