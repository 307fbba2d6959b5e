/* worker.c: one thread reads what is pending at one place of the gate and hands it to the ledger,
 * one tells the gate what the ledger has. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "claim/shared/worker_parts.h"

#define IDLE_MAX_MS 100
#define MEASURE_MS  1000
#define TELL_MS     5000 /* between lines about the progress */
#define ACK_MORE_MS \
    2000 /* after a stop, for telling the gate what it hears from the next one too */

/* --- what the ledger tells --- */

void worker_settled(struct worker *worker, struct settled_batch *batch)
{
    pthread_mutex_lock(&worker->lock);
    *worker->settled_end = batch;
    worker->settled_end = &batch->next;
    worker->settled_count++;
    pthread_cond_signal(&worker->ack_work);
    pthread_mutex_unlock(&worker->lock);
}

void worker_wake(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    pthread_cond_signal(&worker->drain_work);
    pthread_mutex_unlock(&worker->lock);
}

/* --- telling the gate --- */

static void worker_acknowledge(struct worker *worker, const struct settled_batch *batch)
{
    struct service *service = worker->service;

    FAULT_POINT("worker.before_acknowledge");
    for (size_t i = 0, end = 0; i < batch->count; i = end + 1) {
        for (end = i; end < batch->count && batch->states[end] != COUPON_PENDING;)
            end++;
        if (end > i)
            gate_acknowledge(service->gate, batch->claims + i, batch->states + i, end - i);
    }
    FAULT_POINT("worker.after_acknowledge");
    for (size_t i = 0; i < batch->count; i++) {
        struct policy policy;
        struct error error;
        /* Its unit is back in the ledger: the gate hears that there is stock to ask for. */
        if (batch->states[i] != COUPON_PENDING && !coupon_state_is_active(batch->states[i]) &&
            service_refresh(service, batch->claims[i].policy_id, &policy, &error) != STATUS_OK)
            log_event(LOG_WARN, "refresh_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
    }
}

/* Under the lock. What the gate is not told when time is up, it hears when it is drained again. */
static bool worker_has_time_to_tell(const struct worker *worker)
{
    return !worker->acks_end || clock_monotonic_ms() < worker->stop_at_ms + ACK_MORE_MS;
}

static void *worker_ack_main(void *context)
{
    struct worker *worker = context;

    pthread_setname_np(pthread_self(), "worker-ack");
    pthread_mutex_lock(&worker->lock);
    for (;;) {
        while (worker->settled == NULL && !worker->acks_end)
            pthread_cond_wait(&worker->ack_work, &worker->lock);
        struct settled_batch *batch = worker->settled;
        if (batch == NULL)
            break;
        worker->settled = batch->next;
        if (worker->settled == NULL)
            worker->settled_end = &worker->settled;
        bool has_time = worker_has_time_to_tell(worker);
        for (size_t i = 0; i < batch->count; i++)
            if (batch->states[i] == COUPON_PENDING)
                worker->numbers.refused++;
            else
                worker->numbers.drained++;
        pthread_mutex_unlock(&worker->lock);
        if (has_time)
            worker_acknowledge(worker, batch);
        relay_kafka_settled(worker->service->relay_kafka, batch->claims, batch->states,
                            batch->count);
        worker_relay_told(worker->relay, batch->claims, batch->states, batch->count);
        pthread_mutex_lock(&worker->lock);
        worker->told_count++;
        pthread_cond_signal(&worker->drain_work);
        free(batch);
    }
    pthread_mutex_unlock(&worker->lock);
    return NULL;
}

/* --- draining --- */

bool worker_must_end(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    bool must_end = worker->is_stopping && clock_monotonic_ms() >= worker->stop_at_ms;
    pthread_mutex_unlock(&worker->lock);
    return must_end;
}

/* Under the lock: waits for news from the ledger or the gate. False: time is up. */
static bool worker_await_news(struct worker *worker, int64_t until_ms)
{
    int64_t now_ms = clock_monotonic_ms();

    if (worker->is_stopping && worker->stop_at_ms < until_ms)
        until_ms = worker->stop_at_ms;
    if (now_ms >= until_ms)
        return false;
    struct timespec until = clock_deadline_in_ms(until_ms - now_ms);
    pthread_cond_timedwait(&worker->drain_work, &worker->lock, &until);
    return true;
}

bool worker_settle(struct worker *worker, uint64_t ticket, int64_t timeout_ms)
{
    int64_t until_ms = clock_monotonic_ms() + timeout_ms;
    bool is_late = false;

    pthread_mutex_lock(&worker->lock);
    while (ledger_durable(worker->service->ledger) < ticket && !is_late)
        is_late = !worker_await_news(worker, until_ms);
    /* What the ledger told of that ticket came before it was durable. */
    uint64_t settled_count = worker->settled_count;
    while (worker->told_count < settled_count && !is_late)
        is_late = !worker_await_news(worker, until_ms);
    pthread_mutex_unlock(&worker->lock);
    return !is_late;
}

/* --- the policies at its place --- */

void worker_take_roster(struct worker *worker, struct worker_roster *roster)
{
    pthread_mutex_lock(&worker->lock);
    free(worker->roster.policies);
    worker->roster = *roster;
    worker->has_roster = true;
    pthread_cond_signal(&worker->drain_work);
    pthread_mutex_unlock(&worker->lock);
    *roster = (struct worker_roster){0};
}

/* Another worker of this process takes the next term, for it has the same name. */
static void worker_leave(struct worker *worker, struct duty *duty)
{
    worker->service->relay->ops->leave(worker->service->relay, &duty->stream);
    free(duty->keys);
    duty->keys = NULL;
}

/* Notes the policy as the ledger has it now. */
static void worker_note(struct duty *duty, const struct worker_policy *policy)
{
    duty->ends_at_ms = policy->ends_at_ms;
    duty->is_entering = policy->is_entering;
    if (duty->version != policy->version || policy->is_entering) {
        duty->is_retired = false;
        duty->next_attend_ms = 0;
    }
    duty->version = policy->version;
}

/* Goes over to a new roster: policies have come, and some are another worker's now. */
static void worker_sort_duties(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    struct worker_roster roster = worker->roster;
    bool has_roster = worker->has_roster;
    worker->roster = (struct worker_roster){0};
    worker->has_roster = false;
    pthread_mutex_unlock(&worker->lock);
    struct duty *duties = has_roster ? malloc((roster.count + 1) * sizeof(*duties)) : NULL;
    if (duties == NULL) { /* Without memory the next roster is waited for. */
        free(roster.policies);
        return;
    }
    size_t old = 0;
    for (size_t i = 0; i < roster.count; i++) {
        int64_t id = roster.policies[i].id;
        while (old < worker->duty_count && worker->duties[old].policy_id < id)
            worker_leave(worker, &worker->duties[old++]);
        if (old < worker->duty_count && worker->duties[old].policy_id == id)
            duties[i] = worker->duties[old++];
        else
            duties[i] = (struct duty){.policy_id = id, .stream.policy_id = id};
        worker_note(&duties[i], &roster.policies[i]);
    }
    while (old < worker->duty_count)
        worker_leave(worker, &worker->duties[old++]);
    free(worker->duties);
    free(roster.policies);
    worker->duties = duties;
    worker->duty_count = roster.count;
}

/* What is pending, how fast it goes, and now and then a line about it while it does. */
static void worker_measure(struct worker *worker, int64_t now_ms)
{
    struct worker_numbers *numbers = &worker->numbers;
    int64_t elapsed_ms = now_ms - worker->measured_at_ms;
    bool is_due = elapsed_ms >= MEASURE_MS;

    pthread_mutex_lock(&worker->lock);
    numbers->pending = 0;
    numbers->oldest_requested_ms = 0;
    for (size_t i = 0; i < worker->duty_count; i++) {
        const struct duty *duty = &worker->duties[i];
        numbers->pending += duty->pending_count;
        worker_note_oldest(numbers, duty->oldest_requested_ms);
    }
    if (is_due) {
        numbers->drained_per_second =
            worker->measured_at_ms == 0
                ? 0
                : (double)(numbers->drained - worker->measured_drained) * 1000 / (double)elapsed_ms;
        worker->measured_at_ms = now_ms;
        worker->measured_drained = numbers->drained;
    }
    struct worker_numbers seen = *numbers;
    pthread_mutex_unlock(&worker->lock);
    if (!is_due || seen.drained == worker->told_drained || now_ms - worker->told_at_ms < TELL_MS)
        return;
    int64_t age_ms = seen.oldest_requested_ms == 0 ? 0 : clock_wall_ms() - seen.oldest_requested_ms;
    log_event(LOG_INFO, "draining", LOG_FIELD("claims", LOG_I64(seen.drained)),
              LOG_FIELD("per_second", LOG_I64(seen.drained_per_second)),
              LOG_FIELD("pending", LOG_I64(seen.pending)),
              LOG_FIELD("oldest_ms", LOG_I64(age_ms < 0 ? 0 : age_ms)));
    worker->told_at_ms = now_ms;
    worker->told_drained = seen.drained;
}

/* Building gets half of the time at least, however many the others are. */
void worker_serve_others(struct worker *worker, const struct duty *built)
{
    int64_t began_ms = clock_monotonic_ms();

    if (began_ms < worker->others_at_ms)
        return;
    for (size_t i = 0; i < worker->duty_count && !worker_must_end(worker); i++) {
        struct duty *duty = &worker->duties[i];
        if (duty != built && !duty->is_retired && duty->next_attend_ms <= began_ms)
            duty_serve(worker, duty, clock_monotonic_ms());
    }
    int64_t now_ms = clock_monotonic_ms();
    worker_measure(worker, now_ms);
    worker->others_at_ms = now_ms + (now_ms - began_ms) + DUTY_PAUSE_MS;
}

/* Attends to whatever is due; returns when the next one is. */
static int64_t worker_round(struct worker *worker, int64_t now_ms)
{
    int64_t next_ms = now_ms + IDLE_MAX_MS;

    worker_sort_duties(worker);
    for (size_t i = 0; i < worker->duty_count && !worker_must_end(worker); i++) {
        struct duty *duty = &worker->duties[i];
        if (!duty->is_retired && duty->next_attend_ms <= now_ms)
            duty_attend(worker, duty, clock_monotonic_ms());
        if (!duty->is_retired && duty->next_attend_ms < next_ms)
            next_ms = duty->next_attend_ms;
    }
    worker_measure(worker, clock_monotonic_ms());
    return next_ms;
}

static bool worker_is_drained(const struct worker *worker)
{
    for (size_t i = 0; i < worker->duty_count; i++)
        if (worker->duties[i].pending_count > 0)
            return false;
    return true;
}

static void *worker_drain_main(void *context)
{
    struct worker *worker = context;
    bool is_last = false;

    pthread_setname_np(pthread_self(), "worker-drain");
    for (;;) {
        int64_t now_ms = clock_monotonic_ms();
        int64_t next_ms = worker_round(worker, now_ms);
        pthread_mutex_lock(&worker->lock);
        now_ms = clock_monotonic_ms();
        bool ends = worker->is_stopping &&
                    (now_ms >= worker->stop_at_ms || (is_last && worker_is_drained(worker)));
        if (worker->is_stopping && !is_last) {
            /* Once more, to see what came before the stop. */
            is_last = true;
            for (size_t i = 0; i < worker->duty_count; i++)
                worker->duties[i].next_attend_ms = 0;
        } else if (!ends && next_ms > now_ms) {
            struct timespec until = clock_deadline_in_ms(next_ms - now_ms);
            pthread_cond_timedwait(&worker->drain_work, &worker->lock, &until);
        }
        pthread_mutex_unlock(&worker->lock);
        if (ends) {
            for (size_t i = 0; i < worker->duty_count; i++)
                worker_leave(worker, &worker->duties[i]);
            return NULL;
        }
    }
}

/* --- life --- */

static void worker_free(struct worker *worker)
{
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->drain_work);
    pthread_cond_destroy(&worker->ack_work);
    free(worker->roster.policies);
    free(worker->duties);
    free(worker->pending);
    free(worker);
}

enum status worker_open(struct worker **worker, struct worker_relay *relay, size_t place,
                        const char *holder, struct error *error)
{
    struct worker *opened = calloc(1, sizeof(*opened));

    *worker = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the worker");
    *opened = (struct worker){.relay = relay,
                              .service = relay->service,
                              .place = place,
                              .holder = holder,
                              .settled_end = &opened->settled,
                              .pending = malloc(sizeof(*opened->pending))};
    pthread_mutex_init(&opened->lock, NULL);
    clock_condition_init(&opened->drain_work);
    clock_condition_init(&opened->ack_work);
    if (opened->pending == NULL ||
        pthread_create(&opened->ack_thread, NULL, worker_ack_main, opened) != 0) {
        worker_free(opened);
        return error_set(error, STATUS_UNAVAILABLE,
                         "no memory for the worker, or no thread to be had");
    }
    *worker = opened;
    return STATUS_OK;
}

enum status worker_run(struct worker *worker, struct error *error)
{
    worker->has_drain_thread =
        pthread_create(&worker->drain_thread, NULL, worker_drain_main, worker) == 0;
    return worker->has_drain_thread
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "cannot start the worker's thread");
}

void worker_tell_to_stop(struct worker *worker, int64_t stop_at_ms)
{
    pthread_mutex_lock(&worker->lock);
    worker->is_stopping = true;
    worker->stop_at_ms = stop_at_ms;
    pthread_cond_broadcast(&worker->drain_work);
    pthread_mutex_unlock(&worker->lock);
}

void worker_await_stop(struct worker *worker)
{
    if (worker->has_drain_thread)
        pthread_join(worker->drain_thread, NULL);
    worker->has_drain_thread = false;
}

void worker_close(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->acks_end = true;
    pthread_cond_broadcast(&worker->ack_work);
    pthread_mutex_unlock(&worker->lock);
    pthread_join(worker->ack_thread, NULL);
    worker_free(worker);
}

void worker_count(struct worker *worker, struct worker_numbers *numbers)
{
    pthread_mutex_lock(&worker->lock);
    *numbers = worker->numbers;
    pthread_mutex_unlock(&worker->lock);
}
