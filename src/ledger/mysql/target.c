/* target.c: takes a mysql:// URL apart and checks what only this driver knows. */
#include "ledger/mysql/link.h"

#include <stdio.h>
#include <string.h>

#define PORT_DEFAULT 3306

static enum status target_read_tls(struct ledger_mysql_target *target, const char *mode,
                                   struct error *error)
{
    static const struct {
        const char *name;
        enum ledger_mysql_tls tls;
    } modes[] = {
        {"disabled", LEDGER_MYSQL_TLS_DISABLED},    {"preferred", LEDGER_MYSQL_TLS_PREFERRED},
        {"required", LEDGER_MYSQL_TLS_REQUIRED},    {"verify-ca", LEDGER_MYSQL_TLS_VERIFIED},
        {"verify-full", LEDGER_MYSQL_TLS_VERIFIED},
    };

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        if (strcmp(modes[i].name, mode) == 0) {
            target->tls = modes[i].tls;
            return STATUS_OK;
        }
    }
    return error_set(error, STATUS_INVALID,
                     "ledger: ssl_mode is one of disabled, preferred, required, verify-ca, "
                     "verify-full");
}

static enum status target_read_parameter(struct ledger_mysql_target *target,
                                         const struct url_parameter *parameter, struct error *error)
{
    if (strcmp(parameter->name, "ssl_mode") == 0)
        return target_read_tls(target, parameter->value, error);
    if (strcmp(parameter->name, "ssl_ca") == 0)
        target->tls_ca = parameter->value;
    else if (strcmp(parameter->name, "ssl_cert") == 0)
        target->tls_certificate = parameter->value;
    else if (strcmp(parameter->name, "ssl_key") == 0)
        target->tls_key = parameter->value;
    else
        return error_set(error, STATUS_INVALID,
                         "ledger: a mysql URL has no parameter %s; it has ssl_mode, ssl_ca, "
                         "ssl_cert, ssl_key and socket",
                         parameter->name);
    return STATUS_OK;
}

static enum status target_check(const struct ledger_mysql_target *target, struct error *error)
{
    const struct url *url = &target->url;

    if (url->host_count > 1)
        return error_set(error, STATUS_INVALID,
                         "ledger: a mysql URL names one server; name the primary, or an address "
                         "that always leads to it");
    if (target->database[0] == '\0' || strchr(target->database, '/') != NULL)
        return error_set(error, STATUS_INVALID,
                         "ledger: name the database, as in mysql://user@host/database");
    if (target->tls == LEDGER_MYSQL_TLS_VERIFIED && target->tls_ca == NULL)
        return error_set(error, STATUS_INVALID,
                         "ledger: to verify the server, ssl_ca must name the file of the "
                         "authorities it is checked against");
    if (target->tls < LEDGER_MYSQL_TLS_REQUIRED &&
        (target->tls_ca != NULL || target->tls_certificate != NULL || target->tls_key != NULL))
        return error_set(error, STATUS_INVALID,
                         "ledger: ssl_ca, ssl_cert and ssl_key need ssl_mode=required, verify-ca "
                         "or verify-full");
    return STATUS_OK;
}

static enum status target_read_url(struct ledger_mysql_target *target, struct error *error)
{
    const struct url *url = &target->url;
    const struct url_host *host = &url->hosts[0];
    bool is_local = host->name[0] == '\0' || host->name[0] == '/';
    enum status status = STATUS_OK;

    target->host = is_local ? NULL : host->name;
    target->socket = host->name[0] == '/' ? host->name : NULL;
    target->port = host->port != 0 ? (unsigned)host->port : PORT_DEFAULT;
    target->user = url->user;
    target->password = target->password_copy != NULL ? target->password_copy : url->password;
    target->database = url->path;
    target->tls = is_local ? LEDGER_MYSQL_TLS_DISABLED : LEDGER_MYSQL_TLS_PREFERRED;
    for (size_t i = 0; i < url->parameter_count && status == STATUS_OK; i++)
        status = target_read_parameter(target, &url->parameters[i], error);
    if (target->socket != NULL)
        snprintf(target->text, sizeof(target->text), "%s, database %s", target->socket,
                 target->database);
    else if (is_local)
        snprintf(target->text, sizeof(target->text), "the local socket, database %s",
                 target->database);
    else
        snprintf(target->text, sizeof(target->text), "%s:%u/%s", target->host, target->port,
                 target->database);
    return status == STATUS_OK ? target_check(target, error) : status;
}

enum status ledger_mysql_target_init(struct ledger_mysql_target *target,
                                     const struct store_options *options, struct error *error)
{
    *target = (struct ledger_mysql_target){.timeout_ms = options->timeout_ms};
    enum status status = url_parse(&target->url, options->url, error);

    if (status != STATUS_OK)
        return status;
    if (options->password != NULL && (target->password_copy = strdup(options->password)) == NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for the ledger's URL");
    if (status == STATUS_OK)
        status = target_read_url(target, error);
    if (status != STATUS_OK)
        ledger_mysql_target_release(target);
    return status;
}

void ledger_mysql_target_release(struct ledger_mysql_target *target)
{
    secret_free(target->password_copy);
    url_release(&target->url);
    *target = (struct ledger_mysql_target){0};
}
