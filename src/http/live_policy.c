/* live_policy.c: GET /v1/policies/{id}/live: one drop as it happens, for operators. */
#include <stdlib.h>

#include "base/clock.h"
#include "http/call.h"
#include "http/handlers.h"
#include "http/live.h"
#include "http/render.h"
#include "http/reply.h"

#define NUMBERS_MS 250
/* While nothing happens the numbers are sent so often, for the clock and the ages in them. */
#define QUIET_MS 1000
/* More claims than this between two events are not shown one by one. */
#define FEED_NEWS_MAX 20
#define LOG_MAX       50

/* How far those who watch have been told. */
struct live_cursor {
    uint64_t change;
    size_t tenth_count;
    uint64_t feed_count;
    uint64_t notice;
};

/* One policy and those on this loop who watch it. */
struct live_watch {
    struct watchers watchers; /* first: this is what on_empty gets */
    int64_t policy_id;
    struct live_cursor cursor;
    struct gate_numbers sent;
    int64_t sent_ms;
    int64_t stuck_since_ms; /* since when claims are pending and none of them is issued; 0: not */
    struct buffer history;  /* without the policy; empty: has to be rendered */
    struct live_watch *next;
    struct live_watch **place;
};

/* --- rendering: the past --- */

static const char *const outcome_names[LIVE_OUTCOMES] = {
    [LIVE_ISSUED] = ",\"issued\":",
    [LIVE_ACCEPTED] = ",\"accepted\":",
    [LIVE_ALREADY_ISSUED] = ",\"already_issued\":",
    [LIVE_SOLD_OUT] = ",\"sold_out\":",
    [LIVE_OTHER] = ",\"other\":",
};

/* The seconds that were added to after `change`, oldest first. */
static void render_seconds(struct buffer *out, const struct live_past *past, uint64_t change,
                           int64_t wall_ms)
{
    int64_t now_s = wall_ms / 1000;
    buffer_append_literal(out, "[");
    for (int64_t second = now_s - LIVE_SECONDS + 1; second <= now_s + 1; second++) {
        const struct live_second *kept = &past->seconds[second % LIVE_SECONDS];
        if (kept->second != second || kept->change <= change) {
            continue;
        }
        json_begin(out, '{');
        json_put(out, "t", second);
        for (unsigned outcome = 0; outcome < LIVE_OUTCOMES; outcome++) {
            buffer_append_text(out, outcome_names[outcome]);
            buffer_append_u64(out, kept->counts[outcome]);
        }
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

static void render_tenths(struct buffer *out, const struct live_past *past, size_t from)
{
    buffer_append_literal(out, "[");
    for (size_t index = from; index < past->tenth_count; index++) {
        const uint32_t *counts = past->tenths[index].counts;
        json_begin(out, '[');
        for (unsigned part = 0; part < LIVE_TENTH_PARTS; part++) {
            if (part > 0) {
                buffer_append_literal(out, ",");
            }
            buffer_append_u64(out, counts[part]);
        }
        buffer_append_literal(out, "]");
    }
    buffer_append_literal(out, "]");
}

/* The first that is news: one that was added to, or an empty one behind the last that was told. */
static size_t first_new_tenth(const struct live_past *past, const struct live_cursor *cursor)
{
    size_t index = 0;
    while (index < cursor->tenth_count && past->tenths[index].change <= cursor->change) {
        index++;
    }
    return index;
}

static void render_first_at(struct buffer *out, const struct live_past *past)
{
    json_append_time(out, past->first_tenth * 100);
}

static void render_claim_line(struct buffer *out, const struct live_claim *claim)
{
    json_begin(out, '{');
    json_put_time(out, "at", claim->at_ms);
    buffer_append_literal(out, ",\"user\":\"");
    buffer_append(out, claim->user.head, claim->user.head_length);
    buffer_append_literal(out, "•••");
    buffer_append(out, claim->user.tail, claim->user.tail_length);
    buffer_append_literal(out, "\"");
    json_put(out, "result", claim_result_name((enum claim_result)claim->result));
    if (claim->seq == 0)
        json_put_null(out, "seq");
    else
        json_put(out, "seq", claim->seq);
    buffer_append_literal(out, "}");
}

/* By time: each loop adds its own claims of a moment in one go. */
static void sort_claims(const struct live_claim **claims, size_t count)
{
    for (size_t index = 1; index < count; index++) {
        const struct live_claim *claim = claims[index];
        size_t place = index;
        for (; place > 0 && claims[place - 1]->at_ms > claim->at_ms; place--) {
            claims[place] = claims[place - 1];
        }
        claims[place] = claim;
    }
}

/* The last `max` claims of those numbered from `from` to `until`, oldest first. */
static void render_feed(struct buffer *out, const struct live_past *past, uint64_t from,
                        uint64_t until, uint64_t max)
{
    uint64_t kept = past->feed_count > LIVE_FEED ? past->feed_count - LIVE_FEED : 0;
    uint64_t first = from > kept ? from : kept;
    first = until > first && until - first > max ? until - max : first;
    const struct live_claim *claims[LIVE_FEED];
    size_t count = 0;
    for (uint64_t number = first; number < until; number++) {
        claims[count++] = &past->feed[number % LIVE_FEED];
    }
    sort_claims(claims, count);
    buffer_append_literal(out, "[");
    for (size_t index = 0; index < count; index++) {
        render_claim_line(out, claims[index]);
    }
    buffer_append_literal(out, "]");
}

static void render_log(struct buffer *out, struct service *service, int64_t policy_id,
                       uint64_t after, uint64_t until)
{
    struct notice notices[LOG_MAX];
    size_t count =
        notices_read(service_notices(service), policy_id, after, until, notices, LOG_MAX);
    buffer_append_literal(out, "[");
    for (size_t index = 0; index < count; index++) {
        const struct notice *notice = &notices[index];
        json_begin(out, '{');
        json_put_time(out, "at", notice->at_ms);
        json_put(out, "event", notice->event);
        json_put(out, "words", notice->words);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

/* --- rendering: the present --- */

static void render_latency(struct buffer *out, const struct live_past *past)
{
    static const struct {
        const char *name;
        double quantile;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
    buffer_append_literal(out, ",\"latency_ms\":{");
    for (size_t index = 0; index < sizeof quantiles / sizeof quantiles[0]; index++) {
        double ms = live_past_latency_ms(past, quantiles[index].quantile);
        buffer_printf(out, "%s\"%s\":", index > 0 ? "," : "", quantiles[index].name);
        if (ms > 0) {
            buffer_printf(out, "%.4f", ms);
        } else {
            buffer_append_literal(out, "null");
        }
    }
    buffer_append_literal(out, "}");
}

/* How long the oldest pending claim has waited, as far as this server can tell. */
static int64_t pending_age_ms(struct live_watch *watch, const struct gate_numbers *numbers,
                              int64_t now_ms, int64_t wall_ms)
{
    struct worker_numbers worker;
    struct service *service = watch->watchers.loop->api->service;
    if (numbers->pending == 0) {
        watch->stuck_since_ms = 0;
        return 0;
    }
    if (watch->stuck_since_ms == 0 || numbers->issued != watch->sent.issued) {
        watch->stuck_since_ms = now_ms;
    }
    int64_t age_ms = now_ms - watch->stuck_since_ms;
    if (service_count_worker(service, &worker) && worker.oldest_requested_ms != 0) {
        int64_t oldest_ms = wall_ms - worker.oldest_requested_ms;
        age_ms = oldest_ms > age_ms ? oldest_ms : age_ms;
    }
    return age_ms;
}

static void render_present(struct buffer *out, const struct live_past *past,
                           const struct gate_numbers *numbers, int64_t age_ms, int64_t wall_ms)
{
    render_latency(out, past);
    buffer_append_literal(out, ",\"funnel\":{");
    json_put(out, "received", past->received);
    json_put(out, "won", numbers->pending + numbers->issued);
    json_put(out, "pending", numbers->pending);
    json_put(out, "issued", numbers->issued);
    buffer_append_literal(out, "}");
    json_put(out, "pending_age_ms", age_ms);
    json_put_time(out, "sold_out_at", numbers->sold_out_at_ms);
}

/* What every `numbers` and every `history` has: now, and what is to be seen at this moment. */
static void render_news(struct buffer *out, struct live_watch *watch, const struct live_past *past,
                        const struct gate_numbers *numbers, int64_t now_ms, int64_t wall_ms)
{
    struct service *service = watch->watchers.loop->api->service;
    const struct live_cursor *cursor = &watch->cursor;
    uint64_t notice = notices_latest(service_notices(service));
    size_t from = first_new_tenth(past, cursor);
    buffer_append_literal(out, "event: numbers\ndata: {");
    json_put_time(out, "now", wall_ms);
    buffer_append_literal(out, ",\"policy\":{");
    json_put(out, "id", watch->policy_id);
    render_number_members(out, numbers);
    buffer_append_literal(out, "},\"last\":");
    render_seconds(out, past, cursor->change, wall_ms);
    buffer_append_literal(out, ",\"first_at\":");
    render_first_at(out, past);
    json_put(out, "tenths_from", from);
    buffer_append_literal(out, ",\"tenths\":");
    render_tenths(out, past, from);
    render_present(out, past, numbers, pending_age_ms(watch, numbers, now_ms, wall_ms), wall_ms);
    buffer_append_literal(out, ",\"feed\":");
    render_feed(out, past, cursor->feed_count, past->feed_count, FEED_NEWS_MAX);
    buffer_append_literal(out, ",\"log\":");
    render_log(out, service, watch->policy_id, cursor->notice, notice);
    buffer_append_literal(out, "}\n\n");
    watch->cursor = (struct live_cursor){
        .change = past->changes,
        .tenth_count = past->tenth_count,
        .feed_count = past->feed_count,
        .notice = notice,
    };
}

/* All but the policy. Claims and notices only as far as the others were told: the rest comes to all
 * of them. */
static void render_history(struct buffer *out, struct live_watch *watch,
                           const struct live_past *past, int64_t now_ms, int64_t wall_ms)
{
    struct service *service = watch->watchers.loop->api->service;
    struct gate_numbers *numbers = &watch->sent;
    buffer_clear(out);
    buffer_append_literal(out, ",\"seconds\":");
    render_seconds(out, past, 0, wall_ms);
    buffer_append_literal(out, ",\"first\":{\"at\":");
    render_first_at(out, past);
    buffer_append_literal(out, ",\"tenths\":");
    render_tenths(out, past, 0);
    buffer_append_literal(out, "}");
    render_present(out, past, numbers, pending_age_ms(watch, numbers, now_ms, wall_ms), wall_ms);
    buffer_append_literal(out, ",\"feed\":");
    render_feed(out, past, 0, watch->cursor.feed_count, LIVE_FEED);
    buffer_append_literal(out, ",\"log\":");
    render_log(out, service, watch->policy_id, 0, watch->cursor.notice);
    buffer_append_literal(out, "}\n\n");
}

/* --- who watches --- */

static struct live_watch *find_watch(const struct live_loop *live, int64_t policy_id)
{
    struct live_watch *watch = live->watches;
    while (watch != NULL && watch->policy_id != policy_id) {
        watch = watch->next;
    }
    return watch;
}

static void free_watch(struct watchers *watchers)
{
    struct live_watch *watch = (struct live_watch *)(void *)watchers;
    *watch->place = watch->next;
    if (watch->next != NULL) {
        watch->next->place = watch->place;
    }
    watchers_release(watchers);
    buffer_release(&watch->history);
    free(watch);
}

/* Whoever comes first to a policy is told all that has been; from here on the others follow. */
static struct live_watch *add_watch(struct api_loop *loop, const struct gate_numbers *numbers)
{
    struct live_loop *live = loop->live;
    struct live_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) {
        return NULL;
    }
    watchers_init(&watch->watchers, loop, free_watch);
    buffer_init(&watch->history, ANSWER_LENGTH_MAX);
    watch->policy_id = numbers->policy_id;
    watch->sent = *numbers;
    watch->sent_ms = clock_monotonic_ms();
    live_history_copy(&loop->api->live->history, watch->policy_id, &live->past);
    watch->cursor = (struct live_cursor){
        .change = live->past.changes,
        .tenth_count = live->past.tenth_count,
        .feed_count = live->past.feed_count,
        .notice = notices_latest(service_notices(loop->api->service)),
    };
    watch->next = live->watches;
    watch->place = &live->watches;
    if (watch->next != NULL) {
        watch->next->place = &watch->next;
    }
    live->watches = watch;
    return watch;
}

static bool is_quiet(const struct live_watch *watch, const struct live_past *past,
                     const struct gate_numbers *numbers)
{
    struct service *service = watch->watchers.loop->api->service;
    const struct gate_numbers *sent = &watch->sent;
    return past->changes == watch->cursor.change && numbers->version == sent->version &&
           numbers->state == sent->state && numbers->remaining == sent->remaining &&
           numbers->pending == sent->pending && numbers->issued == sent->issued &&
           notices_latest(service_notices(service)) == watch->cursor.notice;
}

static void send_numbers(struct live_watch *watch, int64_t period_ms, int64_t now_ms)
{
    struct api_loop *loop = watch->watchers.loop;
    struct live_past *past = &loop->live->past;
    struct gate_numbers numbers = watch->sent;
    int64_t wall_ms = http_loop_wall_ms(loop->http);
    live_look_at(loop->api, watch->policy_id);
    (void)!gate_count(service_gate(loop->api->service), watch->policy_id, wall_ms, &numbers);
    live_history_copy(&loop->api->live->history, watch->policy_id, past);
    if (is_quiet(watch, past, &numbers) && now_ms - watch->sent_ms < QUIET_MS) {
        watchers_tick(&watch->watchers, now_ms);
        return;
    }
    buffer_clear(&loop->body);
    render_news(&loop->body, watch, past, &numbers, now_ms, wall_ms);
    watch->sent = numbers;
    watch->sent_ms = now_ms;
    buffer_clear(&watch->history);
    watchers_send(&watch->watchers, (struct span){loop->body.bytes, loop->body.length}, period_ms,
                  now_ms);
}

void live_watches_tick(struct api_loop *loop, int64_t now_ms)
{
    struct live_loop *live = loop->live;
    bool is_due = now_ms >= live->watches_due_ms;
    int64_t period_ms = watchers_period_ms(loop, NUMBERS_MS);
    if (is_due) {
        live->watches_due_ms = now_ms + period_ms;
    }
    for (struct live_watch *watch = live->watches; watch != NULL; watch = watch->next) {
        if (is_due) {
            send_numbers(watch, period_ms, now_ms);
        } else {
            watchers_tick(&watch->watchers, now_ms);
        }
    }
}

void live_watches_close(struct api_loop *loop)
{
    struct live_watch *next;
    for (struct live_watch *watch = loop->live->watches; watch != NULL; watch = next) {
        next = watch->next;
        watchers_release(&watch->watchers);
        buffer_release(&watch->history);
        free(watch);
    }
    loop->live->watches = NULL;
}

/* --- the call --- */

struct live_call {
    struct call call;
    int64_t policy_id;
    struct gate_numbers numbers;
};

static void work_live(struct call *call, struct service *service)
{
    struct live_call *self = (struct live_call *)(void *)call;
    struct policy_view view;
    struct error error;
    enum status status = service_policy_show(service, self->policy_id, &view, &error);
    if (status != STATUS_OK) {
        call_failed(call, status, &error, PROBLEM_POLICY_NOT_FOUND);
        return;
    }
    self->numbers = view.numbers;
    live_look_at(call->loop->api, self->policy_id);
    render_policy(call_json(call, 200), &view);
}

/* "history" is the caller's own policy as it was just read, and the rest that all of them share. */
static void send_history(struct live_call *self, struct live_watch *watch)
{
    struct api_loop *loop = self->call.loop;
    struct buffer *piece = &loop->body;
    int64_t wall_ms = http_loop_wall_ms(loop->http);
    if (watch->history.length == 0) {
        live_history_copy(&loop->api->live->history, watch->policy_id, &loop->live->past);
        render_history(&watch->history, watch, &loop->live->past, clock_monotonic_ms(), wall_ms);
    }
    buffer_clear(piece);
    buffer_append_literal(piece, "event: history\ndata: {");
    json_put_time(piece, "now", wall_ms);
    buffer_append_literal(piece, ",\"policy\":");
    buffer_append(piece, self->call.body.bytes, self->call.body.length);
    buffer_append(piece, watch->history.bytes, watch->history.length);
    if (!watchers_add(&watch->watchers, self->call.exchange,
                      (struct span){piece->bytes, piece->length}) &&
        watch->watchers.first == NULL) {
        free_watch(&watch->watchers);
    }
}

static void answer_live(struct call *call)
{
    struct live_call *self = (struct live_call *)(void *)call;
    if (call->is_problem) {
        call_answer(call);
        return;
    }
    struct live_watch *watch = find_watch(call->loop->live, self->policy_id);
    if (watch == NULL) {
        watch = add_watch(call->loop, &self->numbers);
    }
    if (watch == NULL) {
        reply_problem(call->loop, call->exchange, PROBLEM_UNAVAILABLE);
    } else {
        send_history(self, watch);
    }
    call_free(call);
}

void live_policy(struct ask *ask)
{
    int64_t policy_id;
    if (!ask_policy_id(ask, 0, &policy_id) || !ask_admin(ask) || !ask_no_query(ask)) {
        return;
    }
    struct live_call *self = call_new(ask->loop, ask->exchange, sizeof *self, work_live);
    if (self != NULL) {
        self->policy_id = policy_id;
        self->call.answer = answer_live;
        call_submit_or_refuse(&self->call);
    }
}
