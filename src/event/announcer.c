/* announcer.c: the sinks by their URLs; read the outbox, send, wait until it is delivered, forget.
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
#include "base/metrics.h"
#include "base/periodic.h"
#include "base/random.h"
#include "event/event.h"

#define DUTY             "announcer"
#define TERM_DEFAULT_MS  5000
#define POLL_DEFAULT_MS  500
#define BATCH_EVENTS_MAX 1000
#define GATHER_MS        20 /* so that the next batch has what is committed meanwhile */
#define PAUSE_MIN_MS     20
#define PAUSE_MAX_MS     1000
#define COUNT_EACH_MS    5000
#define TIMEOUT_MS       1000 /* until a failure is reported; a start or a new leader takes less */
#define STOP_POLL_MS     5

/* The batch on its way to one sink. */
struct announcer_delivery {
    struct event_batch batch; /* the first, so that the report leads here */
    struct announcer *announcer;
    struct event_sink *sink;
    bool is_delivered;    /* the thread's own */
    bool is_done;         /* under the announcer's lock, as the next two */
    enum status status;   /* of the report */
    struct error trouble; /* of the report */
    struct event event;   /* that is being sent */
};

/* What was read and is not forgotten yet. Its memory is the sinks' from sending until all have
 * reported. */
struct announcer_batch {
    size_t count; /* 0: nothing */
    bool is_sent; /* and not all sinks' reports were read */
    struct ledger_event told[BATCH_EVENTS_MAX];
    struct announcer_delivery deliveries[EVENT_SINKS_MAX];
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
    struct ledger_event_place cursor; /* everything up to here was delivered, this time round */
    bool has_duty;
    int64_t hold_at_ms;    /* monotonic: when the duty is to be asked for again */
    int64_t count_at_ms;   /* monotonic: when what waits may be counted again */
    int64_t rest_until_ms; /* monotonic: a wake before then changes nothing */
    int64_t pause_ms;      /* of the next failure */
    int64_t trouble_ms;    /* monotonic: since when nothing is delivered; 0: all is well */
};

/* --- sinks --- */

#define EVENT_SINK_ROW(scheme, open) {scheme, open},

static const struct event_sink_kind {
    const char *scheme;
    enum status (*open)(struct event_sink **sink, const struct event_sink_options *options,
                        struct error *error);
} event_sink_kinds[] = {EVENT_SINK_KINDS(EVENT_SINK_ROW)};

static const struct event_sink_kind *event_sink_kind_of(const char *url)
{
    size_t length = strcspn(url, ":");

    for (size_t i = 0; i < sizeof(event_sink_kinds) / sizeof(event_sink_kinds[0]); i++)
        if (strlen(event_sink_kinds[i].scheme) == length &&
            strncmp(url, event_sink_kinds[i].scheme, length) == 0)
            return &event_sink_kinds[i];
    return NULL;
}

bool event_sink_exists(const char *url)
{
    return event_sink_kind_of(url) != NULL;
}

enum status event_sink_open(struct event_sink **sink, const struct event_sink_options *options,
                            struct error *error)
{
    const struct event_sink_kind *kind = event_sink_kind_of(options->url);

    *sink = NULL;
    ensure(kind != NULL);
    return kind->open(sink, options, error);
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

/* Counting a long outbox takes time, so it is done now and then. */
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
    if (now_ms - announcer->trouble_ms < TIMEOUT_MS)
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

/* A pause that wakes do not end. */
static int64_t announcer_rest(struct announcer *announcer, int64_t pause_ms)
{
    announcer->rest_until_ms = clock_monotonic_ms() + pause_ms;
    return pause_ms;
}

/* The pause until it is tried again; it grows. */
static int64_t announcer_fail(struct announcer *announcer, const struct error *error)
{
    int64_t pause_ms = announcer->pause_ms;

    announcer_worry(announcer, error->text);
    announcer->pause_ms = 2 * pause_ms < PAUSE_MAX_MS ? 2 * pause_ms : PAUSE_MAX_MS;
    return announcer_rest(announcer, pause_ms);
}

/* --- the duty --- */

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

static void announcer_on_report(struct event_batch *report, enum status status,
                                const struct error *error)
{
    struct announcer_delivery *delivery = (struct announcer_delivery *)(void *)report;
    struct announcer *announcer = delivery->announcer;

    pthread_mutex_lock(&announcer->lock);
    delivery->status = status;
    if (status != STATUS_OK)
        delivery->trouble = *error;
    delivery->is_done = true;
    if (!announcer->is_stopped)
        periodic_wake(&announcer->thread);
    pthread_mutex_unlock(&announcer->lock);
}

static const struct event_message *announcer_next(struct event_batch *sent, size_t index)
{
    struct announcer_delivery *delivery = (struct announcer_delivery *)(void *)sent;
    const struct ledger_event *told = &delivery->announcer->batch->told[index];

    event_write_coupon(&delivery->event, &told->coupon, told->changed_at_ms,
                       span_of(told->traceparent));
    return &delivery->event.message;
}

/* Reads on behind what was delivered; at the end from the front again, where the policies with the
 * smaller ids may have got new events. */
static enum status announcer_read(struct announcer *announcer, struct error *error)
{
    struct announcer_batch *batch = announcer->batch;

    for (size_t i = 0; i < announcer->options.sink_count; i++)
        batch->deliveries[i].is_delivered = false;
    enum status status = ledger_events(announcer->options.ledger, &announcer->cursor, batch->told,
                                       BATCH_EVENTS_MAX, &batch->count, error);

    if (status == STATUS_OK && batch->count == 0 && announcer->cursor.policy_id != 0) {
        announcer->cursor = (struct ledger_event_place){0};
        status = ledger_events(announcer->options.ledger, &announcer->cursor, batch->told,
                               BATCH_EVENTS_MAX, &batch->count, error);
    }
    if (status != STATUS_OK)
        batch->count = 0;
    return status;
}

static bool announcer_is_reported(struct announcer *announcer)
{
    bool is_reported = true;

    pthread_mutex_lock(&announcer->lock);
    for (size_t i = 0; i < announcer->options.sink_count; i++)
        is_reported = is_reported && announcer->batch->deliveries[i].is_done;
    pthread_mutex_unlock(&announcer->lock);
    return is_reported;
}

/* Drops the batch from the outbox: of each policy everything up to its last event in it. */
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

/* Sends the batch to the sinks that have not delivered it yet; each of them will report. */
static void announcer_send(struct announcer *announcer)
{
    struct announcer_batch *batch = announcer->batch;
    bool is_taken = false;

    for (size_t i = 0; i < announcer->options.sink_count; i++) {
        struct announcer_delivery *delivery = &batch->deliveries[i];
        if (delivery->is_delivered)
            continue;
        delivery->batch = (struct event_batch){.done = announcer_on_report, .next = announcer_next};
        delivery->is_done = false;
        struct error error = {""};
        enum status status =
            delivery->sink->ops->send(delivery->sink, &delivery->batch, batch->count, &error);
        if (status != STATUS_OK)
            announcer_on_report(&delivery->batch, status, &error);
        is_taken = is_taken || status == STATUS_OK;
    }
    batch->is_sent = true;
    if (is_taken)
        FAULT_POINT("announcer.after_send");
}

/* Reads the sinks' reports. BUSY: one did not take the batch; UNAVAILABLE: one did not deliver it.
 */
static enum status announcer_judge(struct announcer *announcer, struct error *error)
{
    enum status status = STATUS_OK;

    pthread_mutex_lock(&announcer->lock);
    for (size_t i = 0; i < announcer->options.sink_count; i++) {
        struct announcer_delivery *delivery = &announcer->batch->deliveries[i];
        delivery->is_delivered = delivery->status == STATUS_OK;
        if (delivery->is_delivered)
            continue;
        status = delivery->status;
        *error = delivery->trouble;
        announcer->numbers.failed += status != STATUS_BUSY;
    }
    pthread_mutex_unlock(&announcer->lock);
    return status;
}

/* Every sink has reported: what all of them have delivered is forgotten. */
static enum status announcer_finish(struct announcer *announcer, struct error *error)
{
    struct announcer_batch *batch = announcer->batch;

    batch->is_sent = false;
    enum status status = announcer_judge(announcer, error);
    if (status != STATUS_OK)
        return status;
    FAULT_POINT("announcer.after_delivery");
    status = announcer_forget(announcer, error);
    if (status != STATUS_OK)
        return status;
    FAULT_POINT("announcer.after_forget");
    pthread_mutex_lock(&announcer->lock);
    announcer->numbers.announced += batch->count;
    pthread_mutex_unlock(&announcer->lock);
    announcer_relax(announcer);
    if (batch->count == BATCH_EVENTS_MAX)
        announcer_count_backlog(announcer);
    else
        announcer_rest(announcer, GATHER_MS);
    batch->count = 0;
    return STATUS_OK;
}

/* --- the thread --- */

/* Until the duty is to be asked for again, at most PAUSE_MAX_MS. */
static int64_t announcer_hold_pause_ms(const struct announcer *announcer)
{
    int64_t pause_ms = announcer->hold_at_ms - clock_monotonic_ms();
    return pause_ms < 0 ? 0 : pause_ms < PAUSE_MAX_MS ? pause_ms : PAUSE_MAX_MS;
}

/* Reads the outbox, unless there is still a batch to deliver, and sends it. The pause after it. */
static int64_t announcer_turn(struct announcer *announcer)
{
    struct announcer_batch *batch = announcer->batch;
    struct error error = {""};

    if (batch->count == 0 && announcer_read(announcer, &error) != STATUS_OK)
        return announcer_fail(announcer, &error);
    if (batch->count == 0) {
        announcer_note_backlog(announcer, 0, 0);
        announcer_relax(announcer);
        return announcer->options.poll_ms;
    }
    announcer_send(announcer);
    return announcer_hold_pause_ms(announcer);
}

static int64_t announcer_run(void *context)
{
    struct announcer *announcer = context;
    struct announcer_batch *batch = announcer->batch;
    struct error error = {""};

    announcer_hold(announcer);
    if (batch->is_sent && !announcer_is_reported(announcer)) {
        announcer_worry(announcer, "what was sent is not confirmed yet");
        return announcer_hold_pause_ms(announcer);
    }
    bool has_failed = batch->is_sent && announcer_finish(announcer, &error) != STATUS_OK;
    if (atomic_load(&announcer->is_stopping)) {
        atomic_store(&announcer->is_quiet, true);
        return PAUSE_MAX_MS;
    }
    if (has_failed)
        return announcer_fail(announcer, &error);
    if (!announcer->has_duty) {
        batch->count = 0; /* Whoever has the duty now tells them. */
        return announcer_hold_pause_ms(announcer);
    }
    int64_t rest_ms = announcer->rest_until_ms - clock_monotonic_ms();
    return rest_ms > 0 ? rest_ms : announcer_turn(announcer);
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
    ensure(options->sink_count <= EVENT_SINKS_MAX);
    for (size_t i = 0; i < options->sink_count; i++) {
        opened->batch->deliveries[i].announcer = opened;
        opened->batch->deliveries[i].sink = options->sinks[i];
    }
    snprintf(opened->numbers.words, sizeof(opened->numbers.words), "ok");
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
        (void)!ledger_duty_release(announcer->options.ledger, DUTY, announcer->holder, NULL);
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

void announcer_metrics(struct announcer *announcer, struct buffer *out)
{
    struct announcer_numbers numbers;

    announcer_count(announcer, &numbers);
    int64_t age_ms = numbers.oldest_at_ms == 0 ? 0 : clock_wall_ms() - numbers.oldest_at_ms;
    metrics_single(out, "dibs_events_announcer", METRICS_GAUGE,
                   "1 in the process that publishes events; the others stand by.",
                   numbers.state != ANNOUNCER_STANDS_BY);
    metrics_single(out, "dibs_events_total", METRICS_COUNTER,
                   "Events of coupons that were delivered.", numbers.announced);
    metrics_single(out, "dibs_events_failed_total", METRICS_COUNTER,
                   "Batches of events that were not delivered, and are sent again.",
                   numbers.failed);
    metrics_single(out, "dibs_events_waiting", METRICS_GAUGE,
                   "Events in the outbox, as last counted.", (uint64_t)numbers.waiting);
    metrics_family(out, "dibs_events_oldest_seconds", METRICS_GAUGE,
                   "How long the oldest event has waited.");
    metrics_sample(out, "dibs_events_oldest_seconds", NULL, age_ms < 0 ? 0 : (double)age_ms / 1000);
    for (size_t i = 0; i < announcer->options.sink_count; i++) {
        struct event_sink *sink = announcer->batch->deliveries[i].sink;
        sink->ops->metrics(sink, out);
    }
}
