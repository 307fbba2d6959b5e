/* kafka_parts.h: what the relay through Kafka is made of; for its own files only.
 *
 * Threads: the pointers are set while opening and constant after. `lock` guards the ways' progress
 * and what the lanes wait for; no call to Kafka, the gate or the ledger is made with it held.
 */
#ifndef RELAY_KAFKA_PARTS_H
#define RELAY_KAFKA_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "relay/kafka.h"
#include "relay/kafka_consumer.h"
#include "relay/kafka_dead.h"
#include "relay/kafka_producer.h"
#include "relay/kafka_watch.h"

struct kafka_issue;

struct relay_kafka {
    struct relay relay;
    struct kafka_target target;
    enum relay_use use;
    bool is_vital;        /* without brokers this process is of no use */
    struct relay *direct; /* the way of claims that go past the topic; NULL: they go through it */
    struct relay_outlet outlet;
    struct traces *traces;
    struct kafka_watch *watch;
    struct kafka_producer *producer; /* NULL: others carry */
    struct kafka_consumer *consumer; /* NULL: nothing comes out here */
    pthread_mutex_t lock;
    struct kafka_issue *issues; /* batches of lanes that wait for the ledger */
    _Atomic uint64_t published;
    _Atomic uint64_t confirmed;
    _Atomic uint64_t failed;
    _Atomic uint64_t dead;
};

/* Publishing: kafka_way.c. Slots of struct relay_ops. */
enum status relay_kafka_begin(struct relay *relay, struct relay_way *way, struct error *error);
enum status relay_kafka_carry(struct relay *relay, struct relay_way *way, struct claim *claims,
                              size_t count, struct error *error);
bool relay_kafka_rest(struct relay *relay, struct relay_way *way, int64_t pending_count);
enum status relay_kafka_pass(struct relay *relay, struct relay_way *way, struct claim *claims,
                             size_t count, struct error *error);
void relay_kafka_leave(struct relay *relay, struct relay_way *way);

/* The same for claims that go past the topic: kafka_direct.c. */
enum status relay_kafka_direct_begin(struct relay *relay, struct relay_way *way,
                                     struct error *error);
enum status relay_kafka_direct_carry(struct relay *relay, struct relay_way *way,
                                     struct claim *claims, size_t count, struct error *error);
bool relay_kafka_direct_rest(struct relay *relay, struct relay_way *way, int64_t pending_count);
enum status relay_kafka_direct_pass(struct relay *relay, struct relay_way *way,
                                    struct claim *claims, size_t count, struct error *error);
void relay_kafka_direct_leave(struct relay *relay, struct relay_way *way);

/* Issuing: kafka_issue.c. The last is a slot of struct relay_ops, the others the consumer's
 * callbacks, with the relay as their context. */
enum kafka_step relay_kafka_work(void *context, struct kafka_lane *lane, int64_t now_ms);
void relay_kafka_forget(void *context, struct kafka_lane *lane);
void relay_kafka_settled(struct relay *relay, const struct claim *claims,
                         const enum coupon_state *states, size_t count);

#endif
