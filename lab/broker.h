/* broker.h: a Kafka of the lab's own, empty for each run.
 *
 * Its jars are those of the tests, which `scripts/setup lab` fetches into the user's cache.
 *
 * Threads: one.
 */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "lab/servers.h"

struct lab_broker {
    pid_t pid;
    char address[32];
};

enum status lab_broker_start(struct lab_broker *broker, const struct lab_servers *servers,
                             struct error *error) MUST_CHECK;

/* kill -9; it is launched again with what it had written. */
void lab_broker_kill(struct lab_broker *broker);
enum status lab_broker_launch(struct lab_broker *broker, const struct lab_servers *servers,
                              struct error *error) MUST_CHECK;

/* Makes that topic, with three partitions. */
enum status lab_broker_make_topic(const struct lab_broker *broker, const char *topic,
                                  struct error *error) MUST_CHECK;
void lab_broker_stop(struct lab_broker *broker);
