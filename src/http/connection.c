/* connection.c: a connection's life: how it starts, its deadlines, how it ends. */
#include "http/connection.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/loop.h"

/* After our last byte the client may still be sending: closing at once would reset the connection
 * and take the answer with it. So its bytes are dropped for a while. */
#define LINGER_MS       2000
#define LINGER_SHORT_MS 500 /* while the server stops, or over the cap */

struct http_connection *http_connection_open(struct http_loop *loop, int socket_fd,
                                             const struct sockaddr_storage *peer,
                                             enum http_admission admission)
{
    struct http_connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL || !http_loop_add(loop, connection)) {
        free(connection);
        close(socket_fd);
        if (admission == HTTP_ADMITTED) {
            http_server_discharge(loop->server, (const struct sockaddr *)peer);
        }
        return NULL;
    }
    connection->loop = loop;
    connection->socket_fd = socket_fd;
    connection->over_cap = admission != HTTP_ADMITTED;
    loop->over_cap_count += connection->over_cap;
    memcpy(&connection->peer, peer, sizeof(connection->peer));
    http_parser_init(&connection->parser, &loop->rules);
    buffer_init(&connection->out, HTTP_OUT_BYTES_MAX);
    /* The first request's time runs from here. */
    connection->request_started_ms = loop->now_ms;
    connection->read_deadline_ms = loop->now_ms + loop->options->header_timeout_ms;
    http_connection_arm(connection);
    int failed = uv_tcp_init(&loop->uv, &connection->tcp);
    ensure(failed == 0);
    if (uv_tcp_open(&connection->tcp, socket_fd) != 0) {
        close(socket_fd);
        http_connection_close(connection);
        return NULL;
    }
    http_connection_read(connection);
    return connection;
}

void http_connection_free_when_done(struct http_connection *connection)
{
    if (connection->state == HTTP_CONNECTION_CLOSED && connection->exchange_count == 0 &&
        !connection->dirty && !connection->resuming) {
        free(connection);
    }
}

static void connection_on_closed(uv_handle_t *handle)
{
    struct http_connection *connection = (struct http_connection *)handle;
    connection->state = HTTP_CONNECTION_CLOSED;
    http_loop_remove(connection->loop, connection);
    http_connection_free_when_done(connection);
}

static void connection_leave(struct http_connection *connection)
{
    connection->state = HTTP_CONNECTION_CLOSING;
    connection->reading = false;
    connection->read_deadline_ms = 0;
    connection->write_check_ms = 0;
    http_connection_arm(connection);
    http_line_dissolve(connection);
    http_parser_release(&connection->parser);
    http_loop_give_buffer(connection->loop, &connection->out);
    http_connection_account(connection);
}

void http_connection_close(struct http_connection *connection)
{
    if (connection->state < HTTP_CONNECTION_CLOSING) {
        connection_leave(connection);
        uv_close((uv_handle_t *)&connection->tcp, connection_on_closed);
    }
}

void http_connection_abort(struct http_connection *connection)
{
    if (connection->state < HTTP_CONNECTION_CLOSING) {
        connection_leave(connection);
        if (uv_tcp_close_reset(&connection->tcp, connection_on_closed) != 0) {
            uv_close((uv_handle_t *)&connection->tcp, connection_on_closed);
        }
    }
}

void http_connection_finish(struct http_connection *connection)
{
    if (connection->end_received || shutdown(connection->socket_fd, SHUT_WR) != 0) {
        http_connection_close(connection);
        return;
    }
    struct http_loop *loop = connection->loop;
    connection->state = HTTP_CONNECTION_LINGERING;
    connection->input_ended = true;
    http_line_dissolve(connection);
    http_parser_release(&connection->parser);
    bool hurry = connection->over_cap || loop->stop_phase != HTTP_STOP_NOT;
    connection->read_deadline_ms = loop->now_ms + (hurry ? LINGER_SHORT_MS : LINGER_MS);
    http_connection_arm(connection);
    http_connection_read(connection);
}

/* --- deadlines --- */

void http_connection_arm(struct http_connection *connection)
{
    int64_t deadline_ms = INT64_MAX;
    if (connection->read_deadline_ms != 0) {
        deadline_ms = connection->read_deadline_ms;
    }
    if (connection->write_check_ms != 0 && connection->write_check_ms < deadline_ms) {
        deadline_ms = connection->write_check_ms;
    }
    connection->loop->deadlines_ms[connection->index] = deadline_ms;
}

/* What the client takes buys it time, up to the timeout: one that stops is cut off after that, and
 * one that takes less than the least rate when the time it had is used up. False when that is so.
 * What it has taken is asked of the kernel, which by itself asks for more only when a third of its
 * buffer is free. */
static bool connection_check_writing(struct http_connection *connection, int64_t now_ms)
{
    const struct http_loop *loop = connection->loop;
    int64_t timeout_ms = loop->options->write_timeout_ms;
    int64_t rate_per_s =
        http_server_is_full(loop->server) ? HTTP_RATE_MIN_FULL_PER_S : HTTP_RATE_MIN_PER_S;
    uint64_t taken = http_connection_taken(connection);
    int64_t bought_ms = (int64_t)((taken - connection->taken_bytes) * 1000) / rate_per_s;
    connection->taken_bytes = taken;
    connection->write_due_ms += bought_ms;
    if (connection->write_due_ms > now_ms + timeout_ms) {
        connection->write_due_ms = now_ms + timeout_ms;
    }
    connection->write_check_ms = now_ms + timeout_ms / 8 + 1;
    http_connection_account(connection);
    return now_ms < connection->write_due_ms;
}

void http_connection_expire(struct http_connection *connection, int64_t now_ms)
{
    struct http_loop *loop = connection->loop;
    if (connection->write_check_ms != 0 && now_ms >= connection->write_check_ms &&
        !connection_check_writing(connection, now_ms)) {
        http_count(&loop->counters.timeouts, 1);
        http_connection_abort(connection);
        return;
    }
    if (connection->read_deadline_ms == 0 || now_ms < connection->read_deadline_ms) {
        http_connection_arm(connection);
        return;
    }
    connection->read_deadline_ms = 0;
    if (connection->state == HTTP_CONNECTION_LINGERING || connection->phase == HTTP_PHASE_BETWEEN) {
        /* Nobody waits for an answer. */
        http_connection_close(connection);
        return;
    }
    http_count(&loop->counters.timeouts, 1);
    http_connection_refuse(connection, HTTP_REFUSE_TIMEOUT,
                           connection->phase == HTTP_PHASE_HEAD ? "the headers came too slowly"
                                                                : "the body came too slowly");
    http_connection_arm(connection);
}

/* --- the server stops --- */

void http_connection_end_stream(struct http_connection *connection)
{
    struct http_exchange *stream = connection->head;
    if (connection->state != HTTP_CONNECTION_OPEN || stream == NULL ||
        stream->state != HTTP_EXCHANGE_STREAMING) {
        return;
    }
    if (stream->must_finish) {
        connection->given_up = true;
    } else if (stream->chunked) {
        buffer_append_literal(&connection->out, "0\r\n\r\n");
    }
    connection->ending = true;
    http_line_dissolve(connection);
    http_connection_touch(connection);
}

void http_connection_wind_up(struct http_connection *connection)
{
    if (connection->state != HTTP_CONNECTION_OPEN) {
        return;
    }
    bool idle = connection->phase == HTTP_PHASE_BETWEEN && !connection->paused;
    if (connection->line_count > 0) {
        if (idle) {
            connection->tail->last = true;
            connection->input_ended = true;
        }
    } else if (http_connection_unsent(connection) > 0) {
        connection->ending = idle;
    } else if (idle) {
        http_connection_close(connection);
    }
}
