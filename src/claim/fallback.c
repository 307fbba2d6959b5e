/* fallback.c: the breakers, the claims served without the gate, and the way back to it. */
#include "claim/fallback.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/parts.h"

#define POLICIES_MAX 10000 /* with breakers that are not plainly closed */
#define SERVING_MAX  1000  /* claims that wait for the ledger at the same time, per policy */
#define LOOK_MS      50
#define HOLD_MS      2000 /* for those being served when the rest is held back */

/* Someone who won, or may have, without the gate. */
struct fallback_winner {
    struct user_id user;
    struct request_id request_id; /* a key that is bound to `seq` by now, or the claim's own */
    int64_t seq;                  /* 0: what became of it is not known */
};

struct fallback_policy {
    int64_t id;
    struct breaker breaker;
    size_t serving; /* claims on their way to the ledger */
    bool is_held;   /* nobody is served any more: the last winners are entering the gate */
    struct fallback_winner *winners;
    size_t winner_count;
    size_t winner_capacity;
};

struct fallback {
    struct service *service;
    bool serves; /* FALLBACK_LEDGER */
    pthread_t thread;
    bool is_running;
    pthread_mutex_t lock;
    pthread_cond_t bell; /* stop, an opened breaker, or nobody being served */
    bool is_stopping;
    struct fallback_policy *policies; /* in rising order of ids */
    _Atomic size_t policy_count;
    size_t policy_capacity;
    struct fallback_numbers numbers;
};

/* --- the table; under the lock --- */

static size_t fallback_place(const struct fallback *fallback, int64_t id)
{
    size_t low = 0;
    size_t high = fallback->policy_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (fallback->policies[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct fallback_policy *fallback_find(struct fallback *fallback, int64_t id)
{
    size_t at = fallback_place(fallback, id);

    return at < fallback->policy_count && fallback->policies[at].id == id ? &fallback->policies[at]
                                                                          : NULL;
}

static struct fallback_policy *fallback_add(struct fallback *fallback, int64_t id)
{
    size_t at = fallback_place(fallback, id);

    if (at < fallback->policy_count && fallback->policies[at].id == id)
        return &fallback->policies[at];
    if (fallback->policy_count == POLICIES_MAX)
        return NULL;
    if (fallback->policy_count == fallback->policy_capacity) {
        size_t capacity = fallback->policy_capacity == 0 ? 16 : fallback->policy_capacity * 2;
        struct fallback_policy *grown = realloc(fallback->policies, capacity * sizeof(*grown));
        if (grown == NULL)
            return NULL;
        fallback->policies = grown;
        fallback->policy_capacity = capacity;
    }
    memmove(fallback->policies + at + 1, fallback->policies + at,
            (fallback->policy_count - at) * sizeof(*fallback->policies));
    fallback->policies[at] =
        (struct fallback_policy){.id = id, .breaker.is_quick = fallback->serves};
    fallback->policy_count++;
    return &fallback->policies[at];
}

static void fallback_remove(struct fallback *fallback, struct fallback_policy *policy)
{
    size_t at = (size_t)(policy - fallback->policies);

    free(policy->winners);
    fallback->policy_count--;
    memmove(fallback->policies + at, fallback->policies + at + 1,
            (fallback->policy_count - at) * sizeof(*fallback->policies));
}

static bool fallback_add_winner(struct fallback_policy *policy,
                                const struct fallback_winner *winner)
{
    if (policy->winner_count == policy->winner_capacity) {
        size_t capacity = policy->winner_capacity == 0 ? 16 : policy->winner_capacity * 2;
        struct fallback_winner *grown = realloc(policy->winners, capacity * sizeof(*grown));
        if (grown == NULL)
            return false;
        policy->winners = grown;
        policy->winner_capacity = capacity;
    }
    policy->winners[policy->winner_count++] = *winner;
    return true;
}

static void fallback_switched(struct fallback *fallback, const struct fallback_policy *policy)
{
    enum breaker_state state = policy->breaker.state;

    static const char *const words[BREAKER_STATES] = {
        [BREAKER_CLOSED] = "The gate answers again.",
        [BREAKER_HALF_OPEN] = "The gate is tried again.",
        [BREAKER_OPEN] = "The gate is away",
    };

    fallback->numbers.switches[state]++;
    notices_add(&fallback->service->notices, clock_wall_ms(), policy->id, "gate_breaker", "%s%s",
                words[state],
                state != BREAKER_OPEN ? ""
                : fallback->serves    ? ": claims are served from the reserve."
                                      : ": claims are refused with 503.");
    log_event(state == BREAKER_OPEN ? LOG_ERROR : LOG_INFO, "gate_breaker",
              LOG_FIELD("policy", LOG_I64(policy->id)),
              LOG_FIELD("state", LOG_TEXT(breaker_state_name(state))),
              LOG_FIELD("claims", LOG_TEXT(state != BREAKER_OPEN ? "go to the gate"
                                           : fallback->serves    ? "are served from the reserve"
                                                                 : "get 503")));
}

/* --- where claims go --- */

/* Under the lock: of an open breaker. */
static enum fallback_way fallback_around(const struct fallback *fallback,
                                         struct fallback_policy *policy, size_t count)
{
    if (!fallback->serves)
        return FALLBACK_REFUSE;
    if (policy->is_held)
        return FALLBACK_HOLD;
    if (policy->serving + count > SERVING_MAX)
        return FALLBACK_REFUSE;
    policy->serving += count;
    return FALLBACK_SERVE;
}

enum fallback_way fallback_admit(struct fallback *fallback, int64_t policy_id, size_t count)
{
    enum fallback_way way = FALLBACK_ASK;

    if (atomic_load(&fallback->policy_count) == 0)
        return way;
    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy = fallback_find(fallback, policy_id);
    if (policy != NULL && !breaker_lets_through(&policy->breaker, clock_monotonic_ms()))
        way = policy->breaker.state == BREAKER_OPEN ? fallback_around(fallback, policy, count)
                                                    : FALLBACK_HOLD;
    pthread_mutex_unlock(&fallback->lock);
    return way;
}

enum fallback_way fallback_note(struct fallback *fallback, int64_t policy_id, size_t away_count)
{
    enum fallback_way way = FALLBACK_REFUSE;

    if (away_count == 0 && atomic_load(&fallback->policy_count) == 0)
        return way;
    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy =
        away_count == 0 ? fallback_find(fallback, policy_id) : fallback_add(fallback, policy_id);
    if (policy != NULL && breaker_note(&policy->breaker, away_count > 0, clock_monotonic_ms()))
        fallback_switched(fallback, policy);
    if (away_count > 0)
        pthread_cond_broadcast(&fallback->bell);
    if (policy != NULL && away_count > 0 && policy->breaker.state == BREAKER_OPEN)
        way = fallback_around(fallback, policy, away_count);
    pthread_mutex_unlock(&fallback->lock);
    return way;
}

/* --- without the gate --- */

static void fallback_ended(struct fallback *fallback, struct fallback_policy *policy)
{
    ensure(policy->serving > 0);
    if (--policy->serving == 0 && policy->is_held)
        pthread_cond_broadcast(&fallback->bell);
}

void fallback_drop(struct fallback *fallback, int64_t policy_id)
{
    pthread_mutex_lock(&fallback->lock);
    fallback_ended(fallback, fallback_find(fallback, policy_id));
    pthread_mutex_unlock(&fallback->lock);
}

/* Whether the gate has to hear of it before it is asked again. */
static bool fallback_is_news(const struct ledger_wish *asked, enum status status)
{
    if (status == STATUS_UNKNOWN)
        return true;
    return status == STATUS_OK &&
           (asked->verdict == VERDICT_WON ||
            (asked->verdict == VERDICT_HELD && request_id_is_keyed(&asked->request_id)));
}

static void fallback_settled(struct fallback *fallback, const struct ledger_wish *asked,
                             enum status status)
{
    struct fallback_winner winner = {
        .user = asked->user,
        .request_id = asked->request_id,
        .seq = status == STATUS_OK ? asked->coupon.claim.seq : 0,
    };
    bool is_noted = true;

    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy = fallback_find(fallback, asked->policy_id);
    if (fallback_is_news(asked, status))
        is_noted = fallback_add_winner(policy, &winner);
    fallback->numbers.won += status == STATUS_OK && asked->verdict == VERDICT_WON;
    fallback->numbers.held += status == STATUS_OK && asked->verdict == VERDICT_HELD;
    fallback->numbers.refused +=
        status != STATUS_OK || (asked->verdict != VERDICT_WON && asked->verdict != VERDICT_HELD);
    fallback_ended(fallback, policy);
    pthread_mutex_unlock(&fallback->lock);
    if (!is_noted)
        log_event(LOG_WARN, "fallback_winner_forgotten",
                  LOG_FIELD("policy", LOG_I64(asked->policy_id)),
                  LOG_FIELD("user", LOG_SPAN(user_id_span(&asked->user))));
}

static enum status fallback_decide(struct fallback *fallback, struct wish *wish,
                                   struct ledger_wish *decided)
{
    struct error error = {""};
    *decided = (struct ledger_wish){.policy_id = wish->policy_id,
                                    .user = wish->user,
                                    .request_id = wish->request_id,
                                    .now_ms = clock_wall_ms()};
    enum status status = ledger_claim(fallback->service->ledger, decided, &error);

    wish->verdict = status == STATUS_OK ? decided->verdict : VERDICT_UNAVAILABLE;
    wish->ticket = 0;
    wish->is_accepted = false;
    if (wish->verdict == VERDICT_WON || wish->verdict == VERDICT_HELD) {
        wish->seq = decided->coupon.claim.seq;
        wish->nth = decided->coupon.claim.nth;
        wish->coupon_state =
            coupon_state_at(decided->coupon.state, decided->coupon.expires_at_ms, decided->now_ms);
    }
    wish->opens_at_ms = decided->opens_at_ms;
    return status;
}

void fallback_serve(struct fallback *fallback, struct wish *wish)
{
    struct ledger_wish asked;
    enum status status = fallback_decide(fallback, wish, &asked);

    fallback_settled(fallback, &asked, status);
}

void fallback_answer(struct fallback *fallback, struct wish *wish)
{
    struct ledger_wish asked;
    (void)!fallback_decide(fallback, wish, &asked);
}

/* --- the way back --- */

/* What one user holds, on its way into the gate. */
struct fallback_holdings {
    struct coupon coupons[CLAIMS_OF_USER_MAX];
    size_t coupon_count;
    struct claim claims[CLAIMS_OF_USER_MAX + 1];
    enum coupon_state states[CLAIMS_OF_USER_MAX + 1];
    size_t claim_count;
};

static void fallback_gather(struct fallback_holdings *holdings,
                            const struct fallback_winner *winner)
{
    holdings->claim_count = 0;
    for (size_t i = 0; i < holdings->coupon_count; i++) {
        const struct coupon *coupon = &holdings->coupons[i];
        /* A key answers with its claim also after that was cancelled. */
        if (coupon_state_is_active(coupon->state) ||
            (coupon->state == COUPON_CANCELLED && request_id_is_keyed(&coupon->claim.request_id))) {
            holdings->claims[holdings->claim_count] = coupon->claim;
            holdings->states[holdings->claim_count++] = coupon->state;
        }
        /* A key besides the claim's own: it comes as a claim that is not held any more. */
        if (coupon->claim.seq == winner->seq &&
            memcmp(&coupon->claim.request_id, &winner->request_id, sizeof(winner->request_id)) !=
                0) {
            holdings->claims[holdings->claim_count] = coupon->claim;
            holdings->claims[holdings->claim_count].request_id = winner->request_id;
            holdings->states[holdings->claim_count++] = COUPON_CANCELLED;
        }
    }
}

/* The gate hears of all that the ledger has of this user. Whoever cancels meanwhile found nothing
 * in the gate to take away: what was entered and is cancelled by then is taken away here. */
static enum status fallback_enter(struct fallback *fallback, int64_t policy_id,
                                  const struct fallback_winner *winner,
                                  struct fallback_holdings *holdings, struct error *error)
{
    struct service *service = fallback->service;
    enum status status =
        ledger_coupons_of_claimant(service->ledger, policy_id, &winner->user, holdings->coupons,
                                   CLAIMS_OF_USER_MAX, &holdings->coupon_count, error);

    if (status != STATUS_OK)
        return status;
    fallback_gather(holdings, winner);
    status = gate_enter(service->gate, policy_id, holdings->claims, holdings->states,
                        holdings->claim_count, error);
    for (size_t i = 0; i < holdings->claim_count && status == STATUS_OK; i++) {
        struct coupon now;
        if (!coupon_state_is_active(holdings->states[i]))
            continue;
        status =
            ledger_coupon_get(service->ledger, policy_id, holdings->claims[i].seq, &now, error);
        if (status == STATUS_OK && !coupon_state_is_active(now.state))
            status = gate_settle(service->gate, policy_id, &winner->user, now.claim.seq,
                                 COUPON_CANCELLED, error);
    }
    return status;
}

static int fallback_compare_winners(const void *left, const void *right)
{
    const struct fallback_winner *a = left;
    const struct fallback_winner *b = right;
    int order = user_id_compare(&a->user, &b->user);

    if (order == 0)
        order = memcmp(&a->request_id, &b->request_id, sizeof(a->request_id));
    return order != 0 ? order : (a->seq > b->seq) - (a->seq < b->seq);
}

/* How many are noted. Who asked again and again is noted as often, and from here on once. */
static size_t fallback_count_noted(struct fallback *fallback, int64_t policy_id)
{
    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy = fallback_find(fallback, policy_id);
    struct fallback_winner *winners = policy->winners;
    size_t count = 0;
    if (policy->winner_count > 0)
        qsort(winners, policy->winner_count, sizeof(*winners), fallback_compare_winners);
    for (size_t i = 0; i < policy->winner_count; i++) {
        if (count == 0 || fallback_compare_winners(&winners[count - 1], &winners[i]) != 0)
            winners[count++] = winners[i];
    }
    policy->winner_count = count;
    pthread_mutex_unlock(&fallback->lock);
    return count;
}

/* So many of those who are noted enter, the last first. */
static enum status fallback_enter_noted(struct fallback *fallback, int64_t policy_id, size_t count,
                                        struct fallback_holdings *holdings, struct error *error)
{
    enum status status = gate_enter(fallback->service->gate, policy_id, NULL, NULL, 0, error);

    for (; status == STATUS_OK && count > 0; count--) {
        struct fallback_winner winner = {.seq = 0};
        pthread_mutex_lock(&fallback->lock);
        struct fallback_policy *policy = fallback_find(fallback, policy_id);
        bool is_over = policy->winner_count == 0 || fallback->is_stopping;
        if (!is_over)
            winner = policy->winners[--policy->winner_count];
        pthread_mutex_unlock(&fallback->lock);
        if (is_over)
            break;
        status = fallback_enter(fallback, policy_id, &winner, holdings, error);
        if (status == STATUS_OK)
            continue;
        pthread_mutex_lock(&fallback->lock);
        (void)fallback_add_winner(fallback_find(fallback, policy_id), &winner);
        pthread_mutex_unlock(&fallback->lock);
    }
    return status;
}

/* Those who are noted enter while others are still served, over and over as long as each time at
 * most half as many have come as went: in a crowd they may come faster than they go. */
static enum status fallback_enter_most(struct fallback *fallback, int64_t policy_id,
                                       struct fallback_holdings *holdings, struct error *error)
{
    size_t count = fallback_count_noted(fallback, policy_id);
    size_t before;
    enum status status;

    do {
        before = count;
        status = fallback_enter_noted(fallback, policy_id, before, holdings, error);
        count = fallback_count_noted(fallback, policy_id);
    } while (status == STATUS_OK && count > 0 && count <= before / 2);
    return status;
}

/* Nobody new is served from here on; waits for those who are. */
static enum status fallback_hold_back(struct fallback *fallback, int64_t policy_id,
                                      struct error *error)
{
    struct timespec until = clock_deadline_in_ms(HOLD_MS);
    enum status status = STATUS_OK;

    pthread_mutex_lock(&fallback->lock);
    fallback_find(fallback, policy_id)->is_held = true;
    while (fallback_find(fallback, policy_id)->serving > 0 && status == STATUS_OK &&
           !fallback->is_stopping) {
        if (pthread_cond_timedwait(&fallback->bell, &fallback->lock, &until) != 0)
            status = error_set(error, STATUS_BUSY, "the ledger still decides claims");
    }
    pthread_mutex_unlock(&fallback->lock);
    return status;
}

/* A policy that the ledger does not have, or that is closed and was let go, needs no breaker. */
static bool fallback_is_over(struct fallback *fallback, int64_t policy_id)
{
    struct policy policy;
    enum status status = ledger_policy_get(fallback->service->ledger, policy_id, &policy, NULL);
    return status == STATUS_NOT_FOUND || (status == STATUS_OK && policy.closed_at_ms != 0);
}

/* Looks whether the gate answers for the policy again. Most winners enter while others are still
 * served; the last ones while claims are held back for a moment. */
static void fallback_mend(struct fallback *fallback, int64_t policy_id,
                          struct fallback_holdings *holdings)
{
    struct error error = {""};
    enum status status = fallback_enter_most(fallback, policy_id, holdings, &error);

    if (status == STATUS_OK)
        status = fallback_hold_back(fallback, policy_id, &error);
    if (status == STATUS_OK)
        status = fallback_enter_noted(fallback, policy_id,
                                      fallback_count_noted(fallback, policy_id), holdings, &error);
    bool is_over = status == STATUS_NOT_FOUND && fallback_is_over(fallback, policy_id);
    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy = fallback_find(fallback, policy_id);
    int64_t now_ms = clock_monotonic_ms();
    policy->is_held = false;
    if (status == STATUS_OK || is_over) {
        breaker_try(&policy->breaker, now_ms);
        fallback_switched(fallback, policy);
    } else {
        breaker_put_off(&policy->breaker, now_ms, (uint32_t)random_below(1024));
    }
    pthread_mutex_unlock(&fallback->lock);
    if (status == STATUS_OK)
        service_stock_changed(fallback->service); /* Those who were held back try again. */
}

/* Under the lock: drops what is plainly closed, and finds an open breaker that is due. */
static int64_t fallback_next(struct fallback *fallback, int64_t now_ms)
{
    for (size_t i = 0; i < fallback->policy_count;) {
        struct fallback_policy *policy = &fallback->policies[i];
        if (policy->breaker.state == BREAKER_OPEN && policy->breaker.look_at_ms <= now_ms)
            return policy->id;
        if (breaker_forget(&policy->breaker, now_ms))
            fallback_switched(fallback, policy);
        if (policy->breaker.state == BREAKER_CLOSED && policy->breaker.failure_count == 0 &&
            policy->serving == 0 && policy->winner_count == 0)
            fallback_remove(fallback, policy);
        else
            i++;
    }
    return 0;
}

static void *fallback_main(void *context)
{
    struct fallback *fallback = context;
    struct fallback_holdings *holdings = malloc(sizeof(*holdings));

    ensure(holdings != NULL);
    pthread_mutex_lock(&fallback->lock);
    while (!fallback->is_stopping) {
        int64_t policy_id = fallback_next(fallback, clock_monotonic_ms());
        if (policy_id != 0) {
            pthread_mutex_unlock(&fallback->lock);
            fallback_mend(fallback, policy_id, holdings);
            pthread_mutex_lock(&fallback->lock);
        } else if (fallback->policy_count == 0) {
            pthread_cond_wait(&fallback->bell, &fallback->lock);
        } else {
            struct timespec until = clock_deadline_in_ms(LOOK_MS);
            pthread_cond_timedwait(&fallback->bell, &fallback->lock, &until);
        }
    }
    pthread_mutex_unlock(&fallback->lock);
    free(holdings);
    return NULL;
}

/* --- life --- */

enum status fallback_start(struct fallback **fallback, struct service *service, struct error *error)
{
    struct fallback *started = calloc(1, sizeof(*started));

    *fallback = NULL;
    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the fallback");
    started->service = service;
    started->serves = service->options.fallback == FALLBACK_LEDGER;
    pthread_mutex_init(&started->lock, NULL);
    clock_condition_init(&started->bell);
    *fallback = started;
    started->is_running = pthread_create(&started->thread, NULL, fallback_main, started) == 0;
    return started->is_running
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "cannot start the fallback's thread");
}

void fallback_stop(struct fallback *fallback)
{
    if (fallback == NULL)
        return;
    pthread_mutex_lock(&fallback->lock);
    fallback->is_stopping = true;
    pthread_cond_broadcast(&fallback->bell);
    pthread_mutex_unlock(&fallback->lock);
    if (fallback->is_running)
        pthread_join(fallback->thread, NULL);
    for (size_t i = 0; i < fallback->policy_count; i++)
        free(fallback->policies[i].winners);
    free(fallback->policies);
    pthread_cond_destroy(&fallback->bell);
    pthread_mutex_destroy(&fallback->lock);
    free(fallback);
}

void fallback_count(struct fallback *fallback, struct fallback_numbers *numbers)
{
    pthread_mutex_lock(&fallback->lock);
    *numbers = fallback->numbers;
    for (size_t i = 0; i < fallback->policy_count; i++) {
        const struct fallback_policy *policy = &fallback->policies[i];
        if (policy->breaker.state != BREAKER_CLOSED)
            numbers->breakers[policy->breaker.state]++;
        numbers->entering += policy->winner_count;
    }
    pthread_mutex_unlock(&fallback->lock);
}
