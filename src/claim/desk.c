/* desk.c: one batch per policy per tick, and the answers that have to wait. */
#include "claim/desk.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "claim/errand.h"
#include "claim/parts.h"

#define PARKED_RETRY_MS 100
#define DECISIONS_MAX   3
#define GROUPS_MIN      64
#define NO_ENTRY        UINT32_MAX

/* A claim on the desk. */
struct desk_entry {
    struct wish wish;
    void *asker;
    int64_t deadline_ms;
    int void_count;         /* decisions that came to nothing */
    bool is_away;           /* only its place is here: it is on a flight */
    bool is_first;          /* of its policy in this tick */
    uint32_t next_of_group; /* the next one of its policy, or NO_ENTRY */
};

/* The claims of one policy in this tick, as places in the list. */
struct desk_group {
    int64_t policy_id;
    uint64_t tick; /* another one: the group is free */
    uint32_t last;
};

/* Entries in the order they came. */
struct desk_list {
    struct desk_entry *entries;
    size_t first;
    size_t count;
    size_t capacity;
};

/* A claim that a clerk decides in the ledger while the gate is away. */
struct desk_errand {
    struct errand errand; /* first: this is what comes back */
    struct desk_entry entry;
};

/* Claims on their way to a gate that answers later, which may not move meanwhile. */
struct desk_flight {
    struct gate_batch batch; /* first: this is what comes back */
    struct desk_flight *next;
    struct desk_flight **link; /* what points here */
    bool has_landed;
    struct wish **wishes;
    struct desk_entry entries[];
};

struct desk {
    struct desk_options options;
    struct gate *gate;
    struct gate_line *line;
    struct ledger *ledger;
    struct desk_list incoming; /* to be decided in this tick */
    struct desk_list waiting;  /* decided, resting on a ticket that is not durable */
    struct desk_list parked;   /* held until the steward has leased more stock */
    struct desk_list spare;    /* empty; takes the place of `parked` while that is decided again */
    struct desk_flight *flights; /* latest first */
    size_t flight_count;         /* claims in them */
    bool any_landed;
    struct errands *errands;
    size_t errand_count; /* claims that clerks decide */
    struct wish **batch;
    size_t batch_capacity;
    struct hash_key group_key;
    struct desk_group *groups; /* twice as many as claims in a tick, at least */
    size_t groups_mask;
    uint64_t group_tick;
    int64_t parked_tried_ms;
    uint64_t stock_changes_seen;
    _Atomic size_t waiting_count; /* waiting and parked */
    struct histogram batch_sizes;
};

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

/* --- flights --- */

static struct desk_flight *desk_flight_new(struct desk *desk, int64_t policy_id, size_t count)
{
    struct desk_flight *flight = malloc(sizeof(*flight) + count * sizeof(flight->entries[0]) +
                                        count * sizeof(flight->wishes[0]));
    ensure(flight != NULL);
    flight->wishes = (struct wish **)(void *)(flight->entries + count);
    flight->batch =
        (struct gate_batch){.policy_id = policy_id, .wishes = flight->wishes, .count = count};
    flight->has_landed = false;
    flight->next = desk->flights;
    flight->link = &desk->flights;
    if (flight->next != NULL)
        flight->next->link = &flight->next;
    desk->flights = flight;
    desk->flight_count += count;
    return flight;
}

static void desk_flight_end(struct desk *desk, struct desk_flight *flight)
{
    *flight->link = flight->next;
    if (flight->next != NULL)
        flight->next->link = flight->link;
    desk->flight_count -= flight->batch.count;
    free(flight);
}

/* Gives a claim that may be served without the gate to a clerk. False: they have too much to do. */
static bool desk_serve(struct desk *desk, const struct desk_entry *entry, enum errand_cause cause)
{
    struct desk_errand *sent = malloc(sizeof(*sent));

    ensure(sent != NULL);
    sent->entry = *entry;
    if (errands_send(desk->errands, &sent->errand, &sent->entry.wish, cause)) {
        desk->errand_count++;
        return true;
    }
    free(sent);
    return false;
}

/* --- life --- */

static void desk_on_decided(void *context, struct gate_batch *batch)
{
    struct desk *desk = context;
    struct desk_flight *flight = (struct desk_flight *)batch;

    flight->has_landed = true;
    desk->any_landed = true;
}

enum status desk_open(struct desk **desk, const struct desk_options *options, struct error *error)
{
    struct desk *opened = calloc(1, sizeof(*opened));
    struct service *service = options->service;

    *desk = NULL;
    if (opened == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a desk");
    opened->options = *options;
    opened->gate = service->gate;
    opened->ledger = service->ledger;
    opened->group_key = hash_key_random();
    struct gate_line_options line = {
        .loop = options->loop, .decided = desk_on_decided, .context = opened};
    opened->errands = errands_open(service, options->wake, options->context);
    enum status status = opened->errands == NULL
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory for a desk")
                             : gate_line_open(opened->gate, &line, &opened->line, error);
    if (status != STATUS_OK) {
        errands_close(opened->errands);
        free(opened);
        return status;
    }
    pthread_mutex_lock(&service->bells_lock);
    bool has_room = service->bell_count < DESKS_MAX;
    if (has_room)
        service->bells[service->bell_count++] =
            (struct desk_bell){.waiting_count = &opened->waiting_count,
                               .ring = options->wake,
                               .context = options->context};
    pthread_mutex_unlock(&service->bells_lock);
    if (!has_room) {
        gate_line_close(opened->line);
        errands_close(opened->errands);
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

    pthread_mutex_lock(&service->bells_lock);
    for (size_t i = 0; i < service->bell_count; i++) {
        if (service->bells[i].waiting_count == &desk->waiting_count) {
            service->bells[i] = service->bells[--service->bell_count];
            break;
        }
    }
    pthread_mutex_unlock(&service->bells_lock);
    gate_line_close(desk->line);
    errands_close(desk->errands);
    while (desk->flights != NULL)
        desk_flight_end(desk, desk->flights);
    free(desk->incoming.entries);
    free(desk->waiting.entries);
    free(desk->parked.entries);
    free(desk->spare.entries);
    free(desk->batch);
    free(desk->groups);
    free(desk);
}

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
    return desk->incoming.count + desk->waiting.count + desk->parked.count + desk->flight_count +
           desk->errand_count;
}

const struct histogram *desk_batch_sizes(const struct desk *desk)
{
    return &desk->batch_sizes;
}

/* --- deciding --- */

static struct desk_entry *desk_entry_of(struct wish *wish)
{
    return (struct desk_entry *)(void *)((char *)wish - offsetof(struct desk_entry, wish));
}

static void desk_answer(struct desk *desk, const struct desk_entry *entry)
{
    desk->options.answer(desk->options.context, entry->asker, &entry->wish);
}

static void desk_answer_unavailable(struct desk *desk, struct desk_entry *entry)
{
    entry->wish.verdict = VERDICT_UNAVAILABLE;
    desk_answer(desk, entry);
}

/* False: too much is waiting for the ledger, or it does not take anything just now. */
static bool desk_may_ask(const struct desk *desk)
{
    /* A shared gate keeps its own account of what is pending, and goes on without the ledger. */
    if (desk->gate->ops->is_shared)
        return true;
    return ledger_healthy(desk->ledger) &&
           ledger_pending(desk->ledger) < desk->options.service->options.pending_max;
}

/* Sends those gathered in desk->batch on a flight of their own. Their places on the desk are
 * marked: whoever walks it passes over them. */
static void desk_send(struct desk *desk, int64_t policy_id, size_t count, int64_t wall_ms)
{
    struct desk_flight *flight = desk_flight_new(desk, policy_id, count);

    for (size_t i = 0; i < count; i++) {
        struct desk_entry *entry = desk_entry_of(desk->batch[i]);
        flight->entries[i] = *entry;
        flight->entries[i].wish.is_away = false;
        flight->entries[i].wish.is_gone = false;
        flight->wishes[i] = &flight->entries[i].wish;
        entry->is_away = true;
        entry->wish.verdict = VERDICT_UNAVAILABLE;
    }
    if (gate_claim(desk->line, &flight->batch, wall_ms))
        desk_on_decided(desk, &flight->batch);
}

/* The claims gathered in desk->batch do not go to the gate, which is away. */
static void desk_go_around(struct desk *desk, size_t count, enum fallback_way way)
{
    for (size_t i = 0; i < count; i++) {
        struct desk_entry *entry = desk_entry_of(desk->batch[i]);
        entry->wish.ticket = 0;
        entry->wish.verdict = way == FALLBACK_HOLD ? VERDICT_LEASE_WANTED : VERDICT_UNAVAILABLE;
        entry->is_away = way == FALLBACK_SERVE && desk_serve(desk, entry, ERRAND_AWAY);
    }
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
    if (desk->gate->ops->decides_at_once) {
        struct gate_batch batch = {.policy_id = policy_id, .wishes = desk->batch, .count = count};
        ensure(gate_claim(desk->line, &batch, wall_ms));
        return;
    }
    enum fallback_way way = fallback_admit(desk->options.service->fallback, policy_id, count);
    if (way == FALLBACK_ASK)
        desk_send(desk, policy_id, count, wall_ms);
    else
        desk_go_around(desk, count, way);
}

/* Answers now, or puts the claim where it waits, also when its ticket has become durable already:
 * what it rests on may have come to nothing. Whoever waited before keeps their deadline. */
static void desk_route(struct desk *desk, const struct desk_entry *entry, int64_t now_ms)
{
    const struct wish *wish = &entry->wish;
    struct desk_list *list = &desk->waiting;

    if (wish->verdict == VERDICT_LEASE_WANTED) {
        list = &desk->parked;
        if (!desk->gate->ops->is_shared) /* of a shared one, the worker sees it by itself */
            steward_call(&desk->options.service->steward, wish->policy_id, STEWARD_LEASE);
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
    if (!desk_may_ask(desk)) {
        for (size_t i = 0; i < incoming->count; i++)
            desk_answer_unavailable(desk, desk_list_at(incoming, i));
        desk_list_clear(incoming);
        return;
    }
    if (desk->batch_capacity < incoming->count) {
        struct wish **grown = realloc(desk->batch, incoming->capacity * sizeof(*grown));
        ensure(grown != NULL);
        desk->batch = grown;
        desk->batch_capacity = incoming->capacity;
    }
    desk_group_incoming(desk);
    for (uint32_t i = 0; i < incoming->count; i++) {
        if (desk_list_at(incoming, i)->is_first)
            desk_decide_policy(desk, i, wall_ms);
    }
    for (size_t i = 0; i < incoming->count; i++) {
        struct desk_entry *entry = desk_list_at(incoming, i);
        if (!entry->is_away)
            desk_route(desk, entry, now_ms);
    }
    desk_list_clear(incoming);
}

/* Whether the ledger has the policy, closed for good: then it can answer for it. */
static bool desk_is_closed(struct desk *desk, struct desk_entry *entry)
{
    if (!sync_knows_closed(desk->options.service->sync, entry->wish.policy_id))
        return false;
    entry->wish.verdict = VERDICT_UNAVAILABLE; /* when no clerk has the time */
    return true;
}

/* Routes what the gate has made of one batch. Those for whom it was away may be served without it:
 * if it won for them all the same, the ledger merges both. */
static void desk_land_flight(struct desk *desk, struct desk_flight *flight, int64_t now_ms)
{
    size_t away_count = 0;

    for (size_t i = 0; i < flight->batch.count; i++)
        away_count += flight->entries[i].wish.is_away;
    enum fallback_way way =
        fallback_note(desk->options.service->fallback, flight->batch.policy_id, away_count);
    for (size_t i = 0; i < flight->batch.count; i++) {
        struct desk_entry *entry = &flight->entries[i];
        if (entry->wish.is_away && way == FALLBACK_SERVE && desk_serve(desk, entry, ERRAND_AWAY))
            continue;
        if (entry->wish.is_gone && desk_is_closed(desk, entry) &&
            desk_serve(desk, entry, ERRAND_CLOSED))
            continue;
        if (entry->wish.is_away && way == FALLBACK_HOLD)
            entry->wish.verdict = VERDICT_LEASE_WANTED;
        desk_route(desk, entry, now_ms);
    }
}

/* Routes what clerks have decided since the last tick. */
static void desk_land_errands(struct desk *desk, int64_t now_ms)
{
    struct errand *next;

    if (desk->errand_count == 0)
        return;
    for (struct errand *errand = errands_take(desk->errands); errand != NULL; errand = next) {
        next = errand->next;
        desk->errand_count--;
        desk_route(desk, &((struct desk_errand *)errand)->entry, now_ms);
        free(errand);
    }
}

/* Routes what the gate has answered since the last tick. */
static void desk_land(struct desk *desk, int64_t now_ms)
{
    struct desk_flight *next;

    desk_land_errands(desk, now_ms);
    if (!desk->any_landed)
        return;
    desk->any_landed = false;
    for (struct desk_flight *flight = desk->flights; flight != NULL; flight = next) {
        next = flight->next;
        if (!flight->has_landed)
            continue;
        desk_land_flight(desk, flight, now_ms);
        desk_flight_end(desk, flight);
    }
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
        if (entry->wish.ticket <= durable) {
            if (gate_stands(desk->gate, &entry->wish))
                desk_answer(desk, entry);
            else
                desk_decide_again(desk, entry);
        } else if (now_ms >= entry->deadline_ms) {
            desk_answer_unavailable(desk, entry);
        } else {
            break;
        }
        desk_list_drop_first(&desk->waiting);
    }
}

/* Those who have waited too long for a lease, wherever they are: they come back from a gate that
 * answers later in any order. */
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
    /* From a gate that answers later they are back here only until the next try. */
    if (!desk->gate->ops->decides_at_once)
        desk_expire_parked(desk, now_ms);
    desk->incoming = desk->parked;
    desk->parked = desk->spare;
    for (size_t i = 0; i < desk->incoming.count; i++)
        desk_list_at(&desk->incoming, i)->wish.verdict = VERDICT_UNDECIDED;
    desk_decide_incoming(desk, wall_ms, now_ms);
    desk->spare = desk->incoming;
    desk->incoming = fresh;
    desk_expire_parked(desk, now_ms);
}

void desk_tick(struct desk *desk, int64_t wall_ms)
{
    struct service *service = desk->options.service;

    if (desk_waiting(desk) == 0)
        return;
    int64_t now_ms = clock_monotonic_ms();
    uint64_t stock_changes = atomic_load(&service->stock_changes);
    desk_land(desk, now_ms);
    if (desk->parked.count > 0 && (stock_changes != desk->stock_changes_seen ||
                                   now_ms >= desk->parked_tried_ms + PARKED_RETRY_MS))
        desk_retry_parked(desk, wall_ms, now_ms);
    desk->stock_changes_seen = stock_changes;
    desk_decide_incoming(desk, wall_ms, now_ms);
    desk_land(desk, now_ms); /* What could be told from memory. */
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
