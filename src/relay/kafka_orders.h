/* kafka_orders.h: orders that other systems tell of, from a topic into the ledger.
 *
 * An order counts once, by its id, however often it comes; its offset is committed when the ledger
 * has it. What is no order, or tells otherwise of one that is there, goes to a topic of its own
 * with the reason, and holds up nothing behind it.
 *
 * Threads: open, stop and close from the owner; the ledger is used on the consumer's thread, and is
 * waited for there.
 */
#ifndef RELAY_KAFKA_ORDERS_H
#define RELAY_KAFKA_ORDERS_H

#include <stdint.h>

#include "base/error.h"
#include "ledger/ledger.h"
#include "relay/kafka_producer.h"
#include "relay/kafka_target.h"

struct kafka_orders;

struct kafka_orders_options {
    const struct kafka_target *target; /* borrowed until it is stopped, like the ledger */
    struct kafka_producer *producer;   /* for what is put aside */
    struct ledger *ledger;
};

struct kafka_orders_numbers {
    uint64_t added; /* new ones */
    uint64_t known; /* that were there already */
    uint64_t dead;  /* put aside */
};

/* Does not wait for a broker. */
enum status kafka_orders_open(struct kafka_orders **orders,
                              const struct kafka_orders_options *options,
                              struct error *error) MUST_CHECK;

/* Takes no more, waits for what is at work, at most so long, and leaves the group. Before the
 * ledger and the target are closed. NULL is fine, here and below. */
void kafka_orders_stop(struct kafka_orders *orders, int64_t timeout_ms);

/* After it was stopped, and the producer has reported everything. */
void kafka_orders_close(struct kafka_orders *orders);

void kafka_orders_count(struct kafka_orders *orders, struct kafka_orders_numbers *numbers);

#endif
