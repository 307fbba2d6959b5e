/* steward.c: runs errands, one policy at a time. */
#include "claim/steward.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/parts.h"

#define RETRY_PAUSE_MS 200

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

void steward_call(struct steward *steward, int64_t policy_id, enum steward_errand errand)
{
    pthread_mutex_lock(&steward->lock);
    for (size_t i = 0; i < steward->errand_count; i++) {
        if (steward->errands[i].policy_id == policy_id) {
            if (errand > steward->errands[i].errand)
                steward->errands[i].errand = errand;
            goto unlock;
        }
    }
    if (steward->errand_count == STEWARD_ERRANDS_MAX) {
        steward->all_policies = true;
    } else {
        steward->errands[steward->errand_count].policy_id = policy_id;
        steward->errands[steward->errand_count].errand = errand;
        steward->errand_count++;
    }
    pthread_cond_signal(&steward->work);
unlock:
    pthread_mutex_unlock(&steward->lock);
}

/* --- doubts --- */

void steward_doubt(struct steward *steward, const struct steward_doubt *doubt)
{
    pthread_mutex_lock(&steward->lock);
    if (steward->doubt_count == steward->doubt_capacity) {
        size_t capacity = steward->doubt_capacity == 0 ? 16 : steward->doubt_capacity * 2;
        steward->doubts = realloc(steward->doubts, capacity * sizeof(*steward->doubts));
        ensure(steward->doubts != NULL);
        steward->doubt_capacity = capacity;
    }
    steward->doubts[steward->doubt_count++] = *doubt;
    pthread_cond_signal(&steward->work);
    pthread_mutex_unlock(&steward->lock);
}

bool steward_has_doubts(struct steward *steward)
{
    pthread_mutex_lock(&steward->lock);
    bool has_doubts = steward->doubt_count > 0;
    pthread_mutex_unlock(&steward->lock);
    return has_doubts;
}

/* Under the lock: the place of the oldest doubt about the policy; doubt_count: there is none. */
static size_t steward_find_doubt(const struct steward *steward, int64_t policy_id)
{
    size_t at = 0;

    while (at < steward->doubt_count && steward->doubts[at].policy_id != policy_id)
        at++;
    return at;
}

static bool steward_first_doubt(struct steward *steward, int64_t policy_id,
                                struct steward_doubt *doubt)
{
    pthread_mutex_lock(&steward->lock);
    size_t at = steward_find_doubt(steward, policy_id);
    bool found = at < steward->doubt_count;
    if (found)
        *doubt = steward->doubts[at];
    pthread_mutex_unlock(&steward->lock);
    return found;
}

static void steward_drop_doubt(struct steward *steward, int64_t policy_id)
{
    pthread_mutex_lock(&steward->lock);
    size_t at = steward_find_doubt(steward, policy_id);
    steward->doubt_count--;
    memmove(steward->doubts + at, steward->doubts + at + 1,
            (steward->doubt_count - at) * sizeof(*steward->doubts));
    pthread_mutex_unlock(&steward->lock);
}

static enum status steward_look(struct service *service, const struct steward_doubt *doubt,
                                struct error *error)
{
    switch (doubt->about) {
    case DOUBT_POLICY:
        return service_policy_settle(service, doubt->policy_id, &doubt->lease, error);
    case DOUBT_COUPON:
        return service_coupon_settle(service, doubt->policy_id, doubt->seq, error);
    case DOUBT_USER:
        return service_user_settle(service, &doubt->user, error);
    }
    return STATUS_OK;
}

bool steward_is_sure(struct steward *steward, int64_t policy_id)
{
    struct steward_doubt doubt;

    while (steward_first_doubt(steward, policy_id, &doubt)) {
        struct error error = {""};
        /* Before the ledger knows what became of the transaction a look would be too early. */
        if (!ledger_healthy(steward->service->ledger))
            return false;
        if (steward_look(steward->service, &doubt, &error) != STATUS_OK) {
            log_event(LOG_WARN, "doubt_remains", LOG_FIELD("policy", LOG_I64(doubt.policy_id)),
                      LOG_FIELD("error", LOG_TEXT(error.text)));
            return false;
        }
        steward_drop_doubt(steward, policy_id);
        service_stock_changed(steward->service);
    }
    return true;
}

/* --- units on their way back --- */

static enum status steward_return_one(struct service *service, const struct steward_return *back,
                                      struct error *error)
{
    const struct policy_change nothing = {0};
    struct policy policy;
    enum status status = ledger_policy_change(service->ledger, back->policy_id, &nothing,
                                              &back->shrunk, 1, &policy, error);
    if (status == STATUS_OK)
        status = gate_policy_set(service->gate, &policy, error);
    return status;
}

static void steward_keep_return(struct steward *steward, const struct steward_return *back)
{
    pthread_mutex_lock(&steward->lock);
    if (steward->return_count == steward->return_capacity) {
        size_t capacity = steward->return_capacity == 0 ? 64 : steward->return_capacity * 2;
        steward->returns = realloc(steward->returns, capacity * sizeof(*steward->returns));
        ensure(steward->returns != NULL);
        steward->return_capacity = capacity;
    }
    steward->returns[steward->return_count++] = *back;
    pthread_mutex_unlock(&steward->lock);
}

/* Takes the policy's oldest return out. */
static bool steward_take_return(struct steward *steward, int64_t policy_id,
                                struct steward_return *back)
{
    size_t at = 0;

    pthread_mutex_lock(&steward->lock);
    while (at < steward->return_count && steward->returns[at].policy_id != policy_id)
        at++;
    bool found = at < steward->return_count;
    if (found) {
        *back = steward->returns[at];
        steward->return_count--;
        memmove(steward->returns + at, steward->returns + at + 1,
                (steward->return_count - at) * sizeof(*steward->returns));
    }
    pthread_mutex_unlock(&steward->lock);
    return found;
}

void steward_give_back(struct steward *steward, int64_t policy_id,
                       const struct lease_shrunk *shrunk, size_t shrunk_count)
{
    for (size_t i = 0; i < shrunk_count; i++) {
        struct steward_return back = {.policy_id = policy_id, .shrunk = shrunk[i]};
        struct error error = {""};
        if (steward_return_one(steward->service, &back, &error) == STATUS_OK)
            continue;
        log_event(LOG_WARN, "units_wait_for_ledger", LOG_FIELD("policy", LOG_I64(policy_id)),
                  LOG_FIELD("lease", LOG_I64(shrunk[i].lease_id)),
                  LOG_FIELD("error", LOG_TEXT(error.text)));
        steward_keep_return(steward, &back);
        steward_call(steward, policy_id, STEWARD_REFRESH);
    }
}

bool steward_is_settled(struct steward *steward, int64_t policy_id)
{
    struct steward_return back;

    if (!steward_is_sure(steward, policy_id))
        return false;
    while (steward_take_return(steward, policy_id, &back)) {
        struct error error;
        if (steward_return_one(steward->service, &back, &error) != STATUS_OK) {
            steward_keep_return(steward, &back);
            return false;
        }
    }
    return true;
}

void steward_repaired(struct steward *steward)
{
    pthread_mutex_lock(&steward->lock);
    steward->return_count = 0;
    pthread_mutex_unlock(&steward->lock);
}

/* --- errands --- */

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

static enum status steward_run(struct steward *steward, int64_t policy_id,
                               enum steward_errand errand)
{
    struct policy policy;
    struct error error = {""};
    enum status status;

    steward_lock(steward, policy_id);
    if (!steward_is_settled(steward, policy_id))
        status = error_set(&error, STATUS_UNAVAILABLE, "earlier changes wait for the ledger");
    else if (errand == STEWARD_LEASE)
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

/* Before an errand is tried again; cut short by nothing but a stop. */
static void steward_pause(struct steward *steward)
{
    struct timespec until = clock_deadline_in_ms(RETRY_PAUSE_MS);

    pthread_mutex_lock(&steward->lock);
    while (!steward->stopping &&
           pthread_cond_timedwait(&steward->work, &steward->lock, &until) == 0)
        continue;
    pthread_mutex_unlock(&steward->lock);
}

/* The policy of the next doubt, from that place of the list on, which is not at a server where an
 * earlier one could not be settled: each try there takes as long as its time-out. */
static bool steward_next_doubt(struct steward *steward, size_t *at, int64_t *policy_id,
                               const bool is_stuck[GATE_PLACES_MAX])
{
    bool found = false;

    pthread_mutex_lock(&steward->lock);
    while (!found && *at < steward->doubt_count && !steward->stopping) {
        *policy_id = steward->doubts[(*at)++].policy_id;
        found = !is_stuck[gate_place(steward->service->gate, *policy_id)];
    }
    pthread_mutex_unlock(&steward->lock);
    return found;
}

/* Tries each policy's once. */
static void steward_settle_doubts(struct steward *steward)
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
            is_stuck[gate_place(steward->service->gate, policy_id)] = true;
        are_all_sure = are_all_sure && is_sure;
    }
    if (!are_all_sure)
        steward_pause(steward);
}

static void *steward_main(void *context)
{
    struct steward *steward = context;

    pthread_mutex_lock(&steward->lock);
    while (!steward->stopping) {
        if (steward->doubt_count > 0) {
            pthread_mutex_unlock(&steward->lock);
            steward_settle_doubts(steward);
            pthread_mutex_lock(&steward->lock);
        }
        if (steward->errand_count == 0 && !steward->all_policies) {
            if (steward->doubt_count == 0 && !steward->stopping)
                pthread_cond_wait(&steward->work, &steward->lock);
            continue;
        }
        if (steward->errand_count == 0) {
            steward->all_policies = false;
            pthread_mutex_unlock(&steward->lock);
            steward_run_all(steward);
            pthread_mutex_lock(&steward->lock);
            continue;
        }
        int64_t policy_id = steward->errands[0].policy_id;
        enum steward_errand errand = steward->errands[0].errand;
        steward->errands[0] = steward->errands[--steward->errand_count];
        pthread_mutex_unlock(&steward->lock);

        enum status status = steward_run(steward, policy_id, errand);
        if (status == STATUS_UNAVAILABLE)
            steward_call(steward, policy_id, errand);
        /* Whoever waits for stock calls again at once, so every failure is followed by a pause. */
        if (status != STATUS_OK)
            steward_pause(steward);
        pthread_mutex_lock(&steward->lock);
    }
    pthread_mutex_unlock(&steward->lock);
    return NULL;
}

void steward_init(struct steward *steward, struct service *service)
{
    *steward = (struct steward){.service = service};
    for (size_t i = 0; i < STEWARD_LOCKS; i++)
        pthread_mutex_init(&steward->policy_locks[i], NULL);
    pthread_mutex_init(&steward->lock, NULL);
    clock_condition_init(&steward->work);
}

void steward_release(struct steward *steward)
{
    pthread_cond_destroy(&steward->work);
    pthread_mutex_destroy(&steward->lock);
    for (size_t i = 0; i < STEWARD_LOCKS; i++)
        pthread_mutex_destroy(&steward->policy_locks[i]);
    free(steward->doubts);
    free(steward->returns);
}

enum status steward_start(struct steward *steward, struct error *error)
{
    if (pthread_create(&steward->thread, NULL, steward_main, steward) != 0)
        return error_set(error, STATUS_UNAVAILABLE, "cannot start the steward's thread");
    steward->started = true;
    return STATUS_OK;
}

void steward_stop(struct steward *steward)
{
    if (!steward->started)
        return;
    pthread_mutex_lock(&steward->lock);
    steward->stopping = true;
    pthread_cond_broadcast(&steward->work);
    pthread_mutex_unlock(&steward->lock);
    pthread_join(steward->thread, NULL);
    steward->started = false;
}
