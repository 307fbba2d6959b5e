/* exposure.c: warns of passwords that would go to another machine which has not proven who it is.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/address.h"
#include "base/url.h"
#include "config/check.h"
#include "config/config.h"
#include "config/value.h"

static bool is_this_machine(const char *host)
{
    static const struct network loopback[] = {
        {.first = {{[10] = 0xff, [11] = 0xff, [12] = 127}}, .prefix = 104},
        {.first = {{[15] = 1}}, .prefix = 128},
    };
    struct address address;
    return host[0] == '\0' || host[0] == '/' || strcasecmp(host, "localhost") == 0 ||
           (address_parse(span_of(host), &address) &&
            (network_contains(&loopback[0], &address) || network_contains(&loopback[1], &address)));
}

/* The first of its hosts that is another machine, or NULL. */
static const char *host_elsewhere(const struct url *url)
{
    for (size_t index = 0; index < url->host_count; index++) {
        if (!is_this_machine(url->hosts[index].name)) {
            return url->hosts[index].name;
        }
    }
    return NULL;
}

static bool is_one_of(const char *text, const char *one, const char *other)
{
    return strcmp(text, one) == 0 || strcmp(text, other) == 0;
}

/* The parameter says that the server's certificate has to be right. */
static bool says_verify(const struct url *url, const char *parameter)
{
    const char *mode = url_parameter(url, parameter);
    return mode != NULL && strncmp(mode, "verify-", strlen("verify-")) == 0;
}

/* A user of Kafka without TLS: said, or by default where nothing about TLS is said. */
static bool is_plain_kafka(const struct url *url)
{
    const char *security = url_parameter(url, "security");
    bool says_tls = false;
    for (size_t index = 0; index < url->parameter_count; index++) {
        says_tls |= strncmp(url->parameters[index].name, "ssl_", strlen("ssl_")) == 0;
    }
    return security != NULL ? strcmp(security, "sasl_plaintext") == 0 : !says_tls;
}

/* What would keep the password of this URL safe, or NULL where something does. */
static const char *remedy_for(const struct url *url)
{
    if (is_one_of(url->scheme, "postgres", "postgresql")) {
        return says_verify(url, "sslmode") ? NULL : "sslmode=verify-full";
    }
    if (is_one_of(url->scheme, "mysql", "mariadb")) {
        return says_verify(url, "ssl_mode") ? NULL : "ssl_mode=verify-full";
    }
    if (strcmp(url->scheme, "kafka") == 0) {
        return is_plain_kafka(url) ? "security=sasl_ssl" : NULL;
    }
    return strncmp(url->scheme, "redis", strlen("redis")) == 0 &&
                   strncmp(url->scheme, "rediss", strlen("rediss")) != 0
               ? "rediss://"
               : NULL;
}

static void warn_about(struct config *config, const char *key, const char *text,
                       const struct config_secret *password)
{
    struct url url;
    char words[512];
    if (url_parse(&url, text, NULL) != STATUS_OK) {
        return;
    }
    const char *host = host_elsewhere(&url);
    const char *remedy = remedy_for(&url);
    if (host != NULL && remedy != NULL && (password->bytes != NULL || url_has_password(&url))) {
        snprintf(words, sizeof words,
                 "%s: its password goes to %.200s, and whoever poses as that host gets it; say %s",
                 key, host, remedy);
        config_list_add(&config->warnings, span_of(words));
    }
    url_release(&url);
}

void config_warn_of_exposure(struct config *config)
{
    warn_about(config, "ledger", config->ledger, &config->ledger_password);
    warn_about(config, "gate", config->gate, &config->gate_password);
    warn_about(config, "relay", config->relay, &config->relay_password);
}
