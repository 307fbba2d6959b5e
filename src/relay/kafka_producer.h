/* kafka_producer.h: publishes batches of messages, each delivered to all replicas or reported.
 *
 * The producer is idempotent and gapless: messages of one key arrive in the order they were sent,
 * none twice, none missing in between. When a batch fails, everything sent behind it fails too, and
 * the producer is made anew; whoever sent it sends it again, in order, from the first that failed.
 *
 * Topics that are missing are created before anything is sent. Until then, while the producer is
 * made anew, and while too much is on its way, sending is BUSY: nothing waits in here without
 * bound, and no call blocks.
 *
 * Threads: every function from any thread; batch->done() is called on the producer's own.
 */
#ifndef RELAY_KAFKA_PRODUCER_H
#define RELAY_KAFKA_PRODUCER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "relay/event.h"
#include "relay/kafka_target.h"

struct kafka_producer;

#define KAFKA_QUEUE_MAX 20000 /* messages on their way */

/* Messages that are sent and reported together; the sender's, usually the head of a larger struct.
 */
struct kafka_batch {
    /* On the producer's thread, once for each batch that was taken: OK when all of it is
     * delivered; else some of it may be. It may free the batch, and may send. */
    void (*done)(struct kafka_batch *batch, enum status status, const struct error *error);
    /* While it is being sent: the next message, which is copied before the one after is asked for.
     */
    const struct event_message *(*next)(struct kafka_batch *batch, size_t index);
    /* The producer's own. */
    struct kafka_batch *following;
    _Atomic size_t waiting_count; /* messages that were not reported yet */
    size_t dropped_count;         /* of those, the ones that never will be */
    enum status status;
    struct error error;
};

struct kafka_producer_numbers {
    bool is_ready; /* the topics are there */
    uint64_t sent;
    uint64_t delivered;
    uint64_t failed;
    uint64_t recreated;
    size_t on_the_way;
};

/* Does not wait for a broker. The target is borrowed until it is closed. */
enum status kafka_producer_open(struct kafka_producer **producer, const struct kafka_target *target,
                                struct error *error) MUST_CHECK;

/* Waits until everything is reported, at most so long; what is not is reported as failed. */
void kafka_producer_close(struct kafka_producer *producer, int64_t timeout_ms);

/* Takes the batch of so many messages as a whole: OK, and done() will be called, maybe before this
 * returns. BUSY: try
 * again in a moment; nothing was sent and done() is not called. INVALID: it can never be sent. */
enum status kafka_producer_send(struct kafka_producer *producer, enum kafka_topic topic,
                                struct kafka_batch *batch, size_t count,
                                struct error *error) MUST_CHECK;

/* Whether a batch of that many would be taken just now: worth asking before it is encoded. */
bool kafka_producer_has_room(struct kafka_producer *producer, size_t count);

void kafka_producer_count(struct kafka_producer *producer, struct kafka_producer_numbers *numbers);

#endif
