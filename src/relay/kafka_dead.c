/* kafka_dead.c: messages that came to nothing, copied to the dead-letter topic with the reason. */
#include "relay/kafka_dead.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"

#define REASON_HEADERS 5

struct kafka_burial {
    struct kafka_batch batch;
    struct kafka_grave grave;
    const struct kafka_dead *dead; /* while they are being sent */
    struct event_message message;
    struct event_header headers[EVENT_HEADERS_SEEN + REASON_HEADERS];
    char partition[16];
    char offset[24];
    char time[CLOCK_TEXT_SIZE];
    /* Under the grave's lock. */
    bool is_done;
    bool is_fine;
    bool is_forgotten;
};

struct event_message kafka_event_of(const rd_kafka_message_t *message, struct event_header *headers)
{
    struct event_message event = {
        .key = {.bytes = message->key, .length = message->key_len},
        .value = {.bytes = message->payload, .length = message->len},
        .headers = headers,
    };
    rd_kafka_headers_t *list = NULL;

    if (rd_kafka_message_headers(message, &list) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return event;
    while (event.header_count <= EVENT_HEADERS_SEEN) {
        struct event_header *header = &headers[event.header_count];
        const void *value = NULL;
        if (rd_kafka_header_get_all(list, event.header_count, &header->name, &value,
                                    &header->value.length) != RD_KAFKA_RESP_ERR_NO_ERROR)
            break;
        header->value.bytes = value;
        event.header_count++;
    }
    return event;
}

static const struct event_message *kafka_burial_next(struct kafka_batch *batch, size_t index)
{
    struct kafka_burial *burial = (struct kafka_burial *)batch;
    const struct kafka_dead *dead = &burial->dead[index];
    const rd_kafka_message_t *message = dead->message;

    burial->message = kafka_event_of(message, burial->headers);
    size_t count = burial->message.header_count;
    if (count > EVENT_HEADERS_SEEN)
        count = EVENT_HEADERS_SEEN; /* The others are lost; the reason says what was wrong. */
    snprintf(burial->partition, sizeof(burial->partition), "%d", (int)message->partition);
    snprintf(burial->offset, sizeof(burial->offset), "%lld", (long long)message->offset);
    const struct event_header reasons[REASON_HEADERS] = {
        {EVENT_DEAD_REASON, span_of(dead->reason)},
        {EVENT_DEAD_TOPIC, span_of(rd_kafka_topic_name(message->rkt))},
        {EVENT_DEAD_PARTITION, span_of(burial->partition)},
        {EVENT_DEAD_OFFSET, span_of(burial->offset)},
        {EVENT_DEAD_TIME, span_of(burial->time)},
    };
    memcpy(burial->headers + count, reasons, sizeof(reasons));
    burial->message.header_count = count + REASON_HEADERS;
    return &burial->message;
}

static void kafka_burial_done(struct kafka_batch *batch, enum status status,
                              const struct error *error)
{
    struct kafka_burial *burial = (struct kafka_burial *)batch;
    struct kafka_grave grave = burial->grave;

    (void)error;
    pthread_mutex_lock(grave.lock);
    burial->is_done = true;
    burial->is_fine = status == STATUS_OK;
    bool is_forgotten = burial->is_forgotten;
    if (!is_forgotten)
        kafka_consumer_wake(*grave.consumer);
    pthread_mutex_unlock(grave.lock);
    if (is_forgotten)
        free(burial);
}

struct kafka_burial *kafka_bury(const struct kafka_grave *grave, const struct kafka_dead *dead,
                                size_t count)
{
    struct kafka_burial *burial = calloc(1, sizeof(*burial));

    if (burial == NULL)
        return NULL;
    burial->batch.done = kafka_burial_done;
    burial->batch.next = kafka_burial_next;
    burial->grave = *grave;
    burial->dead = dead;
    clock_format_rfc3339(clock_wall_ms(), burial->time);
    if (kafka_producer_send(grave->producer, grave->topic, &burial->batch, count, NULL) ==
        STATUS_OK)
        return burial;
    free(burial);
    return NULL;
}

bool kafka_burial_is_over(struct kafka_burial *burial, bool *is_fine)
{
    pthread_mutex_t *lock = burial->grave.lock;

    pthread_mutex_lock(lock);
    bool is_done = burial->is_done;
    *is_fine = burial->is_fine;
    pthread_mutex_unlock(lock);
    if (is_done)
        free(burial);
    return is_done;
}

void kafka_burial_forget(struct kafka_burial *burial)
{
    pthread_mutex_t *lock = burial->grave.lock;

    pthread_mutex_lock(lock);
    bool is_done = burial->is_done;
    burial->is_forgotten = true;
    pthread_mutex_unlock(lock);
    if (is_done)
        free(burial);
}
