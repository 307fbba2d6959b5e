/* restore.c: a thread that reads stretch by stretch until the gate has all policies. */
#include "claim/local/restore.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "claim/parts.h"

/* So long a start waits for it before it listens. */
#define PATIENCE_MS    100
#define RETRY_PAUSE_MS 200
/* Used-up leases are closed so many at a time: claims of the policies that are there wait for it.
 */
#define CLOSED_AT_ONCE 1000

struct lease_place {
    int64_t id;
    int64_t policy_id;
};

struct lease_places {
    struct lease_place *items;
    size_t count;
    size_t capacity;
};

struct restore {
    struct service *service;
    pthread_t thread;
    bool is_running;
    atomic_bool is_stopping;
    /* --- its thread's --- */
    struct gate *aside;        /* the stretch that is being built */
    struct lease_places used;  /* sold to the last seq: closing them changes no stock */
    struct lease_places stale; /* of this stretch, closed by hand or with holes: closing them
                                * returns units */
    int64_t stretch_policies;
    int64_t stretch_claims;
    int64_t claim_count;
    /* --- everybody's --- */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool is_waited_for; /* by the start, which has not gone on yet */
    bool is_ended;      /* nothing is left to do, or it has failed */
    enum status status;
    struct error error; /* of the last try */
    int64_t below_id;   /* from here on up they are there */
    int64_t policy_count;
};

/* --- what the ledger tells of a stretch --- */

static enum status restore_go_on(const struct restore *restore, struct error *error)
{
    return atomic_load_explicit(&restore->is_stopping, memory_order_relaxed)
               ? error_set(error, STATUS_UNAVAILABLE, "the server stops")
               : STATUS_OK;
}

static enum status restore_policy(void *context, const struct policy *policy, struct error *error)
{
    struct restore *restore = context;
    restore->stretch_policies++;
    if (policy->is_damaged)
        log_event(LOG_ERROR, "policy_damaged", LOG_FIELD("policy", LOG_I64(policy->id)),
                  LOG_FIELD("error", LOG_TEXT(error->text)),
                  LOG_FIELD("next", LOG_TEXT("put that right and restart; until then claims of "
                                             "this policy get 503")));
    return gate_policy_set(restore->aside, policy, error);
}

static enum status restore_claim(void *context, const struct claim *claim, enum coupon_state state,
                                 struct error *error)
{
    struct restore *restore = context;
    FAULT_POINT("restore.at_claim");
    enum status status = restore_go_on(restore, error);

    restore->stretch_claims++;
    return status == STATUS_OK ? gate_restore(restore->aside, claim, state, error) : status;
}

static enum status restore_key(void *context, const struct key_binding *binding,
                               struct error *error)
{
    struct restore *restore = context;
    enum status status = restore_go_on(restore, error);

    if (status == STATUS_OK)
        status = gate_restore_key(restore->aside, binding, error);
    if (status != STATUS_NOT_FOUND)
        return status;
    log_event(LOG_WARN, "key_without_claim", LOG_FIELD("policy", LOG_I64(binding->policy_id)),
              LOG_FIELD("seq", LOG_I64(binding->seq)),
              LOG_FIELD("next", LOG_TEXT("it is passed over")));
    return STATUS_OK;
}

static enum status restore_set_aside(struct lease_places *list, const struct lease *lease,
                                     struct error *error)
{
    if (!array_make_room(list->items, list->count, list->capacity))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the leases");
    list->items[list->count++] = (struct lease_place){lease->id, lease->policy_id};
    return STATUS_OK;
}

/* A gate in memory gives out a lease's seqs in order and the ledger writes them in order, so the
 * rows are the first ones and the gate goes on behind them. Anything else is closed, which returns
 * what was never given out. */
static enum status restore_lease(void *context, const struct lease *lease, struct error *error)
{
    struct restore *restore = context;
    struct gate_numbers numbers;
    int64_t last_seq;
    int64_t row_count = gate_given(restore->aside, lease, &last_seq);
    bool dense = row_count == 0 || last_seq == lease->first_seq + row_count - 1;
    enum status known = gate_count(restore->aside, lease->policy_id, clock_wall_ms(), &numbers);

    /* What is damaged stays as it is, for whoever puts it right. */
    if (known == STATUS_UNAVAILABLE)
        return STATUS_OK;
    if (row_count == lease->count)
        return restore_set_aside(&restore->used, lease, error);
    if (!dense || known != STATUS_OK || numbers.closed_by_hand)
        return restore_set_aside(&restore->stale, lease, error);
    enum status status = gate_lend(restore->aside, lease, row_count, LEDGER_NO_TERM, error);
    if (status == STATUS_CONFLICT)
        return restore_set_aside(&restore->stale, lease, error);
    return status;
}

/* --- a stretch --- */

/* A gate that was built halfway is begun anew. */
static enum status restore_begin_stretch(struct restore *restore, struct error *error)
{
    struct gate_options options = {.outlet = {.push = local_on_win, .context = restore->service}};

    gate_close(restore->aside);
    restore->aside = NULL;
    restore->stale.count = 0;
    restore->stretch_policies = restore->stretch_claims = 0;
    return gate_local_open(&restore->aside, &options, error);
}

static enum status restore_close_stale(struct restore *restore, struct error *error)
{
    struct ledger *ledger = restore->service->ledger;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < restore->stale.count && status == STATUS_OK; i++) {
        struct policy policy;
        status = ledger_lease_close(ledger, restore->stale.items[i].id, LEDGER_NO_TERM, error);
        if (status == STATUS_OK)
            status = ledger_policy_get(ledger, restore->stale.items[i].policy_id, &policy, error);
        if (status == STATUS_OK)
            status = gate_policy_set(restore->aside, &policy, error);
    }
    return status;
}

/* *below_id is as for ledger_visit_below(). The leases that are closed come first: units that they
 * give back are in the row that the gate has when it is asked. */
static enum status restore_stretch(struct restore *restore, int64_t *below_id, struct error *error)
{
    const struct ledger_visitor visitor = {
        .policy = restore_policy,
        .claim = restore_claim,
        .key = restore_key,
        .lease = restore_lease,
        .context = restore,
    };
    size_t used_count = restore->used.count;
    enum status status = restore_begin_stretch(restore, error);

    if (status == STATUS_OK)
        status = ledger_visit_below(restore->service->ledger, below_id, &visitor, error);
    if (status != STATUS_OK)
        restore->used.count = used_count;
    if (status == STATUS_OK)
        status = restore_close_stale(restore, error);
    FAULT_POINT("restore.before_open");
    if (status == STATUS_OK)
        status = gate_adopt(restore->service->gate, restore->aside, error);
    return status;
}

/* --- its thread --- */

static void restore_note(struct restore *restore, int64_t below_id)
{
    pthread_mutex_lock(&restore->lock);
    restore->error.text[0] = '\0';
    restore->below_id = below_id;
    restore->policy_count += restore->stretch_policies;
    pthread_mutex_unlock(&restore->lock);
    restore->claim_count += restore->stretch_claims;
}

/* Whether to try again, after a pause: the ledger may be away. */
static bool restore_waits(struct restore *restore, enum status status, const struct error *error)
{
    bool may_pass =
        status == STATUS_UNAVAILABLE || status == STATUS_BUSY || status == STATUS_UNKNOWN;

    if (!may_pass || !ledger_is_served(restore->service->options.ledger_url) ||
        restore_go_on(restore, NULL) != STATUS_OK)
        return false;
    pthread_mutex_lock(&restore->lock);
    bool is_news = restore->error.text[0] == '\0';
    restore->error = *error;
    pthread_mutex_unlock(&restore->lock);
    if (is_news)
        log_event(LOG_WARN, "restore_waits", LOG_FIELD("for", LOG_TEXT(error->text)));
    service_pause(RETRY_PAUSE_MS);
    return true;
}

static enum status restore_all(struct restore *restore, struct error *error)
{
    enum status status = STATUS_OK;
    int64_t below_id = LEDGER_ABOVE_ALL;

    while (below_id > 0) {
        int64_t next_id = below_id;
        FAULT_POINT("restore.before_stretch");
        status = restore_stretch(restore, &next_id, error);
        if (status == STATUS_OK)
            restore_note(restore, below_id = next_id);
        else if (!restore_waits(restore, status, error))
            return status;
        service_stock_changed(restore->service);
        steward_look(&restore->service->steward);
    }
    gate_fill(restore->service->gate, GATE_IS_FULL);
    steward_look(&restore->service->steward);
    return STATUS_OK;
}

/* Those that stay open do no harm: the next start finds them. */
static void restore_close_used(struct restore *restore)
{
    struct lease_places *used = &restore->used;
    int64_t ids[CLOSED_AT_ONCE];
    enum status status = STATUS_OK;
    struct error error = {""};

    while (used->count > 0 && status == STATUS_OK) {
        size_t count = 0;
        while (count < CLOSED_AT_ONCE && count < used->count) {
            ids[count] = used->items[used->count - 1 - count].id;
            count++;
        }
        status = restore_go_on(restore, &error);
        if (status == STATUS_OK)
            status = ledger_used_leases_close(restore->service->ledger, ids, count, &error);
        used->count -= count;
    }
    if (status != STATUS_OK)
        log_event(LOG_INFO, "leases_stay_open", LOG_FIELD("error", LOG_TEXT(error.text)),
                  LOG_FIELD("next", LOG_TEXT("the next start closes them")));
}

/* Whoever waits for the start is told; when nobody does any more, as when the start itself fails.
 */
static void restore_end(struct restore *restore, enum status status, const struct error *error)
{
    pthread_mutex_lock(&restore->lock);
    restore->is_ended = true;
    restore->status = status;
    restore->error = *error;
    bool dies =
        status != STATUS_OK && !restore->is_waited_for && restore_go_on(restore, NULL) == STATUS_OK;
    pthread_cond_signal(&restore->ended);
    pthread_mutex_unlock(&restore->lock);
    if (!dies)
        return;
    log_event(
        LOG_ERROR, "restore_failed", LOG_FIELD("error", LOG_TEXT(error->text)),
        LOG_FIELD("next", LOG_TEXT("the process ends; start it again when that is put right")));
    log_flush();
    _exit(1);
}

static void *restore_main(void *context)
{
    struct restore *restore = context;
    struct error error = {""};
    int64_t started_ms = clock_monotonic_ms();
    enum status status = restore_all(restore, &error);

    gate_close(restore->aside);
    restore->aside = NULL;
    if (status == STATUS_OK)
        log_event(LOG_INFO, "gate_restored", LOG_FIELD("policies", LOG_I64(restore->policy_count)),
                  LOG_FIELD("claims", LOG_I64(restore->claim_count)),
                  LOG_FIELD("ms", LOG_I64(clock_monotonic_ms() - started_ms)));
    else
        error_prefix(&error, "restoring the gate from the ledger");
    if (status == STATUS_OK)
        restore_close_used(restore);
    restore_end(restore, status, &error);
    return NULL;
}

/* --- life --- */

static struct restore *restore_new(struct service *service)
{
    struct restore *restore = calloc(1, sizeof(*restore));
    pthread_condattr_t monotonic;

    if (restore == NULL)
        return NULL;
    restore->service = service;
    restore->is_waited_for = true;
    restore->below_id = LEDGER_ABOVE_ALL;
    pthread_mutex_init(&restore->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&restore->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return restore;
}

/* What became of it within a moment: OK also when it goes on. */
static enum status restore_await(struct restore *restore, struct error *error)
{
    int64_t until_ms = clock_monotonic_ms() + PATIENCE_MS;
    const struct timespec until = {.tv_sec = until_ms / 1000, .tv_nsec = until_ms % 1000 * 1000000};

    pthread_mutex_lock(&restore->lock);
    while (!restore->is_ended &&
           pthread_cond_timedwait(&restore->ended, &restore->lock, &until) != ETIMEDOUT)
        ;
    restore->is_waited_for = false;
    enum status status = restore->status;
    if (status != STATUS_OK)
        *error = restore->error;
    pthread_mutex_unlock(&restore->lock);
    return status;
}

static enum status restore_blocked(void *context, const struct id *user, struct error *error)
{
    struct service *service = context;
    return gate_block(service->gate, user, true, error);
}

/* Who is blocked is known before anybody can claim. */
enum status restore_start(struct service *service, struct error *error)
{
    const struct ledger_visitor visitor = {.blocked = restore_blocked, .context = service};
    enum status status = ledger_visit_blocked(service->ledger, &visitor, error);

    if (status != STATUS_OK)
        return status;
    gate_fill(service->gate, GATE_IS_FILLED);
    service->restore = restore_new(service);
    if (service->restore == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory to restore the gate");
    service->restore->is_running =
        pthread_create(&service->restore->thread, NULL, restore_main, service->restore) == 0;
    if (!service->restore->is_running)
        return error_set(error, STATUS_FAILED, "cannot start a thread");
    (void)pthread_setname_np(service->restore->thread, "restore");
    return restore_await(service->restore, error);
}

void restore_stop(struct restore *restore)
{
    if (restore == NULL)
        return;
    atomic_store(&restore->is_stopping, true);
    if (gate_is_filling(restore->service->gate))
        log_event(LOG_INFO, "restore_stops",
                  LOG_FIELD("next", LOG_TEXT("the next start restores all policies")));
    if (restore->is_running)
        pthread_join(restore->thread, NULL);
    free(restore->used.items);
    free(restore->stale.items);
    pthread_cond_destroy(&restore->ended);
    pthread_mutex_destroy(&restore->lock);
    free(restore);
}

bool restore_has_all(const struct restore *restore)
{
    return restore == NULL || !gate_is_filling(restore->service->gate);
}

bool restore_has(const struct restore *restore, int64_t policy_id)
{
    return restore_has_all(restore) || policy_id == STEWARD_USERS ||
           gate_knows(restore->service->gate, policy_id);
}

bool restore_is_over(struct restore *restore, struct error *words)
{
    pthread_mutex_lock(&restore->lock);
    bool is_over = restore_has_all(restore);
    if (is_over)
        error_set(words, STATUS_OK, "ok");
    else if (restore->below_id == LEDGER_ABOVE_ALL)
        error_set(words, STATUS_OK, "restoring the policies, the newest first");
    else
        error_set(words, STATUS_OK,
                  "restoring the policies, the newest first: %" PRId64
                  " are open, those below %" PRId64 " follow",
                  restore->policy_count, restore->below_id);
    if (!is_over && restore->error.text[0] != '\0')
        error_prefix(words, "%s", restore->error.text);
    pthread_mutex_unlock(&restore->lock);
    return is_over;
}
