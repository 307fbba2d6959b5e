/* fallback.c: the breakers, the claims served without the gate, and the way back to it. */
#include "claim/shared/fallback.h"

#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/random.h"
#include "claim/parts.h"

#define POLICIES_MAX 10000 /* with breakers that are not plainly closed */
#define SERVING_MAX  1000  /* claims that wait for the ledger at the same time, per policy */
#define LOOK_MS      50
#define IDLE_MS      60000 /* while the gate is away for nobody: then the probe is woken */
#define HOLD_MS      2000  /* for those being served when the rest is held back */
#define HOLD_LOOK_MS 5
#define PAGE_MAX     100

struct fallback_policy {
    int64_t id;
    struct breaker breaker;
    size_t serving;    /* claims on their way to the ledger */
    bool is_held;      /* nobody is served any more: the last winners are entering the gate */
    size_t news_count; /* served here since the gate last heard of all that was given without it */
};

struct fallback {
    struct service *service;
    bool serves;                      /* FALLBACK_LEDGER */
    struct periodic probe;            /* looks at gates that were away */
    pthread_mutex_t lock;             /* of what follows */
    struct fallback_policy *policies; /* in rising order of ids */
    _Atomic size_t policy_count;
    size_t policy_capacity;
    struct fallback_numbers numbers;
};

/* --- the table; under the lock --- */

static size_t fallback_place(const struct fallback *fallback, int64_t id)
{
    return array_place(fallback->policies, fallback->policy_count, .id, id);
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
    if (fallback->policy_count == POLICIES_MAX ||
        !array_insert(fallback->policies, at, fallback->policy_count, fallback->policy_capacity))
        return NULL;
    fallback->policies[at] =
        (struct fallback_policy){.id = id, .breaker.is_quick = fallback->serves};
    return &fallback->policies[at];
}

static void fallback_remove(struct fallback *fallback, struct fallback_policy *policy)
{
    array_remove(fallback->policies, policy - fallback->policies, fallback->policy_count);
}

static void fallback_switched(struct fallback *fallback, const struct fallback_policy *policy)
{
    enum breaker_state state = policy->breaker.state;

    static const char *const names[BREAKER_STATES] = {
        [BREAKER_CLOSED] = "The gate answers again.",
        [BREAKER_HALF_OPEN] = "The gate is tried again.",
        [BREAKER_OPEN] = "The gate is away",
    };

    fallback->numbers.switches[state]++;
    notices_add(&fallback->service->notices, clock_wall_ms(), policy->id, "gate_breaker", "%s%s",
                names[state],
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
static enum fallback_choice fallback_around(const struct fallback *fallback,
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

enum fallback_choice fallback_admit(struct fallback *fallback, int64_t policy_id, size_t count)
{
    enum fallback_choice choice = FALLBACK_ASK;

    if (atomic_load(&fallback->policy_count) == 0)
        return choice;
    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy = fallback_find(fallback, policy_id);
    if (policy != NULL && !breaker_lets_through(&policy->breaker, clock_monotonic_ms()))
        choice = policy->breaker.state == BREAKER_OPEN ? fallback_around(fallback, policy, count)
                                                       : FALLBACK_HOLD;
    pthread_mutex_unlock(&fallback->lock);
    return choice;
}

/* Anybody may name any id: those that nobody has made into policies get no place in the table. One
 * that was made a moment ago is known to the gate before it is to the sync. */
static bool fallback_is_policy(struct service *service, int64_t policy_id)
{
    struct gate_numbers numbers;

    return sync_lists(service->sync, policy_id) ||
           gate_count(service->gate, policy_id, clock_wall_ms(), &numbers) == STATUS_OK;
}

enum fallback_choice fallback_note(struct fallback *fallback, int64_t policy_id, size_t away_count)
{
    enum fallback_choice choice = FALLBACK_REFUSE;

    if (away_count == 0 && atomic_load(&fallback->policy_count) == 0)
        return choice;
    bool is_noted = away_count > 0 && fallback_is_policy(fallback->service, policy_id);
    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy =
        is_noted ? fallback_add(fallback, policy_id) : fallback_find(fallback, policy_id);
    if (policy != NULL && breaker_note(&policy->breaker, away_count > 0, clock_monotonic_ms()))
        fallback_switched(fallback, policy);
    if (policy != NULL && away_count > 0 && policy->breaker.state == BREAKER_OPEN)
        choice = fallback_around(fallback, policy, away_count);
    pthread_mutex_unlock(&fallback->lock);
    if (away_count > 0)
        periodic_wake(&fallback->probe);
    return choice;
}

/* --- without the gate --- */

/* Under the lock: one claim less is on its way to the ledger. */
static struct fallback_policy *fallback_ended(struct fallback *fallback, int64_t policy_id)
{
    struct fallback_policy *policy = fallback_find(fallback, policy_id);

    ensure(policy->serving > 0);
    policy->serving--;
    return policy;
}

void fallback_drop(struct fallback *fallback, int64_t policy_id)
{
    pthread_mutex_lock(&fallback->lock);
    (void)fallback_ended(fallback, policy_id);
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
    bool is_told = fallback_decide(fallback, wish, &asked) == STATUS_OK;
    bool has_won = is_told && asked.verdict == VERDICT_WON;
    bool holds = is_told && asked.verdict == VERDICT_HELD;

    pthread_mutex_lock(&fallback->lock);
    struct fallback_policy *policy = fallback_ended(fallback, asked.policy_id);
    policy->news_count += is_told && asked.is_news;
    fallback->numbers.won += has_won;
    fallback->numbers.held += holds;
    fallback->numbers.refused += !has_won && !holds;
    pthread_mutex_unlock(&fallback->lock);
}

void fallback_answer(struct fallback *fallback, struct wish *wish)
{
    struct ledger_wish asked;
    (void)!fallback_decide(fallback, wish, &asked);
}

/* --- winners that the gate has not heard of ---
 *
 * The ledger keeps a mark on each of their coupons until it is told, so that any process can do it:
 * the server that gave them, one that starts after it ended, or a worker. */

/* A page, and what of it goes to the gate. */
struct entering {
    struct entering_coupon coupons[PAGE_MAX];
    size_t coupon_count;
    struct claim *claims;
    enum coupon_state *states;
    size_t claim_count;
    size_t claim_capacity;
};

static enum status entering_add(struct entering *entering, const struct claim *claim,
                                enum coupon_state state, struct error *error)
{
    size_t capacity = entering->claim_capacity;

    if (!array_make_room(entering->states, entering->claim_count, capacity) ||
        !array_make_room(entering->claims, entering->claim_count, entering->claim_capacity))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for what the gate is to hear");
    entering->claims[entering->claim_count] = *claim;
    entering->states[entering->claim_count++] = state;
    return STATUS_OK;
}

/* A key besides the claim's own: it comes as a claim that is not held any more. */
static enum status entering_add_key(void *context, const struct key_binding *key,
                                    struct error *error)
{
    struct claim claim = {.policy_id = key->policy_id,
                          .seq = key->seq,
                          .request_id = key->request_id,
                          .nth = key->nth,
                          .user = key->user};
    return entering_add(context, &claim, COUPON_CANCELLED, error);
}

/* What is active is held in the gate from now on; of what was cancelled only the key answers. */
static enum status entering_add_coupons(struct entering *entering, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < entering->coupon_count && status == STATUS_OK; i++) {
        const struct coupon *coupon = &entering->coupons[i].coupon;
        if (coupon_state_is_active(coupon->state) ||
            (coupon->state == COUPON_CANCELLED && request_id_is_keyed(&coupon->claim.request_id)))
            status = entering_add(entering, &coupon->claim, coupon->state, error);
    }
    return status;
}

/* One that was entered and is cancelled by now: whoever cancelled it may have found nothing in the
 * gate to take away. */
static enum status entering_take_away(struct service *service, const struct entering *entering,
                                      struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < entering->coupon_count && status == STATUS_OK; i++) {
        const struct coupon *coupon = &entering->coupons[i].coupon;
        if (!coupon_state_is_active(coupon->state))
            status = gate_settle(service->gate, coupon->claim.policy_id, &coupon->claim.user,
                                 coupon->claim.seq, COUPON_CANCELLED, error);
    }
    return status;
}

/* A policy that the ledger does not have, or that is closed, and was let go by the gate. */
static bool entering_is_over(struct service *service, int64_t policy_id)
{
    struct policy policy;
    enum status status = ledger_policy_get(service->ledger, policy_id, &policy, NULL);
    return status == STATUS_NOT_FOUND ||
           (status == STATUS_OK && policy_is_closed(&policy, clock_wall_ms()));
}

static enum status entering_tell_page(struct service *service, struct entering *entering,
                                      int64_t policy_id, bool *is_done, struct error *error)
{
    size_t left_count = 0;
    enum status status =
        ledger_entering(service->ledger, policy_id, entering->coupons, PAGE_MAX,
                        &entering->coupon_count, entering_add_key, entering, error);

    if (status == STATUS_OK)
        status = entering_add_coupons(entering, error);
    if (status == STATUS_OK)
        status = gate_enter(service->shared, policy_id, entering->claims, entering->states,
                            entering->claim_count, error);
    if (status == STATUS_NOT_FOUND && entering_is_over(service, policy_id)) {
        *is_done = true;
        return ledger_entering_forget(service->ledger, policy_id, error);
    }
    if (status == STATUS_OK)
        status = entering_take_away(service, entering, error);
    if (status == STATUS_OK && entering->coupon_count > 0)
        status = ledger_entered(service->ledger, entering->coupons, entering->coupon_count,
                                &left_count, error);
    *is_done = status == STATUS_OK && entering->coupon_count < PAGE_MAX && left_count == 0;
    return status;
}

enum status fallback_tell_gate(struct service *service, int64_t policy_id, bool *is_done,
                               struct error *error)
{
    struct entering *entering = calloc(1, sizeof(*entering));

    *is_done = false;
    if (entering == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for what the gate is to hear");
    enum status status = entering_tell_page(service, entering, policy_id, is_done, error);
    free(entering->claims);
    free(entering->states);
    free(entering);
    return status;
}

/* --- the way back --- */

/* The gate hears of all that the ledger gave without it, through this process or another. A gate
 * that does not answer for the policy costs the ledger nothing. One that serves nobody does not
 * wait for the ledger: what others have served enters when that is back. */
static enum status fallback_enter(struct fallback *fallback, int64_t policy_id, struct error *error)
{
    struct service *service = fallback->service;
    enum status status = gate_enter(service->shared, policy_id, NULL, NULL, 0, error);
    bool is_done = false;

    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    do
        status = fallback_tell_gate(service, policy_id, &is_done, error);
    while (status == STATUS_OK && !is_done && !periodic_is_stopping(&fallback->probe));
    return status == STATUS_OK || fallback->serves
               ? status
               : gate_enter(service->shared, policy_id, NULL, NULL, 0, error);
}

/* Nobody new is served from here on; waits for those who are. */
static enum status fallback_hold_back(struct fallback *fallback, int64_t policy_id,
                                      struct error *error)
{
    int64_t until_ms = clock_monotonic_ms() + HOLD_MS;

    for (;;) {
        pthread_mutex_lock(&fallback->lock);
        struct fallback_policy *policy = fallback_find(fallback, policy_id);
        policy->is_held = true;
        size_t serving = policy->serving;
        pthread_mutex_unlock(&fallback->lock);
        if (serving == 0)
            return STATUS_OK;
        if (clock_monotonic_ms() >= until_ms || periodic_is_stopping(&fallback->probe))
            return error_set(error, STATUS_BUSY, "the ledger still decides claims");
        service_pause(HOLD_LOOK_MS);
    }
}

/* Looks whether the gate answers for the policy again. Most winners enter while others are still
 * served; the last ones while claims are held back for a moment. */
static void fallback_fix(struct fallback *fallback, int64_t policy_id)
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
        if (policy->breaker.state == BREAKER_OPEN && policy->breaker.probe_at_ms <= now_ms)
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

static int64_t fallback_probe(void *context)
{
    struct fallback *fallback = context;

    pthread_mutex_lock(&fallback->lock);
    int64_t policy_id = fallback_next(fallback, clock_monotonic_ms());
    int64_t pause_ms = fallback->policy_count == 0 ? IDLE_MS : LOOK_MS;
    pthread_mutex_unlock(&fallback->lock);
    if (policy_id == 0)
        return pause_ms;
    fallback_fix(fallback, policy_id);
    return 0;
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

enum status fallback_start(struct service *service, struct error *error)
{
    struct fallback *started = calloc(1, sizeof(*started));

    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the fallback");
    started->service = service;
    started->serves = service->options.fallback == FALLBACK_LEDGER;
    pthread_mutex_init(&started->lock, NULL);
    enum status status = fallback_find_marked(started, error);
    if (status == STATUS_OK)
        status = periodic_start(&started->probe, "fallback", fallback_probe, started, 0, error);
    if (status == STATUS_OK)
        service->fallback = started;
    else
        fallback_stop(started);
    return status;
}

void fallback_stop(struct fallback *fallback)
{
    if (fallback == NULL)
        return;
    periodic_stop(&fallback->probe);
    free(fallback->policies);
    pthread_mutex_destroy(&fallback->lock);
    free(fallback);
}

bool service_count_fallback(struct service *service, struct fallback_numbers *numbers)
{
    struct fallback *fallback = service->fallback;

    if (fallback == NULL)
        return false;
    pthread_mutex_lock(&fallback->lock);
    *numbers = fallback->numbers;
    for (size_t i = 0; i < fallback->policy_count; i++) {
        const struct fallback_policy *policy = &fallback->policies[i];
        if (policy->breaker.state != BREAKER_CLOSED)
            numbers->breakers[policy->breaker.state]++;
        numbers->entering += policy->news_count;
    }
    pthread_mutex_unlock(&fallback->lock);
    return true;
}
