/* kafka_watch.c: a client that only asks: for the ends of partitions and a group's offsets. */
#include "relay/kafka_watch.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "relay/kafka_end.h"

#define LOOK_MS    1000 /* between looks */
#define HURRY_MS   100  /* while somebody waits for one */
#define TIMEOUT_MS 1000 /* for each answer */

struct kafka_watch {
    const struct kafka_target *target;
    rd_kafka_t *handle;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* Under the lock. */
    bool is_stopping;
    bool is_wanted; /* somebody waits for the next look */
    bool has_told;  /* that the brokers are away */
    bool is_refusal_told;
    struct kafka_view view;
    /* The thread's own. */
    int failed_count;  /* looks in a row */
    char refusal[160]; /* why the brokers do not want to talk to us; "": they do */
};

/* --- looking --- */

/* Brokers that are there and refuse look to the rest as if they were away: a wrong password or
 * certificate has to be told. */
static void kafka_watch_on_error(rd_kafka_t *handle, int code, const char *reason, void *opaque)
{
    struct kafka_watch *watch = opaque;

    (void)handle;
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
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(watch->handle, kafka_watch_topic(watch), NULL);
    rd_kafka_resp_err_t code =
        topic == NULL ? RD_KAFKA_RESP_ERR__FAIL
                      : rd_kafka_metadata(watch->handle, 0, topic, &metadata, TIMEOUT_MS);

    if (topic != NULL)
        rd_kafka_topic_destroy(topic);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return error_set(error, STATUS_UNAVAILABLE, "the brokers at %.100s do not answer: %s",
                         watch->target->brokers, rd_kafka_err2str(code));
    view->partition_count =
        metadata->topic_cnt == 1 ? (size_t)metadata->topics[0].partition_cnt : 0;
    rd_kafka_metadata_destroy(metadata);
    if (view->partition_count > KAFKA_WATCH_PARTITIONS_MAX)
        return error_set(error, STATUS_FAILED, "topic %s has more than %d partitions",
                         kafka_watch_topic(watch), KAFKA_WATCH_PARTITIONS_MAX);
    return STATUS_OK;
}

static rd_kafka_topic_partition_list_t *kafka_watch_list(const struct kafka_watch *watch,
                                                         size_t partition_count, int64_t offset)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)partition_count);

    for (size_t i = 0; i < partition_count; i++)
        rd_kafka_topic_partition_list_add(list, kafka_watch_topic(watch), (int32_t)i)->offset =
            offset;
    return list;
}

/* Where each partition begins or ends. Asked as if for a time, because whoever asks librdkafka for
 * it by its name waits for as long as it takes, whatever he says: minutes, behind a broker that
 * just went away. What was not answered in time stays as it was asked, below zero. */
static enum status kafka_watch_edge(struct kafka_watch *watch, size_t partition_count,
                                    int64_t which, int64_t *offsets, struct error *error)
{
    rd_kafka_topic_partition_list_t *list = kafka_watch_list(watch, partition_count, which);
    rd_kafka_resp_err_t code = rd_kafka_offsets_for_times(watch->handle, list, TIMEOUT_MS);

    for (size_t i = 0; i < partition_count && code == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        offsets[i] = list->elems[i].offset;
        code = list->elems[i].err;
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR && offsets[i] < 0)
            code = RD_KAFKA_RESP_ERR__TIMED_OUT;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return code == RD_KAFKA_RESP_ERR_NO_ERROR
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "the partitions of %s cannot be asked: %s",
                           kafka_watch_topic(watch), rd_kafka_err2str(code));
}

/* Of a partition of which nothing was committed the group has done what is gone from it. */
static enum status kafka_watch_ends(struct kafka_watch *watch, struct kafka_view *view,
                                    struct error *error)
{
    enum status status = kafka_watch_edge(watch, view->partition_count, RD_KAFKA_OFFSET_BEGINNING,
                                          view->committed, error);

    return status == STATUS_OK ? kafka_watch_edge(watch, view->partition_count, RD_KAFKA_OFFSET_END,
                                                  view->ends, error)
                               : status;
}

static enum status kafka_watch_offsets(struct kafka_watch *watch, struct kafka_view *view,
                                       struct error *error)
{
    rd_kafka_topic_partition_list_t *list =
        kafka_watch_list(watch, view->partition_count, RD_KAFKA_OFFSET_INVALID);
    rd_kafka_resp_err_t code = rd_kafka_committed(watch->handle, list, TIMEOUT_MS);
    for (size_t i = 0; i < view->partition_count && code == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        if (list->elems[i].offset > view->committed[i])
            view->committed[i] = list->elems[i].offset;
    }
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
    /* That they refuse may only turn out after a while. */
    if (watch->has_told && (!was_told || (watch->is_refusal_told && !was_refused)))
        log_event(LOG_WARN, "brokers_away", LOG_FIELD("error", LOG_TEXT(error->text)),
                  LOG_FIELD("next", LOG_TEXT("what is to be published waits; trying again")));
    if (!watch->has_told && was_told)
        log_event(LOG_INFO, "brokers_back", LOG_FIELD("brokers", LOG_TEXT(watch->target->brokers)));
}

static void kafka_watch_look(struct kafka_watch *watch)
{
    struct kafka_view seen = {
        .is_up = true, .is_known = true, .began_ms = clock_monotonic_ms(), .words = "ok"};
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
    /* A partition may be between two leaders for a moment; that nobody answers is news. */
    bool is_news = status == STATUS_OK || watch->failed_count > 1 || seen.partition_count == 0;
    if (status == STATUS_OK) {
        watch->view = seen;
    } else if (is_news) {
        watch->view.is_up = false;
        watch->view.is_known = true;
        snprintf(watch->view.words, sizeof(watch->view.words), "%.199s", error.text);
    }
    if (is_news && !watch->is_stopping)
        kafka_watch_tell(watch, &error);
    pthread_mutex_unlock(&watch->lock);
}

static void *kafka_watch_main(void *context)
{
    struct kafka_watch *watch = context;

    pthread_setname_np(pthread_self(), "kafka-watch");
    pthread_mutex_lock(&watch->lock);
    while (!watch->is_stopping) {
        int64_t looked_ms = clock_monotonic_ms();
        watch->is_wanted = false;
        pthread_mutex_unlock(&watch->lock);
        kafka_watch_look(watch);
        pthread_mutex_lock(&watch->lock);
        for (;;) {
            int64_t until_ms = looked_ms + (watch->is_wanted ? HURRY_MS : LOOK_MS);
            if (watch->is_stopping || clock_monotonic_ms() >= until_ms)
                break;
            struct timespec until = clock_deadline_at_ms(until_ms);
            pthread_cond_timedwait(&watch->work, &watch->lock, &until);
        }
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* --- life --- */

enum status kafka_watch_open(struct kafka_watch **watch, const struct kafka_target *target,
                             struct error *error)
{
    struct kafka_watch *opened = calloc(1, sizeof(*opened));
    rd_kafka_conf_t *conf = NULL;

    *watch = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for Kafka's watch");
    opened->target = target;
    snprintf(opened->view.words, sizeof(opened->view.words), "the brokers have not answered yet");
    pthread_mutex_init(&opened->lock, NULL);
    clock_condition_init(&opened->work);
    enum status status = kafka_target_configure(target, &conf, error);
    if (status == STATUS_OK) {
        kafka_target_set(conf, "group.id", target->issuer_group);
        kafka_target_set(conf, "enable.auto.commit", "false");
        rd_kafka_conf_set_opaque(conf, opened);
        rd_kafka_conf_set_error_cb(conf, kafka_watch_on_error);
        status = kafka_target_new(KAFKA_CONSUMER, conf, &opened->handle, error);
    }
    if (status == STATUS_OK) {
        opened->has_thread = pthread_create(&opened->thread, NULL, kafka_watch_main, opened) == 0;
        if (!opened->has_thread)
            status = error_set(error, STATUS_UNAVAILABLE, "cannot start the watch's thread");
    }
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
    pthread_mutex_lock(&watch->lock);
    watch->is_stopping = true;
    pthread_cond_signal(&watch->work);
    pthread_mutex_unlock(&watch->lock);
    if (watch->has_thread)
        pthread_join(watch->thread, NULL);
    if (watch->handle != NULL)
        kafka_end(watch->handle, 0);
    pthread_mutex_destroy(&watch->lock);
    pthread_cond_destroy(&watch->work);
    free(watch);
}

/* --- what was seen --- */

void kafka_watch_read(struct kafka_watch *watch, struct kafka_view *view)
{
    pthread_mutex_lock(&watch->lock);
    *view = watch->view;
    pthread_mutex_unlock(&watch->lock);
}

int64_t kafka_view_lag(const struct kafka_view *view)
{
    int64_t lag = 0;

    if (view->began_ms == 0)
        return -1;
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
        pthread_cond_signal(&watch->work);
    }
    pthread_mutex_unlock(&watch->lock);
    return is_reached;
}
