/* producer.c: an idempotent producer that is made anew whenever a message fails. */
#include "event/kafka/kafka.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/periodic.h"

#define POLL_MS         100
#define CLOSE_POLL_MS   5
#define TOPICS_MS       5000 /* to make topics */
#define METADATA_MS     1000 /* for an answer whether one is there */
#define TOPICS_AGAIN_MS 500
#define LEADERS_MS      3000 /* until partitions without a leader are put up with */
#define PURGE_MS        5000
#define HEADERS_MAX     (EVENT_HEADERS_SEEN + 8)

struct kafka_producer {
    const struct kafka_target *target;
    struct periodic thread;
    /* Under the lock; the handle is only changed by the thread. */
    pthread_mutex_t lock;
    rd_kafka_t *handle;
    rd_kafka_topic_t *topics[KAFKA_TOPICS];
    bool is_ready;
    bool is_stopping;
    int64_t stop_at_ms; /* monotonic */
    struct event_batch *dropped;
    /* The thread's own. */
    bool must_recreate;
    bool has_told_topics;
    struct error trouble;
    _Atomic bool is_closed; /* nothing happens on the thread any more */
    _Atomic size_t in_flight;
    _Atomic uint64_t recreated;
};

/* --- reports --- */

static void kafka_producer_settle(struct kafka_producer *producer, struct event_batch *batch,
                                  size_t count)
{
    atomic_fetch_sub(&producer->in_flight, count);
    if (atomic_fetch_sub(&batch->waiting_count, count) == count)
        batch->done(batch, batch->status, &batch->error);
}

static void kafka_producer_trouble(struct kafka_producer *producer, const char *text)
{
    if (producer->must_recreate)
        return;
    error_set(&producer->trouble, STATUS_UNAVAILABLE, "%s", text);
    producer->must_recreate = true;
    pthread_mutex_lock(&producer->lock);
    producer->is_ready = false;
    pthread_mutex_unlock(&producer->lock);
}

static void kafka_producer_on_report(rd_kafka_t *handle, const rd_kafka_message_t *message,
                                     void *opaque)
{
    struct kafka_producer *producer = opaque;
    struct event_batch *batch = message->_private;

    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        if (batch->status == STATUS_OK)
            batch->status = error_set(&batch->error, STATUS_UNAVAILABLE, "Kafka: %s",
                                      rd_kafka_err2str(message->err));
        kafka_producer_trouble(producer, rd_kafka_err2str(message->err));
    }
    kafka_producer_settle(producer, batch, 1);
}

static void kafka_producer_on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque)
{
    char text[300];

    if (code != RD_KAFKA_RESP_ERR__FATAL)
        return; /* The watch reports that brokers are away. */
    rd_kafka_fatal_error(handle, text, sizeof(text));
    kafka_producer_trouble(opaque, text);
}

/* Reports batches of which librdkafka took only a part. */
static void kafka_producer_report_dropped(struct kafka_producer *producer)
{
    pthread_mutex_lock(&producer->lock);
    struct event_batch *batch = producer->dropped;
    producer->dropped = NULL;
    pthread_mutex_unlock(&producer->lock);
    while (batch != NULL) {
        struct event_batch *following = batch->following;
        if (batch->status == STATUS_OK)
            batch->status = error_set(&batch->error, STATUS_UNAVAILABLE,
                                      "Kafka's producer did not take all of it");
        kafka_producer_trouble(producer, batch->error.text);
        kafka_producer_settle(producer, batch, batch->dropped_count);
        batch = following;
    }
}

/* Whether it is to stop, and nothing is on its way any more or time is up. */
static bool kafka_producer_is_over(struct kafka_producer *producer)
{
    pthread_mutex_lock(&producer->lock);
    bool is_over = producer->is_stopping && (clock_monotonic_ms() >= producer->stop_at_ms ||
                                             atomic_load(&producer->in_flight) == 0);
    pthread_mutex_unlock(&producer->lock);
    return is_over;
}

/* --- topics --- */

/* Asks for a topic; one that nobody tells of in time is missing. */
static bool kafka_producer_find(struct kafka_producer *producer, const char *name, bool *is_led)
{
    size_t partition_count;

    return kafka_client_find(producer->handle, name, METADATA_MS, &partition_count, is_led) == 0 &&
           partition_count > 0;
}

/* Reads the answer about one topic. False: it is not there, and the words say why. */
static bool kafka_producer_has_topic(struct kafka_producer *producer,
                                     const rd_kafka_topic_result_t *result, struct error *error)
{
    rd_kafka_resp_err_t code = rd_kafka_topic_result_error(result);
    const char *name = rd_kafka_topic_result_name(result);
    bool is_led;

    if (code == RD_KAFKA_RESP_ERR_NO_ERROR)
        log_event(LOG_INFO, "topic_created", LOG_FIELD("topic", LOG_TEXT(name)),
                  LOG_FIELD("partitions", LOG_I64(producer->target->partitions)));
    /* A client that may not create topics may still be allowed to use them. */
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR || code == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS ||
        kafka_producer_find(producer, name, &is_led))
        return true;
    const char *text = rd_kafka_topic_result_error_string(result);
    error_set(error, STATUS_UNAVAILABLE, "topic %s is missing and cannot be created: %s", name,
              text != NULL ? text : rd_kafka_err2str(code));
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
    bool has_all = count == KAFKA_TOPICS;
    for (size_t i = 0; i < count; i++)
        has_all = kafka_producer_has_topic(producer, results[i], error) && has_all;
    return has_all;
}

/* Creates what is missing. False: not yet. */
static bool kafka_producer_make_topics(struct kafka_producer *producer)
{
    rd_kafka_NewTopic_t *wanted[KAFKA_TOPICS];
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(producer->handle, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(producer->handle);
    struct error error = {""};

    rd_kafka_AdminOptions_set_request_timeout(options, TOPICS_MS, NULL, 0);
    for (size_t i = 0; i < KAFKA_TOPICS; i++) {
        wanted[i] = rd_kafka_NewTopic_new(producer->target->topics[i], producer->target->partitions,
                                          -1, NULL, 0);
        ensure(wanted[i] != NULL);
    }
    rd_kafka_CreateTopics(producer->handle, wanted, KAFKA_TOPICS, options, queue);
    rd_kafka_NewTopic_destroy_array(wanted, KAFKA_TOPICS);
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
    static const struct kafka_setting settings[] = {
        {"enable.idempotence", "true"},
        {"enable.gapless.guarantee", "true"},
        {"acks", "all"},
        {"message.timeout.ms", "0"}, /* A claim is never given up. */
        {"linger.ms", "20"},
        {"batch.num.messages", "10000"},
        {"queue.buffering.max.messages", "100000"}, /* KAFKA_QUEUE_MAX rules. */
        {"queue.buffering.max.kbytes", "1048576"},
        {"partitioner", "murmur2_random"}, /* as Java's producers do it */
        {NULL, NULL},
    };
    rd_kafka_conf_t *conf = NULL;
    rd_kafka_t *handle = NULL;
    enum status status = kafka_client_configure(producer->target, settings, producer, &conf, error);

    if (status != STATUS_OK)
        return status;
    rd_kafka_conf_set_dr_msg_cb(conf, kafka_producer_on_report);
    rd_kafka_conf_set_error_cb(conf, kafka_producer_on_error);
    status = kafka_client_new(KAFKA_PRODUCER, conf, &handle, error);
    if (status != STATUS_OK)
        return status;
    pthread_mutex_lock(&producer->lock);
    producer->handle = handle;
    pthread_mutex_unlock(&producer->lock);
    producer->must_recreate = false;
    return STATUS_OK;
}

/* Reports everything that is on its way, and destroys the handle. */
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
    } while (atomic_load(&producer->in_flight) > 0 && clock_monotonic_ms() < until_ms);
    for (size_t i = 0; i < KAFKA_TOPICS; i++) {
        if (producer->topics[i] != NULL)
            rd_kafka_topic_destroy(producer->topics[i]);
        producer->topics[i] = NULL;
    }
    kafka_client_end(producer->handle, until_ms);
    producer->handle = NULL;
}

/* Whether all topics are there and led. False: one is missing, and is to be created. */
static bool kafka_producer_find_all(struct kafka_producer *producer, bool *are_led)
{
    *are_led = true;
    for (size_t i = 0; i < KAFKA_TOPICS; i++) {
        bool is_led;
        if (!kafka_producer_find(producer, producer->target->topics[i], &is_led))
            return false;
        *are_led = *are_led && is_led;
    }
    return true;
}

/* A topic that was just made has no leaders yet, for which librdkafka would wait busily; one that
 * lost a leader long ago need not stop the rest. */
static void kafka_producer_get_ready(struct kafka_producer *producer)
{
    int64_t leaders_until_ms = clock_monotonic_ms() + LEADERS_MS;
    bool are_led;

    while (!kafka_producer_is_over(producer) && !producer->must_recreate) {
        bool has_all = kafka_producer_find_all(producer, &are_led);
        if (has_all && (are_led || clock_monotonic_ms() > leaders_until_ms))
            break;
        bool has_made = !has_all && kafka_producer_make_topics(producer);
        if (has_made)
            leaders_until_ms = clock_monotonic_ms() + LEADERS_MS;
        rd_kafka_poll(producer->handle, has_made ? POLL_MS : TOPICS_AGAIN_MS);
    }
    pthread_mutex_lock(&producer->lock);
    for (size_t i = 0; i < KAFKA_TOPICS; i++)
        producer->topics[i] =
            rd_kafka_topic_new(producer->handle, producer->target->topics[i], NULL);
    producer->is_ready = !producer->must_recreate;
    pthread_mutex_unlock(&producer->lock);
}

static int64_t kafka_producer_run(void *context)
{
    struct kafka_producer *producer = context;

    if (atomic_load(&producer->is_closed))
        return TOPICS_AGAIN_MS;
    if (!kafka_producer_is_over(producer)) {
        if (producer->handle == NULL && kafka_producer_make(producer, NULL) != STATUS_OK)
            return TOPICS_AGAIN_MS;
        if (producer->topics[0] == NULL)
            kafka_producer_get_ready(producer);
        rd_kafka_poll(producer->handle, POLL_MS);
        kafka_producer_report_dropped(producer);
    }
    bool is_over = kafka_producer_is_over(producer);
    if (producer->must_recreate && !is_over) {
        atomic_fetch_add(&producer->recreated, 1);
        log_event(LOG_WARN, "producer_recreated",
                  LOG_FIELD("error", LOG_TEXT(producer->trouble.text)),
                  LOG_FIELD("in_flight", LOG_I64(atomic_load(&producer->in_flight))));
    }
    if (producer->handle != NULL && (producer->must_recreate || is_over))
        kafka_producer_unmake(producer);
    atomic_store(&producer->is_closed, is_over);
    return 0;
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
    if (status == STATUS_OK)
        status =
            periodic_start(&opened->thread, "kafka-send", kafka_producer_run, opened, 0, error);
    if (status != STATUS_OK) {
        kafka_producer_close(opened, 0);
        return status;
    }
    *producer = opened;
    return STATUS_OK;
}

void kafka_producer_close(struct kafka_producer *producer, int64_t timeout_ms)
{
    const struct timespec pause = {.tv_nsec = CLOSE_POLL_MS * 1000000L};

    if (producer == NULL)
        return;
    pthread_mutex_lock(&producer->lock);
    producer->is_stopping = true;
    producer->stop_at_ms = clock_monotonic_ms() + timeout_ms;
    pthread_mutex_unlock(&producer->lock);
    if (producer->thread.is_started)
        periodic_wake(&producer->thread);
    while (producer->thread.is_started && !atomic_load(&producer->is_closed))
        nanosleep(&pause, NULL);
    periodic_stop(&producer->thread);
    if (producer->handle != NULL)
        rd_kafka_destroy(producer->handle);
    pthread_mutex_destroy(&producer->lock);
    free(producer);
}

/* --- sending --- */

/* librdkafka only reads it, but its types do not say so. */
static void *kafka_bytes(struct span span)
{
    union {
        const void *read_only;
        void *plain;
    } bytes = {.read_only = span.bytes};
    return bytes.plain;
}

static rd_kafka_resp_err_t kafka_producer_put(struct kafka_producer *producer,
                                              enum kafka_topic topic, struct event_batch *batch,
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

/* Under the lock: how many messages of the batch were put. */
static size_t kafka_producer_put_all(struct kafka_producer *producer, enum kafka_topic topic,
                                     struct event_batch *batch, size_t count,
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
                                struct event_batch *batch, size_t count, struct error *error)
{
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;

    ensure(count > 0 && count <= KAFKA_QUEUE_MAX);
    pthread_mutex_lock(&producer->lock);
    if (!producer->is_ready || producer->is_stopping ||
        atomic_load(&producer->in_flight) + count > KAFKA_QUEUE_MAX) {
        pthread_mutex_unlock(&producer->lock);
        return error_set(error, STATUS_BUSY, "Kafka does not take more just now");
    }
    batch->status = STATUS_OK;
    batch->error.text[0] = '\0';
    batch->dropped_count = 0;
    atomic_store(&batch->waiting_count, count);
    atomic_fetch_add(&producer->in_flight, count);
    size_t put_count = kafka_producer_put_all(producer, topic, batch, count, &code);
    if (put_count < count && put_count > 0) {
        batch->dropped_count = count - put_count;
        batch->following = producer->dropped;
        producer->dropped = batch;
    }
    pthread_mutex_unlock(&producer->lock);
    if (put_count > 0)
        return STATUS_OK;
    atomic_fetch_sub(&producer->in_flight, count);
    return error_set(error,
                     code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ? STATUS_INVALID : STATUS_BUSY,
                     "Kafka: %s", rd_kafka_err2str(code));
}

void kafka_producer_count(struct kafka_producer *producer, struct kafka_producer_numbers *numbers)
{
    pthread_mutex_lock(&producer->lock);
    numbers->is_ready = producer->is_ready;
    pthread_mutex_unlock(&producer->lock);
    numbers->recreated = atomic_load(&producer->recreated);
    numbers->in_flight = atomic_load(&producer->in_flight);
}
