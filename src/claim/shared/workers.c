/* workers.c: lists the policies and gives each to the worker of its place; routes what the ledger
 * tells to the worker whose server is to hear it. */
#include "claim/shared/workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/random.h"
#include "claim/shared/worker_parts.h"

#define LIST_MS     500
#define LIST_PAGE   64
#define STOP_MIN_MS 1000 /* what is at work is not dropped at once, though time is up */

struct workers {
    struct service *service; /* constant */
    struct worker_relay relay;
    char holder[64]; /* constant: the name of this process among the stewards */
    struct periodic list;
    pthread_mutex_t lock; /* of what follows; taken before that of a worker */
    bool is_running;
    bool is_stopping;
    struct worker *workers[GATE_PLACES_MAX]; /* NULL: nothing has been at that place */
};

/* --- one for each place --- */

/* Under the lock: the worker of a place, made when it is the first time. The first one sees to
 * those that cannot be made. */
static struct worker *workers_at(struct workers *workers, size_t place)
{
    struct worker **found = &workers->workers[place];
    struct error error = {""};

    if (*found != NULL)
        return *found;
    enum status status = workers->is_stopping
                             ? STATUS_UNAVAILABLE
                             : worker_open(found, &workers->relay, place, workers->holder, &error);
    if (status == STATUS_OK && workers->is_running)
        status = worker_run(*found, &error);
    if (status != STATUS_OK && !workers->is_stopping)
        log_event(LOG_ERROR, "worker_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
    return *found != NULL && status == STATUS_OK ? *found : workers->workers[0];
}

/* Hands a place its own, in their order. */
static void workers_hand_over(struct workers *workers, size_t place, const uint8_t *places,
                              const struct claim *claims, const enum coupon_state *states,
                              size_t count)
{
    size_t own_count = 0;

    for (size_t i = 0; i < count; i++)
        own_count += places[i] == place;
    if (own_count == 0)
        return;
    struct settled_batch *batch =
        malloc(sizeof(*batch) + own_count * (sizeof(*claims) + sizeof(*states)));
    ensure(batch != NULL);
    *batch =
        (struct settled_batch){.states = (enum coupon_state *)(void *)(batch->claims + own_count)};
    for (size_t i = 0; i < count; i++)
        if (places[i] == place) {
            batch->claims[batch->count] = claims[i];
            batch->states[batch->count++] = states[i];
        }
    pthread_mutex_lock(&workers->lock);
    struct worker *worker = workers_at(workers, place);
    pthread_mutex_unlock(&workers->lock);
    worker_settled(worker, batch);
}

void workers_on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                       size_t count)
{
    struct service *service = context;
    uint8_t *places = malloc(count + 1);
    size_t place_count = 0;

    ensure(places != NULL);
    for (size_t i = 0, length; i < count; i += length) {
        size_t place = gate_place(service->shared, claims[i].policy_id);
        length = claims_of_one_policy(claims + i, count - i);
        memset(places + i, (int)place, length);
        place_count = place_count > place ? place_count : place + 1;
    }
    for (size_t place = 0; place < place_count; place++)
        workers_hand_over(service->workers, place, places, claims, states, count);
    free(places);
}

void workers_on_durable(void *context)
{
    struct service *service = context;
    struct workers *workers = service->workers;

    if (workers != NULL) {
        pthread_mutex_lock(&workers->lock);
        for (size_t place = 0; place < GATE_PLACES_MAX; place++)
            if (workers->workers[place] != NULL)
                worker_wake(workers->workers[place]);
        pthread_mutex_unlock(&workers->lock);
    }
    service_ring(service);
}

/* --- listing --- */

struct workers_rosters {
    struct shared_gate *gate;
    struct worker_roster places[GATE_PLACES_MAX];
};

static enum status workers_enroll(void *context, const struct policy *policy, struct error *error)
{
    struct workers_rosters *rosters = context;
    struct worker_roster *roster = &rosters->places[gate_place(rosters->gate, policy->id)];

    if (!array_make_room(roster->policies, roster->count, roster->capacity))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the list of policies");
    roster->policies[roster->count++] = (struct worker_policy){
        .id = policy->id,
        .version = policy->version,
        .ends_at_ms = policy->closed_at_ms != 0 ? policy->closed_at_ms : policy->closes_at_ms};
    return STATUS_OK;
}

/* Notes which policies have coupons that the gate has not heard of. What cannot be read is read the
 * next time. */
static void workers_read_entering(struct workers *workers, struct workers_rosters *rosters)
{
    int64_t ids[LIST_PAGE];
    int64_t after_id = 0;
    size_t count = 0;
    struct error error;

    while (ledger_entering_policies(workers->service->ledger, after_id, ids, LIST_PAGE, &count,
                                    &error) == STATUS_OK &&
           count > 0) {
        for (size_t i = 0; i < count; i++) {
            after_id = ids[i];
            struct worker_roster *roster = &rosters->places[gate_place(rosters->gate, after_id)];
            size_t at = array_place(roster->policies, roster->count, .id, after_id);
            if (at < roster->count && roster->policies[at].id == after_id)
                roster->policies[at].is_entering = true;
        }
    }
}

/* What cannot be read as a whole is read the next time. */
static int64_t workers_list(void *context)
{
    struct workers *workers = context;
    struct workers_rosters rosters = {.gate = workers->service->shared};
    struct error error;
    bool is_read =
        service_each_policy(workers->service, workers_enroll, &rosters, &error) == STATUS_OK;

    if (is_read)
        workers_read_entering(workers, &rosters);
    pthread_mutex_lock(&workers->lock);
    for (size_t place = 0; place < GATE_PLACES_MAX && is_read; place++) {
        if (rosters.places[place].count > 0 || workers->workers[place] != NULL) {
            struct worker *worker = workers_at(workers, place);
            if (worker->place == place)
                worker_take_roster(worker, &rosters.places[place]);
        }
    }
    pthread_mutex_unlock(&workers->lock);
    for (size_t place = 0; place < GATE_PLACES_MAX; place++)
        free(rosters.places[place].policies);
    return LIST_MS;
}

/* --- life --- */

enum status workers_start(struct service *service, struct error *error)
{
    uint64_t number;

    if (!service->works)
        return STATUS_OK;
    struct workers *started = calloc(1, sizeof(*started));
    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the workers");
    random_bytes(&number, sizeof(number));
    snprintf(started->holder, sizeof(started->holder), "worker-%d-%016llx", (int)getpid(),
             (unsigned long long)number);
    started->service = service;
    worker_relay_init(&started->relay, service);
    pthread_mutex_init(&started->lock, NULL);
    service->workers = started;
    return worker_open(&started->workers[0], &started->relay, 0, started->holder, error);
}

/* A gate that is there already is not restored: what it lacks, its steward brings. */
enum status workers_run(struct service *service, struct error *error)
{
    struct workers *workers = service->workers;

    if (!service->works)
        return STATUS_OK;
    enum status status = worker_relay_run(&workers->relay, error);
    pthread_mutex_lock(&workers->lock);
    if (status == STATUS_OK)
        status = worker_run(workers->workers[0], error);
    workers->is_running = status == STATUS_OK;
    pthread_mutex_unlock(&workers->lock);
    return status == STATUS_OK
               ? periodic_start(&workers->list, "workers-list", workers_list, workers, 0, error)
               : status;
}

void workers_stop(struct workers *workers, int64_t stop_at_ms)
{
    if (workers == NULL)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->is_stopping = true;
    pthread_mutex_unlock(&workers->lock);
    periodic_stop(&workers->list);
    /* No more are made from here on. */
    for (size_t place = 0; place < GATE_PLACES_MAX; place++)
        if (workers->workers[place] != NULL)
            worker_tell_to_stop(workers->workers[place], stop_at_ms);
    for (size_t place = 0; place < GATE_PLACES_MAX; place++)
        if (workers->workers[place] != NULL)
            worker_await_stop(workers->workers[place]);
    int64_t left_ms = stop_at_ms - clock_monotonic_ms();
    relay_kafka_stop(workers->service->relay_kafka, left_ms > STOP_MIN_MS ? left_ms : STOP_MIN_MS);
}

void workers_end(struct workers *workers)
{
    if (workers == NULL)
        return;
    for (size_t place = 0; place < GATE_PLACES_MAX; place++)
        if (workers->workers[place] != NULL)
            worker_close(workers->workers[place]);
    relay_kafka_close(workers->service->relay_kafka);
    pthread_mutex_destroy(&workers->lock);
    worker_relay_release(&workers->relay);
    free(workers);
}

const char *workers_holder(const struct workers *workers)
{
    return workers->holder;
}

bool service_count_worker(struct service *service, struct worker_numbers *numbers)
{
    struct workers *workers = service->workers;

    *numbers = (struct worker_numbers){0};
    if (workers == NULL)
        return false;
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
        worker_note_oldest(numbers, own.oldest_requested_ms);
    }
    pthread_mutex_unlock(&workers->lock);
    return true;
}
