/* answer.c: renders answers straight into the connection's output when it is their turn. */
#include <string.h>

#include "http/connection.h"
#include "http/loop.h"
#include "http/per_address.h"

struct status_line {
    const char *text;
    size_t length;
};

#define LINE(code, words)                               \
    [(code)-100] = {"HTTP/1.1 " #code " " words "\r\n", \
                    sizeof("HTTP/1.1 " #code " " words "\r\n") - 1}

static const struct status_line status_lines[500] = {
    LINE(200, "OK"),
    LINE(201, "Created"),
    LINE(202, "Accepted"),
    LINE(204, "No Content"),
    LINE(301, "Moved Permanently"),
    LINE(302, "Found"),
    LINE(303, "See Other"),
    LINE(304, "Not Modified"),
    LINE(307, "Temporary Redirect"),
    LINE(308, "Permanent Redirect"),
    LINE(400, "Bad Request"),
    LINE(401, "Unauthorized"),
    LINE(403, "Forbidden"),
    LINE(404, "Not Found"),
    LINE(405, "Method Not Allowed"),
    LINE(406, "Not Acceptable"),
    LINE(408, "Request Timeout"),
    LINE(409, "Conflict"),
    LINE(410, "Gone"),
    LINE(412, "Precondition Failed"),
    LINE(413, "Content Too Large"),
    LINE(414, "URI Too Long"),
    LINE(415, "Unsupported Media Type"),
    LINE(422, "Unprocessable Content"),
    LINE(428, "Precondition Required"),
    LINE(429, "Too Many Requests"),
    LINE(431, "Request Header Fields Too Large"),
    LINE(500, "Internal Server Error"),
    LINE(501, "Not Implemented"),
    LINE(502, "Bad Gateway"),
    LINE(503, "Service Unavailable"),
    LINE(504, "Gateway Timeout"),
    LINE(505, "HTTP Version Not Supported"),
};

/* Where this exchange's bytes go for now. */
static struct buffer *answer_target(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;
    struct buffer *target =
        exchange->in_line && connection->head == exchange ? &connection->out : &exchange->own;
    if (target->bytes == NULL) {
        http_loop_take_buffer(connection->loop, target);
    }
    return target;
}

/* Room for `length` more bytes, or NULL with the buffer overflowed. An answer's parts are copied
 * into it one after the other without asking again. */
static inline char *answer_room(struct buffer *out, size_t length)
{
    if (out->capacity - out->length <= length && !buffer_reserve(out, length)) {
        return NULL;
    }
    return out->bytes + out->length;
}

static inline void answer_took(struct buffer *out, char *end)
{
    out->length = (size_t)(end - out->bytes);
    *end = '\0';
}

static inline char *put(char *at, const char *bytes, size_t length)
{
    if (length > 0) {
        memcpy(at, bytes, length);
    }
    return at + length;
}

#define PUT(at, literal) put(at, literal, sizeof(literal) - 1)

static char *put_u64(char *at, uint64_t number)
{
    char digits[20];
    size_t length = 0;
    do {
        digits[length++] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    while (length > 0) {
        *at++ = digits[--length];
    }
    return at;
}

void http_answer_begin(struct http_exchange *exchange, int status, struct span content_type)
{
    ensure(exchange->state == HTTP_EXCHANGE_WAITING);
    ensure(status >= 200 && status < 600);
    struct http_loop *loop = exchange->connection->loop;
    http_loop_begin_tick(loop);
    exchange->state = HTTP_EXCHANGE_RENDERING;
    exchange->target = answer_target(exchange);
    if (status == 204 || status == 304) {
        exchange->no_body = true;
        exchange->no_length = true;
    }
    struct buffer *out = exchange->target;
    const struct status_line *line = &status_lines[status - 100];
    ensure(line->text != NULL);
    char *at = answer_room(out, line->length + loop->date_length + content_type.length + 32);
    if (at == NULL) {
        return;
    }
    at = put(at, line->text, line->length);
    at = put(at, loop->date, loop->date_length);
    if (content_type.length > 0) {
        at = PUT(at, "Content-Type: ");
        at = put(at, content_type.bytes, content_type.length);
        at = PUT(at, "\r\n");
    }
    answer_took(out, at);
}

void http_answer_header(struct http_exchange *exchange, struct span name, struct span value)
{
    ensure(exchange->state == HTTP_EXCHANGE_RENDERING);
    struct buffer *out = exchange->target;
    buffer_append_span(out, name);
    buffer_append_literal(out, ": ");
    size_t at = out->length;
    buffer_append_span(out, value);
    for (; at < out->length; at++) {
        /* A value that could end its line would forge headers. */
        if ((unsigned char)out->bytes[at] < ' ' && out->bytes[at] != '\t') {
            out->bytes[at] = '?';
        }
    }
    buffer_append_literal(out, "\r\n");
}

void http_answer_lines(struct http_exchange *exchange, struct span lines)
{
    ensure(exchange->state == HTTP_EXCHANGE_RENDERING);
    buffer_append_span(exchange->target, lines);
}

void http_answer_close(struct http_exchange *exchange)
{
    exchange->last = true;
    exchange->connection->input_ended = true;
}

/* The last headers, the empty line and the body. */
static void answer_render_end(struct http_exchange *exchange, struct span body)
{
    struct buffer *out = exchange->target;
    char *at = answer_room(out, body.length + 96);
    if (at == NULL) {
        return;
    }
    if (!exchange->no_length) {
        at = PUT(at, "Content-Length: ");
        at = put_u64(at, body.length);
        at = PUT(at, "\r\n");
    }
    if (exchange->last) {
        at = PUT(at, "Connection: close\r\n");
    } else if (exchange->http_1_0) {
        at = PUT(at, "Connection: keep-alive\r\n");
    }
    at = PUT(at, "\r\n");
    if (!exchange->no_body) {
        at = put(at, body.bytes, body.length);
    }
    answer_took(out, at);
}

void http_answer_end(struct http_exchange *exchange, struct span body)
{
    ensure(exchange->state == HTTP_EXCHANGE_RENDERING);
    struct http_connection *connection = exchange->connection;
    struct buffer *out = exchange->target;
    answer_render_end(exchange, body);
    exchange->state = HTTP_EXCHANGE_READY;
    connection->loop->answered_bytes += body.length;
    http_exchange_expect(exchange, 0);
    if (!exchange->in_line) {
        http_exchange_free(exchange);
        return;
    }
    if (out->overflowed) {
        connection->given_up = true;
    }
    if (out == &exchange->own) {
        connection->ready_bytes += out->length;
    }
    if (connection->head == exchange) {
        http_line_advance(connection);
    }
}

bool http_exchange_count_client(struct http_exchange *exchange, const struct address *client)
{
    struct http_server *server = exchange->connection->loop->server;
    if (!per_address_enter(http_server_per_address(server), client)) {
        return false;
    }
    exchange->client = *client;
    return true;
}

void http_exchange_expect(struct http_exchange *exchange, size_t bytes)
{
    if (bytes == exchange->expected_bytes) {
        return;
    }
    struct http_connection *connection = exchange->connection;
    connection->expected_bytes += bytes - exchange->expected_bytes;
    exchange->expected_bytes = bytes;
    http_connection_account(connection);
}

bool http_exchange_gone(const struct http_exchange *exchange)
{
    return !exchange->in_line;
}

const struct sockaddr *http_exchange_peer(const struct http_exchange *exchange)
{
    return &exchange->connection->peer.any;
}

struct http_exchange_notes *http_exchange_notes(struct http_exchange *exchange)
{
    return &exchange->notes;
}
