/* decr_kafka.c: SADD; DECR; publish to Kafka, errors are logged; a consumer writes the rows.
 *
 * Redis has decided and the message is handed over afterwards, without waiting for the broker: when
 * that is away, or the process dies before the message has left, somebody was told yes who never
 * gets a row. The consumer commits its offset whatever became of the row.
 */
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "lab/session.h"
#include "lab/strategies/strategies.h"

#define WINNERS   "coupon:%d:winners"
#define REMAINING "coupon:%d:remaining"
#define TOPIC     "lab-pended"
#define BATCH     500
#define POLL_MS   50

static pthread_once_t once = PTHREAD_ONCE_INIT;
static rd_kafka_t *producer;
static const char *brokers;

static rd_kafka_conf_t *decr_kafka_conf(void)
{
    char words[128];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    (void)rd_kafka_conf_set(conf, "bootstrap.servers", brokers, words, sizeof(words));
    (void)rd_kafka_conf_set(conf, "message.timeout.ms", "3000", words, sizeof(words));
    (void)rd_kafka_conf_set(conf, "log_level", "2", words, sizeof(words));
    return conf;
}

static void decr_kafka_open(void)
{
    char words[128];
    producer = rd_kafka_new(RD_KAFKA_PRODUCER, decr_kafka_conf(), words, sizeof(words));
}

static void decr_kafka_prepare(struct lab_session *session)
{
    (void)lab_redis(session, "SET " REMAINING " %lld", session->policy,
                    (long long)session->knobs->total);
}

static enum lab_answer decr_kafka_claim(struct lab_session *session, const char *user)
{
    bool is_new = lab_redis(session, "SADD " WINNERS " %s", session->policy, user) == 1;
    if (session->failed)
        return LAB_FAILED;
    if (!is_new)
        return LAB_ALREADY;
    lab_step(session);
    int64_t left = lab_redis(session, "DECR " REMAINING, session->policy);
    if (session->failed)
        return LAB_FAILED;
    if (left < 0)
        return LAB_SOLD_OUT;
    lab_step(session);
    char key[24], value[LAB_ID_SIZE + 24];
    lab_number_text(key, session->policy);
    snprintf(value, sizeof(value), "%d %s", session->policy, user);
    brokers = session->kafka_address;
    pthread_once(&once, decr_kafka_open);
    rd_kafka_resp_err_t failure =
        rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(TOPIC), RD_KAFKA_V_KEY(key, strlen(key)),
                          RD_KAFKA_V_VALUE(value, strlen(value)),
                          RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_END);
    if (failure != RD_KAFKA_RESP_ERR_NO_ERROR)
        fprintf(stderr, "not sent: %s\n", rd_kafka_err2str(failure));
    (void)rd_kafka_poll(producer, 0);
    return LAB_YES;
}

static rd_kafka_t *decr_kafka_subscribe(struct lab_session *session)
{
    char words[128];
    brokers = session->kafka_address;
    rd_kafka_conf_t *conf = decr_kafka_conf();
    (void)rd_kafka_conf_set(conf, "group.id", "lab-issuer", words, sizeof(words));
    (void)rd_kafka_conf_set(conf, "auto.offset.reset", "earliest", words, sizeof(words));
    (void)rd_kafka_conf_set(conf, "session.timeout.ms", "6000", words, sizeof(words));
    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, words, sizeof(words));
    rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(topics, TOPIC, RD_KAFKA_PARTITION_UA);
    (void)rd_kafka_poll_set_consumer(consumer);
    (void)rd_kafka_subscribe(consumer, topics);
    rd_kafka_topic_partition_list_destroy(topics);
    return consumer;
}

static void decr_kafka_work(struct lab_session *session, int batch)
{
    static rd_kafka_t *consumer;
    char message_text[LAB_ID_SIZE + 24], user[LAB_ID_SIZE];
    if (consumer == NULL)
        consumer = decr_kafka_subscribe(session);
    for (int i = 0; i < batch; i++) {
        rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, POLL_MS);
        if (message == NULL)
            return;
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            snprintf(message_text, sizeof(message_text), "%.*s", (int)message->len,
                     (const char *)message->payload);
            if (sscanf(message_text, "%d %63s", &session->policy, user) != 2)
                user[0] = '\0';
            lab_step(session);
            if (!lab_insert(session, user)) /* logged, and the offset goes on */
                fprintf(stderr, "not written: %s\n", session->sqlstate);
        }
        rd_kafka_message_destroy(message);
    }
}

const struct lab_strategy lab_decr_kafka = {
    .name = "decr-kafka",
    .commands = "SADD winners; DECR remaining; produce, errors only logged; consumer: INSERT",
    .why_of =
        {
            [LAB_BROKER_AWAY] = "DECR has decided, and a message that the broker does not take in "
                                "time is dropped with a line in the log.",
            [LAB_SERVER_KILLED] =
                "SADD and DECR are done, and the messages that the server had not sent when it "
                "died never arrive; who asks again hears \"already\".",
            [LAB_POISON] =
                "The consumer logs the INSERT that failed, and goes on with the next offset.",
        },
    .why =
        {
            [LAB_WRONG_NO_ROW] = "DECR has decided, and the message may never arrive: an error of "
                                 "produce is logged, and a consumer that fails goes on.",
            [LAB_WRONG_UNSOLD] = "A unit whose message is lost, or whose server dies after DECR, "
                                 "goes to nobody.",
            [LAB_WRONG_ALREADY] = "SADD comes before DECR: losers, and those whose server died, "
                                  "stay in the set and hear \"already\".",
        },
    .needs_redis = true,
    .topic = TOPIC,
    .pause_ms = 1,
    .batch = BATCH,
    .prepare = decr_kafka_prepare,
    .claim = decr_kafka_claim,
    .work = decr_kafka_work,
};
