/* context.h: what the handlers share: the API of one server and its part on one loop.
 *
 * Threads: struct api is written before the loops start and read by all; a struct api_loop belongs
 * to its loop's thread but for its counters (relaxed atomics) and what `lock` guards.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/json.h"
#include "base/metrics.h"
#include "claim/desk.h"
#include "claim/service.h"
#include "config/config.h"
#include "http/api/auth.h"
#include "http/pages/pages.h"
#include "http/server/limits.h"
#include "http/server/proxy.h"
#include "http/server/server.h"

#define CLAIM_BODY_MAX 4096
/* A page of a thousand policies with the longest names still fits. */
#define ANSWER_LENGTH_MAX ((size_t)16 * 1024 * 1024)
/* A slow reader may keep 128 KiB each before it is cut off; so much memory streams may take on a
 * loop at most. */
#define STREAMS_PER_LOOP_MAX 2000
/* Of these, those that only admins get; and those that strangers do not get. */
#define STREAMS_FOR_ADMINS 100
#define STREAMS_FOR_KNOWN  500
#define ORIGINS_MAX        200

#define RESPONSE_CLASSES   6 /* index 2 counts the 2xx */

/* Written by the loop's thread, read by whoever shows /metrics. */
struct api_counters {
    _Atomic uint64_t claims[CLAIM_RESULT_COUNT];
    _Atomic uint64_t responses[RESPONSE_CLASSES];
    _Atomic uint64_t rankings; /* questions for the best sellers */
    _Atomic uint64_t streams_open;
    _Atomic uint64_t streams_refused;
    struct histogram claim_ns;
};

/* Wrong codes and tokens; see ask.h. */
enum guess_kind { GUESS_CODE, GUESS_TOKEN, GUESS_KINDS };

struct guesses {
    struct rate_limiter *addresses;
    struct rate_limiter *all;
    _Atomic uint64_t wrong[GUESS_KINDS];
    _Atomic uint64_t throttled;
    _Atomic int64_t alarm_ns; /* when it was last raised; 0: never */
};

struct api_loop;
struct live;
struct live_loop;
struct metrics_page;
struct metrics_waiter;

struct api {
    struct service *service;
    const struct config *config;
    struct http_server *server;
    struct auth *_Atomic auth; /* the tokens as last read; older ones stay until the end */
    struct proxies proxies;
    struct rate_limiter *users;     /* NULL: off */
    struct rate_limiter *addresses; /* NULL: off */
    struct guesses guesses;
    struct per_address *streams; /* of each client */
    bool logs_requests;
    bool only_watched; /* nothing but /healthz, /readyz and /metrics; the loops have no desks */
    bool allows_any_origin; /* cors_origin is "*" */
    bool varies_by_origin;  /* cors_origin is a list: also who sends none must not share a cache */
    int64_t started_ms;
    struct asset_form openapi; /* the API's description */
    struct assets assets;      /* the pages' files; none when built without them */
    struct shop shop;          /* whose storefront it is */
    struct buffer storefront;  /* its page with the shop's own head; empty without one */
    struct live *live;         /* what is kept for those who watch */
    struct metrics_page *metrics;
    bool owns_metrics; /* else they are those of the API that it watches */

    unsigned loops_max;
    /* The loops that are open; the lock keeps one from closing while another reads its counters. */
    pthread_mutex_t loops_lock;
    struct api_loop **loops;
};

/* For the length of a request. */
static inline const struct auth *api_auth(const struct api *api)
{
    return atomic_load_explicit(&api->auth, memory_order_acquire);
}

struct call;
struct ranking_answer;

struct status_call;
struct winners_call;

/* A ranking that was sent, as bytes, under the query that asked for it. */
#define RANKING_QUERY_MAX 48
#define RANKING_PAGES     8
struct ranking_page {
    struct ranking_answer *answer; /* one of its holders is this; NULL: none */
    uint8_t query_length;
    char query[RANKING_QUERY_MAX];
    struct buffer body;
};

#define LOCAL_HOST_MAX 32

struct api_loop {
    struct api *api;
    struct http_loop *http;
    unsigned index;
    bool timer_runs;
    struct desk *desk;
    struct json_reader *reader;
    struct buffer body; /* scratch for the answer at hand */
    struct api_counters counters;
    struct live_loop *live;

    /* Ids made here: eight random bytes, then a count. */
    uint8_t id_prefix[8];
    char id_prefix_text[16];
    uint64_t id_count;

    /* The body of a claim, read through a table that is built once. */
    struct span claim_user;
    enum json_seen claim_user_seen;
    struct json_field claim_fields[1];

    /* The desk's wake-up call from other threads. */
    struct http_task wake_task;
    atomic_bool wake_posted;

    /* The Host that was last found to be this machine, so that it is not read again and again. */
    struct span local_host; /* points to the bytes below */
    char local_host_bytes[LOCAL_HOST_MAX];

    int64_t tick_ns;  /* monotonic time of this tick's answers */
    uv_timer_t timer; /* only makes ticks happen, while timer_runs */
    int64_t due_ms;   /* when those who wait are looked at again */

    /* Calls that are with a pool thread or on their way back. */
    pthread_mutex_t lock;
    bool closed;
    bool gathers; /* those below are kept until the end of the tick */
    struct call *calls;

    /* Calls that go to a pool thread at the end of this tick, in the order they came. */
    struct call *gathered;
    struct call **gathered_end;
    size_t gathered_count;

    /* Claims whose fate someone waits for. */
    struct status_call *parked;
    size_t parked_count;
    /* Downloads that wait until their client has taken more. */
    struct winners_call *downloads;
    size_t downloads_open;                       /* also those that do not wait */
    struct ranking_page rankings[RANKING_PAGES]; /* by a hash of the query */

    /* Requests that wait for /metrics; see metrics_page.c, whose lock guards the last three. */
    struct metrics_waiter *metrics_waiters;
    struct http_task metrics_task;
    bool metrics_posted;
    bool metrics_waits;
    struct api_loop *metrics_next;
};

/* Keeps the loop ticking every TICK_MS while something waits for time to pass. */
#define TICK_MS 50
void api_loop_keep_ticking(struct api_loop *loop);

/* Whether the server has been told to stop. */
bool api_stopping(const struct api *api);
