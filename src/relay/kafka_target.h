/* kafka_target.h: which Kafka a URL names, and how it is reached:
 *
 *     kafka://host:9092,host:9092                         plain text
 *     kafka://user@host?security=sasl_ssl&sasl=SCRAM-SHA-512
 *     kafka://host?claims=direct                          coupons are told, claims go past it
 *
 * Parameters: claims (kafka: through the topic of pended claims, the default; direct: straight into
 * the ledger), session_timeout_ms (of the groups' members, 6000), security (plaintext, ssl,
 * sasl_plaintext, sasl_ssl; plaintext unless something of TLS or SASL is said), sasl (PLAIN,
 * SCRAM-SHA-256, SCRAM-SHA-512: the default), ssl_ca (a file; else the system's), ssl_cert and
 * ssl_key, ssl_verify (full: chain and name, the default; ca: the chain; none), prefix (in front of
 * every topic and group). The password comes from a setting of its own or stands in the URL.
 *
 * Threads: only read once parsed.
 */
#ifndef RELAY_KAFKA_TARGET_H
#define RELAY_KAFKA_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/url.h"

struct rd_kafka_conf_s;
struct rd_kafka_s;

/* The topics of dibs. */
enum kafka_topic {
    KAFKA_COUPON_PENDED,
    KAFKA_COUPON_ISSUED,
    KAFKA_COUPON_PENDED_DLQ,
    KAFKA_ORDER_COMPLETED,
    KAFKA_ORDER_COMPLETED_DLQ,
};
#define KAFKA_TOPICS     (KAFKA_ORDER_COMPLETED_DLQ + 1)
#define KAFKA_PARTITIONS 3 /* of a topic that is created here */
#define KAFKA_NAME_SIZE  160

struct kafka_target {
    struct url url;
    char *password;                             /* NULL: none */
    char brokers[URL_LENGTH_MAX];               /* "host:port,host:port" */
    const char *security;                       /* as librdkafka calls it */
    const char *mechanism;                      /* NULL: no SASL */
    char topics[KAFKA_TOPICS][KAFKA_NAME_SIZE]; /* with the prefix */
    bool claims_are_direct;                     /* they do not go through their topic */
    int session_ms;                             /* one that is silent for so long is out */
    char issuer_group[KAFKA_NAME_SIZE];         /* of those who write the ledger */
    char orders_group[KAFKA_NAME_SIZE];         /* of those who count orders */
};

/* `password` wins over the URL's; NULL: none. INVALID: the URL is wrong, and there is nothing to
 * release. */
enum status kafka_target_init(struct kafka_target *target, const char *url, const char *password,
                              struct error *error) MUST_CHECK;
void kafka_target_release(struct kafka_target *target);

/* A configuration with everything that a connection needs; more may be set in it with
 * kafka_target_set(). INVALID: a file is missing or librdkafka cannot do what is asked. The caller
 * gives it to kafka_target_new() or rd_kafka_conf_destroy(). */
enum status kafka_target_configure(const struct kafka_target *target, struct rd_kafka_conf_s **conf,
                                   struct error *error) MUST_CHECK;

/* Sets one property whose name and value are our own: a mistake asserts. */
void kafka_target_set(struct rd_kafka_conf_s *conf, const char *name, const char *value);
void kafka_target_set_ms(struct rd_kafka_conf_s *conf, const char *name, int value_ms);

enum kafka_client { KAFKA_PRODUCER, KAFKA_CONSUMER };

/* Makes a client of a configuration, which is gone in any case. INVALID: a setting is wrong;
 * UNAVAILABLE: there is nothing to make it of just now. */
enum status kafka_target_new(enum kafka_client client, struct rd_kafka_conf_s *conf,
                             struct rd_kafka_s **handle, struct error *error) MUST_CHECK;

enum kafka_topic_state {
    KAFKA_TOPIC_MISSING, /* or nobody answers */
    KAFKA_TOPIC_UNLED,   /* a partition of it has no leader just now */
    KAFKA_TOPIC_LED,
};

/* Asks the brokers for a topic; waits for their answer, at most so long. */
enum kafka_topic_state kafka_target_look_up(struct rd_kafka_s *handle, const char *name,
                                            int timeout_ms);

#endif
