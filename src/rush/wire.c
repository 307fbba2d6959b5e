/* wire.c: an epoll loop over all connections, edge-triggered: one send and one receive a request.
 */
#include "rush/wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "rush/tls.h"

#define EVENTS_MAX         512
#define ROOM_FIRST         4096
#define SWEEP_NS           INT64_C(100000000)
#define DESCRIPTORS_BESIDE 64
#define MILLISECOND_NS     INT64_C(1000000)

enum wire_state { WIRE_CLOSED, WIRE_CONNECTING, WIRE_SHAKING, WIRE_IDLE, WIRE_BUSY };

struct connection {
    int fd;
    SSL *tls; /* NULL: none */
    enum wire_state state;
    int64_t since_ns; /* when it began to connect, or was given its request */
    uint64_t job;
    char *in;
    size_t in_room;
    size_t in_length;
    char *out; /* what of the request the socket did not take; NULL: it took all */
    size_t out_length;
    size_t out_sent;
};

struct wire {
    const struct wire_caller *caller; /* while it runs */
    struct sockaddr_storage address;
    socklen_t address_length;
    int family;
    struct rush_tls tls; /* no context: none */
    char tls_words[160]; /* why a connection was not made; "": not for that */
    int64_t timeout_ns;
    int epoll_fd;
    struct connection *connections;
    size_t connection_count;
    struct connection **idle; /* a stack: the one used last is warmest */
    size_t idle_count;
    size_t busy_count;
    size_t connected_count;
    uint64_t reconnects;
    int last_errno;        /* of a connection that could not be made */
    int64_t last_there_ns; /* when there was a connection the last time */
};

/* --- connections --- */

static void wire_drop(struct wire *wire, struct connection *connection)
{
    SSL_free(connection->tls);
    connection->tls = NULL;
    if (connection->fd >= 0)
        close(connection->fd);
    if (connection->state == WIRE_IDLE || connection->state == WIRE_BUSY)
        wire->connected_count--;
    if (connection->state == WIRE_IDLE) {
        for (size_t i = 0; i < wire->idle_count; i++) {
            if (wire->idle[i] == connection) {
                wire->idle[i] = wire->idle[--wire->idle_count];
                break;
            }
        }
    }
    free(connection->out);
    connection->out = NULL;
    connection->fd = -1;
    connection->state = WIRE_CLOSED;
}

static void wire_connect(struct wire *wire, struct connection *connection, int64_t now_ns)
{
    int on = 1;

    connection->since_ns = now_ns;
    connection->in_length = 0;
    connection->fd = socket(wire->family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (connection->fd < 0) {
        wire->last_errno = errno;
        return;
    }
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = connection};
    connection->state = WIRE_CONNECTING;
    if ((connect(connection->fd, (const struct sockaddr *)&wire->address, wire->address_length) !=
             0 &&
         errno != EINPROGRESS) ||
        epoll_ctl(wire->epoll_fd, EPOLL_CTL_ADD, connection->fd, &event) != 0) {
        wire->last_errno = errno;
        wire_drop(wire, connection);
    }
}

static void wire_rest(struct wire *wire, struct connection *connection)
{
    connection->state = WIRE_IDLE;
    connection->in_length = 0;
    wire->idle[wire->idle_count++] = connection;
}

/* Its request, if it had one, came to nothing; a new one takes its place. */
static void wire_break(struct wire *wire, struct connection *connection, int64_t now_ns,
                       const char *why)
{
    bool was_busy = connection->state == WIRE_BUSY;

    wire_drop(wire, connection);
    wire->reconnects++;
    if (was_busy) {
        wire->busy_count--;
        wire->caller->failed(wire->caller->context, connection->job, now_ns, why);
    }
    wire_connect(wire, connection, now_ns);
}

/* --- requests --- */

void wire_append_request(struct buffer *out, const struct wire_target *target, const char *method,
                         const char *path, const char *headers, struct span body)
{
    buffer_printf(out, "%s %s%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\n", method, target->base,
                  path, target->authority, target->agent);
    if (target->token[0] != '\0')
        buffer_printf(out, "Authorization: Bearer %s\r\n", target->token);
    if (body.length > 0)
        buffer_printf(out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      body.length);
    buffer_append_text(out, headers);
    buffer_append_literal(out, "\r\n");
    buffer_append_span(out, body);
}

static ssize_t wire_put(struct connection *connection, const char *bytes, size_t length)
{
    return connection->tls != NULL ? rush_tls_send(connection->tls, bytes, length)
                                   : send(connection->fd, bytes, length, MSG_NOSIGNAL);
}

static ssize_t wire_take(struct connection *connection, char *bytes, size_t room)
{
    return connection->tls != NULL ? rush_tls_receive(connection->tls, bytes, room)
                                   : recv(connection->fd, bytes, room, 0);
}

static void wire_flush(struct connection *connection)
{
    while (connection->out != NULL) {
        ssize_t sent = wire_put(connection, connection->out + connection->out_sent,
                                connection->out_length - connection->out_sent);
        if (sent < 0)
            return; /* a broken connection says so when it is read */
        connection->out_sent += (size_t)sent;
        if (connection->out_sent == connection->out_length) {
            free(connection->out);
            connection->out = NULL;
        }
    }
}

static void wire_send(struct wire *wire, struct connection *connection, struct span request,
                      int64_t now_ns)
{
    ssize_t sent = wire_put(connection, request.bytes, request.length);

    connection->state = WIRE_BUSY;
    connection->since_ns = now_ns;
    connection->in_length = 0;
    wire->busy_count++;
    if (sent == (ssize_t)request.length)
        return;
    if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        wire_break(wire, connection, now_ns, "the connection broke");
        return;
    }
    size_t done = sent > 0 ? (size_t)sent : 0;
    connection->out = malloc(request.length - done);
    ensure(connection->out != NULL);
    memcpy(connection->out, request.bytes + done, request.length - done);
    connection->out_length = request.length - done;
    connection->out_sent = 0;
    wire_flush(connection);
}

/* Gives a free connection the next request, or rests it. */
static void wire_use(struct wire *wire, struct connection *connection, int64_t now_ns)
{
    struct span request;

    if (wire->caller != NULL &&
        wire->caller->next(wire->caller->context, now_ns, &request, &connection->job))
        wire_send(wire, connection, request, now_ns);
    else
        wire_rest(wire, connection);
}

static void wire_feed(struct wire *wire, int64_t now_ns)
{
    while (wire->idle_count > 0) {
        struct connection *connection = wire->idle[wire->idle_count - 1];
        struct span request;
        if (!wire->caller->next(wire->caller->context, now_ns, &request, &connection->job))
            return;
        wire->idle_count--;
        wire_send(wire, connection, request, now_ns);
    }
}

/* --- replies --- */

static bool wire_make_room(struct connection *connection)
{
    if (connection->in_length < connection->in_room)
        return true;
    size_t room = connection->in_room == 0 ? ROOM_FIRST : connection->in_room * 2;
    char *grown = room <= 2 * RUSH_REPLY_MAX ? realloc(connection->in, room) : NULL;
    if (grown == NULL)
        return false;
    connection->in = grown;
    connection->in_room = room;
    return true;
}

/* One whole reply, or more of it has to come. */
static void wire_understand(struct wire *wire, struct connection *connection)
{
    struct rush_reply reply;
    struct span bytes = {connection->in, connection->in_length};
    enum rush_reading reading = rush_reply_read(bytes, &reply);
    int64_t now_ns = clock_monotonic_ns();

    if (reading == RUSH_READ_MORE)
        return;
    if (reading == RUSH_READ_GARBAGE || reply.length != bytes.length ||
        connection->state != WIRE_BUSY) {
        wire_break(wire, connection, now_ns, "what came back is not one HTTP reply");
        return;
    }
    wire->busy_count--;
    wire->caller->answered(wire->caller->context, connection->job, now_ns, &reply);
    if (reply.closes) {
        wire_drop(wire, connection);
        wire_connect(wire, connection, now_ns);
        return;
    }
    wire_use(wire, connection, now_ns);
}

static void wire_read(struct wire *wire, struct connection *connection)
{
    for (;;) {
        if (!wire_make_room(connection)) {
            wire_break(wire, connection, clock_monotonic_ns(), "a reply is too long");
            return;
        }
        size_t room = connection->in_room - connection->in_length;
        ssize_t got = wire_take(connection, connection->in + connection->in_length, room);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (connection->tls != NULL && connection->in_length > 0)
                wire_understand(wire, connection);
            return;
        }
        if (got <= 0) {
            wire_break(wire, connection, clock_monotonic_ns(), "the server closed the connection");
            return;
        }
        connection->in_length += (size_t)got;
        /* TLS gives a record at a time, and the socket may have more of them. */
        if ((size_t)got < room && connection->tls == NULL) {
            wire_understand(wire, connection);
            return;
        }
    }
}

static void wire_shake(struct wire *wire, struct connection *connection)
{
    int done = rush_tls_shake(connection->tls, wire->tls_words);

    if (done < 0)
        wire_drop(wire, connection); /* tried again by the next sweep */
    if (done != 1)
        return;
    wire->connected_count++;
    wire_use(wire, connection, clock_monotonic_ns());
}

static void wire_connected(struct wire *wire, struct connection *connection, uint32_t events)
{
    int failure = 0;
    socklen_t length = sizeof(failure);

    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) == 0)
        return;
    if (getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &failure, &length) != 0 || failure != 0) {
        wire->last_errno = failure;
        wire_drop(wire, connection); /* tried again by the next sweep */
        return;
    }
    if (wire->tls.context == NULL) {
        wire->connected_count++;
        wire_use(wire, connection, clock_monotonic_ns());
        return;
    }
    connection->tls = rush_tls_begin(&wire->tls, connection->fd);
    ensure(connection->tls != NULL);
    connection->state = WIRE_SHAKING;
    wire_shake(wire, connection);
}

/* Between requests TLS may have something to say to itself. */
static bool wire_is_quiet(struct connection *connection)
{
    char byte;

    return connection->tls != NULL && wire_take(connection, &byte, 1) < 0 && errno == EAGAIN;
}

static void wire_on_event(struct wire *wire, struct connection *connection, uint32_t events)
{
    switch (connection->state) {
    case WIRE_CONNECTING:
        wire_connected(wire, connection, events);
        return;
    case WIRE_SHAKING:
        wire_shake(wire, connection);
        return;
    case WIRE_BUSY:
        if (connection->out != NULL && (events & EPOLLOUT) != 0)
            wire_flush(connection);
        if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0)
            wire_read(wire, connection);
        return;
    case WIRE_IDLE:
        if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)) != 0 &&
            !wire_is_quiet(connection))
            wire_break(wire, connection, clock_monotonic_ns(), "closed while idle");
        return;
    case WIRE_CLOSED:
        return;
    }
}

/* --- the loop --- */

static void wire_sweep(struct wire *wire, int64_t now_ns)
{
    for (size_t i = 0; i < wire->connection_count; i++) {
        struct connection *connection = &wire->connections[i];
        int64_t age_ns = now_ns - connection->since_ns;
        if (connection->state == WIRE_CLOSED)
            wire_connect(wire, connection, now_ns);
        else if (connection->state == WIRE_BUSY && age_ns > wire->timeout_ns)
            wire_break(wire, connection, now_ns, "no answer in time");
        else if ((connection->state == WIRE_CONNECTING || connection->state == WIRE_SHAKING) &&
                 age_ns > wire->timeout_ns)
            wire_drop(wire, connection);
    }
}

static void wire_wait(struct wire *wire, int64_t wait_ns)
{
    struct epoll_event events[EVENTS_MAX];
    struct timespec wait = {.tv_sec = wait_ns / 1000000000, .tv_nsec = wait_ns % 1000000000};
    int count = epoll_pwait2(wire->epoll_fd, events, EVENTS_MAX, &wait, NULL);

    for (int i = 0; i < count; i++)
        wire_on_event(wire, events[i].data.ptr, events[i].events);
}

/* Without a connection for so long that an answer would be too late, what is due has none: a server
 * that is gone for good ends a storm, too. */
static void wire_give_up(struct wire *wire, int64_t now_ns)
{
    struct span request;
    uint64_t job;

    if (wire->connected_count > 0)
        wire->last_there_ns = now_ns;
    if (now_ns - wire->last_there_ns <= wire->timeout_ns)
        return;
    while (wire->caller->next(wire->caller->context, now_ns, &request, &job))
        wire->caller->failed(wire->caller->context, job, now_ns, "nobody takes connections");
}

void wire_run(struct wire *wire, const struct wire_caller *caller)
{
    int64_t swept_ns = clock_monotonic_ns();

    wire->caller = caller;
    wire->last_there_ns = swept_ns;
    for (;;) {
        int64_t now_ns = clock_monotonic_ns();
        wire_feed(wire, now_ns);
        int64_t next_ns = caller->next_at_ns(caller->context, now_ns);
        if (next_ns == WIRE_NEVER && wire->busy_count == 0)
            break;
        int64_t wait_ns = swept_ns + SWEEP_NS - now_ns;
        /* What is due waits for a connection; what will be due, for its time. */
        if (wire->idle_count > 0 && next_ns - now_ns < wait_ns)
            wait_ns = next_ns - now_ns;
        wire_wait(wire, wait_ns > 0 ? wait_ns : 0);
        now_ns = clock_monotonic_ns();
        if (now_ns - swept_ns >= SWEEP_NS) {
            swept_ns = now_ns;
            wire_give_up(wire, now_ns);
            wire_sweep(wire, now_ns);
            caller->tick(caller->context, now_ns);
        }
    }
    wire->caller = NULL;
}

/* --- life --- */

static enum status wire_resolve(struct wire *wire, const struct wire_options *options,
                                struct error *error)
{
    const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int failure = getaddrinfo(options->host, options->port, &wanted, &found);

    if (failure != 0)
        return error_set(error, STATUS_UNAVAILABLE, "%s: %s", options->host,
                         failure == EAI_SYSTEM ? strerror(errno) : gai_strerror(failure));
    /* The first address that takes a connection; "localhost" may have one that nobody serves. */
    for (const struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        int probe = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool answers = probe >= 0 && connect(probe, at->ai_addr, at->ai_addrlen) == 0;
        if (probe >= 0)
            close(probe);
        if (answers || at->ai_next == NULL) {
            memcpy(&wire->address, at->ai_addr, at->ai_addrlen);
            wire->address_length = at->ai_addrlen;
            wire->family = at->ai_family;
            break;
        }
    }
    freeaddrinfo(found);
    return STATUS_OK;
}

static enum status wire_raise_limit(size_t connection_count, struct error *error)
{
    struct rlimit limit;
    rlim_t wanted = connection_count + DESCRIPTORS_BESIDE;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return STATUS_OK;
    limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= wanted)
        return STATUS_OK;
    return error_set(error, STATUS_UNAVAILABLE,
                     "%zu connections need as many file descriptors, and this process may have "
                     "%lu: raise `ulimit -n`, or ask for fewer",
                     connection_count, (unsigned long)limit.rlim_max);
}

/* Waits until every connection is made. */
static enum status wire_connect_all(struct wire *wire, struct error *error)
{
    int64_t now_ns = clock_monotonic_ns();
    int64_t until_ns = now_ns + wire->timeout_ns;

    wire_sweep(wire, now_ns);
    while (wire->connected_count < wire->connection_count && now_ns < until_ns) {
        wire_wait(wire, 20 * MILLISECOND_NS);
        now_ns = clock_monotonic_ns();
        wire_sweep(wire, now_ns);
        if (wire->connected_count == 0 &&
            (wire->last_errno == ECONNREFUSED || wire->tls_words[0] != '\0'))
            break;
    }
    if (wire->connected_count == wire->connection_count)
        return STATUS_OK;
    return error_set(error, STATUS_UNAVAILABLE, "only %zu of %zu connections could be made: %s",
                     wire->connected_count, wire->connection_count,
                     wire->tls_words[0] != '\0' ? wire->tls_words
                     : wire->last_errno != 0    ? strerror(wire->last_errno)
                                                : "timed out");
}

enum status wire_open(struct wire **wire, const struct wire_options *options, struct error *error)
{
    struct wire *opened = calloc(1, sizeof(*opened));

    *wire = opened;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the connections");
    opened->timeout_ns = options->timeout_ms * MILLISECOND_NS;
    opened->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    opened->connections = calloc(options->connection_count, sizeof(*opened->connections));
    opened->idle = calloc(options->connection_count, sizeof(struct connection *));
    if (opened->epoll_fd < 0 || opened->connections == NULL || opened->idle == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the connections");
    opened->connection_count = options->connection_count;
    for (size_t i = 0; i < opened->connection_count; i++)
        opened->connections[i].fd = -1;
    enum status status = wire_raise_limit(options->connection_count, error);
    if (status == STATUS_OK && options->is_tls)
        status = rush_tls_open(&opened->tls, options->host, error);
    if (status == STATUS_OK)
        status = wire_resolve(opened, options, error);
    return status == STATUS_OK ? wire_connect_all(opened, error) : status;
}

void wire_close(struct wire *wire)
{
    if (wire == NULL)
        return;
    for (size_t i = 0; i < wire->connection_count; i++) {
        struct connection *connection = &wire->connections[i];
        SSL_free(connection->tls);
        if (connection->fd >= 0)
            close(connection->fd);
        free(connection->in);
        free(connection->out);
    }
    if (wire->epoll_fd >= 0)
        close(wire->epoll_fd);
    rush_tls_close(&wire->tls);
    free(wire->connections);
    free(wire->idle);
    free(wire);
}

void wire_count(const struct wire *wire, struct wire_numbers *numbers)
{
    *numbers = (struct wire_numbers){.in_flight = wire->busy_count,
                                     .connected = wire->connected_count,
                                     .reconnects = wire->reconnects};
}
