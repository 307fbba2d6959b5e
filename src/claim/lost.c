/* lost.c: holds what the gate has against what the ledger has, and suspends what was lost there. */
#include "claim/lost.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/parts.h"

#define SCAN_MS    10000 /* between two walks over the names of all keys of the gate */
#define SCAN_SHARE 100   /* at most so small a part of the time goes into them */

void lost_init(struct lost *lost, struct service *service, struct sync *sync)
{
    *lost = (struct lost){.service = service, .sync = sync};
    pthread_mutex_init(&lost->lock, NULL);
}

void lost_release(struct lost *lost)
{
    pthread_mutex_destroy(&lost->lock);
    free(lost->lacking);
}

/* --- one policy --- */

static void lost_see(struct lost *lost, int64_t policy_id)
{
    if (lost->sight.count < LOST_NAMED)
        lost->sight.ids[lost->sight.count] = policy_id;
    lost->sight.count++;
}

static void lost_suspend(struct service *service, int64_t policy_id, const char *why)
{
    struct error error = {""};
    enum status status = gate_suspend(service->gate, policy_id, &error);

    log_event(LOG_ERROR, "policy_suspended", LOG_FIELD("policy", LOG_I64(policy_id)),
              LOG_FIELD("why", LOG_TEXT(why)),
              LOG_FIELD("error", LOG_TEXT(status == STATUS_OK ? "" : error.text)),
              LOG_FIELD("next", LOG_TEXT("dibs audit --repair")));
}

/* True when it is suspended, by now at the latest. The gate is read first: what it was told is in
 * the ledger by then. One that neither has is forgotten. */
static bool lost_check(struct lost *lost, int64_t policy_id)
{
    struct service *service = lost->service;
    struct gate_state *state = calloc(1, sizeof(*state));
    struct policy row = {.version = 0};
    struct error error = {""};
    enum status status =
        state == NULL ? STATUS_UNAVAILABLE : gate_inspect(service->gate, policy_id, state, &error);
    bool is_lost = status == STATUS_OK && state->is_suspended;

    if (status == STATUS_OK && !is_lost) {
        status = ledger_policy_get(service->ledger, policy_id, &row, &error);
        if (status == STATUS_NOT_FOUND && !state->is_known)
            (void)!gate_forget(service->gate, policy_id, &error);
        is_lost = state->is_known && (status == STATUS_NOT_FOUND ||
                                      (status == STATUS_OK && row.version < state->version));
        if (is_lost)
            lost_suspend(service, policy_id,
                         status == STATUS_OK ? "the ledger has an older copy of it"
                                             : "the ledger does not have it");
    }
    free(state);
    return is_lost;
}

/* --- a look --- */

void lost_begin(struct lost *lost)
{
    lost->sight.count = 0;
}

/* The numbers are those of the gate's last look, which costs nothing: they only raise suspicion. */
void lost_compare(struct lost *lost, const struct policy *row)
{
    struct gate_numbers numbers;

    if (gate_count(lost->service->gate, row->id, clock_wall_ms(), &numbers) == STATUS_OK &&
        (numbers.is_suspended || numbers.version > row->version) && lost_check(lost, row->id))
        lost_see(lost, row->id);
}

void lost_miss(struct lost *lost, int64_t policy_id)
{
    for (size_t i = 0; i < lost->lacking_count; i++) {
        if (lost->lacking[i] == policy_id)
            return;
    }
    if (lost->lacking_count == lost->lacking_capacity) {
        size_t capacity = lost->lacking_capacity == 0 ? 64 : lost->lacking_capacity * 2;
        int64_t *grown = realloc(lost->lacking, capacity * sizeof(*grown));
        if (grown == NULL)
            return; /* The next scan finds it again. */
        lost->lacking = grown;
        lost->lacking_capacity = capacity;
    }
    lost->lacking[lost->lacking_count++] = policy_id;
}

/* A server of the gate that is away is looked at the next time. */
static void lost_scan(struct lost *lost)
{
    int64_t started_ms = clock_monotonic_ms();
    struct error error = {""};
    int64_t *ids = NULL;
    size_t count = 0;

    if (started_ms < lost->next_scan_ms)
        return;
    if (gate_enumerate(lost->service->gate, &ids, &count, &error) != STATUS_OK)
        log_event(LOG_WARN, "enumerate_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
    for (size_t i = 0; i < count; i++) {
        if (!sync_lists(lost->sync, ids[i]))
            lost_miss(lost, ids[i]);
    }
    free(ids);
    int64_t now_ms = clock_monotonic_ms();
    int64_t pause_ms = (now_ms - started_ms) * SCAN_SHARE;
    lost->next_scan_ms = now_ms + (pause_ms > SCAN_MS ? pause_ms : SCAN_MS);
}

void lost_end(struct lost *lost)
{
    size_t kept = 0;

    lost_scan(lost);
    for (size_t i = 0; i < lost->lacking_count; i++) {
        if (sync_lists(lost->sync, lost->lacking[i]) || !lost_check(lost, lost->lacking[i]))
            continue;
        lost_see(lost, lost->lacking[i]);
        lost->lacking[kept++] = lost->lacking[i];
    }
    lost->lacking_count = kept;
    pthread_mutex_lock(&lost->lock);
    lost->told = lost->sight;
    pthread_mutex_unlock(&lost->lock);
}

void lost_words(struct lost *lost, char *words, size_t size)
{
    char names[LOST_NAMED * 32] = "";
    size_t length = 0;

    pthread_mutex_lock(&lost->lock);
    struct lost_sight told = lost->told;
    pthread_mutex_unlock(&lost->lock);
    words[0] = '\0';
    if (told.count == 0)
        return;
    for (size_t i = 0; i < told.count && i < LOST_NAMED; i++)
        length += (size_t)snprintf(names + length, sizeof(names) - length, "%spolicy %" PRId64,
                                   i > 0 ? ", " : "", told.ids[i]);
    snprintf(words, size,
             "suspended until `dibs audit --repair`, as the ledger lacks them or has older copies: "
             "%s%s",
             names, told.count > LOST_NAMED ? ", …" : "");
}
