/* kafka.h: this process's connection to Kafka, which events, orders and claims share: where it is,
 * whether it answers, and one producer.
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
 * Threads: open, stop and close from the owner, the others from any.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/url.h"
#include "event/sink.h"

struct ledger;
struct rd_kafka_conf_s;
struct rd_kafka_s;

/* --- the target: which Kafka a URL names, and how it is reached; only read once parsed --- */

/* The topics of dibs. */
enum kafka_topic {
    KAFKA_COUPON_PENDED,
    KAFKA_COUPON_ISSUED,
    KAFKA_COUPON_PENDED_DLQ,
    KAFKA_ORDER_COMPLETED,
    KAFKA_ORDER_COMPLETED_DLQ,
};
#define KAFKA_TOPICS     (KAFKA_ORDER_COMPLETED_DLQ + 1)
#define KAFKA_PARTITIONS 3 /* of a topic that is created here, when nobody says how many */
#define KAFKA_NAME_SIZE  256

/* What topics and groups are called, without the prefix; NULL or 0: as usual. A topic of dead
 * letters is called as the one they come from, with "-dlq" behind it. */
struct kafka_names {
    const char *pended;
    const char *issued;
    const char *orders;
    const char *issuer_group;
    const char *orders_group;
    int partitions; /* of a topic that is created here */
};

struct kafka_target {
    struct url url;
    char *password;                             /* NULL: none */
    char brokers[URL_LENGTH_MAX];               /* "host:port,host:port" */
    const char *security;                       /* as librdkafka calls it */
    const char *mechanism;                      /* NULL: no SASL */
    char topics[KAFKA_TOPICS][KAFKA_NAME_SIZE]; /* with the prefix */
    bool claims_are_direct;                     /* they do not go through their topic */
    int partitions;                             /* of a topic that is created here */
    int session_ms;                             /* a member that is silent for so long is out */
    char issuer_group[KAFKA_NAME_SIZE];         /* of those who write the ledger */
    char orders_group[KAFKA_NAME_SIZE];         /* of those who count orders */
};

/* `password` wins over the URL's; NULL: none. INVALID: the URL is wrong, and there is nothing to
 * release. */
enum status kafka_target_init(struct kafka_target *target, const char *url, const char *password,
                              struct error *error) MUST_CHECK;
void kafka_target_release(struct kafka_target *target);

/* INVALID: two topics, or both groups, would have the same name. */
enum status kafka_target_name(struct kafka_target *target, const struct kafka_names *names,
                              struct error *error) MUST_CHECK;

/* --- clients of librdkafka --- */

struct kafka_setting {
    const char *name;  /* of librdkafka's; NULL: the end of the list */
    const char *value; /* NULL: as it is */
};

/* A configuration with everything that a connection needs, with these settings, and `opaque` for
 * its callbacks. INVALID: a file is missing or librdkafka cannot do what is asked. The caller gives
 * it to kafka_client_new() or rd_kafka_conf_destroy(). */
enum status kafka_client_configure(const struct kafka_target *target,
                                   const struct kafka_setting *settings, void *opaque,
                                   struct rd_kafka_conf_s **conf, struct error *error) MUST_CHECK;

enum kafka_client { KAFKA_PRODUCER, KAFKA_CONSUMER };

/* Makes a client of a configuration, which is gone in any case. INVALID: a setting is wrong;
 * UNAVAILABLE: there is nothing to make it of just now. */
enum status kafka_client_new(enum kafka_client client, struct rd_kafka_conf_s *conf,
                             struct rd_kafka_s **handle, struct error *error) MUST_CHECK;

/* Asks the brokers for a topic; waits for their answer, at most so long. 0, or librdkafka's code.
 * A topic that is missing has no partitions; one that has no leader just now is not led. */
int kafka_client_find(struct rd_kafka_s *handle, const char *name, int timeout_ms,
                      size_t *partition_count, bool *is_led) MUST_CHECK;

/* All partitions of a topic, at that offset; rd_kafka_topic_partition_list_destroy() is the
 * caller's. */
struct rd_kafka_topic_partition_list_s *kafka_client_list(const char *topic, size_t partition_count,
                                                          int64_t offset);

/* Where each partition begins or ends: RD_KAFKA_OFFSET_BEGINNING or _END. */
enum status kafka_client_edge(struct rd_kafka_s *handle, const char *topic, size_t partition_count,
                              int64_t which, int timeout_ms, int64_t *offsets,
                              struct error *error) MUST_CHECK;

/* Destroying a client waits until every request that is on its way was answered or has timed out,
 * which takes a minute when a broker stands still. What is not over by the deadline goes on in a
 * thread of its own that touches nothing of ours, and ends with the process at the latest. A
 * deadline is monotonic, and at least KAFKA_END_MS from now. Nobody else uses the handle any more.
 */
#define KAFKA_END_MS 1000
void kafka_client_end(struct rd_kafka_s *handle, int64_t until_ms);

/* Leaves the consumer's group, so that others get its partitions at once, as far as there is time.
 * Its callbacks are called here. */
void kafka_client_leave(struct rd_kafka_s *handle, int64_t until_ms);

/* --- the producer: publishes batches, each delivered to all replicas or reported ---
 *
 * It is idempotent and gapless: messages of one key arrive in the order they were sent, none twice,
 * none missing in between. When a batch fails, everything sent behind it fails too, and the
 * producer is made anew; whoever sent it sends it again, in order, from the first that failed.
 *
 * Topics that are missing are created before anything is sent. Until then, while the producer is
 * made anew, and while too much is on its way, sending is BUSY: nothing waits in here without
 * bound, and no call but close blocks. batch->done() is called on the producer's own thread. */

#define KAFKA_QUEUE_MAX 20000 /* messages on their way */

struct kafka_producer;

struct kafka_producer_numbers {
    bool is_ready; /* the topics are there */
    uint64_t recreated;
    size_t in_flight;
};

/* Does not wait for a broker. The target is borrowed until it is closed. */
enum status kafka_producer_open(struct kafka_producer **producer, const struct kafka_target *target,
                                struct error *error) MUST_CHECK;

/* Waits until everything is reported, at most so long; what is not is reported as failed. */
void kafka_producer_close(struct kafka_producer *producer, int64_t timeout_ms);

/* Takes the batch of so many messages as a whole: OK, and done() will be called, maybe before this
 * returns. BUSY: try again in a moment; nothing was sent and done() is not called. INVALID: it can
 * never be sent. */
enum status kafka_producer_send(struct kafka_producer *producer, enum kafka_topic topic,
                                struct event_batch *batch, size_t count,
                                struct error *error) MUST_CHECK;

void kafka_producer_count(struct kafka_producer *producer, struct kafka_producer_numbers *numbers);

/* --- the watch: whether the brokers answer, and how far the group that writes the ledger has come
 * in the topic of pended claims. It logs when the brokers go away and when they are back. --- */

#define KAFKA_WATCH_PARTITIONS_MAX 128

struct kafka_watch;

/* What was seen when the brokers last answered; the ends first, then the group's offsets. */
struct kafka_view {
    bool is_up;       /* they answered the last time */
    bool is_known;    /* whether they answer: they were asked at least once */
    int64_t began_ms; /* monotonic; 0: they have not answered yet */
    size_t partition_count;
    int64_t ends[KAFKA_WATCH_PARTITIONS_MAX];      /* behind the last message */
    int64_t committed[KAFKA_WATCH_PARTITIONS_MAX]; /* as far as all is in the ledger */
    char text[200];                                /* "ok", or what is wrong */
};

/* Where the topic ended at some time: has the group come that far? */
struct kafka_goal {
    bool is_set;
    bool has_ends;
    int64_t set_ms; /* monotonic */
    size_t partition_count;
    int64_t ends[KAFKA_WATCH_PARTITIONS_MAX];
};

enum status kafka_watch_open(struct kafka_watch **watch, const struct kafka_target *target,
                             struct error *error) MUST_CHECK;
void kafka_watch_close(struct kafka_watch *watch);
void kafka_watch_read(struct kafka_watch *watch, struct kafka_view *view);

/* True when everything that was in the topic when the goal was set is done with. Sets a goal that
 * is not set, and is false then; unsets one that is reached. */
bool kafka_watch_reached(struct kafka_watch *watch, struct kafka_goal *goal);

/* --- all of it --- */

enum kafka_use {
    KAFKA_WATCHES,   /* others publish; it is watched how they fare */
    KAFKA_PUBLISHES, /* there is a producer */
};

struct kafka {
    struct event_sink sink; /* the first, so that it leads here */
    struct kafka_target target;
    struct kafka_watch *watch;
    struct kafka_producer *producer; /* NULL: nothing is published from here */
    pthread_mutex_t lock;            /* guards what is reported about dead letters */
};

/* Does not wait for anybody. *kafka is NULL when the URL is not one of Kafka. INVALID: the URL or a
 * file that it names is wrong. `password` may be NULL: as the URL says. */
enum status kafka_open(struct kafka **kafka, const char *url, const char *password,
                       const struct kafka_names *names, enum kafka_use use,
                       struct error *error) MUST_CHECK;

/* Everything that was sent is reported when this returns, and nothing more is taken. NULL is fine,
 * here and below. */
void kafka_stop(struct kafka *kafka);
void kafka_close(struct kafka *kafka);

/* Whether the brokers answer and have the topics, and if not why; "ok" otherwise. Never blocks. */
bool kafka_is_ready(struct kafka *kafka, struct error *failure);

/* --- orders that other systems tell of, from a topic into the ledger ---
 *
 * An order counts once, by its id, however often it comes; its offset is committed when the ledger
 * has it. A message that is no order, or contradicts one that is there, goes to the dead-letter
 * topic with the reason, and holds up nothing behind it. The ledger is used on the consumer's
 * thread, which waits for it. */

struct kafka_orders;

/* Does not wait for a broker. Both are borrowed until it is closed; kafka publishes. */
enum status kafka_orders_open(struct kafka_orders **orders, struct kafka *kafka,
                              struct ledger *ledger, struct error *error) MUST_CHECK;

/* Takes no more, waits for what is at work, at most so long, and leaves the group. NULL is fine,
 * here and below. */
void kafka_orders_close(struct kafka_orders *orders, int64_t timeout_ms);
void kafka_orders_metrics(struct kafka_orders *orders, struct buffer *out);
