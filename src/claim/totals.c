/* totals.c: gathers by policy and minute, writes batch by batch. */
#include "claim/totals.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "base/random.h"
#include "claim/parts.h"
#include "ledger/totals.h"

#define MINUTE_MS INT64_C(60000)
/* While the ledger is away for hours: beyond it nothing more is kept, which the log says. */
#define MINUTES_MAX 100000

/* One policy in one minute. */
struct totals_minute {
    int64_t policy_id;
    int64_t starts_at_ms;
    uint64_t counts[CLAIM_RESULT_COUNT];
};

struct totals {
    struct ledger *ledger;
    struct periodic periodic;
    pthread_mutex_t lock; /* around what gathers */
    struct totals_minute *minutes;
    size_t minute_count;
    size_t minute_capacity;
    bool is_full;
    pthread_mutex_t write_lock;  /* around the rest, while it is written */
    struct claim_total *writing; /* the batch that has to be in before the next */
    size_t writing_count;
    size_t writing_capacity;
    int64_t process;
    int64_t number;
    bool has_told; /* that the ledger does not take them */
};

/* Where that minute is, or would be: by policies, then times. */
static size_t totals_find(const struct totals *totals, int64_t policy_id, int64_t starts_at_ms)
{
    size_t low = 0;
    size_t high = totals->minute_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct totals_minute *minute = &totals->minutes[middle];
        if (minute->policy_id < policy_id ||
            (minute->policy_id == policy_id && minute->starts_at_ms < starts_at_ms))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* NULL: there is no room. */
static struct totals_minute *totals_minute_of(struct totals *totals, int64_t policy_id,
                                              int64_t starts_at_ms)
{
    size_t at = totals_find(totals, policy_id, starts_at_ms);

    if (at < totals->minute_count && totals->minutes[at].policy_id == policy_id &&
        totals->minutes[at].starts_at_ms == starts_at_ms)
        return &totals->minutes[at];
    if (totals->minute_count >= MINUTES_MAX ||
        !array_insert(totals->minutes, at, totals->minute_count, totals->minute_capacity))
        return NULL;
    totals->minutes[at] =
        (struct totals_minute){.policy_id = policy_id, .starts_at_ms = starts_at_ms};
    return &totals->minutes[at];
}

void totals_add(struct totals *totals, int64_t policy_id, int64_t wall_ms,
                const uint32_t counts[CLAIM_RESULT_COUNT])
{
    if (totals == NULL)
        return;
    pthread_mutex_lock(&totals->lock);
    struct totals_minute *minute =
        totals_minute_of(totals, policy_id, wall_ms - wall_ms % MINUTE_MS);
    for (unsigned result = 0; minute != NULL && result < CLAIM_RESULT_COUNT; result++)
        minute->counts[result] += counts[result];
    bool is_news = minute == NULL && !totals->is_full;
    totals->is_full = minute == NULL;
    pthread_mutex_unlock(&totals->lock);
    if (is_news)
        log_event(LOG_WARN, "totals_dropped", LOG_FIELD("policy", LOG_I64(policy_id)),
                  LOG_FIELD("why", LOG_TEXT("the ledger has not taken any for too long; coupons "
                                            "are not concerned")));
}

/* Moves what has gathered into the batch. Under the write lock. */
static void totals_take(struct totals *totals)
{
    pthread_mutex_lock(&totals->lock);
    size_t needed = totals->minute_count * CLAIM_RESULT_COUNT;
    if (array_reserve(totals->writing, needed, totals->writing_capacity)) {
        for (size_t i = 0; i < totals->minute_count; i++) {
            const struct totals_minute *minute = &totals->minutes[i];
            for (unsigned result = 0; result < CLAIM_RESULT_COUNT; result++) {
                if (minute->counts[result] == 0)
                    continue;
                struct claim_total *total = &totals->writing[totals->writing_count++];
                *total = (struct claim_total){.policy_id = minute->policy_id,
                                              .starts_at_ms = minute->starts_at_ms,
                                              .count = (int64_t)minute->counts[result]};
                snprintf(total->result, sizeof(total->result), "%s", claim_result_name(result));
            }
        }
        totals->minute_count = 0;
        totals->number += totals->writing_count > 0;
    }
    pthread_mutex_unlock(&totals->lock);
}

/* Under the write lock. */
static enum status totals_write(struct totals *totals, struct error *error)
{
    const struct claim_totals_batch batch = {.process = totals->process,
                                             .number = totals->number,
                                             .totals = totals->writing,
                                             .count = totals->writing_count,
                                             .now_ms = clock_wall_ms()};
    enum status status = ledger_totals_add(totals->ledger, &batch, error);

    if (status == STATUS_OK)
        totals->writing_count = 0;
    return status;
}

enum status totals_flush(struct totals *totals, struct error *error)
{
    enum status status = STATUS_OK;

    if (totals == NULL)
        return status;
    pthread_mutex_lock(&totals->write_lock);
    /* The batch that was not answered goes alone, under its old number. */
    if (totals->writing_count > 0)
        status = totals_write(totals, error);
    if (status == STATUS_OK) {
        totals_take(totals);
        if (totals->writing_count > 0)
            status = totals_write(totals, error);
    }
    pthread_mutex_unlock(&totals->write_lock);
    return status;
}

static int64_t totals_run(void *context)
{
    struct totals *totals = context;
    struct error error = {""};
    enum status status = totals_flush(totals, &error);

    if (status != STATUS_OK && !totals->has_told)
        log_event(LOG_WARN, "totals_wait", LOG_FIELD("error", LOG_TEXT(error.text)),
                  LOG_FIELD("next", LOG_TEXT("trying again")));
    totals->has_told = status != STATUS_OK;
    return TOTALS_EVERY_MS;
}

enum status totals_start(struct service *service, struct error *error)
{
    if (service->options.role != SERVICE_SERVES)
        return STATUS_OK;
    struct totals *started = calloc(1, sizeof(*started));
    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the totals of claims");
    started->ledger = service->ledger;
    random_bytes(&started->process, sizeof(started->process));
    started->process &= INT64_MAX;
    pthread_mutex_init(&started->lock, NULL);
    pthread_mutex_init(&started->write_lock, NULL);
    service->totals = started;
    return periodic_start(&started->periodic, "totals", totals_run, started, TOTALS_EVERY_MS,
                          error);
}

void totals_stop(struct totals *totals)
{
    struct error error = {""};

    if (totals == NULL)
        return;
    periodic_stop(&totals->periodic);
    enum status status = totals_flush(totals, &error);
    if (status != STATUS_OK)
        log_event(LOG_WARN, "totals_dropped", LOG_FIELD("error", LOG_TEXT(error.text)));
    else if (totals->number > 0)
        (void)!ledger_totals_end(totals->ledger, totals->process, &error);
    pthread_mutex_destroy(&totals->lock);
    pthread_mutex_destroy(&totals->write_lock);
    free(totals->minutes);
    free(totals->writing);
    free(totals);
}
