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
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/clock.h"
#include "http/server/connection.h"
#include "http/server/server.h"

#define HTTP_DATE_LENGTH        (6 + CLOCK_HTTP_DATE_SIZE - 1 + 2)
#define HTTP_ADDRESS_SIZE       80
#define HTTP_SPARE_BUFFERS_MAX  512
#define HTTP_EXCHANGES_PER_SLAB 64
/* A deadline that does not come. */
#define NEVER_MS INT64_MAX

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

struct http_server {
    struct http_options options;
    struct http_loop **loops;
    unsigned loop_count;
    pthread_t *threads;
    char address[HTTP_ADDRESS_SIZE];
    size_t connections_max;
    atomic_size_t connection_count;
    atomic_size_t held_bytes;        /* by connections, all together */
    struct per_address *per_address; /* connections of each, and requests under way for it */
    atomic_bool stopping;
    pthread_mutex_t failure_lock;
    enum status failure;
    struct error failure_text;
};

struct http_loop {
    uv_loop_t uv;
    struct http_server *server;
    const struct http_options *options; /* the server's */
    void *context;                      /* the callbacks' */
    unsigned index;

    /* The clock of this tick. */
    bool in_tick;
    int64_t now_ms; /* monotonic */
    int64_t now_ns;
    int64_t wall_ms;
    int64_t date_s;
    char date[HTTP_DATE_LENGTH]; /* "Date: ...\r\n" */

    /* Connections to be written and to be read again. */
    struct http_connections dirty;
    struct http_connections resumed;  /* in the order they came */
    struct http_connections queued;   /* for the next piece of a large answer */
    int64_t spent_until_ns;           /* nobody's second request before that */
    bool is_spent;                    /* this tick */
    size_t answered_bytes;            /* in this tick */
    int64_t large_bytes;              /* of large answers, less what the time since has paid for */
    struct http_exchange *gone_first; /* streams whose owners have to be told */

    /* Connections: same index in both arrays. */
    struct http_connection **connections;
    int64_t *deadlines_ms;
    size_t connection_count;
    size_t connection_capacity;
    uint32_t over_cap_count;

    struct http_exchange *spare_exchanges;
    struct http_exchange_slab *slabs;
    size_t live_exchange_count;
    struct buffer spare_buffers[HTTP_SPARE_BUFFERS_MAX];
    size_t spare_buffer_count;

    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle; /* active: the next tick comes at once */
    uv_timer_t deadline_timer;
    uv_timer_t pace_timer; /* active while somebody has to wait for time to pass */
    uv_async_t wakeup;
    uv_poll_t listener;
    int listen_fd;
    bool accepting;
    int64_t accept_again_ms;

    enum http_stop_phase stop_phase;
    int64_t stop_deadline_ms;

    /* Tasks of other threads. */
    pthread_mutex_t tasks_lock;
    STAILQ_HEAD(http_tasks, http_task) tasks;
    bool tasks_closed;
    atomic_bool tasks_waiting;

    struct http_counters counters;
    uint64_t ticks_seen; /* by http_server_turns() */
    char read_bytes[HTTP_PARSER_BYTES_MAX];
};

/* Gets everything ready but serves nothing. When OK, the listening socket is the loop's. */
enum status http_loop_init(struct http_loop *loop, struct http_server *server, int listen_fd,
                           struct error *error) MUST_CHECK;

/* Runs until the server stops; on its own thread. Fails only when the callbacks' loop_open does. */
enum status http_loop_run(struct http_loop *loop, struct error *error) MUST_CHECK;

/* After http_loop_run() has returned, or instead of it. */
void http_loop_release(struct http_loop *loop);

/* Makes the loop look whether the server stops; from any thread. */
void http_loop_wake(struct http_loop *loop);

/* --- server.c --- */

void http_listener_start(struct http_loop *loop);

/* Takes what is still in the queue, then accepts no more. */
void http_listener_stop(struct http_loop *loop);

/* Tries again some time after file descriptors had run out. */
void http_listener_retry(struct http_loop *loop);

/* One that was below the caps has gone. */
void http_server_discharge(struct http_server *server, const struct address *peer);

/* --- within the loop --- */

/* Reads the clocks when this tick has not yet. */
void http_loop_read_clocks(struct http_loop *loop);
static inline void http_loop_begin_tick(struct http_loop *loop)
{
    if (!loop->in_tick)
        http_loop_read_clocks(loop);
}

/* Looks at deadlines from now on; stops by itself when there is nothing to wait for. */
void http_loop_scan(struct http_loop *loop);

/* Whether the ticks have been long enough for all but first requests, for now. */
bool http_loop_is_spent(struct http_loop *loop);

/* The connection will be resumed before one of the next on_tick. */
void http_loop_resume_later(struct http_loop *loop, struct http_connection *connection);

/* Large answers leave piece by piece, so many bytes a second, and those who have one take turns: a
 * megabyte costs more time to write than a thousand claims to decide. */
void http_loop_queue(struct http_loop *loop, struct http_connection *connection);
