/* policy.c: GET /v1/policies/{id}/live: one drop as it happens, for operators. */
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"
#include "http/live/live.h"

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
    struct watch watch;
    struct live_cursor cursor;
    int64_t sent_ms;
    int64_t stuck_since_ms; /* since when claims are pending and none of them is issued; 0: not */
    struct buffer history;  /* without the policy; empty: has to be rendered */
};

/* --- rendering: the past --- */

/* The seconds that were added to after `change`, oldest first. */
static void render_seconds(struct buffer *out, const struct live_past *past, uint64_t change,
                           int64_t wall_ms)
{
    int64_t now_s = wall_ms / 1000;
    buffer_append_literal(out, "[");
    for (int64_t second = now_s - LIVE_SECONDS + 1; second <= now_s + 1; second++) {
        const struct live_second *kept = &past->seconds[second % LIVE_SECONDS];
        if (kept->second != second || kept->change <= change)
            continue;
        json_begin(out, '{');
        json_put(out, "t", second);
        live_put_counts(out, kept->counts, LIVE_OUTCOMES_KEPT);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

static void render_tenths(struct buffer *out, const struct live_past *past, size_t from)
{
    buffer_append_literal(out, ",\"tenths\":[");
    for (size_t index = from; index < past->tenth_count; index++) {
        const uint32_t *counts = past->tenths[index].counts;
        json_begin(out, '[');
        for (unsigned part = 0; part < LIVE_TENTH_PARTS; part++) {
            if (part > 0)
                buffer_append_literal(out, ",");
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
    while (index < cursor->tenth_count && past->tenths[index].change <= cursor->change)
        index++;
    return index;
}

static void render_claim_line(struct buffer *out, const struct live_claim *claim)
{
    json_begin(out, '{');
    json_put_time(out, "at", claim->at_ms);
    char user[sizeof(claim->user) + sizeof("•••")];
    snprintf(user, sizeof(user), "%s•••%s", claim->user.head, claim->user.tail);
    json_put(out, "user", (const char *)user);
    json_put(out, "result", claim_result_name((enum claim_result)claim->result));
    json_put_unless(out, "seq", 0, claim->seq);
    buffer_append_literal(out, "}");
}

/* By time: each loop adds its own claims of a moment in one go. */
static void sort_claims(const struct live_claim **claims, size_t count)
{
    for (size_t index = 1; index < count; index++) {
        const struct live_claim *claim = claims[index];
        size_t place = index;
        for (; place > 0 && claims[place - 1]->at_ms > claim->at_ms; place--)
            claims[place] = claims[place - 1];
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
    for (uint64_t number = first; number < until; number++)
        claims[count++] = &past->feed[number % LIVE_FEED];
    sort_claims(claims, count);
    buffer_append_literal(out, ",\"feed\":[");
    for (size_t index = 0; index < count; index++)
        render_claim_line(out, claims[index]);
    buffer_append_literal(out, "]");
}

static void render_log(struct buffer *out, struct service *service, int64_t policy_id,
                       uint64_t after, uint64_t until)
{
    struct notice notices[LOG_MAX];
    size_t count =
        notices_read(service_notices(service), policy_id, after, until, notices, LOG_MAX);
    buffer_append_literal(out, ",\"log\":[");
    for (size_t index = 0; index < count; index++) {
        const struct notice *notice = &notices[index];
        json_begin(out, '{');
        json_put_time(out, "at", notice->at_ms);
        json_put(out, "event", notice->event);
        json_put(out, "words", notice->text);
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
    for (size_t index = 0; index < sizeof(quantiles) / sizeof(quantiles[0]); index++) {
        double ms = live_past_latency_ms(past, quantiles[index].quantile);
        buffer_printf(out, "%s\"%s\":", index > 0 ? "," : "", quantiles[index].name);
        if (ms > 0)
            buffer_printf(out, "%.4f", ms);
        else
            buffer_append_literal(out, "null");
    }
    buffer_append_literal(out, "}");
}

/* How long the oldest pending claim has waited, as far as this server can tell. */
static int64_t pending_age_ms(struct live_watch *watch, const struct gate_numbers *numbers,
                              int64_t now_ms, int64_t wall_ms)
{
    struct worker_numbers worker;
    struct service *service = watch->watch.watchers.loop->api->service;
    if (numbers->pending == 0) {
        watch->stuck_since_ms = 0;
        return 0;
    }
    if (watch->stuck_since_ms == 0 || numbers->issued != watch->watch.sent.issued)
        watch->stuck_since_ms = now_ms;
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

static struct live_cursor cursor_of(const struct live_past *past, uint64_t notice)
{
    return (struct live_cursor){
        .change = past->changes,
        .tenth_count = past->tenth_count,
        .feed_count = past->feed_count,
        .notice = notice,
    };
}

/* What every `numbers` and every `history` has: now, and what is to be seen at this moment. */
static void render_news(struct buffer *out, struct live_watch *watch, const struct live_past *past,
                        const struct gate_numbers *numbers, int64_t now_ms, int64_t wall_ms)
{
    struct service *service = watch->watch.watchers.loop->api->service;
    const struct live_cursor *cursor = &watch->cursor;
    uint64_t notice = notices_latest(service_notices(service));
    size_t from = first_new_tenth(past, cursor);
    buffer_append_literal(out, "event: numbers\ndata: {");
    json_put_time(out, "now", wall_ms);
    buffer_append_literal(out, ",\"policy\":{");
    json_put(out, "id", watch->watch.sent.policy_id);
    render_number_members(out, numbers);
    buffer_append_literal(out, "},\"last\":");
    render_seconds(out, past, cursor->change, wall_ms);
    json_put_time(out, "first_at", past->first_tenth * TENTH_MS);
    json_put(out, "tenths_from", from);
    render_tenths(out, past, from);
    render_present(out, past, numbers, pending_age_ms(watch, numbers, now_ms, wall_ms), wall_ms);
    render_feed(out, past, cursor->feed_count, past->feed_count, FEED_NEWS_MAX);
    render_log(out, service, watch->watch.sent.policy_id, cursor->notice, notice);
    buffer_append_literal(out, "}\n\n");
    watch->cursor = cursor_of(past, notice);
}

/* All but the policy. Claims and notices only as far as the others were told: the rest comes to all
 * of them. */
static void render_history(struct buffer *out, struct live_watch *watch,
                           const struct live_past *past, int64_t now_ms, int64_t wall_ms)
{
    struct service *service = watch->watch.watchers.loop->api->service;
    struct gate_numbers *numbers = &watch->watch.sent;
    buffer_clear(out);
    buffer_append_literal(out, ",\"seconds\":");
    render_seconds(out, past, 0, wall_ms);
    buffer_append_literal(out, ",\"first\":{");
    json_put_time(out, "at", past->first_tenth * TENTH_MS);
    render_tenths(out, past, 0);
    buffer_append_literal(out, "}");
    render_present(out, past, numbers, pending_age_ms(watch, numbers, now_ms, wall_ms), wall_ms);
    render_feed(out, past, 0, watch->cursor.feed_count, LIVE_FEED);
    render_log(out, service, watch->watch.sent.policy_id, 0, watch->cursor.notice);
    buffer_append_literal(out, "}\n\n");
}

/* --- who watches --- */

static void release_watch(struct watch *watch)
{
    buffer_release(&((struct live_watch *)(void *)watch)->history);
}

/* The first watcher of a policy gets all that has happened so far; later ones join from here on. */
static struct live_watch *add_watch(struct api_loop *loop, const struct gate_numbers *numbers)
{
    struct live_past *past = &loop->live->past;
    struct live_watch *watch = watches_add(&loop->live->watches, loop, numbers, sizeof(*watch));
    if (watch == NULL)
        return NULL;
    watch->watch.release = release_watch;
    buffer_init(&watch->history, ANSWER_LENGTH_MAX);
    watch->sent_ms = clock_monotonic_ms();
    live_history_copy(&loop->api->live->history, numbers->policy_id, past);
    watch->cursor = cursor_of(past, notices_latest(service_notices(loop->api->service)));
    return watch;
}

static bool is_quiet(const struct live_watch *watch, const struct live_past *past,
                     const struct gate_numbers *numbers)
{
    struct service *service = watch->watch.watchers.loop->api->service;
    const struct gate_numbers *sent = &watch->watch.sent;
    return past->changes == watch->cursor.change && live_numbers_equal(numbers, sent) &&
           notices_latest(service_notices(service)) == watch->cursor.notice;
}

static void send_numbers(struct watch *watched, int64_t period_ms, int64_t now_ms)
{
    struct live_watch *watch = (struct live_watch *)(void *)watched;
    struct api_loop *loop = watch->watch.watchers.loop;
    struct live_past *past = &loop->live->past;
    struct gate_numbers numbers = watch->watch.sent;
    int64_t wall_ms = http_loop_wall_ms(loop->http);
    live_view_at(loop->api, watch->watch.sent.policy_id);
    (void)!gate_count(service_gate(loop->api->service), watch->watch.sent.policy_id, wall_ms,
                      &numbers);
    live_history_copy(&loop->api->live->history, watch->watch.sent.policy_id, past);
    if (is_quiet(watch, past, &numbers) && now_ms - watch->sent_ms < QUIET_MS) {
        watchers_tick(&watch->watch.watchers, now_ms);
        return;
    }
    buffer_clear(&loop->body);
    render_news(&loop->body, watch, past, &numbers, now_ms, wall_ms);
    watch->watch.sent = numbers;
    watch->sent_ms = now_ms;
    buffer_clear(&watch->history);
    watchers_send(&watch->watch.watchers, (struct span){loop->body.bytes, loop->body.length},
                  period_ms, now_ms);
}

void live_watches_tick(struct api_loop *loop, int64_t now_ms)
{
    watches_tick(&loop->live->watches, loop, now_ms, send_numbers);
}

/* --- the call --- */

struct live_call {
    struct call call;
    struct gate_numbers numbers;
};

static void work_live(struct call *call, struct service *service)
{
    struct live_call *self = (struct live_call *)(void *)call;
    struct policy_view view;
    struct error error;
    enum status status = service_policy_show(service, call->policy_id, &view, &error);
    if (!call_is_done(call, status, &error, PROBLEM_POLICY_NOT_FOUND))
        return;
    self->numbers = view.numbers;
    live_view_at(call->loop->api, call->policy_id);
    render_policy(call_json(call, 200), &view);
}

/* "history" is the caller's own policy as it was just read, and the rest that all of them share. */
static void send_history(struct live_call *self, struct live_watch *watch)
{
    struct api_loop *loop = self->call.loop;
    struct buffer *piece = &loop->body;
    int64_t wall_ms = http_loop_wall_ms(loop->http);
    if (watch->history.length == 0) {
        live_history_copy(&loop->api->live->history, watch->watch.sent.policy_id,
                          &loop->live->past);
        render_history(&watch->history, watch, &loop->live->past, clock_monotonic_ms(), wall_ms);
    }
    buffer_clear(piece);
    buffer_append_literal(piece, "event: history\ndata: {");
    json_put_time(piece, "now", wall_ms);
    buffer_append_literal(piece, ",\"policy\":");
    buffer_append(piece, self->call.body.bytes, self->call.body.length);
    buffer_append(piece, watch->history.bytes, watch->history.length);
    watch_join(&watch->watch, self->call.exchange, (struct span){piece->bytes, piece->length});
}

static void answer_live(struct call *call)
{
    struct live_call *self = (struct live_call *)(void *)call;
    if (call->is_problem) {
        call_answer(call);
        return;
    }
    struct live_watch *watch =
        (struct live_watch *)(void *)watches_find(&call->loop->live->watches, call->policy_id);
    if (watch == NULL)
        watch = add_watch(call->loop, &self->numbers);
    if (watch == NULL)
        reply_problem(call->loop, call->exchange, PROBLEM_UNAVAILABLE);
    else
        send_history(self, watch);
    call_free(call);
}

void live_policy(struct ask *ask)
{
    struct live_call *self = call_new(ask, sizeof(*self), work_live);
    if (self != NULL) {
        self->call.answer = answer_live;
        call_submit_or_refuse(&self->call);
    }
}
