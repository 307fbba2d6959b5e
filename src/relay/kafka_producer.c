/* kafka_producer.c: an idempotent producer that is made anew whenever a message fails. */
#include "relay/kafka_producer.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "relay/kafka_end.h"

#define POLL_MS         100
#define TOPICS_MS       5000 /* to make topics */
#define METADATA_MS     1000 /* for an answer whether one is there */
#define TOPICS_AGAIN_MS 500
#define LEADERS_MS      3000 /* until partitions without a leader are put up with */
#define PURGE_MS        5000
#define HEADERS_MAX     (EVENT_HEADERS_SEEN + 8)

/* Those that are created when they are missing. */
static const enum kafka_topic kafka_own_topics[] = {KAFKA_COUPON_PENDED, KAFKA_COUPON_ISSUED,
                                                    KAFKA_COUPON_PENDED_DLQ, KAFKA_ORDER_COMPLETED,
                                                    KAFKA_ORDER_COMPLETED_DLQ};
#define OWN_TOPICS (sizeof(kafka_own_topics) / sizeof(kafka_own_topics[0]))

struct kafka_producer {
    const struct kafka_target *target;
    pthread_t thread;
    bool has_thread;
    /* Under the lock; the handle is only changed by the thread. */
    pthread_mutex_t lock;
    rd_kafka_t *handle;
    rd_kafka_topic_t *topics[KAFKA_TOPICS];
    bool is_ready;
    bool is_stopping;
    int64_t stop_at_ms; /* monotonic */
    struct kafka_batch *dropped;
    /* The thread's own. */
    bool must_recreate;
    bool has_told_topics;
    struct error trouble;
    _Atomic size_t on_the_way;
    _Atomic uint64_t sent;
    _Atomic uint64_t delivered;
    _Atomic uint64_t failed;
    _Atomic uint64_t recreated;
};

/* --- reports --- */

static void kafka_batch_report(struct kafka_producer *producer, struct kafka_batch *batch,
                               size_t count)
{
    atomic_fetch_sub(&producer->on_the_way, count);
    if (atomic_fetch_sub(&batch->waiting_count, count) == count)
        batch->done(batch, batch->status, &batch->error);
}

static void kafka_producer_trouble(struct kafka_producer *producer, const char *words)
{
    if (producer->must_recreate)
        return;
    error_set(&producer->trouble, STATUS_UNAVAILABLE, "%s", words);
    producer->must_recreate = true;
    pthread_mutex_lock(&producer->lock);
    producer->is_ready = false;
    pthread_mutex_unlock(&producer->lock);
}

static void kafka_producer_on_report(rd_kafka_t *handle, const rd_kafka_message_t *message,
                                     void *opaque)
{
    struct kafka_producer *producer = opaque;
    struct kafka_batch *batch = message->_private;

    (void)handle;
    if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        atomic_fetch_add_explicit(&producer->delivered, 1, memory_order_relaxed);
    } else {
        atomic_fetch_add_explicit(&producer->failed, 1, memory_order_relaxed);
        if (batch->status == STATUS_OK)
            batch->status = error_set(&batch->error, STATUS_UNAVAILABLE, "Kafka: %s",
                                      rd_kafka_err2str(message->err));
        kafka_producer_trouble(producer, rd_kafka_err2str(message->err));
    }
    kafka_batch_report(producer, batch, 1);
}

static void kafka_producer_on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque)
{
    char words[300];

    (void)reason;
    if (code != RD_KAFKA_RESP_ERR__FATAL)
        return; /* That brokers are away is told by the watch. */
    rd_kafka_fatal_error(handle, words, sizeof(words));
    kafka_producer_trouble(opaque, words);
}

/* Batches that could only be sent in part. */
static void kafka_producer_report_dropped(struct kafka_producer *producer)
{
    pthread_mutex_lock(&producer->lock);
    struct kafka_batch *batch = producer->dropped;
    producer->dropped = NULL;
    pthread_mutex_unlock(&producer->lock);
    while (batch != NULL) {
        struct kafka_batch *following = batch->following;
        if (batch->status == STATUS_OK)
            batch->status = error_set(&batch->error, STATUS_UNAVAILABLE,
                                      "Kafka's producer did not take all of it");
        kafka_producer_trouble(producer, batch->error.text);
        atomic_fetch_add(&producer->failed, batch->dropped_count);
        kafka_batch_report(producer, batch, batch->dropped_count);
        batch = following;
    }
}

/* --- its end --- */

static bool kafka_producer_is_over(struct kafka_producer *producer)
{
    pthread_mutex_lock(&producer->lock);
    bool is_over = producer->is_stopping && (clock_monotonic_ms() >= producer->stop_at_ms ||
                                             atomic_load(&producer->on_the_way) == 0);
    pthread_mutex_unlock(&producer->lock);
    return is_over;
}

/* --- topics --- */

/* Reads the answer about one topic. False: it is not there, and the words say why. */
static bool kafka_producer_has_topic(struct kafka_producer *producer,
                                     const rd_kafka_topic_result_t *result, struct error *error)
{
    rd_kafka_resp_err_t code = rd_kafka_topic_result_error(result);
    const char *name = rd_kafka_topic_result_name(result);

    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        log_event(LOG_INFO, "topic_created", LOG_FIELD("topic", LOG_TEXT(name)),
                  LOG_FIELD("partitions", LOG_I64(KAFKA_PARTITIONS)));
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR || code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
        return true;
    /* Whoever may not create it may still be allowed to use it. */
    if (kafka_target_look_up(producer->handle, name, METADATA_MS) != KAFKA_TOPIC_MISSING)
        return true;
    const char *words = rd_kafka_topic_result_error_string(result);
    error_set(error, STATUS_UNAVAILABLE, "topic %s is missing and cannot be created: %s", name,
              words != NULL ? words : rd_kafka_err2str(code));
    return false;
}

static bool kafka_producer_read_topics(struct kafka_producer *producer, rd_kafka_event_t *event,
                                       struct error *error)
{
    size_t count = 0;

    if (event == NULL || rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        error_set(error, STATUS_UNAVAILABLE, "the brokers do not answer: %s",
                  event == NULL ? "it takes too long" : rd_kafka_event_error_string(event));
        return false;
    }
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
    bool has_all = count == OWN_TOPICS;
    for (size_t i = 0; i < count; i++)
        has_all = kafka_producer_has_topic(producer, results[i], error) && has_all;
    return has_all;
}

/* Whoever made them may have wanted more partitions, or gave us no right to. */
static enum kafka_topic_state kafka_producer_look_up(struct kafka_producer *producer)
{
    enum kafka_topic_state worst = KAFKA_TOPIC_LED;

    for (size_t i = 0; i < OWN_TOPICS && worst != KAFKA_TOPIC_MISSING; i++) {
        enum kafka_topic_state state = kafka_target_look_up(
            producer->handle, producer->target->topics[kafka_own_topics[i]], METADATA_MS);
        if (state < worst)
            worst = state;
    }
    return worst;
}

/* Creates what is missing. False: not yet. */
static bool kafka_producer_make_topics(struct kafka_producer *producer)
{
    rd_kafka_NewTopic_t *wanted[OWN_TOPICS];
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(producer->handle, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(producer->handle);
    struct error error = {""};

    rd_kafka_AdminOptions_set_request_timeout(options, TOPICS_MS, NULL, 0);
    for (size_t i = 0; i < OWN_TOPICS; i++) {
        wanted[i] = rd_kafka_NewTopic_new(producer->target->topics[kafka_own_topics[i]],
                                          KAFKA_PARTITIONS, -1, NULL, 0);
        ensure(wanted[i] != NULL);
    }
    rd_kafka_CreateTopics(producer->handle, wanted, OWN_TOPICS, options, queue);
    rd_kafka_NewTopic_destroy_array(wanted, OWN_TOPICS);
    rd_kafka_event_t *event = NULL;
    int64_t until_ms = clock_monotonic_ms() + TOPICS_MS + 1000;
    while (event == NULL && clock_monotonic_ms() < until_ms && !kafka_producer_is_over(producer))
        event = rd_kafka_queue_poll(queue, POLL_MS);
    bool has_all = kafka_producer_read_topics(producer, event, &error);
    if (event != NULL)
        rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    if (!has_all && !producer->has_told_topics)
        log_event(LOG_WARN, "topics_missing", LOG_FIELD("error", LOG_TEXT(error.text)),
                  LOG_FIELD("next", LOG_TEXT("nothing is published; trying again")));
    producer->has_told_topics = !has_all;
    return has_all;
}

/* --- making and unmaking --- */

static enum status kafka_producer_make(struct kafka_producer *producer, struct error *error)
{
    rd_kafka_conf_t *conf = NULL;
    enum status status = kafka_target_configure(producer->target, &conf, error);

    if (status != STATUS_OK)
        return status;
    kafka_target_set(conf, "enable.idempotence", "true");
    kafka_target_set(conf, "enable.gapless.guarantee", "true");
    kafka_target_set(conf, "acks", "all");
    kafka_target_set(conf, "message.timeout.ms", "0"); /* A claim is never given up. */
    kafka_target_set(conf, "linger.ms", "20");
    kafka_target_set(conf, "batch.num.messages", "10000");
    kafka_target_set(conf, "queue.buffering.max.messages", "100000"); /* KAFKA_QUEUE_MAX rules. */
    kafka_target_set(conf, "queue.buffering.max.kbytes", "1048576");
    kafka_target_set(conf, "partitioner", "murmur2_random"); /* as Java's producers do it */
    rd_kafka_conf_set_opaque(conf, producer);
    rd_kafka_conf_set_dr_msg_cb(conf, kafka_producer_on_report);
    rd_kafka_conf_set_error_cb(conf, kafka_producer_on_error);
    rd_kafka_t *handle = NULL;
    status = kafka_target_new(KAFKA_PRODUCER, conf, &handle, error);
    if (status != STATUS_OK)
        return status;
    pthread_mutex_lock(&producer->lock);
    producer->handle = handle;
    pthread_mutex_unlock(&producer->lock);
    producer->must_recreate = false;
    return STATUS_OK;
}

/* Everything that is on its way is reported, the sooner the better, and the handle goes. */
static void kafka_producer_unmake(struct kafka_producer *producer)
{
    int64_t until_ms = clock_monotonic_ms() + PURGE_MS;

    pthread_mutex_lock(&producer->lock);
    producer->is_ready = false;
    if (producer->is_stopping && producer->stop_at_ms + KAFKA_END_MS < until_ms)
        until_ms = producer->stop_at_ms + KAFKA_END_MS;
    pthread_mutex_unlock(&producer->lock);
    rd_kafka_purge(producer->handle, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    do {
        rd_kafka_poll(producer->handle, POLL_MS);
        kafka_producer_report_dropped(producer);
    } while (atomic_load(&producer->on_the_way) > 0 && clock_monotonic_ms() < until_ms);
    for (size_t i = 0; i < KAFKA_TOPICS; i++) {
        if (producer->topics[i] != NULL)
            rd_kafka_topic_destroy(producer->topics[i]);
        producer->topics[i] = NULL;
    }
    kafka_end(producer->handle, until_ms);
    producer->handle = NULL;
}

/* A topic that was just made has no leaders yet, for which librdkafka would wait busily; one that
 * lost a leader long ago need not stop the rest. */
static void kafka_producer_get_ready(struct kafka_producer *producer)
{
    int64_t patient_until_ms = clock_monotonic_ms() + LEADERS_MS;

    while (!kafka_producer_is_over(producer) && !producer->must_recreate) {
        enum kafka_topic_state state = kafka_producer_look_up(producer);
        if (state == KAFKA_TOPIC_LED ||
            (state == KAFKA_TOPIC_UNLED && clock_monotonic_ms() > patient_until_ms))
            break;
        bool has_made = state == KAFKA_TOPIC_MISSING && kafka_producer_make_topics(producer);
        if (has_made)
            patient_until_ms = clock_monotonic_ms() + LEADERS_MS;
        rd_kafka_poll(producer->handle, has_made ? POLL_MS : TOPICS_AGAIN_MS);
    }
    pthread_mutex_lock(&producer->lock);
    for (size_t i = 0; i < KAFKA_TOPICS; i++)
        producer->topics[i] =
            rd_kafka_topic_new(producer->handle, producer->target->topics[i], NULL);
    producer->is_ready = !producer->must_recreate;
    pthread_mutex_unlock(&producer->lock);
}

static void *kafka_producer_main(void *context)
{
    struct kafka_producer *producer = context;
    struct error error = {""};

    pthread_setname_np(pthread_self(), "kafka-send");
    while (!kafka_producer_is_over(producer)) {
        if (producer->handle == NULL && kafka_producer_make(producer, &error) != STATUS_OK) {
            struct timespec pause = {.tv_nsec = TOPICS_AGAIN_MS * 1000000L};
            nanosleep(&pause, NULL);
            continue;
        }
        kafka_producer_get_ready(producer);
        while (!kafka_producer_is_over(producer) && !producer->must_recreate) {
            rd_kafka_poll(producer->handle, POLL_MS);
            kafka_producer_report_dropped(producer);
        }
        if (producer->must_recreate) {
            atomic_fetch_add(&producer->recreated, 1);
            log_event(LOG_WARN, "producer_recreated",
                      LOG_FIELD("error", LOG_TEXT(producer->trouble.text)),
                      LOG_FIELD("on_the_way", LOG_I64(atomic_load(&producer->on_the_way))));
            kafka_producer_unmake(producer);
        }
    }
    if (producer->handle != NULL)
        kafka_producer_unmake(producer);
    return NULL;
}

/* --- life --- */

enum status kafka_producer_open(struct kafka_producer **producer, const struct kafka_target *target,
                                struct error *error)
{
    struct kafka_producer *opened = calloc(1, sizeof(*opened));

    *producer = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for Kafka's producer");
    opened->target = target;
    pthread_mutex_init(&opened->lock, NULL);
    enum status status = kafka_producer_make(opened, error);
    if (status == STATUS_OK) {
        opened->has_thread =
            pthread_create(&opened->thread, NULL, kafka_producer_main, opened) == 0;
        if (!opened->has_thread)
            status = error_set(error, STATUS_UNAVAILABLE, "cannot start the producer's thread");
    }
    if (status != STATUS_OK) {
        kafka_producer_close(opened, 0);
        return status;
    }
    *producer = opened;
    return STATUS_OK;
}

void kafka_producer_close(struct kafka_producer *producer, int64_t timeout_ms)
{
    if (producer == NULL)
        return;
    pthread_mutex_lock(&producer->lock);
    producer->is_stopping = true;
    producer->stop_at_ms = clock_monotonic_ms() + timeout_ms;
    pthread_mutex_unlock(&producer->lock);
    if (producer->has_thread)
        pthread_join(producer->thread, NULL);
    else if (producer->handle != NULL)
        rd_kafka_destroy(producer->handle);
    pthread_mutex_destroy(&producer->lock);
    free(producer);
}

/* --- sending --- */

/* librdkafka does not promise in its types that it only reads. */
static void *kafka_bytes(struct span span)
{
    union {
        const void *read_only;
        void *plain;
    } bytes = {.read_only = span.bytes};
    return bytes.plain;
}

static rd_kafka_resp_err_t kafka_producer_put(struct kafka_producer *producer,
                                              enum kafka_topic topic, struct kafka_batch *batch,
                                              const struct event_message *message)
{
    rd_kafka_vu_t parts[HEADERS_MAX + 5];
    size_t count = 0;

    ensure(message->header_count <= HEADERS_MAX);
    parts[count].vtype = RD_KAFKA_VTYPE_RKT;
    parts[count++].u.rkt = producer->topics[topic];
    parts[count].vtype = RD_KAFKA_VTYPE_MSGFLAGS;
    parts[count++].u.i = RD_KAFKA_MSG_F_COPY;
    parts[count].vtype = RD_KAFKA_VTYPE_OPAQUE;
    parts[count++].u.ptr = batch;
    if (message->key.bytes != NULL) {
        parts[count].vtype = RD_KAFKA_VTYPE_KEY;
        parts[count].u.mem.ptr = kafka_bytes(message->key);
        parts[count++].u.mem.size = message->key.length;
    }
    parts[count].vtype = RD_KAFKA_VTYPE_VALUE;
    parts[count].u.mem.ptr = kafka_bytes(message->value);
    parts[count++].u.mem.size = message->value.length;
    for (size_t i = 0; i < message->header_count; i++) {
        parts[count].vtype = RD_KAFKA_VTYPE_HEADER;
        parts[count].u.header.name = message->headers[i].name;
        parts[count].u.header.val = message->headers[i].value.bytes;
        parts[count++].u.header.size = (ssize_t)message->headers[i].value.length;
    }
    rd_kafka_error_t *refused = rd_kafka_produceva(producer->handle, parts, count);
    if (refused == NULL)
        return RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_resp_err_t code = rd_kafka_error_code(refused);
    rd_kafka_error_destroy(refused);
    return code;
}

/* Under the lock. */
static bool kafka_producer_takes(const struct kafka_producer *producer, size_t count)
{
    return producer->is_ready && !producer->is_stopping &&
           atomic_load(&producer->on_the_way) + count <= KAFKA_QUEUE_MAX;
}

/* Under the lock: how many messages of the batch were put. */
static size_t kafka_producer_put_all(struct kafka_producer *producer, enum kafka_topic topic,
                                     struct kafka_batch *batch, size_t count,
                                     rd_kafka_resp_err_t *code)
{
    size_t put_count = 0;

    while (put_count < count) {
        *code = kafka_producer_put(producer, topic, batch, batch->next(batch, put_count));
        if (*code != RD_KAFKA_RESP_ERR_NO_ERROR)
            break;
        put_count++;
        if (put_count == 1)
            FAULT_POINT("kafka.publishing");
    }
    return put_count;
}

enum status kafka_producer_send(struct kafka_producer *producer, enum kafka_topic topic,
                                struct kafka_batch *batch, size_t count, struct error *error)
{
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;

    ensure(count > 0 && count <= KAFKA_QUEUE_MAX);
    pthread_mutex_lock(&producer->lock);
    if (!kafka_producer_takes(producer, count)) {
        pthread_mutex_unlock(&producer->lock);
        return error_set(error, STATUS_BUSY, "Kafka does not take more just now");
    }
    batch->status = STATUS_OK;
    batch->error.text[0] = '\0';
    batch->dropped_count = 0;
    atomic_store(&batch->waiting_count, count);
    atomic_fetch_add(&producer->on_the_way, count);
    size_t put_count = kafka_producer_put_all(producer, topic, batch, count, &code);
    if (put_count < count && put_count > 0) {
        batch->dropped_count = count - put_count;
        batch->following = producer->dropped;
        producer->dropped = batch;
    }
    pthread_mutex_unlock(&producer->lock);
    atomic_fetch_add_explicit(&producer->sent, put_count, memory_order_relaxed);
    if (put_count > 0)
        return STATUS_OK;
    atomic_fetch_sub(&producer->on_the_way, count);
    return error_set(error,
                     code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ? STATUS_INVALID : STATUS_BUSY,
                     "Kafka: %s", rd_kafka_err2str(code));
}

bool kafka_producer_has_room(struct kafka_producer *producer, size_t count)
{
    pthread_mutex_lock(&producer->lock);
    bool has_room = kafka_producer_takes(producer, count);
    pthread_mutex_unlock(&producer->lock);
    return has_room;
}

void kafka_producer_count(struct kafka_producer *producer, struct kafka_producer_numbers *numbers)
{
    pthread_mutex_lock(&producer->lock);
    numbers->is_ready = producer->is_ready;
    pthread_mutex_unlock(&producer->lock);
    numbers->sent = atomic_load(&producer->sent);
    numbers->delivered = atomic_load(&producer->delivered);
    numbers->failed = atomic_load(&producer->failed);
    numbers->recreated = atomic_load(&producer->recreated);
    numbers->on_the_way = atomic_load(&producer->on_the_way);
}
