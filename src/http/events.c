/* events.c: a policy's live numbers for everyone who watches, rendered once for all of them. */
#include <stdlib.h>

#include "base/clock.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/render.h"
#include "http/reply.h"

#define NUMBERS_MS   250
#define HEARTBEAT_MS 10000

struct watcher {
    struct policy_watch *watch;
    struct http_exchange *exchange;
    struct watcher *next;
    struct watcher **place;
};

/* One policy and those on this loop who watch it. */
struct policy_watch {
    struct api_loop *loop;
    struct gate_numbers sent;
    struct watcher *watchers;
    struct policy_watch *next;
    struct policy_watch **place;
};

bool events_begin(struct api_loop *loop, struct http_exchange *exchange)
{
    if (atomic_load_explicit(&loop->counters.streams_open, memory_order_relaxed) >=
        STREAMS_PER_LOOP_MAX) {
        reply_problem_about(loop, exchange, PROBLEM_UNAVAILABLE,
                            "Too many streams are open on this server.", NULL);
        return false;
    }
    counter_add(&loop->counters.streams_open, 1);
    reply_begin(loop, exchange, 200, SPAN("text/event-stream"));
    /* Proxies that gather an answer before they pass it on would defeat the purpose. */
    http_answer_header(exchange, SPAN("X-Accel-Buffering"), SPAN("no"));
    return true;
}

/* --- who watches what --- */

static struct policy_watch *find_watch(struct api_loop *loop, int64_t policy_id)
{
    struct policy_watch *watch = loop->watches;
    while (watch != NULL && watch->sent.policy_id != policy_id) {
        watch = watch->next;
    }
    return watch;
}

static struct policy_watch *add_watch(struct api_loop *loop, const struct gate_numbers *numbers)
{
    struct policy_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) {
        return NULL;
    }
    watch->loop = loop;
    watch->sent = *numbers;
    watch->next = loop->watches;
    watch->place = &loop->watches;
    if (watch->next != NULL) {
        watch->next->place = &watch->next;
    }
    loop->watches = watch;
    return watch;
}

static void free_watch(struct policy_watch *watch)
{
    *watch->place = watch->next;
    if (watch->next != NULL) {
        watch->next->place = watch->place;
    }
    free(watch);
}

static void add_watcher(struct policy_watch *watch, struct watcher *watcher)
{
    watcher->watch = watch;
    watcher->next = watch->watchers;
    watcher->place = &watch->watchers;
    if (watcher->next != NULL) {
        watcher->next->place = &watcher->next;
    }
    watch->watchers = watcher;
}

static void free_watcher(struct watcher *watcher)
{
    struct policy_watch *watch = watcher->watch;
    *watcher->place = watcher->next;
    if (watcher->next != NULL) {
        watcher->next->place = watcher->place;
    }
    counter_subtract(&watch->loop->counters.streams_open, 1);
    free(watcher);
    if (watch->watchers == NULL) {
        free_watch(watch);
    }
}

static void watcher_gone(void *context)
{
    free_watcher(context);
}

/* --- what they see --- */

static bool numbers_equal(const struct gate_numbers *a, const struct gate_numbers *b)
{
    return a->total == b->total && a->remaining == b->remaining && a->pending == b->pending &&
           a->issued == b->issued && a->state == b->state && a->paused == b->paused &&
           a->opens_at_ms == b->opens_at_ms && a->closes_at_ms == b->closes_at_ms &&
           a->sold_out_at_ms == b->sold_out_at_ms;
}

static struct span render_event(struct api_loop *loop, const struct gate_numbers *numbers)
{
    struct buffer *piece = &loop->body;
    buffer_clear(piece);
    buffer_append_literal(piece, "event: numbers\ndata: ");
    render_numbers(piece, numbers, http_loop_wall_ms(loop->http));
    buffer_append_literal(piece, "\n\n");
    return (struct span){piece->bytes, piece->length};
}

static void write_to_all(const struct policy_watch *watch, struct span piece)
{
    for (struct watcher *watcher = watch->watchers; watcher != NULL; watcher = watcher->next) {
        http_stream_write(watcher->exchange, piece);
    }
}

static void send_numbers(struct api_loop *loop)
{
    struct gate *gate = service_gate(loop->api->service);
    int64_t wall_ms = http_loop_wall_ms(loop->http);
    for (struct policy_watch *watch = loop->watches; watch != NULL; watch = watch->next) {
        struct gate_numbers numbers;
        if (gate_count(gate, watch->sent.policy_id, wall_ms, &numbers) == STATUS_OK &&
            !numbers_equal(&numbers, &watch->sent)) {
            watch->sent = numbers;
            write_to_all(watch, render_event(loop, &numbers));
        }
    }
}

void events_tick(struct api_loop *loop, int64_t now_ms)
{
    if (loop->watches == NULL) {
        return;
    }
    if (now_ms >= loop->numbers_due_ms) {
        loop->numbers_due_ms = now_ms + NUMBERS_MS;
        send_numbers(loop);
    }
    if (now_ms >= loop->heartbeat_due_ms) {
        loop->heartbeat_due_ms = now_ms + HEARTBEAT_MS;
        for (struct policy_watch *watch = loop->watches; watch != NULL; watch = watch->next) {
            write_to_all(watch, SPAN(":\n\n"));
        }
    }
}

void events_loop_close(struct api_loop *loop)
{
    struct policy_watch *next_watch;
    for (struct policy_watch *watch = loop->watches; watch != NULL; watch = next_watch) {
        next_watch = watch->next;
        struct watcher *next;
        for (struct watcher *watcher = watch->watchers; watcher != NULL; watcher = next) {
            next = watcher->next;
            http_stream_end(watcher->exchange);
            counter_subtract(&loop->counters.streams_open, 1);
            free(watcher);
        }
        free(watch);
    }
    loop->watches = NULL;
}

static void start_watching(struct api_loop *loop, struct http_exchange *exchange,
                           const struct gate_numbers *numbers)
{
    struct watcher *watcher = calloc(1, sizeof *watcher);
    struct policy_watch *watch = find_watch(loop, numbers->policy_id);
    bool watched_before = watch != NULL;
    if (watcher != NULL && watch == NULL) {
        if (loop->watches == NULL) {
            loop->heartbeat_due_ms = clock_monotonic_ms() + HEARTBEAT_MS;
        }
        watch = add_watch(loop, numbers);
    }
    if (watcher == NULL || watch == NULL) {
        free(watcher);
        reply_problem(loop, exchange, PROBLEM_UNAVAILABLE);
        return;
    }
    if (!events_begin(loop, exchange)) {
        free(watcher);
        if (!watched_before) {
            free_watch(watch);
        }
        return;
    }
    watcher->exchange = exchange;
    add_watcher(watch, watcher);
    http_stream_start(exchange, watcher_gone, watcher);
    /* What the others saw last, so that all of them hear of the next change. */
    http_stream_write(exchange, render_event(loop, &watch->sent));
    api_loop_keep_ticking(loop);
}

/* A policy that this process has not heard of yet. */
struct events_call {
    struct call call;
    int64_t policy_id;
};

static void work_look(struct call *call, struct service *service)
{
    struct events_call *self = (struct events_call *)(void *)call;
    struct error error;
    (void)!gate_look(service_gate(service), self->policy_id, &error);
}

static bool count_policy(struct api_loop *loop, int64_t policy_id, struct gate_numbers *numbers)
{
    return gate_count(service_gate(loop->api->service), policy_id, http_loop_wall_ms(loop->http),
                      numbers) == STATUS_OK;
}

static void answer_look(struct call *call)
{
    struct events_call *self = (struct events_call *)(void *)call;
    struct gate_numbers numbers;
    if (count_policy(call->loop, self->policy_id, &numbers)) {
        start_watching(call->loop, call->exchange, &numbers);
    } else {
        reply_problem(call->loop, call->exchange, PROBLEM_POLICY_NOT_FOUND);
    }
    call_free(call);
}

/* GET /v1/policies/{id}/events */
void events_policy(struct ask *ask)
{
    struct api_loop *loop = ask->loop;
    struct gate_numbers numbers;
    int64_t policy_id;
    if (!ask_policy_id(ask, 0, &policy_id) || !ask_no_query(ask)) {
        return;
    }
    if (count_policy(loop, policy_id, &numbers)) {
        start_watching(loop, ask->exchange, &numbers);
        return;
    }
    struct events_call *call = call_new(loop, ask->exchange, sizeof *call, work_look);
    if (call != NULL) {
        call->policy_id = policy_id;
        call->call.answer = answer_look;
        call_submit_or_refuse(&call->call);
    }
}
