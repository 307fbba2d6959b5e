/* audit_watch.c: a thread that audits, counts what it found, and pauses what must not go on. */
#include "claim/audit_watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/audit_parts.h"

#define DUTY       "audit"
#define TERM_MS    120000 /* of the duty, beyond the interval */
#define WORDS_SIZE 200

struct audit_watch {
    struct service *service;
    int64_t interval_ms;
    char holder[64];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    bool is_stopping;             /* under lock, as the rest */
    bool is_ours;                 /* no other process audits */
    struct audit_numbers numbers; /* as last seen */
    char words[WORDS_SIZE];
};

/* --- one round --- */

static void audit_watch_pause(struct audit_watch *watch, const struct policy_audit *audit)
{
    const struct policy_change change = {.sets_paused = true, .paused = true};
    struct policy policy;
    struct policy_view view;
    struct error error = {""};
    struct service *service = watch->service;
    enum status status = ledger_policy_get(service->ledger, audit->policy_id, &policy, &error);

    if (status == STATUS_OK && (policy.paused || policy.closed_at_ms != 0))
        return;
    if (status == STATUS_OK)
        status = service_policy_change(service, audit->policy_id, &change, &view, &error);
    log_event(LOG_ERROR, "guarantee_broken", LOG_FIELD("policy", LOG_I64(audit->policy_id)),
              LOG_FIELD("total", LOG_I64(audit->balance.total)),
              LOG_FIELD("active", LOG_I64(audit->balance.active)),
              LOG_FIELD("pending", LOG_I64(audit->pending)),
              LOG_FIELD("paused", LOG_FLAG(status == STATUS_OK)),
              LOG_FIELD("error", LOG_TEXT(error.text)));
    struct ledger_repair_note note = {.asked_at_ms = clock_wall_ms(),
                                      .policy_id = audit->policy_id};
    snprintf(note.plan, sizeof(note.plan),
             "oversold: %" PRId64 " active and %" PRId64 " pending of %" PRId64,
             audit->balance.active, audit->pending, audit->balance.total);
    snprintf(note.outcome, sizeof(note.outcome), "%s",
             status == STATUS_OK ? "paused by the audit" : "not paused");
    note.done_at_ms = note.asked_at_ms;
    if (ledger_repair_begin(service->ledger, &note, &error) != STATUS_OK ||
        ledger_repair_end(service->ledger, &note, &error) != STATUS_OK)
        log_event(LOG_WARN, "repair_note_failed", LOG_FIELD("policy", LOG_I64(audit->policy_id)),
                  LOG_FIELD("error", LOG_TEXT(error.text)));
}

static void audit_watch_note(struct audit_watch *watch, const struct policy_audit *audit,
                             struct audit_numbers *numbers, char words[WORDS_SIZE])
{
    for (size_t i = 0; i < AUDIT_CHECKS; i++) {
        numbers->counts[i] += audit->counts[i];
        if (audit->counts[i] != 0)
            log_event(LOG_WARN, "audit_drift", LOG_FIELD("policy", LOG_I64(audit->policy_id)),
                      LOG_FIELD("check", LOG_TEXT(audit_check_name(i))),
                      LOG_FIELD("count", LOG_I64(audit->counts[i])));
    }
    if (audit->counts[AUDIT_OVERSOLD] == 0)
        return;
    snprintf(words, WORDS_SIZE,
             "the audit paused policy %" PRId64 ": %" PRId64 " active and %" PRId64
             " pending of %" PRId64,
             audit->policy_id, audit->balance.active, audit->pending, audit->balance.total);
    audit_watch_pause(watch, audit);
}

static bool audit_watch_is_stopping(struct audit_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    bool is_stopping = watch->is_stopping;
    pthread_mutex_unlock(&watch->lock);
    return is_stopping;
}

static bool audit_watch_is_due(struct audit_watch *watch)
{
    bool held = false;
    struct error error;

    if (!service_audits_shared(watch->service) || !ledger_is_shareable(watch->service->ledger))
        return true;
    return ledger_duty_hold(watch->service->ledger, DUTY, watch->holder,
                            watch->interval_ms + TERM_MS, &held, &error) == STATUS_OK &&
           held;
}

/* What one look found. Returns the worst status so far. */
static enum status audit_watch_take(struct audit_watch *watch, const struct audit_look *look,
                                    struct audit_numbers *numbers, char words[WORDS_SIZE],
                                    enum status worst)
{
    if (look->status == STATUS_OK)
        audit_watch_note(watch, &look->audit, numbers, words);
    if (look->status == STATUS_OK || look->status == STATUS_NOT_FOUND)
        return worst;
    log_event(LOG_WARN, "audit_failed", LOG_FIELD("policy", LOG_I64(look->audit.policy_id)),
              LOG_FIELD("status", LOG_TEXT(status_name(look->status))),
              LOG_FIELD("error", LOG_TEXT(look->error.text)));
    return worst == STATUS_UNAVAILABLE ? worst : look->status;
}

/* One policy that cannot be audited does not keep the others from it; while ledger or gate are away
 * none can. */
static enum status audit_watch_policies(struct audit_watch *watch, struct audit_numbers *numbers,
                                        char words[WORDS_SIZE])
{
    struct error error = {""};
    int64_t *ids = NULL;
    size_t count = 0;
    enum status worst = audit_list(watch->service, 0, &ids, &count, &error);

    for (size_t at = 0;
         at < count && worst != STATUS_UNAVAILABLE && !audit_watch_is_stopping(watch);
         at += AUDIT_LOOKS_MAX) {
        struct audit_look *looks = NULL;
        size_t some = count - at < AUDIT_LOOKS_MAX ? count - at : AUDIT_LOOKS_MAX;
        enum status status =
            audit_look_surely(watch->service, AUDIT_LIGHT, ids + at, some, &looks, &error);
        for (size_t i = 0; i < some && status == STATUS_OK; i++)
            worst = audit_watch_take(watch, &looks[i], numbers, words, worst);
        worst = status == STATUS_OK ? worst : status;
        audit_looks_free(looks, some);
    }
    free(ids);
    return worst;
}

/* Nobody loses anything when it is built anew from the ledger, so nobody is asked. */
static void audit_watch_heal_board(struct audit_watch *watch)
{
    struct audit_repair done = {0};
    struct error error = {""};

    if (audit_board_repair(watch->service, &done, &error) != STATUS_OK)
        log_event(LOG_WARN, "audit_failed", LOG_FIELD("status", LOG_TEXT("board")),
                  LOG_FIELD("error", LOG_TEXT(error.text)));
}

static void audit_watch_round(struct audit_watch *watch)
{
    struct audit_numbers numbers = {0};
    char words[WORDS_SIZE] = "";
    int64_t started_ms = clock_monotonic_ms();
    enum status status = STATUS_OK;
    bool is_ours = audit_watch_is_due(watch);

    if (is_ours) {
        status = audit_watch_policies(watch, &numbers, words);
        service_audit_board(watch->service, &numbers.board);
    }
    if (numbers.board.differences != 0)
        audit_watch_heal_board(watch);
    if (numbers.board.differences != 0)
        log_event(LOG_WARN, "audit_drift", LOG_FIELD("policy", LOG_I64(0)),
                  LOG_FIELD("check", LOG_TEXT("board")),
                  LOG_FIELD("count", LOG_I64(numbers.board.differences)));
    pthread_mutex_lock(&watch->lock);
    watch->is_ours = is_ours;
    if (is_ours && status == STATUS_OK) {
        numbers.ended_at_ms = clock_wall_ms();
        numbers.took_ms = clock_monotonic_ms() - started_ms;
        watch->numbers = numbers;
    }
    if (is_ours && (status == STATUS_OK || words[0] != '\0'))
        memcpy(watch->words, words, sizeof(words));
    pthread_mutex_unlock(&watch->lock);
}

/* --- life --- */

static void *audit_watch_main(void *context)
{
    struct audit_watch *watch = context;

    pthread_setname_np(pthread_self(), "audit");
    pthread_mutex_lock(&watch->lock);
    while (!watch->is_stopping) {
        struct timespec until = clock_deadline_in_ms(watch->interval_ms);
        while (!watch->is_stopping &&
               pthread_cond_timedwait(&watch->stop, &watch->lock, &until) == 0)
            continue;
        if (watch->is_stopping)
            break;
        pthread_mutex_unlock(&watch->lock);
        audit_watch_round(watch);
        pthread_mutex_lock(&watch->lock);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

/* Where the steward is: that process drains the gate, or has it in its memory. */
static bool audit_watch_is_here(const struct service *service)
{
    return service->workers != NULL || !service->gate->ops->is_shared;
}

enum status audit_watch_start(struct audit_watch **watch, struct service *service,
                              struct error *error)
{
    uint64_t number;

    *watch = NULL;
    if (service->options.audit_interval_ms == 0 || !audit_watch_is_here(service))
        return STATUS_OK;
    struct audit_watch *started = calloc(1, sizeof(*started));
    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the audit");
    random_bytes(&number, sizeof(number));
    snprintf(started->holder, sizeof(started->holder), "audit-%d-%016" PRIx64, (int)getpid(),
             number);
    started->service = service;
    started->interval_ms = service->options.audit_interval_ms;
    started->is_ours = true;
    started->numbers.ended_at_ms = clock_wall_ms();
    pthread_mutex_init(&started->lock, NULL);
    clock_condition_init(&started->stop);
    if (pthread_create(&started->thread, NULL, audit_watch_main, started) != 0) {
        pthread_cond_destroy(&started->stop);
        pthread_mutex_destroy(&started->lock);
        free(started);
        return error_set(error, STATUS_UNAVAILABLE, "cannot start the thread of the audit");
    }
    *watch = started;
    return STATUS_OK;
}

void audit_watch_stop(struct audit_watch *watch)
{
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->is_stopping = true;
    pthread_cond_broadcast(&watch->stop);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    if (watch->is_ours && service_audits_shared(watch->service) &&
        ledger_is_shareable(watch->service->ledger))
        (void)!ledger_duty_release(watch->service->ledger, DUTY, watch->holder, NULL);
    pthread_cond_destroy(&watch->stop);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

bool audit_watch_count(struct audit_watch *watch, struct audit_numbers *numbers)
{
    if (watch == NULL)
        return false;
    pthread_mutex_lock(&watch->lock);
    bool is_ours = watch->is_ours;
    *numbers = watch->numbers;
    pthread_mutex_unlock(&watch->lock);
    return is_ours;
}

void audit_watch_words(struct audit_watch *watch, char *words, size_t size)
{
    words[0] = '\0';
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->lock);
    snprintf(words, size, "%s", watch->words);
    pthread_mutex_unlock(&watch->lock);
}
