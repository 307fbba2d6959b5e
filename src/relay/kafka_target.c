/* kafka_target.c: reads a Kafka URL and turns it into librdkafka's settings. */
#include "relay/kafka_target.h"

#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define PORT_DEFAULT   9092
#define PREFIX_MAX     100
#define CLIENT_NAME    "dibs"
#define MECHANISM_BEST "SCRAM-SHA-512"

#define SESSION_MS     6000
#define SESSION_MIN_MS 1000
#define SESSION_MAX_MS 600000

#define KNOWN_PARAMETERS \
    "claims, security, sasl, ssl_ca, ssl_cert, ssl_key, ssl_verify, prefix, session_timeout_ms"

static const char *const kafka_parameters[] = {"claims",     "security", "sasl",
                                               "ssl_ca",     "ssl_cert", "ssl_key",
                                               "ssl_verify", "prefix",   "session_timeout_ms"};
static const char *const kafka_claims[] = {"kafka", "direct"};
static const char *const kafka_securities[] = {"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"};
static const char *const kafka_mechanisms[] = {"PLAIN", "SCRAM-SHA-256", MECHANISM_BEST};
static const char *const kafka_verifications[] = {"full", "ca", "none"};

static const char *const kafka_topic_names[KAFKA_TOPICS] = {
    [KAFKA_COUPON_PENDED] = "coupon-pended",
    [KAFKA_COUPON_ISSUED] = "coupon-issued",
    [KAFKA_COUPON_PENDED_DLQ] = "coupon-pended-dlq",
    [KAFKA_ORDER_COMPLETED] = "order-completed",
    [KAFKA_ORDER_COMPLETED_DLQ] = "order-completed-dlq",
};

#define LENGTH_OF(array) (sizeof(array) / sizeof((array)[0]))

/* The word of the list that is meant, or NULL. */
static const char *kafka_word(const char *const *words, size_t count, const char *word)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(words[i], word) == 0)
            return words[i];
    }
    return NULL;
}

static enum status kafka_target_check_parameters(const struct url *url, struct error *error)
{
    for (size_t i = 0; i < url->parameter_count; i++) {
        if (kafka_word(kafka_parameters, LENGTH_OF(kafka_parameters), url->parameters[i].name) ==
            NULL)
            return error_set(error, STATUS_INVALID,
                             "relay: unknown parameter \"%.40s\"; known: " KNOWN_PARAMETERS,
                             url->parameters[i].name);
    }
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
    for (size_t i = 0; i < KAFKA_TOPICS; i++)
        snprintf(target->topics[i], KAFKA_NAME_SIZE, "%s%s", prefix, kafka_topic_names[i]);
    snprintf(target->issuer_group, KAFKA_NAME_SIZE, "%sdibs-issuer", prefix);
    snprintf(target->orders_group, KAFKA_NAME_SIZE, "%sdibs-orders", prefix);
    return STATUS_OK;
}

static enum status kafka_target_read_claims(struct kafka_target *target, struct error *error)
{
    const char *claims = url_parameter(&target->url, "claims");
    const char *session = url_parameter(&target->url, "session_timeout_ms");

    if (claims != NULL && kafka_word(kafka_claims, LENGTH_OF(kafka_claims), claims) == NULL)
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
    target->mechanism = said == NULL
                            ? MECHANISM_BEST
                            : kafka_word(kafka_mechanisms, LENGTH_OF(kafka_mechanisms), said);
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
    target->security = kafka_word(kafka_securities, LENGTH_OF(kafka_securities), said);
    if (target->security == NULL)
        return error_set(error, STATUS_INVALID,
                         "relay: security is plaintext, ssl, sasl_plaintext or sasl_ssl");
    bool uses_tls = strstr(target->security, "ssl") != NULL;
    if (says_tls && !uses_tls)
        return error_set(error, STATUS_INVALID, "relay: ssl_… needs security=ssl or sasl_ssl");
    if (verify != NULL &&
        kafka_word(kafka_verifications, LENGTH_OF(kafka_verifications), verify) == NULL)
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
    if (target->password != NULL)
        explicit_bzero(target->password, strlen(target->password));
    free(target->password);
    url_release(&target->url);
    *target = (struct kafka_target){.password = NULL};
}

/* --- librdkafka's settings --- */

void kafka_target_set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    ensure(rd_kafka_conf_set(conf, name, value, NULL, 0) == RD_KAFKA_CONF_OK);
}

void kafka_target_set_ms(rd_kafka_conf_t *conf, const char *name, int value_ms)
{
    char value[16];

    snprintf(value, sizeof(value), "%d", value_ms);
    kafka_target_set(conf, name, value);
}

/* A property whose value somebody wrote. The words of librdkafka may repeat it, and are not shown.
 */
static enum status kafka_target_try(rd_kafka_conf_t *conf, const char *name, const char *value,
                                    struct error *error)
{
    if (value == NULL || rd_kafka_conf_set(conf, name, value, NULL, 0) == RD_KAFKA_CONF_OK)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID, "relay: this librdkafka does not take %s", name);
}

static enum status kafka_target_try_file(rd_kafka_conf_t *conf, const struct kafka_target *target,
                                         const char *parameter, const char *name,
                                         struct error *error)
{
    const char *file = url_parameter(&target->url, parameter);

    if (file != NULL && access(file, R_OK) != 0)
        return error_set(error, STATUS_INVALID, "relay: %s: %.200s cannot be read", parameter,
                         file);
    return kafka_target_try(conf, name, file, error);
}

static enum status kafka_target_secure(rd_kafka_conf_t *conf, const struct kafka_target *target,
                                       struct error *error)
{
    const char *verify = url_parameter(&target->url, "ssl_verify");
    enum status status = kafka_target_try(conf, "security.protocol", target->security, error);

    if (status == STATUS_OK)
        status = kafka_target_try_file(conf, target, "ssl_ca", "ssl.ca.location", error);
    if (status == STATUS_OK)
        status = kafka_target_try_file(conf, target, "ssl_cert", "ssl.certificate.location", error);
    if (status == STATUS_OK)
        status = kafka_target_try_file(conf, target, "ssl_key", "ssl.key.location", error);
    if (status == STATUS_OK && strstr(target->security, "ssl") != NULL) {
        bool is_full = verify == NULL || strcmp(verify, "full") == 0;
        status = kafka_target_try(conf, "ssl.endpoint.identification.algorithm",
                                  is_full ? "https" : "none", error);
    }
    if (status == STATUS_OK && verify != NULL && strcmp(verify, "none") == 0)
        status = kafka_target_try(conf, "enable.ssl.certificate.verification", "false", error);
    if (status == STATUS_OK && target->mechanism != NULL) {
        status = kafka_target_try(conf, "sasl.mechanism", target->mechanism, error);
        if (status == STATUS_OK)
            status = kafka_target_try(conf, "sasl.username", target->url.user, error);
        if (status == STATUS_OK)
            status = kafka_target_try(conf, "sasl.password", target->password, error);
    }
    return status;
}

/* What wants a human is told once by those who use the client. */
static void kafka_target_log(const rd_kafka_t *handle, int level, const char *facility,
                             const char *words)
{
    (void)handle;
    log_event(LOG_DEBUG, "kafka_client", LOG_FIELD("level", LOG_I64(level)),
              LOG_FIELD("facility", LOG_TEXT(facility)), LOG_FIELD("words", LOG_TEXT(words)));
}

enum status kafka_target_configure(const struct kafka_target *target, rd_kafka_conf_t **conf,
                                   struct error *error)
{
    rd_kafka_conf_t *made = rd_kafka_conf_new();
    enum status status = kafka_target_try(made, "bootstrap.servers", target->brokers, error);

    if (status == STATUS_OK)
        status = kafka_target_secure(made, target, error);
    if (status != STATUS_OK) {
        rd_kafka_conf_destroy(made);
        return status;
    }
    kafka_target_set(made, "client.id", CLIENT_NAME);
    rd_kafka_conf_set_log_cb(made, kafka_target_log);
    kafka_target_set(made, "log_level", "4");
    kafka_target_set(made, "socket.keepalive.enable", "true");
    kafka_target_set(made, "socket.nagle.disable", "true");
    kafka_target_set(made, "reconnect.backoff.ms", "100");
    kafka_target_set(made, "reconnect.backoff.max.ms", "2000");
    kafka_target_set(made, "topic.metadata.refresh.interval.ms", "10000");
    kafka_target_set(made, "allow.auto.create.topics", "false");
    *conf = made;
    return STATUS_OK;
}

enum status kafka_target_new(enum kafka_client client, rd_kafka_conf_t *conf, rd_kafka_t **handle,
                             struct error *error)
{
    char words[300];

    *handle = rd_kafka_new(client == KAFKA_PRODUCER ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf,
                           words, sizeof(words));
    if (*handle != NULL)
        return STATUS_OK;
    bool is_wrong = rd_kafka_last_error() == RD_KAFKA_RESP_ERR__INVALID_ARG;
    rd_kafka_conf_destroy(conf);
    return error_set(error, is_wrong ? STATUS_INVALID : STATUS_UNAVAILABLE, "relay: %s", words);
}

enum kafka_topic_state kafka_target_look_up(rd_kafka_t *handle, const char *name, int timeout_ms)
{
    const struct rd_kafka_metadata *metadata = NULL;
    rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, name, NULL);
    enum kafka_topic_state state = KAFKA_TOPIC_MISSING;

    if (topic == NULL)
        return state;
    if (rd_kafka_metadata(handle, 0, topic, &metadata, timeout_ms) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        const struct rd_kafka_metadata_topic *found = metadata->topics;
        if (metadata->topic_cnt == 1 && found->err == RD_KAFKA_RESP_ERR_NO_ERROR &&
            found->partition_cnt > 0)
            state = KAFKA_TOPIC_LED;
        for (int i = 0; state == KAFKA_TOPIC_LED && i < found->partition_cnt; i++) {
            if (found->partitions[i].leader < 0)
                state = KAFKA_TOPIC_UNLED;
        }
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(topic);
    return state;
}
