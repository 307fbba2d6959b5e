/* kafka.c: opens the parts of the relay through Kafka, and tells how it stands. */
#include "relay/kafka.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "relay/direct.h"
#include "relay/kafka_parts.h"

#define FLUSH_MS      500 /* for what is still on its way when everything ends */
#define FLUSH_LOOK_MS 5

static struct relay_kafka *kafka_of(struct relay *relay)
{
    return (struct relay_kafka *)relay;
}

static enum status relay_kafka_run(struct relay *relay, const struct relay_outlet *outlet,
                                   struct error *error)
{
    struct relay_kafka *kafka = kafka_of(relay);

    ensure(kafka->use == RELAY_CARRIES);
    kafka->outlet = *outlet;
    struct kafka_consumer_options options = {
        .target = &kafka->target,
        .topic = KAFKA_COUPON_PENDED,
        .group = kafka->target.issuer_group,
        .work = relay_kafka_work,
        .forget = relay_kafka_forget,
        .context = kafka,
    };
    enum status status =
        kafka->direct == NULL ? STATUS_OK : relay_run(kafka->direct, outlet, error);
    return status == STATUS_OK ? kafka_consumer_open(&kafka->consumer, &options, error) : status;
}

/* --- how it stands --- */

/* People who claim need no broker: of those who serve them it is only told. */
static bool relay_kafka_is_ready(struct relay *relay, struct error *words)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct kafka_producer_numbers producer = {.is_ready = true};
    struct kafka_view view;

    kafka_watch_read(kafka->watch, &view);
    if (kafka->producer != NULL)
        kafka_producer_count(kafka->producer, &producer);
    int64_t lag = kafka_view_lag(&view);
    if (!view.is_up)
        error_set(words, STATUS_OK, "%s", view.words);
    else if (!producer.is_ready)
        error_set(words, STATUS_OK, "the topics are not there yet");
    else if (lag > 0)
        error_set(words, STATUS_OK, "ok, lag %lld", (long long)lag);
    else
        error_set(words, STATUS_OK, "ok");
    return !kafka->is_vital || (view.is_up && producer.is_ready);
}

static bool relay_kafka_count(struct relay *relay, struct relay_numbers *numbers)
{
    struct relay_kafka *kafka = kafka_of(relay);
    struct kafka_producer_numbers producer = {0};
    struct kafka_consumer_numbers consumer = {0};
    struct kafka_view view;

    kafka_watch_read(kafka->watch, &view);
    if (kafka->producer != NULL)
        kafka_producer_count(kafka->producer, &producer);
    if (kafka->consumer != NULL)
        kafka_consumer_count(kafka->consumer, &consumer);
    *numbers = (struct relay_numbers){
        .is_up = view.is_up,
        .published = atomic_load(&kafka->published),
        .confirmed = atomic_load(&kafka->confirmed),
        .failed = atomic_load(&kafka->failed),
        .consumed = consumer.consumed,
        .dead = atomic_load(&kafka->dead),
        .rebalanced = consumer.rebalanced,
        .recreated = producer.recreated,
        .on_the_way = producer.on_the_way,
    };
    for (size_t i = 0; i < view.partition_count && i < RELAY_PARTITIONS_MAX; i++) {
        int64_t lag = view.ends[i] - view.committed[i];
        numbers->lags[numbers->partition_count++] = lag > 0 ? lag : 0;
    }
    return true;
}

/* --- life --- */

/* What the brokers have not confirmed in time is published again by whoever comes next. */
static void relay_kafka_stop(struct relay *relay, int64_t timeout_ms)
{
    struct relay_kafka *kafka = kafka_of(relay);
    const struct timespec pause = {.tv_nsec = FLUSH_LOOK_MS * 1000000L};
    struct kafka_producer_numbers numbers = {.on_the_way = 1};
    int64_t until_ms = clock_monotonic_ms() + timeout_ms;

    kafka_consumer_stop(kafka->consumer, timeout_ms);
    while (kafka->producer != NULL && numbers.on_the_way > 0 && clock_monotonic_ms() < until_ms) {
        kafka_producer_count(kafka->producer, &numbers);
        if (numbers.on_the_way > 0)
            nanosleep(&pause, NULL);
    }
}

static void relay_kafka_close(struct relay *relay)
{
    struct relay_kafka *kafka = kafka_of(relay);

    kafka_consumer_stop(kafka->consumer, 0);
    kafka_producer_close(kafka->producer, FLUSH_MS); /* It may still wake the consumer. */
    kafka_consumer_close(kafka->consumer);
    kafka_watch_close(kafka->watch);
    relay_close(kafka->direct);
    kafka_target_release(&kafka->target);
    pthread_mutex_destroy(&kafka->lock);
    free(kafka);
}

static const struct relay_ops relay_kafka_ops = {
    .name = "kafka",
    .run = relay_kafka_run,
    .begin = relay_kafka_begin,
    .carry = relay_kafka_carry,
    .rest = relay_kafka_rest,
    .pass = relay_kafka_pass,
    .leave = relay_kafka_leave,
    .settled = relay_kafka_settled,
    .is_ready = relay_kafka_is_ready,
    .count = relay_kafka_count,
    .stop = relay_kafka_stop,
    .close = relay_kafka_close,
};

static const struct relay_ops relay_kafka_direct_ops = {
    .name = "kafka",
    .run = relay_kafka_run,
    .begin = relay_kafka_direct_begin,
    .carry = relay_kafka_direct_carry,
    .rest = relay_kafka_direct_rest,
    .pass = relay_kafka_direct_pass,
    .leave = relay_kafka_direct_leave,
    .settled = relay_kafka_settled,
    .is_ready = relay_kafka_is_ready,
    .count = relay_kafka_count,
    .stop = relay_kafka_stop,
    .close = relay_kafka_close,
};

enum status relay_kafka_open(struct relay **relay, const struct relay_options *options,
                             struct error *error)
{
    struct relay_kafka *kafka = calloc(1, sizeof(*kafka));

    if (kafka == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the relay");
    enum status status = kafka_target_init(&kafka->target, options->url, options->password, error);
    if (status != STATUS_OK) {
        free(kafka);
        return status;
    }
    /* Messages and their headers are many small blocks that one thread allocates and another frees.
     * Kept apart in fast bins, all of them would be merged again and again. */
    if (options->use == RELAY_CARRIES)
        mallopt(M_MXFAST, 0);
    kafka->relay.ops = kafka->target.claims_are_direct ? &relay_kafka_direct_ops : &relay_kafka_ops;
    kafka->use = options->use;
    kafka->traces = options->traces;
    kafka->is_vital = options->is_vital && !kafka->target.claims_are_direct;
    pthread_mutex_init(&kafka->lock, NULL);
    if (kafka->target.claims_are_direct)
        status = relay_direct_open(&kafka->direct, error);
    if (status == STATUS_OK)
        status = kafka_watch_open(&kafka->watch, &kafka->target, error);
    if (status == STATUS_OK && options->use != RELAY_WATCHES)
        status = kafka_producer_open(&kafka->producer, &kafka->target, error);
    if (status != STATUS_OK) {
        relay_kafka_close(&kafka->relay);
        return status;
    }
    *relay = &kafka->relay;
    return STATUS_OK;
}

static bool relay_is_kafka(const struct relay *relay)
{
    return relay->ops == &relay_kafka_ops || relay->ops == &relay_kafka_direct_ops;
}

struct kafka_producer *relay_kafka_producer(struct relay *relay)
{
    return relay_is_kafka(relay) ? kafka_of(relay)->producer : NULL;
}

const struct kafka_target *relay_kafka_target(struct relay *relay)
{
    return relay_is_kafka(relay) ? &kafka_of(relay)->target : NULL;
}
