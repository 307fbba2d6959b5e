/* played.h: what both tests of the relay play of a worker, and one number of its metrics. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/kafka.h"

static inline uint64_t relay_counted(struct kafka *kafka, struct relay_kafka *relay,
                                     const char *name)
{
    char text[8192];
    char line[64];
    struct buffer out = {.bytes = text, .capacity = sizeof(text), .length_max = sizeof(text) - 1};

    relay_kafka_metrics(kafka, relay, &out);
    text[out.length] = '\0';
    snprintf(line, sizeof(line), "\ndibs_relay_%s ", name);
    const char *found = strstr(text, line);
    assert_non_null(found);
    return strtoull(found + strlen(line), NULL, 10);
}

static inline size_t play_filter(void *context, struct claim *claims, size_t count)
{
    (void)context;
    (void)claims;
    return count;
}

static inline size_t play_outstanding(void *context, int64_t policy_id)
{
    (void)context;
    (void)policy_id;
    return 0;
}
