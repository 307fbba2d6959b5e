/* audit_watch.c: a thread that audits, counts what it found, and pauses what must not go on. Of all
 * workers one audits at a time. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/random.h"
#include "claim/audit_parts.h"

#define DUTY      "audit"
#define TERM_MS   120000 /* of the duty, beyond the interval */
#define TEXT_SIZE 200

struct audit_watch {
    struct service *service;
    int64_t interval_ms;
    char holder[64];
    struct periodic periodic;
    pthread_mutex_t lock;
    bool is_ours;                 /* no other process audits; under lock, as the rest */
    struct audit_numbers numbers; /* as last seen */
    char text[TEXT_SIZE];
};

/* --- one round --- */

static void audit_watch_pause(struct audit_watch *watch, const struct policy_audit *audit)
{
    const struct policy_change change = POLICY_CHANGE(paused, true);
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
                             struct audit_numbers *numbers, char text[TEXT_SIZE])
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
    snprintf(text, TEXT_SIZE,
             "the audit paused policy %" PRId64 ": %" PRId64 " active and %" PRId64
             " pending of %" PRId64,
             audit->policy_id, audit->balance.active, audit->pending, audit->balance.total);
    audit_watch_pause(watch, audit);
}

static bool audit_watch_is_due(struct audit_watch *watch)
{
    bool held = false;
    struct error error;

    if (service_is_alone(watch->service))
        return true;
    return ledger_duty_hold(watch->service->ledger, DUTY, watch->holder,
                            watch->interval_ms + TERM_MS, &held, &error) == STATUS_OK &&
           held;
}

/* What one look found. Returns the worst status so far. */
static enum status audit_watch_take(struct audit_watch *watch, const struct audit_pass *look,
                                    struct audit_numbers *numbers, char text[TEXT_SIZE],
                                    enum status worst)
{
    if (look->status == STATUS_OK)
        audit_watch_note(watch, &look->audit, numbers, text);
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
                                        char text[TEXT_SIZE])
{
    struct error error = {""};
    int64_t *ids = NULL;
    size_t count = 0;
    enum status worst = audit_list(watch->service, 0, &ids, &count, &error);

    for (size_t at = 0;
         at < count && worst != STATUS_UNAVAILABLE && !periodic_is_stopping(&watch->periodic);
         at += AUDIT_LOOKS_MAX) {
        struct audit_pass *looks = NULL;
        size_t some = count - at < AUDIT_LOOKS_MAX ? count - at : AUDIT_LOOKS_MAX;
        enum status status =
            audit_pass_surely(watch->service, AUDIT_LIGHT, ids + at, some, &looks, &error);
        for (size_t i = 0; i < some && status == STATUS_OK; i++)
            worst = audit_watch_take(watch, &looks[i], numbers, text, worst);
        worst = status == STATUS_OK ? worst : status;
        audit_passes_free(looks, some);
    }
    free(ids);
    return worst;
}

/* A board that differs is built anew from the ledger: nobody loses anything by it, so nobody is
 * asked. */
static void audit_watch_board(struct service *service, struct board_audit *board)
{
    struct audit_repair done = {0};
    struct error error = {""};

    service_audit_board(service, board);
    if (board->differences == 0)
        return;
    if (audit_board_repair(service, &done, &error) != STATUS_OK)
        log_event(LOG_WARN, "audit_failed", LOG_FIELD("status", LOG_TEXT("board")),
                  LOG_FIELD("error", LOG_TEXT(error.text)));
    log_event(LOG_WARN, "audit_drift", LOG_FIELD("policy", LOG_I64(0)),
              LOG_FIELD("check", LOG_TEXT("board")),
              LOG_FIELD("count", LOG_I64(board->differences)));
}

static int64_t audit_watch_round(void *context)
{
    struct audit_watch *watch = context;
    struct audit_numbers numbers = {0};
    char text[TEXT_SIZE] = "";
    int64_t started_ms = clock_monotonic_ms();
    enum status status = STATUS_OK;
    bool is_ours = audit_watch_is_due(watch);

    if (is_ours) {
        status = audit_watch_policies(watch, &numbers, text);
        audit_watch_board(watch->service, &numbers.board);
    }
    pthread_mutex_lock(&watch->lock);
    watch->is_ours = is_ours;
    if (is_ours && status == STATUS_OK) {
        numbers.ended_at_ms = clock_wall_ms();
        numbers.took_ms = clock_monotonic_ms() - started_ms;
        watch->numbers = numbers;
    }
    if (is_ours && (status == STATUS_OK || text[0] != '\0'))
        memcpy(watch->text, text, sizeof(text));
    pthread_mutex_unlock(&watch->lock);
    return watch->interval_ms;
}

/* --- life --- */

enum status audit_watch_start(struct service *service, struct error *error)
{
    uint64_t number;

    if (service->options.audit_interval_ms == 0 || !service->works)
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
    service->audit_watch = started;
    return periodic_start(&started->periodic, "audit", audit_watch_round, started,
                          started->interval_ms, error);
}

void audit_watch_stop(struct audit_watch *watch)
{
    if (watch == NULL)
        return;
    periodic_stop(&watch->periodic);
    if (watch->is_ours && !service_is_alone(watch->service))
        (void)!ledger_duty_release(watch->service->ledger, DUTY, watch->holder, NULL);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

bool service_count_audit(struct service *service, struct audit_numbers *numbers)
{
    struct audit_watch *watch = service->audit_watch;

    if (watch == NULL)
        return false;
    pthread_mutex_lock(&watch->lock);
    bool is_ours = watch->is_ours;
    *numbers = watch->numbers;
    pthread_mutex_unlock(&watch->lock);
    return is_ours;
}

void audit_watch_text(struct audit_watch *watch, char *text, size_t size)
{
    text[0] = '\0';
    if (watch == NULL)
        return;
    pthread_mutex_lock(&watch->lock);
    snprintf(text, size, "%s", watch->text);
    pthread_mutex_unlock(&watch->lock);
}
