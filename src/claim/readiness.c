/* readiness.c: how each part of the service stands, in words for people and probes. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "claim/parts.h"

/* A policy that is suspended, or was paused for a broken guarantee, is worth a word, but keeps
 * nobody from the others. */
static void service_add_audit(struct service *service, struct service_part *part)
{
    char words[200];
    size_t length = strlen(part->words);

    sync_lost_words(service->sync, words, sizeof(words));
    if (words[0] == '\0')
        audit_watch_words(service->audit_watch, words, sizeof(words));
    if (words[0] != '\0')
        snprintf(part->words + length, sizeof(part->words) - length, "; %s", words);
}

/* Events that wait are worth a word, but keep nobody from claiming. */
static void service_add_events(struct service *service, struct service_part *part)
{
    struct announcer_numbers numbers;

    if (!service_count_events(service, &numbers) || numbers.state != ANNOUNCER_HELD_UP)
        return;
    size_t length = strlen(part->words);
    int64_t age_ms = numbers.oldest_at_ms == 0 ? 0 : clock_wall_ms() - numbers.oldest_at_ms;
    snprintf(part->words + length, sizeof(part->words) - length,
             "; %lld events wait, the oldest for %lld s: %s", (long long)numbers.waiting,
             (long long)(age_ms / 1000), numbers.words);
}

/* Claims without a worker are won and wait. */
static struct service_part service_workers_part(struct service *service)
{
    struct service_part part = {
        .name = "workers",
        .kind = service->workers != NULL ? "in process" : "processes",
        .ready = service_worker_count(service) != 0,
    };

    snprintf(part.words, sizeof(part.words), "%s",
             part.ready ? "ok"
                        : "none is alive: claims are taken, and none becomes a coupon; start "
                          "`dibs worker`");
    return part;
}

bool service_parts(struct service *service, struct service_part parts[SERVICE_PARTS], size_t *count)
{
    struct error words;
    bool all_ready = true;

    parts[0] = (struct service_part){.name = "gate", .kind = service->gate->ops->name};
    parts[0].ready = gate_is_ready(service->gate, &words);
    snprintf(parts[0].words, sizeof(parts[0].words), "%.255s", words.text);
    ledger_state(service->ledger, &words);
    parts[1] = (struct service_part){.name = "ledger",
                                     .kind = ledger_kind(service->ledger),
                                     .ready = ledger_healthy(service->ledger)};
    snprintf(parts[1].words, sizeof(parts[1].words), "%.255s", words.text);
    service_add_audit(service, &parts[1]);
    parts[2] = (struct service_part){.name = "relay", .kind = service->relay->ops->name};
    parts[2].ready = relay_is_ready(service->relay, &words);
    snprintf(parts[2].words, sizeof(parts[2].words), "%.255s", words.text);
    service_add_events(service, &parts[2]);
    bool has_doubts = steward_has_doubts(&service->steward);
    parts[3] = (struct service_part){
        .name = "steward",
        .kind = "in process",
        .ready = !has_doubts,
    };
    snprintf(parts[3].words, sizeof(parts[3].words), "%s",
             has_doubts ? "the gate waits to hear what the ledger made of a change" : "ok");
    for (size_t i = 0; i < SERVICE_PARTS - 1; i++)
        all_ready = all_ready && parts[i].ready;
    *count = SERVICE_PARTS - 1;
    if (service->gate->ops->is_shared)
        parts[(*count)++] = service_workers_part(service);
    return all_ready;
}
