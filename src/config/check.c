/* check.c: addresses, the ledger's URL, tokens, origins, time zones, and the rules between them. */
#include "config/check.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/address.h"
#include "base/url.h"
#include "config/config.h"

#define ZONEINFO_FOLDER "/usr/share/zoneinfo"
#define SQLITE_SCHEME   "sqlite:"

static const char *const database_schemes[] = {"postgres", "postgresql", "mysql", "mariadb"};

#define DATABASE_SCHEME_COUNT (sizeof(database_schemes) / sizeof(database_schemes[0]))

/* The port of "host:port", or -1. */
static long port_of(const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || length > 5 || strspn(text, "0123456789") != length) {
        return -1;
    }
    long port = strtol(text, NULL, 10);
    return port <= 65535 ? port : -1;
}

/* Cuts "host:port" or "[host]:port" into numbers: AF_INET, AF_INET6 or -1. */
static int parse_address(const char *value, unsigned char bytes[16])
{
    const char *colon = strrchr(value, ':');
    if (colon == NULL || port_of(colon + 1) < 0) {
        return -1;
    }
    size_t length = (size_t)(colon - value);
    bool bracketed = length >= 2 && value[0] == '[' && value[length - 1] == ']';
    char host[INET6_ADDRSTRLEN];
    if (length - (bracketed ? 2 : 0) >= sizeof(host)) {
        return -1;
    }
    snprintf(host, sizeof(host), "%.*s", (int)(length - (bracketed ? 2 : 0)),
             value + (bracketed ? 1 : 0));
    int family = bracketed ? AF_INET6 : AF_INET;
    return inet_pton(family, host, bytes) == 1 ? family : -1;
}

enum status config_check_address(const char *value, struct error *error)
{
    unsigned char bytes[16];
    if (parse_address(value, bytes) >= 0) {
        return STATUS_OK;
    }
    if (value[0] == ':' && port_of(value + 1) >= 0) {
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

bool config_address_is_loopback(const char *address)
{
    unsigned char bytes[16] = {0};
    int family = parse_address(address, bytes);
    if (family == AF_INET) {
        return bytes[0] == 127;
    }
    static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (family == AF_INET6 && memcmp(bytes, mapped, sizeof(mapped)) == 0) {
        return bytes[12] == 127;
    }
    return family == AF_INET6 && memcmp(bytes, &in6addr_loopback, sizeof(bytes)) == 0;
}

static bool is_sqlite(const char *url)
{
    return strncmp(url, SQLITE_SCHEME, strlen(SQLITE_SCHEME)) == 0;
}

static enum status check_sqlite(const char *path, struct error *error)
{
    if (*path == '\0') {
        return error_set(error, STATUS_INVALID, "the path of the file is missing after sqlite:");
    }
    if (strncmp(path, ":memory:", strlen(":memory:")) == 0 || strncmp(path, "file:", 5) == 0) {
        return error_set(error, STATUS_INVALID,
                         "\"%.64s\" is not a plain file; a coupon must survive the process", path);
    }
    return STATUS_OK;
}

enum status config_check_gate(const char *value, struct error *error)
{
    static const char *const schemes[] = {"redis",           "rediss",        "redis+sentinel",
                                          "rediss+sentinel", "redis+cluster", "rediss+cluster"};
    size_t length = strcspn(value, ":");

    if (strcmp(value, "local") == 0) {
        return STATUS_OK;
    }
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        struct url url;
        if (!span_equal((struct span){value, length}, span_of(schemes[i]))) {
            continue;
        }
        enum status status = url_parse(&url, value, error);
        if (status != STATUS_OK) {
            error_prefix(error, "the %s URL", schemes[i]);
            return status;
        }
        url_release(&url);
        return STATUS_OK;
    }
    /* Only what should be the scheme is repeated: the rest of a URL may hold a password. */
    return error_set(error, STATUS_INVALID,
                     "\"%.*s\" is not a gate that dibs knows; known: local, redis://host:6379, "
                     "rediss://…, redis+sentinel://host,host/master and redis+cluster://host,host",
                     (int)(length < 64 ? length : 64), value);
}

enum status config_check_relay(const char *value, struct error *error)
{
    struct url url;
    size_t length = strcspn(value, ":");

    if (strcmp(value, "direct") == 0) {
        return STATUS_OK;
    }
    if (!span_equal((struct span){value, length}, SPAN("kafka"))) {
        return error_set(error, STATUS_INVALID,
                         "\"%.*s\" is not a relay that dibs knows; known: direct, "
                         "kafka://host:9092,host:9092",
                         (int)(length < 64 ? length : 64), value);
    }
    enum status status = url_parse(&url, value, error);
    if (status != STATUS_OK) {
        error_prefix(error, "the kafka URL");
        return status;
    }
    url_release(&url);
    return STATUS_OK;
}

enum status config_check_ledger(const char *value, struct error *error)
{
    if (is_sqlite(value)) {
        return check_sqlite(value + strlen(SQLITE_SCHEME), error);
    }
    size_t length = strcspn(value, ":");
    for (size_t i = 0; i < DATABASE_SCHEME_COUNT; i++) {
        if (!span_equal((struct span){value, length}, span_of(database_schemes[i]))) {
            continue;
        }
        struct url url;
        enum status status = url_parse(&url, value, error);
        if (status != STATUS_OK) {
            error_prefix(error, "the %s URL", database_schemes[i]);
            return status;
        }
        url_release(&url);
        return STATUS_OK;
    }
    /* Only what should be the scheme is repeated: the rest of a URL may hold a password. */
    return error_set(error, STATUS_INVALID,
                     "\"%.*s\" is not a ledger that dibs knows; known: sqlite:PATH, as in "
                     "sqlite:dibs.db, postgres://user@host/database and mysql://user@host/database",
                     (int)(length < 64 ? length : 64), value);
}

bool config_url_has_password(const char *text)
{
    struct url url;
    if (is_sqlite(text) || url_parse(&url, text, NULL) != STATUS_OK) {
        return false;
    }
    bool has = url_has_password(&url);
    url_release(&url);
    return has;
}

void config_append_url(struct buffer *out, const char *url)
{
    if (is_sqlite(url)) {
        buffer_append_text(out, url);
    } else {
        url_mask(out, url);
    }
}

enum status config_check_password(const char *value, struct error *error)
{
    if (strpbrk(value, "\r\n") != NULL) {
        return error_set(error, STATUS_INVALID, "must be a single line");
    }
    return STATUS_OK;
}

enum status config_check_token(const char *value, struct error *error)
{
    for (const char *at = value; *at != '\0'; at++) {
        if (*at <= ' ' || *at > '~') {
            return error_set(error, STATUS_INVALID, "must be visible ASCII characters only");
        }
    }
    return STATUS_OK;
}

enum status config_check_network(const char *value, struct error *error)
{
    struct network network;
    if (network_parse(span_of(value), &network)) {
        return STATUS_OK;
    }
    return error_set(error, STATUS_INVALID,
                     "\"%.128s\" is not a network or an address in numbers, as in 10.0.0.0/8, "
                     "192.0.2.7 or 2001:db8::/32",
                     value);
}

enum status config_check_origin(const char *value, struct error *error)
{
    if (strcmp(value, "*") == 0) {
        return STATUS_OK;
    }
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

/* Files of time zones begin with these four bytes. */
static bool is_zone_file(const char *path)
{
    char magic[4] = {0};
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    size_t length = fread(magic, 1, sizeof(magic), file);
    fclose(file);
    return length == sizeof(magic) && memcmp(magic, "TZif", sizeof(magic)) == 0;
}

enum status config_check_timezone(const char *value, struct error *error)
{
    if (strcmp(value, "UTC") == 0) {
        return STATUS_OK;
    }
    bool shaped = isalpha((unsigned char)value[0]) && strlen(value) <= 64;
    for (const char *at = value; *at != '\0'; at++) {
        shaped = shaped && (isalnum((unsigned char)*at) || strchr("_+-/", *at) != NULL);
    }
    struct stat folder;
    char path[sizeof(ZONEINFO_FOLDER) + 1 + 64 + 1];
    snprintf(path, sizeof(path), ZONEINFO_FOLDER "/%.64s", value);
    if (!shaped || (stat(ZONEINFO_FOLDER, &folder) == 0 && !is_zone_file(path))) {
        return error_set(
            error, STATUS_INVALID,
            "\"%.64s\" is not a time zone's IANA name, as in UTC, Asia/Seoul or Europe/Berlin",
            value);
    }
    return STATUS_OK;
}

bool config_listens_on_loopback(const struct config *config)
{
    return config_address_is_loopback(config->listen);
}

static bool allows_any_origin(const struct config *config)
{
    for (size_t i = 0; i < config->cors_origin.count; i++) {
        if (strcmp(config->cors_origin.items[i], "*") == 0) {
            return true;
        }
    }
    return false;
}

enum status config_check_backends(const struct config *config, struct error *error)
{
    if (config->ledger_password.bytes == NULL) {
        return STATUS_OK;
    }
    if (is_sqlite(config->ledger)) {
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
    if (config->admin_token.bytes == NULL && !config_listens_on_loopback(config)) {
        return error_set(
            error, STATUS_INVALID,
            "listen: %s can be reached from other machines, and without an admin token "
            "anyone there could change policies; set admin_token_file (or the variable "
            "DIBS_ADMIN_TOKEN), or listen on 127.0.0.1",
            config->listen);
    }
    if (config->admin_token.bytes == NULL && allows_any_origin(config)) {
        return error_set(error, STATUS_INVALID,
                         "cors_origin: without an admin token, * would let every web page that is "
                         "opened on this machine change policies; set admin_token_file, or name "
                         "the origins");
    }
    if (config->admin_token.bytes == NULL && config->trusted_proxies.count > 0) {
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
    if (config->demo == CONFIG_ON && !config_listens_on_loopback(config)) {
        return error_set(
            error, STATUS_INVALID,
            "demo: makes policies, claims and orders of its own, and %s can be reached "
            "from other machines; listen on 127.0.0.1, or leave it off",
            config->listen);
    }
    return config_check_backends(config, error);
}
