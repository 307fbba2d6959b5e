/* server.c: opens the listeners, runs one thread per loop, stops them together. */
#include "http/server.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "http/loop.h"
#include "http/per_address.h"

#define THREADS_MAX  256
#define ADDRESS_SIZE 80
/* File descriptors that connections may not take: databases, logs, listeners, the loops' own. */
#define FD_MARGIN 256

struct http_server {
    struct http_options options;
    struct http_loop **loops;
    pthread_t *threads;
    char address[ADDRESS_SIZE];
    size_t connections_max;
    atomic_size_t connection_count;
    atomic_size_t held_bytes;
    struct per_address *per_address;
    atomic_bool stopping;
    pthread_mutex_t failure_lock;
    enum status failure;
    struct error failure_words;
};

/* --- opening --- */

/* As many connections as file descriptors allow, or as were asked for if that is less. */
static size_t server_connections_max(size_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        limit.rlim_cur = 1024;
    } else if (limit.rlim_cur < limit.rlim_max) {
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
            limit.rlim_cur = before;
        }
    }
    size_t files = limit.rlim_cur == RLIM_INFINITY ? 1U << 20 : (size_t)limit.rlim_cur;
    size_t margin = files / 4 < FD_MARGIN ? files / 4 : FD_MARGIN;
    size_t allowed = files - margin;
    return wanted == 0 || wanted > allowed ? allowed : wanted;
}

static bool callbacks_are_complete(const struct http_callbacks *callbacks)
{
    return callbacks->handle != NULL && callbacks->refuse != NULL && callbacks->body_max != NULL &&
           callbacks->on_tick != NULL && callbacks->loop_open != NULL &&
           callbacks->loop_close != NULL;
}

static struct http_server *server_new(const struct http_options *options)
{
    struct http_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return NULL;
    }
    server->loops = calloc(options->threads, sizeof(*server->loops));
    server->threads = calloc(options->threads, sizeof(*server->threads));
    server->per_address = per_address_new(options->connections_per_address);
    if (server->loops == NULL || server->threads == NULL || server->per_address == NULL) {
        per_address_free(server->per_address);
        free(server->loops);
        free(server->threads);
        free(server);
        return NULL;
    }
    server->options = *options;
    server->connections_max = server_connections_max(options->connections_max);
    pthread_mutex_init(&server->failure_lock, NULL);
    return server;
}

static enum status server_open_loops(struct http_server *server, int *sockets, struct error *error)
{
    for (unsigned i = 0; i < server->options.threads; i++) {
        struct http_loop *loop = calloc(1, sizeof(*loop));
        if (loop == NULL) {
            return error_set(error, STATUS_FAILED, "out of memory");
        }
        enum status status = http_loop_init(loop, server, &server->options, i, sockets[i], error);
        if (status != STATUS_OK) {
            free(loop);
            return status;
        }
        sockets[i] = -1;
        server->loops[i] = loop;
    }
    return STATUS_OK;
}

enum status http_server_open(struct http_server **server, const struct http_options *options,
                             struct error *error)
{
    *server = NULL;
    ensure(callbacks_are_complete(&options->callbacks));
    if (options->threads < 1 || options->threads > THREADS_MAX) {
        return error_set(error, STATUS_INVALID, "threads: 1 to %d", THREADS_MAX);
    }
    int sockets[THREADS_MAX];
    struct http_server *opened = server_new(options);
    if (opened == NULL) {
        return error_set(error, STATUS_FAILED, "out of memory");
    }
    enum status status = http_listener_open(options->listen, sockets, options->threads,
                                            opened->address, sizeof(opened->address), error);
    if (status != STATUS_OK) {
        http_server_close(opened);
        return status;
    }
    opened->options.listen = opened->address;
    status = server_open_loops(opened, sockets, error);
    for (unsigned i = 0; i < options->threads; i++) {
        if (sockets[i] >= 0) {
            close(sockets[i]);
        }
    }
    if (status != STATUS_OK) {
        http_server_close(opened);
        return status;
    }
    *server = opened;
    return STATUS_OK;
}

void http_server_close(struct http_server *server)
{
    if (server == NULL) {
        return;
    }
    for (unsigned i = 0; i < server->options.threads; i++) {
        if (server->loops[i] != NULL) {
            http_loop_release(server->loops[i]);
            free(server->loops[i]);
        }
    }
    pthread_mutex_destroy(&server->failure_lock);
    per_address_free(server->per_address);
    free(server->loops);
    free(server->threads);
    free(server);
}

const char *http_server_address(const struct http_server *server)
{
    return server->address;
}

/* --- running --- */

static void server_fail(struct http_server *server, enum status status, const struct error *error)
{
    pthread_mutex_lock(&server->failure_lock);
    if (server->failure == STATUS_OK) {
        server->failure = status;
        server->failure_words = *error;
    }
    pthread_mutex_unlock(&server->failure_lock);
    http_server_stop(server);
}

static void *server_thread(void *argument)
{
    struct http_loop *loop = argument;
    struct error error = {""};
    char name[16];
    snprintf(name, sizeof(name), "http-%u", loop->index);
    pthread_setname_np(pthread_self(), name);
    enum status status = http_loop_run(loop, &error);
    if (status != STATUS_OK) {
        server_fail(loop->server, status, &error);
    }
    return NULL;
}

/* Writing to a client that has gone must be an error of the write, not a signal; and signals that
 * mean the whole process are left to the other threads. */
static int server_start_thread(struct http_server *server, unsigned index)
{
    sigset_t blocked;
    sigset_t before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGPIPE);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    int failed = pthread_create(&server->threads[index], NULL, server_thread, server->loops[index]);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

enum status http_server_run(struct http_server *server, struct error *error)
{
    unsigned started = 0;
    while (started < server->options.threads) {
        int failed = server_start_thread(server, started);
        if (failed != 0) {
            struct error words;
            server_fail(server, error_set(&words, STATUS_FAILED, "thread: %s", strerror(failed)),
                        &words);
            break;
        }
        started++;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(server->threads[i], NULL);
    }
    if (server->failure != STATUS_OK) {
        return error_set(error, server->failure, "%s", server->failure_words.text);
    }
    return STATUS_OK;
}

void http_server_stop(struct http_server *server)
{
    atomic_store(&server->stopping, true);
    for (unsigned i = 0; i < server->options.threads; i++) {
        http_loop_wake(server->loops[i]);
    }
}

bool http_server_stopping(const struct http_server *server)
{
    return atomic_load_explicit(&server->stopping, memory_order_relaxed);
}

/* Of a proxy, what it asks for others is counted instead. */
static bool server_counts(const struct http_server *server, const struct address *peer)
{
    for (size_t i = 0; i < server->options.uncounted_count; i++) {
        if (network_contains(&server->options.uncounted[i], peer)) {
            return false;
        }
    }
    return true;
}

enum http_admission http_server_admit(struct http_server *server, const struct sockaddr *peer)
{
    struct address address = address_of(peer);
    if (atomic_fetch_add(&server->connection_count, 1) >= server->connections_max) {
        atomic_fetch_sub(&server->connection_count, 1);
        return HTTP_OVER_CAP;
    }
    if (server_counts(server, &address) && !per_address_enter(server->per_address, &address)) {
        atomic_fetch_sub(&server->connection_count, 1);
        return HTTP_OVER_ADDRESS_CAP;
    }
    return HTTP_ADMITTED;
}

void http_server_discharge(struct http_server *server, const struct sockaddr *peer)
{
    struct address address = address_of(peer);
    atomic_fetch_sub(&server->connection_count, 1);
    if (server_counts(server, &address)) {
        per_address_leave(server->per_address, &address);
    }
}

struct per_address *http_server_per_address(struct http_server *server)
{
    return server->per_address;
}

void http_server_hold(struct http_server *server, size_t more, size_t less)
{
    atomic_fetch_add_explicit(&server->held_bytes, more - less, memory_order_relaxed);
}

bool http_server_is_full(const struct http_server *server)
{
    size_t max = server->options.unsent_max;
    return max > 0 && atomic_load_explicit(&server->held_bytes, memory_order_relaxed) >= max;
}

unsigned http_server_loop_count(const struct http_server *server)
{
    return server->options.threads;
}

const struct http_counters *http_server_counters(const struct http_server *server,
                                                 unsigned loop_index)
{
    ensure(loop_index < server->options.threads);
    return &server->loops[loop_index]->counters;
}
