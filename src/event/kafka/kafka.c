/* kafka.c: opens what this process has of Kafka, watches the brokers, and is a sink for events. */
#include "event/kafka/kafka.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/periodic.h"

#define FLUSH_MS   500  /* for what is still on its way when everything ends */
#define WATCH_MS   1000 /* between questions */
#define HURRY_MS   100  /* while somebody waits for the answer */
#define TIMEOUT_MS 1000 /* for each answer */

struct kafka_watch {
    const struct kafka_target *target;
    rd_kafka_t *handle;
    struct periodic thread;
    pthread_mutex_t lock;
    /* Under the lock. */
    bool is_wanted; /* somebody waits for the next answer */
    bool has_told;  /* that the brokers are away */
    bool is_refusal_told;
    struct kafka_view view;
    /* The thread's own. */
    int64_t asked_ms;  /* monotonic: when the brokers were last asked */
    int failed_count;  /* in a row */
    char refusal[160]; /* why the brokers do not want to talk to us; "": they do */
};

/* --- the watch --- */

/* Brokers that refuse a connection seem to be away to the rest of this file: a wrong password or
 * certificate has to be reported. */
static void kafka_watch_on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque)
{
    struct kafka_watch *watch = opaque;

    if (code == RD_KAFKA_RESP_ERR__AUTHENTICATION || code == RD_KAFKA_RESP_ERR__SSL)
        snprintf(watch->refusal, sizeof(watch->refusal), "%.159s", reason);
}

static const char *kafka_watch_topic(const struct kafka_watch *watch)
{
    return watch->target->topics[KAFKA_COUPON_PENDED];
}

/* How many partitions the topic has; a topic that is missing has none. */
static enum status kafka_watch_count(struct kafka_watch *watch, struct kafka_view *view,
                                     struct error *error)
{
    bool is_led;
    int code = kafka_client_find(watch->handle, kafka_watch_topic(watch), TIMEOUT_MS,
                                 &view->partition_count, &is_led);

    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return error_set(error, STATUS_UNAVAILABLE, "the brokers at %.100s do not answer: %s",
                         watch->target->brokers, rd_kafka_err2str(code));
    if (view->partition_count > KAFKA_WATCH_PARTITIONS_MAX)
        return error_set(error, STATUS_FAILED, "topic %s has more than %d partitions",
                         kafka_watch_topic(watch), KAFKA_WATCH_PARTITIONS_MAX);
    return STATUS_OK;
}

/* Where the group has committed nothing, it has done what the partition no longer has. */
static enum status kafka_watch_ends(struct kafka_watch *watch, struct kafka_view *view,
                                    struct error *error)
{
    const char *topic = kafka_watch_topic(watch);
    enum status status =
        kafka_client_edge(watch->handle, topic, view->partition_count, RD_KAFKA_OFFSET_BEGINNING,
                          TIMEOUT_MS, view->committed, error);

    return status == STATUS_OK
               ? kafka_client_edge(watch->handle, topic, view->partition_count, RD_KAFKA_OFFSET_END,
                                   TIMEOUT_MS, view->ends, error)
               : status;
}

static enum status kafka_watch_offsets(struct kafka_watch *watch, struct kafka_view *view,
                                       struct error *error)
{
    rd_kafka_topic_partition_list_t *list =
        kafka_client_list(kafka_watch_topic(watch), view->partition_count, RD_KAFKA_OFFSET_INVALID);
    rd_kafka_resp_err_t code = rd_kafka_committed(watch->handle, list, TIMEOUT_MS);
    for (size_t i = 0; i < view->partition_count && code == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
        if (list->elems[i].offset > view->committed[i])
            view->committed[i] = list->elems[i].offset;
    rd_kafka_topic_partition_list_destroy(list);
    return code == RD_KAFKA_RESP_ERR_NO_ERROR
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "the group %s cannot be asked about: %s",
                           watch->target->issuer_group, rd_kafka_err2str(code));
}

static void kafka_watch_tell(struct kafka_watch *watch, const struct error *error)
{
    bool was_told = watch->has_told;
    bool was_refused = watch->is_refusal_told;

    watch->has_told = !watch->view.is_up;
    watch->is_refusal_told = watch->has_told && watch->refusal[0] != '\0';
    /* It may take a while until it is known that they refuse. */
    if (watch->has_told && (!was_told || (watch->is_refusal_told && !was_refused)))
        log_event(LOG_WARN, "brokers_away", LOG_FIELD("error", LOG_TEXT(error->text)),
                  LOG_FIELD("next", LOG_TEXT("what is to be published waits; trying again")));
    if (!watch->has_told && was_told)
        log_event(LOG_INFO, "brokers_back", LOG_FIELD("brokers", LOG_TEXT(watch->target->brokers)));
}

static void kafka_watch_ask(struct kafka_watch *watch)
{
    struct kafka_view seen = {
        .is_up = true, .is_known = true, .began_ms = clock_monotonic_ms(), .text = "ok"};
    struct error error = {""};
    enum status status = kafka_watch_count(watch, &seen, &error);

    if (status == STATUS_OK && seen.partition_count > 0)
        status = kafka_watch_ends(watch, &seen, &error);
    if (status == STATUS_OK && seen.partition_count > 0)
        status = kafka_watch_offsets(watch, &seen, &error);
    rd_kafka_poll(watch->handle, 0); /* Errors come with it. */
    if (status == STATUS_OK)
        watch->refusal[0] = '\0';
    else if (watch->refusal[0] != '\0')
        error_set(&error, status, "the brokers refuse: %s", watch->refusal);
    pthread_mutex_lock(&watch->lock);
    watch->failed_count = status == STATUS_OK ? 0 : watch->failed_count + 1;
    /* A partition may have no leader for a moment; that no broker answers is reported at once. */
    bool is_news = status == STATUS_OK || watch->failed_count > 1 || seen.partition_count == 0;
    if (status == STATUS_OK) {
        watch->view = seen;
    } else if (is_news) {
        watch->view.is_up = false;
        watch->view.is_known = true;
        snprintf(watch->view.text, sizeof(watch->view.text), "%.199s", error.text);
    }
    if (is_news && !periodic_is_stopping(&watch->thread))
        kafka_watch_tell(watch, &error);
    pthread_mutex_unlock(&watch->lock);
}

/* Sooner where somebody waits for the answer, but not right after the last. */
static int64_t kafka_watch_run(void *context)
{
    struct kafka_watch *watch = context;
    int64_t since_ms = clock_monotonic_ms() - watch->asked_ms;

    if (since_ms < HURRY_MS)
        return HURRY_MS - since_ms;
    watch->asked_ms += since_ms;
    pthread_mutex_lock(&watch->lock);
    watch->is_wanted = false;
    pthread_mutex_unlock(&watch->lock);
    kafka_watch_ask(watch);
    return WATCH_MS;
}

enum status kafka_watch_open(struct kafka_watch **watch, const struct kafka_target *target,
                             struct error *error)
{
    struct kafka_watch *opened = calloc(1, sizeof(*opened));
    rd_kafka_conf_t *conf = NULL;

    *watch = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for Kafka's watch");
    opened->target = target;
    snprintf(opened->view.text, sizeof(opened->view.text), "the brokers have not answered yet");
    pthread_mutex_init(&opened->lock, NULL);
    const struct kafka_setting settings[] = {
        {"group.id", target->issuer_group}, {"enable.auto.commit", "false"}, {NULL, NULL}};
    enum status status = kafka_client_configure(target, settings, opened, &conf, error);
    if (status == STATUS_OK) {
        rd_kafka_conf_set_error_cb(conf, kafka_watch_on_error);
        status = kafka_client_new(KAFKA_CONSUMER, conf, &opened->handle, error);
    }
    if (status == STATUS_OK)
        status = periodic_start(&opened->thread, "kafka-watch", kafka_watch_run, opened, 0, error);
    if (status != STATUS_OK) {
        kafka_watch_close(opened);
        return status;
    }
    *watch = opened;
    return STATUS_OK;
}

void kafka_watch_close(struct kafka_watch *watch)
{
    if (watch == NULL)
        return;
    periodic_stop(&watch->thread);
    if (watch->handle != NULL)
        kafka_client_end(watch->handle, 0);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

void kafka_watch_read(struct kafka_watch *watch, struct kafka_view *view)
{
    pthread_mutex_lock(&watch->lock);
    *view = watch->view;
    pthread_mutex_unlock(&watch->lock);
}

/* Messages that the group has not done with, of all partitions. */
static int64_t kafka_view_lag(const struct kafka_view *view)
{
    int64_t lag = 0;

    for (size_t i = 0; i < view->partition_count; i++)
        lag += view->ends[i] > view->committed[i] ? view->ends[i] - view->committed[i] : 0;
    return lag;
}

bool kafka_watch_reached(struct kafka_watch *watch, struct kafka_goal *goal)
{
    bool is_reached = true;

    pthread_mutex_lock(&watch->lock);
    const struct kafka_view *view = &watch->view;
    if (!goal->is_set) {
        goal->is_set = true;
        goal->has_ends = false;
        goal->set_ms = clock_monotonic_ms();
    }
    if (!goal->has_ends && view->began_ms > goal->set_ms) {
        goal->has_ends = true;
        goal->partition_count = view->partition_count;
        memcpy(goal->ends, view->ends, sizeof(goal->ends));
    }
    is_reached = goal->has_ends && view->partition_count >= goal->partition_count;
    for (size_t i = 0; is_reached && i < goal->partition_count; i++)
        is_reached = view->committed[i] >= goal->ends[i];
    if (is_reached) {
        goal->is_set = false;
    } else if (!watch->is_wanted) {
        watch->is_wanted = true;
        periodic_wake(&watch->thread);
    }
    pthread_mutex_unlock(&watch->lock);
    return is_reached;
}

/* --- all of it --- */

enum status kafka_open(struct kafka **kafka, const char *url, const char *password,
                       const struct kafka_names *names, enum kafka_use use, struct error *error)
{
    *kafka = NULL;
    if (strncmp(url, "kafka:", strlen("kafka:")) != 0)
        return STATUS_OK;
    struct kafka *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for Kafka");
    enum status status = kafka_target_init(&opened->target, url, password, error);
    if (status == STATUS_OK)
        status = kafka_target_name(&opened->target, names, error);
    if (status != STATUS_OK) {
        kafka_target_release(&opened->target);
        free(opened);
        return status;
    }
    pthread_mutex_init(&opened->lock, NULL);
    status = kafka_watch_open(&opened->watch, &opened->target, error);
    if (status == STATUS_OK && use == KAFKA_PUBLISHES)
        status = kafka_producer_open(&opened->producer, &opened->target, error);
    if (status != STATUS_OK) {
        kafka_close(opened);
        return status;
    }
    *kafka = opened;
    return STATUS_OK;
}

void kafka_stop(struct kafka *kafka)
{
    if (kafka == NULL)
        return;
    kafka_producer_close(kafka->producer, FLUSH_MS);
    kafka->producer = NULL;
}

void kafka_close(struct kafka *kafka)
{
    if (kafka == NULL)
        return;
    kafka_stop(kafka);
    kafka_watch_close(kafka->watch);
    kafka_target_release(&kafka->target);
    pthread_mutex_destroy(&kafka->lock);
    free(kafka);
}

bool kafka_is_ready(struct kafka *kafka, struct error *failure)
{
    struct kafka_producer_numbers producer = {.is_ready = true};
    struct kafka_view view;

    kafka_watch_read(kafka->watch, &view);
    if (kafka->producer != NULL)
        kafka_producer_count(kafka->producer, &producer);
    int64_t lag = kafka_view_lag(&view);
    if (!view.is_up)
        error_set(failure, STATUS_OK, "%s", view.text);
    else if (!producer.is_ready)
        error_set(failure, STATUS_OK, "the topics are not there yet");
    else if (lag > 0)
        error_set(failure, STATUS_OK, "ok, lag %lld", (long long)lag);
    else
        error_set(failure, STATUS_OK, "ok");
    return view.is_up && producer.is_ready;
}

/* --- the sink --- */

static enum status kafka_sink_send(struct event_sink *sink, struct event_batch *batch, size_t count,
                                   struct error *error)
{
    return kafka_producer_send(((struct kafka *)sink)->producer, KAFKA_COUPON_ISSUED, batch, count,
                               error);
}

static void kafka_sink_metrics(struct event_sink *sink, struct buffer *out)
{
    struct kafka_producer_numbers numbers;

    kafka_producer_count(((struct kafka *)sink)->producer, &numbers);
    metrics_single(out, "dibs_relay_on_the_way", METRICS_GAUGE, "Messages sent and not confirmed.",
                   numbers.in_flight);
    metrics_single(out, "dibs_relay_recreated_total", METRICS_COUNTER,
                   "Times that the producer was made anew after a failure.", numbers.recreated);
}

static void kafka_sink_close(struct event_sink *sink)
{
    kafka_stop((struct kafka *)sink);
}

enum status kafka_sink_open(struct event_sink **sink, const struct event_sink_options *options,
                            struct error *error)
{
    static const struct event_sink_ops ops = {.name = "kafka",
                                              .outbox = LEDGER_SINK_KAFKA,
                                              .duty = "announcer",
                                              .send = kafka_sink_send,
                                              .metrics = kafka_sink_metrics,
                                              .close = kafka_sink_close};

    *sink = &options->kafka->sink;
    (*sink)->ops = &ops;
    return STATUS_OK;
}
