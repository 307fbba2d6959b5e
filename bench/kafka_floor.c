/* kafka_floor.c: what librdkafka alone costs for the messages of a claim, with nothing around it.
 *
 * usage: kafka_floor host:port claims rounds
 *
 * For each claim it sends two messages with the headers and about the bytes that dibs has, one as
 * it was won and one as it was issued, and reads the first again. Prints the microseconds of CPU
 * per claim of each round, all threads included, as a JSON array. Topics are its own.
 */
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BATCH          500
#define ON_THE_WAY_MAX 4000 /* more of them do not fit into caches */
#define WAIT_MS        100
#define ADMIN_MS       30000

static const char *const value_pended =
    "{\"policy_id\":7,\"user\":\"user-12345678\",\"seq\":12345,\"nth\":1,\"lease\":12,"
    "\"request_id\":\"0123456789abcdef0123456789abcdef\","
    "\"requested_at\":\"2026-11-15T12:00:00.118Z\"}";
static const char *const value_issued =
    "{\"policy_id\":7,\"user\":\"user-12345678\",\"seq\":12345,\"nth\":1,\"coupon_id\":\"7-12345\","
    "\"state\":\"ISSUED\",\"request_id\":\"0123456789abcdef0123456789abcdef\","
    "\"requested_at\":\"2026-11-15T12:00:00.118Z\",\"issued_at\":\"2026-11-15T12:00:00.120Z\","
    "\"expires_at\":null}";
static const char *const headers[][2] = {
    {"ce_specversion", "1.0"},
    {"ce_id", "7-12345-issued"},
    {"ce_source", "/dibs/policies/7"},
    {"ce_type", "dibs.coupon.issued"},
    {"ce_time", "2026-11-15T12:00:00.120Z"},
    {"content-type", "application/json"},
};
#define HEADERS (sizeof(headers) / sizeof(headers[0]))

static size_t delivered_count; /* the sending thread's */
static _Atomic size_t read_count;
static _Atomic int is_over;

static void fail(const char *words)
{
    fprintf(stderr, "kafka_floor: %s\n", words);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char words[300];

    if (rd_kafka_conf_set(conf, name, value, words, sizeof(words)) != RD_KAFKA_CONF_OK)
        fail(words);
}

static void on_report(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque)
{
    (void)handle;
    (void)opaque;
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail(rd_kafka_err2str(message->err));
    delivered_count++;
}

/* With the settings that dibs has, as far as they cost anything. */
static rd_kafka_t *open_handle(rd_kafka_type_t type, const char *brokers, const char *group)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char words[300];

    set(conf, "bootstrap.servers", brokers);
    if (type == RD_KAFKA_PRODUCER) {
        set(conf, "enable.idempotence", "true");
        set(conf, "linger.ms", "20");
        set(conf, "batch.num.messages", "10000");
        rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    } else {
        set(conf, "group.id", group);
        set(conf, "enable.auto.commit", "false");
        set(conf, "enable.auto.offset.store", "false");
        set(conf, "auto.offset.reset", "earliest");
        set(conf, "fetch.wait.max.ms", "100");
        set(conf, "queued.min.messages", "5000");
    }
    rd_kafka_t *handle = rd_kafka_new(type, conf, words, sizeof(words));
    if (handle == NULL)
        fail(words);
    return handle;
}

static void make_topic(rd_kafka_t *handle, const char *name)
{
    char words[300];
    rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(name, 1, -1, words, sizeof(words));

    rd_kafka_CreateTopics(handle, &topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, ADMIN_MS);
    if (event == NULL || rd_kafka_event_error(event) != RD_KAFKA_RESP_ERR_NO_ERROR)
        fail("the topic cannot be made");
    rd_kafka_event_destroy(event);
    rd_kafka_NewTopic_destroy(topic);
    rd_kafka_queue_destroy(queue);
}

static void *read_all(void *context)
{
    rd_kafka_message_t *messages[1000];

    while (!atomic_load(&is_over)) {
        ssize_t count = rd_kafka_consume_batch_queue(context, WAIT_MS, messages, 1000);
        for (ssize_t i = 0; i < count; i++) {
            if (messages[i]->err == RD_KAFKA_RESP_ERR_NO_ERROR)
                atomic_fetch_add(&read_count, 1);
            rd_kafka_message_destroy(messages[i]);
        }
    }
    return NULL;
}

static void send_one(rd_kafka_t *producer, rd_kafka_topic_t *topic, const char *value)
{
    char own[400];
    rd_kafka_vu_t parts[4 + HEADERS] = {
        {.vtype = RD_KAFKA_VTYPE_RKT, .u.rkt = topic},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
        {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {own, 1}},
        {.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {own, strlen(value)}},
    };

    memcpy(own, value, strlen(value) + 1);
    for (size_t i = 0; i < HEADERS; i++) {
        parts[4 + i].vtype = RD_KAFKA_VTYPE_HEADER;
        parts[4 + i].u.header.name = headers[i][0];
        parts[4 + i].u.header.val = headers[i][1];
        parts[4 + i].u.header.size = (ssize_t)strlen(headers[i][1]);
    }
    rd_kafka_error_t *refused = rd_kafka_produceva(producer, parts, 4 + HEADERS);
    if (refused != NULL)
        fail(rd_kafka_error_string(refused));
}

/* So many claims, a multiple of BATCH, to their end. */
static void send_claims(rd_kafka_t *producer, rd_kafka_topic_t *const topics[2], size_t count)
{
    size_t sent_count = 0;
    size_t read_before = atomic_load(&read_count);

    delivered_count = 0;
    while (sent_count < 2 * count) {
        for (size_t topic = 0; topic < 2; topic++)
            for (size_t i = 0; i < BATCH; i++)
                send_one(producer, topics[topic], topic == 0 ? value_pended : value_issued);
        sent_count += 2 * BATCH;
        while (sent_count - delivered_count > ON_THE_WAY_MAX)
            rd_kafka_poll(producer, WAIT_MS);
    }
    while (delivered_count < sent_count || atomic_load(&read_count) - read_before < sent_count / 2)
        rd_kafka_poll(producer, WAIT_MS);
}

static double cpu_us(void)
{
    struct timespec spent;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return (double)spent.tv_sec * 1e6 + (double)spent.tv_nsec / 1e3;
}

int main(int argc, char **argv)
{
    char names[2][64];
    rd_kafka_topic_t *topics[2];
    pthread_t thread;

    if (argc != 4)
        fail("usage: kafka_floor host:port claims rounds");
    size_t count = strtoul(argv[2], NULL, 10);
    size_t rounds = strtoul(argv[3], NULL, 10);
    rd_kafka_t *producer = open_handle(RD_KAFKA_PRODUCER, argv[1], NULL);
    for (size_t i = 0; i < 2; i++) {
        snprintf(names[i], sizeof(names[i]), "floor-%d-%zu", (int)getpid(), i);
        make_topic(producer, names[i]);
        topics[i] = rd_kafka_topic_new(producer, names[i], NULL);
    }
    rd_kafka_t *consumer = open_handle(RD_KAFKA_CONSUMER, argv[1], names[0]);
    rd_kafka_poll_set_consumer(consumer);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(list, names[0], 0)->offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_assign(consumer, list);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(consumer);
    if (pthread_create(&thread, NULL, read_all, queue) != 0)
        fail("cannot start a thread");
    send_claims(producer, topics, 2 * BATCH); /* Connections are made once. */
    for (size_t i = 0; i < rounds; i++) {
        double before = cpu_us();
        send_claims(producer, topics, count);
        printf("%s%.3f%s", i == 0 ? "[" : ", ", (cpu_us() - before) / (double)count,
               i + 1 == rounds ? "]\n" : "");
    }
    atomic_store(&is_over, 1);
    pthread_join(thread, NULL);
    fflush(stdout);
    _exit(0); /* Nobody waits for good-byes. */
}
