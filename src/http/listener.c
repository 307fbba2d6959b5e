/* listener.c: the listening sockets, and taking connections from them. */
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "http/loop.h"

#define BACKLOG 4096
/* Connections taken in one tick, so that those already there get their turn. */
#define ACCEPT_BATCH_MAX 256
/* How long accepting rests when file descriptors or memory have run out. */
#define ACCEPT_REST_MS 250
/* Connections over the cap that are being told so, per loop; further ones are just closed. */
#define OVER_CAP_MAX 64

/* --- addresses --- */

/* Splits "host:port" or "[v6]:port". */
static bool listener_split(const char *where, char *host, size_t host_size, const char **port)
{
    const char *colon = strrchr(where, ':');
    if (colon == NULL || colon == where || colon[1] == '\0') {
        return false;
    }
    const char *first = where;
    const char *end = colon;
    if (*first == '[') {
        first++;
        end--;
        if (*end != ']') {
            return false;
        }
    } else if (memchr(first, ':', (size_t)(end - first)) != NULL) {
        return false; /* An IPv6 address has to stand in brackets. */
    }
    size_t length = (size_t)(end - first);
    if (length == 0 || length >= host_size) {
        return false;
    }
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

/* --- sockets --- */

enum listener_sharing { LISTENER_ALONE, LISTENER_SHARED };

/* A bound socket, or -1 with errno. */
static int listener_bind(const struct sockaddr_storage *address, socklen_t length,
                         enum listener_sharing sharing)
{
    int on = 1;
    int listen_fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listen_fd < 0) {
        return -1;
    }
    bool bound = setsockopt(listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                 (sharing == LISTENER_ALONE ||
                  setsockopt(listen_fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0) &&
                 /* Accepted sockets inherit this. */
                 setsockopt(listen_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
                 bind(listen_fd, (const struct sockaddr *)address, length) == 0;
    if (!bound) {
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
 * So a socket that does not share takes it first; that also picks the port when it is 0. */
static enum status listener_claim(const char *where, struct sockaddr_storage *address,
                                  socklen_t *length, struct error *error)
{
    int probe = listener_bind(address, *length, LISTENER_ALONE);
    if (probe < 0) {
        return listener_fail(where, error);
    }
    enum status status = STATUS_OK;
    /* Only listening shows a conflict with one who bound with SO_REUSEADDR as well. */
    if (listen(probe, 1) != 0 || getsockname(probe, (struct sockaddr *)address, length) != 0) {
        status = listener_fail(where, error);
    }
    close(probe);
    return status;
}

enum status http_listener_open(const char *where, int *sockets, unsigned count, char *text,
                               size_t text_size, struct error *error)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    memset(&address, 0, sizeof(address));
    enum status status = listener_resolve(where, &address, &length, error);
    if (status == STATUS_OK) {
        status = listener_claim(where, &address, &length, error);
    }
    if (status != STATUS_OK) {
        return status;
    }
    for (unsigned i = 0; i < count; i++) {
        enum listener_sharing sharing = count > 1 ? LISTENER_SHARED : LISTENER_ALONE;
        sockets[i] = listener_bind(&address, length, sharing);
        if (sockets[i] < 0 || listen(sockets[i], BACKLOG) != 0) {
            status = listener_fail(where, error);
            for (unsigned j = 0; j <= i; j++) {
                if (sockets[j] >= 0) {
                    close(sockets[j]);
                }
            }
            return status;
        }
    }
    listener_name(&address, text, text_size);
    return STATUS_OK;
}

/* --- accepting --- */

static void listener_welcome(struct http_loop *loop, int socket_fd,
                             const struct sockaddr_storage *peer)
{
    http_count(&loop->counters.connections_accepted, 1);
    enum http_admission admission = http_server_admit(loop->server, (const struct sockaddr *)peer);
    if (admission == HTTP_ADMITTED) {
        if (http_connection_open(loop, socket_fd, peer, admission) == NULL) {
            log_event(LOG_WARN, "connection_dropped", LOG_FIELD("reason", LOG_TEXT("memory")));
        }
        return;
    }
    http_count(&loop->counters.connections_refused, 1);
    if (loop->over_cap_count >= OVER_CAP_MAX) {
        close(socket_fd);
        return;
    }
    struct http_connection *connection = http_connection_open(loop, socket_fd, peer, admission);
    if (connection != NULL) {
        http_connection_refuse(connection, HTTP_REFUSE_OVERLOADED,
                               admission == HTTP_OVER_CAP
                                   ? "too many connections"
                                   : "too many connections from this address");
    }
}

/* False when there is nothing more to take. */
static bool listener_accept(struct http_loop *loop)
{
    struct sockaddr_storage peer = {.ss_family = AF_UNSPEC};
    socklen_t length = sizeof(peer);
    int socket_fd =
        accept4(loop->listen_fd, (struct sockaddr *)&peer, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket_fd >= 0) {
        listener_welcome(loop, socket_fd, &peer);
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
    (void)failed;
    (void)events;
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
        loop->now_ms >= loop->accept_again_ms) {
        loop->accepting = uv_poll_start(&loop->listener, UV_READABLE, listener_on_readable) == 0;
    }
}
