/* server.h: an HTTP/1.1 server on libuv and llhttp that knows nothing of coupons.
 *
 * One loop per thread, each with its own SO_REUSEPORT listener. A request is handed to the one
 * handler when it is complete; the handler answers now or later, always on the same loop. Answers
 * leave in the order of the requests, all answers of one loop tick for a connection in one write.
 * Every limit and timeout of the contract is kept here; what breaks them is answered by the
 * `refuse` callback (which knows the words) and the connection is closed.
 *
 * Order within a tick: reads and handlers, posted tasks, then `on_tick` (where batches are
 * decided), then the writes.
 *
 * Threads: everything with a loop or an exchange belongs to that loop's thread;
 * http_loop_post() and http_server_stop() may be called from any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "base/address.h"
#include "base/buffer.h"
#include "base/error.h"

enum http_method {
    HTTP_METHOD_OTHER,
    HTTP_METHOD_GET,
    HTTP_METHOD_HEAD,
    HTTP_METHOD_POST,
    HTTP_METHOD_PUT,
    HTTP_METHOD_PATCH,
    HTTP_METHOD_DELETE,
    HTTP_METHOD_OPTIONS,
};

struct http_server;
struct http_loop;
struct proxies;

/* One request and its answer. Lives until it is answered, also when the client has gone. */
struct http_exchange;

/* The headers whose values a handler sees: X(LENGTH, word, field, name, how often it may come),
 * where LENGTH is whatever the table's user needs in each row. A header that may come once but came
 * twice is refused before the handler sees it; of those that may come often the first counts. */
#define HTTP_REQUEST_HEADERS(X, LENGTH)                                       \
    X(LENGTH, HOST, host, "host", ONCE)                                       \
    X(LENGTH, AUTHORIZATION, authorization, "authorization", ONCE)            \
    X(LENGTH, CONTENT_TYPE, content_type, "content-type", ONCE)               \
    X(LENGTH, IDEMPOTENCY_KEY, idempotency_key, "idempotency-key", ONCE)      \
    X(LENGTH, REQUEST_ID, request_id, "x-request-id", ONCE)                   \
    X(LENGTH, ORIGIN, origin, "origin", ONCE)                                 \
    X(LENGTH, ACCEPT, accept, "accept", OFTEN)                                \
    X(LENGTH, ACCEPT_ENCODING, accept_encoding, "accept-encoding", OFTEN)     \
    X(LENGTH, COOKIE, cookie, "cookie", OFTEN)                                \
    X(LENGTH, IF_NONE_MATCH, if_none_match, "if-none-match", OFTEN)           \
    X(LENGTH, LAST_EVENT_ID, last_event_id, "last-event-id", ONCE)            \
    X(LENGTH, ACCESS_CONTROL_REQUEST_METHOD, access_control_request_method,   \
      "access-control-request-method", OFTEN)                                 \
    X(LENGTH, ACCESS_CONTROL_REQUEST_HEADERS, access_control_request_headers, \
      "access-control-request-headers", OFTEN)                                \
    X(LENGTH, TRACEPARENT, traceparent, "traceparent", OFTEN)                 \
    X(LENGTH, SEC_FETCH_SITE, sec_fetch_site, "sec-fetch-site", ONCE)

#define HTTP_REQUEST_SPAN(LENGTH, WORD, FIELD, NAME, TIMES) struct span FIELD;

/* A complete request. Everything it points to is valid only during the handler's call. Header
 * values are without surrounding blanks; absent ones have bytes == NULL. */
struct http_request {
    enum http_method method;
    struct span path;  /* as sent, before '?' ; always starts with '/' */
    struct span query; /* after '?', or empty */
    HTTP_REQUEST_HEADERS(HTTP_REQUEST_SPAN, 0)
    struct span body;
    struct span headers; /* all of them as sent, each line with its CRLF */
    bool is_forwarded;   /* a proxy has sent it on, as far as one can see from here */
};

/* Why the server itself turned a request away. */
enum http_refusal {
    HTTP_REFUSE_BAD_REQUEST,       /* 400 */
    HTTP_REFUSE_TIMEOUT,           /* 408 */
    HTTP_REFUSE_TOO_LARGE,         /* 413 */
    HTTP_REFUSE_URI_TOO_LONG,      /* 414 */
    HTTP_REFUSE_HEADERS_TOO_LARGE, /* 431 */
    HTTP_REFUSE_NOT_IMPLEMENTED,   /* 501: Transfer-Encoding, an unknown method */
    HTTP_REFUSE_OVERLOADED,        /* 503: the connection cap is reached */
    HTTP_REFUSE_VERSION,           /* 505 */
};

struct http_callbacks {
    /* A complete request. Must answer with http_answer() or http_stream_start(), now or later. */
    void (*handle)(void *loop_context, struct http_exchange *exchange,
                   const struct http_request *request);
    /* Must answer at once; the server closes the connection after it. `detail` says what was
     * wrong in a few words. */
    void (*refuse)(void *loop_context, struct http_exchange *exchange, enum http_refusal refusal,
                   const char *detail);
    /* Called as soon as the headers are known: the largest body this request may have. */
    size_t (*body_max)(void *loop_context, enum http_method method, struct span path);
    /* Once per tick, after all reads and posted tasks, before the writes. */
    void (*on_tick)(void *loop_context, int64_t wall_ms);
    /* Set up and tear down what belongs to one loop, on its own thread; `index` counts from 0. */
    enum status (*loop_open)(void *server_context, struct http_loop *loop, unsigned index,
                             void **loop_context, struct error *error);
    void (*loop_close)(void *loop_context);
};

/* What one loop has counted; relaxed atomics, written by its thread only. */
struct http_counters {
    _Atomic uint64_t connections_accepted;
    _Atomic uint64_t connections_open;
    _Atomic uint64_t connections_refused; /* over the cap */
    _Atomic uint64_t requests;
    _Atomic uint64_t refusals;
    _Atomic uint64_t timeouts;
    _Atomic uint64_t bytes_in;
    _Atomic uint64_t bytes_out;
    _Atomic uint64_t ticks;
    _Atomic uint64_t writes;
};

/* One writer: no locked instruction needed. */
static inline void counter_add(_Atomic uint64_t *counter, uint64_t number)
{
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + number, memory_order_relaxed);
}

static inline void counter_subtract(_Atomic uint64_t *counter, uint64_t number)
{
    counter_add(counter, -number);
}

struct http_options {
    const char *listen; /* "127.0.0.1:8080", "[::1]:8080", "0.0.0.0:80"; port 0 picks one */
    unsigned threads;
    size_t connections_max; /* over all loops; 0: as many as the fd limit allows, less a margin */
    size_t connections_per_address; /* 0: any number */
    const struct proxies *proxies;  /* whose connections are not counted; NULL: all are */
    size_t unsent_max;              /* bytes of answers, over all connections; 0: any number */
    int64_t header_timeout_ms;
    int64_t body_timeout_ms;
    int64_t idle_timeout_ms;
    int64_t write_timeout_ms;
    int64_t stop_timeout_ms; /* how long a graceful stop waits for answers in flight */
    struct http_callbacks callbacks;
    void *server_context;
};

/* Contract limits. */
#define HTTP_REQUEST_LINE_MAX  2048
#define HTTP_HEADERS_BYTES_MAX 8192
#define HTTP_HEADERS_COUNT_MAX 64
#define HTTP_BODY_MAX          16384
#define HTTP_PIPELINE_MAX      64 /* unanswered requests of one connection before reading stops */

/* Binds and listens (so that errors such as a taken port come back here), serves nothing yet.
 * Raises the soft fd limit to the hard one. */
enum status http_server_open(struct http_server **server, const struct http_options *options,
                             struct error *error) MUST_CHECK;

/* The address it listens on, with the real port, e.g. "127.0.0.1:8080". */
const char *http_server_address(const struct http_server *server);

/* Starts the threads and returns when http_server_stop() was called and all loops have ended:
 * listeners closed first, what is in flight answered (with "Connection: close"), idle
 * connections closed, streams ended, at most stop_timeout_ms. */
enum status http_server_run(struct http_server *server, struct error *error) MUST_CHECK;

/* From any thread or from a signal watcher; idempotent. */
void http_server_stop(struct http_server *server);
bool http_server_stopping(const struct http_server *server);
void http_server_close(struct http_server *server);

/* Whether every loop has turned since this was last asked, and asks them all to turn again: who
 * hears no for long has a loop that stands still. By one thread, while the server runs. */
bool http_server_turns(struct http_server *server);

unsigned http_server_loop_count(const struct http_server *server);
const struct http_counters *http_server_counters(const struct http_server *server,
                                                 unsigned loop_index);

/* --- on a loop --- */

uv_loop_t *http_loop_uv(struct http_loop *loop);

/* Wall time of this tick, read once per tick. */
int64_t http_loop_wall_ms(struct http_loop *loop);

/* Work that another thread wants done on this loop. The task is borrowed until `run` is called.
 * False when the loop has ended: then `run` is never called. */
struct http_task {
    void (*run)(struct http_task *task);
    STAILQ_ENTRY(http_task) link;
};
bool http_loop_post(struct http_loop *loop, struct http_task *task);

/* Whether connections hold as many bytes as they may, all together. From any thread. */
bool http_server_is_full(const struct http_server *server);

/* --- answering --- */

/* A proxy asks for this client: the request counts as one of its connections while it is under way.
 * False: the client has as many as it may, and it is for the caller to refuse. */
bool http_exchange_count_client(struct http_exchange *exchange,
                                const struct address *client) MUST_CHECK;

/* The answer is made elsewhere and may have about so many bytes: they count as unsent from now on,
 * so that a connection asks for little at a time. */
void http_exchange_expect(struct http_exchange *exchange, size_t bytes);

/* An answer is one or more http_answer_header() between begin and end. The body's bytes are
 * copied. HEAD gets the headers with the right Content-Length and no body; 204 and 304 get none.
 * Date, Content-Length and Connection are added by the server. Control characters in a header's
 * value become '?'. Everything between begin and end happens within one call on the loop. */
void http_answer_begin(struct http_exchange *exchange, int status, struct span content_type);
void http_answer_header(struct http_exchange *exchange, struct span name, struct span value);
void http_answer_end(struct http_exchange *exchange, struct span body);

/* Whole header lines that are a constant, each with its CRLF: they are not looked at. */
void http_answer_lines(struct http_exchange *exchange, struct span lines);

/* Closes the connection once this answer is written. Before http_answer_end(). */
void http_answer_close(struct http_exchange *exchange);

/* A stream (SSE): headers go out at once, then pieces as they come, until either side ends.
 * `on_gone` is called once when the client went away or the server stops; then the exchange is
 * gone too, and nothing more may be written. http_stream_end() ends it from our side (no
 * on_gone). A piece that finds more than 128 KiB unsent ends the stream: a reader that does not
 * read. http_answer_header() may be called between begin and stream_start. */
void http_stream_start(struct http_exchange *exchange, void (*on_gone)(void *context),
                       void *context);
void http_stream_write(struct http_exchange *exchange, struct span piece);
void http_stream_end(struct http_exchange *exchange);

/* For a stream that has an end of its own: when the server stops before, it is broken off. */
void http_stream_must_finish(struct http_exchange *exchange);

/* Ends it so that the client notices that something is missing. `on_gone` follows. */
void http_stream_break(struct http_exchange *exchange);

/* How much of what was written the client has not taken yet, with whatever else goes to it. */
size_t http_stream_unsent(const struct http_exchange *exchange);

/* True when the client has gone: the answer will be dropped. */
bool http_exchange_gone(const struct http_exchange *exchange);
const struct address *http_exchange_peer(const struct http_exchange *exchange);

/* Room for whoever handles the request to remember what the answer needs (request id,
 * origin flags); zeroed before the handler is called. */
struct http_exchange_notes {
    char request_id[64];       /* what X-Request-Id of the answer says */
    uint8_t request_id_length; /* 0: not set */
    uint8_t cors;              /* the handler's own */
    uint8_t held_code;         /* the handler's own */
    uint8_t queue;             /* the handler's own: where what blocks waits */
    uint8_t acts_for_many;     /* the handler's own: an admin or the shop's backend asks */
    uint8_t limited;           /* the handler's own, with the three below */
    uint32_t rate_limit;
    uint32_t rate_remaining;
    uint32_t rate_reset_s;
    int64_t started_ns;    /* monotonic, when the request was complete */
    const char *token;     /* the handler's own: what the caller may do rests on this */
    struct address client; /* the handler's own, with `token` */
};
struct http_exchange_notes *http_exchange_notes(struct http_exchange *exchange);
