/* watchers.c: lists of streams and what they are being sent; GET /v1/policies/{id}/events, a
 * policy's live numbers for everyone, rendered once for all of them. */
#include <stdlib.h>

#include "base/clock.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"
#include "http/live/live.h"

#define HEARTBEAT_MS 10000
/* So many are written to in one tick without a thought. */
#define AT_ONCE 50
/* A write is some ten microseconds in the kernel: this is one or two hundredths of a core. */
#define WRITES_PER_SECOND 1000

struct watcher {
    struct watchers *watchers;
    struct http_exchange *exchange;
    struct stream_place place_taken;
    LIST_ENTRY(watcher) link;
};

/* --- places --- */

static bool refuse_stream(struct api_loop *loop, struct http_exchange *exchange, const char *words)
{
    counter_add(&loop->counters.streams_refused, 1);
    reply_problem_about(loop, exchange, PROBLEM_UNAVAILABLE, words, NULL);
    return false;
}

bool events_begin(struct api_loop *loop, struct http_exchange *exchange, struct stream_place *place)
{
    static const uint64_t most[POOL_QUEUES] = {
        [POOL_STRANGERS] = STREAMS_PER_LOOP_MAX - STREAMS_FOR_KNOWN,
        [POOL_KNOWN] = STREAMS_PER_LOOP_MAX - STREAMS_FOR_ADMINS,
        [POOL_ADMINS] = STREAMS_PER_LOOP_MAX,
    };
    const struct http_exchange_notes *notes = http_exchange_notes(exchange);
    if (atomic_load_explicit(&loop->counters.streams_open, memory_order_relaxed) >=
        most[notes->queue])
        return refuse_stream(loop, exchange, "Too many streams are open on this server.");
    *place = (struct stream_place){{{0}}};
    if (!notes->acts_for_many) {
        if (!per_address_enter(loop->api->streams, &notes->client))
            return refuse_stream(loop, exchange, "Too many streams are open from this address.");
        place->client = notes->client;
    }
    counter_add(&loop->counters.streams_open, 1);
    reply_begin(loop, exchange, 200, SPAN("text/event-stream"));
    /* Proxies that gather an answer before they pass it on would defeat the purpose. */
    http_answer_header(exchange, SPAN("X-Accel-Buffering"), SPAN("no"));
    return true;
}

void events_end(struct api_loop *loop, const struct stream_place *place)
{
    counter_subtract(&loop->counters.streams_open, 1);
    per_address_leave(loop->api->streams, &place->client);
}

/* --- watchers --- */

void watchers_init(struct watchers *watchers, struct api_loop *loop,
                   void (*on_empty)(struct watchers *watchers))
{
    *watchers = (struct watchers){.loop = loop, .on_empty = on_empty};
    buffer_init(&watchers->piece, ANSWER_LENGTH_MAX);
}

static void forget(struct watcher *watcher)
{
    struct watchers *watchers = watcher->watchers;
    if (watchers->position == watcher)
        watchers->position = LIST_NEXT(watcher, link);
    LIST_REMOVE(watcher, link);
    watchers->count--;
    events_end(watchers->loop, &watcher->place_taken);
    free(watcher);
}

void watchers_release(struct watchers *watchers)
{
    while (!LIST_EMPTY(&watchers->list)) {
        struct watcher *watcher = LIST_FIRST(&watchers->list);
        http_stream_end(watcher->exchange); /* NOLINT(*Malloc): it is in the list */
        forget(watcher);
    }
    buffer_release(&watchers->piece);
}

static void on_gone(void *context)
{
    struct watcher *watcher = context;
    struct watchers *watchers = watcher->watchers;
    forget(watcher);
    if (LIST_EMPTY(&watchers->list))
        watchers->on_empty(watchers);
}

bool watchers_add(struct watchers *watchers, struct http_exchange *exchange, struct span piece)
{
    struct watcher *watcher = calloc(1, sizeof(*watcher));
    if (watcher == NULL) {
        reply_problem(watchers->loop, exchange, PROBLEM_UNAVAILABLE);
        return false;
    }
    if (!events_begin(watchers->loop, exchange, &watcher->place_taken)) {
        free(watcher);
        return false;
    }
    if (LIST_EMPTY(&watchers->list))
        watchers->heartbeat_due_ms = clock_monotonic_ms() + HEARTBEAT_MS;
    watcher->watchers = watchers;
    watcher->exchange = exchange;
    /* In front: behind whoever gets the piece next it would be told what it is told now. */
    LIST_INSERT_HEAD(&watchers->list, watcher, link);
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
        watcher = LIST_NEXT(watcher, link);
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
    if (watchers->piece.overflowed)
        return;
    size_t ticks = (size_t)(period_ms / TICK_MS);
    size_t share = ticks > 0 ? (watchers->count + ticks - 1) / ticks : watchers->count;
    watchers->per_tick = share > AT_ONCE ? share : AT_ONCE;
    watchers->position = LIST_FIRST(&watchers->list);
    watchers->heartbeat_due_ms = now_ms + HEARTBEAT_MS;
    send_to(watchers, watchers->per_tick);
}

void watchers_tick(struct watchers *watchers, int64_t now_ms)
{
    if (watchers->position != NULL)
        send_to(watchers, watchers->per_tick);
    else if (now_ms >= watchers->heartbeat_due_ms)
        watchers_send(watchers, SPAN(":\n\n"), HEARTBEAT_MS, now_ms);
}

/* --- those who watch one policy --- */

struct watch *watches_find(const struct watches *watches, int64_t policy_id)
{
    struct watch *watch = LIST_FIRST(&watches->list);
    while (watch != NULL && watch->sent.policy_id != policy_id)
        watch = LIST_NEXT(watch, link);
    return watch;
}

static void watch_free(struct watchers *watchers)
{
    struct watch *watch = (struct watch *)(void *)watchers;
    LIST_REMOVE(watch, link);
    watchers_release(watchers);
    if (watch->release != NULL)
        watch->release(watch);
    free(watch);
}

void *watches_add(struct watches *watches, struct api_loop *loop,
                  const struct gate_numbers *numbers, size_t size)
{
    struct watch *watch = calloc(1, size);
    if (watch == NULL)
        return NULL;
    watchers_init(&watch->watchers, loop, watch_free);
    watch->sent = *numbers;
    LIST_INSERT_HEAD(&watches->list, watch, link);
    return watch;
}

void watch_join(struct watch *watch, struct http_exchange *exchange, struct span piece)
{
    if (!watchers_add(&watch->watchers, exchange, piece) && LIST_EMPTY(&watch->watchers.list))
        watch_free(&watch->watchers);
}

void watches_tick(struct watches *watches, struct api_loop *loop, int64_t now_ms,
                  void (*send)(struct watch *watch, int64_t period_ms, int64_t now_ms))
{
    bool is_due = now_ms >= watches->due_ms;
    int64_t period_ms = watchers_period_ms(loop, WATCH_MS);
    if (is_due)
        watches->due_ms = now_ms + period_ms;
    struct watch *watch = LIST_FIRST(&watches->list);
    for (; watch != NULL; watch = LIST_NEXT(watch, link))
        if (is_due)
            send(watch, period_ms, now_ms);
        else
            watchers_tick(&watch->watchers, now_ms);
}

void watches_close(struct watches *watches)
{
    while (!LIST_EMPTY(&watches->list))
        watch_free(&LIST_FIRST(&watches->list)->watchers);
}

/* --- a policy's numbers for everyone --- */

static struct span render_event(struct api_loop *loop, const struct gate_numbers *numbers)
{
    struct buffer *piece = &loop->body;
    buffer_clear(piece);
    buffer_append_literal(piece, "event: numbers\ndata: ");
    render_numbers(piece, numbers, http_loop_wall_ms(loop->http));
    buffer_append_literal(piece, "\n\n");
    return (struct span){piece->bytes, piece->length};
}

static void send_numbers(struct watch *watch, int64_t period_ms, int64_t now_ms)
{
    struct api_loop *loop = watch->watchers.loop;
    struct gate_numbers numbers;
    if (gate_count(service_gate(loop->api->service), watch->sent.policy_id,
                   http_loop_wall_ms(loop->http), &numbers) == STATUS_OK &&
        !live_numbers_equal(&numbers, &watch->sent)) {
        watch->sent = numbers;
        watchers_send(&watch->watchers, render_event(loop, &numbers), period_ms, now_ms);
    } else {
        watchers_tick(&watch->watchers, now_ms);
    }
}

void live_events_tick(struct api_loop *loop, int64_t now_ms)
{
    watches_tick(&loop->live->events, loop, now_ms, send_numbers);
}

static void start_watching(struct api_loop *loop, struct http_exchange *exchange,
                           const struct gate_numbers *numbers)
{
    struct watch *watch = watches_find(&loop->live->events, numbers->policy_id);
    if (watch == NULL)
        watch = watches_add(&loop->live->events, loop, numbers, sizeof(*watch));
    /* What the others saw last, so that all of them hear of the next change. */
    if (watch != NULL)
        watch_join(watch, exchange, render_event(loop, &watch->sent));
    else
        reply_problem(loop, exchange, PROBLEM_UNAVAILABLE);
}

/* A policy that this process has not heard of yet. */
static void work_refresh(struct call *call, struct service *service)
{
    service_observe(service, call->policy_id);
}

static enum status count_policy(struct api_loop *loop, int64_t policy_id,
                                struct gate_numbers *numbers)
{
    return gate_count(service_gate(loop->api->service), policy_id, http_loop_wall_ms(loop->http),
                      numbers);
}

static void answer_refresh(struct call *call)
{
    struct gate_numbers numbers;
    enum status status = count_policy(call->loop, call->policy_id, &numbers);
    if (status == STATUS_OK)
        start_watching(call->loop, call->exchange, &numbers);
    else
        reply_problem(call->loop, call->exchange,
                      status == STATUS_NOT_FOUND ? PROBLEM_POLICY_NOT_FOUND : PROBLEM_UNAVAILABLE);
    call_free(call);
}

/* GET /v1/policies/{id}/events */
void events_policy(struct ask *ask)
{
    struct gate_numbers numbers;
    if (count_policy(ask->loop, ask->policy_id, &numbers) == STATUS_OK) {
        start_watching(ask->loop, ask->exchange, &numbers);
        return;
    }
    struct call *call = call_new(ask, sizeof(*call), work_refresh);
    if (call != NULL) {
        call->answer = answer_refresh;
        call_submit_or_refuse(call);
    }
}
