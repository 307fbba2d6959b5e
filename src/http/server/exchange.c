/* exchange.c: a request and its answer: its turn in the connection's line, answers and streams,
 * which are rendered straight into the connection's output when it is their turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/digits.h"
#include "http/server/limits.h"
#include "http/server/loop.h"

/* A fresh buffer has room for a usual answer; one that has grown beyond this is not kept. */
#define SPARE_BUFFER_BYTES        1000
#define SPARE_BUFFER_CAPACITY_MAX ((size_t)16 * 1024)
/* A piece of a stream that finds more than this unsent ends the stream. */
#define STREAM_UNSENT_MAX ((size_t)128 * 1024)
/* The same while the server is full. */
#define STREAM_UNSENT_FULL_MAX ((size_t)8 * 1024)
/* The kernel would hold megabytes for a reader that is slow; it doubles this for its own use. */
#define STREAM_KERNEL_BYTES (64 * 1024)

#define LINE(code, words)                                 \
    [(code) - 100] = {"HTTP/1.1 " #code " " words "\r\n", \
                      sizeof("HTTP/1.1 " #code " " words "\r\n") - 1}

static const struct span status_lines[500] = {
    LINE(200, "OK"),
    LINE(201, "Created"),
    LINE(202, "Accepted"),
    LINE(204, "No Content"),
    LINE(304, "Not Modified"),
    LINE(400, "Bad Request"),
    LINE(401, "Unauthorized"),
    LINE(403, "Forbidden"),
    LINE(404, "Not Found"),
    LINE(405, "Method Not Allowed"),
    LINE(408, "Request Timeout"),
    LINE(409, "Conflict"),
    LINE(410, "Gone"),
    LINE(413, "Content Too Large"),
    LINE(414, "URI Too Long"),
    LINE(415, "Unsupported Media Type"),
    LINE(429, "Too Many Requests"),
    LINE(431, "Request Header Fields Too Large"),
    LINE(501, "Not Implemented"),
    LINE(503, "Service Unavailable"),
    LINE(505, "HTTP Version Not Supported"),
};

/* --- memory that is used again, so that a request allocates nothing --- */

static struct http_exchange *spare_take(struct http_loop *loop)
{
    if (loop->spare_exchanges == NULL) {
        struct http_exchange_slab *slab = calloc(1, sizeof(*slab));
        if (slab == NULL)
            return NULL;
        slab->next = loop->slabs;
        loop->slabs = slab;
        for (size_t i = 0; i < HTTP_EXCHANGES_PER_SLAB; i++) {
            slab->exchanges[i].next = loop->spare_exchanges;
            loop->spare_exchanges = &slab->exchanges[i];
        }
    }
    struct http_exchange *exchange = loop->spare_exchanges;
    loop->spare_exchanges = exchange->next;
    loop->live_exchange_count++;
    return exchange;
}

/* Gives an empty buffer memory, probably some that was used before. */
static void buffer_take(struct http_loop *loop, struct buffer *buffer)
{
    if (loop->spare_buffer_count > 0) {
        *buffer = loop->spare_buffers[--loop->spare_buffer_count];
        return;
    }
    buffer_init(buffer, HTTP_OUT_BYTES_MAX);
    (void)buffer_reserve(buffer, SPARE_BUFFER_BYTES);
}

void http_buffer_give(struct http_loop *loop, struct buffer *buffer)
{
    if (buffer->bytes != NULL && buffer->capacity <= SPARE_BUFFER_CAPACITY_MAX &&
        loop->spare_buffer_count < HTTP_SPARE_BUFFERS_MAX) {
        buffer_clear(buffer);
        loop->spare_buffers[loop->spare_buffer_count++] = *buffer;
    } else {
        buffer_release(buffer);
    }
    buffer_init(buffer, HTTP_OUT_BYTES_MAX);
}

void http_exchange_free(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;
    struct http_loop *loop = connection->loop;
    if (exchange->own.bytes != NULL)
        http_buffer_give(loop, &exchange->own);
    http_exchange_expect(exchange, 0);
    per_address_leave(loop->server->per_address, &exchange->client);
    exchange->state = HTTP_EXCHANGE_SPARE;
    exchange->next = loop->spare_exchanges;
    loop->spare_exchanges = exchange;
    loop->live_exchange_count--;
    connection->exchange_count--;
    http_connection_free_when_done(connection);
}

void http_exchanges_abandon(struct http_loop *loop)
{
    for (struct http_exchange_slab *slab = loop->slabs; slab != NULL; slab = slab->next) {
        for (size_t i = 0; i < HTTP_EXCHANGES_PER_SLAB; i++)
            if (slab->exchanges[i].state != HTTP_EXCHANGE_SPARE)
                http_exchange_free(&slab->exchanges[i]);
    }
}

void http_exchanges_release(struct http_loop *loop)
{
    while (loop->slabs != NULL) {
        struct http_exchange_slab *slab = loop->slabs;
        loop->slabs = slab->next;
        free(slab);
    }
    while (loop->spare_buffer_count > 0)
        buffer_release(&loop->spare_buffers[--loop->spare_buffer_count]);
}

/* --- the line --- */

struct http_exchange *http_line_join(struct http_connection *connection)
{
    struct http_exchange *exchange = spare_take(connection->loop);
    if (exchange == NULL) {
        http_connection_give_up(connection);
        return NULL;
    }
    *exchange = (struct http_exchange){
        .connection = connection,
        .state = HTTP_EXCHANGE_WAITING,
        .in_line = true,
        .notes.started_ns = connection->loop->now_ns,
    };
    if (connection->tail != NULL)
        connection->tail->next = exchange;
    else
        connection->head = exchange;
    connection->tail = exchange;
    connection->line_count++;
    connection->exchange_count++;
    return exchange;
}

static struct http_exchange *line_leave(struct http_connection *connection)
{
    struct http_exchange *exchange = connection->head;
    connection->head = exchange->next;
    if (connection->head == NULL)
        connection->tail = NULL;
    connection->line_count--;
    exchange->in_line = false;
    return exchange;
}

/* A stream that is out of the line: its owner is told at the end of this tick, outside of anyone's
 * call. */
static void line_lose(struct http_exchange *exchange)
{
    struct http_loop *loop = exchange->connection->loop;
    exchange->state = HTTP_EXCHANGE_GONE;
    exchange->next = loop->gone_first;
    loop->gone_first = exchange;
}

void http_line_dissolve(struct http_connection *connection)
{
    while (connection->head != NULL) {
        struct http_exchange *exchange = line_leave(connection);
        if (exchange->state == HTTP_EXCHANGE_READY)
            http_exchange_free(exchange);
        else if (exchange->state == HTTP_EXCHANGE_STREAMING)
            line_lose(exchange);
    }
    connection->ready_bytes = 0;
}

void http_line_end_stream(struct http_connection *connection)
{
    struct http_exchange *stream = connection->head;
    if (connection->state != HTTP_CONNECTION_OPEN || stream == NULL ||
        stream->state != HTTP_EXCHANGE_STREAMING)
        return;
    if (stream->must_finish)
        connection->given_up = true;
    else if (stream->chunked)
        buffer_append_literal(&connection->out, "0\r\n\r\n");
    connection->ending = true;
    http_line_dissolve(connection);
    http_connection_touch(connection);
}

/* Takes the head's bytes, without copying them when nothing is in front of them. */
static void line_move_own(struct http_connection *connection, struct http_exchange *exchange)
{
    if (exchange->own.length == 0)
        return;
    connection->ready_bytes -= exchange->own.length;
    if (connection->out.length == 0) {
        struct buffer emptied = connection->out;
        connection->out = exchange->own;
        exchange->own = emptied;
    } else {
        buffer_append(&connection->out, exchange->own.bytes, exchange->own.length);
        buffer_clear(&exchange->own);
    }
}

/* Moves answers that are ready into `out` as far as the line allows; called when `exchange` may be
 * what it waited for. */
static void line_advance(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;
    if (connection->head != exchange)
        return;
    while (connection->head != NULL && connection->head->state == HTTP_EXCHANGE_READY) {
        struct http_exchange *head = line_leave(connection);
        line_move_own(connection, head);
        bool last = head->last;
        http_exchange_free(head);
        if (last) {
            connection->ending = true;
            connection->input_ended = true;
            http_line_dissolve(connection);
        }
    }
    struct http_exchange *head = connection->head;
    if (head != NULL && head->state == HTTP_EXCHANGE_STREAMING) {
        line_move_own(connection, head);
        head->target = &connection->out;
        if (head->no_body || connection->end_received ||
            connection->loop->stop_phase != HTTP_STOP_NOT)
            http_line_end_stream(connection);
    }
    http_connection_touch(connection);
}

/* --- answers --- */

/* Where this exchange's bytes go for now. */
static struct buffer *answer_target(struct http_exchange *exchange)
{
    struct http_connection *connection = exchange->connection;
    struct buffer *target =
        exchange->in_line && connection->head == exchange ? &connection->out : &exchange->own;
    if (target->bytes == NULL)
        buffer_take(connection->loop, target);
    return target;
}

/* Room for `length` more bytes, or NULL with the buffer overflowed. An answer's parts are copied
 * into it one after the other without asking again. */
static inline char *answer_room(struct buffer *out, size_t length)
{
    if (out->capacity - out->length <= length && !buffer_reserve(out, length))
        return NULL;
    return out->bytes + out->length;
}

static inline void answer_took(struct buffer *out, char *end)
{
    out->length = (size_t)(end - out->bytes);
    *end = '\0';
}

static inline char *put(char *at, struct span bytes)
{
    if (bytes.length > 0)
        memcpy(at, bytes.bytes, bytes.length);
    return at + bytes.length;
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
    exchange->began_at = out->length;
    struct span line = status_lines[status - 100];
    ensure(line.bytes != NULL);
    char *at = answer_room(out, line.length + HTTP_DATE_LENGTH + content_type.length + 32);
    if (at == NULL)
        return;
    at = put(at, line);
    at = put(at, (struct span){loop->date, HTTP_DATE_LENGTH});
    if (content_type.length > 0) {
        at = put(at, SPAN("Content-Type: "));
        at = put(at, content_type);
        at = put(at, SPAN("\r\n"));
    }
    answer_took(out, at);
}

/* Eight bytes at a time: the top bit of a byte below ' ' becomes set by the subtraction. */
static bool has_control(struct span value)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    size_t at = 0;
    for (; at + 8 <= value.length; at += 8) {
        uint64_t word;
        memcpy(&word, value.bytes + at, sizeof(word));
        if (((word - ones * ' ') & ~word & (ones * 0x80)) != 0)
            return true;
    }
    while (at < value.length && (unsigned char)value.bytes[at] >= ' ')
        at++;
    return at < value.length;
}

void http_answer_header(struct http_exchange *exchange, struct span name, struct span value)
{
    ensure(exchange->state == HTTP_EXCHANGE_RENDERING);
    struct buffer *out = exchange->target;
    buffer_append_span(out, name);
    buffer_append_literal(out, ": ");
    size_t at = out->length;
    buffer_append_span(out, value);
    /* A value that could end its line would forge headers. */
    if (!has_control(value))
        at = out->length;
    for (; at < out->length; at++)
        if ((unsigned char)out->bytes[at] < ' ' && out->bytes[at] != '\t')
            out->bytes[at] = '?';
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
    if (at == NULL)
        return;
    if (!exchange->no_length) {
        size_t digits = digits_count(body.length);
        at = put(at, SPAN("Content-Length: "));
        digits_put(at, body.length, digits);
        at = put(at + digits, SPAN("\r\n"));
    }
    if (exchange->last)
        at = put(at, SPAN("Connection: close\r\n"));
    else if (exchange->http_1_0)
        at = put(at, SPAN("Connection: keep-alive\r\n"));
    at = put(at, SPAN("\r\n"));
    if (!exchange->no_body)
        at = put(at, body);
    answer_took(out, at);
}

void http_answer_end(struct http_exchange *exchange, struct span body)
{
    ensure(exchange->state == HTTP_EXCHANGE_RENDERING);
    struct http_connection *connection = exchange->connection;
    struct buffer *out = exchange->target;
    answer_render_end(exchange, body);
    exchange->state = HTTP_EXCHANGE_READY;
    connection->loop->answered_bytes += out->length - exchange->began_at;
    http_exchange_expect(exchange, 0);
    if (!exchange->in_line) {
        http_exchange_free(exchange);
        return;
    }
    if (out->overflowed)
        connection->given_up = true;
    if (out == &exchange->own)
        connection->ready_bytes += out->length;
    line_advance(exchange);
}

/* --- streams: chunked for HTTP/1.1, until the close for 1.0 --- */

/* Its bytes before its turn count as waiting. */
static void stream_append(struct http_exchange *exchange, const void *bytes, size_t length)
{
    size_t before = exchange->target->length;
    buffer_append(exchange->target, bytes, length);
    if (exchange->target == &exchange->own)
        exchange->connection->ready_bytes += exchange->target->length - before;
}

void http_stream_start(struct http_exchange *exchange, void (*on_gone)(void *context),
                       void *context)
{
    ensure(exchange->state == HTTP_EXCHANGE_RENDERING);
    struct http_connection *connection = exchange->connection;
    exchange->on_gone = on_gone;
    exchange->on_gone_context = context;
    exchange->chunked = !exchange->http_1_0 && !exchange->no_body;
    http_answer_close(exchange);
    if (exchange->chunked)
        buffer_append_literal(exchange->target, "Transfer-Encoding: chunked\r\n");
    buffer_append_literal(exchange->target, "Connection: close\r\n\r\n");
    if (!exchange->in_line) {
        line_lose(exchange);
        return;
    }
    if (exchange->target == &exchange->own)
        connection->ready_bytes += exchange->own.length;
    exchange->state = HTTP_EXCHANGE_STREAMING;
    int kernel_bytes = STREAM_KERNEL_BYTES;
    (void)setsockopt(connection->socket_fd, SOL_SOCKET, SO_SNDBUF, &kernel_bytes,
                     sizeof(kernel_bytes));
    line_advance(exchange);
}

void http_stream_write(struct http_exchange *exchange, struct span piece)
{
    struct http_connection *connection = exchange->connection;
    if (exchange->state != HTTP_EXCHANGE_STREAMING || piece.length == 0 || connection->given_up)
        return;
    bool is_full = http_server_is_full(connection->loop->server) && !exchange->must_finish;
    size_t unsent_max = is_full ? STREAM_UNSENT_FULL_MAX : STREAM_UNSENT_MAX;
    if (http_connection_unsent(connection) > unsent_max) {
        http_connection_give_up(connection);
        return;
    }
    if (exchange->target->bytes == NULL)
        buffer_take(connection->loop, exchange->target);
    if (exchange->chunked) {
        char size[20];
        int length = snprintf(size, sizeof(size), "%zx\r\n", piece.length);
        stream_append(exchange, size, (size_t)length);
    }
    stream_append(exchange, piece.bytes, piece.length);
    if (exchange->chunked)
        stream_append(exchange, "\r\n", 2);
    http_connection_touch(connection);
}

void http_stream_end(struct http_exchange *exchange)
{
    if (exchange->state == HTTP_EXCHANGE_GONE) {
        /* Its owner already knows that it is over. */
        exchange->on_gone = NULL;
        return;
    }
    ensure(exchange->state == HTTP_EXCHANGE_STREAMING);
    if (exchange->chunked)
        stream_append(exchange, "0\r\n\r\n", 5);
    exchange->state = HTTP_EXCHANGE_READY;
    line_advance(exchange);
}

void http_stream_must_finish(struct http_exchange *exchange)
{
    exchange->must_finish = true;
}

void http_stream_break(struct http_exchange *exchange)
{
    http_connection_give_up(exchange->connection);
}

size_t http_stream_unsent(const struct http_exchange *exchange)
{
    return http_connection_unsent(exchange->connection);
}

/* --- the exchange --- */

bool http_exchange_count_client(struct http_exchange *exchange, const struct address *client)
{
    if (!per_address_enter(exchange->connection->loop->server->per_address, client))
        return false;
    exchange->client = *client;
    return true;
}

void http_exchange_expect(struct http_exchange *exchange, size_t bytes)
{
    if (bytes == exchange->expected_bytes)
        return;
    struct http_connection *connection = exchange->connection;
    connection->expected_bytes += bytes - exchange->expected_bytes;
    exchange->expected_bytes = bytes;
    http_connection_account(connection);
}

bool http_exchange_gone(const struct http_exchange *exchange)
{
    return !exchange->in_line;
}

const struct address *http_exchange_peer(const struct http_exchange *exchange)
{
    return &exchange->connection->peer;
}

struct http_exchange_notes *http_exchange_notes(struct http_exchange *exchange)
{
    return &exchange->notes;
}
