/* events.c: a policy's live numbers for everyone who watches, rendered once for all of them. */
#include <stdlib.h>

#include "http/call.h"
#include "http/handlers.h"
#include "http/per_address.h"
#include "http/render.h"
#include "http/reply.h"
#include "http/watchers.h"

#define NUMBERS_MS 250

/* One policy and those on this loop who watch it. */
struct policy_watch {
    struct watchers watchers; /* first: this is what on_empty gets */
    struct gate_numbers sent;
    struct policy_watch *next;
    struct policy_watch **place;
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
    static const uint64_t most[CLERK_QUEUES] = {
        [CLERK_STRANGERS] = STREAMS_PER_LOOP_MAX - STREAMS_FOR_KNOWN,
        [CLERK_KNOWN] = STREAMS_PER_LOOP_MAX - STREAMS_FOR_ADMINS,
        [CLERK_ADMINS] = STREAMS_PER_LOOP_MAX,
    };
    const struct http_exchange_notes *notes = http_exchange_notes(exchange);
    if (atomic_load_explicit(&loop->counters.streams_open, memory_order_relaxed) >=
        most[notes->queue]) {
        return refuse_stream(loop, exchange, "Too many streams are open on this server.");
    }
    *place = (struct stream_place){{{0}}};
    if (!notes->acts_for_many) {
        if (!per_address_enter(loop->api->streams, &notes->client)) {
            return refuse_stream(loop, exchange, "Too many streams are open from this address.");
        }
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

/* --- who watches what --- */

static struct policy_watch *find_watch(struct api_loop *loop, int64_t policy_id)
{
    struct policy_watch *watch = loop->watches;
    while (watch != NULL && watch->sent.policy_id != policy_id) {
        watch = watch->next;
    }
    return watch;
}

static void free_watch(struct watchers *watchers)
{
    struct policy_watch *watch = (struct policy_watch *)(void *)watchers;
    *watch->place = watch->next;
    if (watch->next != NULL) {
        watch->next->place = watch->place;
    }
    watchers_release(watchers);
    free(watch);
}

static struct policy_watch *add_watch(struct api_loop *loop, const struct gate_numbers *numbers)
{
    struct policy_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) {
        return NULL;
    }
    watchers_init(&watch->watchers, loop, free_watch);
    watch->sent = *numbers;
    watch->next = loop->watches;
    watch->place = &loop->watches;
    if (watch->next != NULL) {
        watch->next->place = &watch->next;
    }
    loop->watches = watch;
    return watch;
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

static void send_numbers(struct policy_watch *watch, int64_t period_ms, int64_t now_ms)
{
    struct api_loop *loop = watch->watchers.loop;
    struct gate_numbers numbers;
    if (gate_count(service_gate(loop->api->service), watch->sent.policy_id,
                   http_loop_wall_ms(loop->http), &numbers) == STATUS_OK &&
        !numbers_equal(&numbers, &watch->sent)) {
        watch->sent = numbers;
        watchers_send(&watch->watchers, render_event(loop, &numbers), period_ms, now_ms);
    } else {
        watchers_tick(&watch->watchers, now_ms);
    }
}

void events_tick(struct api_loop *loop, int64_t now_ms)
{
    bool is_due = loop->watches != NULL && now_ms >= loop->numbers_due_ms;
    int64_t period_ms = watchers_period_ms(loop, NUMBERS_MS);
    if (is_due) {
        loop->numbers_due_ms = now_ms + period_ms;
    }
    for (struct policy_watch *watch = loop->watches; watch != NULL; watch = watch->next) {
        if (is_due) {
            send_numbers(watch, period_ms, now_ms);
        } else {
            watchers_tick(&watch->watchers, now_ms);
        }
    }
}

void events_loop_close(struct api_loop *loop)
{
    struct policy_watch *next;
    for (struct policy_watch *watch = loop->watches; watch != NULL; watch = next) {
        next = watch->next;
        watchers_release(&watch->watchers);
        free(watch);
    }
    loop->watches = NULL;
}

static void start_watching(struct api_loop *loop, struct http_exchange *exchange,
                           const struct gate_numbers *numbers)
{
    struct policy_watch *watch = find_watch(loop, numbers->policy_id);
    if (watch == NULL) {
        watch = add_watch(loop, numbers);
    }
    if (watch == NULL) {
        reply_problem(loop, exchange, PROBLEM_UNAVAILABLE);
        return;
    }
    /* What the others saw last, so that all of them hear of the next change. */
    if (!watchers_add(&watch->watchers, exchange, render_event(loop, &watch->sent)) &&
        watch->watchers.first == NULL) {
        free_watch(&watch->watchers);
    }
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
    if (!ask_identify(ask) || !ask_policy_id(ask, 0, &policy_id) || !ask_no_query(ask)) {
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
