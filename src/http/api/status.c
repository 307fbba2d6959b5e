/* status.c: what became of a user's claims: at once, when it is final (?wait=), or as events.
 *
 * Whoever waits is parked on the loop and asks the service again when the ledger has moved on, or
 * after a second when another process has written claims of the policy, or after five in any case;
 * never in a busy loop, and the less often the more of them wait. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"

#define WAIT_MAX_S    60
#define ASK_AGAIN_MS  1000
#define ASK_ANYHOW_MS 5000
#define HEARTBEAT_MS  10000
/* So many times a second those of one loop ask, all together. */
#define ASKS_PER_SECOND 500
/* Most people have one claim; whoever fills these is asked for again with room for all. */
#define CLAIMS_AT_FIRST 8

struct status_call {
    struct call call;
    bool is_stream;
    bool stream_started;
    bool stream_gone;
    struct stream_place stream_place;
    int64_t wait_until_ms; /* monotonic; 0: does not wait */
    int64_t heartbeat_due_ms;
    uint64_t sent_hash; /* of the last event */

    /* Written by `work`. */
    bool pending;
    uint64_t durable_seen; /* how far the ledger was when this was asked */
    int64_t asked_ms;
    int64_t issued_seen; /* of the policy */
    int64_t pending_seen;

    struct status_call *next;
    struct status_call **place; /* NULL: not parked */
};

/* --- on a pool thread --- */

static void answer_no_claim(struct call *call, const struct gate_numbers *numbers)
{
    call->is_problem = true;
    call->problem = PROBLEM_NO_CLAIM;
    buffer_clear(&call->body);
    problem_begin(&call->body, PROBLEM_NO_CLAIM, SPAN("This user holds no claim of this policy."));
    json_put(&call->body, "policy_state", policy_state_name(numbers->state));
    if (numbers->sold_out_at_ms != 0)
        json_put_time(&call->body, "sold_out_at", numbers->sold_out_at_ms);
    buffer_append_literal(&call->body, "}");
}

static void work_status(struct call *call, struct service *service)
{
    struct status_call *self = (struct status_call *)(void *)call;
    struct claim_status few[CLAIMS_AT_FIRST];
    struct claim_status *claims = few;
    struct claim_status *many = NULL;
    struct gate_numbers numbers;
    struct error error;
    size_t count = 0;
    self->durable_seen = ledger_durable(service_ledger(service));
    self->asked_ms = clock_monotonic_ms();
    enum status status = service_claims_of(service, call->policy_id, &call->id, few,
                                           CLAIMS_AT_FIRST, &count, &numbers, &error);
    if (status == STATUS_OK && count >= CLAIMS_AT_FIRST) {
        many = malloc(CLAIMS_OF_USER_MAX * sizeof(*many));
        if (many == NULL) {
            status = error_set(&error, STATUS_UNAVAILABLE, "out of memory");
        } else {
            claims = many;
            status = service_claims_of(service, call->policy_id, &call->id, many,
                                       CLAIMS_OF_USER_MAX, &count, &numbers, &error);
        }
    }
    self->pending = status == STATUS_OK && count > 0 && claims[0].pending;
    self->issued_seen = status == STATUS_OK ? numbers.issued : -1;
    self->pending_seen = status == STATUS_OK ? numbers.pending : -1;
    if (call_is_done(call, status, &error, PROBLEM_POLICY_NOT_FOUND) && count == 0) {
        answer_no_claim(call, &numbers);
    } else if (status == STATUS_OK) {
        count = count < CLAIMS_OF_USER_MAX ? count : CLAIMS_OF_USER_MAX;
        render_claim_status(call_json(call, 200), service, claims, count, clock_wall_ms(),
                            CODE_SHOWN);
    }
    free(many);
}

/* --- parked on the loop --- */

static void park(struct status_call *self)
{
    struct api_loop *loop = self->call.loop;
    self->next = loop->parked;
    self->place = &loop->parked;
    if (self->next != NULL)
        self->next->place = &self->next;
    loop->parked = self;
    loop->parked_count++;
    api_loop_keep_ticking(loop);
}

static void unpark(struct status_call *self)
{
    *self->place = self->next;
    if (self->next != NULL)
        self->next->place = self->place;
    self->place = NULL;
    self->call.loop->parked_count--;
}

/* Whether any claim of the policy was issued or came to nothing since this was asked; another
 * process may have done it. */
static bool has_moved(const struct status_call *self)
{
    struct api_loop *loop = self->call.loop;
    struct gate_numbers numbers;
    return gate_count(service_gate(loop->api->service), self->call.policy_id,
                      http_loop_wall_ms(loop->http), &numbers) != STATUS_OK ||
           numbers.issued != self->issued_seen || numbers.pending != self->pending_seen;
}

static bool worth_asking(const struct status_call *self, uint64_t durable, int64_t now_ms)
{
    int64_t age_ms = now_ms - self->asked_ms;
    int64_t turn_ms = (int64_t)self->call.loop->parked_count * 1000 / ASKS_PER_SECOND;
    if (age_ms < turn_ms)
        return false;
    return durable != self->durable_seen || age_ms >= ASK_ANYHOW_MS ||
           (age_ms >= ASK_AGAIN_MS && has_moved(self));
}

static void tick_waiter(struct status_call *self, uint64_t durable, int64_t now_ms)
{
    struct call *call = &self->call;
    bool over = now_ms >= self->wait_until_ms || api_stopping(call->loop->api) ||
                http_exchange_gone(call->exchange);
    if (over) {
        unpark(self);
        call_answer(call);
    } else if (worth_asking(self, durable, now_ms)) {
        unpark(self);
        if (!call_submit(call))
            park(self);
    }
}

static void tick_stream(struct status_call *self, uint64_t durable, int64_t now_ms)
{
    if (now_ms >= self->heartbeat_due_ms) {
        self->heartbeat_due_ms = now_ms + HEARTBEAT_MS;
        http_stream_write(self->call.exchange, SPAN(":\n\n"));
    }
    if (worth_asking(self, durable, now_ms)) {
        unpark(self);
        if (!call_submit(&self->call))
            park(self);
    }
}

void status_tick(struct api_loop *loop, int64_t now_ms)
{
    if (loop->parked == NULL)
        return;
    uint64_t durable = ledger_durable(service_ledger(loop->api->service));
    struct status_call *next;
    for (struct status_call *self = loop->parked; self != NULL; self = next) {
        next = self->next;
        if (self->is_stream)
            tick_stream(self, durable, now_ms);
        else
            tick_waiter(self, durable, now_ms);
    }
}

/* Nobody will be there to hear that the client has gone. */
static void abandon_stream(struct call *call)
{
    struct status_call *self = (struct status_call *)(void *)call;
    if (self->stream_started && !self->stream_gone) {
        http_stream_end(call->exchange);
        events_end(call->loop, &self->stream_place);
    }
}

void status_loop_close(struct api_loop *loop)
{
    while (loop->parked != NULL) {
        struct status_call *self = loop->parked;
        unpark(self);
        abandon_stream(&self->call);
        call_free(&self->call);
    }
}

/* --- answers --- */

static void answer_status(struct call *call)
{
    struct status_call *self = (struct status_call *)(void *)call;
    bool waits = self->pending && clock_monotonic_ms() < self->wait_until_ms &&
                 !api_stopping(call->loop->api) && !http_exchange_gone(call->exchange);
    if (waits)
        park(self);
    else
        call_answer(call);
}

/* The client has gone: what is parked ends here, what is with a pool thread when it comes back. */
static void stream_gone(void *context)
{
    struct status_call *self = context;
    self->stream_gone = true;
    events_end(self->call.loop, &self->stream_place);
    if (self->place != NULL) {
        unpark(self);
        call_free(&self->call);
    }
}

static bool start_stream(struct status_call *self)
{
    struct call *call = &self->call;
    if (!events_begin(call->loop, call->exchange, &self->stream_place))
        return false;
    self->stream_started = true;
    self->heartbeat_due_ms = clock_monotonic_ms() + HEARTBEAT_MS;
    http_stream_start(call->exchange, stream_gone, self);
    return true;
}

static void send_event(struct status_call *self)
{
    struct call *call = &self->call;
    struct buffer *piece = &call->loop->body;
    uint64_t hash = hash_mac((struct hash_key){0, 0}, call->body.bytes, call->body.length);
    if (hash == self->sent_hash)
        return;
    self->sent_hash = hash;
    buffer_clear(piece);
    buffer_append_literal(piece, "event: status\ndata: ");
    buffer_append(piece, call->body.bytes, call->body.length);
    buffer_append_literal(piece, "\n\n");
    http_stream_write(call->exchange, (struct span){piece->bytes, piece->length});
}

static void answer_stream(struct call *call)
{
    struct status_call *self = (struct status_call *)(void *)call;
    if (self->stream_gone) {
        call_free(call);
        return;
    }
    if (call->is_problem && !self->stream_started) {
        call_answer(call);
        return;
    }
    if (!self->stream_started && !start_stream(self)) {
        call_free(call);
        return;
    }
    /* A problem in the middle is one of the moment: it is asked again. */
    if (!call->is_problem)
        send_event(self);
    if (self->pending || call->is_problem) {
        park(self);
        return;
    }
    http_stream_end(call->exchange);
    events_end(call->loop, &self->stream_place);
    call_free(call);
}

/* --- handlers --- */

void status_get(struct ask *ask)
{
    struct query_param wait = {.name = "wait"};
    int64_t wait_s;
    if (!ask_query(ask, &wait, 1) || !ask_number(ask, &wait, 0, WAIT_MAX_S, 0, &wait_s))
        return;
    struct status_call *self = call_new(ask, sizeof(*self), work_status);
    if (self != NULL) {
        self->call.answer = answer_status;
        self->wait_until_ms = wait_s == 0 ? 0 : clock_monotonic_ms() + wait_s * 1000;
        call_gather(&self->call);
    }
}

void status_events(struct ask *ask)
{
    struct status_call *self = call_new(ask, sizeof(*self), work_status);
    if (self != NULL) {
        self->call.answer = answer_stream;
        self->call.abandon = abandon_stream;
        self->is_stream = true;
        call_gather(&self->call);
    }
}
