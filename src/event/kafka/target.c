/* target.c: reads a Kafka URL, turns it into librdkafka's settings, and makes and ends clients. */
#include "event/kafka/kafka.h"

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define PORT_DEFAULT   9092
#define PREFIX_MAX     100
#define MECHANISM_BEST "SCRAM-SHA-512"

#define END_POLL_MS    5

#define SESSION_MS     6000
#define SESSION_MIN_MS 1000
#define SESSION_MAX_MS 600000

#define KNOWN_PARAMETERS \
    "claims, security, sasl, ssl_ca, ssl_cert, ssl_key, ssl_verify, prefix, session_timeout_ms"

/* Lists of words that a parameter may be; each ends with NULL. */
static const char *const kafka_parameters[] = {
    "claims", "security",           "sasl", "ssl_ca", "ssl_cert", "ssl_key", "ssl_verify",
    "prefix", "session_timeout_ms", NULL};
static const char *const kafka_claims[] = {"kafka", "direct", NULL};
static const char *const kafka_securities[] = {"plaintext", "ssl", "sasl_plaintext", "sasl_ssl",
                                               NULL};
static const char *const kafka_mechanisms[] = {"PLAIN", "SCRAM-SHA-256", MECHANISM_BEST, NULL};
static const char *const kafka_verifications[] = {"full", "ca", "none", NULL};

static const char *const kafka_topic_names[KAFKA_TOPICS] = {
    [KAFKA_COUPON_PENDED] = "coupon-pended",
    [KAFKA_COUPON_ISSUED] = "coupon-issued",
    [KAFKA_ORDER_COMPLETED] = "order-completed",
};

/* The word of the list that is meant, or NULL. */
static const char *kafka_choice(const char *const *choices, const char *word)
{
    while (*choices != NULL && strcmp(*choices, word) != 0)
        choices++;
    return *choices;
}

static enum status kafka_target_check_parameters(const struct url *url, struct error *error)
{
    for (size_t i = 0; i < url->parameter_count; i++)
        if (kafka_choice(kafka_parameters, url->parameters[i].name) == NULL)
            return error_set(error, STATUS_INVALID,
                             "relay: unknown parameter \"%.40s\"; known: " KNOWN_PARAMETERS,
                             url->parameters[i].name);
    if (url->path[0] != '\0')
        return error_set(error, STATUS_INVALID,
                         "relay: nothing follows the brokers' addresses but ?parameters; topics "
                         "have names of their own, with ?prefix= in front");
    return STATUS_OK;
}

static enum status kafka_target_read_hosts(struct kafka_target *target, struct error *error)
{
    const struct url *url = &target->url;
    size_t length = 0;

    for (size_t i = 0; i < url->host_count; i++) {
        const struct url_host *host = &url->hosts[i];
        const char *name = host->name[0] != '\0' ? host->name : "127.0.0.1";
        bool is_v6 = strchr(name, ':') != NULL;
        if (name[0] == '/')
            return error_set(error, STATUS_INVALID, "relay: Kafka has no unix sockets");
        int written = snprintf(target->brokers + length, sizeof(target->brokers) - length,
                               "%s%s%s%s:%d", length > 0 ? "," : "", is_v6 ? "[" : "", name,
                               is_v6 ? "]" : "", host->port != 0 ? host->port : PORT_DEFAULT);
        length += (size_t)written;
        if (length >= sizeof(target->brokers))
            return error_set(error, STATUS_INVALID, "relay: too many brokers");
    }
    return STATUS_OK;
}

static enum status kafka_target_read_names(struct kafka_target *target, struct error *error)
{
    const char *prefix = url_parameter(&target->url, "prefix");

    if (prefix == NULL)
        prefix = "";
    if (strlen(prefix) > PREFIX_MAX ||
        prefix[strspn(prefix,
                      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] != '\0')
        return error_set(error, STATUS_INVALID,
                         "relay: prefix has up to %d of A-Z a-z 0-9 . _ -, as topics do",
                         PREFIX_MAX);
    return kafka_target_name(target, &(struct kafka_names){.partitions = 0}, error);
}

static void kafka_name(char *out, const char *prefix, const char *name, const char *usual,
                       const char *end)
{
    snprintf(out, KAFKA_NAME_SIZE, "%s%s%s", prefix, name != NULL ? name : usual, end);
}

enum status kafka_target_name(struct kafka_target *target, const struct kafka_names *names,
                              struct error *error)
{
    static const enum kafka_topic dead_letters_of[KAFKA_TOPICS] = {
        [KAFKA_COUPON_PENDED_DLQ] = KAFKA_COUPON_PENDED,
        [KAFKA_ORDER_COMPLETED_DLQ] = KAFKA_ORDER_COMPLETED,
    };
    const char *said[KAFKA_TOPICS] = {[KAFKA_COUPON_PENDED] = names->pended,
                                      [KAFKA_COUPON_ISSUED] = names->issued,
                                      [KAFKA_ORDER_COMPLETED] = names->orders};
    const char *prefix = url_parameter(&target->url, "prefix");

    if (prefix == NULL)
        prefix = "";
    for (size_t i = 0; i < KAFKA_TOPICS; i++) {
        bool is_dlq = i == KAFKA_COUPON_PENDED_DLQ || i == KAFKA_ORDER_COMPLETED_DLQ;
        size_t named = is_dlq ? dead_letters_of[i] : i;
        kafka_name(target->topics[i], prefix, said[named], kafka_topic_names[named],
                   is_dlq ? "-dlq" : "");
        for (size_t other = 0; other < i; other++)
            if (strcmp(target->topics[i], target->topics[other]) == 0)
                return error_set(error, STATUS_INVALID, "two topics of Kafka are called %.100s",
                                 target->topics[i]);
    }
    kafka_name(target->issuer_group, prefix, names->issuer_group, "dibs-issuer", "");
    kafka_name(target->orders_group, prefix, names->orders_group, "dibs-orders", "");
    if (strcmp(target->issuer_group, target->orders_group) == 0)
        return error_set(error, STATUS_INVALID, "both groups of Kafka are called %.100s",
                         target->issuer_group);
    target->partitions = names->partitions > 0 ? names->partitions : KAFKA_PARTITIONS;
    return STATUS_OK;
}

static enum status kafka_target_read_claims(struct kafka_target *target, struct error *error)
{
    const char *claims = url_parameter(&target->url, "claims");
    const char *session = url_parameter(&target->url, "session_timeout_ms");

    if (claims != NULL && kafka_choice(kafka_claims, claims) == NULL)
        return error_set(error, STATUS_INVALID,
                         "relay: claims is kafka (they go through the topic coupon-pended) or "
                         "direct (straight into the ledger)");
    target->claims_are_direct = claims != NULL && strcmp(claims, "direct") == 0;
    target->session_ms = SESSION_MS;
    if (session == NULL)
        return STATUS_OK;
    char *end = NULL;
    long number = strtol(session, &end, 10);
    if (end == session || *end != '\0' || number < SESSION_MIN_MS || number > SESSION_MAX_MS)
        return error_set(error, STATUS_INVALID,
                         "relay: session_timeout_ms is a number from %d to %d", SESSION_MIN_MS,
                         SESSION_MAX_MS);
    target->session_ms = (int)number;
    return STATUS_OK;
}

/* --- security --- */

static bool kafka_target_says_tls(const struct url *url)
{
    return url_parameter(url, "ssl_ca") != NULL || url_parameter(url, "ssl_cert") != NULL ||
           url_parameter(url, "ssl_key") != NULL || url_parameter(url, "ssl_verify") != NULL;
}

static enum status kafka_target_read_sasl(struct kafka_target *target, bool uses_sasl,
                                          struct error *error)
{
    const char *said = url_parameter(&target->url, "sasl");
    const char *user = target->url.user;

    if (!uses_sasl) {
        if (said != NULL || (user != NULL && user[0] != '\0') || target->password != NULL)
            return error_set(error, STATUS_INVALID,
                             "relay: a user, a password or sasl= needs security=sasl_ssl (or "
                             "sasl_plaintext)");
        return STATUS_OK;
    }
    target->mechanism = said == NULL ? MECHANISM_BEST : kafka_choice(kafka_mechanisms, said);
    if (target->mechanism == NULL)
        return error_set(error, STATUS_INVALID,
                         "relay: sasl is PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512");
    if (user == NULL || user[0] == '\0' || target->password == NULL)
        return error_set(error, STATUS_INVALID,
                         "relay: SASL needs a user, as in kafka://user@host, and a password in "
                         "relay_password_file");
    return STATUS_OK;
}

static enum status kafka_target_read_security(struct kafka_target *target, struct error *error)
{
    const struct url *url = &target->url;
    const char *said = url_parameter(url, "security");
    const char *verify = url_parameter(url, "ssl_verify");
    bool has_user = (url->user != NULL && url->user[0] != '\0') || url_parameter(url, "sasl");
    bool says_tls = kafka_target_says_tls(url);

    if (said == NULL)
        said = says_tls ? (has_user ? "sasl_ssl" : "ssl")
                        : (has_user ? "sasl_plaintext" : "plaintext");
    target->security = kafka_choice(kafka_securities, said);
    if (target->security == NULL)
        return error_set(error, STATUS_INVALID,
                         "relay: security is plaintext, ssl, sasl_plaintext or sasl_ssl");
    bool uses_tls = strstr(target->security, "ssl") != NULL;
    if (says_tls && !uses_tls)
        return error_set(error, STATUS_INVALID, "relay: ssl_… needs security=ssl or sasl_ssl");
    if (verify != NULL && kafka_choice(kafka_verifications, verify) == NULL)
        return error_set(error, STATUS_INVALID, "relay: ssl_verify is full, ca or none");
    if ((url_parameter(url, "ssl_cert") == NULL) != (url_parameter(url, "ssl_key") == NULL))
        return error_set(error, STATUS_INVALID, "relay: ssl_cert and ssl_key belong together");
    return kafka_target_read_sasl(target, strncmp(target->security, "sasl_", 5) == 0, error);
}

/* --- life --- */

enum status kafka_target_init(struct kafka_target *target, const char *url, const char *password,
                              struct error *error)
{
    *target = (struct kafka_target){.password = NULL};
    enum status status = url_parse(&target->url, url, error);

    if (status != STATUS_OK)
        return status;
    if (strcmp(target->url.scheme, "kafka") != 0)
        status = error_set(error, STATUS_INVALID,
                           "relay: unknown kind of URL; known: direct, kafka://host:port,…");
    if (password == NULL)
        password = target->url.password;
    if (status == STATUS_OK && password != NULL && (target->password = strdup(password)) == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for the relay's URL");
    if (status == STATUS_OK)
        status = kafka_target_check_parameters(&target->url, error);
    if (status == STATUS_OK)
        status = kafka_target_read_hosts(target, error);
    if (status == STATUS_OK)
        status = kafka_target_read_names(target, error);
    if (status == STATUS_OK)
        status = kafka_target_read_claims(target, error);
    if (status == STATUS_OK)
        status = kafka_target_read_security(target, error);
    if (status != STATUS_OK)
        kafka_target_release(target);
    return status;
}

void kafka_target_release(struct kafka_target *target)
{
    secret_free(target->password);
    url_release(&target->url);
    *target = (struct kafka_target){.password = NULL};
}

/* --- clients --- */

/* The users of a client log once what needs a human; this is for debugging. */
static void kafka_client_log(const rd_kafka_t *handle, int level, const char *facility,
                             const char *text)
{
    log_event(LOG_DEBUG, "kafka_client", LOG_FIELD("level", LOG_I64(level)),
              LOG_FIELD("facility", LOG_TEXT(facility)), LOG_FIELD("words", LOG_TEXT(text)));
}

/* The error text of librdkafka may repeat a value, such as a password, and is not shown. */
static enum status kafka_client_set(rd_kafka_conf_t *conf, const struct kafka_setting *settings,
                                    struct error *error)
{
    for (; settings->name != NULL; settings++)
        if (settings->value != NULL &&
            rd_kafka_conf_set(conf, settings->name, settings->value, NULL, 0) != RD_KAFKA_CONF_OK)
            return error_set(error, STATUS_INVALID, "relay: this librdkafka does not take %s",
                             settings->name);
    return STATUS_OK;
}

static enum status kafka_client_check_files(const struct kafka_target *target, struct error *error)
{
    static const char *const parameters[] = {"ssl_ca", "ssl_cert", "ssl_key"};

    for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {
        const char *file = url_parameter(&target->url, parameters[i]);
        if (file != NULL && access(file, R_OK) != 0)
            return error_set(error, STATUS_INVALID, "relay: %s: %.200s cannot be read",
                             parameters[i], file);
    }
    return STATUS_OK;
}

enum status kafka_client_configure(const struct kafka_target *target,
                                   const struct kafka_setting *settings, void *opaque,
                                   rd_kafka_conf_t **conf, struct error *error)
{
    const struct url *url = &target->url;
    const char *verify = url_parameter(url, "ssl_verify");
    bool uses_tls = strstr(target->security, "ssl") != NULL;
    bool is_full = verify == NULL || strcmp(verify, "full") == 0;
    bool is_unverified = verify != NULL && strcmp(verify, "none") == 0;
    const struct kafka_setting common[] = {
        {"bootstrap.servers", target->brokers},
        {"security.protocol", target->security},
        {"ssl.ca.location", url_parameter(url, "ssl_ca")},
        {"ssl.certificate.location", url_parameter(url, "ssl_cert")},
        {"ssl.key.location", url_parameter(url, "ssl_key")},
        {"ssl.endpoint.identification.algorithm", !uses_tls ? NULL
                                                  : is_full ? "https"
                                                            : "none"},
        {"enable.ssl.certificate.verification", is_unverified ? "false" : NULL},
        {"sasl.mechanism", target->mechanism},
        {"sasl.username", target->mechanism != NULL ? url->user : NULL},
        {"sasl.password", target->mechanism != NULL ? target->password : NULL},
        {"client.id", "dibs"},
        {"log_level", "4"},
        {"socket.keepalive.enable", "true"},
        {"socket.nagle.disable", "true"},
        {"reconnect.backoff.ms", "100"},
        {"reconnect.backoff.max.ms", "2000"},
        {"topic.metadata.refresh.interval.ms", "10000"},
        {"allow.auto.create.topics", "false"},
        {NULL, NULL},
    };
    rd_kafka_conf_t *made = rd_kafka_conf_new();
    enum status status = kafka_client_check_files(target, error);

    if (status == STATUS_OK)
        status = kafka_client_set(made, common, error);
    if (status == STATUS_OK)
        status = kafka_client_set(made, settings, error);
    if (status != STATUS_OK) {
        rd_kafka_conf_destroy(made);
        return status;
    }
    rd_kafka_conf_set_log_cb(made, kafka_client_log);
    rd_kafka_conf_set_opaque(made, opaque);
    *conf = made;
    return STATUS_OK;
}

enum status kafka_client_new(enum kafka_client client, rd_kafka_conf_t *conf, rd_kafka_t **handle,
                             struct error *error)
{
    char text[300];

    *handle = rd_kafka_new(client == KAFKA_PRODUCER ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf,
                           text, sizeof(text));
    if (*handle != NULL)
        return STATUS_OK;
    bool is_wrong = rd_kafka_last_error() == RD_KAFKA_RESP_ERR__INVALID_ARG;
    rd_kafka_conf_destroy(conf);
    return error_set(error, is_wrong ? STATUS_INVALID : STATUS_UNAVAILABLE, "relay: %s", text);
}

int kafka_client_find(rd_kafka_t *handle, const char *name, int timeout_ms, size_t *partition_count,
                      bool *is_led)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
    rd_kafka_resp_err_t code = topic == NULL
                                   ? RD_KAFKA_RESP_ERR__FAIL
                                   : rd_kafka_metadata(handle, 0, topic, &metadata, timeout_ms);

    *partition_count = 0;
    *is_led = true;
    if (topic != NULL)
        rd_kafka_topic_destroy(topic);
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
        return code;
    if (metadata->topic_cnt == 1 && metadata->topics[0].err == RD_KAFKA_RESP_ERR_NO_ERROR)
        *partition_count = (size_t)metadata->topics[0].partition_cnt;
    for (size_t i = 0; i < *partition_count; i++)
        *is_led = *is_led && metadata->topics[0].partitions[i].leader >= 0;
    rd_kafka_metadata_destroy(metadata);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_topic_partition_list_t *kafka_client_list(const char *topic, size_t partition_count,
                                                   int64_t offset)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)partition_count);

    for (size_t i = 0; i < partition_count; i++)
        rd_kafka_topic_partition_list_add(list, topic, (int32_t)i)->offset = offset;
    return list;
}

/* It is asked for as an offset at a time, because librdkafka's functions for the ends of a
 * partition ignore their timeout: minutes, behind a broker that just went away. An offset that was
 * not answered in time stays as it was asked, below zero. */
static rd_kafka_resp_err_t kafka_edge_once(rd_kafka_t *handle, const char *topic,
                                           size_t partition_count, int64_t which, int timeout_ms,
                                           int64_t *offsets)
{
    rd_kafka_topic_partition_list_t *list = kafka_client_list(topic, partition_count, which);
    rd_kafka_resp_err_t code = rd_kafka_offsets_for_times(handle, list, timeout_ms);

    for (size_t i = 0; i < partition_count && code == RD_KAFKA_RESP_ERR_NO_ERROR; i++) {
        offsets[i] = list->elems[i].offset;
        code = list->elems[i].err;
        if (code == RD_KAFKA_RESP_ERR_NO_ERROR && offsets[i] < 0)
            code = RD_KAFKA_RESP_ERR__TIMED_OUT;
    }
    rd_kafka_topic_partition_list_destroy(list);
    return code;
}

enum status kafka_client_edge(rd_kafka_t *handle, const char *topic, size_t partition_count,
                              int64_t which, int timeout_ms, int64_t *offsets, struct error *error)
{
    const struct timespec pause = {.tv_nsec = END_POLL_MS * 1000000L};
    int64_t until_ms = clock_monotonic_ms() + timeout_ms;
    rd_kafka_resp_err_t code;

    /* The leader of a new topic takes a moment to know that it is the leader. */
    while ((code = kafka_edge_once(handle, topic, partition_count, which, timeout_ms, offsets)) ==
               RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION &&
           clock_monotonic_ms() < until_ms)
        nanosleep(&pause, NULL);
    return code == RD_KAFKA_RESP_ERR_NO_ERROR
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "the partitions of %s cannot be asked: %s",
                           topic, rd_kafka_err2str(code));
}

/* --- the end of a client --- */

static int64_t kafka_end_at_least(int64_t until_ms)
{
    int64_t least_ms = clock_monotonic_ms() + KAFKA_END_MS;
    return until_ms > least_ms ? until_ms : least_ms;
}

static void *kafka_end_main(void *handle)
{
    rd_kafka_destroy_flags(handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    return NULL;
}

void kafka_client_end(rd_kafka_t *handle, int64_t until_ms)
{
    const struct timespec pause = {.tv_nsec = END_POLL_MS * 1000000L};
    pthread_t thread;

    until_ms = kafka_end_at_least(until_ms);
    if (pthread_create(&thread, NULL, kafka_end_main, handle) != 0) {
        kafka_end_main(handle);
        return;
    }
    pthread_setname_np(thread, "kafka-end");
    while (pthread_tryjoin_np(thread, NULL) != 0) {
        if (clock_monotonic_ms() >= until_ms) {
            pthread_detach(thread);
            log_event(
                LOG_WARN, "kafka_client_left",
                LOG_FIELD("words", LOG_TEXT("a broker does not answer; nobody waits for it")));
            return;
        }
        nanosleep(&pause, NULL);
    }
}

void kafka_client_leave(rd_kafka_t *handle, int64_t until_ms)
{
    rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
    rd_kafka_error_t *refused = rd_kafka_consumer_close_queue(handle, queue);

    until_ms = kafka_end_at_least(until_ms);
    while (refused == NULL && !rd_kafka_consumer_closed(handle) && clock_monotonic_ms() < until_ms)
        rd_kafka_queue_poll_callback(queue, END_POLL_MS);
    if (refused != NULL)
        rd_kafka_error_destroy(refused);
    rd_kafka_queue_destroy(queue);
}
