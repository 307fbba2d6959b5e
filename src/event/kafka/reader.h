/* reader.h: what a topic has got since a moment, read from outside every group.
 *
 * Threads: one at a time. Calls wait for the brokers.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "event/kafka/kafka.h"

struct kafka_reader;

/* Remembers where the topic ends; one that is missing begins later. The target is borrowed. */
enum status kafka_reader_open(struct kafka_reader **reader, const struct kafka_target *target,
                              enum kafka_topic topic, struct error *error) MUST_CHECK;
void kafka_reader_close(struct kafka_reader *reader);

/* The messages of one key, which are in one partition. */
struct kafka_found {
    int64_t count;
    int32_t partition;
    int64_t first_offset;
    int64_t last_offset;
};

/* Reads from where it ended at the opening to where it ends now. UNAVAILABLE: not all of it came in
 * that time. */
enum status kafka_reader_find(struct kafka_reader *reader, const char *key, int64_t timeout_ms,
                              struct kafka_found *found, struct error *error) MUST_CHECK;
