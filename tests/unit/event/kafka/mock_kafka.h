/* mock_kafka.h: brokers inside librdkafka, for the errors that real ones do not make when asked. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "event/kafka/kafka.h"

#define MOCK_PRODUCE 0 /* the number of that request in Kafka's protocol */
#define MOCK_WAIT_MS 30000

struct mock_kafka {
    rd_kafka_t *handle;
    rd_kafka_mock_cluster_t *cluster;
    char url[256];
};

static inline void mock_kafka_init(struct mock_kafka *mock)
{
    /* All that dibs makes sure of: these brokers can create none when asked. */
    static const char *const topics[] = {"coupon-pended", "coupon-issued", "coupon-pended-dlq",
                                         "order-completed", "order-completed-dlq"};
    char words[200];

    mock->handle = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), words, sizeof(words));
    assert_non_null(mock->handle);
    mock->cluster = rd_kafka_mock_cluster_new(mock->handle, 1);
    assert_non_null(mock->cluster);
    for (size_t i = 0; i < sizeof(topics) / sizeof(topics[0]); i++)
        assert_int_equal(rd_kafka_mock_topic_create(mock->cluster, topics[i], 3, 1), 0);
    snprintf(mock->url, sizeof(mock->url), "kafka://%s",
             rd_kafka_mock_cluster_bootstraps(mock->cluster));
}

static inline void mock_kafka_release(struct mock_kafka *mock)
{
    rd_kafka_mock_cluster_destroy(mock->cluster);
    rd_kafka_destroy(mock->handle);
}

static inline void mock_pause(void)
{
    struct timespec pause = {.tv_nsec = 5000000};
    nanosleep(&pause, NULL);
}

/* Waits until the condition holds, and asks no more then. */
#define mock_await(condition)                                               \
    do {                                                                    \
        int64_t until_ms_ = clock_monotonic_ms() + MOCK_WAIT_MS;            \
        bool holds_;                                                        \
        while (!(holds_ = (condition)) && clock_monotonic_ms() < until_ms_) \
            mock_pause();                                                   \
        if (!holds_)                                                        \
            fail_msg("it never came that %s", #condition);                  \
    } while (0)
