/* server.c: opens the listeners and takes connections from them, runs one thread per loop, stops
 * them together. */
#include "http/server/server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "http/server/limits.h"
#include "http/server/loop.h"
#include "http/server/proxy.h"

#define THREADS_MAX 256
#define BACKLOG     4096
/* Connections taken in one tick: each costs as much as several claims, and its first request comes
 * with it, so that a storm of them must not hold up those already there. */
#define ACCEPT_BATCH_MAX 8
/* How long accepting rests when file descriptors or memory have run out. */
#define ACCEPT_REST_MS 250
/* Connections over the cap that are being told so, per loop; further ones are just closed. */
#define OVER_CAP_MAX 64
/* File descriptors that connections may not take: databases, logs, listeners, the loops' own. */
#define FD_MARGIN 256

/* --- listening --- */

/* Splits "host:port" or "[v6]:port". */
static bool listener_split(const char *where, char *host, size_t host_size, const char **port)
{
    const char *colon = strrchr(where, ':');
    if (colon == NULL || colon == where || colon[1] == '\0')
        return false;
    const char *first = where;
    const char *end = colon;
    if (*first == '[') {
        first++;
        end--;
        if (*end != ']')
            return false;
    } else if (memchr(first, ':', (size_t)(end - first)) != NULL) {
        return false; /* An IPv6 address has to stand in brackets. */
    }
    size_t length = (size_t)(end - first);
    if (length == 0 || length >= host_size)
        return false;
    memcpy(host, first, length);
    host[length] = '\0';
    *port = colon + 1;
    return true;
}

static enum status listener_resolve(const char *where, struct sockaddr_storage *address,
                                    socklen_t *length, struct error *error)
{
    char host[256];
    const char *port;
    if (!listener_split(where, host, sizeof(host), &port)) {
        return error_set(error, STATUS_INVALID,
                         "cannot listen on '%s': say host:port or [ipv6]:port", where);
    }
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed != 0) {
        return error_set(error, STATUS_INVALID, "cannot listen on '%s': %s", where,
                         gai_strerror(failed));
    }
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *length = found->ai_addrlen;
    freeaddrinfo(found);
    return STATUS_OK;
}

static void listener_name(const struct sockaddr_storage *address, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "";
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        uv_ip6_name(v6, host, sizeof(host));
        snprintf(text, size, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        uv_ip4_name(v4, host, sizeof(host));
        snprintf(text, size, "%s:%u", host, ntohs(v4->sin_port));
    }
}

enum listener_sharing { LISTENER_ALONE, LISTENER_SHARED };

/* A listening socket, or -1 with errno. */
static int listener_open(const struct sockaddr_storage *address, socklen_t length,
                         enum listener_sharing sharing)
{
    int on = 1;
    int listen_fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listen_fd < 0)
        return -1;
    bool listens = setsockopt(listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                   (sharing == LISTENER_ALONE ||
                    setsockopt(listen_fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0) &&
                   /* Accepted sockets inherit this. */
                   setsockopt(listen_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
                   bind(listen_fd, (const struct sockaddr *)address, length) == 0 &&
                   listen(listen_fd, BACKLOG) == 0;
    if (!listens) {
        int why = errno;
        close(listen_fd);
        errno = why;
        return -1;
    }
    return listen_fd;
}

static enum status listener_fail(const char *where, struct error *error)
{
    return error_set(error, errno == EADDRINUSE ? STATUS_UNAVAILABLE : STATUS_FAILED,
                     "cannot listen on %s: %s", where, strerror(errno));
}

/* SO_REUSEPORT would also let a second server of the same user share the address without a word.
 * So a socket that does not share takes it first; that also picks the port when it is 0. It
 * listens, as only that shows a conflict with one who bound with SO_REUSEADDR as well. */
static enum status listener_claim(const char *where, struct sockaddr_storage *address,
                                  socklen_t *length, struct error *error)
{
    int probe = listener_open(address, *length, LISTENER_ALONE);
    if (probe < 0)
        return listener_fail(where, error);
    int failed = getsockname(probe, (struct sockaddr *)address, length);
    ensure(failed == 0);
    close(probe);
    return STATUS_OK;
}

/* --- accepting --- */

/* A proxy's connections are not counted; the requests that it forwards are, by client. */
static bool server_counts(const struct http_server *server, const struct address *peer)
{
    return server->options.proxies == NULL || !proxies_trust(server->options.proxies, peer);
}

/* NULL when there is a place below the caps for one more connection of that peer, else why not. */
static const char *server_admit(struct http_server *server, const struct address *peer)
{
    const char *refusal = NULL;
    if (atomic_fetch_add(&server->connection_count, 1) >= server->connections_max)
        refusal = "too many connections";
    else if (server_counts(server, peer) && !per_address_enter(server->per_address, peer))
        refusal = "too many connections from this address";
    if (refusal != NULL)
        atomic_fetch_sub(&server->connection_count, 1);
    return refusal;
}

void http_server_discharge(struct http_server *server, const struct address *peer)
{
    atomic_fetch_sub(&server->connection_count, 1);
    if (server_counts(server, peer))
        per_address_leave(server->per_address, peer);
}

static void listener_welcome(struct http_loop *loop, int socket_fd, const struct address *peer)
{
    counter_add(&loop->counters.connections_accepted, 1);
    const char *refusal = server_admit(loop->server, peer);
    if (refusal != NULL) {
        counter_add(&loop->counters.connections_refused, 1);
        if (loop->over_cap_count >= OVER_CAP_MAX) {
            close(socket_fd);
            return;
        }
    }
    http_connection_open(loop, socket_fd, peer, refusal);
}

/* False when there is nothing more to take. */
static bool listener_accept(struct http_loop *loop)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof(peer);
    int socket_fd =
        accept4(loop->listen_fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket_fd >= 0) {
        struct address address = address_of((const struct sockaddr *)&peer);
        listener_welcome(loop, socket_fd, &address);
        return true;
    }
    switch (errno) {
    case EAGAIN:
        return false;
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        /* The connection stays in the queue and the socket stays readable: looking again at once
         * would only burn the processor. */
        log_event(LOG_WARN, "accept_failed", LOG_FIELD("reason", LOG_TEXT(strerror(errno))));
        uv_poll_stop(&loop->listener);
        loop->accepting = false;
        loop->accept_again_ms = loop->now_ms + ACCEPT_REST_MS;
        http_loop_scan(loop);
        return false;
    default:
        /* One connection broke before it was taken. */
        return true;
    }
}

static void listener_on_readable(uv_poll_t *listener, int failed, int events)
{
    struct http_loop *loop = listener->data;
    http_loop_begin_tick(loop);
    for (int i = 0; i < ACCEPT_BATCH_MAX && listener_accept(loop); i++) {
    }
}

void http_listener_start(struct http_loop *loop)
{
    ensure(uv_poll_init_socket(&loop->uv, &loop->listener, loop->listen_fd) == 0);
    loop->listener.data = loop;
    loop->accepting = true;
    ensure(uv_poll_start(&loop->listener, UV_READABLE, listener_on_readable) == 0);
}

void http_listener_stop(struct http_loop *loop)
{
    while (loop->accepting && listener_accept(loop)) {
    }
    loop->accepting = false;
    uv_close((uv_handle_t *)&loop->listener, NULL);
    close(loop->listen_fd);
    loop->listen_fd = -1;
}

void http_listener_retry(struct http_loop *loop)
{
    if (!loop->accepting && loop->stop_phase == HTTP_STOP_NOT &&
        loop->now_ms >= loop->accept_again_ms)
        loop->accepting = uv_poll_start(&loop->listener, UV_READABLE, listener_on_readable) == 0;
}

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
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
            limit.rlim_cur = before;
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

static enum status server_open_loop(struct http_server *server,
                                    const struct sockaddr_storage *address, socklen_t length,
                                    struct error *error)
{
    struct http_loop *loop = calloc(1, sizeof(*loop));
    if (loop == NULL)
        return error_set(error, STATUS_FAILED, "out of memory");
    int listen_fd = listener_open(address, length,
                                  server->options.threads > 1 ? LISTENER_SHARED : LISTENER_ALONE);
    enum status status = listen_fd < 0 ? listener_fail(server->address, error)
                                       : http_loop_init(loop, server, listen_fd, error);
    if (status == STATUS_OK) {
        server->loops[server->loop_count++] = loop;
        return STATUS_OK;
    }
    if (listen_fd >= 0)
        close(listen_fd);
    free(loop);
    return status;
}

enum status http_server_open(struct http_server **server, const struct http_options *options,
                             struct error *error)
{
    *server = NULL;
    ensure(callbacks_are_complete(&options->callbacks));
    if (options->threads < 1 || options->threads > THREADS_MAX)
        return error_set(error, STATUS_INVALID, "threads: 1 to %d", THREADS_MAX);
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof(address);
    struct http_server *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return error_set(error, STATUS_FAILED, "out of memory");
    pthread_mutex_init(&opened->failure_lock, NULL);
    opened->options = *options;
    opened->connections_max = server_connections_max(options->connections_max);
    opened->loops = calloc(options->threads, sizeof(struct http_loop *));
    opened->threads = calloc(options->threads, sizeof(*opened->threads));
    opened->per_address = per_address_new(options->connections_per_address);
    bool has_memory =
        opened->loops != NULL && opened->threads != NULL && opened->per_address != NULL;
    enum status status = has_memory ? listener_resolve(options->listen, &address, &length, error)
                                    : error_set(error, STATUS_FAILED, "out of memory");
    if (status == STATUS_OK)
        status = listener_claim(options->listen, &address, &length, error);
    if (status == STATUS_OK)
        listener_name(&address, opened->address, sizeof(opened->address));
    while (status == STATUS_OK && opened->loop_count < options->threads)
        status = server_open_loop(opened, &address, length, error);
    if (status == STATUS_OK)
        *server = opened;
    else
        http_server_close(opened);
    return status;
}

void http_server_close(struct http_server *server)
{
    if (server == NULL)
        return;
    for (unsigned i = 0; i < server->loop_count; i++) {
        http_loop_release(server->loops[i]); /* NOLINT(*NullDereference): as many as there are */
        free(server->loops[i]);
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
        server->failure_text = *error;
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
    if (status != STATUS_OK)
        server_fail(loop->server, status, &error);
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
    while (started < server->loop_count) {
        int failed = server_start_thread(server, started);
        if (failed != 0) {
            struct error words;
            server_fail(server, error_set(&words, STATUS_FAILED, "thread: %s", strerror(failed)),
                        &words);
            break;
        }
        started++;
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(server->threads[i], NULL);
    if (server->failure != STATUS_OK)
        return error_set(error, server->failure, "%s", server->failure_text.text);
    return STATUS_OK;
}

void http_server_stop(struct http_server *server)
{
    atomic_store(&server->stopping, true);
    for (unsigned i = 0; i < server->loop_count; i++)
        http_loop_wake(server->loops[i]);
}

bool http_server_stopping(const struct http_server *server)
{
    return atomic_load_explicit(&server->stopping, memory_order_relaxed);
}

bool http_server_turns(struct http_server *server)
{
    bool all_turn = true;
    for (unsigned i = 0; i < server->loop_count; i++) {
        struct http_loop *loop = server->loops[i];
        uint64_t ticks = atomic_load_explicit(&loop->counters.ticks, memory_order_relaxed);
        all_turn = all_turn && ticks != loop->ticks_seen;
        loop->ticks_seen = ticks;
        http_loop_wake(loop);
    }
    return all_turn;
}

bool http_server_is_full(const struct http_server *server)
{
    size_t max = server->options.unsent_max;
    return max > 0 && atomic_load_explicit(&server->held_bytes, memory_order_relaxed) >= max;
}

unsigned http_server_loop_count(const struct http_server *server)
{
    return server->loop_count;
}

const struct http_counters *http_server_counters(const struct http_server *server,
                                                 unsigned loop_index)
{
    ensure(loop_index < server->loop_count);
    return &server->loops[loop_index]->counters;
}
