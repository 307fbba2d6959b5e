/* kafka_consumer.h: reads one topic in a group, each partition on a lane of its own.
 *
 * A lane has at most one batch at work. Its offset is committed when the work says that it is done,
 * never before; a lane that has to wait keeps the others going. A partition that is taken away is
 * forgotten: whoever gets it reads again what was not committed.
 *
 * Threads: open, stop and close from the owner; kafka_consumer_wake() from any; the callbacks are
 * called on the consumer's own thread.
 */
#ifndef RELAY_KAFKA_CONSUMER_H
#define RELAY_KAFKA_CONSUMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "relay/kafka_target.h"

struct kafka_consumer;
struct rd_kafka_message_s;

#define KAFKA_LANE_MAX 1000 /* messages of one batch */

/* The batch of one partition that is being worked on. */
struct kafka_lane {
    int32_t partition;
    struct rd_kafka_message_s **messages; /* in the order of their offsets */
    size_t count;
    int64_t again_at_ms; /* monotonic: of a lane that waits; INT64_MAX: until it is woken */
    void *work;          /* the callbacks' own; NULL at first */
};

enum kafka_step {
    KAFKA_DONE, /* the offset behind the batch may be committed */
    KAFKA_WAIT, /* call again when woken, or at again_at_ms */
};

struct kafka_consumer_options {
    const struct kafka_target *target; /* borrowed until it is closed */
    enum kafka_topic topic;
    const char *group;
    /* Works on the lane's batch: called with a new one, and again until it is DONE. */
    enum kafka_step (*work)(void *context, struct kafka_lane *lane, int64_t now_ms);
    /* The lane ends, with a batch at work or without: frees lane->work. */
    void (*forget)(void *context, struct kafka_lane *lane);
    void *context;
};

struct kafka_consumer_numbers {
    size_t partition_count; /* that this consumer has */
    uint64_t consumed;      /* messages whose offset was committed */
    uint64_t rebalanced;    /* times that partitions came or went */
};

/* Does not wait for a broker. */
enum status kafka_consumer_open(struct kafka_consumer **consumer,
                                const struct kafka_consumer_options *options,
                                struct error *error) MUST_CHECK;

/* Takes no more batches, waits for those at work, at most so long, commits, leaves the group. */
void kafka_consumer_stop(struct kafka_consumer *consumer, int64_t timeout_ms);
void kafka_consumer_close(struct kafka_consumer *consumer);

/* Something that a lane waits for may have happened. */
void kafka_consumer_wake(struct kafka_consumer *consumer);

void kafka_consumer_count(struct kafka_consumer *consumer, struct kafka_consumer_numbers *numbers);

#endif
