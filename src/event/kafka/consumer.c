/* consumer.c: one thread that reads the partitions of a group's member, each from a queue of
 * its own, so that one that waits holds up no other. */
#include "event/kafka/consumer.h"

#include <librdkafka/rdkafka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/periodic.h"

#define IDLE_MS         100
#define COMMIT_AGAIN_MS 500
#define TOPIC_MS        1000 /* for an answer whether the topic is there, and between two questions */
#define REOPEN_MS       5000 /* to leave the group before it is joined again */
#define CLOSE_POLL_MS   5

/* A partition that this member has. */
struct kafka_slot {
    struct kafka_partition partition;
    rd_kafka_queue_t *queue;
    rd_kafka_message_t *messages[KAFKA_PARTITION_MAX];
    bool is_at_work;
    int64_t done_offset;      /* to be committed; -1: nothing yet */
    int64_t committed_offset; /* as the group has it for sure */
    int64_t commit_at_ms;     /* when it is committed again; INT64_MAX: no need */
};

struct kafka_consumer {
    struct kafka_consumer_options options;
    struct periodic thread;
    int64_t stop_at_ms; /* monotonic; set before is_stopping */
    _Atomic bool is_stopping;
    _Atomic bool is_closed; /* nothing happens on the thread any more */
    _Atomic uint64_t consumed;
    _Atomic uint64_t rebalanced;
    /* The thread's own. */
    rd_kafka_t *handle;
    rd_kafka_queue_t *queue;
    struct kafka_slot **slots;
    size_t slot_count;
    size_t slot_capacity;
    bool is_subscribed;
    bool must_reopen;
    bool is_up; /* a broker has answered since all of them were away */
};

void kafka_consumer_wake(struct kafka_consumer *consumer)
{
    periodic_wake(&consumer->thread);
}

/* On a thread of librdkafka's: a queue is not empty any more. */
static void kafka_consumer_on_arrival(rd_kafka_t *handle, void *opaque)
{
    kafka_consumer_wake(opaque);
}

/* --- partitions that come and go --- */

static const char *kafka_consumer_topic(const struct kafka_consumer *consumer)
{
    return consumer->options.kafka->target.topics[consumer->options.topic];
}

static void kafka_slot_drop_messages(struct kafka_slot *slot)
{
    for (size_t i = 0; i < slot->partition.count; i++)
        rd_kafka_message_destroy(slot->messages[i]);
    slot->partition.count = slot->partition.dead_count = 0;
    slot->is_at_work = false;
}

static void kafka_slot_free(struct kafka_consumer *consumer, struct kafka_slot *slot)
{
    if (consumer->options.forget != NULL)
        consumer->options.forget(consumer->options.context, &slot->partition);
    kafka_slot_drop_messages(slot);
    kafka_partition_drop_dead(&slot->partition);
    rd_kafka_queue_cb_event_enable(slot->queue, NULL, NULL);
    rd_kafka_queue_destroy(slot->queue);
    json_reader_free(slot->partition.reader);
    free(slot->partition.work);
    free(slot);
}

/* Its messages come to a queue of their own; to be set before it is assigned. */
static void kafka_consumer_add(struct kafka_consumer *consumer, int32_t partition)
{
    struct kafka_slot *slot = calloc(1, sizeof(*slot));

    ensure(slot != NULL &&
           array_make_room(consumer->slots, consumer->slot_count, consumer->slot_capacity));
    slot->partition = (struct kafka_partition){.consumer = consumer,
                                               .options = &consumer->options,
                                               .partition = partition,
                                               .messages = slot->messages,
                                               .again_at_ms = INT64_MAX,
                                               .reader = json_reader_new(EVENT_VALUE_MAX),
                                               .work = calloc(1, consumer->options.work_size)};
    ensure(slot->partition.reader != NULL && slot->partition.work != NULL);
    slot->done_offset = slot->committed_offset = -1;
    slot->commit_at_ms = INT64_MAX;
    slot->queue =
        rd_kafka_queue_get_partition(consumer->handle, kafka_consumer_topic(consumer), partition);
    ensure(slot->queue != NULL);
    rd_kafka_queue_forward(slot->queue, NULL);
    rd_kafka_queue_cb_event_enable(slot->queue, kafka_consumer_on_arrival, consumer);
    consumer->slots[consumer->slot_count++] = slot;
}

static void kafka_consumer_forget_all(struct kafka_consumer *consumer)
{
    for (size_t i = 0; i < consumer->slot_count; i++)
        kafka_slot_free(consumer, consumer->slots[i]);
    consumer->slot_count = 0;
}

/* The work on partitions that are taken away is dropped: the next member reads them again. */
static void kafka_consumer_on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                                        rd_kafka_topic_partition_list_t *partitions, void *opaque)
{
    struct kafka_consumer *consumer = opaque;

    kafka_consumer_forget_all(consumer);
    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        for (int i = 0; i < partitions->cnt; i++)
            kafka_consumer_add(consumer, partitions->elems[i].partition);
        rd_kafka_assign(handle, partitions);
        atomic_fetch_add(&consumer->rebalanced, 1);
        log_event(LOG_INFO, "partitions_assigned",
                  LOG_FIELD("topic", LOG_TEXT(kafka_consumer_topic(consumer))),
                  LOG_FIELD("partitions", LOG_I64(partitions->cnt)));
    } else {
        FAULT_POINT("kafka.revoked");
        rd_kafka_assign(handle, NULL);
    }
}

static struct kafka_slot *kafka_consumer_slot(struct kafka_consumer *consumer, int32_t partition)
{
    for (size_t i = 0; i < consumer->slot_count; i++)
        if (consumer->slots[i]->partition.partition == partition)
            return consumer->slots[i];
    return NULL;
}

/* --- offsets --- */

static void kafka_consumer_commit(struct kafka_consumer *consumer, struct kafka_slot *slot)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

    rd_kafka_topic_partition_list_add(list, kafka_consumer_topic(consumer),
                                      slot->partition.partition)
        ->offset = slot->done_offset;
    rd_kafka_resp_err_t code = rd_kafka_commit(consumer->handle, list, 1);
    slot->commit_at_ms =
        code == RD_KAFKA_RESP_ERR_NO_ERROR ? INT64_MAX : clock_monotonic_ms() + COMMIT_AGAIN_MS;
    rd_kafka_topic_partition_list_destroy(list);
}

static void kafka_consumer_on_commit(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                                     rd_kafka_topic_partition_list_t *offsets, void *opaque)
{
    struct kafka_consumer *consumer = opaque;

    if (code == RD_KAFKA_RESP_ERR__NO_OFFSET || offsets == NULL)
        return;
    for (int i = 0; i < offsets->cnt; i++) {
        const rd_kafka_topic_partition_t *one = &offsets->elems[i];
        struct kafka_slot *slot = kafka_consumer_slot(consumer, one->partition);
        if (slot == NULL)
            continue;
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR && one->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            slot->committed_offset = one->offset;
            consumer->is_up = true;
        } else if (slot->commit_at_ms == INT64_MAX && one->offset >= slot->done_offset) {
            slot->commit_at_ms = clock_monotonic_ms() + COMMIT_AGAIN_MS;
        }
    }
    FAULT_POINT("kafka.after_offset");
}

/* --- partitions --- */

/* Reads the next batch. Errors of the partition are no messages; librdkafka recovers from them. */
static void kafka_slot_read(struct kafka_consumer *consumer, struct kafka_slot *slot)
{
    ssize_t read =
        rd_kafka_consume_batch_queue(slot->queue, 0, slot->messages, KAFKA_PARTITION_MAX);

    slot->partition.count = 0;
    for (ssize_t i = 0; i < read; i++)
        if (slot->messages[i]->err == RD_KAFKA_RESP_ERR_NO_ERROR)
            slot->messages[slot->partition.count++] = slot->messages[i];
        else
            rd_kafka_message_destroy(slot->messages[i]);
    slot->is_at_work = slot->partition.count > 0;
    slot->partition.again_at_ms = 0;
    if (slot->is_at_work)
        consumer->is_up = true;
}

/* True when there may be more to do at once. */
static bool kafka_slot_step(struct kafka_consumer *consumer, struct kafka_slot *slot, bool reads)
{
    int64_t now_ms = clock_monotonic_ms();

    if (slot->commit_at_ms <= now_ms)
        kafka_consumer_commit(consumer, slot);
    if (!slot->is_at_work && reads)
        kafka_slot_read(consumer, slot);
    if (!slot->is_at_work ||
        consumer->options.work(consumer->options.context, &slot->partition, now_ms) != KAFKA_DONE)
        return false;
    slot->done_offset = slot->messages[slot->partition.count - 1]->offset + 1;
    atomic_fetch_add(&consumer->consumed, slot->partition.count);
    kafka_slot_drop_messages(slot);
    FAULT_POINT("kafka.after_ack");
    kafka_consumer_commit(consumer, slot);
    return true;
}

/* Until something is to be done without being woken. */
static int64_t kafka_consumer_pause_ms(const struct kafka_consumer *consumer)
{
    int64_t now_ms = clock_monotonic_ms();
    int64_t next_ms = now_ms + IDLE_MS;

    for (size_t i = 0; i < consumer->slot_count; i++) {
        const struct kafka_slot *slot = consumer->slots[i];
        if (slot->is_at_work && slot->partition.again_at_ms < next_ms)
            next_ms = slot->partition.again_at_ms;
    }
    return next_ms > now_ms ? next_ms - now_ms : 0;
}

/* --- the group --- */

static void kafka_consumer_on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque)
{
    struct kafka_consumer *consumer = opaque;

    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        consumer->is_up = false;
    if (code != RD_KAFKA_RESP_ERR__FATAL)
        return; /* The watch reports that brokers are away. */
    log_event(LOG_WARN, "consumer_reopened", LOG_FIELD("error", LOG_TEXT(reason)));
    consumer->must_reopen = true;
}

/* Handles rebalances, errors and committed offsets; messages have queues of their own. A message
 * that comes here nevertheless is out of order: everything is read again. */
static void kafka_consumer_poll(struct kafka_consumer *consumer)
{
    rd_kafka_message_t *message;

    while (!consumer->must_reopen && (message = rd_kafka_consumer_poll(consumer->handle, 0))) {
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            log_event(LOG_WARN, "consumer_reopened",
                      LOG_FIELD("error", LOG_TEXT("a message came out of its order")));
            consumer->must_reopen = true;
        }
        rd_kafka_message_destroy(message);
    }
}

static enum status kafka_consumer_make(struct kafka_consumer *consumer, struct error *error)
{
    const struct kafka_target *target = &consumer->options.kafka->target;
    char session_ms[16];
    char heartbeat_ms[16];
    const struct kafka_setting settings[] = {
        {"group.id", consumer->options.group},
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
        {"auto.offset.reset", "earliest"},
        {"partition.assignment.strategy", "range"},
        {"session.timeout.ms", session_ms}, /* One that is killed keeps its partitions so long. */
        {"heartbeat.interval.ms", heartbeat_ms},
        {"fetch.wait.max.ms", "100"},
        {"fetch.error.backoff.ms", "100"},
        {"queued.min.messages", "5000"},
        {"queued.max.messages.kbytes", "16384"},
        {NULL, NULL},
    };
    rd_kafka_conf_t *conf = NULL;

    snprintf(session_ms, sizeof(session_ms), "%d", target->session_ms);
    snprintf(heartbeat_ms, sizeof(heartbeat_ms), "%d", target->session_ms / 3);
    enum status status = kafka_client_configure(target, settings, consumer, &conf, error);
    if (status != STATUS_OK)
        return status;
    rd_kafka_conf_set_rebalance_cb(conf, kafka_consumer_on_rebalance);
    rd_kafka_conf_set_offset_commit_cb(conf, kafka_consumer_on_commit);
    rd_kafka_conf_set_error_cb(conf, kafka_consumer_on_error);
    status = kafka_client_new(KAFKA_CONSUMER, conf, &consumer->handle, error);
    if (status != STATUS_OK)
        return status;
    rd_kafka_poll_set_consumer(consumer->handle);
    consumer->queue = rd_kafka_queue_get_consumer(consumer->handle);
    consumer->must_reopen = consumer->is_subscribed = false;
    return STATUS_OK;
}

static void kafka_consumer_unmake(struct kafka_consumer *consumer)
{
    int64_t until_ms = atomic_load(&consumer->is_stopping) ? consumer->stop_at_ms
                                                           : clock_monotonic_ms() + REOPEN_MS;

    if (consumer->is_up) /* The group cannot be left while all brokers are away. */
        kafka_client_leave(consumer->handle, until_ms);
    kafka_consumer_forget_all(consumer);
    rd_kafka_queue_cb_event_enable(consumer->queue, NULL, NULL);
    rd_kafka_queue_destroy(consumer->queue);
    kafka_client_end(consumer->handle, until_ms);
    consumer->handle = NULL;
}

/* False: not yet. librdkafka would notice only after a while that a missing topic was created. */
static bool kafka_consumer_subscribe(struct kafka_consumer *consumer)
{
    const char *topic = kafka_consumer_topic(consumer);
    size_t partition_count;
    bool is_led;

    if (kafka_client_find(consumer->handle, topic, TOPIC_MS, &partition_count, &is_led) != 0 ||
        partition_count == 0)
        return false;
    consumer->is_up = consumer->is_subscribed = true;
    rd_kafka_queue_cb_event_enable(consumer->queue, kafka_consumer_on_arrival, consumer);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, RD_KAFKA_PARTITION_UA);
    consumer->must_reopen =
        rd_kafka_subscribe(consumer->handle, list) != RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_topic_partition_list_destroy(list);
    return true;
}

/* --- the thread --- */

/* Whether it is to stop, and everything is committed or it is too late for that. */
static bool kafka_consumer_is_over(const struct kafka_consumer *consumer)
{
    if (!atomic_load(&consumer->is_stopping))
        return false;
    for (size_t i = 0; i < consumer->slot_count && clock_monotonic_ms() < consumer->stop_at_ms;
         i++) {
        const struct kafka_slot *slot = consumer->slots[i];
        if (slot->is_at_work || slot->committed_offset < slot->done_offset)
            return false;
    }
    return true;
}

/* One round of all partitions; the pause until the next. */
static int64_t kafka_consumer_work(struct kafka_consumer *consumer)
{
    bool goes_on = false;
    bool reads = !atomic_load(&consumer->is_stopping);

    kafka_consumer_poll(consumer);
    for (size_t i = 0; i < consumer->slot_count && !consumer->must_reopen; i++)
        goes_on = kafka_slot_step(consumer, consumer->slots[i], reads) || goes_on;
    return goes_on ? 0 : kafka_consumer_pause_ms(consumer);
}

static int64_t kafka_consumer_run(void *context)
{
    struct kafka_consumer *consumer = context;
    int64_t pause_ms = TOPIC_MS;

    if (atomic_load(&consumer->is_closed))
        return pause_ms;
    if (!atomic_load(&consumer->is_stopping) && consumer->handle == NULL &&
        kafka_consumer_make(consumer, NULL) != STATUS_OK)
        return pause_ms;
    if (consumer->handle != NULL && (consumer->is_subscribed || kafka_consumer_subscribe(consumer)))
        pause_ms = kafka_consumer_work(consumer);
    bool is_over = kafka_consumer_is_over(consumer);
    if (consumer->handle != NULL && (consumer->must_reopen || is_over)) {
        kafka_consumer_unmake(consumer);
        pause_ms = 0;
    }
    atomic_store(&consumer->is_closed, is_over);
    return pause_ms;
}

/* --- life --- */

enum status kafka_consumer_open(struct kafka_consumer **consumer,
                                const struct kafka_consumer_options *options, struct error *error)
{
    struct kafka_consumer *opened = calloc(1, sizeof(*opened));

    *consumer = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for Kafka's consumer");
    opened->options = *options;
    enum status status = kafka_consumer_make(opened, error);
    if (status == STATUS_OK)
        status =
            periodic_start(&opened->thread, "kafka-read", kafka_consumer_run, opened, 0, error);
    if (status != STATUS_OK) {
        if (opened->handle != NULL)
            kafka_consumer_unmake(opened);
        free(opened);
        return status;
    }
    *consumer = opened;
    return STATUS_OK;
}

void kafka_consumer_stop(struct kafka_consumer *consumer, int64_t timeout_ms)
{
    const struct timespec pause = {.tv_nsec = CLOSE_POLL_MS * 1000000L};

    if (consumer == NULL || !consumer->thread.is_started)
        return;
    consumer->stop_at_ms = clock_monotonic_ms() + timeout_ms;
    atomic_store(&consumer->is_stopping, true);
    kafka_consumer_wake(consumer);
    while (!atomic_load(&consumer->is_closed))
        nanosleep(&pause, NULL);
    periodic_stop(&consumer->thread);
}

void kafka_consumer_close(struct kafka_consumer *consumer)
{
    if (consumer == NULL)
        return;
    kafka_consumer_stop(consumer, 0);
    free(consumer->slots);
    free(consumer);
}

void kafka_consumer_count(struct kafka_consumer *consumer, struct kafka_consumer_numbers *numbers)
{
    numbers->consumed = atomic_load(&consumer->consumed);
    numbers->rebalanced = atomic_load(&consumer->rebalanced);
}
