/* loop.h: one thread's event loop: its listener, connections, tasks, clock and end.
 *
 * Deadlines are kept in an array beside the connections and looked at a few times a second, so
 * that a request costs no timer operation and ten thousand idle connections cost one short scan.
 *
 * Each connection's first request of a tick is handled at once. What it has sent beyond that is
 * handled as long as the tick is short, and then in the order of the connections in the next ones:
 * whoever sends much at a time never keeps those who ask for one thing waiting.
 *
 * Threads: everything belongs to the loop's thread but the task list and the stop flag.
 */
#ifndef HTTP_LOOP_H
#define HTTP_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/clock.h"
#include "http/connection.h"
#include "http/server.h"

#define HTTP_SPARE_BUFFERS_MAX  512
#define HTTP_EXCHANGES_PER_SLAB 64

struct http_exchange_slab {
    struct http_exchange_slab *next;
    struct http_exchange exchanges[HTTP_EXCHANGES_PER_SLAB];
};

enum http_stop_phase {
    HTTP_STOP_NOT,
    HTTP_STOP_LISTENER_CLOSED, /* one more tick reads what has already come */
    HTTP_STOP_WINDING_UP,
    HTTP_STOP_ENDED,
};

struct http_loop {
    uv_loop_t uv;
    struct http_server *server;
    const struct http_options *options;
    void *context; /* the callbacks' */
    unsigned index;

    /* The clock of this tick. */
    bool in_tick;
    int64_t now_ms; /* monotonic */
    int64_t now_ns;
    int64_t wall_ms;
    int64_t date_s;
    size_t date_length;
    char date[64]; /* "Date: ...\r\n" */

    /* Connections to be written and to be read again. */
    struct http_connection *dirty_first;
    struct http_connection **dirty_last;
    struct http_connection *resumed_first; /* in the order they came */
    struct http_connection **resumed_last;
    size_t answered_bytes;            /* in this tick */
    struct http_exchange *gone_first; /* streams whose owners have to be told */

    /* Connections: same index in both arrays. */
    struct http_connection **connections;
    int64_t *deadlines_ms;
    uint32_t connection_count;
    uint32_t connection_capacity;
    uint32_t over_cap_count;

    struct http_parser_rules rules;
    struct http_exchange *spare_exchanges;
    struct http_exchange_slab *slabs;
    size_t live_exchange_count;
    struct buffer spare_buffers[HTTP_SPARE_BUFFERS_MAX];
    size_t spare_buffer_count;

    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle; /* active: the next tick comes at once */
    uv_timer_t deadline_timer;
    uv_async_t wakeup;
    uv_poll_t listener;
    int listen_fd;
    bool accepting;
    int64_t accept_again_ms;

    enum http_stop_phase stop_phase;
    int64_t stop_deadline_ms;

    /* Tasks of other threads. */
    pthread_mutex_t tasks_lock;
    struct http_task *tasks_first;
    struct http_task **tasks_last;
    bool tasks_closed;
    atomic_bool tasks_waiting;

    struct http_counters counters;
    char read_bytes[HTTP_PARSER_BYTES_MAX];
};

/* Gets everything ready but serves nothing. When OK, the listening socket is the loop's. */
enum status http_loop_init(struct http_loop *loop, struct http_server *server,
                           const struct http_options *options, unsigned index, int listen_fd,
                           struct error *error) MUST_CHECK;

/* Runs until the server stops; on its own thread. Fails only when the callbacks' loop_open does. */
enum status http_loop_run(struct http_loop *loop, struct error *error) MUST_CHECK;

/* After http_loop_run() has returned, or instead of it. */
void http_loop_release(struct http_loop *loop);

/* Makes the loop look whether the server stops; from any thread. */
void http_loop_wake(struct http_loop *loop);

/* --- the listener (listener.c) --- */

/* Listening sockets for `count` loops on the same address, and that address with its port.
 * INVALID when it cannot be understood, UNAVAILABLE when it is taken. */
enum status http_listener_open(const char *where, int *sockets, unsigned count, char *text,
                               size_t text_size, struct error *error) MUST_CHECK;
void http_listener_start(struct http_loop *loop);

/* Takes what is still in the queue, then accepts no more. */
void http_listener_stop(struct http_loop *loop);

/* Tries again some time after file descriptors had run out. */
void http_listener_retry(struct http_loop *loop);

/* --- the server's side (server.c) --- */

/* Whether there is a place below the caps for one more connection of that peer. */
enum http_admission http_server_admit(struct http_server *server, const struct sockaddr *peer);
void http_server_discharge(struct http_server *server, const struct sockaddr *peer);

/* How many connections each address has, and how many requests are under way for it. */
struct per_address *http_server_per_address(struct http_server *server);

/* A connection holds `more` bytes instead of `less`. */
void http_server_hold(struct http_server *server, size_t more, size_t less);

/* --- within the loop --- */

/* Reads the clocks when this tick has not yet. */
void http_loop_read_clocks(struct http_loop *loop);
static inline void http_loop_begin_tick(struct http_loop *loop)
{
    if (!loop->in_tick) {
        http_loop_read_clocks(loop);
    }
}

/* Looks at deadlines from now on; stops by itself when there is nothing to wait for. */
void http_loop_scan(struct http_loop *loop);

/* False when there is no memory. */
bool http_loop_add(struct http_loop *loop, struct http_connection *connection);
void http_loop_remove(struct http_loop *loop, struct http_connection *connection);

/* Its owner is told at the end of this tick, outside of anyone's call. */
void http_loop_tell_gone(struct http_loop *loop, struct http_exchange *exchange);

/* Whether this tick has been long enough for all but first requests. */
bool http_loop_is_spent(const struct http_loop *loop);

/* The connection will be resumed before one of the next on_tick. */
void http_loop_resume_later(struct http_loop *loop, struct http_connection *connection);

/* --- memory that is used again (spare.c) --- */

/* NULL when there is no memory. */
struct http_exchange *http_loop_take_exchange(struct http_loop *loop);
void http_loop_give_exchange(struct http_loop *loop, struct http_exchange *exchange);

/* An empty buffer that probably has memory already; and back. */
void http_loop_take_buffer(struct http_loop *loop, struct buffer *buffer);
void http_loop_give_buffer(struct http_loop *loop, struct buffer *buffer);

/* Exchanges that nobody answered in time, with what is left of their connections. */
void http_loop_abandon_exchanges(struct http_loop *loop);
void http_loop_free_spares(struct http_loop *loop);

/* --- counting --- */

static inline void http_count(_Atomic uint64_t *counter, uint64_t more)
{
    /* One writer: no need for a locked instruction. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

static inline void http_uncount(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) - 1,
                          memory_order_relaxed);
}

#endif
