/* broker.c: formats a folder, starts one broker on it and waits until it answers. */
#include "lab/broker.h"

#include <glob.h>
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define START_MS   60000
#define PARTITIONS 3

static const char PROPERTIES[] =
    "process.roles=broker,controller\n"
    "node.id=1\n"
    "controller.listener.names=CONTROLLER\n"
    "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
    "offsets.topic.num.partitions=1\n"
    "offsets.topic.replication.factor=1\n"
    "transaction.state.log.replication.factor=1\n"
    "transaction.state.log.min.isr=1\n"
    "group.initial.rebalance.delay.ms=0\n"
    "listeners=PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d\n"
    "advertised.listeners=PLAINTEXT://%s\n"
    "controller.quorum.voters=1@127.0.0.1:%d\n"
    "log.dirs=%s\n";

/* "…/kafka-3.9.1-…/ *" for Java's class path. */
static enum status broker_find_jars(char path[256], struct error *error)
{
    char pattern[256];
    glob_t found;
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache != NULL)
        snprintf(pattern, sizeof(pattern), "%s/dibs/kafka-3.9.1-*", cache);
    else
        snprintf(pattern, sizeof(pattern), "%s/.cache/dibs/kafka-3.9.1-*", home ? home : "");
    if (glob(pattern, 0, NULL, &found) != 0)
        return error_set(error, STATUS_UNAVAILABLE,
                         "there is no Kafka (scripts/setup lab fetches it)");
    snprintf(path, 256, "%s/*", found.gl_pathv[0]);
    globfree(&found);
    return STATUS_OK;
}

static rd_kafka_t *broker_client(const char *address)
{
    char words[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    (void)rd_kafka_conf_set(conf, "bootstrap.servers", address, words, sizeof(words));
    (void)rd_kafka_conf_set(conf, "log_level", "0", words, sizeof(words));
    return rd_kafka_new(RD_KAFKA_PRODUCER, conf, words, sizeof(words));
}

static bool broker_answers(const char *address)
{
    const struct rd_kafka_metadata *metadata;
    rd_kafka_t *client = broker_client(address);
    bool answers = client != NULL && rd_kafka_metadata(client, 1, NULL, &metadata, 1000) ==
                                         RD_KAFKA_RESP_ERR_NO_ERROR;
    if (answers)
        rd_kafka_metadata_destroy(metadata);
    if (client != NULL)
        rd_kafka_destroy(client);
    return answers;
}

static void broker_file(const struct lab_servers *servers, char file[96])
{
    snprintf(file, 96, "%s/kafka-%d.properties", servers->folder, servers->run_count);
}

static enum status broker_write_properties(const struct lab_broker *broker,
                                           const struct lab_servers *servers, struct error *error)
{
    char data[96], file[96];
    int controller = lab_free_port();
    snprintf(data, sizeof(data), "%s/kafka-%d", servers->folder, servers->run_count);
    broker_file(servers, file);
    FILE *properties = fopen(file, "we");
    if (properties == NULL)
        return error_set(error, STATUS_FAILED, "cannot write %s", file);
    fprintf(properties, PROPERTIES, broker->address, controller, broker->address, controller, data);
    return fclose(properties) == 0 ? STATUS_OK
                                   : error_set(error, STATUS_FAILED, "cannot write %s", file);
}

enum status lab_broker_start(struct lab_broker *broker, const struct lab_servers *servers,
                             struct error *error)
{
    char jars[256], file[96];
    int status = 1;
    snprintf(broker->address, sizeof(broker->address), "127.0.0.1:%d", lab_free_port());
    enum status found = broker_find_jars(jars, error);
    if (found == STATUS_OK)
        found = broker_write_properties(broker, servers, error);
    if (found != STATUS_OK)
        return found;
    broker_file(servers, file);
    const char *const format[] = {"/usr/bin/java",
                                  "-cp",
                                  jars,
                                  "kafka.tools.StorageTool",
                                  "format",
                                  "-t",
                                  "4L6g3nShT-eMCtK--X86sw",
                                  "-c",
                                  file,
                                  NULL};
    pid_t pid = lab_spawn(servers->folder, "kafka-format", format, NULL);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        return error_set(error, STATUS_UNAVAILABLE,
                         "Kafka cannot be set up; see %s/kafka-format.log", servers->folder);
    return lab_broker_launch(broker, servers, error);
}

enum status lab_broker_launch(struct lab_broker *broker, const struct lab_servers *servers,
                              struct error *error)
{
    char jars[256], file[96];
    enum status found = broker_find_jars(jars, error);
    if (found != STATUS_OK)
        return found;
    broker_file(servers, file);
    const char *const serve[] = {"/usr/bin/java",
                                 "-Xmx512m",
                                 "-XX:+UseSerialGC",
                                 "-XX:TieredStopAtLevel=1",
                                 "-cp",
                                 jars,
                                 "kafka.Kafka",
                                 file,
                                 NULL};
    broker->pid = lab_spawn(servers->folder, "kafka", serve, NULL);
    for (int64_t deadline_ms = clock_monotonic_ms() + START_MS;
         clock_monotonic_ms() < deadline_ms;) {
        if (broker_answers(broker->address))
            return STATUS_OK;
        usleep(100000);
    }
    return error_set(error, STATUS_UNAVAILABLE, "Kafka does not start; see %s/kafka.log",
                     servers->folder);
}

static bool broker_has_made(rd_kafka_event_t *event)
{
    size_t count = 0;
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count);
    return rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR_NO_ERROR && count == 1 &&
           rd_kafka_topic_result_error(results[0]) == RD_KAFKA_RESP_ERR_NO_ERROR;
}

enum status lab_broker_make_topic(const struct lab_broker *broker, const char *topic,
                                  struct error *error)
{
    char words[256] = "";
    rd_kafka_t *client = broker_client(broker->address);
    ensure(client != NULL);
    rd_kafka_NewTopic_t *wanted = rd_kafka_NewTopic_new(topic, PARTITIONS, 1, words, sizeof(words));
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(client, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(client);
    /* The answer comes when the partitions have a leader. */
    (void)rd_kafka_AdminOptions_set_operation_timeout(options, START_MS, words, sizeof(words));
    rd_kafka_CreateTopics(client, &wanted, 1, options, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, START_MS);
    bool is_made = event != NULL && broker_has_made(event);
    if (event != NULL)
        rd_kafka_event_destroy(event);
    rd_kafka_queue_destroy(queue);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_NewTopic_destroy(wanted);
    rd_kafka_destroy(client);
    return is_made ? STATUS_OK
                   : error_set(error, STATUS_UNAVAILABLE, "the topic %s cannot be made", topic);
}

void lab_broker_kill(struct lab_broker *broker)
{
    kill(broker->pid, SIGKILL);
    waitpid(broker->pid, NULL, 0);
    broker->pid = 0;
}

void lab_broker_stop(struct lab_broker *broker)
{
    lab_end(&broker->pid);
}
