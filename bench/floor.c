/* floor.c: the cheapest honest HTTP server on libuv and llhttp, to compare dibs with.
 *
 * One thread, one loop, the parser that dibs uses. Every request is parsed to its end, with its
 * parts noted as a server must that wants to route it, and answered from the read callback with a
 * constant reply of a given size. What dibs needs beyond this is what dibs costs.
 */
#include <llhttp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define READ_SIZE         65536
#define REPLY_SIZE_MAX    65536
#define REPLIES_PER_WRITE 64
#define HEADERS_MAX       64

struct slice {
    const char *bytes;
    size_t length;
};

/* What a handler would be given. The slices point into the read buffer. */
struct request {
    struct slice url;
    struct slice body;
    struct slice names[HEADERS_MAX];
    struct slice values[HEADERS_MAX];
    size_t header_count;
};

struct connection {
    uv_tcp_t tcp;
    llhttp_t parser;
    struct request request;
    size_t replies_due;
    bool last; /* the client asked for "Connection: close" */
};

/* A write that the socket did not take at once. */
struct late_write {
    uv_write_t write;
    bool last;
    char bytes[];
};

static struct {
    uv_loop_t loop;
    uv_tcp_t listener;
    uv_signal_t signals[2];
    llhttp_settings_t settings;
    char read[READ_SIZE];
    char *replies; /* the reply, REPLIES_PER_WRITE times */
    size_t reply_size;
} floor_server;

static int floor_message_begin(llhttp_t *parser)
{
    struct connection *connection = parser->data;
    connection->request.header_count = 0;
    connection->request.body.length = 0;
    return 0;
}

static int floor_url(llhttp_t *parser, const char *at, size_t length)
{
    struct connection *connection = parser->data;
    connection->request.url = (struct slice){at, length};
    return 0;
}

static int floor_header_field(llhttp_t *parser, const char *at, size_t length)
{
    struct request *request = &((struct connection *)parser->data)->request;
    if (request->header_count == HEADERS_MAX)
        return -1;
    request->names[request->header_count++] = (struct slice){at, length};
    return 0;
}

static int floor_header_value(llhttp_t *parser, const char *at, size_t length)
{
    struct request *request = &((struct connection *)parser->data)->request;
    if (request->header_count > 0)
        request->values[request->header_count - 1] = (struct slice){at, length};
    return 0;
}

static int floor_body(llhttp_t *parser, const char *at, size_t length)
{
    struct connection *connection = parser->data;
    connection->request.body = (struct slice){at, length};
    return 0;
}

static int floor_message_complete(llhttp_t *parser)
{
    struct connection *connection = parser->data;
    connection->replies_due++;
    if (!llhttp_should_keep_alive(parser))
        connection->last = true;
    return 0;
}

static void floor_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void floor_close(struct connection *connection)
{
    if (!uv_is_closing((uv_handle_t *)&connection->tcp))
        uv_close((uv_handle_t *)&connection->tcp, floor_closed);
}

static void floor_written(uv_write_t *write, int result)
{
    struct late_write *late = (struct late_write *)write;
    struct connection *connection = write->handle->data;
    if (result != 0 || late->last)
        floor_close(connection);
    free(late);
}

/* Hands the rest of a write to libuv, which waits until the socket takes it. */
static void floor_write_late(struct connection *connection, size_t sent, size_t length)
{
    struct late_write *late = malloc(sizeof(*late) + length - sent);
    if (late == NULL) {
        floor_close(connection);
        return;
    }
    late->last = connection->last;
    memcpy(late->bytes, floor_server.replies + sent, length - sent);
    uv_buf_t buffer = uv_buf_init(late->bytes, (unsigned)(length - sent));
    if (uv_write(&late->write, (uv_stream_t *)&connection->tcp, &buffer, 1, floor_written) != 0) {
        free(late);
        floor_close(connection);
    }
}

static void floor_answer(struct connection *connection)
{
    while (connection->replies_due > 0) {
        size_t count = connection->replies_due;
        if (count > REPLIES_PER_WRITE)
            count = REPLIES_PER_WRITE;
        connection->replies_due -= count;
        size_t length = count * floor_server.reply_size;
        uv_buf_t buffer = uv_buf_init(floor_server.replies, (unsigned)length);
        int sent = uv_try_write((uv_stream_t *)&connection->tcp, &buffer, 1);
        if (sent == (int)length)
            continue;
        if (sent < 0 && sent != UV_EAGAIN) {
            floor_close(connection);
            return;
        }
        floor_write_late(connection, sent < 0 ? 0 : (size_t)sent, length);
    }
    if (connection->last && uv_stream_get_write_queue_size((uv_stream_t *)&connection->tcp) == 0)
        floor_close(connection);
}

static void floor_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    (void)handle;
    (void)suggested;
    *buffer = uv_buf_init(floor_server.read, sizeof(floor_server.read));
}

static void floor_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
    struct connection *connection = stream->data;
    if (length == 0)
        return;
    if (length < 0 || llhttp_execute(&connection->parser, buffer->base, (size_t)length) != HPE_OK) {
        floor_close(connection);
        return;
    }
    floor_answer(connection);
}

static void floor_accept(uv_stream_t *listener, int result)
{
    if (result != 0)
        return;
    struct connection *connection = calloc(1, sizeof(*connection));
    if (connection == NULL)
        return;
    uv_tcp_init(listener->loop, &connection->tcp);
    connection->tcp.data = connection;
    if (uv_accept(listener, (uv_stream_t *)&connection->tcp) != 0) {
        floor_close(connection);
        return;
    }
    uv_tcp_nodelay(&connection->tcp, 1);
    llhttp_init(&connection->parser, HTTP_REQUEST, &floor_server.settings);
    connection->parser.data = connection;
    uv_read_start((uv_stream_t *)&connection->tcp, floor_allocate, floor_read);
}

static void floor_stop(uv_signal_t *signal, int number)
{
    (void)number;
    uv_stop(signal->loop);
}

/* Fills the reply up to its size with a body of blanks. False when the size is too small. The
 * length has leading zeros, so that the head's size does not depend on the body's. */
static bool floor_make_replies(size_t size)
{
    static const char format[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                 "Content-Length: %05zu\r\n\r\n";
    char head[160];
    size_t head_length = (size_t)snprintf(head, sizeof(head), format, (size_t)0);
    if (size < head_length)
        return false;
    snprintf(head, sizeof(head), format, size - head_length);
    char *replies = malloc(size * REPLIES_PER_WRITE);
    if (replies == NULL)
        return false;
    memset(replies, ' ', size * REPLIES_PER_WRITE);
    for (size_t i = 0; i < REPLIES_PER_WRITE; i++)
        memcpy(replies + i * size, head, head_length);
    floor_server.replies = replies;
    floor_server.reply_size = size;
    return true;
}

static int floor_listen(void)
{
    struct sockaddr_in address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(&floor_server.loop, &floor_server.listener);
    int result = uv_tcp_bind(&floor_server.listener, (struct sockaddr *)&address, 0);
    if (result == 0)
        result = uv_listen((uv_stream_t *)&floor_server.listener, 1024, floor_accept);
    int length = sizeof(address);
    if (result == 0)
        result = uv_tcp_getsockname(&floor_server.listener, (struct sockaddr *)&address, &length);
    if (result == 0)
        fprintf(stderr, "event=listening address=127.0.0.1:%d\n", ntohs(address.sin_port));
    return result;
}

int main(int argc, char **argv)
{
    size_t size = argc == 2 ? strtoul(argv[1], NULL, 10) : 0;
    if (size == 0 || size > REPLY_SIZE_MAX || !floor_make_replies(size)) {
        fprintf(stderr, "usage: floor REPLY_BYTES   (head and body, 100 to %d)\n", REPLY_SIZE_MAX);
        return 2;
    }
    llhttp_settings_init(&floor_server.settings);
    floor_server.settings.on_message_begin = floor_message_begin;
    floor_server.settings.on_url = floor_url;
    floor_server.settings.on_header_field = floor_header_field;
    floor_server.settings.on_header_value = floor_header_value;
    floor_server.settings.on_body = floor_body;
    floor_server.settings.on_message_complete = floor_message_complete;

    uv_loop_init(&floor_server.loop);
    const int numbers[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < 2; i++) {
        uv_signal_init(&floor_server.loop, &floor_server.signals[i]);
        uv_signal_start(&floor_server.signals[i], floor_stop, numbers[i]);
    }
    int result = floor_listen();
    if (result != 0) {
        fprintf(stderr, "floor: cannot listen: %s\n", uv_strerror(result));
        return 1;
    }
    uv_run(&floor_server.loop, UV_RUN_DEFAULT);
    return 0;
}
