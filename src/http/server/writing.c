/* writing.c: what leaves a connection: one send a tick of what is small, large answers piece by
 * piece when it is their turn, and what the kernel did not take when the client takes more. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "http/server/loop.h"

/* What is large, and how much of it leaves at once: a tenth of a millisecond's work in the kernel.
 */
#define LARGE_BYTES ((size_t)16 * 1024)
#define PIECE_BYTES ((size_t)64 * 1024)
/* A client that takes less than this is cut off: as a rule, and while the server is full. */
#define RATE_MIN_PER_S      4096
#define RATE_MIN_FULL_PER_S (16 * 1024)

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* --- what is unsent --- */

static size_t rest_length(const struct http_rest *rest)
{
    return rest->bytes.length - rest->at;
}

size_t http_connection_unsent(const struct http_connection *connection)
{
    size_t unsent = connection->out.length + connection->ready_bytes;
    if (connection->rest != NULL)
        unsent += rest_length(connection->rest) +
                  uv_stream_get_write_queue_size((const uv_stream_t *)&connection->tcp);
    return unsent;
}

/* The bytes that the client has acknowledged. */
static uint64_t connection_taken(const struct http_connection *connection)
{
    int in_kernel = 0;
    (void)ioctl(connection->socket_fd, SIOCOUTQ, &in_kernel);
    return connection->written_bytes -
           uv_stream_get_write_queue_size((const uv_stream_t *)&connection->tcp) -
           (uint64_t)in_kernel;
}

/* What the client takes buys it time, up to the timeout: one that stops is cut off after that, and
 * one that takes less than the least rate when the time it had is used up. What it has taken is
 * asked of the kernel, which by itself asks for more only when a third of its buffer is free. */
bool http_connection_takes_enough(struct http_connection *connection, int64_t now_ms)
{
    const struct http_loop *loop = connection->loop;
    int64_t timeout_ms = loop->options->write_timeout_ms;
    int64_t rate_per_s = http_server_is_full(loop->server) ? RATE_MIN_FULL_PER_S : RATE_MIN_PER_S;
    uint64_t taken = connection_taken(connection);
    int64_t bought_ms = (int64_t)((taken - connection->taken_bytes) * 1000) / rate_per_s;
    connection->taken_bytes = taken;
    connection->write_due_ms = earlier(connection->write_due_ms + bought_ms, now_ms + timeout_ms);
    connection->write_check_ms = now_ms + timeout_ms / 8 + 1;
    http_connection_account(connection);
    return now_ms < connection->write_due_ms;
}

/* --- the rest --- */

/* `out` becomes the rest, of which so much was sent. */
static bool rest_begin(struct http_connection *connection, size_t sent)
{
    struct http_rest *rest = malloc(sizeof(*rest));
    if (rest == NULL)
        return false;
    *rest = (struct http_rest){.bytes = connection->out,
                               .at = sent,
                               .left_ms = connection->loop->options->write_timeout_ms};
    buffer_init(&connection->out, HTTP_OUT_BYTES_MAX);
    connection->rest = rest;
    connection->taken_bytes = connection_taken(connection);
    return true;
}

static void rest_free(struct http_connection *connection)
{
    buffer_release(&connection->rest->bytes);
    free(connection->rest);
    connection->rest = NULL;
}

void http_connection_drop_unsent(struct http_connection *connection)
{
    http_buffer_give(connection->loop, &connection->out);
    /* What libuv has comes back when the handle is closed. */
    if (connection->rest != NULL && !connection->rest->is_awaited)
        rest_free(connection);
}

/* All that it had to send now is with the kernel. */
static void rest_go_on(struct http_connection *connection)
{
    if (rest_length(connection->rest) > 0) {
        http_loop_queue(connection->loop, connection);
        return;
    }
    rest_free(connection);
    http_connection_touch(connection);
}

static void rest_on_written(uv_write_t *request, int failed)
{
    struct http_connection *connection = (struct http_connection *)request->handle;
    connection->rest->is_awaited = false;
    if (connection->state >= HTTP_CONNECTION_CLOSING) {
        rest_free(connection);
        return;
    }
    http_loop_begin_tick(connection->loop);
    int64_t now_ms = connection->loop->now_ms;
    (void)http_connection_takes_enough(connection, now_ms);
    connection->rest->left_ms = connection->write_due_ms - now_ms;
    connection->write_check_ms = NEVER_MS;
    http_connection_arm(connection);
    if (failed != 0)
        http_connection_close(connection);
    else
        rest_go_on(connection);
}

/* The kernel takes no more now: libuv writes the next `length` bytes when it does. The time that
 * the client has for it is not spent while others have their turn. */
static bool rest_await(struct http_connection *connection, size_t length)
{
    struct http_loop *loop = connection->loop;
    struct http_rest *rest = connection->rest;
    int64_t timeout_ms = loop->options->write_timeout_ms;
    uv_buf_t bytes = uv_buf_init(rest->bytes.bytes + rest->at, (unsigned)length);
    if (uv_write(&rest->request, (uv_stream_t *)&connection->tcp, &bytes, 1, rest_on_written) != 0)
        return false;
    rest->is_awaited = true;
    counter_add(&loop->counters.bytes_out, length);
    rest->at += length;
    connection->written_bytes += length;
    connection->write_due_ms = loop->now_ms + rest->left_ms;
    connection->write_check_ms = loop->now_ms + timeout_ms / 8 + 1;
    http_connection_arm(connection);
    return true;
}

/* --- sending --- */

/* Not through libuv: it would write(), which raises SIGPIPE and goes a longer way in the kernel.
 * False: the connection is broken, and closed. */
static bool connection_send(struct http_connection *connection, const char *bytes, size_t length,
                            size_t *written)
{
    struct http_loop *loop = connection->loop;
    ssize_t sent;
    counter_add(&loop->counters.writes, 1);
    do {
        sent = send(connection->socket_fd, bytes, length, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN) {
        http_connection_close(connection);
        return false;
    }
    *written = sent > 0 ? (size_t)sent : 0;
    counter_add(&loop->counters.bytes_out, *written);
    connection->written_bytes += *written;
    return true;
}

void http_connection_write(struct http_connection *connection)
{
    struct buffer *out = &connection->out;
    bool is_large = out->length >= LARGE_BYTES;
    size_t written = 0;
    if (!is_large && !connection_send(connection, out->bytes, out->length, &written))
        return;
    if (written == out->length)
        http_buffer_give(connection->loop, out);
    else if (!rest_begin(connection, written))
        http_connection_abort(connection);
    else if (is_large)
        http_loop_queue(connection->loop, connection);
    else if (!rest_await(connection, rest_length(connection->rest)))
        http_connection_abort(connection);
}

size_t http_connection_write_piece(struct http_connection *connection)
{
    struct http_rest *rest = connection->rest;
    if (rest == NULL)
        return 0;
    size_t length = rest_length(rest) < PIECE_BYTES ? rest_length(rest) : PIECE_BYTES;
    size_t written;
    if (!connection_send(connection, rest->bytes.bytes + rest->at, length, &written))
        return 0;
    rest->at += written;
    if (written == length)
        rest_go_on(connection);
    else if (!rest_await(connection, length - written))
        http_connection_abort(connection);
    http_connection_account(connection);
    return length;
}
