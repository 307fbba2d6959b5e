/* terms.c: says that this process lives, hears who looks after what, and renews what is armed. */
#include "claim/shared/terms.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "claim/parts.h"

#define BEAT_MS        300
#define AWAY_MS        100 /* between beats while the ledger is away */
#define LIFE_MS        1200
#define RENEW_MS       400
#define RENEW_PAUSE_MS 300 /* what somebody has renewed since then is let be */

/* The newest terms, by rising policies. */
struct term_list {
    struct known_term {
        struct ledger_term newest;
        int64_t noted_at_ms; /* monotonic: this process began it then; 0: the ledger told */
    } *terms;
    size_t count;
    size_t capacity;
};

struct terms {
    struct service *service;
    char holder[64]; /* the worker's name among the stewards; "": it looks after none */
    struct periodic beat;
    struct periodic renewal;
    _Atomic bool is_hurried; /* a renewal is wanted at once */
    bool is_unheard;         /* the beat's own: the ledger did not answer */
    pthread_mutex_t lock;
    struct term_list heard; /* under the lock, as the next */
    int64_t heard_at_ms;    /* before the ledger was asked; monotonic; 0: never */
};

/* --- hearing --- */

/* Puts it at that place, before those that are there. */
static bool term_list_insert(struct term_list *list, size_t at, const struct known_term *term)
{
    if (!array_insert(list->terms, at, list->count, list->capacity))
        return false;
    list->terms[at] = *term;
    return true;
}

/* Where the policy is, or would be. */
static size_t term_list_place(const struct term_list *list, int64_t policy_id)
{
    return array_place(list->terms, list->count, .newest.policy_id, policy_id);
}

/* Unless a later term is known. Without memory it is heard of from the ledger. */
static void term_list_note(struct term_list *list, const struct known_term *term)
{
    size_t at = term_list_place(list, term->newest.policy_id);

    if (at == list->count || list->terms[at].newest.policy_id != term->newest.policy_id)
        (void)term_list_insert(list, at, term);
    else if (list->terms[at].newest.term < term->newest.term)
        list->terms[at] = *term;
}

static bool terms_gather(void *context, const struct ledger_term *term)
{
    struct term_list *list = context;

    return term_list_insert(list, list->count, &(struct known_term){.newest = *term});
}

/* What was begun while the ledger was asked, it may not have told. */
static void terms_keep_noted(const struct term_list *old, int64_t asked_at_ms,
                             struct term_list *fresh)
{
    for (size_t i = 0; i < old->count; i++)
        if (old->terms[i].noted_at_ms >= asked_at_ms)
            term_list_note(fresh, &old->terms[i]);
}

/* Says that the holder lives, and hears of all terms. */
static enum status terms_beat(struct terms *terms, struct error *error)
{
    struct term_list fresh = {0};
    int64_t asked_at_ms = clock_monotonic_ms();
    enum status status = ledger_steward_beat(terms->service->ledger, terms->holder, LIFE_MS,
                                             terms_gather, &fresh, error);

    pthread_mutex_lock(&terms->lock);
    if (status == STATUS_OK) {
        struct term_list old = terms->heard;
        terms_keep_noted(&old, asked_at_ms, &fresh);
        terms->heard = fresh;
        terms->heard_at_ms = asked_at_ms;
        fresh = old;
    }
    pthread_mutex_unlock(&terms->lock);
    free(fresh.terms);
    return status;
}

bool terms_is_alive(struct terms *terms)
{
    pthread_mutex_lock(&terms->lock);
    bool is_alive = terms->heard_at_ms != 0 && clock_monotonic_ms() < terms->heard_at_ms + LIFE_MS;
    pthread_mutex_unlock(&terms->lock);
    return is_alive;
}

bool terms_find(struct terms *terms, int64_t policy_id, struct ledger_term *newest,
                int64_t *told_at_ms)
{
    pthread_mutex_lock(&terms->lock);
    size_t at = term_list_place(&terms->heard, policy_id);
    bool is_there = at < terms->heard.count && terms->heard.terms[at].newest.policy_id == policy_id;
    if (is_there)
        *newest = terms->heard.terms[at].newest;
    *told_at_ms = terms->heard_at_ms;
    pthread_mutex_unlock(&terms->lock);
    return is_there;
}

void terms_note(struct terms *terms, int64_t policy_id, int64_t term)
{
    const struct known_term noted = {
        .newest = {.policy_id = policy_id, .term = term, .is_own = true, .is_held = true},
        .noted_at_ms = clock_monotonic_ms()};

    pthread_mutex_lock(&terms->lock);
    term_list_note(&terms->heard, &noted);
    pthread_mutex_unlock(&terms->lock);
}

/* --- renewing --- */

static void terms_send(struct terms *terms, const struct term_list *list, bool is_confirmed)
{
    struct gate_term *wanted = calloc(list->count + 1, sizeof(*wanted));

    for (size_t i = 0; i < list->count && wanted != NULL; i++)
        wanted[i] = (struct gate_term){.policy_id = list->terms[i].newest.policy_id,
                                       .term = list->terms[i].newest.term};
    if (wanted != NULL)
        gate_renew(terms->service->shared, wanted, list->count, TERMS_ARMED_MS, is_confirmed);
    free(wanted);
}

/* What the ledger said last, also a while ago: for a gate that is nowhere else. */
static void terms_renew_remembered(struct terms *terms)
{
    struct term_list list = {0};
    bool has_room = true;

    pthread_mutex_lock(&terms->lock);
    bool is_fresh = clock_monotonic_ms() < terms->heard_at_ms + LIFE_MS;
    for (size_t i = 0; i < terms->heard.count && has_room; i++)
        has_room = terms_gather(&list, &terms->heard.terms[i].newest);
    pthread_mutex_unlock(&terms->lock);
    terms_send(terms, &list, is_fresh);
    free(list.terms);
}

/* The gate's time is taken before the ledger is asked. */
static void terms_renew(struct terms *terms, bool is_hurried)
{
    struct service *service = terms->service;
    struct term_list list = {0};
    struct error error = {""};

    if (!gate_renewal_begin(service->shared, is_hurried ? 0 : RENEW_PAUSE_MS))
        return;
    if (!gate_can_move(service->shared)) {
        terms_renew_remembered(terms);
        return;
    }
    if (ledger_steward_beat(service->ledger, "", 0, terms_gather, &list, &error) == STATUS_OK)
        terms_send(terms, &list, true);
    free(list.terms);
}

void terms_hurry(struct terms *terms)
{
    terms->is_hurried = true;
    periodic_wake(&terms->renewal);
}

/* --- arming --- */

enum status terms_arm(struct service *service, int64_t policy_id, int64_t term,
                      int64_t active_count, struct error *error)
{
    struct gate_arming arming = {.term = term, .length_ms = TERMS_ARMED_MS};
    enum status status = gate_moment(service->shared, policy_id, &arming.since, error);

    if (status == STATUS_OK) {
        terms_note(service->terms, policy_id, term);
        status = ledger_steward_confirm(service->ledger, policy_id, term, error);
    }
    return status == STATUS_OK ? gate_arm(service->shared, policy_id, active_count, &arming, error)
                               : status;
}

/* --- the threads --- */

static int64_t terms_run_beat(void *context)
{
    struct terms *terms = context;
    struct error error = {""};
    bool was_unheard = terms->is_unheard;

    terms->is_unheard = terms_beat(terms, &error) != STATUS_OK;
    if (terms->is_unheard && !was_unheard)
        log_event(LOG_WARN, "terms_unheard", LOG_FIELD("error", LOG_TEXT(error.text)));
    return terms->is_unheard ? AWAY_MS : BEAT_MS;
}

static int64_t terms_run_renewal(void *context)
{
    struct terms *terms = context;

    terms_renew(terms, atomic_exchange(&terms->is_hurried, false));
    return RENEW_MS;
}

/* --- life --- */

static void terms_free(struct terms *terms)
{
    pthread_mutex_destroy(&terms->lock);
    free(terms->heard.terms);
    free(terms);
}

enum status terms_start(struct service *service, struct error *error)
{
    struct terms *started = calloc(1, sizeof(*started));

    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the terms of policies");
    started->service = service;
    if (service->works)
        snprintf(started->holder, sizeof(started->holder), "%s", workers_holder(service->workers));
    pthread_mutex_init(&started->lock, NULL);
    /* A process that is no steward, and asks the ledger for every renewal, need not read terms
     * besides. */
    bool hears = service->works || !gate_can_move(service->shared);
    enum status status = hears ? terms_beat(started, error) : STATUS_OK;
    if (status != STATUS_OK) {
        terms_free(started);
        return status;
    }
    service->terms = started;
    /* What ran out while nobody was there is armed again before anyone asks. */
    terms_renew(started, true);
    status = periodic_start(&started->renewal, "terms-renew", terms_run_renewal, started, RENEW_MS,
                            error);
    if (status == STATUS_OK && hears)
        status =
            periodic_start(&started->beat, "terms-beat", terms_run_beat, started, BEAT_MS, error);
    return status;
}

void terms_stop(struct terms *terms)
{
    if (terms == NULL)
        return;
    bool has_beaten = terms->beat.is_started;
    periodic_stop(&terms->beat);
    periodic_stop(&terms->renewal);
    /* Others need not wait until it counts as dead. */
    if (has_beaten && terms->holder[0] != '\0')
        (void)!ledger_steward_leave(terms->service->ledger, terms->holder, NULL);
    terms_free(terms);
}
