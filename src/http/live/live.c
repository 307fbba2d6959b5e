/* live.c: counts claims for those who watch, and notices what happens to policies. */
#include "http/live/live.h"

#include <stdlib.h>

#include "base/clock.h"

#define NANOSECONDS_PER_MS                            1000000

#define CLAIM_OUTCOME(WORD, STATUS, LABEL, LIVE, ...) [CLAIM_##WORD] = LIVE_##LIVE,
static const enum live_outcome outcomes[CLAIM_RESULT_COUNT] = {CLAIM_GRANTS(CLAIM_OUTCOME)
                                                                   CLAIM_REFUSALS(CLAIM_OUTCOME)};

/* --- life --- */

enum status live_open(struct api *api, struct error *error)
{
    struct live *live = calloc(1, sizeof(*live));
    if (live == NULL)
        return error_set(error, STATUS_FAILED, "no memory for the API");
    live_history_init(&live->history, service_totals(api->service));
    live->directory.service = api->service;
    pthread_mutex_init(&live->directory.lock, NULL);
    pthread_mutex_init(&live->rates_lock, NULL);
    pthread_mutex_init(&live->observe_lock, NULL);
    api->live = live;
    return STATUS_OK;
}

void live_close(struct api *api)
{
    struct live *live = api->live;
    if (live == NULL)
        return;
    live_history_release(&live->history);
    live_directory_release(&live->directory);
    pthread_mutex_destroy(&live->rates_lock);
    pthread_mutex_destroy(&live->observe_lock);
    free(live);
}

enum status live_loop_open(struct api_loop *loop, struct error *error)
{
    loop->live = calloc(1, sizeof(*loop->live));
    if (loop->live == NULL)
        return error_set(error, STATUS_FAILED, "no memory for a loop");
    loop->live->tallies.history = &loop->api->live->history;
    live_board_init(loop);
    return STATUS_OK;
}

void live_loop_close(struct api_loop *loop)
{
    int64_t folded[LIVE_TALLIES];
    (void)live_tallies_fold(&loop->live->tallies, folded);
    watches_close(&loop->live->events);
    watchers_release(&loop->live->board);
    watches_close(&loop->live->watches);
}

void live_loop_free(struct api_loop *loop)
{
    if (loop->live != NULL) {
        buffer_release(&loop->live->snapshot);
        free(loop->live);
    }
}

/* --- counting --- */

/* Whether an answer tells that there is such a policy. A gate or ledger that is away tells nothing:
 * then it is one that the gate has been seen to have. */
static bool is_of_a_policy(struct api_loop *loop, int64_t policy_id, enum claim_result result)
{
    struct gate_numbers numbers;
    if (result != CLAIM_UNAVAILABLE)
        return result != CLAIM_POLICY_NOT_FOUND;
    return gate_count(service_gate(loop->api->service), policy_id, http_loop_wall_ms(loop->http),
                      &numbers) == STATUS_OK;
}

void live_count(struct api_loop *loop, const struct wish *wish, enum claim_result result,
                uint64_t elapsed_ns)
{
    struct live_loop *live = loop->live;
    live->has_news = true;
    /* What is claimed of a policy that does not exist must not take another's place. */
    if (!is_of_a_policy(loop, wish->policy_id, result))
        return;
    bool is_held = result <= CLAIM_ALREADY_ISSUED;
    enum live_outcome outcome = outcomes[result];
    /* Only an open policy gives these. */
    bool begins = outcome == LIVE_ISSUED || outcome == LIVE_ACCEPTED || outcome == LIVE_SOLD_OUT;
    /* When it came, not when it was answered: the last unit goes in between. */
    int64_t came_ms = http_loop_wall_ms(loop->http) - (int64_t)(elapsed_ns / NANOSECONDS_PER_MS);
    live_tallies_count(&live->tallies, &(struct live_answer){
                                           .policy_id = wish->policy_id,
                                           .wall_ms = came_ms,
                                           .elapsed_ns = elapsed_ns,
                                           .user = &wish->user,
                                           .seq = is_held ? wish->seq : 0,
                                           .outcome = outcome,
                                           .result = (uint8_t)result,
                                           .begins = begins,
                                       });
}

/* What this loop has counted since the last fold. */
static void fold_rates(struct api_loop *loop, int64_t wall_ms)
{
    struct live *live = loop->api->live;
    uint64_t *counted = loop->live->counted;
    int64_t tenth = wall_ms / TENTH_MS;
    pthread_mutex_lock(&live->rates_lock);
    struct live_rate_tenth *kept = &live->rates[tenth % LIVE_RATE_TENTHS];
    if (kept->tenth != tenth)
        *kept = (struct live_rate_tenth){.tenth = tenth};
    for (unsigned result = 0; result < CLAIM_RESULT_COUNT; result++) {
        uint64_t count = atomic_load_explicit(&loop->counters.claims[result], memory_order_relaxed);
        kept->counts[outcomes[result]] += (uint32_t)(count - counted[result]);
        counted[result] = count;
    }
    pthread_mutex_unlock(&live->rates_lock);
}

void live_rates(struct live *live, int64_t wall_ms, uint32_t rates[LIVE_OUTCOMES])
{
    int64_t tenth = wall_ms / TENTH_MS;
    memset(rates, 0, LIVE_OUTCOMES * sizeof(rates[0]));
    pthread_mutex_lock(&live->rates_lock);
    for (unsigned index = 0; index < LIVE_RATE_TENTHS; index++) {
        const struct live_rate_tenth *kept = &live->rates[index];
        /* The present tenth is not over. */
        if (kept->tenth >= tenth || kept->tenth < tenth - 10)
            continue;
        for (unsigned rate = 0; rate < LIVE_OUTCOMES; rate++)
            rates[rate] += kept->counts[rate];
    }
    pthread_mutex_unlock(&live->rates_lock);
}

void live_put_counts(struct buffer *out, const uint32_t *counts, unsigned count)
{
    static const struct span names[LIVE_OUTCOMES] = {
        [LIVE_ISSUED] = SPAN("\"issued\":"),
        [LIVE_ACCEPTED] = SPAN("\"accepted\":"),
        [LIVE_ALREADY_ISSUED] = SPAN("\"already_issued\":"),
        [LIVE_SOLD_OUT] = SPAN("\"sold_out\":"),
        [LIVE_OTHER] = SPAN("\"other\":"),
        [LIVE_LIMIT_REACHED] = SPAN("\"limit_reached\":"),
        [LIVE_NOT_OPEN] = SPAN("\"not_open\":"),
    };
    for (unsigned outcome = 0; outcome < count; outcome++) {
        json_name(out, names[outcome].bytes, names[outcome].length);
        buffer_append_u64(out, counts[outcome]);
    }
}

void live_tick(struct api_loop *loop, int64_t now_ms)
{
    struct live_loop *live = loop->live;
    if (live->has_news) {
        int64_t folded[LIVE_TALLIES];
        size_t count = live_tallies_fold(&live->tallies, folded);
        fold_rates(loop, http_loop_wall_ms(loop->http));
        live->has_news = false;
        for (size_t index = 0; index < count; index++)
            live_view_at(loop->api, folded[index]);
    }
    live_events_tick(loop, now_ms);
    live_board_tick(loop, now_ms);
    live_watches_tick(loop, now_ms);
}

/* --- noticing --- */

bool live_numbers_equal(const struct gate_numbers *a, const struct gate_numbers *b)
{
    return a->total == b->total && a->remaining == b->remaining && a->pending == b->pending &&
           a->issued == b->issued && a->state == b->state && a->paused == b->paused &&
           a->opens_at_ms == b->opens_at_ms && a->closes_at_ms == b->closes_at_ms &&
           a->sold_out_at_ms == b->sold_out_at_ms;
}

static void notice_window(struct notices *notices, const struct gate_numbers *now,
                          const struct gate_numbers *before, int64_t wall_ms)
{
    int64_t id = now->policy_id;
    if (now->opens_at_ms != before->opens_at_ms)
        notices_add(notices, wall_ms, id, "changed", "The opening time was changed.");
    if (now->closes_at_ms != before->closes_at_ms)
        notices_add(notices, wall_ms, id, "changed", "The closing time was changed.");
    if (now->total != before->total) {
        notices_add(notices, wall_ms, id, "changed", "The total was changed from %lld to %lld.",
                    (long long)before->total, (long long)now->total);
    }
}

static void notice_state(struct notices *notices, const struct gate_numbers *now,
                         const struct gate_numbers *before, int64_t wall_ms)
{
    int64_t id = now->policy_id;
    if (before->state == POLICY_SCHEDULED &&
        (now->state == POLICY_OPEN || now->state == POLICY_SOLD_OUT)) {
        int64_t at_ms = now->opens_at_ms != 0 ? now->opens_at_ms : wall_ms;
        notices_add(notices, at_ms, id, "opened", "Claiming has begun.");
    }
    if (now->sold_out_at_ms != 0 && before->sold_out_at_ms == 0) {
        notices_add(notices, now->sold_out_at_ms, id, "sold_out", "The last of %lld went.",
                    (long long)now->total);
    } else if (now->sold_out_at_ms == 0 && before->sold_out_at_ms != 0 &&
               now->state != POLICY_CLOSED) {
        notices_add(notices, wall_ms, id, "restocked", "There is stock again: %lld.",
                    (long long)now->remaining);
    }
    if (now->paused != before->paused) {
        notices_add(notices, wall_ms, id, now->paused ? "paused" : "resumed",
                    now->paused ? "Claiming is paused." : "Claiming goes on.");
    }
    if (now->state == POLICY_CLOSED && before->state != POLICY_CLOSED) {
        notices_add(notices, now->closed_by_hand ? wall_ms : now->closes_at_ms, id, "closed",
                    now->closed_by_hand ? "Closed by hand." : "Closed: its time is over.");
    }
}

void live_view_at(struct api *api, int64_t policy_id)
{
    struct notices *notices = service_notices(api->service);
    struct live *live = api->live;
    struct gate_numbers now;
    struct gate_numbers before;
    pthread_mutex_lock(&live->observe_lock);
    int64_t wall_ms = clock_wall_ms();
    if (gate_count(service_gate(api->service), policy_id, wall_ms, &now) == STATUS_OK) {
        live_history_observe(&live->history, &now, wall_ms, &before);
        if (before.policy_id != 0) {
            notice_window(notices, &now, &before, wall_ms);
            notice_state(notices, &now, &before, wall_ms);
        } else if (now.sold_out_at_ms != 0) {
            notices_add(notices, now.sold_out_at_ms, policy_id, "sold_out",
                        "The last of %lld went.", (long long)now.total);
        }
    }
    pthread_mutex_unlock(&live->observe_lock);
}

void live_policy_changed(struct api *api, int64_t policy_id)
{
    atomic_store(&api->live->directory.is_stale, true);
    live_view_at(api, policy_id);
}

void live_policy_created(struct api *api, const struct policy_view *view)
{
    notices_add(service_notices(api->service), view->policy.created_at_ms, view->policy.id,
                "created", "Created with a total of %lld.", (long long)view->policy.total);
    live_policy_changed(api, view->policy.id);
}
