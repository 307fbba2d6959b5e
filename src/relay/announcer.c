/* announcer.c: read, send, wait until it is delivered, forget. */
#include "relay/announcer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "relay/event.h"

#define DUTY             "announcer"
#define TERM_DEFAULT_MS  5000
#define POLL_DEFAULT_MS  500
#define BATCH_EVENTS_MAX 1000
#define GATHER_MS        20 /* what is committed meanwhile goes along */
#define PAUSE_MIN_MS     20
#define PAUSE_MAX_MS     1000
#define COUNT_EACH_MS    5000
#define PATIENCE_MS      1000 /* a start, or brokers that change places, is no news */

/* What is on its way. */
struct announcer_batch {
    struct kafka_batch batch; /* the first, so that the report leads here */
    struct announcer *announcer;
    size_t count;
    bool is_done;         /* under the announcer's lock, like the next */
    enum status status;   /* of the report */
    struct error trouble; /* of the report */
    struct ledger_event told[BATCH_EVENTS_MAX];
    struct event event; /* that is being sent */
};

struct announcer {
    struct announcer_options options;
    char holder[64];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* woken, reported, or stop */
    bool is_woken;
    bool is_stopping;
    int64_t stop_at_ms;               /* monotonic; under the lock */
    struct announcer_numbers numbers; /* under the lock */
    /* The thread's own. */
    struct announcer_batch *batch;
    struct ledger_event_place cursor; /* everything up to here was delivered, this time round */
    bool has_duty;
    int64_t hold_at_ms;  /* monotonic: when the duty is to be asked for again */
    int64_t count_at_ms; /* monotonic: when what waits may be counted again */
    int64_t pause_ms;    /* of the next failure */
    int64_t trouble_ms;  /* monotonic: since when nothing is delivered; 0: all is well */
};

/* --- waiting --- */

/* Until then, unless it is to stop; with `heeds_wakes` also until there are new events. */
static void announcer_rest(struct announcer *announcer, int64_t until_ms, bool heeds_wakes)
{
    struct timespec until = clock_deadline_at_ms(until_ms);

    pthread_mutex_lock(&announcer->lock);
    while (!announcer->is_stopping && !(heeds_wakes && announcer->is_woken) &&
           pthread_cond_timedwait(&announcer->changed, &announcer->lock, &until) == 0)
        continue;
    if (heeds_wakes)
        announcer->is_woken = false;
    pthread_mutex_unlock(&announcer->lock);
}

static bool announcer_stops(struct announcer *announcer)
{
    pthread_mutex_lock(&announcer->lock);
    bool is_stopping = announcer->is_stopping;
    pthread_mutex_unlock(&announcer->lock);
    return is_stopping;
}

/* --- state --- */

static void announcer_enter(struct announcer *announcer, enum announcer_state state,
                            const char *words)
{
    struct announcer_numbers *numbers = &announcer->numbers;

    pthread_mutex_lock(&announcer->lock);
    enum announcer_state before = numbers->state;
    numbers->state = state;
    snprintf(numbers->words, sizeof(numbers->words), "%.199s", words);
    if (state == ANNOUNCER_STANDS_BY) {
        numbers->waiting = 0;
        numbers->oldest_at_ms = 0;
    }
    pthread_mutex_unlock(&announcer->lock);
    if (before == state)
        return;
    if (state == ANNOUNCER_HELD_UP)
        log_event(LOG_WARN, "events_held_up", LOG_FIELD("error", LOG_TEXT(words)),
                  LOG_FIELD("next", LOG_TEXT("they wait in the ledger; trying again")));
    else if (before == ANNOUNCER_HELD_UP)
        log_event(LOG_INFO, "events_go_on", LOG_FIELD("here", LOG_FLAG(state == ANNOUNCER_FLOWS)));
}

static void announcer_note_backlog(struct announcer *announcer, int64_t count, int64_t oldest_at_ms)
{
    pthread_mutex_lock(&announcer->lock);
    announcer->numbers.waiting = count;
    announcer->numbers.oldest_at_ms = oldest_at_ms;
    pthread_mutex_unlock(&announcer->lock);
}

/* Counting takes time with the length of the outbox, so it is done now and then. */
static void announcer_count_backlog(struct announcer *announcer)
{
    struct ledger_backlog backlog;
    struct error error;
    int64_t now_ms = clock_monotonic_ms();

    if (now_ms < announcer->count_at_ms)
        return;
    announcer->count_at_ms = now_ms + COUNT_EACH_MS;
    if (ledger_event_backlog(announcer->options.ledger, &backlog, &error) == STATUS_OK)
        announcer_note_backlog(announcer, backlog.count, backlog.oldest_at_ms);
}

/* Nothing is delivered just now. */
static void announcer_worry(struct announcer *announcer, const char *words)
{
    int64_t now_ms = clock_monotonic_ms();

    if (announcer->trouble_ms == 0)
        announcer->trouble_ms = now_ms;
    if (now_ms - announcer->trouble_ms < PATIENCE_MS)
        return;
    announcer_enter(announcer, ANNOUNCER_HELD_UP, words);
    announcer_count_backlog(announcer);
}

static void announcer_relax(struct announcer *announcer)
{
    announcer->trouble_ms = 0;
    announcer->pause_ms = PAUSE_MIN_MS;
    announcer_enter(announcer, ANNOUNCER_FLOWS, "ok");
}

static void announcer_fail(struct announcer *announcer, const struct error *error)
{
    announcer_worry(announcer, error->text);
    announcer_rest(announcer, clock_monotonic_ms() + announcer->pause_ms, false);
    announcer->pause_ms *= 2;
    if (announcer->pause_ms > PAUSE_MAX_MS)
        announcer->pause_ms = PAUSE_MAX_MS;
}

/* --- the duty --- */

/* Asks for the duty, or for more of it, when it is time. A database that does not answer leaves it
 * as it is: then nothing can be read or forgotten either. */
static void announcer_hold(struct announcer *announcer)
{
    int64_t term_ms = announcer->options.term_ms;
    int64_t now_ms = clock_monotonic_ms();
    bool had_duty = announcer->has_duty;
    struct error error = {""};

    if (now_ms < announcer->hold_at_ms)
        return;
    announcer->hold_at_ms = now_ms + term_ms / 3;
    if (ledger_duty_hold(announcer->options.ledger, DUTY, announcer->holder, term_ms,
                         &announcer->has_duty, &error) != STATUS_OK) {
        announcer->has_duty = had_duty;
        return;
    }
    if (announcer->has_duty == had_duty)
        return;
    announcer->cursor = (struct ledger_event_place){0};
    announcer_enter(announcer, announcer->has_duty ? ANNOUNCER_FLOWS : ANNOUNCER_STANDS_BY, "ok");
    log_event(LOG_INFO, announcer->has_duty ? "announcing" : "announcing_elsewhere",
              LOG_FIELD("holder", LOG_TEXT(announcer->holder)));
}

/* --- one batch --- */

static void announcer_on_report(struct kafka_batch *report, enum status status,
                                const struct error *error)
{
    struct announcer_batch *batch = (struct announcer_batch *)(void *)report;
    struct announcer *announcer = batch->announcer;

    pthread_mutex_lock(&announcer->lock);
    batch->status = status;
    if (status != STATUS_OK)
        batch->trouble = *error;
    batch->is_done = true;
    pthread_cond_broadcast(&announcer->changed);
    pthread_mutex_unlock(&announcer->lock);
}

static const struct event_message *announcer_next(struct kafka_batch *sent, size_t index)
{
    struct announcer_batch *batch = (struct announcer_batch *)(void *)sent;
    const struct ledger_event *told = &batch->told[index];

    event_write_coupon(&batch->event, event_kind_of_state(told->coupon.state), &told->coupon,
                       told->changed_at_ms, span_of(told->traceparent));
    return &batch->event.message;
}

/* Reads on behind what was delivered; at the end from the front again, where the policies with the
 * smaller ids may have got new events. */
static enum status announcer_read(struct announcer *announcer, struct error *error)
{
    struct announcer_batch *batch = announcer->batch;
    enum status status = ledger_events(announcer->options.ledger, &announcer->cursor, batch->told,
                                       BATCH_EVENTS_MAX, &batch->count, error);

    if (status == STATUS_OK && batch->count == 0 && announcer->cursor.policy_id != 0) {
        announcer->cursor = (struct ledger_event_place){0};
        status = ledger_events(announcer->options.ledger, &announcer->cursor, batch->told,
                               BATCH_EVENTS_MAX, &batch->count, error);
    }
    return status;
}

/* Waits for the report, and keeps the duty meanwhile. False: it is to stop, and there is none. */
static bool announcer_await_report(struct announcer *announcer)
{
    const struct announcer_batch *batch = announcer->batch;
    bool is_done = false;
    bool gives_up = false;

    while (!is_done && !gives_up) {
        int64_t now_ms = clock_monotonic_ms();
        struct timespec until = clock_deadline_at_ms(announcer->hold_at_ms < now_ms + PAUSE_MAX_MS
                                                         ? announcer->hold_at_ms
                                                         : now_ms + PAUSE_MAX_MS);
        pthread_mutex_lock(&announcer->lock);
        if (announcer->is_stopping)
            until = clock_deadline_at_ms(announcer->stop_at_ms);
        if (!batch->is_done)
            pthread_cond_timedwait(&announcer->changed, &announcer->lock, &until);
        is_done = batch->is_done;
        gives_up = announcer->is_stopping && clock_monotonic_ms() >= announcer->stop_at_ms;
        pthread_mutex_unlock(&announcer->lock);
        if (!is_done) {
            announcer_worry(announcer, "the brokers have not confirmed what was sent");
            announcer_hold(announcer);
        }
    }
    return is_done;
}

/* All that was read of a policy up to its last event in the batch was delivered. */
static enum status announcer_forget(struct announcer *announcer, struct error *error)
{
    const struct announcer_batch *batch = announcer->batch;
    struct ledger_event_place places[BATCH_EVENTS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < batch->count; i++) {
        const struct ledger_event_place *place = &batch->told[i].place;
        if (count == 0 || places[count - 1].policy_id != place->policy_id)
            count++;
        places[count - 1] = *place;
    }
    enum status status = ledger_events_drop(announcer->options.ledger, places, count, error);
    if (status == STATUS_OK)
        announcer->cursor = places[count - 1];
    return status;
}

/* Sends what was read and sees it through. */
static enum status announcer_tell(struct announcer *announcer, struct error *error)
{
    struct announcer_batch *batch = announcer->batch;

    batch->batch = (struct kafka_batch){.done = announcer_on_report, .next = announcer_next};
    batch->is_done = false;
    batch->trouble = (struct error){""};
    enum status status =
        announcer->options.send(announcer->options.context, &batch->batch, batch->count, error);
    if (status != STATUS_OK)
        return status;
    FAULT_POINT("announcer.after_send");
    if (!announcer_await_report(announcer)) {
        /* Its memory is the sender's until it is reported: announcer_close() frees it. */
        return error_set(error, STATUS_UNKNOWN, "stopped before the events were delivered");
    }
    if (batch->status != STATUS_OK) {
        pthread_mutex_lock(&announcer->lock);
        announcer->numbers.failed++;
        pthread_mutex_unlock(&announcer->lock);
        if (error != NULL)
            *error = batch->trouble;
        return STATUS_UNAVAILABLE;
    }
    FAULT_POINT("announcer.after_delivery");
    status = announcer_forget(announcer, error);
    if (status != STATUS_OK)
        return status;
    FAULT_POINT("announcer.after_forget");
    pthread_mutex_lock(&announcer->lock);
    announcer->numbers.announced += batch->count;
    pthread_mutex_unlock(&announcer->lock);
    return STATUS_OK;
}

/* --- the thread --- */

/* One look at the outbox, and what it leads to. */
static void announcer_turn(struct announcer *announcer)
{
    struct announcer_batch *batch = announcer->batch;
    struct error error = {""};
    enum status status = announcer_read(announcer, &error);

    if (status == STATUS_OK && batch->count == 0) {
        announcer_note_backlog(announcer, 0, 0);
        announcer_relax(announcer);
        announcer_rest(announcer, clock_monotonic_ms() + announcer->options.poll_ms, true);
        return;
    }
    if (status == STATUS_OK)
        status = announcer_tell(announcer, &error);
    if (status == STATUS_OK) {
        announcer_relax(announcer);
        if (batch->count == BATCH_EVENTS_MAX)
            announcer_count_backlog(announcer);
        else
            announcer_rest(announcer, clock_monotonic_ms() + GATHER_MS, false);
        return;
    }
    announcer->cursor = (struct ledger_event_place){0};
    if (!announcer_stops(announcer))
        announcer_fail(announcer, &error);
}

static void *announcer_main(void *context)
{
    struct announcer *announcer = context;

    pthread_setname_np(pthread_self(), "announcer");
    while (!announcer_stops(announcer)) {
        announcer_hold(announcer);
        if (announcer->has_duty)
            announcer_turn(announcer);
        else
            announcer_rest(announcer, announcer->hold_at_ms, false);
    }
    if (announcer->has_duty) {
        struct error error;
        (void)!ledger_duty_release(announcer->options.ledger, DUTY, announcer->holder, &error);
    }
    return NULL;
}

/* --- life --- */

static void announcer_release(struct announcer *announcer)
{
    pthread_cond_destroy(&announcer->changed);
    pthread_mutex_destroy(&announcer->lock);
    free(announcer->batch);
    free(announcer);
}

enum status announcer_open(struct announcer **announcer, const struct announcer_options *options,
                           struct error *error)
{
    struct announcer *opened = calloc(1, sizeof(*opened));
    uint64_t token;

    *announcer = NULL;
    if (opened == NULL || (opened->batch = calloc(1, sizeof(*opened->batch))) == NULL) {
        free(opened);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the announcer");
    }
    opened->options = *options;
    if (opened->options.term_ms == 0)
        opened->options.term_ms = TERM_DEFAULT_MS;
    if (opened->options.poll_ms == 0)
        opened->options.poll_ms = POLL_DEFAULT_MS;
    opened->pause_ms = PAUSE_MIN_MS;
    opened->batch->announcer = opened;
    snprintf(opened->numbers.words, sizeof(opened->numbers.words), "ok");
    random_bytes(&token, sizeof(token));
    if (options->is_alone)
        snprintf(opened->holder, sizeof(opened->holder), "owner");
    else
        snprintf(opened->holder, sizeof(opened->holder), "announcer-%d-%016llx", (int)getpid(),
                 (unsigned long long)token);
    pthread_mutex_init(&opened->lock, NULL);
    clock_condition_init(&opened->changed);
    if (pthread_create(&opened->thread, NULL, announcer_main, opened) != 0) {
        announcer_release(opened);
        return error_set(error, STATUS_UNAVAILABLE, "cannot start the announcer's thread");
    }
    *announcer = opened;
    return STATUS_OK;
}

void announcer_wake(struct announcer *announcer)
{
    pthread_mutex_lock(&announcer->lock);
    if (!announcer->is_woken) {
        announcer->is_woken = true;
        pthread_cond_broadcast(&announcer->changed);
    }
    pthread_mutex_unlock(&announcer->lock);
}

void announcer_stop(struct announcer *announcer, int64_t timeout_ms)
{
    if (announcer == NULL)
        return;
    pthread_mutex_lock(&announcer->lock);
    announcer->is_stopping = true;
    announcer->stop_at_ms = clock_monotonic_ms() + timeout_ms;
    pthread_cond_broadcast(&announcer->changed);
    pthread_mutex_unlock(&announcer->lock);
    pthread_join(announcer->thread, NULL);
}

void announcer_close(struct announcer *announcer)
{
    if (announcer != NULL)
        announcer_release(announcer);
}

void announcer_count(struct announcer *announcer, struct announcer_numbers *numbers)
{
    pthread_mutex_lock(&announcer->lock);
    *numbers = announcer->numbers;
    pthread_mutex_unlock(&announcer->lock);
}
