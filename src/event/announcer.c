/* announcer.c: read an outbox, send, wait until it is delivered, forget.
 */
#include "event/announcer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/random.h"
#include "event/event.h"

#define TERM_DEFAULT_MS  5000
#define POLL_DEFAULT_MS  500
#define BATCH_EVENTS_MAX 1000
#define GATHER_MS        20 /* so that the next batch has what is committed meanwhile */
#define PAUSE_MIN_MS     20
#define PAUSE_MAX_MS     1000
#define COUNT_EACH_MS    5000
#define TIMEOUT_MS       1000 /* until a failure is reported; a start or a new leader takes less */
#define STOP_POLL_MS     5
#define REFUSED_MS       3000             /* without a refusal, until all is well again */
#define GIVEN_UP_MS      INT64_C(3600000) /* between tries of what fails for too long */

/* What was read and is not forgotten yet. Its memory is the sink's from sending until the report.
 */
struct announcer_batch {
    struct event_batch batch; /* the first, so that the report leads here */
    struct announcer *announcer;
    size_t count;         /* 0: nothing */
    bool is_sent;         /* and its report was not read */
    bool is_delivered;    /* and has only to be forgotten */
    bool is_done;         /* under the announcer's lock, as the next two */
    enum status status;   /* of the report */
    struct error trouble; /* of the report */
    struct event event;   /* that is being sent */
    struct ledger_event told[BATCH_EVENTS_MAX];
    bool delivered[BATCH_EVENTS_MAX];
};

struct announcer {
    struct announcer_options options;
    char holder[64];
    struct periodic thread;
    _Atomic bool is_stopping; /* nothing more is sent */
    _Atomic bool is_quiet;    /* is stopping, and nothing is on its way */
    pthread_mutex_t lock;
    bool is_stopped; /* there is no thread to wake; under the lock, as the next */
    struct announcer_numbers numbers;
    /* The thread's own. */
    struct announcer_batch *batch;
    size_t batch_max;                 /* events in it */
    struct ledger_event_place cursor; /* everything up to here was delivered, this time round */
    bool has_duty;
    int64_t hold_at_ms;             /* monotonic: when the duty is to be asked for again */
    int64_t count_at_ms;            /* monotonic: when what waits may be counted again */
    int64_t rest_until_ms;          /* monotonic: a wake before then changes nothing */
    int64_t pause_ms;               /* of the next failure */
    int64_t trouble_ms;             /* monotonic: since when nothing is delivered; 0: all is well */
    int64_t refused_ms;             /* monotonic: when one was refused for its own sake */
    struct ledger_sink_state state; /* as the ledger has it */
    bool has_state;                 /* it was read since this process has the duty */
    _Atomic bool is_asked;          /* to try again at once */
};

/* --- state --- */

static enum ledger_sink announcer_outbox(const struct announcer *announcer)
{
    return announcer->options.sink->ops->outbox;
}

/* Whether it fails for longer than the sink is patient. */
static bool announcer_has_given_up(const struct announcer *announcer)
{
    int64_t patience_ms = announcer->options.sink->ops->patience_ms;
    int64_t since_ms = announcer->state.failing_since_ms;

    return patience_ms > 0 && since_ms > 0 && announcer->refused_ms == 0 &&
           clock_wall_ms() - since_ms >= patience_ms;
}

static void announcer_enter(struct announcer *announcer, enum announcer_state state,
                            const char *text)
{
    struct announcer_numbers *numbers = &announcer->numbers;

    pthread_mutex_lock(&announcer->lock);
    enum announcer_state before = numbers->state;
    numbers->state = state;
    snprintf(numbers->text, sizeof(numbers->text), "%.199s", text);
    numbers->failing_since_ms = state == ANNOUNCER_HELD_UP ? announcer->state.failing_since_ms : 0;
    numbers->is_given_up = state == ANNOUNCER_HELD_UP && announcer_has_given_up(announcer);
    if (state == ANNOUNCER_STANDS_BY) {
        numbers->waiting = 0;
        numbers->oldest_at_ms = 0;
    }
    pthread_mutex_unlock(&announcer->lock);
    if (before == state)
        return;
    if (state == ANNOUNCER_HELD_UP)
        log_event(LOG_WARN, "events_held_up",
                  LOG_FIELD("sink", LOG_TEXT(announcer->options.sink->ops->name)),
                  LOG_FIELD("error", LOG_TEXT(text)),
                  LOG_FIELD("next", LOG_TEXT("they wait in the ledger; trying again")));
    else if (before == ANNOUNCER_HELD_UP)
        log_event(LOG_INFO, "events_go_on",
                  LOG_FIELD("sink", LOG_TEXT(announcer->options.sink->ops->name)),
                  LOG_FIELD("here", LOG_FLAG(state == ANNOUNCER_FLOWS)));
}

static void announcer_note_backlog(struct announcer *announcer, int64_t count, int64_t oldest_at_ms)
{
    pthread_mutex_lock(&announcer->lock);
    announcer->numbers.waiting = count;
    announcer->numbers.oldest_at_ms = oldest_at_ms;
    pthread_mutex_unlock(&announcer->lock);
}

/* Counting a long outbox takes time, so it is done now and then. */
static void announcer_count_backlog(struct announcer *announcer)
{
    struct ledger_backlog backlog;
    struct error error;
    int64_t now_ms = clock_monotonic_ms();

    if (now_ms < announcer->count_at_ms)
        return;
    announcer->count_at_ms = now_ms + COUNT_EACH_MS;
    if (ledger_event_backlog(announcer->options.ledger, announcer_outbox(announcer), &backlog,
                             &error) == STATUS_OK)
        announcer_note_backlog(announcer, backlog.count, backlog.oldest_at_ms);
}

/* Notes for all processes since when nothing is delivered, and why; a ledger that does not answer
 * is told later. */
static void announcer_note_state(struct announcer *announcer, int64_t since_ms, const char *text)
{
    struct ledger_sink_state state = announcer->state;
    struct error error;

    if (!announcer->has_duty || !announcer->has_state ||
        (state.failing_since_ms == since_ms && strcmp(state.text, text) == 0))
        return;
    state.failing_since_ms = since_ms;
    snprintf(state.text, sizeof(state.text), "%.199s", text);
    if (ledger_sink_state_put(announcer->options.ledger, announcer_outbox(announcer), &state,
                              &error) == STATUS_OK)
        announcer->state = state;
}

/* Nothing is delivered just now, nor tried again for so long. */
static void announcer_worry(struct announcer *announcer, const char *text, int64_t pause_ms)
{
    int64_t now_ms = clock_monotonic_ms();

    if (announcer->trouble_ms == 0)
        announcer->trouble_ms = now_ms;
    if (now_ms + pause_ms - announcer->trouble_ms < TIMEOUT_MS &&
        announcer->state.failing_since_ms == 0)
        return;
    int64_t since_ms = announcer->state.failing_since_ms;
    announcer_note_state(announcer, since_ms != 0 ? since_ms : clock_wall_ms(), text);
    announcer_enter(announcer, ANNOUNCER_HELD_UP, text);
    announcer_count_backlog(announcer);
}

static void announcer_relax(struct announcer *announcer)
{
    announcer->pause_ms = PAUSE_MIN_MS;
    if (announcer->refused_ms != 0 && clock_monotonic_ms() - announcer->refused_ms < REFUSED_MS)
        return;
    announcer->trouble_ms = 0;
    announcer->refused_ms = 0;
    announcer_note_state(announcer, 0, "");
    announcer_enter(announcer, ANNOUNCER_FLOWS, "ok");
}

/* Until the duty is to be asked for again, at most PAUSE_MAX_MS, or until then. */
static int64_t announcer_pause_ms(const struct announcer *announcer, int64_t until_ms)
{
    int64_t now_ms = clock_monotonic_ms();
    int64_t pause_ms = announcer->hold_at_ms - now_ms;

    if (pause_ms > PAUSE_MAX_MS)
        pause_ms = PAUSE_MAX_MS;
    if (pause_ms > until_ms - now_ms)
        pause_ms = until_ms - now_ms;
    return pause_ms < 0 ? 0 : pause_ms;
}

/* A pause that wakes do not end. */
static void announcer_rest(struct announcer *announcer, int64_t pause_ms)
{
    announcer->rest_until_ms = clock_monotonic_ms() + pause_ms;
}

/* The pause until it is tried again; it grows, and is at least as long as the sink wants. */
static int64_t announcer_fail(struct announcer *announcer, const struct error *error,
                              int64_t wanted_ms)
{
    int64_t pause_ms = announcer->pause_ms;

    announcer->pause_ms = 2 * pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
    if (pause_ms < wanted_ms)
        pause_ms = wanted_ms;
    if (pause_ms < GIVEN_UP_MS && announcer_has_given_up(announcer))
        pause_ms = GIVEN_UP_MS;
    announcer_worry(announcer, error->text, pause_ms);
    announcer_rest(announcer, pause_ms);
    return announcer_pause_ms(announcer, announcer->rest_until_ms);
}

/* --- the duty --- */

/* What is known of the sink, from whoever had the duty before; and whether somebody, perhaps in
 * another process, wants it tried at once. */
static void announcer_read_state(struct announcer *announcer)
{
    struct ledger_sink_state state;
    struct error error;

    if (!announcer->has_duty ||
        (announcer->has_state && announcer->trouble_ms == 0 && announcer->state.text[0] == '\0'))
        return;
    if (ledger_sink_state_get(announcer->options.ledger, announcer_outbox(announcer), &state,
                              &error) != STATUS_OK)
        return;
    if (announcer->has_state && state.asked != announcer->state.asked)
        atomic_store(&announcer->is_asked, true);
    announcer->state = state;
    announcer->has_state = true;
}

/* Takes or renews the duty, when it is time. If the database does not answer, nothing changes: then
 * nothing can be read or dropped either. */
static void announcer_hold(struct announcer *announcer)
{
    int64_t term_ms = announcer->options.term_ms;
    int64_t now_ms = clock_monotonic_ms();
    bool had_duty = announcer->has_duty;
    struct error error = {""};

    if (now_ms < announcer->hold_at_ms)
        return;
    announcer->hold_at_ms = now_ms + term_ms / 3;
    if (ledger_duty_hold(announcer->options.ledger, announcer->options.sink->ops->duty,
                         announcer->holder, term_ms, &announcer->has_duty, &error) != STATUS_OK) {
        announcer->has_duty = had_duty;
        return;
    }
    announcer_read_state(announcer);
    if (announcer->has_duty == had_duty)
        return;
    announcer->has_state = announcer->has_state && announcer->has_duty;
    announcer->cursor = (struct ledger_event_place){0};
    announcer_enter(announcer, announcer->has_duty ? ANNOUNCER_FLOWS : ANNOUNCER_STANDS_BY, "ok");
    log_event(LOG_INFO, announcer->has_duty ? "announcing" : "announcing_elsewhere",
              LOG_FIELD("sink", LOG_TEXT(announcer->options.sink->ops->name)),
              LOG_FIELD("holder", LOG_TEXT(announcer->holder)));
}

/* --- one batch --- */

static void announcer_on_report(struct event_batch *report, enum status status,
                                const struct error *error)
{
    struct announcer_batch *batch = (struct announcer_batch *)(void *)report;
    struct announcer *announcer = batch->announcer;

    pthread_mutex_lock(&announcer->lock);
    batch->status = status;
    if (status != STATUS_OK)
        batch->trouble = *error;
    batch->is_done = true;
    if (!announcer->is_stopped)
        periodic_wake(&announcer->thread);
    pthread_mutex_unlock(&announcer->lock);
}

static const struct event_message *announcer_next(struct event_batch *sent, size_t index)
{
    struct announcer_batch *batch = (struct announcer_batch *)(void *)sent;
    const struct ledger_event *told = &batch->told[index];

    event_write_coupon(&batch->event, &told->coupon, told->changed_at_ms,
                       span_of(told->traceparent));
    return &batch->event.message;
}

/* Reads on behind what was delivered; at the end from the front again, where the policies with the
 * smaller ids may have got new events, or some that were refused. */
static enum status announcer_read(struct announcer *announcer, struct error *error)
{
    struct announcer_batch *batch = announcer->batch;
    enum ledger_sink outbox = announcer_outbox(announcer);
    size_t max = announcer->batch_max;
    enum status status = ledger_events(announcer->options.ledger, outbox, &announcer->cursor,
                                       batch->told, max, &batch->count, error);

    if (status == STATUS_OK && batch->count == 0 && announcer->cursor.policy_id != 0) {
        announcer->cursor = (struct ledger_event_place){0};
        status = ledger_events(announcer->options.ledger, outbox, &announcer->cursor, batch->told,
                               max, &batch->count, error);
    }
    if (status != STATUS_OK)
        batch->count = 0;
    return status;
}

static bool announcer_is_reported(struct announcer *announcer)
{
    pthread_mutex_lock(&announcer->lock);
    bool is_reported = announcer->batch->is_done;
    pthread_mutex_unlock(&announcer->lock);
    return is_reported;
}

/* Drops from the outbox what is delivered: of each policy everything up to its last event that is.
 */
static enum status announcer_forget(struct announcer *announcer, size_t *forgotten,
                                    struct error *error)
{
    const struct announcer_batch *batch = announcer->batch;
    struct ledger_event_place places[BATCH_EVENTS_MAX];
    size_t count = 0;

    *forgotten = 0;
    for (size_t i = 0; i < batch->count; i++) {
        const struct ledger_event_place *place = &batch->told[i].place;
        if (!batch->delivered[i])
            continue;
        if (count == 0 || places[count - 1].policy_id != place->policy_id)
            count++;
        places[count - 1] = *place;
        ++*forgotten;
    }
    if (count == 0)
        return STATUS_OK;
    return ledger_events_drop(announcer->options.ledger, announcer_outbox(announcer), places, count,
                              error);
}

/* Sends the batch to the sink, which will report. */
static void announcer_send(struct announcer *announcer)
{
    struct announcer_batch *batch = announcer->batch;
    struct event_sink *sink = announcer->options.sink;
    struct error error = {""};

    memset(batch->delivered, 0, sizeof(batch->delivered));
    batch->batch = (struct event_batch){.done = announcer_on_report,
                                        .next = announcer_next,
                                        .delivered = batch->delivered,
                                        .is_urgent = atomic_exchange(&announcer->is_asked, false)};
    batch->is_done = false;
    batch->is_sent = true;
    enum status status = sink->ops->send(sink, &batch->batch, batch->count, &error);
    if (status != STATUS_OK)
        announcer_on_report(&batch->batch, status, &error);
    else
        FAULT_POINT("announcer.after_send");
}

/* Reads the sink's report. BUSY: it did not take the batch; UNAVAILABLE: it did not deliver all of
 * it; CONFLICT: the same, and what is behind may be tried. */
static enum status announcer_judge(struct announcer *announcer, struct error *error)
{
    struct announcer_batch *batch = announcer->batch;

    pthread_mutex_lock(&announcer->lock);
    enum status status = batch->status;
    if (status != STATUS_OK)
        *error = batch->trouble;
    announcer->numbers.failed += status != STATUS_OK && status != STATUS_BUSY;
    pthread_mutex_unlock(&announcer->lock);
    if (status == STATUS_OK)
        memset(batch->delivered, true, batch->count);
    return status;
}

/* Goes on behind the batch. A policy whose last events were refused is passed over, or its later
 * ones would come before them. */
static void announcer_step(struct announcer *announcer)
{
    const struct announcer_batch *batch = announcer->batch;

    announcer->cursor = batch->told[batch->count - 1].place;
    if (!batch->delivered[batch->count - 1])
        announcer->cursor.number = INT64_MAX;
}

/* What a report that is not OK leaves to do: the rest is read again, and sent. */
static enum status announcer_put_off(struct announcer *announcer, enum status status,
                                     bool has_delivered, const struct error *why)
{
    announcer->batch->count = 0;
    if (status != STATUS_CONFLICT)
        return status;
    announcer->refused_ms = clock_monotonic_ms();
    announcer_worry(announcer, why->text, 0);
    announcer_rest(announcer, has_delivered ? GATHER_MS : announcer->options.poll_ms);
    return STATUS_OK;
}

/* The sink has reported: what it has delivered is forgotten. */
static enum status announcer_finish(struct announcer *announcer, struct error *error)
{
    struct announcer_batch *batch = announcer->batch;
    size_t count = batch->count;
    size_t forgotten;
    struct error failure = {""};
    enum status status = STATUS_OK;

    if (batch->is_sent)
        status = announcer_judge(announcer, error);
    batch->is_sent = false;
    batch->is_delivered = status == STATUS_OK;
    if (batch->is_delivered)
        FAULT_POINT("announcer.after_delivery");
    if (announcer_forget(announcer, &forgotten, &failure) != STATUS_OK) {
        *error = failure;
        batch->count = batch->is_delivered ? count : 0;
        return STATUS_UNAVAILABLE;
    }
    batch->is_delivered = false;
    FAULT_POINT("announcer.after_forget");
    pthread_mutex_lock(&announcer->lock);
    announcer->numbers.announced += forgotten;
    pthread_mutex_unlock(&announcer->lock);
    if (status == STATUS_OK || status == STATUS_CONFLICT)
        announcer_step(announcer);
    if (status != STATUS_OK)
        return announcer_put_off(announcer, status, forgotten > 0, error);
    batch->count = 0;
    announcer_relax(announcer);
    if (count == announcer->batch_max)
        announcer_count_backlog(announcer);
    else
        announcer_rest(announcer, GATHER_MS);
    return STATUS_OK;
}

/* --- the thread --- */

/* Reads the outbox and sends what is in it. The pause after it. */
static int64_t announcer_turn(struct announcer *announcer)
{
    struct announcer_batch *batch = announcer->batch;
    struct error error = {""};

    if (announcer_read(announcer, &error) != STATUS_OK)
        return announcer_fail(announcer, &error, 0);
    if (batch->count == 0) {
        announcer_note_backlog(announcer, 0, 0);
        announcer_relax(announcer);
        return announcer->options.poll_ms;
    }
    announcer_send(announcer);
    return announcer_pause_ms(announcer, INT64_MAX);
}

static int64_t announcer_run(void *context)
{
    struct announcer *announcer = context;
    struct announcer_batch *batch = announcer->batch;
    struct error error = {""};

    announcer_hold(announcer);
    if (batch->is_sent && !announcer_is_reported(announcer)) {
        announcer_worry(announcer, "what was sent is not confirmed yet", 0);
        return announcer_pause_ms(announcer, INT64_MAX);
    }
    bool has_failed =
        (batch->is_sent || batch->is_delivered) && announcer_finish(announcer, &error) != STATUS_OK;
    if (atomic_load(&announcer->is_stopping)) {
        atomic_store(&announcer->is_quiet, true);
        return PAUSE_MAX_MS;
    }
    if (has_failed)
        return announcer_fail(announcer, &error, batch->batch.pause_ms);
    if (!announcer->has_duty) {
        batch->count = 0; /* Whoever has the duty now tells them. */
        batch->is_delivered = false;
        return announcer_pause_ms(announcer, INT64_MAX);
    }
    if (clock_monotonic_ms() < announcer->rest_until_ms && !atomic_load(&announcer->is_asked))
        return announcer_pause_ms(announcer, announcer->rest_until_ms);
    return announcer_turn(announcer);
}

/* --- life --- */

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
    opened->batch_max = options->sink->ops->batch_max;
    if (opened->batch_max == 0 || opened->batch_max > BATCH_EVENTS_MAX)
        opened->batch_max = BATCH_EVENTS_MAX;
    snprintf(opened->numbers.text, sizeof(opened->numbers.text), "ok");
    random_bytes(&token, sizeof(token));
    if (options->is_alone)
        snprintf(opened->holder, sizeof(opened->holder), "owner");
    else
        snprintf(opened->holder, sizeof(opened->holder), "announcer-%d-%016llx", (int)getpid(),
                 (unsigned long long)token);
    pthread_mutex_init(&opened->lock, NULL);
    enum status status =
        periodic_start(&opened->thread, "announcer", announcer_run, opened, 0, error);
    if (status == STATUS_OK)
        *announcer = opened;
    else
        announcer_close(opened);
    return status;
}

void announcer_wake(struct announcer *announcer)
{
    pthread_mutex_lock(&announcer->lock);
    if (!announcer->is_stopped)
        periodic_wake(&announcer->thread);
    pthread_mutex_unlock(&announcer->lock);
}

void announcer_retry(struct announcer *announcer)
{
    atomic_store(&announcer->is_asked, true);
    announcer_wake(announcer);
}

void announcer_stop(struct announcer *announcer, int64_t timeout_ms)
{
    const struct timespec pause = {.tv_nsec = STOP_POLL_MS * 1000000L};
    int64_t until_ms = clock_monotonic_ms() + timeout_ms;

    if (announcer == NULL)
        return;
    atomic_store(&announcer->is_stopping, true);
    announcer_wake(announcer);
    while (!atomic_load(&announcer->is_quiet) && clock_monotonic_ms() < until_ms)
        nanosleep(&pause, NULL);
    pthread_mutex_lock(&announcer->lock);
    announcer->is_stopped = true;
    pthread_mutex_unlock(&announcer->lock);
    periodic_stop(&announcer->thread);
    if (announcer->has_duty)
        (void)!ledger_duty_release(announcer->options.ledger, announcer->options.sink->ops->duty,
                                   announcer->holder, NULL);
}

void announcer_close(struct announcer *announcer)
{
    if (announcer == NULL)
        return;
    pthread_mutex_destroy(&announcer->lock);
    free(announcer->batch);
    free(announcer);
}

void announcer_count(struct announcer *announcer, struct announcer_numbers *numbers)
{
    pthread_mutex_lock(&announcer->lock);
    *numbers = announcer->numbers;
    pthread_mutex_unlock(&announcer->lock);
}

struct event_sink *announcer_sink(const struct announcer *announcer)
{
    return announcer->options.sink;
}
