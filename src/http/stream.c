/* stream.c: answers without a known end (SSE): chunked for HTTP/1.1, until the close for 1.0. */
#include <stdio.h>
#include <sys/socket.h>

#include "http/connection.h"
#include "http/loop.h"

/* A piece that finds more than this unsent ends the stream. */
#define STREAM_UNSENT_MAX ((size_t)128 * 1024)
/* The same while the server is full. */
#define STREAM_UNSENT_FULL_MAX ((size_t)8 * 1024)
/* The kernel would hold megabytes for a reader that is slow; it doubles this for its own use. */
#define STREAM_KERNEL_BYTES (64 * 1024)

/* Its bytes before its turn count as waiting. */
static void stream_append(struct http_exchange *exchange, const void *bytes, size_t length)
{
    size_t before = exchange->target->length;
    buffer_append(exchange->target, bytes, length);
    if (exchange->target == &exchange->own) {
        exchange->connection->ready_bytes += exchange->target->length - before;
    }
}

void http_stream_start(struct http_exchange *exchange, void (*on_gone)(void *context),
                       void *context)
{
    ensure(exchange->state == HTTP_EXCHANGE_RENDERING);
    struct http_connection *connection = exchange->connection;
    exchange->on_gone = on_gone;
    exchange->on_gone_context = context;
    exchange->chunked = !exchange->http_1_0 && !exchange->no_body;
    exchange->last = true;
    connection->input_ended = true;
    if (exchange->chunked) {
        buffer_append_literal(exchange->target, "Transfer-Encoding: chunked\r\n");
    }
    buffer_append_literal(exchange->target, "Connection: close\r\n\r\n");
    if (!exchange->in_line) {
        http_exchange_lose(exchange);
        return;
    }
    if (exchange->target == &exchange->own) {
        connection->ready_bytes += exchange->own.length;
    }
    exchange->state = HTTP_EXCHANGE_STREAMING;
    int kernel_bytes = STREAM_KERNEL_BYTES;
    (void)setsockopt(connection->socket_fd, SOL_SOCKET, SO_SNDBUF, &kernel_bytes,
                     sizeof kernel_bytes);
    if (connection->head == exchange) {
        http_line_advance(connection);
    }
}

void http_stream_write(struct http_exchange *exchange, struct span piece)
{
    struct http_connection *connection = exchange->connection;
    if (exchange->state != HTTP_EXCHANGE_STREAMING || piece.length == 0 || connection->given_up) {
        return;
    }
    bool is_full = http_server_is_full(connection->loop->server) && !exchange->must_finish;
    size_t unsent_max = is_full ? STREAM_UNSENT_FULL_MAX : STREAM_UNSENT_MAX;
    if (http_connection_unsent(connection) > unsent_max) {
        connection->given_up = true;
        http_connection_touch(connection);
        return;
    }
    if (exchange->target->bytes == NULL) {
        http_loop_take_buffer(connection->loop, exchange->target);
    }
    if (exchange->chunked) {
        char size[20];
        int length = snprintf(size, sizeof(size), "%zx\r\n", piece.length);
        stream_append(exchange, size, (size_t)length);
        stream_append(exchange, piece.bytes, piece.length);
        stream_append(exchange, "\r\n", 2);
    } else {
        stream_append(exchange, piece.bytes, piece.length);
    }
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
    struct http_connection *connection = exchange->connection;
    if (exchange->chunked) {
        stream_append(exchange, "0\r\n\r\n", 5);
    }
    exchange->state = HTTP_EXCHANGE_READY;
    if (connection->head == exchange) {
        http_line_advance(connection);
    }
}

void http_stream_must_finish(struct http_exchange *exchange)
{
    exchange->must_finish = true;
}

void http_stream_break(struct http_exchange *exchange)
{
    exchange->connection->given_up = true;
    http_connection_touch(exchange->connection);
}

size_t http_stream_unsent(const struct http_exchange *exchange)
{
    return http_connection_unsent(exchange->connection);
}
