/* broker.c: formats a folder, starts one broker on it and waits until it answers. */
#include "lab/broker.h"

#include <glob.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define START_MS 60000

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
    "num.partitions=3\n"
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

static bool broker_answers(const char *address)
{
    char words[256];
    const struct rd_kafka_metadata *metadata;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    (void)rd_kafka_conf_set(conf, "bootstrap.servers", address, words, sizeof(words));
    (void)rd_kafka_conf_set(conf, "log_level", "0", words, sizeof(words));
    rd_kafka_t *client = rd_kafka_new(RD_KAFKA_PRODUCER, conf, words, sizeof(words));
    bool answers = client != NULL && rd_kafka_metadata(client, 1, NULL, &metadata, 1000) ==
                                         RD_KAFKA_RESP_ERR_NO_ERROR;
    if (answers)
        rd_kafka_metadata_destroy(metadata);
    if (client != NULL)
        rd_kafka_destroy(client);
    return answers;
}

enum status lab_broker_start(struct lab_broker *broker, const struct lab_servers *servers,
                             struct error *error)
{
    char jars[256], data[96], file[96];
    int status = 1, controller = lab_free_port();
    enum status found = broker_find_jars(jars, error);
    if (found != STATUS_OK)
        return found;
    snprintf(broker->address, sizeof(broker->address), "127.0.0.1:%d", lab_free_port());
    snprintf(data, sizeof(data), "%s/kafka-%d", servers->folder, servers->run_count);
    snprintf(file, sizeof(file), "%s/kafka-%d.properties", servers->folder, servers->run_count);
    FILE *properties = fopen(file, "we");
    if (properties == NULL)
        return error_set(error, STATUS_FAILED, "cannot write %s", file);
    fprintf(properties, PROPERTIES, broker->address, controller, broker->address, controller, data);
    fclose(properties);

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

void lab_broker_stop(struct lab_broker *broker)
{
    lab_end(&broker->pid);
}
