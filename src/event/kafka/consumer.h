/* consumer.h: reads one topic in a group, each partition by itself.
 *
 * A partition has at most one batch at work. Its offset is committed when the work says that it is
 * done, never before; a partition that has to wait keeps the others going. A partition that is
 * taken away is forgotten: whoever gets it reads again what was not committed.
 *
 * Messages that came to nothing are dead letters: they are copied to a topic of their own with the
 * reason, and have to be there before the partition's offset moves on.
 *
 * Threads: open, stop and close from the owner; kafka_consumer_wake() from any; the callbacks are
 * called on the consumer's own thread, which partitions and their dead letters belong to.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "base/model.h"
#include "event/event.h"
#include "event/kafka/kafka.h"

struct kafka_consumer;
struct kafka_consumer_options;
struct kafka_dead_batch;
struct rd_kafka_message_s;

#define KAFKA_PARTITION_MAX 1000 /* messages of one batch */
#define KAFKA_LATER_MS      200  /* until what failed is tried again */

struct kafka_dead_letter {
    struct rd_kafka_message_s *message; /* the partition's */
    int64_t policy_id;                  /* of the claim that came to nothing; 0: it is none */
    int64_t seq;
    bool is_kept; /* the ledger has it too */
    char reason[LETTER_REASON_SIZE];
};

/* The batch of one partition that is being worked on. */
struct kafka_partition {
    struct kafka_consumer *consumer;
    const struct kafka_consumer_options *options;
    int32_t partition;
    struct rd_kafka_message_s **messages; /* in the order of their offsets */
    size_t count;
    int64_t again_at_ms; /* monotonic: of a partition that waits; INT64_MAX: until it is woken */
    struct json_reader *reader;     /* for its messages */
    struct kafka_dead_letter *dead; /* of this batch */
    size_t dead_count;
    size_t dead_capacity;
    struct kafka_dead_batch *sending; /* the dead letters on their way; NULL: they are not */
    void *work; /* the callbacks' own: options.work_size bytes, zeros at first */
};

enum kafka_step {
    KAFKA_DONE, /* the offset behind the batch may be committed */
    KAFKA_WAIT, /* call again when woken, or at again_at_ms */
};

struct kafka_consumer_options {
    struct kafka *kafka; /* publishes; borrowed until the consumer is closed */
    enum kafka_topic topic;
    enum kafka_topic dead_topic;
    const char *group;
    size_t work_size;
    /* Works on the partition's batch: called with a new one, and again until it is DONE. */
    enum kafka_step (*work)(void *context, struct kafka_partition *partition, int64_t now_ms);
    /* The partition ends, with a batch at work or without, and its memory goes. NULL: nobody else
     * knows of it. */
    void (*forget)(void *context, struct kafka_partition *partition);
    void *context;
};

struct kafka_consumer_numbers {
    uint64_t consumed;   /* messages whose offset was committed */
    uint64_t rebalanced; /* times that partitions came or went */
};

/* Does not wait for a broker. */
enum status kafka_consumer_open(struct kafka_consumer **consumer,
                                const struct kafka_consumer_options *options,
                                struct error *error) MUST_CHECK;

/* Takes no more batches, waits for those at work, at most so long, commits, leaves the group. NULL
 * is fine, here and below. */
void kafka_consumer_stop(struct kafka_consumer *consumer, int64_t timeout_ms);
void kafka_consumer_close(struct kafka_consumer *consumer);

/* Something that a partition waits for may have happened. */
void kafka_consumer_wake(struct kafka_consumer *consumer);

void kafka_consumer_count(struct kafka_consumer *consumer, struct kafka_consumer_numbers *numbers);

/* --- for the callbacks --- */

/* Whether the partition is to be tried again, and not yet. */
static inline bool kafka_partition_waits(const struct kafka_partition *partition, int64_t now_ms)
{
    return now_ms < partition->again_at_ms && partition->again_at_ms != INT64_MAX;
}

/* The key, value and headers of a message that was read; `headers` has room for
 * EVENT_HEADERS_SEEN + 1, so that too many are noticed. */
struct event_message kafka_event_of(const struct rd_kafka_message_s *message,
                                    struct event_header *headers);

/* Adds a dead letter. */
struct kafka_dead_letter *kafka_partition_reject(struct kafka_partition *partition,
                                                 struct rd_kafka_message_s *message,
                                                 const char *reason);

/* DONE when all dead letters, if any, are in their topic, and logged where they are no claims.
 * WAIT: the partition says when to call again, and nothing is added meanwhile. */
enum kafka_step kafka_partition_send_dead(struct kafka_partition *partition, int64_t now_ms);

/* For the consumer: frees them, and those that are on their way when they are reported. */
void kafka_partition_drop_dead(struct kafka_partition *partition);
