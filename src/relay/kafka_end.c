/* kafka_end.c: clients of librdkafka end in threads of their own, which are waited for. */
#include "relay/kafka_end.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

#define POLL_MS 20

struct kafka_ending {
    rd_kafka_t *handle;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over;
    bool is_left; /* nobody waits for it any more */
};

static int64_t kafka_end_at_least(int64_t until_ms)
{
    int64_t least_ms = clock_monotonic_ms() + KAFKA_END_MS;
    return until_ms > least_ms ? until_ms : least_ms;
}

static void kafka_ending_free(struct kafka_ending *ending)
{
    pthread_cond_destroy(&ending->changed);
    pthread_mutex_destroy(&ending->lock);
    free(ending);
}

static void *kafka_end_main(void *context)
{
    struct kafka_ending *ending = context;

    pthread_setname_np(pthread_self(), "kafka-end");
    rd_kafka_destroy_flags(ending->handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    pthread_mutex_lock(&ending->lock);
    ending->is_over = true;
    bool is_left = ending->is_left;
    pthread_cond_signal(&ending->changed);
    pthread_mutex_unlock(&ending->lock);
    if (is_left)
        kafka_ending_free(ending);
    return NULL;
}

/* False: time is up, and the thread keeps what it works with. */
static bool kafka_ending_await(struct kafka_ending *ending, int64_t until_ms)
{
    struct timespec until = clock_deadline_at_ms(until_ms);

    pthread_mutex_lock(&ending->lock);
    while (!ending->is_over && pthread_cond_timedwait(&ending->changed, &ending->lock, &until) == 0)
        continue;
    bool is_over = ending->is_over;
    ending->is_left = !is_over;
    pthread_mutex_unlock(&ending->lock);
    return is_over;
}

void kafka_end(rd_kafka_t *handle, int64_t until_ms)
{
    struct kafka_ending *ending = calloc(1, sizeof(*ending));
    pthread_t thread;

    if (ending == NULL) {
        rd_kafka_destroy_flags(handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
        return;
    }
    ending->handle = handle;
    pthread_mutex_init(&ending->lock, NULL);
    clock_condition_init(&ending->changed);
    if (pthread_create(&thread, NULL, kafka_end_main, ending) != 0) {
        rd_kafka_destroy_flags(handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
        kafka_ending_free(ending);
    } else if (kafka_ending_await(ending, kafka_end_at_least(until_ms))) {
        pthread_join(thread, NULL);
        kafka_ending_free(ending);
    } else {
        pthread_detach(thread);
        log_event(LOG_WARN, "kafka_client_left",
                  LOG_FIELD("words", LOG_TEXT("a broker does not answer; nobody waits for it")));
    }
}

void kafka_end_membership(rd_kafka_t *handle, int64_t until_ms)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
    rd_kafka_error_t *refused = rd_kafka_consumer_close_queue(handle, queue);

    until_ms = kafka_end_at_least(until_ms);
    while (refused == NULL && !rd_kafka_consumer_closed(handle) && clock_monotonic_ms() < until_ms)
        rd_kafka_queue_poll_callback(queue, POLL_MS);
    if (refused != NULL)
        rd_kafka_error_destroy(refused);
    rd_kafka_queue_destroy(queue);
}
