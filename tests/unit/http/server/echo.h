/* echo.h: a server with a few simple paths, in this process, and clients with plain sockets.
 *
 * One loop unless told otherwise, so that a round trip on one connection means that everything
 * other connections had sent before was read. Paths:
 *   /echo     answers "METHOD path?query body" at once       /none     204
 *   /tick     the same in on_tick                             /close    the same, then closes
 *   /hold     the same once someone asks for /release (which answers the last one first)
 *   /gone     how many of the held ones have lost their client
 *   /big?N    N bytes                                         /forge    a header with a line end
 *   /work     the same, but keeps the loop for 2 ms and until `worked` is set
 *   /count    how many were handled
 *   /stream   a stream; /push writes "piece" to all of them, /flood 64 KiB; /finish ends them
 */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "http/server/server.h"

#define HELD_MAX    4096
#define CLIENTS_MAX 128
#ifndef TIMEOUT_MS
#define TIMEOUT_MS 60000 /* no answer within this is a failure, however slow the machine */
#endif

struct echo_loop {
    struct echo *echo;
    struct http_loop *loop;
    struct http_exchange *held[HELD_MAX];
    size_t held_count;
    struct http_exchange *ticking[HELD_MAX];
    char ticking_text[HELD_MAX][64];
    size_t ticking_count;
    char held_text[HELD_MAX][64];
    struct http_exchange *streams[16];
    size_t stream_count;
    uint64_t accepted; /* when the last tick ended */
};

struct echo {
    struct http_server *server;
    struct http_options options;
    pthread_t thread;
    bool running;
    enum status result;
    int clients[CLIENTS_MAX]; /* their sockets that are open */
    size_t client_count;
    _Atomic(struct http_loop *) loop; /* the first */
    _Atomic(struct echo_loop *) context;
    atomic_int loops_open;
    atomic_int gone_count;
    atomic_int handled_count;
    atomic_bool worked;
    _Atomic uint64_t accepted_most; /* connections in one tick of the first loop */
    atomic_int refused_first; /* the last byte of the address that was refused first; 0: none */
};

/* --- the server --- */

static inline void echo_answer(struct http_exchange *exchange, const char *text)
{
    http_answer_begin(exchange, 200, SPAN("text/plain"));
    http_answer_end(exchange, span_of(text));
}

static inline void echo_describe(const struct http_request *request, char *text, size_t size)
{
    static const char *const methods[] = {"OTHER", "GET",   "HEAD",   "POST",
                                          "PUT",   "PATCH", "DELETE", "OPTIONS"};
    snprintf(text, size, "%s %.*s?%.*s %.*s", methods[request->method], (int)request->path.length,
             request->path.bytes, (int)request->query.length, request->query.bytes,
             (int)request->body.length, request->body.bytes);
}

static inline void echo_release_held(struct echo_loop *context)
{
    while (context->held_count > 0) {
        size_t last = --context->held_count;
        echo_answer(context->held[last], context->held_text[last]);
    }
}

static inline void echo_on_gone(void *argument)
{
    struct echo_loop *context = argument;
    atomic_fetch_add(&context->echo->gone_count, 1);
    context->stream_count = 0; /* Tests with more than one stream do not push after a loss. */
}

static inline void echo_handle_stream(struct echo_loop *context, struct http_exchange *exchange,
                                      struct span path)
{
    static char flood[65536];
    if (span_equal(path, SPAN("/stream"))) {
        context->streams[context->stream_count++] = exchange;
        http_answer_begin(exchange, 200, SPAN("text/event-stream"));
        http_stream_start(exchange, echo_on_gone, context);
        return;
    }
    for (size_t i = 0; i < context->stream_count; i++) {
        if (span_equal(path, SPAN("/push"))) {
            http_stream_write(context->streams[i], SPAN("piece"));
        } else if (span_equal(path, SPAN("/flood"))) {
            memset(flood, 'f', sizeof(flood));
            http_stream_write(context->streams[i], (struct span){flood, sizeof(flood)});
        } else {
            http_stream_end(context->streams[i]);
        }
    }
    if (span_equal(path, SPAN("/finish")))
        context->stream_count = 0;
    echo_answer(exchange, "done");
}

static inline void echo_handle_held(struct echo_loop *context, struct http_exchange *exchange,
                                    struct span path, const char *text)
{
    if (span_equal(path, SPAN("/hold"))) {
        assert_true(context->held_count < HELD_MAX);
        snprintf(context->held_text[context->held_count], 64, "%s", text);
        context->held[context->held_count++] = exchange;
    } else if (span_equal(path, SPAN("/release"))) {
        echo_release_held(context);
        echo_answer(exchange, text);
    } else {
        int gone = 0;
        for (size_t i = 0; i < context->held_count; i++)
            gone += http_exchange_gone(context->held[i]);
        char number[16];
        snprintf(number, sizeof(number), "%d", gone);
        echo_answer(exchange, number);
    }
}

static inline void echo_handle(void *loop_context, struct http_exchange *exchange,
                               const struct http_request *request)
{
    struct echo_loop *context = loop_context;
    struct span path = request->path;
    char text[256];
    echo_describe(request, text, sizeof(text));
    atomic_fetch_add(&context->echo->handled_count, 1);
    if (span_equal(path, SPAN("/tick"))) {
        assert_true(context->ticking_count < HELD_MAX);
        snprintf(context->ticking_text[context->ticking_count], 64, "%s", text);
        context->ticking[context->ticking_count++] = exchange;
    } else if (span_equal(path, SPAN("/hold")) || span_equal(path, SPAN("/release")) ||
               span_equal(path, SPAN("/gone"))) {
        echo_handle_held(context, exchange, path, text);
    } else if (span_equal(path, SPAN("/stream")) || span_equal(path, SPAN("/push")) ||
               span_equal(path, SPAN("/flood")) || span_equal(path, SPAN("/finish"))) {
        echo_handle_stream(context, exchange, path);
    } else if (span_equal(path, SPAN("/work"))) {
        do {
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        } while (!atomic_load(&context->echo->worked));
        echo_answer(exchange, text);
    } else if (span_equal(path, SPAN("/count"))) {
        snprintf(text, sizeof(text), "%d", atomic_load(&context->echo->handled_count));
        echo_answer(exchange, text);
    } else if (span_equal(path, SPAN("/none"))) {
        http_answer_begin(exchange, 204, (struct span){NULL, 0});
        http_answer_end(exchange, SPAN("not to be seen"));
    } else if (span_equal(path, SPAN("/close"))) {
        http_answer_begin(exchange, 200, SPAN("text/plain"));
        http_answer_close(exchange);
        http_answer_end(exchange, span_of(text));
    } else if (span_equal(path, SPAN("/forge"))) {
        http_answer_begin(exchange, 200, SPAN("text/plain"));
        http_answer_header(exchange, SPAN("Location"), SPAN("a\r\nForged: b"));
        http_answer_header(exchange, SPAN("Link"), SPAN("a longer one\n"));
        http_answer_end(exchange, SPAN(""));
    } else if (span_equal(path, SPAN("/big"))) {
        size_t length = strtoul(request->query.bytes, NULL, 10);
        char *bytes = malloc(length);
        memset(bytes, 'b', length);
        http_answer_begin(exchange, 200, SPAN("text/plain"));
        http_answer_end(exchange, (struct span){bytes, length});
        free(bytes);
    } else {
        echo_answer(exchange, text);
    }
}

static inline void echo_refuse(void *loop_context, struct http_exchange *exchange,
                               enum http_refusal refusal, const char *detail)
{
    static const int statuses[] = {400, 408, 413, 414, 431, 501, 503, 505};
    struct echo_loop *context = loop_context;
    int none = 0;
    atomic_compare_exchange_strong(&context->echo->refused_first, &none,
                                   http_exchange_peer(exchange)->bytes[15]);
    http_answer_begin(exchange, statuses[refusal], SPAN("text/plain"));
    http_answer_end(exchange, span_of(detail));
}

static inline size_t echo_body_max(void *loop_context, enum http_method method, struct span path)
{
    (void)loop_context;
    (void)method;
    return span_equal(path, SPAN("/tiny")) ? 4 : HTTP_BODY_MAX;
}

static inline void echo_on_tick(void *loop_context, int64_t wall_ms)
{
    struct echo_loop *context = loop_context;
    struct echo *echo = context->echo;
    (void)wall_ms;
    if (context == atomic_load(&echo->context)) {
        uint64_t accepted =
            atomic_load(&http_server_counters(echo->server, 0)->connections_accepted);
        if (accepted - context->accepted > atomic_load(&echo->accepted_most))
            atomic_store(&echo->accepted_most, accepted - context->accepted);
        context->accepted = accepted;
    }
    for (size_t i = 0; i < context->ticking_count; i++)
        echo_answer(context->ticking[i], context->ticking_text[i]);
    context->ticking_count = 0;
}

static inline enum status echo_loop_open(void *server_context, struct http_loop *loop,
                                         unsigned index, void **loop_context, struct error *error)
{
    (void)error;
    struct echo *echo = server_context;
    struct echo_loop *context = calloc(1, sizeof(*context));
    assert_non_null(context);
    context->echo = echo;
    context->loop = loop;
    *loop_context = context;
    if (index == 0) {
        atomic_store(&echo->context, context);
        atomic_store(&echo->loop, loop);
    }
    atomic_fetch_add(&echo->loops_open, 1);
    return STATUS_OK;
}

static inline void echo_loop_close(void *loop_context)
{
    struct echo_loop *context = loop_context;
    atomic_fetch_sub(&context->echo->loops_open, 1);
    free(context);
}

static inline void *echo_thread(void *argument)
{
    struct echo *echo = argument;
    struct error error;
    echo->result = http_server_run(echo->server, &error);
    return NULL;
}

/* Timeouts that outlast every patience: a test that waits for one sets it. */
static inline void echo_init(struct echo *echo)
{
    memset(echo, 0, sizeof(*echo));
    echo->options = (struct http_options){
        .listen = "127.0.0.1:0",
        .threads = 1,
        .header_timeout_ms = INT64_C(10) * TIMEOUT_MS,
        .body_timeout_ms = INT64_C(10) * TIMEOUT_MS,
        .idle_timeout_ms = INT64_C(10) * TIMEOUT_MS,
        .write_timeout_ms = INT64_C(10) * TIMEOUT_MS,
        .stop_timeout_ms = INT64_C(10) * TIMEOUT_MS,
        .callbacks = {.handle = echo_handle,
                      .refuse = echo_refuse,
                      .body_max = echo_body_max,
                      .on_tick = echo_on_tick,
                      .loop_open = echo_loop_open,
                      .loop_close = echo_loop_close},
        .server_context = echo,
    };
}

static inline void echo_pause(void)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    nanosleep(&moment, NULL);
}

/* Waits for a condition that another thread makes true. */
#define echo_await(condition)                                  \
    do {                                                       \
        int64_t until_ms_ = clock_monotonic_ms() + TIMEOUT_MS; \
        while (!(condition)) {                                 \
            assert_true(clock_monotonic_ms() < until_ms_);     \
            echo_pause();                                      \
        }                                                      \
    } while (0)

static inline void echo_start(struct echo *echo)
{
    struct error error = {""};
    if (http_server_open(&echo->server, &echo->options, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(pthread_create(&echo->thread, NULL, echo_thread, echo), 0);
    echo->running = true;
    echo_await(atomic_load(&echo->loops_open) == (int)echo->options.threads);
}

static inline void echo_join(struct echo *echo)
{
    assert_int_equal(pthread_join(echo->thread, NULL), 0);
    echo->running = false;
    assert_int_equal(echo->result, STATUS_OK);
    assert_int_equal(atomic_load(&echo->loops_open), 0);
    http_server_close(echo->server);
}

static inline void echo_stop(struct echo *echo)
{
    http_server_stop(echo->server);
    echo_join(echo);
}

/* Answers what is held, on its loop. */
struct echo_release {
    struct http_task task;
    struct echo *echo;
};

static inline void echo_run_release(struct http_task *task)
{
    echo_release_held(atomic_load(&((struct echo_release *)task)->echo->context));
}

static inline void echo_release(struct echo *echo, struct echo_release *release)
{
    *release = (struct echo_release){.task.run = echo_run_release, .echo = echo};
    (void)http_loop_post(atomic_load(&echo->loop), &release->task);
}

/* --- the fixture: a server, and clients that are closed with it --- */

static inline int echo_set_up(void **state)
{
    struct echo *echo = malloc(sizeof(*echo));
    assert_non_null(echo);
    echo_init(echo);
    *state = echo;
    return 0;
}

static inline int echo_set_up_started(void **state)
{
    echo_set_up(state);
    echo_start(*state);
    return 0;
}

static inline int echo_tear_down(void **state)
{
    struct echo *echo = *state;
    struct echo_release release;
    while (echo->client_count > 0)
        close(echo->clients[--echo->client_count]);
    if (echo->running) {
        echo_release(echo, &release); /* What a test that failed has left behind. */
        echo_stop(echo);
    }
    free(echo);
    return 0;
}

#define echo_test(test) cmocka_unit_test_setup_teardown(test, echo_set_up_started, echo_tear_down)

/* For a test that sets options, and then calls echo_start(). */
#define echo_test_unstarted(test) cmocka_unit_test_setup_teardown(test, echo_set_up, echo_tear_down)

static inline uint64_t echo_counter(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static inline const struct http_counters *echo_counters(const struct echo *echo)
{
    return http_server_counters(echo->server, 0);
}

/* --- clients --- */

static inline int client_socket(struct echo *echo)
{
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = TIMEOUT_MS / 1000};
    assert_true(client >= 0);
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    assert_true(echo->client_count < CLIENTS_MAX);
    echo->clients[echo->client_count++] = client;
    return client;
}

static inline void client_close(struct echo *echo, int client)
{
    size_t place = 0;
    while (echo->clients[place] != client)
        place++;
    echo->clients[place] = echo->clients[--echo->client_count];
    close(client);
}

static inline int client_try_connect(int client, const struct echo *echo)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *port = strrchr(http_server_address(echo->server), ':') + 1;
    where.sin_port = htons((uint16_t)strtoul(port, NULL, 10));
    return connect(client, (struct sockaddr *)&where, sizeof(where));
}

static inline int client_connect(struct echo *echo)
{
    int client = client_socket(echo);
    assert_int_equal(client_try_connect(client, echo), 0);
    return client;
}

/* One for whom the kernel holds little that it has not read. */
static inline int client_connect_small(struct echo *echo, int bytes)
{
    int client = client_socket(echo);
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)), 0);
    assert_int_equal(client_try_connect(client, echo), 0);
    return client;
}

static inline void client_send_bytes(int client, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(client, bytes, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        assert_true(sent > 0);
        bytes += sent;
        length -= (size_t)sent;
    }
}

static inline void client_send(int client, const char *text)
{
    client_send_bytes(client, text, strlen(text));
}

static inline void client_get(int client, const char *target)
{
    char text[4096];
    snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", target);
    client_send(client, text);
}

/* recv() that goes on after a signal. A socket with a timeout is not restarted by the kernel, and
 * newer versions of libuv wake threads in ways that interrupt it. */
static inline ssize_t client_receive(int client, void *bytes, size_t length)
{
    ssize_t got;
    do {
        got = recv(client, bytes, length, 0);
    } while (got < 0 && errno == EINTR);
    return got;
}

struct response {
    int status;
    char head[4096]; /* with the status line, without the empty line */
    char *body;
    size_t body_length;
};

/* Reads exactly one byte run up to and with `mark`. */
static inline void client_read_until(int client, const char *mark, char *text, size_t size)
{
    size_t length = 0;
    while (length < strlen(mark) || memcmp(text + length - strlen(mark), mark, strlen(mark)) != 0) {
        assert_true(length + 1 < size);
        ssize_t got = client_receive(client, text + length, 1);
        if (got <= 0)
            fail_msg("the connection ended after '%.*s'", (int)length, text);
        length++;
        text[length] = '\0';
    }
}

static inline void client_read_exactly(int client, char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t got = client_receive(client, bytes, length);
        assert_true(got > 0);
        bytes += got;
        length -= (size_t)got;
    }
}

/* Reads one answer's head, and its body as Content-Length says. */
static inline void client_read_head(int client, struct response *response)
{
    memset(response, 0, sizeof(*response));
    client_read_until(client, "\r\n\r\n", response->head, sizeof(response->head));
    assert_int_equal(sscanf(response->head, "HTTP/1.1 %d ", &response->status), 1);
}

static inline void client_read(int client, struct response *response)
{
    client_read_head(client, response);
    const char *length = strstr(response->head, "\r\nContent-Length: ");
    if (length != NULL)
        response->body_length = strtoul(length + 18, NULL, 10);
    response->body = calloc(1, response->body_length + 1);
    assert_non_null(response->body);
    client_read_exactly(client, response->body, response->body_length);
}

static inline void response_release(struct response *response)
{
    free(response->body);
    response->body = NULL;
}

/* The next answer has to be 200 with this body. */
static inline void client_expect(int client, const char *body)
{
    struct response response;
    client_read(client, &response);
    assert_int_equal(response.status, 200);
    assert_string_equal(response.body, body);
    response_release(&response);
}

static inline void client_expect_status(int client, int status)
{
    struct response response;
    client_read(client, &response);
    assert_int_equal(response.status, status);
    response_release(&response);
}

/* The other side has closed, and properly: not by resetting the connection. */
static inline void client_expect_end(int client)
{
    char byte;
    ssize_t got = client_receive(client, &byte, 1);
    if (got != 0)
        fail_msg("expected the end, got %zd (%s)", got, got < 0 ? strerror(errno) : "data");
}

/* A round trip. */
static inline void client_echo(int client)
{
    client_get(client, "/echo");
    client_expect(client, "GET /echo? ");
}

/* Round trips on a connection of its own: afterwards the loop has read and handled everything that
 * was sent before. */
static inline void echo_settle(struct echo *echo)
{
    int client = client_connect(echo);
    for (int i = 0; i < 4; i++)
        client_echo(client);
    client_close(echo, client);
}

/* The same, where a client has sent several requests at once: those behind its first wait for their
 * share of the loop's time. */
static inline void echo_settle_handled(struct echo *echo, int count)
{
    echo_await(atomic_load(&echo->handled_count) >= count);
    echo_settle(echo);
}

/* Asks for a path on a connection of its own. */
static inline void echo_ask(struct echo *echo, const char *target, const char *body)
{
    int client = client_connect(echo);
    client_get(client, target);
    client_expect(client, body);
    client_close(echo, client);
}
