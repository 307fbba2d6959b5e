/* workers.c: lists the policies and gives each to the worker of its place; routes what the ledger
 * tells to the worker whose server is to hear it. */
#include "claim/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/worker_parts.h"

#define LIST_MS     500
#define LIST_PAGE   64
#define STOP_MIN_MS 1000 /* what is at work is not dropped at once, though time is up */

/* Claims of a policy that were handed to the ledger and that the gate has not been told of. */
struct workers_flight {
    int64_t policy_id;
    size_t place; /* when the first of them was handed over */
    size_t count;
};

struct workers {
    struct service *service; /* constant */
    char holder[64];         /* constant: the name of this process among the stewards */
    pthread_t list_thread;
    bool has_list_thread;
    pthread_mutex_t lock; /* of what follows; taken before that of a worker */
    pthread_cond_t stop;
    bool is_running;
    bool is_stopping;
    struct worker *workers[GATE_PLACES_MAX]; /* NULL: nothing has been at that place */
    struct workers_flight *flights;          /* in rising order of policy ids, none with 0 claims */
    size_t flight_count;
    size_t flight_capacity;
    size_t outstanding[GATE_PLACES_MAX]; /* their sums */
    struct patience patience;
};

struct service *workers_service(struct workers *workers)
{
    return workers->service;
}

/* --- what is on its way through the ledger --- */

/* Under the lock: where the policy's flight is, or would be. */
static size_t workers_flight_place(const struct workers *workers, int64_t policy_id)
{
    size_t low = 0;

    for (size_t high = workers->flight_count; low < high;) {
        size_t middle = (low + high) / 2;
        if (workers->flights[middle].policy_id < policy_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Under the lock. */
static void workers_flight_add(struct workers *workers, int64_t policy_id, size_t count)
{
    size_t at = workers_flight_place(workers, policy_id);

    if (at == workers->flight_count || workers->flights[at].policy_id != policy_id) {
        if (workers->flight_count == workers->flight_capacity) {
            size_t capacity = workers->flight_capacity == 0 ? 64 : workers->flight_capacity * 2;
            workers->flights = realloc(workers->flights, capacity * sizeof(*workers->flights));
            ensure(workers->flights != NULL);
            workers->flight_capacity = capacity;
        }
        memmove(workers->flights + at + 1, workers->flights + at,
                (workers->flight_count - at) * sizeof(*workers->flights));
        workers->flight_count++;
        workers->flights[at] = (struct workers_flight){
            .policy_id = policy_id, .place = gate_place(workers->service->gate, policy_id)};
    }
    workers->flights[at].count += count;
    workers->outstanding[workers->flights[at].place] += count;
}

/* Under the lock. */
static void workers_flight_remove(struct workers *workers, int64_t policy_id, size_t count)
{
    size_t at = workers_flight_place(workers, policy_id);

    if (at == workers->flight_count || workers->flights[at].policy_id != policy_id)
        return;
    struct workers_flight *flight = &workers->flights[at];
    count = count < flight->count ? count : flight->count;
    workers->outstanding[flight->place] -= count;
    flight->count -= count;
    if (flight->count > 0)
        return;
    workers->flight_count--;
    memmove(flight, flight + 1, (workers->flight_count - at) * sizeof(*flight));
}

/* How many of the claims, from the first on, are of the same policy. */
static size_t workers_run_length(const struct claim *claims, size_t count)
{
    size_t length = 1;

    while (length < count && claims[length].policy_id == claims[0].policy_id)
        length++;
    return length;
}

void workers_note_issued(struct workers *workers, const struct claim *claims, size_t count)
{
    pthread_mutex_lock(&workers->lock);
    for (size_t i = 0, length; i < count; i += length) {
        length = workers_run_length(claims + i, count - i);
        workers_flight_add(workers, claims[i].policy_id, length);
    }
    pthread_mutex_unlock(&workers->lock);
}

/* What the ledger did not take stays in the gate, and is tried again in a while. */
void workers_note_told(struct workers *workers, const struct claim *claims,
                       const enum coupon_state *states, size_t count)
{
    int64_t now_ms = clock_monotonic_ms();

    pthread_mutex_lock(&workers->lock);
    for (size_t i = 0, length; i < count; i += length) {
        length = workers_run_length(claims + i, count - i);
        workers_flight_remove(workers, claims[i].policy_id, length);
    }
    for (size_t i = 0; i < count; i++) {
        if (states[i] == COUPON_PENDING)
            patience_note(&workers->patience, &claims[i], now_ms);
        else
            patience_forget(&workers->patience, &claims[i]);
    }
    pthread_mutex_unlock(&workers->lock);
}

size_t workers_outstanding(struct workers *workers, int64_t policy_id)
{
    size_t place = gate_place(workers->service->gate, policy_id);

    pthread_mutex_lock(&workers->lock);
    size_t outstanding = workers->outstanding[place];
    pthread_mutex_unlock(&workers->lock);
    return outstanding;
}

size_t workers_sift(struct workers *workers, struct claim *claims, size_t count)
{
    int64_t now_ms = clock_monotonic_ms();

    pthread_mutex_lock(&workers->lock);
    patience_sweep(&workers->patience, now_ms);
    size_t left = patience_sift(&workers->patience, claims, count, now_ms);
    pthread_mutex_unlock(&workers->lock);
    return left;
}

size_t workers_waiting(struct workers *workers, int64_t policy_id)
{
    pthread_mutex_lock(&workers->lock);
    size_t waiting = patience_waiting(&workers->patience, policy_id, clock_monotonic_ms());
    pthread_mutex_unlock(&workers->lock);
    return waiting;
}

/* --- one for each place --- */

/* Under the lock: the worker of a place, made when it is the first time. The first one sees to
 * those that cannot be made. */
static struct worker *workers_at(struct workers *workers, size_t place)
{
    struct worker **found = &workers->workers[place];
    struct error error = {""};

    if (*found != NULL)
        return *found;
    enum status status = workers->is_stopping ? STATUS_UNAVAILABLE
                                              : worker_open(found, workers, workers->service, place,
                                                            workers->holder, &error);
    if (status == STATUS_OK && workers->is_running)
        status = worker_run(*found, &error);
    if (status != STATUS_OK && !workers->is_stopping)
        log_event(LOG_ERROR, "worker_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
    return *found != NULL && status == STATUS_OK ? *found : workers->workers[0];
}

static void workers_hand_over(struct workers *workers, size_t place, const struct claim *claims,
                              const enum coupon_state *states, size_t count)
{
    if (count == 0)
        return;
    pthread_mutex_lock(&workers->lock);
    struct worker *worker = workers_at(workers, place);
    pthread_mutex_unlock(&workers->lock);
    worker_settled(worker, claims, states, count);
}

/* Hands each place its own, in their order. */
static void workers_part(struct workers *workers, const uint8_t *places, const struct claim *claims,
                         const enum coupon_state *states, size_t count)
{
    struct claim *own_claims = malloc(count * sizeof(*own_claims));
    enum coupon_state *own_states = malloc(count * sizeof(*own_states));

    ensure(own_claims != NULL && own_states != NULL);
    for (size_t place = 0; place < GATE_PLACES_MAX; place++) {
        size_t own_count = 0;
        for (size_t i = 0; i < count; i++) {
            if (places[i] != place)
                continue;
            own_claims[own_count] = claims[i];
            own_states[own_count++] = states[i];
        }
        workers_hand_over(workers, place, own_claims, own_states, own_count);
    }
    free(own_claims);
    free(own_states);
}

void workers_on_issued(struct workers *workers, const struct claim *claims,
                       const enum coupon_state *states, size_t count)
{
    uint8_t *places = calloc(count + 1, sizeof(*places));
    bool is_one_place = true;

    ensure(places != NULL);
    for (size_t i = 0, length; i < count; i += length) {
        length = workers_run_length(claims + i, count - i);
        memset(places + i, (int)gate_place(workers->service->gate, claims[i].policy_id), length);
        is_one_place = is_one_place && places[i] == places[0];
    }
    if (is_one_place)
        workers_hand_over(workers, places[0], claims, states, count);
    else
        workers_part(workers, places, claims, states, count);
    free(places);
}

void workers_on_durable(struct workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    for (size_t place = 0; place < GATE_PLACES_MAX; place++) {
        if (workers->workers[place] != NULL)
            worker_wake(workers->workers[place]);
    }
    pthread_mutex_unlock(&workers->lock);
}

/* --- listing --- */

static bool workers_enroll(struct worker_roster *roster, const struct policy *policy)
{
    if (roster->count == roster->capacity) {
        size_t capacity = roster->capacity == 0 ? 64 : roster->capacity * 2;
        struct worker_policy *grown = realloc(roster->policies, capacity * sizeof(*grown));
        if (grown == NULL)
            return false;
        roster->policies = grown;
        roster->capacity = capacity;
    }
    roster->policies[roster->count++] = (struct worker_policy){
        .id = policy->id,
        .version = policy->version,
        .ends_at_ms = policy->closed_at_ms != 0 ? policy->closed_at_ms : policy->closes_at_ms};
    return true;
}

/* False: not all of them could be read. */
static bool workers_read(struct workers *workers, struct worker_roster rosters[GATE_PLACES_MAX])
{
    struct policy *page = malloc(LIST_PAGE * sizeof(*page));
    int64_t after_id = 0;
    size_t count = 0;
    struct error error;
    bool is_read = page != NULL;

    do {
        is_read = is_read && ledger_policy_list(workers->service->ledger, after_id, page, LIST_PAGE,
                                                &count, &error) == STATUS_OK;
        for (size_t i = 0; i < count && is_read; i++) {
            after_id = page[i].id;
            is_read =
                workers_enroll(&rosters[gate_place(workers->service->gate, after_id)], &page[i]);
        }
    } while (is_read && count > 0);
    free(page);
    return is_read;
}

/* Notes which policies have coupons that the gate has not heard of. What cannot be read is read the
 * next time. */
static void workers_read_entering(struct workers *workers,
                                  struct worker_roster rosters[GATE_PLACES_MAX])
{
    size_t at[GATE_PLACES_MAX] = {0};
    int64_t ids[LIST_PAGE];
    int64_t after_id = 0;
    size_t count = 0;
    struct error error;

    while (ledger_entering_policies(workers->service->ledger, after_id, ids, LIST_PAGE, &count,
                                    &error) == STATUS_OK &&
           count > 0) {
        for (size_t i = 0; i < count; i++) {
            after_id = ids[i];
            size_t place = gate_place(workers->service->gate, after_id);
            const struct worker_roster *roster = &rosters[place];
            while (at[place] < roster->count && roster->policies[at[place]].id < after_id)
                at[place]++;
            if (at[place] < roster->count && roster->policies[at[place]].id == after_id)
                roster->policies[at[place]].is_entering = true;
        }
    }
}

static void workers_list(struct workers *workers)
{
    struct worker_roster rosters[GATE_PLACES_MAX] = {{0}};
    bool is_read = workers_read(workers, rosters);

    if (is_read)
        workers_read_entering(workers, rosters);

    pthread_mutex_lock(&workers->lock);
    for (size_t place = 0; place < GATE_PLACES_MAX && is_read; place++) {
        if (rosters[place].count > 0 || workers->workers[place] != NULL) {
            struct worker *worker = workers_at(workers, place);
            if (worker->place == place)
                worker_take_roster(worker, &rosters[place]);
        }
    }
    pthread_mutex_unlock(&workers->lock);
    for (size_t place = 0; place < GATE_PLACES_MAX; place++)
        free(rosters[place].policies);
}

static void *workers_list_main(void *context)
{
    struct workers *workers = context;

    pthread_setname_np(pthread_self(), "workers-list");
    pthread_mutex_lock(&workers->lock);
    while (!workers->is_stopping) {
        struct timespec until = clock_deadline_in_ms(LIST_MS);
        pthread_mutex_unlock(&workers->lock);
        workers_list(workers);
        pthread_mutex_lock(&workers->lock);
        while (!workers->is_stopping &&
               pthread_cond_timedwait(&workers->stop, &workers->lock, &until) == 0)
            continue;
    }
    pthread_mutex_unlock(&workers->lock);
    return NULL;
}

/* --- life --- */

enum status workers_start(struct workers **workers, struct service *service, struct error *error)
{
    struct workers *started = calloc(1, sizeof(*started));
    uint64_t number;

    *workers = NULL;
    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the workers");
    random_bytes(&number, sizeof(number));
    snprintf(started->holder, sizeof(started->holder), "worker-%d-%016llx", (int)getpid(),
             (unsigned long long)number);
    started->service = service;
    pthread_mutex_init(&started->lock, NULL);
    clock_condition_init(&started->stop);
    *workers = started;
    return worker_open(&started->workers[0], started, service, 0, started->holder, error);
}

enum status workers_run(struct workers *workers, struct error *error)
{
    struct relay_outlet outlet = workers_outlet(workers);
    enum status status = relay_run(workers->service->relay, &outlet, error);

    pthread_mutex_lock(&workers->lock);
    if (status == STATUS_OK)
        status = worker_run(workers->workers[0], error);
    workers->is_running = status == STATUS_OK;
    pthread_mutex_unlock(&workers->lock);
    if (status != STATUS_OK)
        return status;
    workers->has_list_thread =
        pthread_create(&workers->list_thread, NULL, workers_list_main, workers) == 0;
    return workers->has_list_thread
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "cannot start the workers' thread");
}

void workers_stop(struct workers *workers, int64_t stop_at_ms)
{
    pthread_mutex_lock(&workers->lock);
    workers->is_stopping = true;
    pthread_cond_broadcast(&workers->stop);
    pthread_mutex_unlock(&workers->lock);
    if (workers->has_list_thread)
        pthread_join(workers->list_thread, NULL);
    workers->has_list_thread = false;
    /* No more are made from here on. */
    for (size_t place = 0; place < GATE_PLACES_MAX; place++) {
        if (workers->workers[place] != NULL)
            worker_tell_to_stop(workers->workers[place], stop_at_ms);
    }
    for (size_t place = 0; place < GATE_PLACES_MAX; place++) {
        if (workers->workers[place] != NULL)
            worker_await_stop(workers->workers[place]);
    }
    int64_t left_ms = stop_at_ms - clock_monotonic_ms();
    relay_stop(workers->service->relay, left_ms > STOP_MIN_MS ? left_ms : STOP_MIN_MS);
}

void workers_end(struct workers *workers)
{
    for (size_t place = 0; place < GATE_PLACES_MAX; place++) {
        if (workers->workers[place] != NULL)
            worker_close(workers->workers[place]);
    }
    pthread_mutex_destroy(&workers->lock);
    pthread_cond_destroy(&workers->stop);
    free(workers->flights);
    patience_release(&workers->patience);
    free(workers);
}

const char *workers_holder(const struct workers *workers)
{
    return workers->holder;
}

void workers_count(struct workers *workers, struct worker_numbers *numbers)
{
    *numbers = (struct worker_numbers){0};
    pthread_mutex_lock(&workers->lock);
    for (size_t place = 0; place < GATE_PLACES_MAX; place++) {
        struct worker_numbers own;
        if (workers->workers[place] == NULL)
            continue;
        worker_count(workers->workers[place], &own);
        numbers->drained += own.drained;
        numbers->drained_per_second += own.drained_per_second;
        numbers->pending += own.pending;
        numbers->reconciled += own.reconciled;
        numbers->refused += own.refused;
        if (own.oldest_requested_ms != 0 &&
            (numbers->oldest_requested_ms == 0 ||
             own.oldest_requested_ms < numbers->oldest_requested_ms))
            numbers->oldest_requested_ms = own.oldest_requested_ms;
    }
    pthread_mutex_unlock(&workers->lock);
}
