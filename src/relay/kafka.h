/* kafka.h: the relay through Kafka. Opened through relay_open().
 *
 * A policy's steward publishes what is pending to the topic of pended claims, in seq order, and
 * moves the mark in the gate as far as Kafka has confirmed it. Workers, as members of one group,
 * read the topic, issue what they read, and commit its offset when the ledger has it and the gate
 * has heard of it.
 *
 * With claims=direct in the URL nobody publishes claims: they go straight into the ledger, and only
 * what becomes of coupons is told.
 */
#ifndef RELAY_KAFKA_H
#define RELAY_KAFKA_H

#include "relay/relay.h"

struct kafka_producer;
struct kafka_target;

enum status relay_kafka_open(struct relay **relay, const struct relay_options *options,
                             struct error *error) MUST_CHECK;

/* The producer of this process, for what others want to hear, and where it publishes. NULL: nothing
 * is published from here: the relay is another one, or others carry. Both live as long as the
 * relay.
 */
struct kafka_producer *relay_kafka_producer(struct relay *relay);
const struct kafka_target *relay_kafka_target(struct relay *relay);

#endif
