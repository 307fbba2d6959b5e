/* parts.h: what the relay through Kafka is made of; for its own files only.
 *
 * Threads: the pointers are set while opening and constant after. `lock` guards the streams'
 * progress and what the partitions wait for; no call to Kafka, the gate or the ledger is made with
 * it held.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "event/kafka/consumer.h"
#include "relay/kafka.h"

struct kafka_issue;

struct relay_kafka {
    struct relay relay;
    struct kafka *kafka;
    struct relay_outlet outlet;
    struct traces *traces;
    struct kafka_consumer *consumer;
    pthread_mutex_t lock;
    struct kafka_issue *issues; /* batches of partitions that wait for the ledger */
    _Atomic uint64_t published;
    _Atomic uint64_t confirmed;
    _Atomic uint64_t failed;
    _Atomic uint64_t dead;
};

/* issue.c: the consumer's callbacks, with the relay as their context, and what they keep of each
 * partition. */
extern const size_t relay_kafka_work_size;
enum kafka_step relay_kafka_work(void *context, struct kafka_partition *partition, int64_t now_ms);
void relay_kafka_forget(void *context, struct kafka_partition *partition);
