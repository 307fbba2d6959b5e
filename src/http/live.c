/* live.c: counts claims for those who watch, and notices what happens to policies. */
#include "http/live.h"

#include <stdlib.h>

#include "base/clock.h"

#define TENTH_MS           100
#define NANOSECONDS_PER_MS 1000000

static const enum live_outcome outcomes[CLAIM_RESULT_COUNT] = {
    [CLAIM_ISSUED] = LIVE_ISSUED,
    [CLAIM_ACCEPTED] = LIVE_ACCEPTED,
    [CLAIM_ALREADY_ISSUED] = LIVE_ALREADY_ISSUED,
    [CLAIM_SOLD_OUT] = LIVE_SOLD_OUT,
    [CLAIM_LIMIT_REACHED] = LIVE_OTHER,
    [CLAIM_BLOCKED] = LIVE_OTHER,
    [CLAIM_CLOSED] = LIVE_OTHER,
    [CLAIM_PAUSED] = LIVE_OTHER,
    [CLAIM_NOT_OPEN] = LIVE_OTHER,
    [CLAIM_NOT_FOUND] = LIVE_OTHER,
    [CLAIM_UNAVAILABLE] = LIVE_OTHER,
    [CLAIM_INVALID] = LIVE_OTHER,
    [CLAIM_UNAUTHORIZED] = LIVE_OTHER,
    [CLAIM_RATE_LIMITED] = LIVE_OTHER,
};

/* Verdicts that only an open policy gives. */
static const bool begins[CLAIM_RESULT_COUNT] = {
    [CLAIM_ISSUED] = true,
    [CLAIM_ACCEPTED] = true,
    [CLAIM_SOLD_OUT] = true,
};

/* --- life --- */

enum status live_open(struct api *api, struct error *error)
{
    struct live *live = calloc(1, sizeof *live);
    if (live == NULL) {
        return error_set(error, STATUS_FAILED, "no memory for the API");
    }
    live_history_init(&live->history);
    live_directory_init(&live->directory, api->service);
    pthread_mutex_init(&live->rates_lock, NULL);
    pthread_mutex_init(&live->look_lock, NULL);
    api->live = live;
    return STATUS_OK;
}

void live_close(struct api *api)
{
    struct live *live = api->live;
    if (live == NULL) {
        return;
    }
    live_history_release(&live->history);
    live_directory_release(&live->directory);
    pthread_mutex_destroy(&live->rates_lock);
    pthread_mutex_destroy(&live->look_lock);
    free(live);
}

enum status live_loop_open(struct api_loop *loop, struct error *error)
{
    loop->live = calloc(1, sizeof *loop->live);
    if (loop->live == NULL) {
        return error_set(error, STATUS_FAILED, "no memory for a loop");
    }
    loop->live->tallies.history = &loop->api->live->history;
    live_board_init(loop);
    return STATUS_OK;
}

void live_loop_close(struct api_loop *loop)
{
    watchers_release(&loop->live->board);
    live_watches_close(loop);
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
    if (result != CLAIM_UNAVAILABLE) {
        return result != CLAIM_NOT_FOUND;
    }
    return gate_count(service_gate(loop->api->service), policy_id, http_loop_wall_ms(loop->http),
                      &numbers) == STATUS_OK;
}

void live_count(struct api_loop *loop, const struct wish *wish, enum claim_result result,
                uint64_t elapsed_ns)
{
    struct live_loop *live = loop->live;
    live->has_news = true;
    /* What is claimed of a policy that does not exist must not take another's place. */
    if (!is_of_a_policy(loop, wish->policy_id, result)) {
        return;
    }
    bool is_held = result <= CLAIM_ALREADY_ISSUED;
    /* When it came, not when it was answered: the last unit goes in between. */
    int64_t came_ms = http_loop_wall_ms(loop->http) - (int64_t)(elapsed_ns / NANOSECONDS_PER_MS);
    live_tallies_count(&live->tallies, &(struct live_answer){
                                           .policy_id = wish->policy_id,
                                           .wall_ms = came_ms,
                                           .elapsed_ns = elapsed_ns,
                                           .user = &wish->user,
                                           .seq = is_held ? wish->seq : 0,
                                           .outcome = outcomes[result],
                                           .result = (uint8_t)result,
                                           .begins = begins[result],
                                       });
}

/* Which of the rates a result counts as. */
static enum live_rate rate_of(enum claim_result result)
{
    switch (result) {
    case CLAIM_ISSUED:
        return LIVE_RATE_ISSUED;
    case CLAIM_ACCEPTED:
        return LIVE_RATE_ACCEPTED;
    case CLAIM_ALREADY_ISSUED:
        return LIVE_RATE_ALREADY_ISSUED;
    case CLAIM_SOLD_OUT:
        return LIVE_RATE_SOLD_OUT;
    case CLAIM_LIMIT_REACHED:
        return LIVE_RATE_LIMIT_REACHED;
    case CLAIM_NOT_OPEN:
        return LIVE_RATE_NOT_OPEN;
    default:
        return LIVE_RATE_OTHER;
    }
}

/* What this loop has counted since the last fold. */
static void fold_rates(struct api_loop *loop, int64_t wall_ms)
{
    struct live *live = loop->api->live;
    uint64_t *counted = loop->live->counted;
    int64_t tenth = wall_ms / TENTH_MS;
    pthread_mutex_lock(&live->rates_lock);
    struct live_rate_tenth *kept = &live->rates[tenth % LIVE_RATE_TENTHS];
    if (kept->tenth != tenth) {
        *kept = (struct live_rate_tenth){.tenth = tenth};
    }
    for (unsigned result = 0; result < CLAIM_RESULT_COUNT; result++) {
        uint64_t count = atomic_load_explicit(&loop->counters.claims[result], memory_order_relaxed);
        kept->counts[rate_of(result)] += (uint32_t)(count - counted[result]);
        counted[result] = count;
    }
    pthread_mutex_unlock(&live->rates_lock);
}

void live_rates(struct live *live, int64_t wall_ms, uint32_t rates[LIVE_RATES])
{
    int64_t tenth = wall_ms / TENTH_MS;
    memset(rates, 0, LIVE_RATES * sizeof rates[0]);
    pthread_mutex_lock(&live->rates_lock);
    for (unsigned index = 0; index < LIVE_RATE_TENTHS; index++) {
        const struct live_rate_tenth *kept = &live->rates[index];
        /* The present tenth is not over. */
        if (kept->tenth >= tenth || kept->tenth < tenth - 10) {
            continue;
        }
        for (unsigned rate = 0; rate < LIVE_RATES; rate++) {
            rates[rate] += kept->counts[rate];
        }
    }
    pthread_mutex_unlock(&live->rates_lock);
}

void live_tick(struct api_loop *loop, int64_t now_ms)
{
    struct live_loop *live = loop->live;
    if (live->has_news) {
        int64_t folded[LIVE_TALLIES];
        size_t count = live_tallies_fold(&live->tallies, folded);
        fold_rates(loop, http_loop_wall_ms(loop->http));
        live->has_news = false;
        for (size_t index = 0; index < count; index++) {
            live_look_at(loop->api, folded[index]);
        }
    }
    live_board_tick(loop, now_ms);
    live_watches_tick(loop, now_ms);
}

/* --- noticing --- */

static void notice_window(struct notices *notices, const struct gate_numbers *now,
                          const struct live_look *before, int64_t wall_ms)
{
    int64_t id = now->policy_id;
    if (now->opens_at_ms != before->opens_at_ms) {
        notices_add(notices, wall_ms, id, "changed", "The opening time was changed.");
    }
    if (now->closes_at_ms != before->closes_at_ms) {
        notices_add(notices, wall_ms, id, "changed", "The closing time was changed.");
    }
    if (now->total != before->total) {
        notices_add(notices, wall_ms, id, "changed", "The total was changed from %lld to %lld.",
                    (long long)before->total, (long long)now->total);
    }
}

static void notice_state(struct notices *notices, const struct gate_numbers *now,
                         const struct live_look *before, int64_t wall_ms)
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

void live_look_at(struct api *api, int64_t policy_id)
{
    struct notices *notices = service_notices(api->service);
    struct live *live = api->live;
    struct gate_numbers now;
    struct live_look before;
    pthread_mutex_lock(&live->look_lock);
    int64_t wall_ms = clock_wall_ms();
    if (gate_count(service_gate(api->service), policy_id, wall_ms, &now) == STATUS_OK) {
        struct live_look look = {
            .is_known = true,
            .paused = now.paused,
            .closed_by_hand = now.closed_by_hand,
            .state = (uint8_t)now.state,
            .total = now.total,
            .opens_at_ms = now.opens_at_ms,
            .closes_at_ms = now.closes_at_ms,
            .sold_out_at_ms = now.sold_out_at_ms,
        };
        live_history_look(&live->history, policy_id, &look, wall_ms, &before);
        if (before.is_known) {
            notice_window(notices, &now, &before, wall_ms);
            notice_state(notices, &now, &before, wall_ms);
        } else if (now.sold_out_at_ms != 0) {
            notices_add(notices, now.sold_out_at_ms, policy_id, "sold_out",
                        "The last of %lld went.", (long long)now.total);
        }
    }
    pthread_mutex_unlock(&live->look_lock);
}

void live_policy_changed(struct api *api, int64_t policy_id)
{
    live_directory_spoil(&api->live->directory);
    live_look_at(api, policy_id);
}

void live_policy_created(struct api *api, const struct policy_view *view)
{
    notices_add(service_notices(api->service), view->policy.created_at_ms, view->policy.id,
                "created", "Created with a total of %lld.", (long long)view->policy.total);
    live_policy_changed(api, view->policy.id);
}
