/* kafka_dead.h: messages that came to nothing, copied to a topic of their own with the reason.
 *
 * Threads: a burial belongs to the consumer whose messages it has; it is reported on the
 * producer's.
 */
#ifndef RELAY_KAFKA_DEAD_H
#define RELAY_KAFKA_DEAD_H

#include <pthread.h>

#include "base/model.h"
#include "relay/event.h"
#include "relay/kafka_consumer.h"
#include "relay/kafka_producer.h"

/* A message of a lane that is put aside. */
struct kafka_dead {
    struct rd_kafka_message_s *message; /* the lane's */
    int64_t policy_id;                  /* of the claim that came to nothing; 0: it is none */
    int64_t seq;
    bool is_kept; /* there is a letter in the ledger */
    char reason[LETTER_REASON_SIZE];
};

/* Where they go, and who waits for it. */
struct kafka_grave {
    struct kafka_producer *producer;
    enum kafka_topic topic;
    struct kafka_consumer **consumer; /* is woken when it is over; read under the lock */
    pthread_mutex_t *lock;
};

struct kafka_burial;

/* Sends them to the topic; the consumer is woken when that is over. NULL: not now. The letters are
 * only read meanwhile. */
struct kafka_burial *kafka_bury(const struct kafka_grave *grave, const struct kafka_dead *dead,
                                size_t count);

/* False: not yet. Else the burial is freed, and *is_fine says whether they are there. */
bool kafka_burial_is_over(struct kafka_burial *burial, bool *is_fine);

/* Nobody waits for it any more: the consumer may be gone when it is reported. */
void kafka_burial_forget(struct kafka_burial *burial);

/* The key, value and headers of a message that was read; `headers` has room for
 * EVENT_HEADERS_SEEN + 1, so that too many are noticed. */
struct event_message kafka_event_of(const struct rd_kafka_message_s *message,
                                    struct event_header *headers);

#endif
