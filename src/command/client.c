/* client.c: connects, sends one request, reads one answer with llhttp. */
#include "command/client.h"

#include <errno.h>
#include <fcntl.h>
#include <llhttp.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/value.h"
#include "version.h"

#define READ_SIZE      65536
#define REQUEST_MAX    (64 * 1024)
#define PORT_DEFAULT   "80"
#define SCHEME         "http://"
#define URL_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~"

/* --- the URL --- */

static enum status refuse_url(const char *url, const char *why, struct error *error)
{
    return error_set(error, STATUS_INVALID, "\"%.128s\" %s; it should look like %s", url, why,
                     CLIENT_URL_DEFAULT);
}

/* "host", "host:port", "[::1]:port": into host and port. */
static bool take_authority(struct client *client, const char *text, size_t length)
{
    const char *end = text + length;
    const char *host = text;
    const char *host_end = NULL;
    const char *port = NULL;
    if (length > 0 && text[0] == '[') {
        host = text + 1;
        host_end = memchr(text, ']', length);
        port = host_end != NULL ? host_end + 1 : NULL;
    } else {
        host_end = memchr(text, ':', length);
        host_end = host_end != NULL ? host_end : end;
        port = host_end;
    }
    if (port == NULL || host_end == host || (size_t)(host_end - host) >= sizeof(client->host) ||
        (port != end && *port != ':')) {
        return false;
    }
    snprintf(client->host, sizeof(client->host), "%.*s", (int)(host_end - host), host);
    snprintf(client->authority, sizeof(client->authority), "%.*s", (int)length, text);
    size_t allowed = strspn(client->host, URL_CHARACTERS ":");
    if (port == end) {
        strcpy(client->port, PORT_DEFAULT);
        return client->host[allowed] == '\0';
    }
    size_t digits = (size_t)(end - port - 1);
    if (digits == 0 || digits > 5 || strspn(port + 1, "0123456789") != digits) {
        return false;
    }
    snprintf(client->port, sizeof(client->port), "%.*s", (int)digits, port + 1);
    return client->host[allowed] == '\0' && strtoul(client->port, NULL, 10) <= 65535;
}

enum status client_set_url(struct client *client, const char *url, struct error *error)
{
    if (strlen(url) > CLIENT_URL_LENGTH_MAX) {
        return refuse_url(url, "is too long", error);
    }
    if (strncmp(url, "https://", strlen("https://")) == 0) {
        return refuse_url(url, "asks for TLS, which dibs leaves to a proxy in front of it", error);
    }
    if (strncmp(url, SCHEME, strlen(SCHEME)) != 0) {
        return refuse_url(url, "is not a URL of a dibs server", error);
    }
    const char *authority = url + strlen(SCHEME);
    size_t length = strcspn(authority, "/?#");
    const char *base = authority + length;
    if (!take_authority(client, authority, length)) {
        return refuse_url(url, "has no usable host and port", error);
    }
    if (base[strspn(base, URL_CHARACTERS "/%:@!$&'()*+,;=")] != '\0') {
        return refuse_url(url, "may only have a path after the host", error);
    }
    snprintf(client->url, sizeof(client->url), "%s", url);
    snprintf(client->base, sizeof(client->base), "%s", base);
    for (char *part = client->url; part != NULL; part = part == client->url ? client->base : NULL) {
        size_t end = strlen(part);
        while (end > 0 && part[end - 1] == '/') {
            part[--end] = '\0';
        }
    }
    return STATUS_OK;
}

enum status client_set_token(struct client *client, struct span token, struct error *error)
{
    if (token.length == 0 || token.length > CLIENT_TOKEN_LENGTH_MAX) {
        return error_set(error, STATUS_INVALID, "the token is %s",
                         token.length == 0 ? "empty" : "too long");
    }
    for (size_t i = 0; i < token.length; i++) {
        if (token.bytes[i] <= ' ' || token.bytes[i] > '~') {
            return error_set(error, STATUS_INVALID,
                             "the token must be visible ASCII characters only");
        }
    }
    memcpy(client->token, token.bytes, token.length);
    client->token[token.length] = '\0';
    return STATUS_OK;
}

void client_release(struct client *client)
{
    explicit_bzero(client, sizeof(*client));
}

/* --- the connection --- */

/* Waits until the socket can be read or written; false at the deadline. */
static bool wait_for(int connection, short events, int64_t deadline_ms)
{
    for (;;) {
        int64_t left_ms = deadline_ms - clock_monotonic_ms();
        if (left_ms <= 0) {
            return false;
        }
        struct pollfd interest = {.fd = connection, .events = events};
        int ready = poll(&interest, 1, (int)(left_ms < 60000 ? left_ms : 60000));
        if (ready > 0) {
            return true;
        }
        if (ready < 0 && errno != EINTR) {
            return false;
        }
    }
}

/* One address: the connected socket, or -1 with errno. */
static int connect_to(const struct addrinfo *address, int64_t deadline_ms)
{
    int connection = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection < 0) {
        return -1;
    }
    int failure = connect(connection, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (failure == EINPROGRESS) {
        socklen_t length = sizeof(failure);
        if (!wait_for(connection, POLLOUT, deadline_ms)) {
            failure = ETIMEDOUT;
        } else if (getsockopt(connection, SOL_SOCKET, SO_ERROR, &failure, &length) != 0) {
            failure = errno;
        }
    }
    if (failure != 0) {
        close(connection);
        errno = failure;
        return -1;
    }
    return connection;
}

static enum status client_connect(const struct client *client, int64_t deadline_ms, int *connection,
                                  struct error *error)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *addresses = NULL;
    int failure = getaddrinfo(client->host, client->port, &wanted, &addresses);
    if (failure != 0) {
        return error_set(error, STATUS_UNAVAILABLE, "%s: %s: %s", client->url, client->host,
                         failure == EAI_SYSTEM ? strerror(errno) : gai_strerror(failure));
    }
    *connection = -1;
    for (const struct addrinfo *at = addresses; at != NULL && *connection < 0; at = at->ai_next) {
        *connection = connect_to(at, deadline_ms);
    }
    int reason = errno;
    freeaddrinfo(addresses);
    if (*connection >= 0) {
        return STATUS_OK;
    }
    if (reason == ECONNREFUSED) {
        return error_set(error, STATUS_UNAVAILABLE,
                         "nothing answers at %s: is `dibs serve` running?", client->url);
    }
    return error_set(error, STATUS_UNAVAILABLE, "%s cannot be reached: %s", client->url,
                     strerror(reason));
}

/* --- the request --- */

static void write_request(struct buffer *out, const struct client *client,
                          const struct client_request *request)
{
    buffer_printf(out, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: dibs/%s\r\n", request->method,
                  client->base, request->path, client->authority, DIBS_VERSION);
    buffer_append_text(out, "Accept: application/json\r\nConnection: close\r\n");
    if (client->token[0] != '\0') {
        buffer_printf(out, "Authorization: Bearer %s\r\n", client->token);
    }
    if (request->idempotency_key != NULL) {
        buffer_printf(out, "Idempotency-Key: %s\r\n", request->idempotency_key);
    }
    if (request->body.length > 0) {
        buffer_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      request->body.length);
    }
    buffer_append_text(out, "\r\n");
    buffer_append_span(out, request->body);
}

/* Sends all of it. A server that answers early may close its side: then there is still an answer
 * to read, so a broken pipe is not the end. */
static enum status send_all(const struct client *client, int connection, struct span bytes,
                            int64_t deadline_ms, struct error *error)
{
    while (bytes.length > 0) {
        ssize_t sent = send(connection, bytes.bytes, bytes.length, MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes.bytes += sent;
            bytes.length -= (size_t)sent;
            continue;
        }
        if (errno == EPIPE || errno == ECONNRESET) {
            return STATUS_OK;
        }
        bool may_go_on = errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK;
        if (!may_go_on || !wait_for(connection, POLLOUT, deadline_ms)) {
            return error_set(error, STATUS_UNKNOWN, "%s took no request: %s", client->url,
                             may_go_on ? "timed out" : strerror(errno));
        }
    }
    return STATUS_OK;
}

/* --- the answer --- */

struct answer_reader {
    llhttp_t parser;
    struct client_answer *answer;
    bool complete;
};

static int on_body(llhttp_t *parser, const char *bytes, size_t length)
{
    struct answer_reader *reader = parser->data;
    buffer_append(&reader->answer->body, bytes, length);
    return reader->answer->body.overflowed ? HPE_USER : 0;
}

static int on_complete(llhttp_t *parser)
{
    struct answer_reader *reader = parser->data;
    /* 100 Continue and its like come before the answer. */
    if (parser->status_code >= 200) {
        reader->answer->status = parser->status_code;
        reader->complete = true;
        return HPE_PAUSED;
    }
    return 0;
}

static enum status parse_piece(const struct client *client, struct answer_reader *reader,
                               const char *bytes, size_t length, struct error *error)
{
    llhttp_errno_t result = length > 0 ? llhttp_execute(&reader->parser, bytes, length)
                                       : llhttp_finish(&reader->parser);
    if (result == HPE_OK || reader->complete) {
        return STATUS_OK;
    }
    if (reader->answer->body.overflowed) {
        return error_set(error, STATUS_FAILED, "the answer of %s is larger than %d MiB",
                         client->url, CLIENT_ANSWER_MAX / 1024 / 1024);
    }
    if (length == 0) {
        return STATUS_OK;
    }
    return error_set(error, STATUS_FAILED, "what answers at %s does not speak HTTP: %s",
                     client->url, llhttp_errno_name(result));
}

static enum status say_silence(const struct client *client, struct error *error)
{
    struct buffer patience;
    buffer_init(&patience, 64);
    config_append_duration(&patience, client->timeout_ms);
    error_set(error, STATUS_UNKNOWN, "%s did not answer in %s", client->url, patience.bytes);
    buffer_release(&patience);
    return STATUS_UNKNOWN;
}

static enum status read_answer(const struct client *client, int connection,
                               struct answer_reader *reader, int64_t deadline_ms,
                               struct error *error)
{
    char piece[READ_SIZE];
    while (!reader->complete) {
        if (!wait_for(connection, POLLIN, deadline_ms)) {
            return say_silence(client, error);
        }
        ssize_t length = recv(connection, piece, sizeof(piece), 0);
        if (length < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) {
            continue;
        }
        if (length < 0) {
            return error_set(error, STATUS_UNKNOWN, "the connection to %s broke: %s", client->url,
                             strerror(errno));
        }
        enum status status = parse_piece(client, reader, piece, (size_t)length, error);
        if (status != STATUS_OK) {
            return status;
        }
        if (length == 0 && !reader->complete) {
            return error_set(error, STATUS_UNKNOWN, "%s closed the connection without an answer",
                             client->url);
        }
    }
    return STATUS_OK;
}

enum status client_send(const struct client *client, const struct client_request *request,
                        struct client_answer *answer, struct error *error)
{
    *answer = (struct client_answer){0};
    buffer_init(&answer->body, CLIENT_ANSWER_MAX);
    int64_t deadline_ms = clock_monotonic_ms() + client->timeout_ms + request->extra_timeout_ms;
    int connection = -1;
    enum status status = client_connect(client, deadline_ms, &connection, error);
    if (status != STATUS_OK) {
        return status;
    }
    struct buffer bytes;
    buffer_init(&bytes, REQUEST_MAX);
    write_request(&bytes, client, request);
    if (bytes.overflowed) {
        status = error_set(error, STATUS_FAILED, "the request is too large");
    } else {
        status = send_all(client, connection, (struct span){bytes.bytes, bytes.length}, deadline_ms,
                          error);
    }
    if (status == STATUS_OK) {
        llhttp_settings_t settings;
        struct answer_reader reader = {.answer = answer};
        llhttp_settings_init(&settings);
        settings.on_body = on_body;
        settings.on_message_complete = on_complete;
        llhttp_init(&reader.parser, HTTP_RESPONSE, &settings);
        reader.parser.data = &reader;
        status = read_answer(client, connection, &reader, deadline_ms, error);
    }
    if (bytes.bytes != NULL) {
        explicit_bzero(bytes.bytes, bytes.length);
    }
    buffer_release(&bytes);
    close(connection);
    return status;
}

void client_answer_release(struct client_answer *answer)
{
    buffer_release(&answer->body);
}
