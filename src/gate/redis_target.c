/* redis_target.c: reads a Redis URL and prepares TLS. */
#include "gate/redis_target.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_DEFAULT          6379
#define PORT_SENTINEL_DEFAULT 26379
#define DATABASE_MAX          1000000

static const char *const redis_parameters[] = {"ssl_ca", "ssl_cert", "ssl_key", "ssl_verify"};

static enum status redis_target_check_parameters(const struct url *url, struct error *error)
{
    for (size_t i = 0; i < url->parameter_count; i++) {
        bool known = false;
        for (size_t j = 0; j < sizeof(redis_parameters) / sizeof(redis_parameters[0]); j++)
            known = known || strcmp(url->parameters[i].name, redis_parameters[j]) == 0;
        if (!known)
            return error_set(error, STATUS_INVALID,
                             "gate: unknown parameter \"%.40s\"; known: ssl_ca, ssl_cert, ssl_key, "
                             "ssl_verify, socket",
                             url->parameters[i].name);
    }
    return STATUS_OK;
}

static enum status redis_target_read_scheme(struct redis_target *target, struct error *error)
{
    static const struct {
        const char *scheme;
        enum redis_mode mode;
        bool uses_tls;
    } schemes[] = {
        {"redis", REDIS_MODE_SINGLE, false},
        {"rediss", REDIS_MODE_SINGLE, true},
        {"redis+sentinel", REDIS_MODE_SENTINEL, false},
        {"rediss+sentinel", REDIS_MODE_SENTINEL, true},
        {"redis+cluster", REDIS_MODE_CLUSTER, false},
        {"rediss+cluster", REDIS_MODE_CLUSTER, true},
    };

    for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        if (strcmp(target->url.scheme, schemes[i].scheme) == 0) {
            target->mode = schemes[i].mode;
            target->uses_tls = schemes[i].uses_tls;
            return STATUS_OK;
        }
    }
    return error_set(error, STATUS_INVALID,
                     "gate: unknown kind of URL; known: local, redis://…, rediss://…, "
                     "redis+sentinel://…, redis+cluster://…");
}

static enum status redis_target_read_hosts(struct redis_target *target, struct error *error)
{
    const struct url *url = &target->url;

    if (target->mode == REDIS_MODE_SINGLE && url->host_count > 1)
        return error_set(error, STATUS_INVALID,
                         "gate: redis:// names one server; several are redis+sentinel:// or "
                         "redis+cluster://");
    for (size_t i = 0; i < url->host_count; i++) {
        struct redis_address *seed = &target->seeds[i];
        if (strlen(url->hosts[i].name) >= sizeof(seed->host))
            return error_set(error, STATUS_INVALID, "gate: a host's name is too long");
        snprintf(seed->host, sizeof(seed->host), "%s",
                 url->hosts[i].name[0] != '\0' ? url->hosts[i].name : "127.0.0.1");
        seed->port = url->hosts[i].port;
        if (seed->port == 0)
            seed->port = target->mode == REDIS_MODE_SENTINEL ? PORT_SENTINEL_DEFAULT : PORT_DEFAULT;
    }
    target->seed_count = url->host_count;
    return STATUS_OK;
}

static enum status redis_target_read_database(struct redis_target *target, const char *text,
                                              struct error *error)
{
    char *end = NULL;
    long number = text[0] == '\0' ? 0 : strtol(text, &end, 10);

    if ((end != NULL && *end != '\0') || number < 0 || number > DATABASE_MAX)
        return error_set(error, STATUS_INVALID,
                         "gate: the database is a number, as in redis://host/0");
    if (number != 0 && target->mode == REDIS_MODE_CLUSTER)
        return error_set(error, STATUS_INVALID, "gate: a cluster has database 0 only");
    target->database = (int)number;
    return STATUS_OK;
}

/* "0", or of the sentinels "master/0". */
static enum status redis_target_read_path(struct redis_target *target, struct error *error)
{
    const char *path = target->url.path;

    if (target->mode != REDIS_MODE_SENTINEL)
        return redis_target_read_database(target, path, error);
    const char *slash = strchr(path, '/');
    target->master = slash == NULL ? strdup(path) : strndup(path, (size_t)(slash - path));
    if (target->master == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the gate's URL");
    if (target->master[0] == '\0')
        return error_set(error, STATUS_INVALID,
                         "gate: redis+sentinel:// needs the master's name: host,host/NAME");
    return redis_target_read_database(target, slash == NULL ? "" : slash + 1, error);
}

/* --- TLS --- */

static enum status redis_target_tls_error(const char *what, const char *file, struct error *error)
{
    char words[160] = "";
    ERR_error_string_n(ERR_get_error(), words, sizeof(words));
    return error_set(error, STATUS_INVALID, "gate: %s %.100s: %s", what, file, words);
}

static enum status redis_target_open_tls(struct redis_target *target, struct error *error)
{
    const char *ca = url_parameter(&target->url, "ssl_ca");
    const char *certificate = url_parameter(&target->url, "ssl_cert");
    const char *key = url_parameter(&target->url, "ssl_key");
    const char *verify = url_parameter(&target->url, "ssl_verify");

    if (!target->uses_tls)
        return STATUS_OK;
    if (verify != NULL && strcmp(verify, "full") != 0 && strcmp(verify, "ca") != 0 &&
        strcmp(verify, "none") != 0)
        return error_set(error, STATUS_INVALID, "gate: ssl_verify is full, ca or none");
    if ((certificate == NULL) != (key == NULL))
        return error_set(error, STATUS_INVALID, "gate: ssl_cert and ssl_key belong together");
    target->tls = SSL_CTX_new(TLS_client_method());
    if (target->tls == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for TLS");
    SSL_CTX_set_min_proto_version(target->tls, TLS1_2_VERSION);
    target->verifies_name = verify == NULL || strcmp(verify, "full") == 0;
    SSL_CTX_set_verify(
        target->tls,
        verify != NULL && strcmp(verify, "none") == 0 ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
    if (ca != NULL ? SSL_CTX_load_verify_locations(target->tls, ca, NULL) != 1
                   : SSL_CTX_set_default_verify_paths(target->tls) != 1)
        return redis_target_tls_error("ssl_ca", ca != NULL ? ca : "of the system", error);
    if (certificate != NULL && SSL_CTX_use_certificate_chain_file(target->tls, certificate) != 1)
        return redis_target_tls_error("ssl_cert", certificate, error);
    if (key != NULL && SSL_CTX_use_PrivateKey_file(target->tls, key, SSL_FILETYPE_PEM) != 1)
        return redis_target_tls_error("ssl_key", key, error);
    return STATUS_OK;
}

/* --- life --- */

enum status redis_target_init(struct redis_target *target, const char *url, const char *password,
                              int64_t timeout_ms, struct error *error)
{
    *target = (struct redis_target){.timeout_ms = timeout_ms};
    enum status status = url_parse(&target->url, url, error);

    if (status != STATUS_OK)
        return status;
    target->user =
        target->url.user != NULL && target->url.user[0] != '\0' ? target->url.user : NULL;
    if (password == NULL)
        password = target->url.password;
    if (password != NULL && (target->password = strdup(password)) == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for the gate's URL");
    if (status == STATUS_OK)
        status = redis_target_check_parameters(&target->url, error);
    if (status == STATUS_OK)
        status = redis_target_read_scheme(target, error);
    if (status == STATUS_OK)
        status = redis_target_read_hosts(target, error);
    if (status == STATUS_OK)
        status = redis_target_read_path(target, error);
    if (status == STATUS_OK)
        status = redis_target_open_tls(target, error);
    if (status != STATUS_OK)
        redis_target_release(target);
    return status;
}

void redis_target_release(struct redis_target *target)
{
    if (target->password != NULL)
        explicit_bzero(target->password, strlen(target->password));
    free(target->password);
    free(target->master);
    SSL_CTX_free(target->tls);
    url_release(&target->url);
    *target = (struct redis_target){0};
}

struct error redis_address_words(const struct redis_address *address)
{
    struct error words;
    if (address->host[0] == '/')
        error_set(&words, STATUS_OK, "%s", address->host);
    else
        error_set(&words, STATUS_OK, "%s:%d", address->host, address->port);
    return words;
}

bool redis_address_equal(const struct redis_address *a, const struct redis_address *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}
