/* kafka.c: opens the relay through Kafka; one policy's claims on their way into the topic, and the
 * mark of how far they are there for sure. */
#include "relay/kafka.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/digits.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/random.h"
#include "event/event.h"
#include "relay/parts.h"

#define ON_THE_WAY_MAX 5000 /* of one policy, so that the others have room */
#define SWEEP_MS       5000 /* between searches for what is pending though it was published */
#define FLUSH_POLL_MS  5

struct publish_stream;

/* A batch that Kafka has not reported yet. */
struct publish_batch {
    struct event_batch batch;
    struct relay_kafka *kafka;
    struct publish_stream *stream;
    struct publish_batch *next;
    const struct claim *claims; /* while it is being sent */
    size_t count;
    int64_t last_seq;
    bool is_reported;
    bool is_confirmed;
    struct event event;
};

/* A term of one steward. The first part is the owner's, the second under the relay's lock. */
struct publish_stream {
    char token[33];     /* "": the gate does not have the policy */
    int64_t sent_seq;   /* all that was pending up to here was sent */
    int64_t marked_seq; /* all that was pending up to here is in the topic, as the gate knows */
    bool is_sweeping;   /* what lingers up to sweep_seq goes to the ledger directly */
    int64_t sweep_seq;
    int64_t swept_at_ms; /* monotonic */
    struct kafka_goal sweep_goal;
    struct kafka_goal pass_goal;

    struct publish_batch *first; /* in the order of sending */
    struct publish_batch **end;  /* where the next one goes */
    size_t in_flight;            /* claims */
    int64_t confirmed_seq;       /* all that was pending up to here is in the topic */
    bool has_failed;             /* what was sent behind confirmed_seq is to be sent again */
    bool is_left;                /* to be freed with the last report */
};

static struct relay_kafka *kafka_of(struct relay *relay)
{
    return (struct relay_kafka *)relay;
}

/* --- batches in flight --- */

static const struct event_message *publish_batch_next(struct event_batch *batch, size_t index)
{
    struct publish_batch *sent = (struct publish_batch *)batch;
    const struct claim *claim = &sent->claims[index];
    char traceparent[TRACEPARENT_SIZE];
    bool has_trace = traces_find(sent->kafka->traces, &claim->request_id, traceparent);

    event_write_claim(&sent->event, claim, has_trace ? span_of(traceparent) : (struct span){0});
    return &sent->event.message;
}

/* Under the lock: takes the batches that are reported off the front. Behind one that failed nothing
 * counts. */
static struct publish_batch *publish_stream_collect(struct relay_kafka *kafka,
                                                    struct publish_stream *stream)
{
    struct publish_batch *reported = stream->first;
    struct publish_batch **end = &reported;

    while (*end != NULL && (*end)->is_reported) {
        struct publish_batch *sent = *end;
        stream->in_flight -= sent->count;
        if (sent->is_confirmed && !stream->has_failed) {
            stream->confirmed_seq = sent->last_seq;
            atomic_fetch_add_explicit(&kafka->confirmed, sent->count, memory_order_relaxed);
        } else {
            stream->has_failed = true;
            atomic_fetch_add_explicit(&kafka->failed, sent->count, memory_order_relaxed);
        }
        end = &sent->next;
    }
    stream->first = *end;
    if (stream->first == NULL)
        stream->end = &stream->first;
    *end = NULL;
    return reported;
}

static void publish_batch_done(struct event_batch *batch, enum status status,
                               const struct error *error)
{
    struct publish_batch *sent = (struct publish_batch *)batch;
    struct relay_kafka *kafka = sent->kafka;
    struct publish_stream *stream = sent->stream;

    (void)error; /* The producer tells it when it is made anew. */
    FAULT_POINT("kafka.after_delivery");
    pthread_mutex_lock(&kafka->lock);
    sent->is_reported = true;
    sent->is_confirmed = status == STATUS_OK;
    struct publish_batch *reported = publish_stream_collect(kafka, stream);
    bool is_over = stream->is_left && stream->first == NULL;
    pthread_mutex_unlock(&kafka->lock);
    while (reported != NULL) {
        struct publish_batch *next = reported->next;
        free(reported);
        reported = next;
    }
    if (is_over)
        free(stream);
}

/* Under the lock: the last one, which was not taken. */
static void publish_stream_remove(struct publish_stream *stream, const struct publish_batch *sent)
{
    stream->end = &stream->first;
    while (*stream->end != sent)
        stream->end = &(*stream->end)->next;
    *stream->end = NULL;
    stream->in_flight -= sent->count;
}

static enum status publish_stream_send(struct relay_kafka *kafka, struct publish_stream *stream,
                                       const struct claim *claims, size_t count,
                                       struct error *error)
{
    struct publish_batch *sent = malloc(sizeof(*sent));

    if (sent == NULL)
        return error_set(error, STATUS_BUSY, "no memory to publish");
    *sent =
        (struct publish_batch){.batch = {.done = publish_batch_done, .next = publish_batch_next},
                               .kafka = kafka,
                               .stream = stream,
                               .claims = claims,
                               .count = count,
                               .last_seq = claims[count - 1].seq};
    pthread_mutex_lock(&kafka->lock);
    *stream->end = sent;
    stream->end = &sent->next;
    stream->in_flight += count;
    pthread_mutex_unlock(&kafka->lock);
    FAULT_POINT("kafka.before_publish");
    enum status status = kafka_producer_send(kafka->kafka->producer, KAFKA_COUPON_PENDED,
                                             &sent->batch, count, error);
    if (status == STATUS_OK) {
        FAULT_POINT("kafka.after_publish");
        atomic_fetch_add_explicit(&kafka->published, count, memory_order_relaxed);
        return STATUS_OK;
    }
    pthread_mutex_lock(&kafka->lock);
    publish_stream_remove(stream, sent);
    pthread_mutex_unlock(&kafka->lock);
    free(sent);
    return status;
}

/* --- the mark --- */

/* Tells the gate how far it is. CONFLICT: another worker has begun. */
static enum status publish_stream_mark(struct relay_kafka *kafka, const struct relay_stream *stream,
                                       struct error *error)
{
    struct publish_stream *state = stream->state;

    pthread_mutex_lock(&kafka->lock);
    int64_t confirmed_seq = state->confirmed_seq;
    pthread_mutex_unlock(&kafka->lock);
    if (confirmed_seq <= state->marked_seq || state->token[0] == '\0')
        return STATUS_OK;
    FAULT_POINT("kafka.before_mark");
    enum status status = kafka->outlet.published(kafka->outlet.context, stream->policy_id,
                                                 state->token, confirmed_seq, error);
    if (status == STATUS_OK)
        state->marked_seq = confirmed_seq;
    return status;
}

/* After a failure, when everything is reported: begins again behind what is confirmed. True when
 * it does. `*is_waiting`: not everything is reported. */
static bool publish_stream_recover(struct relay_kafka *kafka, struct relay_stream *stream,
                                   bool *is_waiting)
{
    struct publish_stream *state = stream->state;

    pthread_mutex_lock(&kafka->lock);
    bool recovers = state->has_failed && state->first == NULL;
    *is_waiting = state->has_failed && !recovers;
    if (recovers) {
        state->has_failed = false;
        state->sent_seq = state->confirmed_seq;
    }
    pthread_mutex_unlock(&kafka->lock);
    if (recovers && !state->is_sweeping)
        stream->cursor = state->sent_seq;
    return recovers;
}

/* --- what lingers --- */

/* Claims that are pending though they were published and the group is past them: the gate missed
 * that the ledger has them, or the topic lost them. The ledger knows, and takes each once. True
 * when the cursor was set back to look for them. */
static bool publish_stream_sweep(struct relay_kafka *kafka, struct relay_stream *stream,
                                 int64_t now_ms)
{
    struct publish_stream *state = stream->state;

    if (state->is_sweeping || now_ms - state->swept_at_ms < SWEEP_MS || state->marked_seq == 0)
        return false;
    if (!state->sweep_goal.is_set)
        state->sweep_seq = state->marked_seq;
    if (!kafka_watch_reached(kafka->kafka->watch, &state->sweep_goal))
        return false;
    state->swept_at_ms = now_ms;
    state->is_sweeping = true;
    stream->cursor = 0;
    return true;
}

static void publish_stream_end_sweep(struct relay_stream *stream)
{
    struct publish_stream *state = stream->state;

    state->is_sweeping = false;
    stream->cursor = state->sent_seq;
}

static enum status publish_stream_carry_lingering(struct relay_kafka *kafka,
                                                  struct relay_stream *stream, struct claim *claims,
                                                  size_t count, struct error *error)
{
    const struct relay_outlet *outlet = &kafka->outlet;
    struct publish_stream *state = stream->state;
    size_t lingering_count = 0;

    while (lingering_count < count && claims[lingering_count].seq <= state->sweep_seq)
        lingering_count++;
    if (lingering_count > 0 &&
        outlet->outstanding(outlet->context, stream->policy_id) > RELAY_OUTSTANDING_MAX)
        return error_set(error, STATUS_BUSY, "the ledger has much to do");
    if (lingering_count < count)
        publish_stream_end_sweep(stream);
    else
        stream->cursor = claims[count - 1].seq;
    lingering_count = outlet->filter(outlet->context, claims, lingering_count);
    if (lingering_count > 0) {
        log_event(LOG_INFO, "lingering_issued", LOG_FIELD("policy", LOG_I64(stream->policy_id)),
                  LOG_FIELD("claims", LOG_I64(lingering_count)));
        outlet->issue(outlet->context, claims, lingering_count);
    }
    return STATUS_OK;
}

/* --- slots --- */

static void relay_kafka_leave(struct relay *relay, struct relay_stream *stream)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct publish_stream *state = stream->state;
    struct error error;

    if (state == NULL)
        return;
    (void)!publish_stream_mark(kafka, stream, &error); /* Else it is published again. */
    pthread_mutex_lock(&kafka->lock);
    state->is_left = true;
    bool is_over = state->first == NULL;
    pthread_mutex_unlock(&kafka->lock);
    if (is_over)
        free(state);
    stream->state = NULL;
    stream->cursor = 0;
}

static enum status relay_kafka_begin(struct relay *relay, struct relay_stream *stream,
                                     struct error *error)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct request_id token;
    int64_t mark = 0;
    struct publish_stream *state = calloc(1, sizeof(*state));

    if (state == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to publish");
    random_bytes(&token, sizeof(token));
    hex_write(state->token, token.bytes, sizeof(token.bytes));
    enum status status =
        kafka->outlet.publish(kafka->outlet.context, stream->policy_id, state->token, &mark, error);
    if (status == STATUS_NOT_FOUND) /* The gate has lost it: nothing is pending in it. */
        state->token[0] = '\0';
    else if (status != STATUS_OK) {
        free(state);
        return status;
    }
    relay_kafka_leave(relay, stream);
    state->sent_seq = state->marked_seq = state->confirmed_seq = mark;
    state->swept_at_ms = clock_monotonic_ms();
    state->end = &state->first;
    stream->state = state;
    stream->cursor = mark;
    return STATUS_OK;
}

static enum status relay_kafka_carry(struct relay *relay, struct relay_stream *stream,
                                     struct claim *claims, size_t count, struct error *error)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct publish_stream *state = stream->state;
    size_t done_count = 0;
    bool is_waiting;
    enum status status = publish_stream_mark(kafka, stream, error);

    if (status != STATUS_OK)
        return status;
    if (state->is_sweeping)
        return publish_stream_carry_lingering(kafka, stream, claims, count, error);
    if (publish_stream_recover(kafka, stream, &is_waiting) ||
        publish_stream_sweep(kafka, stream, clock_monotonic_ms()))
        return STATUS_OK; /* Read again from there. */
    while (done_count < count && claims[done_count].seq <= state->sent_seq)
        done_count++;
    if (done_count == count) {
        stream->cursor = state->sent_seq;
        return STATUS_OK;
    }
    pthread_mutex_lock(&kafka->lock);
    bool is_full = state->in_flight + count > ON_THE_WAY_MAX;
    pthread_mutex_unlock(&kafka->lock);
    if (is_waiting || is_full)
        return error_set(error, STATUS_BUSY, "Kafka does not take more just now");
    status = publish_stream_send(kafka, state, claims + done_count, count - done_count, error);
    if (status == STATUS_OK)
        stream->cursor = state->sent_seq = claims[count - 1].seq;
    return status;
}

static bool relay_kafka_rest(struct relay *relay, struct relay_stream *stream,
                             int64_t pending_count)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct publish_stream *state = stream->state;
    struct error error;
    bool is_waiting;

    if (state == NULL)
        return false;
    (void)!publish_stream_mark(kafka, stream, &error); /* Whoever is the steward carries on. */
    if (state->is_sweeping) {
        publish_stream_end_sweep(stream);
        return true;
    }
    if (publish_stream_recover(kafka, stream, &is_waiting))
        return true;
    if (pending_count == 0) {
        state->sweep_goal.is_set = false;
        return false;
    }
    return publish_stream_sweep(kafka, stream, clock_monotonic_ms());
}

static enum status relay_kafka_pass(struct relay *relay, struct relay_stream *stream,
                                    struct claim *claims, size_t count, struct error *error)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct publish_stream *state = stream->state;
    bool is_waiting;

    state->is_sweeping = false;
    state->swept_at_ms = clock_monotonic_ms();
    if (count > 0) {
        enum status status = relay_kafka_carry(relay, stream, claims, count, error);
        return status == STATUS_OK ? STATUS_BUSY : status;
    }
    (void)!publish_stream_mark(kafka, stream, error);
    if (publish_stream_recover(kafka, stream, &is_waiting))
        return STATUS_BUSY;
    pthread_mutex_lock(&kafka->lock);
    is_waiting = is_waiting || state->first != NULL;
    pthread_mutex_unlock(&kafka->lock);
    if (is_waiting) {
        state->pass_goal.is_set = false;
        return error_set(error, STATUS_BUSY, "Kafka has not confirmed what was published");
    }
    return relay_kafka_drained(kafka->kafka, &state->pass_goal, stream->policy_id, error);
}

static const struct relay_ops relay_kafka_ops = {
    .begin = relay_kafka_begin,
    .carry = relay_kafka_carry,
    .rest = relay_kafka_rest,
    .pass = relay_kafka_pass,
    .leave = relay_kafka_leave,
};

/* --- life --- */

enum status relay_kafka_open(struct relay_kafka **relay, struct kafka *kafka,
                             const struct relay_outlet *outlet, struct traces *traces,
                             struct error *error)
{
    struct relay_kafka *opened = calloc(1, sizeof(*opened));

    *relay = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the relay");
    opened->relay.ops = &relay_kafka_ops;
    opened->kafka = kafka;
    opened->outlet = *outlet;
    opened->traces = traces;
    pthread_mutex_init(&opened->lock, NULL);
    struct kafka_consumer_options options = {
        .kafka = kafka,
        .topic = KAFKA_COUPON_PENDED,
        .dead_topic = KAFKA_COUPON_PENDED_DLQ,
        .group = kafka->target.issuer_group,
        .work_size = relay_kafka_work_size,
        .work = relay_kafka_work,
        .forget = relay_kafka_forget,
        .context = opened,
    };
    enum status status = kafka_consumer_open(&opened->consumer, &options, error);
    if (status != STATUS_OK) {
        relay_kafka_close(opened);
        return status;
    }
    *relay = opened;
    return STATUS_OK;
}

/* What the brokers have not confirmed in time is published again by whoever comes next. */
void relay_kafka_stop(struct relay_kafka *relay, int64_t timeout_ms)
{
    const struct timespec pause = {.tv_nsec = FLUSH_POLL_MS * 1000000L};
    struct kafka_producer_numbers numbers = {.in_flight = 1};
    int64_t until_ms = clock_monotonic_ms() + timeout_ms;

    if (relay == NULL)
        return;
    kafka_consumer_stop(relay->consumer, timeout_ms);
    while (numbers.in_flight > 0 && clock_monotonic_ms() < until_ms) {
        kafka_producer_count(relay->kafka->producer, &numbers);
        if (numbers.in_flight > 0)
            nanosleep(&pause, NULL);
    }
}

void relay_kafka_close(struct relay_kafka *relay)
{
    if (relay == NULL)
        return;
    kafka_consumer_close(relay->consumer);
    pthread_mutex_destroy(&relay->lock);
    free(relay);
}

struct relay *relay_kafka_publisher(struct relay_kafka *relay)
{
    return &relay->relay;
}

enum status relay_kafka_drained(struct kafka *kafka, struct kafka_goal *goal, int64_t policy_id,
                                struct error *error)
{
    bool is_new = !goal->is_set;

    if (kafka_watch_reached(kafka->watch, goal))
        return STATUS_OK;
    if (is_new)
        log_event(LOG_INFO, "arming_waits", LOG_FIELD("policy", LOG_I64(policy_id)),
                  LOG_FIELD("for", LOG_TEXT("published claims that the ledger does not have yet")));
    return error_set(error, STATUS_BUSY, "published claims are still on their stream");
}

static void relay_kafka_write_lag(struct buffer *out, const struct kafka_view *view)
{
    metrics_family(out, "dibs_relay_lag", METRICS_GAUGE,
                   "Messages of a partition that the group has not done with.");
    for (size_t i = 0; i < view->partition_count; i++) {
        char labels[32];
        int64_t lag = view->ends[i] - view->committed[i];
        snprintf(labels, sizeof(labels), "partition=\"%zu\"", i);
        metrics_sample_u64(out, "dibs_relay_lag", labels, lag > 0 ? (uint64_t)lag : 0);
    }
}

void relay_kafka_metrics(struct kafka *kafka, struct relay_kafka *relay, struct buffer *out)
{
    static const struct relay_kafka none;
    const struct relay_kafka *counted = relay != NULL ? relay : &none;
    struct kafka_consumer_numbers consumer = {0};
    struct kafka_view view;

    if (kafka == NULL)
        return;
    kafka_watch_read(kafka->watch, &view);
    if (relay != NULL)
        kafka_consumer_count(relay->consumer, &consumer);
    metrics_single(out, "dibs_relay_up", METRICS_GAUGE, "1 when the brokers answer.", view.is_up);
    metrics_single(out, "dibs_relay_published_total", METRICS_COUNTER, "Claims sent to Kafka.",
                   atomic_load(&counted->published));
    metrics_single(out, "dibs_relay_confirmed_total", METRICS_COUNTER,
                   "Claims that Kafka has confirmed.", atomic_load(&counted->confirmed));
    metrics_single(out, "dibs_relay_failed_total", METRICS_COUNTER,
                   "Claims that Kafka did not confirm, which are sent again.",
                   atomic_load(&counted->failed));
    metrics_single(out, "dibs_relay_consumed_total", METRICS_COUNTER,
                   "Messages read whose claims the ledger has.", consumer.consumed);
    metrics_single(out, "dibs_relay_dead_total", METRICS_COUNTER,
                   "Messages put into the dead-letter topic.", atomic_load(&counted->dead));
    metrics_single(out, "dibs_relay_rebalances_total", METRICS_COUNTER,
                   "Times that partitions came to this worker or went.", consumer.rebalanced);
    relay_kafka_write_lag(out, &view);
}
