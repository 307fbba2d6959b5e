/* check.c: addresses, backends' URLs, tokens, origins, time zones, the rules between them, and what
 * passwords are exposed to. */
#include "config/check.h"

#include <string.h>
#include <strings.h>

#include "base/address.h"
#include "base/digits.h"
#include "base/ledgers.h"
#include "base/url.h"
#include "base/zone.h"
#include "config/config.h"
#include "config/tokens.h"
#include "config/value.h"

#define RANKING_DAYS     30

#define TOPIC_LENGTH_MAX 100

/* What follows the colon of "host:port". */
static bool is_port(const char *text)
{
    uint64_t port;
    return strlen(text) <= 5 && digits_read(span_of(text), 65535, &port);
}

/* Cuts "host:port" or "[host]:port", in numbers; IPv6 stands in brackets. */
static bool parse_address(const char *value, struct address *address)
{
    const char *colon = strrchr(value, ':');
    if (colon == NULL || !is_port(colon + 1))
        return false;
    struct span host = {value, (size_t)(colon - value)};
    bool bracketed = host.length >= 2 && value[0] == '[' && colon[-1] == ']';
    if (bracketed)
        host = (struct span){value + 1, host.length - 2};
    return address_parse(host, address) &&
           bracketed == (memchr(host.bytes, ':', host.length) != NULL);
}

enum status config_check_address(const char *value, struct error *error)
{
    struct address address;
    if (parse_address(value, &address))
        return STATUS_OK;
    if (value[0] == ':' && is_port(value + 1)) {
        return error_set(error, STATUS_INVALID,
                         "\"%.64s\" has no address; write 0.0.0.0%.6s for all addresses or "
                         "127.0.0.1%.6s for this machine",
                         value, value, value);
    }
    return error_set(error, STATUS_INVALID,
                     "\"%.64s\" is not an address and a port in numbers, as in 127.0.0.1:8080 or "
                     "[::1]:8080",
                     value);
}

enum status config_check_address_or_none(const char *value, struct error *error)
{
    return value[0] == '\0' ? STATUS_OK : config_check_address(value, error);
}

enum status config_check_topic(const char *value, struct error *error)
{
    size_t length =
        strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    bool is_dots = strcmp(value, ".") == 0 || strcmp(value, "..") == 0;

    if (length > 0 && length <= TOPIC_LENGTH_MAX && value[length] == '\0' && !is_dots)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID, "must be 1 to %d of A-Z a-z 0-9 . _ -, not . or ..",
                     TOPIC_LENGTH_MAX);
}

bool config_address_is_loopback(const char *text)
{
    struct address address;
    return parse_address(text, &address) && address_is_loopback(&address);
}

/* A ledger that is a file of this machine's: what follows the colon is its path. */
static bool is_file(const char *url)
{
    const struct ledger_kind *kind = ledger_kind_of(url);

    return kind != NULL && kind->verified == NULL && strchr(url, ':') != NULL;
}

static enum status check_file(const char *url, struct error *error)
{
    const char *path = strchr(url, ':') + 1;

    if (*path == '\0')
        return error_set(error, STATUS_INVALID, "the path of the file is missing after %s", url);
    if (strncmp(path, ":memory:", strlen(":memory:")) == 0 || strncmp(path, "file:", 5) == 0) {
        return error_set(error, STATUS_INVALID,
                         "\"%.64s\" is not a plain file; a coupon must survive the process", path);
    }
    return STATUS_OK;
}

/* The URL of a backend with one of these schemes. */
static enum status check_backend(const char *value, const char *const *schemes, const char *what,
                                 struct span known, struct error *error)
{
    size_t length = strcspn(value, ":");
    for (size_t i = 0; schemes[i] != NULL; i++) {
        struct url url;
        if (!span_equal((struct span){value, length}, span_of(schemes[i])))
            continue;
        enum status status = url_parse(&url, value, error);
        if (status == STATUS_OK)
            url_release(&url);
        else
            error_prefix(error, "the %s URL", schemes[i]);
        return status;
    }
    /* Only what should be the scheme is repeated: the rest of a URL may hold a password. */
    return error_set(error, STATUS_INVALID, "\"%.*s\" is not a %s that dibs knows; known: %.*s",
                     (int)(length < 64 ? length : 64), value, what, (int)known.length, known.bytes);
}

enum status config_check_gate(const char *value, struct error *error)
{
    static const char *const schemes[] = {
        "redis",          "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster",
        "rediss+cluster", NULL};

    if (strcmp(value, "local") == 0)
        return STATUS_OK;
    return check_backend(
        value, schemes, "gate",
        SPAN("local, redis://host:6379, rediss://…, redis+sentinel://host,host/master "
             "and redis+cluster://host,host"),
        error);
}

enum status config_check_relay(const char *value, struct error *error)
{
    static const char *const schemes[] = {"kafka", NULL};

    if (strcmp(value, "direct") == 0)
        return STATUS_OK;
    return check_backend(value, schemes, "relay", SPAN("direct, kafka://host:9092,host:9092"),
                         error);
}

enum status config_check_webhook(const char *value, struct error *error)
{
    static const char *const schemes[] = {"https", "http", NULL};

    return value[0] == '\0' ? STATUS_OK
                            : check_backend(value, schemes, "webhook",
                                            SPAN("https://shop.example/hooks"), error);
}

enum status config_check_ledger(const char *value, struct error *error)
{
    static const char *const none[] = {NULL};
    const struct ledger_kind *kind = ledger_kind_of(value);

    if (is_file(value))
        return check_file(value, error);
    return check_backend(value, kind != NULL ? kind->schemes : none, "ledger", LEDGER_KIND_EXAMPLES,
                         error);
}

bool config_url_has_password(const char *text)
{
    struct url url;
    if (is_file(text) || url_parse(&url, text, NULL) != STATUS_OK)
        return false;
    bool has = url_has_password(&url);
    url_release(&url);
    return has;
}

void config_append_url(struct buffer *out, const char *url)
{
    if (is_file(url))
        buffer_append_text(out, url);
    else
        url_mask(out, url);
}

enum status config_check_password(const char *value, struct error *error)
{
    if (strpbrk(value, "\r\n") != NULL)
        return error_set(error, STATUS_INVALID, "must be a single line");
    return STATUS_OK;
}

enum status config_check_token(const char *value, struct error *error)
{
    for (const char *at = value; *at != '\0'; at++)
        if (*at <= ' ' || *at > '~')
            return error_set(error, STATUS_INVALID, "must be visible ASCII characters only");
    return STATUS_OK;
}

enum status config_check_tokens(const char *value, struct error *error)
{
    struct named_token tokens[NAMED_TOKENS_MAX];
    size_t count;

    enum status status = named_tokens_read(span_of(value), tokens, &count, error);

    if (status == STATUS_OK && count == 0)
        status = error_set(error, STATUS_INVALID, "names nobody");
    return status;
}

bool config_has_admin(const struct config *config)
{
    return config->admin_token.bytes != NULL || config->admin_tokens.bytes != NULL;
}

enum status config_check_network(const char *value, struct error *error)
{
    struct network network;
    if (network_parse(span_of(value), &network))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID,
                     "\"%.128s\" is not a network or an address in numbers, as in 10.0.0.0/8, "
                     "192.0.2.7 or 2001:db8::/32",
                     value);
}

enum status config_check_origin(const char *value, struct error *error)
{
    if (strcmp(value, "*") == 0)
        return STATUS_OK;
    const char *host = strncmp(value, "https://", 8) == 0  ? value + 8
                       : strncmp(value, "http://", 7) == 0 ? value + 7
                                                           : NULL;
    /* A browser sends origins in lower case, and they are compared byte by byte. */
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789.-_[]:";
    if (host == NULL || *host == '\0' || host[strspn(host, allowed)] != '\0') {
        return error_set(error, STATUS_INVALID,
                         "\"%.128s\" is not an origin, as in https://shop.example (lower case, no "
                         "path), or *",
                         value);
    }
    return STATUS_OK;
}

enum status config_check_timezone(const char *value, struct error *error)
{
    struct zone *zone;
    enum status status = zone_open(&zone, value, error);
    zone_free(zone);
    return status;
}

static bool allows_any_origin(const struct config *config)
{
    for (size_t i = 0; i < config->cors_origin.count; i++)
        if (strcmp(config->cors_origin.items[i], "*") == 0)
            return true;
    return false;
}

enum status config_check_backends(const struct config *config, struct error *error)
{
    if (config->orders_keep_days > 0 && config->orders_keep_days <= RANKING_DAYS) {
        return error_set(error, STATUS_INVALID,
                         "orders_keep_days: must be 0, or %d or more: rankings look back %d days",
                         RANKING_DAYS + 1, RANKING_DAYS);
    }
    if (config->ledger_password.bytes == NULL)
        return STATUS_OK;
    if (is_file(config->ledger)) {
        return error_set(error, STATUS_INVALID,
                         "ledger_password: is set, and the ledger is %.128s, which has none; set "
                         "ledger to the database that it is for",
                         config->ledger);
    }
    if (config_url_has_password(config->ledger)) {
        return error_set(error, STATUS_INVALID,
                         "ledger_password: is set, and the ledger's URL has a password too; keep "
                         "one of them");
    }
    return STATUS_OK;
}

enum status config_check(const struct config *config, struct error *error)
{
    if (config->demo == CONFIG_ON && config->admin_token.bytes == NULL &&
        config->admin_tokens.bytes != NULL) {
        return error_set(
            error, STATUS_INVALID,
            "demo: its crowd needs the admin token; set admin_token_file, or leave out "
            "admin_tokens_file");
    }
    if (!config_has_admin(config) && !config_address_is_loopback(config->listen)) {
        return error_set(
            error, STATUS_INVALID,
            "listen: %s can be reached from other machines, and without an admin token "
            "anyone there could change policies; set admin_token_file (or the variable "
            "DIBS_ADMIN_TOKEN), or listen on 127.0.0.1",
            config->listen);
    }
    if (!config_has_admin(config) && allows_any_origin(config)) {
        return error_set(error, STATUS_INVALID,
                         "cors_origin: without an admin token, * would let every web page that is "
                         "opened on this machine change policies; set admin_token_file, or name "
                         "the origins");
    }
    if (!config_has_admin(config) && config->trusted_proxies.count > 0) {
        return error_set(error, STATUS_INVALID,
                         "trusted_proxies: without an admin token nothing that a proxy forwards is "
                         "served; set admin_token_file (or the variable DIBS_ADMIN_TOKEN) too");
    }
    if (config->user_key.bytes != NULL && strcmp(config->claims, "open") == 0) {
        return error_set(error, STATUS_INVALID,
                         "claims: with a user key only the user of a signed token may claim; leave "
                         "out claims = open, or user_key_file");
    }
    if (config->user_key.bytes == NULL && config->user_audience[0] != '\0') {
        return error_set(error, STATUS_INVALID,
                         "user_audience: is checked in users' tokens, and there are none without a "
                         "key; set user_key_file too");
    }
    if (config->admin_token.bytes != NULL && config->service_token.bytes != NULL &&
        config->admin_token.length == config->service_token.length &&
        memcmp(config->admin_token.bytes, config->service_token.bytes,
               config->admin_token.length) == 0) {
        return error_set(error, STATUS_INVALID,
                         "service_token: is the same as admin_token, so the shop's backend could "
                         "change policies; make them different");
    }
    if (config->demo == CONFIG_ON && !config_address_is_loopback(config->listen)) {
        return error_set(
            error, STATUS_INVALID,
            "demo: makes policies, claims and orders of its own, and %s can be reached "
            "from other machines; listen on 127.0.0.1, or leave it off",
            config->listen);
    }
    return config_check_backends(config, error);
}

/* --- passwords that would go to a machine which has not proven who it is --- */

static bool is_this_machine(const char *host)
{
    struct address address;
    return host[0] == '\0' || host[0] == '/' || strcasecmp(host, "localhost") == 0 ||
           (address_parse(span_of(host), &address) && address_is_loopback(&address));
}

/* The first of its hosts that is another machine, or NULL. */
static const char *host_elsewhere(const struct url *url)
{
    for (size_t index = 0; index < url->host_count; index++)
        if (!is_this_machine(url->hosts[index].name))
            return url->hosts[index].name;
    return NULL;
}

/* The parameter of "sslmode=verify-full", or its like, says that the certificate has to be right.
 */
static bool says_verify(const struct url *url, const char *verified)
{
    size_t length = strcspn(verified, "=");

    for (size_t index = 0; index < url->parameter_count; index++) {
        const struct url_parameter *parameter = &url->parameters[index];
        if (strlen(parameter->name) == length && strncmp(parameter->name, verified, length) == 0)
            return strncmp(parameter->value, "verify-", strlen("verify-")) == 0;
    }
    return false;
}

/* A user of Kafka without TLS: said, or by default where nothing about TLS is said. */
static bool is_plain_kafka(const struct url *url)
{
    const char *security = url_parameter(url, "security");
    bool says_tls = false;
    for (size_t index = 0; index < url->parameter_count; index++)
        says_tls |= strncmp(url->parameters[index].name, "ssl_", strlen("ssl_")) == 0;
    return security != NULL ? strcmp(security, "sasl_plaintext") == 0 : !says_tls;
}

/* What would keep the password of this URL safe, or NULL where something does. */
static const char *remedy_for(const struct url *url)
{
    const struct ledger_kind *ledger = ledger_kind_of(url->scheme);

    if (ledger != NULL && ledger->verified != NULL)
        return says_verify(url, ledger->verified) ? NULL : ledger->verified;
    if (strcmp(url->scheme, "kafka") == 0)
        return is_plain_kafka(url) ? "security=sasl_ssl" : NULL;
    return strncmp(url->scheme, "redis", strlen("redis")) == 0 &&
                   strncmp(url->scheme, "rediss", strlen("rediss")) != 0
               ? "rediss://"
               : NULL;
}

static void warn_about(struct config *config, const char *key, const char *text,
                       const struct config_secret *password)
{
    struct url url;
    if (url_parse(&url, text, NULL) != STATUS_OK)
        return;
    const char *host = host_elsewhere(&url);
    const char *remedy = remedy_for(&url);
    if (host != NULL && remedy != NULL && (password->bytes != NULL || url_has_password(&url))) {
        config_warn(config,
                    "%s: its password goes to %.200s, and whoever poses as that host gets it; say "
                    "%s",
                    key, host, remedy);
    }
    url_release(&url);
}

void config_warn_of_exposure(struct config *config)
{
    warn_about(config, "ledger", config->ledger, &config->ledger_password);
    warn_about(config, "gate", config->gate, &config->gate_password);
    warn_about(config, "relay", config->relay, &config->relay_password);
}
