/* fallback.c: the breakers, the claims served without the gate, and the way back to it. */
#include "claim/fallback.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/entering.h"
#include "claim/parts.h"

#define POLICIES_MAX 10000 /* with breakers that are not plainly closed */
#define SERVING_MAX  1000  /* claims that wait for the ledger at the same time, per policy */
#define LOOK_MS      50
#define HOLD_MS      2000 /* for those being served when the rest is held back */

struct fallback_policy {
    int64_t id;
    struct breaker breaker;
    size_t serving;    /* claims on their way to the ledger */
    bool is_held;      /* nobody is served any more: the last winners are entering the gate */
    size_t news_count; /* served here since the gate last heard of all that was given without it */
};

struct fallback {
    struct service *service;
    bool serves; /* FALLBACK_LEDGER */
    pthread_t thread;
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

    fallback->policy_count--;
    memmove(fallback->policies + at, fallback->policies + at + 1,
            (fallback->policy_count - at) * sizeof(*fallback->policies));
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
    if (policy->is_held)
        return FALLBACK_HOLD;
    if (!fallback->serves)
        return FALLBACK_REFUSE;
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

/* Anybody may name any id: those that nobody has made into policies get no place in the table. One
 * that was made a moment ago is known to the gate before it is to the sync. */
static bool fallback_is_policy(struct service *service, int64_t policy_id)
{
    struct gate_numbers numbers;

    return sync_lists(service->sync, policy_id) ||
           gate_count(service->gate, policy_id, clock_wall_ms(), &numbers) == STATUS_OK;
}

enum fallback_way fallback_note(struct fallback *fallback, int64_t policy_id, size_t away_count)
{
    enum fallback_way way = FALLBACK_REFUSE;

    if (away_count == 0 && atomic_load(&fallback->policy_count) == 0)
        return way;
    bool is_noted = away_count > 0 && fallback_is_policy(fallback->service, policy_id);
    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy =
        is_noted ? fallback_add(fallback, policy_id) : fallback_find(fallback, policy_id);
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

static void fallback_settled(struct fallback *fallback, const struct ledger_wish *asked,
                             enum status status)
{
    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy = fallback_find(fallback, asked->policy_id);
    policy->news_count += status == STATUS_OK && asked->is_news;
    fallback->numbers.won += status == STATUS_OK && asked->verdict == VERDICT_WON;
    fallback->numbers.held += status == STATUS_OK && asked->verdict == VERDICT_HELD;
    fallback->numbers.refused +=
        status != STATUS_OK || (asked->verdict != VERDICT_WON && asked->verdict != VERDICT_HELD);
    fallback_ended(fallback, policy);
    pthread_mutex_unlock(&fallback->lock);
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

static bool fallback_is_stopping(struct fallback *fallback)
{
    pthread_mutex_lock(&fallback->lock);
    bool is_stopping = fallback->is_stopping;
    pthread_mutex_unlock(&fallback->lock);
    return is_stopping;
}

/* The gate hears of all that the ledger gave without it, through this process or another. A gate
 * that does not answer for the policy costs the ledger nothing. One that serves nobody does not
 * wait for the ledger: what others have served enters when that is back. */
static enum status fallback_enter(struct fallback *fallback, int64_t policy_id, struct error *error)
{
    struct service *service = fallback->service;
    enum status status = gate_enter(service->gate, policy_id, NULL, NULL, 0, error);
    bool is_done = false;

    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    do
        status = entering_tell(service, policy_id, &is_done, error);
    while (status == STATUS_OK && !is_done && !fallback_is_stopping(fallback));
    return status == STATUS_OK || fallback->serves
               ? status
               : gate_enter(service->gate, policy_id, NULL, NULL, 0, error);
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

/* Looks whether the gate answers for the policy again. Most winners enter while others are still
 * served; the last ones while claims are held back for a moment. */
static void fallback_mend(struct fallback *fallback, int64_t policy_id)
{
    struct error error = {""};
    enum status status = fallback_enter(fallback, policy_id, &error);

    if (status == STATUS_OK)
        status = fallback_hold_back(fallback, policy_id, &error);
    if (status == STATUS_OK)
        status = fallback_enter(fallback, policy_id, &error);
    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy = fallback_find(fallback, policy_id);
    int64_t now_ms = clock_monotonic_ms();
    policy->is_held = false;
    if (status == STATUS_OK) {
        policy->news_count = 0;
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
            policy->serving == 0)
            fallback_remove(fallback, policy);
        else
            i++;
    }
    return 0;
}

static void *fallback_main(void *context)
{
    struct fallback *fallback = context;

    pthread_mutex_lock(&fallback->lock);
    while (!fallback->is_stopping) {
        int64_t policy_id = fallback_next(fallback, clock_monotonic_ms());
        if (policy_id != 0) {
            pthread_mutex_unlock(&fallback->lock);
            fallback_mend(fallback, policy_id);
            pthread_mutex_lock(&fallback->lock);
        } else if (fallback->policy_count == 0) {
            pthread_cond_wait(&fallback->bell, &fallback->lock);
        } else {
            struct timespec until = clock_deadline_in_ms(LOOK_MS);
            pthread_cond_timedwait(&fallback->bell, &fallback->lock, &until);
        }
    }
    pthread_mutex_unlock(&fallback->lock);
    return NULL;
}

/* --- life --- */

/* What a process that has ended gave without the gate enters it before claims go there: those who
 * ask are held back until then. */
static enum status fallback_find_marked(struct fallback *fallback, struct error *error)
{
    int64_t ids[64];
    size_t count = 0;
    int64_t after_id = 0;
    enum status status;

    do {
        status = ledger_entering_policies(fallback->service->ledger, after_id, ids,
                                          sizeof(ids) / sizeof(ids[0]), &count, error);
        for (size_t i = 0; i < count && status == STATUS_OK; i++) {
            struct fallback_policy *policy = fallback_add(fallback, ids[i]);
            if (policy == NULL)
                return error_set(error, STATUS_UNAVAILABLE, "too many policies wait for the gate");
            breaker_distrust(&policy->breaker, clock_monotonic_ms());
            policy->is_held = true;
            after_id = ids[i];
        }
    } while (status == STATUS_OK && count > 0);
    return status;
}

static void fallback_free(struct fallback *fallback)
{
    free(fallback->policies);
    pthread_cond_destroy(&fallback->bell);
    pthread_mutex_destroy(&fallback->lock);
    free(fallback);
}

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
    enum status status = fallback_find_marked(started, error);
    if (status == STATUS_OK && pthread_create(&started->thread, NULL, fallback_main, started) != 0)
        status = error_set(error, STATUS_UNAVAILABLE, "cannot start the fallback's thread");
    if (status != STATUS_OK)
        fallback_free(started);
    else
        *fallback = started;
    return status;
}

void fallback_stop(struct fallback *fallback)
{
    if (fallback == NULL)
        return;
    pthread_mutex_lock(&fallback->lock);
    fallback->is_stopping = true;
    pthread_cond_broadcast(&fallback->bell);
    pthread_mutex_unlock(&fallback->lock);
    pthread_join(fallback->thread, NULL);
    fallback_free(fallback);
}

void fallback_count(struct fallback *fallback, struct fallback_numbers *numbers)
{
    pthread_mutex_lock(&fallback->lock);
    *numbers = fallback->numbers;
    for (size_t i = 0; i < fallback->policy_count; i++) {
        const struct fallback_policy *policy = &fallback->policies[i];
        if (policy->breaker.state != BREAKER_CLOSED)
            numbers->breakers[policy->breaker.state]++;
        numbers->entering += policy->news_count;
    }
    pthread_mutex_unlock(&fallback->lock);
}
