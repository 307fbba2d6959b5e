/* watchers.c: a list of streams and what they are being sent. */
#include "http/watchers.h"

#include <stdlib.h>

#include "base/clock.h"
#include "http/handlers.h"
#include "http/reply.h"

#define HEARTBEAT_MS 10000
/* So many are written to in one tick without a thought. */
#define AT_ONCE 50
/* A write is some ten microseconds in the kernel: this is one or two hundredths of a core. */
#define WRITES_PER_SECOND 1000

struct watcher {
    struct watchers *watchers;
    struct http_exchange *exchange;
    struct stream_place place_taken;
    struct watcher *next;
    struct watcher **place;
};

void watchers_init(struct watchers *watchers, struct api_loop *loop,
                   void (*on_empty)(struct watchers *watchers))
{
    *watchers = (struct watchers){.loop = loop, .on_empty = on_empty};
    buffer_init(&watchers->piece, ANSWER_LENGTH_MAX);
}

static void forget(struct watcher *watcher)
{
    struct watchers *watchers = watcher->watchers;
    if (watchers->position == watcher) {
        watchers->position = watcher->next;
    }
    *watcher->place = watcher->next;
    if (watcher->next != NULL) {
        watcher->next->place = watcher->place;
    }
    watchers->count--;
    events_end(watchers->loop, &watcher->place_taken);
    free(watcher);
}

void watchers_release(struct watchers *watchers)
{
    struct watcher *next;
    for (struct watcher *watcher = watchers->first; watcher != NULL; watcher = next) {
        next = watcher->next;
        http_stream_end(watcher->exchange);
        events_end(watchers->loop, &watcher->place_taken);
        free(watcher);
    }
    watchers->first = NULL;
    watchers->position = NULL;
    watchers->count = 0;
    buffer_release(&watchers->piece);
}

static void on_gone(void *context)
{
    struct watcher *watcher = context;
    struct watchers *watchers = watcher->watchers;
    forget(watcher);
    if (watchers->first == NULL) {
        watchers->on_empty(watchers);
    }
}

bool watchers_add(struct watchers *watchers, struct http_exchange *exchange, struct span piece)
{
    struct watcher *watcher = calloc(1, sizeof *watcher);
    if (watcher == NULL) {
        reply_problem(watchers->loop, exchange, PROBLEM_UNAVAILABLE);
        return false;
    }
    if (!events_begin(watchers->loop, exchange, &watcher->place_taken)) {
        free(watcher);
        return false;
    }
    if (watchers->first == NULL) {
        watchers->heartbeat_due_ms = clock_monotonic_ms() + HEARTBEAT_MS;
    }
    watcher->watchers = watchers;
    watcher->exchange = exchange;
    /* In front: behind whoever gets the piece next it would be told what it is told now. */
    watcher->next = watchers->first;
    watcher->place = &watchers->first;
    if (watcher->next != NULL) {
        watcher->next->place = &watcher->next;
    }
    watchers->first = watcher;
    watchers->count++;
    http_stream_start(exchange, on_gone, watcher);
    http_stream_write(exchange, piece);
    api_loop_keep_ticking(watchers->loop);
    return true;
}

static void send_to(struct watchers *watchers, size_t count)
{
    struct span piece = {watchers->piece.bytes, watchers->piece.length};
    struct watcher *watcher = watchers->position;
    for (; watcher != NULL && count > 0; count--) {
        http_stream_write(watcher->exchange, piece);
        watcher = watcher->next;
    }
    watchers->position = watcher;
}

int64_t watchers_period_ms(const struct api_loop *loop, int64_t least_ms)
{
    uint64_t streams = atomic_load_explicit(&loop->counters.streams_open, memory_order_relaxed);
    int64_t wanted_ms = (int64_t)(streams * 1000 / WRITES_PER_SECOND);
    return wanted_ms > least_ms ? wanted_ms : least_ms;
}

void watchers_send(struct watchers *watchers, struct span piece, int64_t period_ms, int64_t now_ms)
{
    send_to(watchers, SIZE_MAX);
    buffer_clear(&watchers->piece);
    buffer_append_span(&watchers->piece, piece);
    if (watchers->piece.overflowed) {
        return;
    }
    size_t ticks = (size_t)(period_ms / TICK_MS);
    size_t share = ticks > 0 ? (watchers->count + ticks - 1) / ticks : watchers->count;
    watchers->per_tick = share > AT_ONCE ? share : AT_ONCE;
    watchers->position = watchers->first;
    watchers->heartbeat_due_ms = now_ms + HEARTBEAT_MS;
    send_to(watchers, watchers->per_tick);
}

void watchers_tick(struct watchers *watchers, int64_t now_ms)
{
    if (watchers->position != NULL) {
        send_to(watchers, watchers->per_tick);
    } else if (now_ms >= watchers->heartbeat_due_ms) {
        watchers_send(watchers, SPAN(":\n\n"), HEARTBEAT_MS, now_ms);
    }
}
