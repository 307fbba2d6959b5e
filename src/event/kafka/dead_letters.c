/* dead_letters.c: messages that came to nothing, copied to the dead-letter topic with the reason.
 */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "event/kafka/consumer.h"

#define REASON_HEADERS 5

struct kafka_dead_batch {
    struct event_batch batch;
    struct kafka *kafka;
    struct kafka_consumer *consumer;         /* is woken when they are reported */
    const struct kafka_dead_letter *letters; /* while they are being sent */
    struct event_message message;
    struct event_header headers[EVENT_HEADERS_SEEN + REASON_HEADERS];
    char partition[16];
    char offset[24];
    char time[CLOCK_TEXT_SIZE];
    /* Under the lock of kafka. */
    bool is_done;
    bool is_delivered;
    bool is_abandoned; /* the consumer may be gone */
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

struct kafka_dead_letter *kafka_partition_reject(struct kafka_partition *partition,
                                                 rd_kafka_message_t *message, const char *reason)
{
    ensure(array_make_room(partition->dead, partition->dead_count, partition->dead_capacity));
    struct kafka_dead_letter *letter = &partition->dead[partition->dead_count++];
    *letter = (struct kafka_dead_letter){.message = message};
    snprintf(letter->reason, sizeof(letter->reason), "%.*s", (int)sizeof(letter->reason) - 1,
             reason);
    return letter;
}

static const struct event_message *kafka_dead_batch_next(struct event_batch *batch, size_t index)
{
    struct kafka_dead_batch *sending = (struct kafka_dead_batch *)batch;
    const struct kafka_dead_letter *letter = &sending->letters[index];
    const rd_kafka_message_t *message = letter->message;

    sending->message = kafka_event_of(message, sending->headers);
    size_t count = sending->message.header_count;
    if (count > EVENT_HEADERS_SEEN)
        count = EVENT_HEADERS_SEEN; /* The others are dropped; the reason says what was wrong. */
    snprintf(sending->partition, sizeof(sending->partition), "%d", (int)message->partition);
    snprintf(sending->offset, sizeof(sending->offset), "%lld", (long long)message->offset);
    const struct event_header reasons[REASON_HEADERS] = {
        {EVENT_DEAD_REASON, span_of(letter->reason)},
        {EVENT_DEAD_TOPIC, span_of(rd_kafka_topic_name(message->rkt))},
        {EVENT_DEAD_PARTITION, span_of(sending->partition)},
        {EVENT_DEAD_OFFSET, span_of(sending->offset)},
        {EVENT_DEAD_TIME, span_of(sending->time)},
    };
    memcpy(sending->headers + count, reasons, sizeof(reasons));
    sending->message.header_count = count + REASON_HEADERS;
    return &sending->message;
}

static void kafka_dead_batch_done(struct event_batch *batch, enum status status,
                                  const struct error *error)
{
    struct kafka_dead_batch *sending = (struct kafka_dead_batch *)batch;
    struct kafka *kafka = sending->kafka;

    pthread_mutex_lock(&kafka->lock);
    bool is_abandoned = sending->is_abandoned;
    sending->is_done = true;
    sending->is_delivered = status == STATUS_OK;
    if (!is_abandoned)
        kafka_consumer_wake(sending->consumer);
    pthread_mutex_unlock(&kafka->lock);
    if (is_abandoned)
        free(sending);
}

/* False: not now. */
static bool kafka_partition_start_dead(struct kafka_partition *partition)
{
    const struct kafka_consumer_options *options = partition->options;
    struct kafka_dead_batch *sending = calloc(1, sizeof(*sending));

    if (sending == NULL)
        return false;
    sending->batch.done = kafka_dead_batch_done;
    sending->batch.next = kafka_dead_batch_next;
    sending->kafka = options->kafka;
    sending->consumer = partition->consumer;
    sending->letters = partition->dead;
    clock_format_rfc3339(clock_wall_ms(), sending->time);
    if (kafka_producer_send(options->kafka->producer, options->dead_topic, &sending->batch,
                            partition->dead_count, NULL) != STATUS_OK) {
        free(sending);
        return false;
    }
    partition->sending = sending;
    return true;
}

static void kafka_partition_log_dead(const struct kafka_partition *partition)
{
    for (size_t i = 0; i < partition->dead_count; i++) {
        const rd_kafka_message_t *message = partition->dead[i].message;
        if (partition->dead[i].policy_id == 0)
            log_event(LOG_WARN, "message_unreadable",
                      LOG_FIELD("topic", LOG_TEXT(rd_kafka_topic_name(message->rkt))),
                      LOG_FIELD("partition", LOG_I64(message->partition)),
                      LOG_FIELD("offset", LOG_I64(message->offset)),
                      LOG_FIELD("error", LOG_TEXT(partition->dead[i].reason)));
    }
}

enum kafka_step kafka_partition_send_dead(struct kafka_partition *partition, int64_t now_ms)
{
    struct kafka *kafka = partition->options->kafka;
    struct kafka_dead_batch *sending = partition->sending;

    if (partition->dead_count == 0)
        return KAFKA_DONE;
    if (sending == NULL) {
        bool is_sent = kafka_partition_start_dead(partition);
        partition->again_at_ms = is_sent ? INT64_MAX : now_ms + KAFKA_LATER_MS;
        return KAFKA_WAIT;
    }
    pthread_mutex_lock(&kafka->lock);
    bool is_done = sending->is_done;
    bool is_delivered = sending->is_delivered;
    pthread_mutex_unlock(&kafka->lock);
    if (!is_done)
        return KAFKA_WAIT;
    free(sending);
    partition->sending = NULL;
    if (is_delivered) {
        kafka_partition_log_dead(partition);
        return KAFKA_DONE;
    }
    partition->again_at_ms = now_ms + KAFKA_LATER_MS;
    return KAFKA_WAIT;
}

void kafka_partition_drop_dead(struct kafka_partition *partition)
{
    struct kafka *kafka = partition->options->kafka;
    struct kafka_dead_batch *sending = partition->sending;

    if (sending != NULL) {
        pthread_mutex_lock(&kafka->lock);
        bool is_done = sending->is_done;
        sending->is_abandoned = true;
        pthread_mutex_unlock(&kafka->lock);
        if (is_done)
            free(sending);
    }
    free(partition->dead);
}
