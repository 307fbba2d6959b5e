/* connection.c: a connection's life and its deadlines; from readable sockets to handled requests,
 * with back-pressure. */
#include "http/server/connection.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/array.h"
#include "base/log.h"
#include "http/server/loop.h"

/* After our last byte the client may still be sending: closing at once would reset the connection
 * and take the answer with it. So its bytes are dropped for a while. */
#define LINGER_MS       2000
#define LINGER_SHORT_MS 500 /* while the server stops, or over the cap */
/* What a client may send after its last request before nobody listens any more. */
#define DROPPED_BYTES_MAX ((size_t)256 * 1024)
/* Unsent bytes over which a connection reads no more, and under which it reads again. */
#define UNSENT_HIGH ((size_t)256 * 1024)
#define UNSENT_LOW  ((size_t)64 * 1024)

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- what it holds --- */

/* Unsent and expected: at most so much, or nothing where the server is full. */
static bool connection_is_within(const struct http_connection *connection, size_t bytes_max)
{
    size_t held = http_connection_unsent(connection) + connection->expected_bytes;
    return held == 0 || (held <= bytes_max && !http_server_is_full(connection->loop->server));
}

void http_connection_account(struct http_connection *connection)
{
    size_t held = connection->expected_bytes;
    if (connection->state < HTTP_CONNECTION_CLOSING)
        held += http_connection_unsent(connection) + connection->parser.own_capacity;
    if (held != connection->held_bytes) {
        atomic_fetch_add_explicit(&connection->loop->server->held_bytes,
                                  held - connection->held_bytes, memory_order_relaxed);
        connection->held_bytes = held;
    }
}

void http_connection_touch(struct http_connection *connection)
{
    if (!connection->dirty && connection->state < HTTP_CONNECTION_CLOSING) {
        connection->dirty = true;
        STAILQ_INSERT_TAIL(&connection->loop->dirty, connection, dirty_link);
    }
}

void http_connection_give_up(struct http_connection *connection)
{
    connection->given_up = true;
    http_connection_touch(connection);
}

/* --- deadlines --- */

void http_connection_arm(struct http_connection *connection)
{
    connection->loop->deadlines_ms[connection->index] =
        earlier(connection->read_deadline_ms, connection->write_check_ms);
}

/* Nothing has to come from the client for now. */
static void connection_await_nothing(struct http_connection *connection)
{
    connection->phase = HTTP_PHASE_BETWEEN;
    connection->request_started_ms = 0;
    connection->read_deadline_ms = NEVER_MS;
    http_connection_arm(connection);
}

/* Everything that came was parsed: sets the deadline for what has to come next. The time for a
 * head runs from its first byte, so dripping does not help; the time for a body from the end of
 * the head, but both together get no more than the head's time and half of the body's. */
static void connection_note_phase(struct http_connection *connection)
{
    const struct http_options *options = connection->loop->options;
    int64_t now_ms = connection->loop->now_ms;
    enum http_phase phase = http_parser_phase(&connection->parser);
    if (phase == HTTP_PHASE_BETWEEN) {
        /* The idle time starts when everything is answered and written. */
        connection_await_nothing(connection);
        return;
    }
    if (phase == connection->phase)
        return;
    if (connection->request_started_ms == 0)
        connection->request_started_ms = now_ms;
    connection->read_deadline_ms = connection->request_started_ms + options->header_timeout_ms;
    if (phase == HTTP_PHASE_BODY) {
        connection->read_deadline_ms =
            earlier(now_ms + options->body_timeout_ms,
                    connection->read_deadline_ms + options->body_timeout_ms / 2);
    }
    connection->phase = phase;
    http_connection_arm(connection);
}

/* --- its end --- */

void http_connection_free_when_done(struct http_connection *connection)
{
    if (connection->state == HTTP_CONNECTION_CLOSED && connection->exchange_count == 0 &&
        !connection->dirty && !connection->resuming && !connection->queued)
        free(connection);
}

static void connection_on_closed(uv_handle_t *handle)
{
    struct http_connection *connection = (struct http_connection *)handle;
    struct http_loop *loop = connection->loop;
    size_t last = --loop->connection_count;
    loop->connections[connection->index] = loop->connections[last];
    loop->connections[connection->index]->index = connection->index;
    loop->deadlines_ms[connection->index] = loop->deadlines_ms[last];
    counter_subtract(&loop->counters.connections_open, 1);
    if (connection->over_cap)
        loop->over_cap_count--;
    else
        http_server_discharge(loop->server, &connection->peer);
    connection->state = HTTP_CONNECTION_CLOSED;
    http_connection_free_when_done(connection);
}

/* False when that was done before. */
static bool connection_leave(struct http_connection *connection)
{
    if (connection->state >= HTTP_CONNECTION_CLOSING)
        return false;
    connection->state = HTTP_CONNECTION_CLOSING;
    connection->write_check_ms = NEVER_MS;
    connection_await_nothing(connection);
    http_line_dissolve(connection);
    http_connection_drop_unsent(connection);
    http_parser_release(&connection->parser);
    http_connection_account(connection);
    return true;
}

void http_connection_close(struct http_connection *connection)
{
    if (connection_leave(connection))
        uv_close((uv_handle_t *)&connection->tcp, connection_on_closed);
}

void http_connection_abort(struct http_connection *connection)
{
    if (connection_leave(connection) &&
        uv_tcp_close_reset(&connection->tcp, connection_on_closed) != 0)
        uv_close((uv_handle_t *)&connection->tcp, connection_on_closed);
}

void http_connection_wind_up(struct http_connection *connection)
{
    if (connection->state != HTTP_CONNECTION_OPEN || connection->phase != HTTP_PHASE_BETWEEN ||
        connection->paused)
        return;
    if (connection->tail != NULL) {
        connection->tail->last = true;
        connection->input_ended = true;
    } else if (http_connection_unsent(connection) > 0) {
        connection->ending = true;
    } else {
        http_connection_close(connection);
    }
}

/* --- requests --- */

/* Nothing more is parsed; what comes is dropped, but the client's end is still noticed. */
static void connection_end_input(struct http_connection *connection)
{
    connection->input_ended = true;
    connection_await_nothing(connection);
    http_parser_release(&connection->parser);
}

/* Lets `refuse` answer, behind what is in line, and ends the connection with that. */
static void connection_refuse(struct http_connection *connection, enum http_refusal refusal,
                              const char *detail)
{
    struct http_loop *loop = connection->loop;
    struct http_exchange *exchange = http_line_join(connection);
    connection_end_input(connection);
    if (exchange == NULL)
        return;
    exchange->no_body = connection->parser.method == HTTP_METHOD_HEAD;
    exchange->last = true;
    counter_add(&loop->counters.refusals, 1);
    loop->options->callbacks.refuse(loop->context, exchange, refusal, detail);
    ensure(exchange->state == HTTP_EXCHANGE_READY || exchange->state == HTTP_EXCHANGE_SPARE);
}

static void connection_handle(struct http_connection *connection,
                              const struct http_request *request)
{
    struct http_loop *loop = connection->loop;
    struct http_exchange *exchange = http_line_join(connection);
    if (exchange == NULL) {
        connection_end_input(connection);
        return;
    }
    const struct http_parser *parser = &connection->parser;
    exchange->no_body = request->method == HTTP_METHOD_HEAD;
    exchange->http_1_0 = parser->http_1_0;
    exchange->last = !parser->keep_alive || loop->stop_phase == HTTP_STOP_WINDING_UP;
    connection->input_ended = exchange->last;
    connection->phase = HTTP_PHASE_BETWEEN;
    connection->request_started_ms = 0;
    counter_add(&loop->counters.requests, 1);
    loop->options->callbacks.handle(loop->context, exchange, request);
    if (connection->input_ended)
        connection_end_input(connection);
}

/* Back-pressure: what came is kept, nothing more is read. The client is not to blame for being
 * slow now, so its deadline is off. */
static void connection_pause(struct http_connection *connection)
{
    uv_read_stop((uv_stream_t *)&connection->tcp);
    connection->paused = true;
    connection_await_nothing(connection);
}

/* Handles one request after the other, as far as it may go now. */
static void connection_consume(struct http_connection *connection)
{
    struct http_loop *loop = connection->loop;
    struct http_parser *parser = &connection->parser;
    struct http_request request;
    bool is_first = true;
    while (!connection->input_ended) {
        bool must_wait = !is_first && http_parser_has_more(parser) && http_loop_is_spent(loop);
        if (must_wait || connection->line_count >= HTTP_PIPELINE_MAX ||
            !connection_is_within(connection, UNSENT_HIGH)) {
            connection->given_up |= !http_parser_park(parser);
            connection_pause(connection);
            if (must_wait)
                http_loop_resume_later(loop, connection);
            break;
        }
        is_first = false;
        enum http_parsed parsed = http_parser_next(parser, &request);
        if (parsed == HTTP_PARSED_REQUEST) {
            connection_handle(connection, &request);
        } else if (parsed == HTTP_PARSED_REFUSED) {
            connection_refuse(connection, parser->refusal, parser->detail);
        } else {
            connection->given_up |= !http_parser_park(parser);
            connection_note_phase(connection);
            break;
        }
    }
    http_connection_account(connection);
    if (connection->given_up || parser->continue_expected)
        http_connection_touch(connection);
}

void http_connection_expire(struct http_connection *connection, int64_t now_ms)
{
    struct http_loop *loop = connection->loop;
    if (now_ms >= connection->write_check_ms && !http_connection_takes_enough(connection, now_ms)) {
        counter_add(&loop->counters.timeouts, 1);
        http_connection_abort(connection);
    } else if (now_ms < connection->read_deadline_ms) {
        http_connection_arm(connection);
    } else if (connection->state == HTTP_CONNECTION_LINGERING ||
               connection->phase == HTTP_PHASE_BETWEEN) {
        /* Nobody waits for an answer. */
        http_connection_close(connection);
    } else {
        counter_add(&loop->counters.timeouts, 1);
        connection_refuse(connection, HTTP_REFUSE_TIMEOUT,
                          connection->phase == HTTP_PHASE_HEAD ? "the headers came too slowly"
                                                               : "the body came too slowly");
    }
}

/* --- reading --- */

static void connection_on_room(uv_handle_t *handle, size_t suggested_size, uv_buf_t *buffer)
{
    struct http_connection *connection = (struct http_connection *)handle;
    *buffer = uv_buf_init(connection->loop->read_bytes, HTTP_PARSER_BYTES_MAX);
    if (!connection->input_ended)
        *buffer = http_parser_room(&connection->parser, *buffer);
}

static void connection_drop(struct http_connection *connection, size_t count)
{
    connection->dropped_bytes += count;
    if (connection->dropped_bytes > DROPPED_BYTES_MAX) {
        if (connection->state == HTTP_CONNECTION_LINGERING)
            http_connection_close(connection);
        else
            uv_read_stop((uv_stream_t *)&connection->tcp);
    }
}

/* The client has shut its side, or the connection broke. One that only shut its side still gets
 * its answers, but not a stream without end. */
static void connection_on_end(struct http_connection *connection, bool broken)
{
    uv_read_stop((uv_stream_t *)&connection->tcp);
    connection->end_received = true;
    bool streaming = connection->head != NULL && connection->head->state == HTTP_EXCHANGE_STREAMING;
    bool owing = connection->line_count > 0 || http_connection_unsent(connection) > 0;
    if (broken || streaming || !owing || connection->state == HTTP_CONNECTION_LINGERING) {
        http_connection_close(connection);
        return;
    }
    connection_end_input(connection);
    if (connection->tail != NULL)
        connection->tail->last = true;
    else
        connection->ending = true;
}

static void connection_on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *room)
{
    struct http_connection *connection = (struct http_connection *)stream;
    if (count == 0)
        return;
    http_loop_begin_tick(connection->loop);
    if (count < 0) {
        connection_on_end(connection, count != UV_EOF);
        return;
    }
    counter_add(&connection->loop->counters.bytes_in, (uint64_t)count);
    if (connection->input_ended) {
        connection_drop(connection, (size_t)count);
    } else {
        http_parser_feed(&connection->parser, *room, (size_t)count);
        connection_consume(connection);
    }
}

/* Starts reading; also again after back-pressure. */
static void connection_read(struct http_connection *connection)
{
    if (!connection->end_received)
        uv_read_start((uv_stream_t *)&connection->tcp, connection_on_room, connection_on_read);
}

void http_connection_resume(struct http_connection *connection)
{
    if (connection->state != HTTP_CONNECTION_OPEN || !connection->paused)
        return;
    connection->paused = false;
    connection_consume(connection);
    if (!connection->paused && connection->state == HTTP_CONNECTION_OPEN)
        connection_read(connection);
    http_connection_touch(connection);
}

/* --- its beginning --- */

/* A place among the loop's connections; false when there is no memory. */
static bool connection_enter(struct http_connection *connection, struct http_loop *loop)
{
    size_t capacity = loop->connection_capacity;
    if (!array_make_room(loop->deadlines_ms, loop->connection_count, capacity) ||
        !array_make_room(loop->connections, loop->connection_count, loop->connection_capacity))
        return false;
    connection->loop = loop;
    connection->index = (uint32_t)loop->connection_count++;
    loop->connections[connection->index] = connection;
    counter_add(&loop->counters.connections_open, 1);
    http_loop_scan(loop);
    return true;
}

void http_connection_open(struct http_loop *loop, int socket_fd, const struct address *peer,
                          const char *refusal)
{
    struct http_connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL || !connection_enter(connection, loop)) {
        free(connection);
        close(socket_fd);
        if (refusal == NULL)
            http_server_discharge(loop->server, peer);
        log_event(LOG_WARN, "connection_dropped", LOG_FIELD("reason", LOG_TEXT("memory")));
        return;
    }
    connection->socket_fd = socket_fd;
    connection->peer = *peer;
    connection->over_cap = refusal != NULL;
    loop->over_cap_count += connection->over_cap;
    http_parser_init(&connection->parser, loop->options->callbacks.body_max, loop->context);
    buffer_init(&connection->out, HTTP_OUT_BYTES_MAX);
    /* The first request's time runs from here. */
    connection->request_started_ms = loop->now_ms;
    connection->read_deadline_ms = loop->now_ms + loop->options->header_timeout_ms;
    connection->write_check_ms = NEVER_MS;
    http_connection_arm(connection);
    ensure(uv_tcp_init(&loop->uv, &connection->tcp) == 0);
    if (uv_tcp_open(&connection->tcp, socket_fd) != 0) {
        close(socket_fd);
        http_connection_close(connection);
        return;
    }
    connection_read(connection);
    if (refusal != NULL)
        connection_refuse(connection, HTTP_REFUSE_OVERLOADED, refusal);
}

/* --- what comes after the writes --- */

/* The client waits for "100 Continue" before it sends the body. It may be told once everything
 * before it is answered. */
static void connection_continue(struct http_connection *connection)
{
    if (connection->line_count > 0 || connection->input_ended)
        return;
    connection->parser.continue_expected = false;
    if (http_parser_phase(&connection->parser) == HTTP_PHASE_BODY)
        buffer_append_literal(&connection->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

/* Everything was answered and written: shuts our side and waits for the client to shut its own. */
static void connection_finish(struct http_connection *connection)
{
    struct http_loop *loop = connection->loop;
    if (connection->end_received || shutdown(connection->socket_fd, SHUT_WR) != 0) {
        http_connection_close(connection);
        return;
    }
    connection->state = HTTP_CONNECTION_LINGERING;
    http_line_dissolve(connection);
    connection_end_input(connection);
    bool hurry = connection->over_cap || loop->stop_phase != HTTP_STOP_NOT;
    connection->read_deadline_ms = loop->now_ms + (hurry ? LINGER_SHORT_MS : LINGER_MS);
    http_connection_arm(connection);
    connection_read(connection);
}

/* Everything that can be written now was: what comes next? */
static void connection_settle(struct http_connection *connection)
{
    struct http_loop *loop = connection->loop;
    size_t unsent = http_connection_unsent(connection);
    if (unsent == 0 && connection->ending) {
        connection_finish(connection);
    } else if (connection->paused) {
        if (connection->line_count <= HTTP_PIPELINE_MAX / 2 &&
            connection_is_within(connection, UNSENT_LOW))
            http_loop_resume_later(loop, connection);
    } else if (unsent == 0 && connection->line_count == 0 &&
               connection->phase == HTTP_PHASE_BETWEEN) {
        if (loop->stop_phase == HTTP_STOP_WINDING_UP) {
            http_connection_close(connection);
            return;
        }
        connection->read_deadline_ms = loop->now_ms + loop->options->idle_timeout_ms;
        http_connection_arm(connection);
    }
}

void http_connection_flush(struct http_connection *connection)
{
    if (connection->state == HTTP_CONNECTION_OPEN) {
        if (connection->given_up || connection->out.overflowed) {
            http_connection_abort(connection);
            return;
        }
        if (connection->parser.continue_expected)
            connection_continue(connection);
        if (connection->out.length > 0 && connection->rest == NULL)
            http_connection_write(connection);
    }
    if (connection->state == HTTP_CONNECTION_OPEN)
        connection_settle(connection);
    http_connection_account(connection);
}
