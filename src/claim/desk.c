/* desk.c: one batch per policy per tick, and the answers that have to wait. */
#include "claim/desk.h"

#include <stdlib.h>

#include "base/clock.h"
#include "claim/desk_parts.h"

#define PARKED_RETRY_MS 100
#define DECISIONS_MAX   3
#define GROUPS_MIN      64
#define NO_ENTRY        UINT32_MAX

/* --- lists --- */

static struct desk_entry *desk_list_at(const struct desk_list *list, size_t index)
{
    return &list->entries[list->first + index];
}

/* The list is emptied from the front; the room there is used again before more is asked for. */
static struct desk_entry *desk_list_push(struct desk_list *list)
{
    if (list->first + list->count == list->capacity) {
        if (list->first > list->capacity / 2) {
            memmove(list->entries, list->entries + list->first,
                    list->count * sizeof(*list->entries));
        } else {
            size_t capacity = list->capacity == 0 ? 256 : list->capacity * 2;
            struct desk_entry *grown = malloc(capacity * sizeof(*grown));
            ensure(grown != NULL);
            if (list->count > 0)
                memcpy(grown, list->entries + list->first, list->count * sizeof(*grown));
            free(list->entries);
            list->entries = grown;
            list->capacity = capacity;
        }
        list->first = 0;
    }
    return &list->entries[list->first + list->count++];
}

static void desk_list_drop_first(struct desk_list *list)
{
    list->first++;
    list->count--;
    if (list->count == 0)
        list->first = 0;
}

static void desk_list_clear(struct desk_list *list)
{
    list->first = 0;
    list->count = 0;
}

/* --- life --- */

enum status desk_open(struct desk **desk, const struct desk_options *options, struct error *error)
{
    struct desk *opened = calloc(1, sizeof(*opened));
    struct service *service = options->service;

    *desk = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a desk");
    opened->options = *options;
    opened->topology = service->topology;
    opened->gate = service->gate;
    opened->ledger = service->ledger;
    opened->group_key = hash_key_random();
    struct gate_line_options line = {
        .loop = options->loop, .decided = desk_away_decided, .context = opened};
    enum status status = gate_line_open(opened->gate, &line, &opened->line, error);
    if (status != STATUS_OK) {
        free(opened);
        return status;
    }
    pthread_mutex_lock(&service->wakeups_lock);
    bool has_room = service->wakeup_count < DESKS_MAX;
    if (has_room)
        service->wakeups[service->wakeup_count++] =
            (struct desk_wakeup){.waiting_count = &opened->waiting_count,
                                 .ring = options->wake,
                                 .context = options->context};
    pthread_mutex_unlock(&service->wakeups_lock);
    if (!has_room) {
        gate_line_close(opened->line);
        free(opened);
        return error_set(error, STATUS_FAILED, "more than %d desks", DESKS_MAX);
    }
    *desk = opened;
    return STATUS_OK;
}

void desk_close(struct desk *desk)
{
    if (desk == NULL)
        return;
    struct service *service = desk->options.service;

    pthread_mutex_lock(&service->wakeups_lock);
    for (size_t i = 0; i < service->wakeup_count; i++) {
        if (service->wakeups[i].waiting_count == &desk->waiting_count) {
            service->wakeups[i] = service->wakeups[--service->wakeup_count];
            break;
        }
    }
    pthread_mutex_unlock(&service->wakeups_lock);
    gate_line_close(desk->line);
    desk_away_close(desk);
    free(desk->incoming.entries);
    free(desk->waiting.entries);
    free(desk->parked.entries);
    free(desk->spare.entries);
    free(desk->batch);
    free(desk->groups);
    free(desk);
}

/* --- waking --- */

void service_ring(struct service *service)
{
    pthread_mutex_lock(&service->wakeups_lock);
    for (size_t i = 0; i < service->wakeup_count; i++) {
        const struct desk_wakeup *wakeup = &service->wakeups[i];
        if (atomic_load(wakeup->waiting_count) > 0)
            wakeup->ring(wakeup->context);
    }
    pthread_mutex_unlock(&service->wakeups_lock);
}

void service_stock_changed(struct service *service)
{
    atomic_fetch_add(&service->stock_changes, 1);
    service_ring(service);
}

/* --- submitting --- */

void desk_submit(struct desk *desk, const struct wish *wish, void *asker)
{
    struct desk_entry *entry = desk_list_push(&desk->incoming);
    entry->wish.policy_id = wish->policy_id;
    entry->wish.user = wish->user;
    entry->wish.request_id = wish->request_id;
    entry->wish.verdict = VERDICT_UNDECIDED;
    entry->wish.is_accepted = false;
    entry->wish.is_away = false;
    entry->wish.is_gone = false;
    entry->asker = asker;
    entry->deadline_ms = 0;
    entry->void_count = 0;
    entry->is_away = false;
}

size_t desk_waiting(const struct desk *desk)
{
    return desk->incoming.count + desk->waiting.count + desk->parked.count + desk->away_count;
}

const struct histogram *desk_batch_sizes(const struct desk *desk)
{
    return &desk->batch_sizes;
}

/* --- deciding --- */

static void desk_answer(struct desk *desk, const struct desk_entry *entry)
{
    desk->options.answer(desk->options.context, entry->asker, &entry->wish);
}

static void desk_answer_unavailable(struct desk *desk, struct desk_entry *entry)
{
    entry->wish.verdict = VERDICT_UNAVAILABLE;
    desk_answer(desk, entry);
}

/* Room for as many groups as there may be policies in this tick. */
static void desk_groups_fit(struct desk *desk, size_t count)
{
    size_t size = GROUPS_MIN;

    while (size < count * 2)
        size *= 2;
    if (desk->groups == NULL || size > desk->groups_mask + 1) {
        free(desk->groups);
        desk->groups = calloc(size, sizeof(*desk->groups));
        ensure(desk->groups != NULL);
        desk->groups_mask = size - 1;
    }
    desk->group_tick++;
}

/* Anybody may name any id, so where it is looked for must not be theirs to choose. */
static struct desk_group *desk_group_of(struct desk *desk, int64_t policy_id)
{
    size_t at = hash_table(desk->group_key, &policy_id, sizeof(policy_id)) & desk->groups_mask;

    while (desk->groups[at].tick == desk->group_tick && desk->groups[at].policy_id != policy_id)
        at = (at + 1) & desk->groups_mask;
    return &desk->groups[at];
}

/* Strings the claims of each policy together, in the order they came, in one pass. */
static void desk_group_incoming(struct desk *desk)
{
    struct desk_list *incoming = &desk->incoming;
    struct desk_group *group = NULL;

    desk_groups_fit(desk, incoming->count);
    for (uint32_t i = 0; i < incoming->count; i++) {
        struct desk_entry *entry = desk_list_at(incoming, i);
        if (group == NULL || group->policy_id != entry->wish.policy_id)
            group = desk_group_of(desk, entry->wish.policy_id);
        entry->is_first = group->tick != desk->group_tick;
        entry->next_of_group = NO_ENTRY;
        if (!entry->is_first)
            desk_list_at(incoming, group->last)->next_of_group = i;
        *group = (struct desk_group){
            .policy_id = entry->wish.policy_id, .tick = desk->group_tick, .last = i};
    }
}

/* Hands the claims of one policy to the gate, starting with the one at `from`. */
static void desk_decide_policy(struct desk *desk, uint32_t from, int64_t wall_ms)
{
    int64_t policy_id = desk_list_at(&desk->incoming, from)->wish.policy_id;
    size_t count = 0;

    for (uint32_t i = from; i != NO_ENTRY; i = desk_list_at(&desk->incoming, i)->next_of_group)
        desk->batch[count++] = &desk_list_at(&desk->incoming, i)->wish;
    histogram_record(&desk->batch_sizes, count);
    desk->topology->decide(desk, policy_id, count, wall_ms);
}

/* Answers now, or puts the claim where it waits, also when its ticket has become durable already:
 * what it rests on may have come to nothing. Whoever waited before keeps their deadline. */
void desk_route(struct desk *desk, const struct desk_entry *entry, int64_t now_ms)
{
    const struct wish *wish = &entry->wish;
    struct desk_list *list = &desk->waiting;

    if (wish->verdict == VERDICT_LEASE_WANTED) {
        list = &desk->parked;
    } else if (wish->ticket == 0) {
        desk_answer(desk, entry);
        return;
    }
    struct desk_entry *kept = desk_list_push(list);
    *kept = *entry;
    if (kept->deadline_ms == 0)
        kept->deadline_ms = now_ms + desk->options.service->options.ack_timeout_ms;
}

static void desk_decide_incoming(struct desk *desk, int64_t wall_ms, int64_t now_ms)
{
    struct desk_list *incoming = &desk->incoming;

    if (incoming->count == 0)
        return;
    if (desk->batch_capacity < incoming->count) {
        struct wish **grown = realloc(desk->batch, incoming->capacity * sizeof(*grown));
        ensure(grown != NULL);
        desk->batch = grown;
        desk->batch_capacity = incoming->capacity;
    }
    desk_group_incoming(desk);
    for (uint32_t i = 0; i < incoming->count; i++)
        if (desk_list_at(incoming, i)->is_first)
            desk_decide_policy(desk, i, wall_ms);
    for (size_t i = 0; i < incoming->count; i++) {
        struct desk_entry *entry = desk_list_at(incoming, i);
        if (!entry->is_away)
            desk_route(desk, entry, now_ms);
    }
    desk_list_clear(incoming);
}

/* --- waiting --- */

/* A claim that comes to nothing again and again is given up on: each try costs a seq. */
static void desk_decide_again(struct desk *desk, struct desk_entry *entry)
{
    if (++entry->void_count >= DECISIONS_MAX) {
        desk_answer_unavailable(desk, entry);
        return;
    }
    struct desk_entry *again = desk_list_push(&desk->incoming);
    *again = *entry;
    again->wish.verdict = VERDICT_UNDECIDED;
}

/* Answers from the front what has become durable or has waited too long. A verdict that may rest
 * on a claim that came to nothing is decided again. */
static void desk_answer_waiting(struct desk *desk, int64_t now_ms)
{
    uint64_t durable = ledger_durable(desk->ledger);

    while (desk->waiting.count > 0) {
        struct desk_entry *entry = desk_list_at(&desk->waiting, 0);
        if (entry->wish.ticket <= durable)
            if (gate_stands(desk->gate, &entry->wish))
                desk_answer(desk, entry);
            else
                desk_decide_again(desk, entry);
        else if (now_ms >= entry->deadline_ms)
            desk_answer_unavailable(desk, entry);
        else
            break;
        desk_list_drop_first(&desk->waiting);
    }
}

/* Those who have waited too long for a lease, wherever they are: they come back from a gate that
 * answers later in any order, and stay only until the next try. */
static void desk_expire_parked(struct desk *desk, int64_t now_ms)
{
    struct desk_list *parked = &desk->parked;
    size_t left = 0;

    for (size_t i = 0; i < parked->count; i++) {
        struct desk_entry *entry = desk_list_at(parked, i);
        if (now_ms >= entry->deadline_ms)
            desk_answer_unavailable(desk, entry);
        else
            *desk_list_at(parked, left++) = *entry;
    }
    parked->count = left;
    if (left == 0)
        desk_list_clear(parked);
}

/* Decides those who wait for a lease once more, before anyone who came after them. */
static void desk_retry_parked(struct desk *desk, int64_t wall_ms, int64_t now_ms)
{
    struct desk_list fresh = desk->incoming;

    desk->parked_tried_ms = now_ms;
    desk_expire_parked(desk, now_ms);
    desk->incoming = desk->parked;
    desk->parked = desk->spare;
    for (size_t i = 0; i < desk->incoming.count; i++)
        desk_list_at(&desk->incoming, i)->wish.verdict = VERDICT_UNDECIDED;
    desk_decide_incoming(desk, wall_ms, now_ms);
    desk->spare = desk->incoming;
    desk->incoming = fresh;
}

void desk_tick(struct desk *desk, int64_t wall_ms)
{
    struct service *service = desk->options.service;

    if (desk_waiting(desk) == 0)
        return;
    int64_t now_ms = clock_monotonic_ms();
    uint64_t stock_changes = atomic_load(&service->stock_changes);
    if (desk->away_count > 0)
        desk_away_land(desk, now_ms);
    if (desk->parked.count > 0 && (stock_changes != desk->stock_changes_seen ||
                                   now_ms >= desk->parked_tried_ms + PARKED_RETRY_MS))
        desk_retry_parked(desk, wall_ms, now_ms);
    desk->stock_changes_seen = stock_changes;
    desk_decide_incoming(desk, wall_ms, now_ms);
    if (desk->away_count > 0)
        desk_away_land(desk, now_ms); /* What could be told from memory. */
    /* The count is set before durability is read: a commit that comes in between rings. */
    atomic_store(&desk->waiting_count, desk->waiting.count + desk->parked.count);
    if (desk->waiting.count > 0) {
        desk_answer_waiting(desk, now_ms);
        desk_decide_incoming(desk, wall_ms, now_ms);
        atomic_store(&desk->waiting_count, desk->waiting.count + desk->parked.count);
    }
    /* A lease that came while these were being parked rang for nobody. */
    if (desk->parked.count > 0 && atomic_load(&service->stock_changes) != stock_changes)
        desk->options.wake(desk->options.context);
}
