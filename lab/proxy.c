/* proxy.c: each connection is a pair of sockets; what the database says waits in line until it is
 * due. */
#include "lab/proxy.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <uv.h>

#include "base/error.h"

#define BACKLOG 512

struct proxy_pair;

/* Bytes on their way; they are written when they are due. */
struct proxy_chunk {
    STAILQ_ENTRY(proxy_chunk) link;
    uv_write_t write; /* data: the chunk */
    uint64_t due_ms;
    size_t length;
    char bytes[];
};

struct proxy_pair {
    uv_tcp_t client, database;
    uv_timer_t timer;
    uv_connect_t connect;
    STAILQ_HEAD(, proxy_chunk) waiting; /* for the client */
    int open_count;                     /* handles */
    bool is_over;
};

static struct {
    uv_loop_t loop;
    uv_tcp_t listener;
    struct sockaddr_in target;
    uint64_t delay_ms;
} proxy;

static void proxy_closed(uv_handle_t *handle)
{
    struct proxy_pair *pair = handle->data;
    if (--pair->open_count > 0)
        return;
    while (!STAILQ_EMPTY(&pair->waiting)) {
        struct proxy_chunk *chunk = STAILQ_FIRST(&pair->waiting);
        STAILQ_REMOVE_HEAD(&pair->waiting, link);
        free(chunk);
    }
    free(pair);
}

static void proxy_end(struct proxy_pair *pair)
{
    if (pair->is_over)
        return;
    pair->is_over = true;
    uv_close((uv_handle_t *)&pair->client, proxy_closed);
    uv_close((uv_handle_t *)&pair->database, proxy_closed);
    uv_close((uv_handle_t *)&pair->timer, proxy_closed);
}

static void proxy_written(uv_write_t *write, int result)
{
    (void)result; /* the reading side hears of a connection that broke */
    free(write->data);
}

static void proxy_send(uv_tcp_t *to, struct proxy_chunk *chunk)
{
    uv_buf_t bytes = uv_buf_init(chunk->bytes, (unsigned)chunk->length);
    chunk->write.data = chunk;
    if (uv_write(&chunk->write, (uv_stream_t *)to, &bytes, 1, proxy_written) != 0)
        free(chunk);
}

static void proxy_let_through(uv_timer_t *timer)
{
    struct proxy_pair *pair = timer->data;
    struct proxy_chunk *chunk;
    uint64_t now_ms = uv_now(&proxy.loop);
    while ((chunk = STAILQ_FIRST(&pair->waiting)) != NULL && chunk->due_ms <= now_ms) {
        STAILQ_REMOVE_HEAD(&pair->waiting, link);
        proxy_send(&pair->client, chunk);
    }
    if (chunk != NULL)
        uv_timer_start(timer, proxy_let_through, chunk->due_ms - now_ms, 0);
}

static void proxy_allocate(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct proxy_chunk *chunk = malloc(sizeof(*chunk) + suggested);
    (void)handle;
    ensure(chunk != NULL);
    *buffer = uv_buf_init(chunk->bytes, (unsigned)suggested);
}

static struct proxy_chunk *proxy_take(struct proxy_pair *pair, ssize_t length, const uv_buf_t *from)
{
    struct proxy_chunk *chunk =
        from->base != NULL
            ? (struct proxy_chunk *)(void *)(from->base - offsetof(struct proxy_chunk, bytes))
            : NULL;
    if (length > 0) {
        chunk->length = (size_t)length;
        return chunk;
    }
    free(chunk);
    if (length < 0)
        proxy_end(pair);
    return NULL;
}

static void proxy_from_client(uv_stream_t *stream, ssize_t length, const uv_buf_t *from)
{
    struct proxy_pair *pair = stream->data;
    struct proxy_chunk *chunk = proxy_take(pair, length, from);
    if (chunk != NULL)
        proxy_send(&pair->database, chunk);
}

static void proxy_from_database(uv_stream_t *stream, ssize_t length, const uv_buf_t *from)
{
    struct proxy_pair *pair = stream->data;
    struct proxy_chunk *chunk = proxy_take(pair, length, from);
    if (chunk == NULL)
        return;
    chunk->due_ms = uv_now(&proxy.loop) + proxy.delay_ms;
    STAILQ_INSERT_TAIL(&pair->waiting, chunk, link);
    if (!uv_is_active((uv_handle_t *)&pair->timer))
        uv_timer_start(&pair->timer, proxy_let_through, proxy.delay_ms, 0);
}

static void proxy_connected(uv_connect_t *connect, int result)
{
    struct proxy_pair *pair = connect->data;
    if (result != 0) {
        proxy_end(pair);
        return;
    }
    uv_tcp_nodelay(&pair->database, 1);
    uv_read_start((uv_stream_t *)&pair->client, proxy_allocate, proxy_from_client);
    uv_read_start((uv_stream_t *)&pair->database, proxy_allocate, proxy_from_database);
}

static void proxy_accept(uv_stream_t *listener, int result)
{
    struct proxy_pair *pair = calloc(1, sizeof(*pair));
    ensure(pair != NULL && result == 0);
    STAILQ_INIT(&pair->waiting);
    uv_tcp_init(&proxy.loop, &pair->client);
    uv_tcp_init(&proxy.loop, &pair->database);
    uv_timer_init(&proxy.loop, &pair->timer);
    pair->open_count = 3;
    pair->client.data = pair->database.data = pair->timer.data = pair->connect.data = pair;
    if (uv_accept(listener, (uv_stream_t *)&pair->client) != 0 ||
        uv_tcp_nodelay(&pair->client, 1) != 0 ||
        uv_tcp_connect(&pair->connect, &pair->database, (const struct sockaddr *)&proxy.target,
                       proxy_connected) != 0)
        proxy_end(pair);
}

int lab_proxy_run(int port, const char *target, int delay_ms)
{
    struct sockaddr_in address;
    char host[64];
    const char *colon = strrchr(target, ':');
    if (colon == NULL)
        return 2;
    snprintf(host, sizeof(host), "%.*s", (int)(colon - target), target);
    proxy.delay_ms = (uint64_t)delay_ms;
    uv_loop_init(&proxy.loop);
    uv_tcp_init(&proxy.loop, &proxy.listener);
    if (uv_ip4_addr(host, atoi(colon + 1), &proxy.target) != 0 ||
        uv_ip4_addr("127.0.0.1", port, &address) != 0 ||
        uv_tcp_bind(&proxy.listener, (const struct sockaddr *)&address, 0) != 0 ||
        uv_listen((uv_stream_t *)&proxy.listener, BACKLOG, proxy_accept) != 0) {
        fprintf(stderr, "dibs-lab proxy: cannot stand between port %d and %s\n", port, target);
        return 1;
    }
    return uv_run(&proxy.loop, UV_RUN_DEFAULT);
}
