/* redis_link.c: connects to Redis, plainly, over TLS or a unix socket. */
#include "gate/redis_link.h"

#include <hiredis/hiredis_ssl.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "gate/redis_uv.h"

#define CLIENT_NAME        "dibs"
#define REPLY_ELEMENTS_MAX (1 << 20)

/* --- errors --- */

struct redis_error_name {
    const char *name; /* the first word of the reply, or the beginning of it */
    enum redis_trouble trouble;
};

static const struct redis_error_name redis_error_names[] = {
    {"UNARMED", REDIS_TROUBLE_UNARMED},
    {"NOPOLICY", REDIS_TROUBLE_NO_POLICY},
    {"STALELEASE", REDIS_TROUBLE_STALE_LEASE},
    {"TOOSOON", REDIS_TROUBLE_TOO_SOON},
    {"TOOFEW", REDIS_TROUBLE_TOO_FEW},
    {"SPREAD", REDIS_TROUBLE_SPREAD},
    {"PENDING", REDIS_TROUBLE_PENDING},
    {"FENCED", REDIS_TROUBLE_FENCED},
    {"ERR Function not found", REDIS_TROUBLE_NO_LIBRARY},
    {"MOVED ", REDIS_TROUBLE_MOVED},
    {"ASK ", REDIS_TROUBLE_ASK},
    {"LOADING", REDIS_TROUBLE_LATER},
    {"BUSY", REDIS_TROUBLE_LATER},
    {"TRYAGAIN", REDIS_TROUBLE_LATER},
    {"CLUSTERDOWN", REDIS_TROUBLE_LATER},
    {"OOM", REDIS_TROUBLE_LATER},
    {"MISCONF", REDIS_TROUBLE_LATER},
    {"NOREPLICAS", REDIS_TROUBLE_LATER},
    {"MASTERDOWN", REDIS_TROUBLE_LATER},
    {"ERR max number of clients", REDIS_TROUBLE_LATER},
    {"READONLY", REDIS_TROUBLE_DROP},
    {"UNBLOCKED", REDIS_TROUBLE_DROP},
    {"NOAUTH", REDIS_TROUBLE_DROP},
    {"NOPERM", REDIS_TROUBLE_DROP},
    {"WRONGPASS", REDIS_TROUBLE_DROP},
};

enum redis_trouble redis_trouble_of(const redisReply *reply)
{
    const char *words = redis_reply_error(reply);

    if (words == NULL)
        return REDIS_TROUBLE_NONE;
    for (size_t i = 0; i < sizeof(redis_error_names) / sizeof(redis_error_names[0]); i++) {
        const struct redis_error_name *known = &redis_error_names[i];
        if (strncmp(words, known->name, strlen(known->name)) == 0)
            return known->trouble;
    }
    return REDIS_TROUBLE_OTHER;
}

/* --- connecting --- */

static struct timeval redis_timeval(int64_t milliseconds)
{
    return (struct timeval){.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
}

static redisOptions redis_link_options(const struct redis_address *address,
                                       const struct timeval *timeout)
{
    redisOptions options = {0};

    if (address->host[0] == '/')
        REDIS_OPTIONS_SET_UNIX(&options, address->host);
    else
        REDIS_OPTIONS_SET_TCP(&options, address->host, address->port);
    options.connect_timeout = timeout;
    options.options |= REDIS_OPT_NOAUTOFREEREPLIES;
    return options;
}

void redis_link_limit(redisContext *link)
{
    link->reader->maxelements = REPLY_ELEMENTS_MAX;
}

/* The name of the host is checked by OpenSSL while the hands are shaken. */
static enum status redis_link_secure(redisContext *link, const struct redis_target *target,
                                     const struct redis_address *address, struct error *error)
{
    if (target->tls == NULL || address->host[0] == '/')
        return STATUS_OK;
    SSL *ssl = SSL_new(target->tls);
    if (ssl == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for TLS");
    if (target->verifies_name && SSL_set1_host(ssl, address->host) != 1) {
        SSL_free(ssl);
        return error_set(error, STATUS_UNAVAILABLE, "no memory for TLS");
    }
    /* OpenSSL's macro casts the const away, which clang refuses. */
    struct redis_address copy = *address;
    SSL_set_tlsext_host_name(ssl, copy.host);
    if (redisInitiateSSL(link, ssl) == REDIS_OK)
        return STATUS_OK;
    /* Why a certificate was refused is known to OpenSSL only. */
    long verified = SSL_get_verify_result(ssl);
    enum status status =
        error_set(error, verified == X509_V_OK ? STATUS_UNAVAILABLE : STATUS_FAILED, "TLS: %s",
                  verified == X509_V_OK ? link->errstr : X509_verify_cert_error_string(verified));
    SSL_free(ssl);
    return status;
}

/* The commands every connection begins with; how many of them. */
#define GREETINGS_MAX 3
struct redis_greeting {
    int argc;
    const char *argv[3];
};

static size_t redis_link_greetings(const struct redis_target *target, char *database, size_t size,
                                   struct redis_greeting greetings[GREETINGS_MAX])
{
    size_t count = 0;

    if (target->password != NULL && target->user != NULL)
        greetings[count++] = (struct redis_greeting){3, {"AUTH", target->user, target->password}};
    else if (target->password != NULL)
        greetings[count++] = (struct redis_greeting){2, {"AUTH", target->password}};
    if (target->database != 0) {
        snprintf(database, size, "%d", target->database);
        greetings[count++] = (struct redis_greeting){2, {"SELECT", database}};
    }
    greetings[count++] = (struct redis_greeting){3, {"CLIENT", "SETNAME", CLIENT_NAME}};
    return count;
}

static enum status redis_link_greet(redisContext *link, const struct redis_target *target,
                                    struct error *error)
{
    struct redis_greeting greetings[GREETINGS_MAX];
    char database[16];
    size_t count = redis_link_greetings(target, database, sizeof(database), greetings);

    for (size_t i = 0; i < count; i++) {
        redisReply *reply = redisCommandArgv(link, greetings[i].argc, greetings[i].argv, NULL);
        if (reply == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "%s", link->errstr);
        enum redis_trouble trouble = redis_trouble_of(reply);
        if (trouble != REDIS_TROUBLE_NONE) {
            error_set(error, STATUS_FAILED, "%s is refused: %.200s", greetings[i].argv[0],
                      redis_reply_error(reply));
            freeReplyObject(reply);
            return trouble == REDIS_TROUBLE_LATER ? STATUS_UNAVAILABLE : STATUS_FAILED;
        }
        freeReplyObject(reply);
    }
    return STATUS_OK;
}

enum status redis_link_open(redisContext **link, const struct redis_target *target,
                            const struct redis_address *address, struct error *error)
{
    struct timeval timeout = redis_timeval(target->timeout_ms);
    redisOptions options = redis_link_options(address, &timeout);
    enum status status = STATUS_OK;

    options.options &= ~REDIS_OPT_NOAUTOFREEREPLIES;
    options.command_timeout = &timeout;
    *link = redisConnectWithOptions(&options);
    if (*link == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a connection to Redis");
    redis_link_limit(*link);
    if ((*link)->err != 0)
        status = error_set(error, STATUS_UNAVAILABLE, "%s", (*link)->errstr);
    if (status == STATUS_OK)
        status = redis_link_secure(*link, target, address, error);
    if (status == STATUS_OK)
        status = redis_link_greet(*link, target, error);
    if (status == STATUS_OK)
        return STATUS_OK;
    error_prefix(error, "Redis at %s", redis_address_words(address).text);
    redisFree(*link);
    *link = NULL;
    return status;
}

/* A greeting that is refused leaves a connection that must not be used: what was sent behind it
 * comes back with no reply. */
static void redis_link_on_greeted(redisAsyncContext *link, void *reply, void *context)
{
    (void)context;
    redis_uv_mind(link);
    if (reply == NULL)
        return;
    if (redis_trouble_of(reply) != REDIS_TROUBLE_NONE)
        redisAsyncFree(link);
    freeReplyObject(reply);
}

redisAsyncContext *redis_link_begin(const struct redis_target *target,
                                    const struct redis_address *address, struct error *error)
{
    struct timeval timeout = redis_timeval(target->timeout_ms);
    redisOptions options = redis_link_options(address, &timeout);
    struct redis_greeting greetings[GREETINGS_MAX];
    char database[16];
    redisAsyncContext *link = redisAsyncConnectWithOptions(&options);

    if (link == NULL || link->err != 0) {
        error_set(error, STATUS_UNAVAILABLE, "Redis at %s: %s", redis_address_words(address).text,
                  link == NULL ? "no memory" : link->errstr);
        if (link != NULL)
            redisAsyncFree(link);
        return NULL;
    }
    redis_link_limit(&link->c);
    if (redis_link_secure(&link->c, target, address, error) != STATUS_OK) {
        redisAsyncFree(link);
        return NULL;
    }
    size_t count = redis_link_greetings(target, database, sizeof(database), greetings);
    for (size_t i = 0; i < count; i++)
        (void)redisAsyncCommandArgv(link, redis_link_on_greeted, NULL, greetings[i].argc,
                                    greetings[i].argv, NULL);
    return link;
}
