/* kafka_way.c: one policy's claims on their way into the topic, and the mark of how far they are
 * there for sure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/random.h"
#include "relay/event.h"
#include "relay/kafka_parts.h"

#define ON_THE_WAY_MAX  5000 /* of one policy, so that the others have room */
#define OUTSTANDING_MAX 5000
#define SWEEP_MS        5000 /* between looks for what is pending though it was published */

struct kafka_way;

/* A batch that Kafka has not reported yet. */
struct kafka_flight {
    struct kafka_batch batch;
    struct relay_kafka *kafka;
    struct kafka_way *way;
    struct kafka_flight *next;
    const struct claim *claims; /* while it is being sent */
    size_t count;
    int64_t last_seq;
    bool is_landed;
    bool is_confirmed;
    struct event event;
};

/* A term of one steward. The first part is the owner's, the second under the relay's lock. */
struct kafka_way {
    char token[33];     /* "": the gate does not have the policy */
    int64_t sent_seq;   /* all that was pending up to here was sent */
    int64_t marked_seq; /* all that was pending up to here is in the topic, as the gate knows */
    bool is_sweeping;   /* what lingers up to sweep_seq goes to the ledger directly */
    int64_t sweep_seq;
    int64_t swept_at_ms; /* monotonic */
    struct kafka_goal sweep_goal;
    struct kafka_goal pass_goal;

    struct kafka_flight *first; /* in the order of sending */
    struct kafka_flight *last;
    size_t on_the_way;     /* claims */
    int64_t confirmed_seq; /* all that was pending up to here is in the topic */
    bool has_failed;       /* what was sent behind confirmed_seq is to be sent again */
    bool is_left;          /* to be freed with the last flight */
};

static struct relay_kafka *kafka_of(struct relay *relay)
{
    return (struct relay_kafka *)relay;
}

/* --- flights --- */

static const struct event_message *kafka_flight_next(struct kafka_batch *batch, size_t index)
{
    struct kafka_flight *flight = (struct kafka_flight *)batch;
    const struct claim *claim = &flight->claims[index];
    char traceparent[TRACEPARENT_SIZE];
    bool has_trace = traces_find(flight->kafka->traces, &claim->request_id, traceparent);

    event_write_claim(&flight->event, claim, has_trace ? span_of(traceparent) : (struct span){0});
    return &flight->event.message;
}

/* Under the lock: takes the flights that landed off the front. Behind one that failed nothing
 * counts. */
static struct kafka_flight *kafka_way_land(struct relay_kafka *kafka, struct kafka_way *way)
{
    struct kafka_flight *landed = way->first;
    struct kafka_flight **end = &landed;

    while (*end != NULL && (*end)->is_landed) {
        struct kafka_flight *flight = *end;
        way->on_the_way -= flight->count;
        if (flight->is_confirmed && !way->has_failed) {
            way->confirmed_seq = flight->last_seq;
            atomic_fetch_add_explicit(&kafka->confirmed, flight->count, memory_order_relaxed);
        } else {
            way->has_failed = true;
            atomic_fetch_add_explicit(&kafka->failed, flight->count, memory_order_relaxed);
        }
        end = &flight->next;
    }
    way->first = *end;
    if (way->first == NULL)
        way->last = NULL;
    *end = NULL;
    return landed;
}

static void kafka_flight_done(struct kafka_batch *batch, enum status status,
                              const struct error *error)
{
    struct kafka_flight *flight = (struct kafka_flight *)batch;
    struct relay_kafka *kafka = flight->kafka;
    struct kafka_way *way = flight->way;

    (void)error; /* The producer tells it when it is made anew. */
    FAULT_POINT("kafka.after_delivery");
    pthread_mutex_lock(&kafka->lock);
    flight->is_landed = true;
    flight->is_confirmed = status == STATUS_OK;
    struct kafka_flight *landed = kafka_way_land(kafka, way);
    bool is_over = way->is_left && way->first == NULL;
    pthread_mutex_unlock(&kafka->lock);
    while (landed != NULL) {
        struct kafka_flight *next = landed->next;
        free(landed);
        landed = next;
    }
    if (is_over)
        free(way);
}

/* Under the lock. */
static void kafka_way_add(struct kafka_way *way, struct kafka_flight *flight)
{
    if (way->last == NULL)
        way->first = flight;
    else
        way->last->next = flight;
    way->last = flight;
    way->on_the_way += flight->count;
}

/* Under the lock: the last one, which was not taken. */
static void kafka_way_remove(struct kafka_way *way, struct kafka_flight *flight)
{
    struct kafka_flight **link = &way->first;
    struct kafka_flight *before = NULL;

    while (*link != flight) {
        before = *link;
        link = &before->next;
    }
    *link = NULL;
    way->last = before;
    way->on_the_way -= flight->count;
}

static enum status kafka_way_send(struct relay_kafka *kafka, struct kafka_way *way,
                                  const struct claim *claims, size_t count, struct error *error)
{
    struct kafka_flight *flight = malloc(sizeof(*flight));

    if (flight == NULL)
        return error_set(error, STATUS_BUSY, "no memory to publish");
    flight->batch.done = kafka_flight_done;
    flight->batch.next = kafka_flight_next;
    flight->kafka = kafka;
    flight->way = way;
    flight->next = NULL;
    flight->claims = claims;
    flight->count = count;
    flight->last_seq = claims[count - 1].seq;
    flight->is_landed = flight->is_confirmed = false;
    pthread_mutex_lock(&kafka->lock);
    kafka_way_add(way, flight);
    pthread_mutex_unlock(&kafka->lock);
    FAULT_POINT("kafka.before_publish");
    enum status status =
        kafka_producer_send(kafka->producer, KAFKA_COUPON_PENDED, &flight->batch, count, error);
    if (status == STATUS_OK) {
        FAULT_POINT("kafka.after_publish");
        atomic_fetch_add_explicit(&kafka->published, count, memory_order_relaxed);
        return STATUS_OK;
    }
    pthread_mutex_lock(&kafka->lock);
    kafka_way_remove(way, flight);
    pthread_mutex_unlock(&kafka->lock);
    free(flight);
    return status;
}

/* --- the mark --- */

/* Tells the gate how far it is. CONFLICT: another worker has begun. */
static enum status kafka_way_mark(struct relay_kafka *kafka, const struct relay_way *way,
                                  struct error *error)
{
    struct kafka_way *state = way->state;

    pthread_mutex_lock(&kafka->lock);
    int64_t confirmed_seq = state->confirmed_seq;
    pthread_mutex_unlock(&kafka->lock);
    if (confirmed_seq <= state->marked_seq || state->token[0] == '\0')
        return STATUS_OK;
    FAULT_POINT("kafka.before_mark");
    enum status status = kafka->outlet.published(kafka->outlet.context, way->policy_id,
                                                 state->token, confirmed_seq, error);
    if (status == STATUS_OK)
        state->marked_seq = confirmed_seq;
    return status;
}

/* After a failure, when everything is reported: begins again behind what is confirmed. True when
 * it does. `*is_waiting`: not everything is reported. */
static bool kafka_way_recover(struct relay_kafka *kafka, struct relay_way *way, bool *is_waiting)
{
    struct kafka_way *state = way->state;

    pthread_mutex_lock(&kafka->lock);
    bool recovers = state->has_failed && state->first == NULL;
    *is_waiting = state->has_failed && !recovers;
    if (recovers) {
        state->has_failed = false;
        state->sent_seq = state->confirmed_seq;
    }
    pthread_mutex_unlock(&kafka->lock);
    if (recovers && !state->is_sweeping)
        way->cursor = state->sent_seq;
    return recovers;
}

/* --- what lingers --- */

/* Claims that are pending though they were published and the group is past them: the gate missed
 * that the ledger has them, or the topic lost them. The ledger knows, and takes each once. True
 * when the cursor was set back to look for them. */
static bool kafka_way_sweep(struct relay_kafka *kafka, struct relay_way *way, int64_t now_ms)
{
    struct kafka_way *state = way->state;

    if (state->is_sweeping || now_ms - state->swept_at_ms < SWEEP_MS || state->marked_seq == 0)
        return false;
    if (!state->sweep_goal.is_set)
        state->sweep_seq = state->marked_seq;
    if (!kafka_watch_reached(kafka->watch, &state->sweep_goal))
        return false;
    state->swept_at_ms = now_ms;
    state->is_sweeping = true;
    way->cursor = 0;
    return true;
}

static void kafka_way_end_sweep(struct relay_way *way)
{
    struct kafka_way *state = way->state;

    state->is_sweeping = false;
    way->cursor = state->sent_seq;
}

static enum status kafka_way_carry_lingering(struct relay_kafka *kafka, struct relay_way *way,
                                             struct claim *claims, size_t count,
                                             struct error *error)
{
    const struct relay_outlet *outlet = &kafka->outlet;
    struct kafka_way *state = way->state;
    size_t lingering_count = 0;

    while (lingering_count < count && claims[lingering_count].seq <= state->sweep_seq)
        lingering_count++;
    if (lingering_count > 0 &&
        outlet->outstanding(outlet->context, way->policy_id) > OUTSTANDING_MAX)
        return error_set(error, STATUS_BUSY, "the ledger has much to do");
    if (lingering_count < count)
        kafka_way_end_sweep(way);
    else
        way->cursor = claims[count - 1].seq;
    lingering_count = outlet->sift(outlet->context, claims, lingering_count);
    if (lingering_count > 0) {
        log_event(LOG_INFO, "lingering_issued", LOG_FIELD("policy", LOG_I64(way->policy_id)),
                  LOG_FIELD("claims", LOG_I64(lingering_count)));
        outlet->issue(outlet->context, claims, lingering_count);
    }
    return STATUS_OK;
}

/* --- slots --- */

enum status relay_kafka_begin(struct relay *relay, struct relay_way *way, struct error *error)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct request_id token;
    int64_t mark = 0;
    struct kafka_way *state = calloc(1, sizeof(*state));

    if (state == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to publish");
    random_bytes(&token, sizeof(token));
    for (size_t i = 0; i < sizeof(token.bytes); i++)
        snprintf(state->token + 2 * i, 3, "%02x", token.bytes[i]);
    enum status status =
        kafka->outlet.publish(kafka->outlet.context, way->policy_id, state->token, &mark, error);
    if (status == STATUS_NOT_FOUND) /* The gate has lost it: nothing is pending in it. */
        state->token[0] = '\0';
    else if (status != STATUS_OK) {
        free(state);
        return status;
    }
    relay_kafka_leave(relay, way);
    state->sent_seq = state->marked_seq = state->confirmed_seq = mark;
    state->swept_at_ms = clock_monotonic_ms();
    way->state = state;
    way->cursor = mark;
    return STATUS_OK;
}

enum status relay_kafka_carry(struct relay *relay, struct relay_way *way, struct claim *claims,
                              size_t count, struct error *error)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct kafka_way *state = way->state;
    size_t done_count = 0;
    bool is_waiting;
    enum status status = kafka_way_mark(kafka, way, error);

    if (status != STATUS_OK)
        return status;
    if (state->is_sweeping)
        return kafka_way_carry_lingering(kafka, way, claims, count, error);
    if (kafka_way_recover(kafka, way, &is_waiting) ||
        kafka_way_sweep(kafka, way, clock_monotonic_ms()))
        return STATUS_OK; /* Read again from there. */
    while (done_count < count && claims[done_count].seq <= state->sent_seq)
        done_count++;
    if (done_count == count) {
        way->cursor = state->sent_seq;
        return STATUS_OK;
    }
    pthread_mutex_lock(&kafka->lock);
    bool is_full = state->on_the_way + count > ON_THE_WAY_MAX;
    pthread_mutex_unlock(&kafka->lock);
    if (is_waiting || is_full || !kafka_producer_has_room(kafka->producer, count))
        return error_set(error, STATUS_BUSY, "Kafka does not take more just now");
    status = kafka_way_send(kafka, state, claims + done_count, count - done_count, error);
    if (status == STATUS_OK)
        way->cursor = state->sent_seq = claims[count - 1].seq;
    return status;
}

bool relay_kafka_rest(struct relay *relay, struct relay_way *way, int64_t pending_count)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct kafka_way *state = way->state;
    struct error error;
    bool is_waiting;

    if (state == NULL)
        return false;
    (void)!kafka_way_mark(kafka, way, &error); /* Whoever is the steward carries on. */
    if (state->is_sweeping) {
        kafka_way_end_sweep(way);
        return true;
    }
    if (kafka_way_recover(kafka, way, &is_waiting))
        return true;
    if (pending_count == 0) {
        state->sweep_goal.is_set = false;
        return false;
    }
    return kafka_way_sweep(kafka, way, clock_monotonic_ms());
}

enum status relay_kafka_pass(struct relay *relay, struct relay_way *way, struct claim *claims,
                             size_t count, struct error *error)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct kafka_way *state = way->state;
    bool is_waiting;

    state->is_sweeping = false;
    state->swept_at_ms = clock_monotonic_ms();
    if (count > 0) {
        enum status status = relay_kafka_carry(relay, way, claims, count, error);
        return status == STATUS_OK ? STATUS_BUSY : status;
    }
    (void)!kafka_way_mark(kafka, way, error);
    if (kafka_way_recover(kafka, way, &is_waiting))
        return STATUS_BUSY;
    pthread_mutex_lock(&kafka->lock);
    is_waiting = is_waiting || state->first != NULL;
    pthread_mutex_unlock(&kafka->lock);
    if (is_waiting) {
        state->pass_goal.is_set = false;
        return error_set(error, STATUS_BUSY, "Kafka has not confirmed what was published");
    }
    bool is_new = !state->pass_goal.is_set;
    if (kafka_watch_reached(kafka->watch, &state->pass_goal))
        return STATUS_OK;
    if (is_new)
        log_event(LOG_INFO, "arming_waits", LOG_FIELD("policy", LOG_I64(way->policy_id)),
                  LOG_FIELD("for", LOG_TEXT("published claims that the ledger does not have yet")));
    return error_set(error, STATUS_BUSY, "published claims are still on their way");
}

void relay_kafka_leave(struct relay *relay, struct relay_way *way)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct kafka_way *state = way->state;
    struct error error;

    if (state == NULL)
        return;
    (void)!kafka_way_mark(kafka, way, &error); /* Else it is published again. */
    pthread_mutex_lock(&kafka->lock);
    state->is_left = true;
    bool is_over = state->first == NULL;
    pthread_mutex_unlock(&kafka->lock);
    if (is_over)
        free(state);
    way->state = NULL;
    way->cursor = 0;
}
