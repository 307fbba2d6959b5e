/* output.c: one write per connection and tick, the rest when the client takes it. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "http/connection.h"
#include "http/loop.h"

size_t http_connection_unsent(const struct http_connection *connection)
{
    size_t unsent = connection->out.length + connection->ready_bytes;
    if (connection->blocked != NULL) {
        unsent += uv_stream_get_write_queue_size((const uv_stream_t *)&connection->tcp);
    }
    return unsent;
}

bool http_connection_is_within(const struct http_connection *connection, size_t bytes_max)
{
    size_t held = http_connection_unsent(connection) + connection->expected_bytes;
    return held == 0 || (held <= bytes_max && !http_server_is_full(connection->loop->server));
}

void http_connection_account(struct http_connection *connection)
{
    bool is_open = connection->state < HTTP_CONNECTION_CLOSING;
    size_t held = connection->expected_bytes;
    if (is_open) {
        held += http_connection_unsent(connection) + connection->parser.own_capacity;
    }
    if (held != connection->held_bytes) {
        http_server_hold(connection->loop->server, held, connection->held_bytes);
        connection->held_bytes = held;
    }
}

uint64_t http_connection_taken(const struct http_connection *connection)
{
    int in_kernel = 0;
    (void)ioctl(connection->socket_fd, SIOCOUTQ, &in_kernel);
    return connection->written_bytes -
           uv_stream_get_write_queue_size((const uv_stream_t *)&connection->tcp) -
           (uint64_t)in_kernel;
}

void http_connection_touch(struct http_connection *connection)
{
    if (connection->dirty || connection->state >= HTTP_CONNECTION_CLOSING) {
        return;
    }
    struct http_loop *loop = connection->loop;
    connection->dirty = true;
    connection->next_dirty = NULL;
    *loop->dirty_last = connection;
    loop->dirty_last = &connection->next_dirty;
}

static void output_on_written(uv_write_t *request, int failed)
{
    struct http_blocked_write *blocked = (struct http_blocked_write *)request;
    struct http_connection *connection = blocked->connection;
    struct http_loop *loop = connection->loop;
    connection->blocked = NULL;
    connection->write_check_ms = 0;
    buffer_release(&blocked->bytes);
    free(blocked);
    if (connection->state >= HTTP_CONNECTION_CLOSING) {
        return;
    }
    http_loop_begin_tick(loop);
    http_connection_arm(connection);
    if (failed != 0) {
        http_connection_close(connection);
    } else {
        http_connection_touch(connection);
    }
}

/* The kernel took only `written` bytes: libuv writes the others when it takes more. */
static bool output_block(struct http_connection *connection, size_t written)
{
    struct http_loop *loop = connection->loop;
    struct http_blocked_write *blocked = malloc(sizeof(*blocked));
    if (blocked == NULL) {
        return false;
    }
    blocked->connection = connection;
    blocked->bytes = connection->out;
    buffer_init(&connection->out, HTTP_OUT_BYTES_MAX);
    connection->blocked = blocked;
    uv_buf_t rest =
        uv_buf_init(blocked->bytes.bytes + written, (unsigned)(blocked->bytes.length - written));
    http_count(&loop->counters.bytes_out, rest.len);
    if (uv_write(&blocked->request, (uv_stream_t *)&connection->tcp, &rest, 1, output_on_written) !=
        0) {
        connection->blocked = NULL;
        buffer_release(&blocked->bytes);
        free(blocked);
        return false;
    }
    connection->written_bytes += rest.len;
    connection->taken_bytes = http_connection_taken(connection);
    connection->write_due_ms = loop->now_ms + loop->options->write_timeout_ms;
    connection->write_check_ms = loop->now_ms + loop->options->write_timeout_ms / 8 + 1;
    http_connection_arm(connection);
    return true;
}

/* Not through libuv: it would write(), which raises SIGPIPE and goes a longer way in the kernel. */
static ssize_t output_send(struct http_connection *connection)
{
    ssize_t sent;
    do {
        sent = send(connection->socket_fd, connection->out.bytes, connection->out.length,
                    MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 && errno == EAGAIN ? 0 : sent;
}

static void output_write(struct http_connection *connection)
{
    struct http_loop *loop = connection->loop;
    http_count(&loop->counters.writes, 1);
    ssize_t sent = output_send(connection);
    if (sent < 0) {
        http_connection_close(connection);
        return;
    }
    http_count(&loop->counters.bytes_out, (uint64_t)sent);
    connection->written_bytes += (uint64_t)sent;
    if ((size_t)sent == connection->out.length) {
        http_loop_give_buffer(loop, &connection->out);
    } else if (!output_block(connection, (size_t)sent)) {
        http_connection_abort(connection);
    }
}

/* The client waits for "100 Continue" before it sends the body. It may be told once everything
 * before it is answered. */
static void output_continue(struct http_connection *connection)
{
    if (connection->line_count > 0 || connection->input_ended) {
        return;
    }
    connection->parser.continue_expected = false;
    if (http_parser_phase(&connection->parser) == HTTP_PHASE_BODY) {
        buffer_append_literal(&connection->out, "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

/* Everything that can be written now was: what comes next? */
static void output_settle(struct http_connection *connection)
{
    struct http_loop *loop = connection->loop;
    size_t unsent = http_connection_unsent(connection);
    if (unsent == 0 && connection->ending) {
        http_connection_finish(connection);
        return;
    }
    if (connection->paused) {
        if (connection->line_count <= HTTP_PIPELINE_MAX / 2 &&
            http_connection_is_within(connection, HTTP_UNSENT_LOW)) {
            http_loop_resume_later(loop, connection);
        }
        return;
    }
    if (unsent > 0 || connection->line_count > 0 || connection->phase != HTTP_PHASE_BETWEEN) {
        return;
    }
    if (loop->stop_phase == HTTP_STOP_WINDING_UP) {
        http_connection_close(connection);
        return;
    }
    connection->read_deadline_ms = loop->now_ms + loop->options->idle_timeout_ms;
    loop->deadlines_ms[connection->index] = connection->read_deadline_ms;
}

void http_connection_flush(struct http_connection *connection)
{
    if (connection->state == HTTP_CONNECTION_OPEN) {
        if (connection->given_up || connection->out.overflowed) {
            http_connection_abort(connection);
            return;
        }
        if (connection->parser.continue_expected) {
            output_continue(connection);
        }
        if (connection->out.length > 0 && connection->blocked == NULL) {
            output_write(connection);
        }
    }
    if (connection->state == HTTP_CONNECTION_OPEN) {
        output_settle(connection);
    }
    http_connection_account(connection);
}
