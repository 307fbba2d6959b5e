/* connection.h: one client's connection: reading, the line of its exchanges, writing, its end.
 *
 * Requests stand in line in the order they came. Only the head of the line writes into `out`; an
 * answer that is ready earlier waits in its own exchange. `out` is written once at the end of the
 * tick, or piece by piece when it is large. Reading stops while too many requests are unanswered or
 * too much is unsent or expected, and goes on when that is over. All connections together hold a
 * bounded amount: once it is reached a connection reads no more while it has anything unsent, and
 * has to take it faster.
 *
 * A connection's memory lives until its socket is closed and its last exchange is answered, so an
 * exchange may always look at its connection.
 *
 * Threads: everything here belongs to the connection's loop.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "base/address.h"
#include "base/buffer.h"
#include "http/server/parser.h"
#include "http/server/server.h"

/* More than this in one connection's answers and it is given up. */
#define HTTP_OUT_BYTES_MAX (32 * 1024 * 1024)

enum http_connection_state {
    HTTP_CONNECTION_OPEN,
    HTTP_CONNECTION_LINGERING, /* our side is shut down; what the client still sends is dropped */
    HTTP_CONNECTION_CLOSING,   /* the handle is being closed */
    HTTP_CONNECTION_CLOSED,
};

enum http_exchange_state {
    HTTP_EXCHANGE_SPARE,     /* nobody's */
    HTTP_EXCHANGE_WAITING,   /* not answered yet */
    HTTP_EXCHANGE_RENDERING, /* between http_answer_begin() and its end */
    HTTP_EXCHANGE_STREAMING,
    HTTP_EXCHANGE_READY, /* answered, waits for its turn */
    HTTP_EXCHANGE_GONE,  /* a stream whose client has gone and whose owner will be told */
};

struct http_exchange {
    struct http_exchange *next; /* in the line, or among the spare ones */
    struct http_connection *connection;
    struct buffer own; /* what was answered before its turn */
    struct buffer *target;
    size_t began_at; /* in the target */
    enum http_exchange_state state;
    bool in_line;   /* false once the client has gone */
    bool no_body;   /* HEAD, 204, 304 */
    bool no_length; /* 204, 304 */
    bool http_1_0;
    bool last; /* the connection ends with this answer */
    bool chunked;
    bool must_finish;      /* a stream of which a part is worth nothing */
    size_t expected_bytes; /* of an answer that is being made elsewhere */
    struct address client; /* counted as one of its connections; all zero: nobody's */
    void (*on_gone)(void *context);
    void *on_gone_context;
    struct http_exchange_notes notes;
};

/* What does not leave at once: it is large, or more than the kernel took. */
struct http_rest {
    uv_write_t request;
    struct buffer bytes;
    size_t at;       /* so many were given to the kernel or to libuv */
    int64_t left_ms; /* that the client may take for what the kernel does not take */
    bool is_awaited; /* libuv has a piece of it */
};

struct http_connection {
    uv_tcp_t tcp;
    struct http_loop *loop;
    int socket_fd;
    uint32_t index; /* among the loop's connections */
    enum http_connection_state state;

    /* The line. */
    struct http_exchange *head;
    struct http_exchange *tail;
    uint32_t line_count;
    uint32_t exchange_count; /* also those that left the line unanswered */
    size_t ready_bytes;      /* in the line's own buffers */
    size_t expected_bytes;   /* of answers that are being made elsewhere, also for those who left */
    size_t held_bytes;       /* what the server has counted of this connection */

    /* Writing. */
    struct buffer out;
    struct http_rest *rest; /* in front of `out`; NULL: none */
    uint64_t written_bytes; /* given to the kernel or to libuv */
    uint64_t taken_bytes;   /* by the client, when that was last looked at */
    int64_t write_due_ms;   /* when it is cut off, unless it takes more */
    int64_t write_check_ms; /* when to look again; NEVER_MS: the kernel took all */
    STAILQ_ENTRY(http_connection) dirty_link;
    STAILQ_ENTRY(http_connection) resumed_link;
    STAILQ_ENTRY(http_connection) queued_link;
    bool dirty;
    bool resuming;
    bool queued;   /* for the next piece of its rest */
    bool ending;   /* the last answer is in `out` */
    bool given_up; /* to be closed at the end of the tick */

    /* Reading. */
    bool paused;       /* by back-pressure */
    bool input_ended;  /* no further request is looked at */
    bool end_received; /* the client has shut its side */
    bool over_cap;
    int64_t request_started_ms; /* first byte of the request being read, or the accept */
    int64_t read_deadline_ms;   /* NEVER_MS: none */
    enum http_phase phase;      /* the one the read deadline is for */
    size_t dropped_bytes;       /* came after the last request */
    struct http_parser parser;

    struct address peer;
};

STAILQ_HEAD(http_connections, http_connection);

/* --- connection.c --- */

/* Takes over the accepted socket and starts to read. One over a cap, for which `refusal` says which
 * (else NULL), is told so and closed. */
void http_connection_open(struct http_loop *loop, int socket_fd, const struct address *peer,
                          const char *refusal);

/* Closes the socket now. What is in line leaves it; streams are told. */
void http_connection_close(struct http_connection *connection);

/* The same, and what the kernel still has to send is thrown away. */
void http_connection_abort(struct http_connection *connection);

/* Tells the loop the earlier of its deadlines. */
void http_connection_arm(struct http_connection *connection);

/* Its deadline has passed. */
void http_connection_expire(struct http_connection *connection, int64_t now_ms);

/* The server stops: closes an idle connection; for others the line's last answer ends it. */
void http_connection_wind_up(struct http_connection *connection);

/* Frees the memory once nobody looks at it any more. */
void http_connection_free_when_done(struct http_connection *connection);

/* Handles what is parked, after back-pressure has ended. */
void http_connection_resume(struct http_connection *connection);

/* Tells the server how much it holds now. */
void http_connection_account(struct http_connection *connection);

/* Puts it on the list of those to be flushed at the end of this tick. */
void http_connection_touch(struct http_connection *connection);

/* The same, to be closed then without its answers. */
void http_connection_give_up(struct http_connection *connection);

/* Writes what is in `out`, and ends the connection when its time has come. */
void http_connection_flush(struct http_connection *connection);

/* --- writing.c --- */

/* Not written yet, also what is not yet its turn. */
size_t http_connection_unsent(const struct http_connection *connection);

/* Sends what is in `out`; queues it when it is large. */
void http_connection_write(struct http_connection *connection);

/* It is its turn among large answers. Gives back how much it tried to send. */
size_t http_connection_write_piece(struct http_connection *connection);

/* Whether the client takes what the kernel did not take at once, and takes it fast enough. */
bool http_connection_takes_enough(struct http_connection *connection, int64_t now_ms);

/* The connection is being closed. */
void http_connection_drop_unsent(struct http_connection *connection);

/* --- exchange.c --- */

/* A new exchange at the end of the line. NULL when there is no memory: the connection is given up.
 */
struct http_exchange *http_line_join(struct http_connection *connection);

/* Everybody leaves: answered ones are freed, streams are told, the rest is dropped when answered.
 */
void http_line_dissolve(struct http_connection *connection);

/* The server stops: ends the stream at the head of the line, if there is one. */
void http_line_end_stream(struct http_connection *connection);

/* Gives the exchange back to its loop, and the connection too when this was the last. */
void http_exchange_free(struct http_exchange *exchange);

/* Back to the loop's spare ones. */
void http_buffer_give(struct http_loop *loop, struct buffer *buffer);

/* Frees exchanges that nobody answered in time, with what is left of their connections. */
void http_exchanges_abandon(struct http_loop *loop);

/* The loop's spare memory. */
void http_exchanges_release(struct http_loop *loop);
