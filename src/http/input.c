/* input.c: from readable sockets to handled requests, with back-pressure and read deadlines. */
#include <string.h>

#include "http/connection.h"
#include "http/loop.h"

/* What a client may send after its last request before nobody listens any more. */
#define DROPPED_BYTES_MAX ((size_t)256 * 1024)

/* --- deadlines --- */

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Everything that came was parsed: sets the deadline for what has to come next. The time for a
 * head runs from its first byte, so dripping does not help; the time for a body from the end of
 * the head, but both together get no more than the head's time and half of the body's. */
static void input_note_phase(struct http_connection *connection)
{
    const struct http_options *options = connection->loop->options;
    int64_t now_ms = connection->loop->now_ms;
    enum http_phase phase = http_parser_phase(&connection->parser);
    switch (phase) {
    case HTTP_PHASE_BETWEEN:
        /* The idle time starts when everything is answered and written. */
        connection->request_started_ms = 0;
        connection->read_deadline_ms = 0;
        break;
    case HTTP_PHASE_HEAD:
        if (connection->phase == HTTP_PHASE_HEAD) {
            return;
        }
        if (connection->request_started_ms == 0) {
            connection->request_started_ms = now_ms;
        }
        connection->read_deadline_ms = connection->request_started_ms + options->header_timeout_ms;
        break;
    case HTTP_PHASE_BODY:
        if (connection->phase == HTTP_PHASE_BODY) {
            return;
        }
        if (connection->request_started_ms == 0) {
            connection->request_started_ms = now_ms;
        }
        connection->read_deadline_ms =
            earlier(now_ms + options->body_timeout_ms, connection->request_started_ms +
                                                           options->header_timeout_ms +
                                                           options->body_timeout_ms / 2);
        break;
    }
    connection->phase = phase;
    http_connection_arm(connection);
}

/* --- requests --- */

/* Nothing more is parsed; what comes is dropped, but the client's end is still noticed. */
static void input_end(struct http_connection *connection)
{
    connection->input_ended = true;
    connection->phase = HTTP_PHASE_BETWEEN;
    connection->read_deadline_ms = 0;
    http_connection_arm(connection);
    http_parser_release(&connection->parser);
}

void http_connection_refuse(struct http_connection *connection, enum http_refusal refusal,
                            const char *detail)
{
    struct http_loop *loop = connection->loop;
    struct http_exchange *exchange = http_line_join(connection);
    bool head = connection->parser.method == HTTP_METHOD_HEAD;
    input_end(connection);
    if (exchange == NULL) {
        connection->given_up = true;
        http_connection_touch(connection);
        return;
    }
    exchange->no_body = head;
    exchange->last = true;
    http_count(&loop->counters.refusals, 1);
    loop->options->callbacks.refuse(loop->context, exchange, refusal, detail);
    ensure(!exchange->in_use || exchange->connection != connection ||
           exchange->state == HTTP_EXCHANGE_READY);
}

static void input_handle(struct http_connection *connection, const struct http_request *request)
{
    struct http_loop *loop = connection->loop;
    struct http_exchange *exchange = http_line_join(connection);
    if (exchange == NULL) {
        connection->given_up = true;
        http_connection_touch(connection);
        input_end(connection);
        return;
    }
    const struct http_parser *parser = &connection->parser;
    exchange->no_body = request->method == HTTP_METHOD_HEAD;
    exchange->http_1_0 = parser->http_1_0;
    exchange->last = !parser->keep_alive || loop->stop_phase == HTTP_STOP_WINDING_UP;
    connection->input_ended = exchange->last;
    connection->phase = HTTP_PHASE_BETWEEN;
    connection->request_started_ms = 0;
    http_count(&loop->counters.requests, 1);
    loop->options->callbacks.handle(loop->context, exchange, request);
    if (connection->input_ended) {
        input_end(connection);
    }
}

static bool input_is_full(const struct http_connection *connection)
{
    return connection->line_count >= HTTP_PIPELINE_MAX ||
           !http_connection_is_within(connection, HTTP_UNSENT_HIGH);
}

/* Back-pressure: what came is kept, nothing more is read. The client is not to blame for being
 * slow now, so its deadline is off. */
static void input_pause(struct http_connection *connection)
{
    if (connection->reading) {
        uv_read_stop((uv_stream_t *)&connection->tcp);
        connection->reading = false;
    }
    connection->paused = true;
    connection->phase = HTTP_PHASE_BETWEEN;
    connection->request_started_ms = 0;
    connection->read_deadline_ms = 0;
    http_connection_arm(connection);
}

static void input_consume(struct http_connection *connection)
{
    struct http_request request;
    bool is_first = true;
    while (!connection->input_ended) {
        bool has_had_its_turn = !is_first && http_parser_has_more(&connection->parser) &&
                                http_loop_is_spent(connection->loop);
        if (has_had_its_turn || input_is_full(connection)) {
            connection->given_up |= !http_parser_park(&connection->parser);
            input_pause(connection);
            if (has_had_its_turn) {
                http_loop_resume_later(connection->loop, connection);
            }
            break;
        }
        is_first = false;
        enum http_parsed parsed = http_parser_next(&connection->parser, &request);
        if (parsed == HTTP_PARSED_REQUEST) {
            input_handle(connection, &request);
        } else if (parsed == HTTP_PARSED_REFUSED) {
            http_connection_refuse(connection, connection->parser.refusal,
                                   connection->parser.detail);
        } else {
            connection->given_up |= !http_parser_park(&connection->parser);
            input_note_phase(connection);
            break;
        }
    }
    http_connection_account(connection);
    if (connection->given_up || connection->parser.continue_expected) {
        http_connection_touch(connection);
    }
}

/* --- the socket --- */

static void input_on_room(uv_handle_t *handle, size_t suggested_size, uv_buf_t *buffer)
{
    (void)suggested_size;
    struct http_connection *connection = (struct http_connection *)handle;
    struct http_room room = {connection->loop->read_bytes, sizeof(connection->loop->read_bytes)};
    if (!connection->input_ended) {
        room = http_parser_room(&connection->parser, room);
    }
    buffer->base = room.bytes;
    buffer->len = room.length;
}

static void input_drop(struct http_connection *connection, size_t count)
{
    connection->dropped_bytes += count;
    if (connection->dropped_bytes <= DROPPED_BYTES_MAX) {
        return;
    }
    if (connection->state == HTTP_CONNECTION_LINGERING) {
        http_connection_close(connection);
    } else if (connection->reading) {
        uv_read_stop((uv_stream_t *)&connection->tcp);
        connection->reading = false;
    }
}

/* The client has shut its side, or the connection broke. One that only shut its side still gets
 * its answers, but not a stream without end. */
static void input_on_end(struct http_connection *connection, bool broken)
{
    if (connection->reading) {
        uv_read_stop((uv_stream_t *)&connection->tcp);
        connection->reading = false;
    }
    connection->end_received = true;
    bool streaming = connection->head != NULL && connection->head->state == HTTP_EXCHANGE_STREAMING;
    bool owing = connection->line_count > 0 || http_connection_unsent(connection) > 0;
    if (broken || streaming || !owing || connection->state == HTTP_CONNECTION_LINGERING) {
        http_connection_close(connection);
        return;
    }
    input_end(connection);
    if (connection->tail != NULL) {
        connection->tail->last = true;
    } else {
        connection->ending = true;
    }
}

static void input_on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *room)
{
    struct http_connection *connection = (struct http_connection *)stream;
    struct http_loop *loop = connection->loop;
    if (count == 0) {
        return;
    }
    http_loop_begin_tick(loop);
    if (count < 0) {
        input_on_end(connection, count != UV_EOF);
        return;
    }
    http_count(&loop->counters.bytes_in, (uint64_t)count);
    if (connection->input_ended) {
        input_drop(connection, (size_t)count);
        return;
    }
    http_parser_feed(&connection->parser, (struct http_room){room->base, room->len}, (size_t)count);
    input_consume(connection);
}

void http_connection_read(struct http_connection *connection)
{
    if (!connection->reading && !connection->end_received) {
        connection->reading =
            uv_read_start((uv_stream_t *)&connection->tcp, input_on_room, input_on_read) == 0;
    }
}

void http_connection_resume(struct http_connection *connection)
{
    if (connection->state != HTTP_CONNECTION_OPEN || !connection->paused) {
        return;
    }
    connection->paused = false;
    input_consume(connection);
    if (!connection->paused && connection->state == HTTP_CONNECTION_OPEN) {
        http_connection_read(connection);
    }
    http_connection_touch(connection);
}
