/* reader.c: a consumer without a group that reads each partition from one offset to another. */
#include "event/kafka/reader.h"

#include <librdkafka/rdkafka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ANSWER_MS 5000
#define POLL_MS   100

struct kafka_reader {
    const char *topic;
    rd_kafka_t *handle;
    int64_t from[KAFKA_WATCH_PARTITIONS_MAX];
    int64_t ends[KAFKA_WATCH_PARTITIONS_MAX];
};

/* Where every partition ends; those that are not there end at 0. */
static enum status kafka_reader_ends(struct kafka_reader *reader, int64_t *ends, size_t *count,
                                     struct error *error)
{
    bool is_led;
    int code = kafka_client_find(reader->handle, reader->topic, ANSWER_MS, count, &is_led);

    memset(ends, 0, KAFKA_WATCH_PARTITIONS_MAX * sizeof(*ends));
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return error_set(error, STATUS_UNAVAILABLE, "the brokers do not tell of topic %s: %s",
                         reader->topic, rd_kafka_err2str(code));
    if (*count > KAFKA_WATCH_PARTITIONS_MAX)
        return error_set(error, STATUS_FAILED, "topic %s has more than %d partitions",
                         reader->topic, KAFKA_WATCH_PARTITIONS_MAX);
    return *count == 0 ? STATUS_OK
                       : kafka_client_edge(reader->handle, reader->topic, *count,
                                           RD_KAFKA_OFFSET_END, ANSWER_MS, ends, error);
}

enum status kafka_reader_open(struct kafka_reader **reader, const struct kafka_target *target,
                              enum kafka_topic topic, struct error *error)
{
    static const struct kafka_setting settings[] = {{"group.id", "dibs-reader"},
                                                    {"enable.auto.commit", "false"},
                                                    {"enable.auto.offset.store", "false"},
                                                    {"auto.offset.reset", "error"},
                                                    {NULL, NULL}};
    struct kafka_reader *made = calloc(1, sizeof(*made));
    rd_kafka_conf_t *conf;
    size_t count;

    ensure(made != NULL);
    made->topic = target->topics[topic];
    enum status status = kafka_client_configure(target, settings, made, &conf, error);
    if (status == STATUS_OK)
        status = kafka_client_new(KAFKA_CONSUMER, conf, &made->handle, error);
    if (status == STATUS_OK)
        status = kafka_reader_ends(made, made->from, &count, error);
    if (status != STATUS_OK) {
        kafka_reader_close(made);
        return status;
    }
    *reader = made;
    return STATUS_OK;
}

void kafka_reader_close(struct kafka_reader *reader)
{
    if (reader == NULL)
        return;
    if (reader->handle != NULL)
        kafka_client_end(reader->handle, clock_monotonic_ms() + KAFKA_END_MS);
    free(reader);
}

static void kafka_found_add(struct kafka_found *found, const rd_kafka_message_t *message)
{
    if (found->count++ == 0)
        found->first_offset = message->offset;
    found->last_offset = message->offset;
    found->partition = message->partition;
}

/* Hands out partitions that still have something to be read; how many. */
static size_t kafka_reader_assign(struct kafka_reader *reader, size_t count)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)count + 1);
    size_t left = 0;

    for (size_t i = 0; i < count; i++) {
        if (reader->from[i] >= reader->ends[i])
            continue;
        rd_kafka_topic_partition_list_add(list, reader->topic, (int32_t)i)->offset =
            reader->from[i];
        left++;
    }
    rd_kafka_assign(reader->handle, list);
    rd_kafka_topic_partition_list_destroy(list);
    return left;
}

enum status kafka_reader_find(struct kafka_reader *reader, const char *key, int64_t timeout_ms,
                              struct kafka_found *found, struct error *error)
{
    int64_t until_ms = clock_monotonic_ms() + timeout_ms;
    size_t count;
    enum status status = kafka_reader_ends(reader, reader->ends, &count, error);

    *found = (struct kafka_found){.count = 0};
    if (status != STATUS_OK)
        return status;
    size_t left = kafka_reader_assign(reader, count);
    while (left > 0 && clock_monotonic_ms() < until_ms) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(reader->handle, POLL_MS);
        if (message == NULL)
            continue;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            int64_t end = reader->ends[message->partition];
            bool is_sought =
                message->key_len == strlen(key) && memcmp(message->key, key, message->key_len) == 0;
            if (is_sought && message->offset < end)
                kafka_found_add(found, message);
            left -= message->offset == end - 1;
        }
        rd_kafka_message_destroy(message);
    }
    return left == 0 ? STATUS_OK
                     : error_set(error, STATUS_UNAVAILABLE, "topic %s could not be read in time",
                                 reader->topic);
}
