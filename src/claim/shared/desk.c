/* desk.c: claims that are decided elsewhere and come back to the desk in a later tick: by a shared
 * gate, or by pool threads in the ledger while that is away. */
#include <stdlib.h>

#include "claim/desk_parts.h"

/* Why the gate does not decide. */
enum fallback_task_cause {
    FALLBACK_TASK_AWAY,   /* it is away: fallback_admit() or fallback_note() has told to serve the
                             wish */
    FALLBACK_TASK_CLOSED, /* it has let go of the policy, which is closed for good */
};

/* A claim that a pool thread decides in the ledger. */
struct fallback_task {
    struct pool_task task; /* first: this is what comes back */
    struct fallback_task *next;
    struct fallback_tasks *fallback_tasks;
    enum fallback_task_cause cause;
    struct desk_entry entry;
};

/* A desk's box into which pool threads put what they have done; it outlives the desk when they are
 * late.
 */
struct fallback_tasks {
    struct service *service;
    void (*wake)(void *context);
    void *context;
    pthread_mutex_t lock;
    bool is_closed;
    struct fallback_task *done;
    struct fallback_task **done_end;
    size_t use_count; /* the desk, and every fallback task under way */
};

/* Claims on their way to a gate that answers later, which may not move meanwhile. */
struct desk_sent_batch {
    struct gate_batch batch; /* first: this is what comes back */
    struct desk_sent_batch *next;
    bool has_landed;
    struct wish **wishes;
    struct desk_entry entries[];
};

void desk_away_decided(void *context, struct gate_batch *batch)
{
    struct desk *desk = context;
    struct desk_sent_batch *sent_batch = (struct desk_sent_batch *)batch;

    sent_batch->has_landed = true;
    desk->any_landed = true;
}

/* --- fallback tasks --- */

static struct fallback_tasks *fallback_tasks_open(const struct desk_options *options)
{
    struct fallback_tasks *fallback_tasks = calloc(1, sizeof(*fallback_tasks));

    ensure(fallback_tasks != NULL);
    *fallback_tasks = (struct fallback_tasks){
        .service = options->service, .wake = options->wake, .context = options->context};
    pthread_mutex_init(&fallback_tasks->lock, NULL);
    fallback_tasks->done_end = &fallback_tasks->done;
    fallback_tasks->use_count = 1;
    return fallback_tasks;
}

/* Under the lock, which is let go. */
static void fallback_tasks_leave(struct fallback_tasks *fallback_tasks)
{
    bool is_last = --fallback_tasks->use_count == 0;

    pthread_mutex_unlock(&fallback_tasks->lock);
    if (!is_last)
        return;
    pthread_mutex_destroy(&fallback_tasks->lock);
    free(fallback_tasks);
}

static void fallback_tasks_close(struct fallback_tasks *fallback_tasks)
{
    struct fallback_task *next;

    if (fallback_tasks == NULL)
        return;
    pthread_mutex_lock(&fallback_tasks->lock);
    while (fallback_tasks->done != NULL) {
        next = fallback_tasks->done->next;
        free(fallback_tasks->done);
        fallback_tasks->done = next;
    }
    fallback_tasks->is_closed = true;
    fallback_tasks_leave(fallback_tasks);
}

/* On a pool thread. */
static void fallback_task_run(struct pool_task *task, struct service *service)
{
    struct fallback_task *fallback_task = (struct fallback_task *)task;
    struct fallback_tasks *fallback_tasks = fallback_task->fallback_tasks;

    if (fallback_task->cause == FALLBACK_TASK_AWAY)
        fallback_serve(service->fallback, &fallback_task->entry.wish);
    else
        fallback_answer(service->fallback, &fallback_task->entry.wish);
    pthread_mutex_lock(&fallback_tasks->lock);
    if (fallback_tasks->is_closed) {
        free(fallback_task);
    } else {
        fallback_task->next = NULL;
        *fallback_tasks->done_end = fallback_task;
        fallback_tasks->done_end = &fallback_task->next;
        fallback_tasks->wake(fallback_tasks->context);
    }
    fallback_tasks_leave(fallback_tasks);
}

/* Lets a pool thread decide a claim that may be served without the gate. False: they have too much
 * to do, and it need not be served any more. */
static bool desk_serve(struct desk *desk, const struct desk_entry *entry,
                       enum fallback_task_cause cause)
{
    struct fallback_task *fallback_task = malloc(sizeof(*fallback_task));

    ensure(fallback_task != NULL);
    if (desk->fallback_tasks == NULL)
        desk->fallback_tasks = fallback_tasks_open(&desk->options);
    struct fallback_tasks *fallback_tasks = desk->fallback_tasks;
    *fallback_task =
        (struct fallback_task){.task = {.work = fallback_task_run, .queue = POOL_KNOWN},
                               .fallback_tasks = fallback_tasks,
                               .cause = cause,
                               .entry = *entry};
    pthread_mutex_lock(&fallback_tasks->lock);
    fallback_tasks->use_count++; /* NOLINT(*Malloc): the desk itself is one of them */
    pthread_mutex_unlock(&fallback_tasks->lock);
    if (service_submit(fallback_tasks->service, &fallback_task->task)) {
        desk->away_count++;
        return true;
    }
    if (cause == FALLBACK_TASK_AWAY)
        fallback_drop(fallback_tasks->service->fallback, entry->wish.policy_id);
    free(fallback_task);
    pthread_mutex_lock(&fallback_tasks->lock);
    fallback_tasks_leave(fallback_tasks);
    return false;
}

/* --- sent batches --- */

static struct desk_sent_batch *desk_sent_batch_new(struct desk *desk, int64_t policy_id,
                                                   size_t count)
{
    struct desk_sent_batch *sent_batch =
        malloc(sizeof(*sent_batch) + count * sizeof(sent_batch->entries[0]) +
               count * sizeof(sent_batch->wishes[0]));
    ensure(sent_batch != NULL);
    sent_batch->wishes = (struct wish **)(void *)(sent_batch->entries + count);
    sent_batch->batch =
        (struct gate_batch){.policy_id = policy_id, .wishes = sent_batch->wishes, .count = count};
    sent_batch->has_landed = false;
    sent_batch->next = desk->sent_batches;
    desk->sent_batches = sent_batch;
    desk->away_count += count;
    return sent_batch;
}

/* Takes out what the link points to. */
static struct desk_sent_batch *desk_sent_batch_take(struct desk *desk,
                                                    struct desk_sent_batch **link)
{
    struct desk_sent_batch *sent_batch = *link;

    *link = sent_batch->next;
    desk->away_count -= sent_batch->batch.count;
    return sent_batch;
}

/* Sends those gathered in desk->batch on a sent batch of their own. Their places on the desk are
 * marked: whoever walks it passes over them. */
static void desk_send(struct desk *desk, int64_t policy_id, size_t count, int64_t wall_ms)
{
    struct desk_sent_batch *sent_batch = desk_sent_batch_new(desk, policy_id, count);

    for (size_t i = 0; i < count; i++) {
        struct desk_entry *entry = desk_entry_of(desk->batch[i]);
        sent_batch->entries[i] = *entry;
        sent_batch->entries[i].wish.is_away = false;
        sent_batch->entries[i].wish.is_gone = false;
        sent_batch->wishes[i] = &sent_batch->entries[i].wish;
        entry->is_away = true;
        entry->wish.verdict = VERDICT_UNAVAILABLE;
    }
    if (gate_claim(desk->line, &sent_batch->batch, wall_ms))
        desk_away_decided(desk, &sent_batch->batch);
}

/* The claims gathered in desk->batch do not go to the gate, which is away. */
static void desk_go_around(struct desk *desk, size_t count, enum fallback_choice choice)
{
    for (size_t i = 0; i < count; i++) {
        struct desk_entry *entry = desk_entry_of(desk->batch[i]);
        entry->wish.ticket = 0;
        entry->wish.verdict = choice == FALLBACK_HOLD ? VERDICT_LEASE_WANTED : VERDICT_UNAVAILABLE;
        entry->is_away = choice == FALLBACK_SERVE && desk_serve(desk, entry, FALLBACK_TASK_AWAY);
    }
}

/* Whether the ledger has the policy, closed for good: then it can answer for it. */
static bool desk_is_closed(struct desk *desk, struct desk_entry *entry)
{
    if (!sync_knows_closed(desk->options.service->sync, entry->wish.policy_id))
        return false;
    entry->wish.verdict = VERDICT_UNAVAILABLE; /* when no pool thread has the time */
    return true;
}

/* Routes what the gate has made of one batch. Those for whom it was away may be served without it:
 * if it won for them all the same, the ledger merges both. */
static void desk_land_sent_batch(struct desk *desk, struct desk_sent_batch *sent_batch,
                                 int64_t now_ms)
{
    size_t away_count = 0;

    for (size_t i = 0; i < sent_batch->batch.count; i++)
        away_count += sent_batch->entries[i].wish.is_away;
    enum fallback_choice choice =
        fallback_note(desk->options.service->fallback, sent_batch->batch.policy_id, away_count);
    for (size_t i = 0; i < sent_batch->batch.count; i++) {
        struct desk_entry *entry = &sent_batch->entries[i];
        if (entry->wish.is_away && choice == FALLBACK_SERVE &&
            desk_serve(desk, entry, FALLBACK_TASK_AWAY))
            continue;
        if (entry->wish.is_gone && desk_is_closed(desk, entry) &&
            desk_serve(desk, entry, FALLBACK_TASK_CLOSED))
            continue;
        if (entry->wish.is_away && choice == FALLBACK_HOLD)
            entry->wish.verdict = VERDICT_LEASE_WANTED;
        /* What the ledger has, a steward brings, unless it is damaged. */
        if (entry->wish.verdict == VERDICT_NO_POLICY &&
            sync_lists(desk->options.service->sync, entry->wish.policy_id))
            entry->wish.verdict = VERDICT_UNAVAILABLE;
        desk_route(desk, entry, now_ms);
    }
}

/* Routes what pool threads have decided since the last tick. */
static void desk_land_fallback_tasks(struct desk *desk, int64_t now_ms)
{
    struct fallback_task *next;

    if (desk->fallback_tasks == NULL)
        return;
    pthread_mutex_lock(&desk->fallback_tasks->lock);
    struct fallback_task *fallback_task = desk->fallback_tasks->done;
    desk->fallback_tasks->done = NULL;
    desk->fallback_tasks->done_end = &desk->fallback_tasks->done;
    pthread_mutex_unlock(&desk->fallback_tasks->lock);
    for (; fallback_task != NULL; fallback_task = next) {
        next = fallback_task->next;
        desk->away_count--;
        desk_route(desk, &fallback_task->entry, now_ms);
        free(fallback_task);
    }
}

/* Routes what the gate has answered since the last tick. */
void desk_away_land(struct desk *desk, int64_t now_ms)
{
    struct desk_sent_batch **link = &desk->sent_batches;

    desk_land_fallback_tasks(desk, now_ms);
    if (!desk->any_landed)
        return;
    desk->any_landed = false;
    while (*link != NULL) {
        if (!(*link)->has_landed) {
            link = &(*link)->next;
            continue;
        }
        struct desk_sent_batch *sent_batch = desk_sent_batch_take(desk, link);
        desk_land_sent_batch(desk, sent_batch, now_ms);
        free(sent_batch);
    }
}

void desk_away_close(struct desk *desk)
{
    fallback_tasks_close(desk->fallback_tasks);
    while (desk->sent_batches != NULL)
        free(desk_sent_batch_take(desk, &desk->sent_batches));
}

void shared_decide(struct desk *desk, int64_t policy_id, size_t count, int64_t wall_ms)
{
    enum fallback_choice choice = fallback_admit(desk->options.service->fallback, policy_id, count);

    if (choice == FALLBACK_ASK)
        desk_send(desk, policy_id, count, wall_ms);
    else
        desk_go_around(desk, count, choice);
}
