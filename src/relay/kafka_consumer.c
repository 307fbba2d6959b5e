/* kafka_consumer.c: one thread that reads the partitions of a group's member, each from a queue of
 * its own, so that one that waits holds up no other. */
#include "relay/kafka_consumer.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "relay/kafka_end.h"

#define IDLE_MS         100
#define COMMIT_AGAIN_MS 500
#define TOPIC_MS        1000 /* for an answer whether the topic is there, and between two questions */
#define REOPEN_MS       5000 /* to leave the group before it is joined again */

/* A partition that this member has. */
struct kafka_slot {
    struct kafka_lane lane;
    rd_kafka_queue_t *queue;
    rd_kafka_message_t *messages[KAFKA_LANE_MAX];
    bool is_at_work;
    int64_t done_offset;      /* to be committed; -1: nothing yet */
    int64_t committed_offset; /* as the group has it for sure */
    int64_t commit_at_ms;     /* when it is committed again; INT64_MAX: no need */
};

struct kafka_consumer {
    struct kafka_consumer_options options;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool is_woken; /* under the lock, as the next two */
    bool is_stopping;
    int64_t stop_at_ms; /* monotonic */
    /* The thread's own. */
    rd_kafka_t *handle;
    rd_kafka_queue_t *queue;
    struct kafka_slot **slots;
    size_t slot_count;
    bool must_reopen;
    bool is_up; /* a broker has answered since all of them were away */
    _Atomic size_t partition_count;
    _Atomic uint64_t consumed;
    _Atomic uint64_t rebalanced;
};

/* --- waking --- */

void kafka_consumer_wake(struct kafka_consumer *consumer)
{
    pthread_mutex_lock(&consumer->lock);
    consumer->is_woken = true;
    pthread_cond_signal(&consumer->work);
    pthread_mutex_unlock(&consumer->lock);
}

/* On a thread of librdkafka's: a queue is not empty any more. */
static void kafka_consumer_on_arrival(rd_kafka_t *handle, void *opaque)
{
    (void)handle;
    kafka_consumer_wake(opaque);
}

static void kafka_consumer_wait(struct kafka_consumer *consumer, int64_t until_ms)
{
    struct timespec until = clock_deadline_at_ms(until_ms);

    pthread_mutex_lock(&consumer->lock);
    while (!consumer->is_woken &&
           pthread_cond_timedwait(&consumer->work, &consumer->lock, &until) == 0)
        ;
    consumer->is_woken = false;
    pthread_mutex_unlock(&consumer->lock);
}

/* --- partitions that come and go --- */

static const char *kafka_consumer_topic(const struct kafka_consumer *consumer)
{
    return consumer->options.target->topics[consumer->options.topic];
}

static void kafka_slot_drop_messages(struct kafka_slot *slot)
{
    for (size_t i = 0; i < slot->lane.count; i++)
        rd_kafka_message_destroy(slot->messages[i]);
    slot->lane.count = 0;
    slot->is_at_work = false;
}

static void kafka_slot_free(struct kafka_consumer *consumer, struct kafka_slot *slot)
{
    consumer->options.forget(consumer->options.context, &slot->lane);
    kafka_slot_drop_messages(slot);
    rd_kafka_queue_cb_event_enable(slot->queue, NULL, NULL);
    rd_kafka_queue_destroy(slot->queue);
    free(slot);
}

/* Its messages come to a queue of their own; to be set before it is assigned. */
static void kafka_consumer_add(struct kafka_consumer *consumer, int32_t partition)
{
    struct kafka_slot *slot = calloc(1, sizeof(*slot));
    struct kafka_slot **grown =
        realloc(consumer->slots, (consumer->slot_count + 1) * sizeof(struct kafka_slot *));

    ensure(slot != NULL && grown != NULL);
    slot->lane = (struct kafka_lane){
        .partition = partition, .messages = slot->messages, .again_at_ms = INT64_MAX};
    slot->done_offset = slot->committed_offset = -1;
    slot->commit_at_ms = INT64_MAX;
    slot->queue =
        rd_kafka_queue_get_partition(consumer->handle, kafka_consumer_topic(consumer), partition);
    ensure(slot->queue != NULL);
    rd_kafka_queue_forward(slot->queue, NULL);
    rd_kafka_queue_cb_event_enable(slot->queue, kafka_consumer_on_arrival, consumer);
    consumer->slots = grown;
    consumer->slots[consumer->slot_count++] = slot;
}

static void kafka_consumer_forget_all(struct kafka_consumer *consumer)
{
    for (size_t i = 0; i < consumer->slot_count; i++)
        kafka_slot_free(consumer, consumer->slots[i]);
    consumer->slot_count = 0;
    atomic_store(&consumer->partition_count, 0);
}

/* What is at work of partitions that go is forgotten: whoever gets them reads it again. */
static void kafka_consumer_on_rebalance(rd_kafka_t *handle, rd_kafka_resp_err_t code,
                                        rd_kafka_topic_partition_list_t *partitions, void *opaque)
{
    struct kafka_consumer *consumer = opaque;

    kafka_consumer_forget_all(consumer);
    if (code == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        for (int i = 0; i < partitions->cnt; i++)
            kafka_consumer_add(consumer, partitions->elems[i].partition);
        rd_kafka_assign(handle, partitions);
        atomic_store(&consumer->partition_count, consumer->slot_count);
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
    for (size_t i = 0; i < consumer->slot_count; i++) {
        if (consumer->slots[i]->lane.partition == partition)
            return consumer->slots[i];
    }
    return NULL;
}

/* --- offsets --- */

static void kafka_consumer_commit(struct kafka_consumer *consumer, struct kafka_slot *slot)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

    rd_kafka_topic_partition_list_add(list, kafka_consumer_topic(consumer), slot->lane.partition)
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

    (void)handle;
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

/* --- lanes --- */

/* Reads the next batch. Errors of the partition are no messages; librdkafka gets over them. */
static void kafka_slot_read(struct kafka_consumer *consumer, struct kafka_slot *slot)
{
    ssize_t read = rd_kafka_consume_batch_queue(slot->queue, 0, slot->messages, KAFKA_LANE_MAX);

    slot->lane.count = 0;
    for (ssize_t i = 0; i < read; i++) {
        if (slot->messages[i]->err == RD_KAFKA_RESP_ERR_NO_ERROR)
            slot->messages[slot->lane.count++] = slot->messages[i];
        else
            rd_kafka_message_destroy(slot->messages[i]);
    }
    slot->is_at_work = slot->lane.count > 0;
    slot->lane.again_at_ms = 0;
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
        consumer->options.work(consumer->options.context, &slot->lane, now_ms) != KAFKA_DONE)
        return false;
    slot->done_offset = slot->messages[slot->lane.count - 1]->offset + 1;
    atomic_fetch_add(&consumer->consumed, slot->lane.count);
    kafka_slot_drop_messages(slot);
    FAULT_POINT("kafka.after_ack");
    kafka_consumer_commit(consumer, slot);
    return true;
}

/* When something is to be done without being woken. */
static int64_t kafka_consumer_next_ms(const struct kafka_consumer *consumer)
{
    int64_t next_ms = clock_monotonic_ms() + IDLE_MS;

    for (size_t i = 0; i < consumer->slot_count; i++) {
        const struct kafka_slot *slot = consumer->slots[i];
        if (slot->is_at_work && slot->lane.again_at_ms < next_ms)
            next_ms = slot->lane.again_at_ms;
    }
    return next_ms;
}

/* --- the group --- */

static void kafka_consumer_on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque)
{
    struct kafka_consumer *consumer = opaque;

    (void)handle;
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        consumer->is_up = false;
    if (code != RD_KAFKA_RESP_ERR__FATAL)
        return; /* That brokers are away is told by the watch. */
    log_event(LOG_WARN, "consumer_reopened", LOG_FIELD("error", LOG_TEXT(reason)));
    consumer->must_reopen = true;
}

/* Rebalances, errors and committed offsets come with it; messages have queues of their own. One
 * that came this way is out of its order: everything is read again. */
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
    rd_kafka_conf_t *conf = NULL;
    enum status status = kafka_target_configure(consumer->options.target, &conf, error);

    if (status != STATUS_OK)
        return status;
    kafka_target_set(conf, "group.id", consumer->options.group);
    kafka_target_set(conf, "enable.auto.commit", "false");
    kafka_target_set(conf, "enable.auto.offset.store", "false");
    kafka_target_set(conf, "auto.offset.reset", "earliest");
    kafka_target_set(conf, "partition.assignment.strategy", "range");
    /* One that is killed keeps its partitions for so long. */
    kafka_target_set_ms(conf, "session.timeout.ms", consumer->options.target->session_ms);
    kafka_target_set_ms(conf, "heartbeat.interval.ms", consumer->options.target->session_ms / 3);
    kafka_target_set(conf, "fetch.wait.max.ms", "100");
    kafka_target_set(conf, "fetch.error.backoff.ms", "100");
    kafka_target_set(conf, "queued.min.messages", "5000");
    kafka_target_set(conf, "queued.max.messages.kbytes", "16384");
    rd_kafka_conf_set_opaque(conf, consumer);
    rd_kafka_conf_set_rebalance_cb(conf, kafka_consumer_on_rebalance);
    rd_kafka_conf_set_offset_commit_cb(conf, kafka_consumer_on_commit);
    rd_kafka_conf_set_error_cb(conf, kafka_consumer_on_error);
    status = kafka_target_new(KAFKA_CONSUMER, conf, &consumer->handle, error);
    if (status != STATUS_OK)
        return status;
    rd_kafka_poll_set_consumer(consumer->handle);
    consumer->queue = rd_kafka_queue_get_consumer(consumer->handle);
    rd_kafka_queue_cb_event_enable(consumer->queue, kafka_consumer_on_arrival, consumer);
    consumer->must_reopen = false;
    return STATUS_OK;
}

static void kafka_consumer_unmake(struct kafka_consumer *consumer)
{
    pthread_mutex_lock(&consumer->lock);
    int64_t until_ms =
        consumer->is_stopping ? consumer->stop_at_ms : clock_monotonic_ms() + REOPEN_MS;
    pthread_mutex_unlock(&consumer->lock);
    if (consumer->is_up) /* Nobody can be told good-bye while all brokers are away. */
        kafka_end_membership(consumer->handle, until_ms);
    kafka_consumer_forget_all(consumer);
    rd_kafka_queue_cb_event_enable(consumer->queue, NULL, NULL);
    rd_kafka_queue_destroy(consumer->queue);
    kafka_end(consumer->handle, until_ms);
    consumer->handle = NULL;
}

static bool kafka_consumer_is_stopping(struct kafka_consumer *consumer, bool *is_late)
{
    pthread_mutex_lock(&consumer->lock);
    bool is_stopping = consumer->is_stopping;
    *is_late = is_stopping && clock_monotonic_ms() >= consumer->stop_at_ms;
    pthread_mutex_unlock(&consumer->lock);
    return is_stopping;
}

/* A topic that is not there yet would only be noticed after a while. */
static bool kafka_consumer_subscribe(struct kafka_consumer *consumer)
{
    const char *topic = kafka_consumer_topic(consumer);
    bool is_late;

    while (kafka_target_look_up(consumer->handle, topic, TOPIC_MS) == KAFKA_TOPIC_MISSING) {
        if (kafka_consumer_is_stopping(consumer, &is_late))
            return false;
        kafka_consumer_wait(consumer, clock_monotonic_ms() + TOPIC_MS);
    }
    consumer->is_up = true;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, topic, RD_KAFKA_PARTITION_UA);
    consumer->must_reopen =
        rd_kafka_subscribe(consumer->handle, list) != RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_topic_partition_list_destroy(list);
    return !consumer->must_reopen;
}

/* Everything is committed, or it is too late for it. */
static bool kafka_consumer_is_done(const struct kafka_consumer *consumer, bool is_late)
{
    for (size_t i = 0; i < consumer->slot_count && !is_late; i++) {
        const struct kafka_slot *slot = consumer->slots[i];
        if (slot->is_at_work || slot->committed_offset < slot->done_offset)
            return false;
    }
    return true;
}

static void kafka_consumer_work(struct kafka_consumer *consumer)
{
    bool is_late = false;

    while (!consumer->must_reopen) {
        bool goes_on = false;
        bool is_stopping = kafka_consumer_is_stopping(consumer, &is_late);
        kafka_consumer_poll(consumer);
        for (size_t i = 0; i < consumer->slot_count && !consumer->must_reopen; i++)
            goes_on = kafka_slot_step(consumer, consumer->slots[i], !is_stopping) || goes_on;
        if (is_stopping && kafka_consumer_is_done(consumer, is_late))
            return;
        if (!goes_on)
            kafka_consumer_wait(consumer, kafka_consumer_next_ms(consumer));
    }
}

static void *kafka_consumer_main(void *context)
{
    struct kafka_consumer *consumer = context;
    struct error error = {""};
    bool is_late;

    pthread_setname_np(pthread_self(), "kafka-read");
    while (!kafka_consumer_is_stopping(consumer, &is_late)) {
        if (consumer->handle == NULL && kafka_consumer_make(consumer, &error) != STATUS_OK) {
            kafka_consumer_wait(consumer, clock_monotonic_ms() + TOPIC_MS);
            continue;
        }
        if (kafka_consumer_subscribe(consumer))
            kafka_consumer_work(consumer);
        kafka_consumer_unmake(consumer);
    }
    if (consumer->handle != NULL)
        kafka_consumer_unmake(consumer);
    return NULL;
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
    pthread_mutex_init(&opened->lock, NULL);
    clock_condition_init(&opened->work);
    enum status status = kafka_consumer_make(opened, error);
    if (status == STATUS_OK) {
        opened->has_thread =
            pthread_create(&opened->thread, NULL, kafka_consumer_main, opened) == 0;
        if (!opened->has_thread) {
            status = error_set(error, STATUS_UNAVAILABLE, "cannot start the consumer's thread");
            kafka_consumer_unmake(opened);
        }
    }
    if (status != STATUS_OK) {
        kafka_consumer_close(opened);
        return status;
    }
    *consumer = opened;
    return STATUS_OK;
}

void kafka_consumer_stop(struct kafka_consumer *consumer, int64_t timeout_ms)
{
    if (consumer == NULL || !consumer->has_thread)
        return;
    pthread_mutex_lock(&consumer->lock);
    consumer->is_stopping = true;
    consumer->stop_at_ms = clock_monotonic_ms() + timeout_ms;
    pthread_mutex_unlock(&consumer->lock);
    kafka_consumer_wake(consumer);
    pthread_join(consumer->thread, NULL);
    consumer->has_thread = false;
}

void kafka_consumer_close(struct kafka_consumer *consumer)
{
    if (consumer == NULL)
        return;
    kafka_consumer_stop(consumer, 0);
    pthread_mutex_destroy(&consumer->lock);
    pthread_cond_destroy(&consumer->work);
    free(consumer->slots);
    free(consumer);
}

void kafka_consumer_count(struct kafka_consumer *consumer, struct kafka_consumer_numbers *numbers)
{
    numbers->partition_count = atomic_load(&consumer->partition_count);
    numbers->consumed = atomic_load(&consumer->consumed);
    numbers->rebalanced = atomic_load(&consumer->rebalanced);
}
