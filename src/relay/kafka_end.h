/* kafka_end.h: the end of a client of librdkafka, by a deadline.
 *
 * Destroying one waits until every request that is on its way was answered or has timed out, which
 * takes a minute when a broker stands still. What is not over by the deadline goes on in a thread
 * of its own that touches nothing of ours, and ends with the process at the latest.
 *
 * Threads: any; the handle is used by nobody else any more.
 */
#ifndef RELAY_KAFKA_END_H
#define RELAY_KAFKA_END_H

#include <stdint.h>

/* However late it is, what ends quickly gets so long. */
#define KAFKA_END_MS 1000

struct rd_kafka_s;

/* A deadline is monotonic, and at least KAFKA_END_MS from now. */
void kafka_end(struct rd_kafka_s *handle, int64_t until_ms);

/* Leaves the consumer's group, so that others get its partitions at once, as far as there is time.
 * Its callbacks are called here. */
void kafka_end_membership(struct rd_kafka_s *handle, int64_t until_ms);

#endif
