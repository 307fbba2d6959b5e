/* link.c: connects to Redis, plainly, over TLS or a unix socket, for a thread that waits or for a
 * loop; looks into replies, type first. */
#include "gate/redis/link.h"

#include <hiredis/hiredis_ssl.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

/* --- replies --- */

bool redis_reply_is_array(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_ARRAY;
}

bool redis_reply_is_nil(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_NIL;
}

const char *redis_reply_error(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_ERROR ? reply->str : NULL;
}

size_t redis_reply_count(const redisReply *reply)
{
    return redis_reply_is_array(reply) ? reply->elements : 0;
}

const redisReply *redis_reply_at(const redisReply *reply, size_t at)
{
    return at < redis_reply_count(reply) ? reply->element[at] : NULL;
}

bool redis_reply_text(const redisReply *reply, struct span *text)
{
    if (reply == NULL || (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_STATUS))
        return false;
    *text = (struct span){.bytes = reply->str, .length = reply->len};
    return true;
}

bool redis_reply_copy(const redisReply *reply, char *text, size_t size)
{
    struct span read;

    if (!redis_reply_text(reply, &read) || read.length >= size ||
        memchr(read.bytes, '\0', read.length) != NULL)
        return false;
    memcpy(text, read.bytes, read.length + 1);
    return true;
}

bool redis_reply_number(const redisReply *reply, int64_t minimum, int64_t maximum, int64_t *number)
{
    struct span text;
    int64_t read;

    if (redis_reply_text(reply, &text)) {
        bool is_negative = redis_text_take(&text, '-');
        if (!redis_text_take_numbers(&text, 1, &read) || text.length > 0)
            return false;
        read = is_negative ? -read : read;
    } else if (reply != NULL && reply->type == REDIS_REPLY_INTEGER) {
        read = reply->integer;
    } else {
        return false;
    }
    if (read < minimum || read > maximum)
        return false;
    *number = read;
    return true;
}

bool redis_reply_numbers(const redisReply *reply, size_t count, int64_t *numbers)
{
    for (size_t i = 0; i < count; i++)
        if (!redis_reply_number(redis_reply_at(reply, i), -REDIS_NUMBER_MAX, REDIS_NUMBER_MAX,
                                &numbers[i]))
            return false;
    return true;
}

/* --- texts --- */

bool redis_text_take(struct span *text, char wanted)
{
    if (text->length == 0 || text->bytes[0] != wanted)
        return false;
    text->bytes++;
    text->length--;
    return true;
}

static bool redis_text_take_digits(struct span *text, int64_t *number)
{
    size_t length = text->length;

    for (*number = 0; text->length > 0 && text->bytes[0] >= '0' && text->bytes[0] <= '9';) {
        *number = *number * 10 + (text->bytes[0] - '0');
        if (*number > REDIS_NUMBER_MAX)
            return false;
        text->bytes++;
        text->length--;
    }
    return text->length < length;
}

bool redis_text_take_numbers(struct span *text, size_t count, int64_t *numbers)
{
    for (size_t i = 0; i < count; i++)
        if ((i > 0 && !redis_text_take(text, ':')) || !redis_text_take_digits(text, &numbers[i]))
            return false;
    return true;
}

enum status redis_reply_is_strange(const char *function, struct error *error)
{
    return error_set(error, STATUS_FAILED, "%s answers something else", function);
}

#define CLIENT_NAME        "dibs"
#define REPLY_ELEMENTS_MAX (1 << 20)

/* --- errors --- */

struct redis_error_name {
    const char *name; /* the first word of the reply, or the beginning of it */
    enum redis_trouble trouble;
};

static const struct redis_error_name redis_error_names[] = {
    {"NOPOLICY", REDIS_TROUBLE_NO_POLICY},
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
    const char *message = redis_reply_error(reply);

    if (message == NULL)
        return REDIS_TROUBLE_NONE;
    for (size_t i = 0; i < sizeof(redis_error_names) / sizeof(redis_error_names[0]); i++) {
        const struct redis_error_name *known = &redis_error_names[i];
        if (strncmp(message, known->name, strlen(known->name)) == 0)
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
    error_prefix(error, "Redis at %s", redis_address_text(address).text);
    redisFree(*link);
    *link = NULL;
    return status;
}

redisReply *redis_link_call(redisContext *link, const struct buffer *text)
{
    void *reply = NULL;

    if (redisAppendFormattedCommand(link, text->bytes, text->length) != REDIS_OK ||
        redisGetReply(link, &reply) != REDIS_OK)
        return NULL;
    return reply;
}

/* --- on a loop: a poll handle per connection --- */

struct redis_uv {
    uv_poll_t poll; /* first: the handle's close callback frees all of it */
    redisAsyncContext *link;
    int events;
};

/* True when something has come though nobody awaits an answer. Under TLS bytes may come that are no
 * answer. */
static bool redis_uv_is_unasked(const redisAsyncContext *link)
{
    char byte;

    return (link->c.flags & REDIS_CONNECTED) != 0 && link->replies.head == NULL &&
           link->c.privctx == NULL && recv(link->c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void redis_uv_mind(redisAsyncContext *link)
{
    if (link->replies.head == NULL && link->c.reader->pos < link->c.reader->len)
        redisAsyncFree(link);
}

static void redis_uv_on_event(uv_poll_t *poll, int status, int events)
{
    struct redis_uv *uv = (struct redis_uv *)poll;
    redisAsyncContext *link = uv->link;

    /* The connection may be freed by the first of the two; cleanup then says so. */
    if (link != NULL && (status < 0 || (events & UV_READABLE) != 0)) {
        if (redis_uv_is_unasked(link))
            redisAsyncFree(link);
        else
            redisAsyncHandleRead(link);
    }
    if (uv->link != NULL && (events & UV_WRITABLE) != 0)
        redisAsyncHandleWrite(uv->link);
}

static void redis_uv_want(struct redis_uv *uv, int events)
{
    if (events == uv->events)
        return;
    uv->events = events;
    if (events == 0)
        uv_poll_stop(&uv->poll);
    else
        uv_poll_start(&uv->poll, events, redis_uv_on_event);
}

static void redis_uv_add_read(void *context)
{
    struct redis_uv *uv = context;
    redis_uv_want(uv, uv->events | UV_READABLE);
}

static void redis_uv_delete_read(void *context)
{
    struct redis_uv *uv = context;
    redis_uv_want(uv, uv->events & ~UV_READABLE);
}

static void redis_uv_add_write(void *context)
{
    struct redis_uv *uv = context;
    redis_uv_want(uv, uv->events | UV_WRITABLE);
}

static void redis_uv_delete_write(void *context)
{
    struct redis_uv *uv = context;
    redis_uv_want(uv, uv->events & ~UV_WRITABLE);
}

static void redis_uv_on_closed(uv_handle_t *handle)
{
    free(handle);
}

static void redis_uv_cleanup(void *context)
{
    struct redis_uv *uv = context;
    uv->link = NULL;
    uv_poll_stop(&uv->poll);
    uv_close((uv_handle_t *)&uv->poll, redis_uv_on_closed);
}

/* From now on the loop reads and writes for this connection, until that is freed. False: no memory,
 * or the loop refuses it. */
static bool redis_uv_attach(redisAsyncContext *link, uv_loop_t *loop)
{
    struct redis_uv *uv = calloc(1, sizeof(*uv));

    if (uv == NULL || uv_poll_init(loop, &uv->poll, link->c.fd) != 0) {
        free(uv);
        return false;
    }
    uv->link = link;
    link->ev.data = uv;
    link->ev.addRead = redis_uv_add_read;
    link->ev.delRead = redis_uv_delete_read;
    link->ev.addWrite = redis_uv_add_write;
    link->ev.delWrite = redis_uv_delete_write;
    link->ev.cleanup = redis_uv_cleanup;
    return true;
}

/* --- channels: connecting, losing and connecting again --- */

#define RETRY_MIN_MS 20
#define RETRY_MAX_MS 1000

void redis_channels_release(struct redis_channels *channels)
{
    struct redis_channel *next;

    for (struct redis_channel *channel = channels->first; channel != NULL; channel = next) {
        next = channel->next;
        redis_channel_drop(channel);
        free(channel);
    }
    channels->first = NULL;
}

struct redis_channel *redis_channels_find(struct redis_channels *channels,
                                          const struct redis_address *address)
{
    for (struct redis_channel *channel = channels->first; channel != NULL; channel = channel->next)
        if (redis_address_equal(&channel->address, address))
            return channel;
    struct redis_channel *channel = calloc(1, sizeof(*channel));
    ensure(channel != NULL);
    *channel = (struct redis_channel){.all = channels,
                                      .address = *address,
                                      .retry_pause_ms = RETRY_MIN_MS,
                                      .next = channels->first};
    channels->first = channel;
    return channel;
}

static void redis_channel_lost(struct redis_channel *channel)
{
    channel->link = NULL;
    channel->lost_at_ms = clock_monotonic_ms();
    channel->retry_at_ms = channel->lost_at_ms + channel->retry_pause_ms / 2 +
                           (int64_t)random_below((uint64_t)channel->retry_pause_ms);
    channel->retry_pause_ms =
        channel->retry_pause_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : channel->retry_pause_ms * 2;
}

static void redis_channel_on_connect(const redisAsyncContext *link, int status)
{
    /* hiredis frees the connection after this, and calls back what was queued on it. */
    if (status != REDIS_OK)
        redis_channel_lost(link->data);
}

static void redis_channel_on_disconnect(const redisAsyncContext *link, int status)
{
    struct redis_channel *channel = link->data;

    if (status != REDIS_OK)
        log_event(LOG_WARN, "gate_connection_lost",
                  LOG_FIELD("server", LOG_TEXT(redis_address_text(&channel->address).text)),
                  LOG_FIELD("error", LOG_TEXT(link->errstr)));
    redis_channel_lost(channel);
}

/* A greeting that is refused leaves a connection that must not be used: what was sent behind it
 * comes back with no reply. */
static void redis_channel_on_greeted(redisAsyncContext *link, void *reply, void *context)
{
    redis_uv_mind(link);
    if (reply == NULL)
        return;
    if (redis_trouble_of(reply) != REDIS_TROUBLE_NONE)
        redisAsyncFree(link);
    freeReplyObject(reply);
}

/* Opens without waiting: the first commands are sent ahead of the caller's; when one of them is
 * refused the connection ends with an error. */
static void redis_channel_connect(struct redis_channel *channel)
{
    const struct redis_target *target = channel->all->target;
    struct timeval timeout = redis_timeval(target->timeout_ms);
    redisOptions options = redis_link_options(&channel->address, &timeout);
    struct redis_greeting greetings[GREETINGS_MAX];
    char database[16];
    struct error error;
    redisAsyncContext *link = redisAsyncConnectWithOptions(&options);

    if (link == NULL || link->err != 0 ||
        redis_link_secure(&link->c, target, &channel->address, &error) != STATUS_OK ||
        !redis_uv_attach(link, channel->all->loop)) {
        if (link != NULL)
            redisAsyncFree(link);
        redis_channel_lost(channel);
        return;
    }
    redis_link_limit(&link->c);
    channel->link = link;
    link->data = channel;
    redisAsyncSetConnectCallback(link, redis_channel_on_connect);
    redisAsyncSetDisconnectCallback(link, redis_channel_on_disconnect);
    size_t count = redis_link_greetings(target, database, sizeof(database), greetings);
    for (size_t i = 0; i < count; i++)
        (void)redisAsyncCommandArgv(link, redis_channel_on_greeted, NULL, greetings[i].argc,
                                    greetings[i].argv, NULL);
}

redisAsyncContext *redis_channel_open(struct redis_channel *channel)
{
    if (channel->link == NULL && clock_monotonic_ms() >= channel->retry_at_ms)
        redis_channel_connect(channel);
    return channel->link;
}

void redis_channel_drop(struct redis_channel *channel)
{
    redisAsyncContext *link = channel->link;

    if (link == NULL)
        return;
    redis_channel_lost(channel);
    redisAsyncSetDisconnectCallback(link, NULL);
    redisAsyncFree(link);
}

void redis_channel_is_well(struct redis_channel *channel)
{
    channel->retry_pause_ms = RETRY_MIN_MS;
}
