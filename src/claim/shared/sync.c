/* sync.c: looks at the ledger every second, tells the gate what is new, and suspends there what the
 * ledger has lost. */
#include "claim/shared/sync.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/periodic.h"
#include "claim/parts.h"

#define LOOK_MS         1000
#define LETTER_LOOKS    5     /* every so many looks the dead letters are counted */
#define WORKER_GRACE_MS 2000  /* a worker that has not said so for this long does not live */
#define SCAN_MS         10000 /* between two walks over the names of all keys of the gate */
#define SCAN_SHARE      100   /* at most so small a part of the time goes into them */
#define LOST_NAMED      3

/* A policy as the gate was last told of it. */
struct synced_policy {
    int64_t id;
    int64_t version;
    int64_t ends_at_ms; /* wall: when it was closed, or closes by itself; 0: never */
};

struct synced_users {
    struct id *users; /* in the order of their bytes */
    size_t count;
    size_t capacity;
};

/* How many policies the ledger has lost, and some of them. */
struct sync_lost {
    size_t count;
    int64_t ids[LOST_NAMED];
};

struct sync {
    struct service *service;
    struct periodic periodic;
    pthread_mutex_t lock;
    struct synced_policy *policies; /* in rising order of ids; changed by the thread, under lock */
    size_t policy_count;
    size_t policy_capacity;
    struct synced_users touched; /* blocked or unblocked here since the last look; under lock */
    struct sync_lost told_lost;  /* of the last look; under lock */
    /* The thread's own. */
    struct synced_users blocked;
    struct sync_lost lost; /* of the look under way */
    int64_t *lacking; /* policies that the ledger does not have, in the order they were found */
    size_t lacking_count;
    size_t lacking_capacity;
    int64_t next_scan_ms;
    unsigned look_count;
    bool is_failing;
};

/* --- which policies there are --- */

/* Under the lock. */
static struct synced_policy *sync_place(struct sync *sync, int64_t id, size_t at)
{
    if (at < sync->policy_count && sync->policies[at].id == id)
        return &sync->policies[at];
    if (!array_insert(sync->policies, at, sync->policy_count, sync->policy_capacity))
        return NULL;
    sync->policies[at] = (struct synced_policy){.id = id};
    return &sync->policies[at];
}

static struct synced_policy *sync_note(struct sync *sync, const struct policy *policy, size_t at)
{
    pthread_mutex_lock(&sync->lock);
    struct synced_policy *known = sync_place(sync, policy->id, at);
    if (known != NULL)
        known->ends_at_ms = policy->closed_at_ms != 0 ? policy->closed_at_ms : policy->closes_at_ms;
    pthread_mutex_unlock(&sync->lock);
    return known;
}

/* Under the lock: NULL when the ledger had no such policy. */
static const struct synced_policy *sync_find(const struct sync *sync, int64_t policy_id)
{
    size_t at = array_place(sync->policies, sync->policy_count, .id, policy_id);

    return at < sync->policy_count && sync->policies[at].id == policy_id ? &sync->policies[at]
                                                                         : NULL;
}

bool sync_knows_closed(struct sync *sync, int64_t policy_id)
{
    pthread_mutex_lock(&sync->lock);
    const struct synced_policy *found = sync_find(sync, policy_id);
    bool is_closed =
        found != NULL && found->ends_at_ms != 0 && found->ends_at_ms <= clock_wall_ms();
    pthread_mutex_unlock(&sync->lock);
    return is_closed;
}

bool sync_lists(struct sync *sync, int64_t policy_id)
{
    pthread_mutex_lock(&sync->lock);
    bool is_listed = sync_find(sync, policy_id) != NULL;
    pthread_mutex_unlock(&sync->lock);
    return is_listed;
}

/* --- what the ledger has lost ---
 *
 * Whatever the gate is told of a policy, the ledger has had before. So a policy of the gate that
 * the ledger does not have afterwards, or has with a lower version, was lost there: it was restored
 * from a backup, failed over or deleted. */

static void sync_see_lost(struct sync *sync, int64_t policy_id)
{
    if (sync->lost.count < LOST_NAMED)
        sync->lost.ids[sync->lost.count] = policy_id;
    sync->lost.count++;
}

static void sync_suspend(struct service *service, int64_t policy_id, const char *why)
{
    struct error error = {""};
    enum status status = gate_suspend(service->shared, policy_id, &error);

    log_event(LOG_ERROR, "policy_suspended", LOG_FIELD("policy", LOG_I64(policy_id)),
              LOG_FIELD("why", LOG_TEXT(why)),
              LOG_FIELD("error", LOG_TEXT(status == STATUS_OK ? "" : error.text)),
              LOG_FIELD("next", LOG_TEXT("dibs audit --repair")));
}

/* True when it is suspended, by now at the latest. The gate is read first: what it was told is in
 * the ledger by then. One that neither has is forgotten. */
static bool sync_is_lost(struct sync *sync, int64_t policy_id)
{
    struct service *service = sync->service;
    struct gate_state *state = calloc(1, sizeof(*state));
    struct policy row = {.version = 0};
    struct error error = {""};
    enum status status =
        state == NULL ? STATUS_UNAVAILABLE : gate_inspect(service->gate, policy_id, state, &error);
    bool is_lost = status == STATUS_OK && state->is_suspended;

    if (status == STATUS_OK && !is_lost) {
        status = ledger_policy_get(service->ledger, policy_id, &row, &error);
        if (status == STATUS_NOT_FOUND && !state->is_known)
            (void)!gate_forget(service->shared, policy_id, &error);
        is_lost = state->is_known && (status == STATUS_NOT_FOUND ||
                                      (status == STATUS_OK && row.version < state->version));
        if (is_lost)
            sync_suspend(service, policy_id,
                         status == STATUS_OK ? "the ledger has an older copy of it"
                                             : "the ledger does not have it");
    }
    free(state);
    return is_lost;
}

/* The numbers are those of the gate's last look, which costs nothing: they only raise suspicion. */
static void sync_compare_versions(struct sync *sync, const struct policy *row)
{
    struct gate_numbers numbers;

    if (gate_count(sync->service->gate, row->id, clock_wall_ms(), &numbers) == STATUS_OK &&
        (numbers.is_suspended || numbers.version > row->version) && sync_is_lost(sync, row->id))
        sync_see_lost(sync, row->id);
}

static void sync_miss(struct sync *sync, int64_t policy_id)
{
    for (size_t i = 0; i < sync->lacking_count; i++)
        if (sync->lacking[i] == policy_id)
            return;
    if (!array_make_room(sync->lacking, sync->lacking_count, sync->lacking_capacity))
        return; /* The next scan finds it again. */
    sync->lacking[sync->lacking_count++] = policy_id;
}

/* A server of the gate that is away is looked at the next time. */
static void sync_scan(struct sync *sync)
{
    int64_t started_ms = clock_monotonic_ms();
    struct error error = {""};
    int64_t *ids = NULL;
    size_t count = 0;

    if (started_ms < sync->next_scan_ms)
        return;
    if (gate_enumerate(sync->service->shared, &ids, &count, &error) != STATUS_OK)
        log_event(LOG_WARN, "enumerate_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
    for (size_t i = 0; i < count; i++)
        if (!sync_lists(sync, ids[i]))
            sync_miss(sync, ids[i]);
    free(ids);
    int64_t now_ms = clock_monotonic_ms();
    int64_t pause_ms = (now_ms - started_ms) * SCAN_SHARE;
    sync->next_scan_ms = now_ms + (pause_ms > SCAN_MS ? pause_ms : SCAN_MS);
}

static void sync_settle_lost(struct sync *sync)
{
    size_t kept = 0;

    sync_scan(sync);
    for (size_t i = 0; i < sync->lacking_count; i++) {
        if (sync_lists(sync, sync->lacking[i]) || !sync_is_lost(sync, sync->lacking[i]))
            continue;
        sync_see_lost(sync, sync->lacking[i]);
        sync->lacking[kept++] = sync->lacking[i];
    }
    sync->lacking_count = kept;
    pthread_mutex_lock(&sync->lock);
    sync->told_lost = sync->lost;
    pthread_mutex_unlock(&sync->lock);
}

void sync_lost_text(struct sync *sync, char *text, size_t size)
{
    char names[LOST_NAMED * 32] = "";
    size_t length = 0;

    text[0] = '\0';
    if (sync == NULL)
        return;
    pthread_mutex_lock(&sync->lock);
    struct sync_lost told = sync->told_lost;
    pthread_mutex_unlock(&sync->lock);
    if (told.count == 0)
        return;
    for (size_t i = 0; i < told.count && i < LOST_NAMED; i++)
        length += (size_t)snprintf(names + length, sizeof(names) - length, "%spolicy %" PRId64,
                                   i > 0 ? ", " : "", told.ids[i]);
    snprintf(text, size,
             "suspended until `dibs audit --repair`, as the ledger lacks them or has older copies: "
             "%s%s",
             names, told.count > LOST_NAMED ? ", …" : "");
}

/* --- policies --- */

/* Those from `at` on with ids below that one are not in the ledger any more. */
static void sync_drop_before(struct sync *sync, size_t at, int64_t id)
{
    while (at < sync->policy_count && sync->policies[at].id < id) {
        sync_miss(sync, sync->policies[at].id);
        pthread_mutex_lock(&sync->lock);
        array_remove(sync->policies, at, sync->policy_count);
        pthread_mutex_unlock(&sync->lock);
    }
}

/* A policy that the gate or the ledger cannot read is told of by the audit, and keeps nobody from
 * the others. */
static enum status sync_push(struct sync *sync, const struct policy *policy, struct error *error)
{
    struct policy row;
    enum status status = policy->is_damaged
                             ? ledger_policy_get(sync->service->ledger, policy->id, &row, error)
                             : gate_policy_set(sync->service->gate, policy, error);

    if (status != STATUS_FAILED)
        return status;
    log_event(LOG_WARN, "push_failed", LOG_FIELD("policy", LOG_I64(policy->id)),
              LOG_FIELD("error", LOG_TEXT(error->text)));
    return STATUS_OK;
}

struct sync_walk {
    struct sync *sync;
    size_t at; /* where the next policy is, or would be */
};

static enum status sync_policy(void *context, const struct policy *policy, struct error *error)
{
    struct sync_walk *walk = context;
    enum status status = STATUS_OK;

    sync_drop_before(walk->sync, walk->at, policy->id);
    struct synced_policy *known = sync_note(walk->sync, policy, walk->at++);
    if (known != NULL && known->version != policy->version) {
        status = sync_push(walk->sync, policy, error);
        if (status == STATUS_OK)
            known->version = policy->version;
    }
    sync_compare_versions(walk->sync, policy);
    return status;
}

static enum status sync_policies(struct sync *sync, struct error *error)
{
    struct sync_walk walk = {.sync = sync};
    enum status status = service_each_policy(sync->service, sync_policy, &walk, error);

    if (status == STATUS_OK)
        sync_drop_before(sync, walk.at, INT64_MAX);
    return status;
}

/* --- blocked users --- */

static enum status sync_gather(void *context, const struct id *user, struct error *error)
{
    struct synced_users *list = context;

    if (!array_make_room(list->users, list->count, list->capacity))
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the blocked users");
    list->users[list->count++] = *user;
    return STATUS_OK;
}

static int sync_compare(const void *a, const void *b)
{
    return id_compare(a, b);
}

static bool sync_has(const struct synced_users *list, const struct id *user)
{
    return list->count > 0 &&
           bsearch(user, list->users, list->count, sizeof(*user), sync_compare) != NULL;
}

void sync_touch(struct sync *sync, const struct id *user)
{
    struct error ignored;

    pthread_mutex_lock(&sync->lock);
    /* Without memory for it, what others do to this user meanwhile may be missed. */
    (void)!sync_gather(&sync->touched, user, &ignored);
    pthread_mutex_unlock(&sync->lock);
}

/* Those who were blocked and forgiven between two looks are in neither list: what this server did
 * itself is looked up in any case. */
static enum status sync_settle_touched(struct sync *sync, const struct synced_users *touched,
                                       const struct synced_users *fresh, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < touched->count && status == STATUS_OK; i++)
        status = gate_block(sync->service->gate, &touched->users[i],
                            sync_has(fresh, &touched->users[i]), error);
    return status;
}

static enum status sync_blocked(struct sync *sync, struct error *error)
{
    struct synced_users fresh = {0};
    struct ledger_visitor visitor = {.blocked = sync_gather, .context = &fresh};
    struct gate *gate = sync->service->gate;

    /* Taken before the ledger is read: who is touched later is looked up by the next look. */
    pthread_mutex_lock(&sync->lock);
    struct synced_users touched = sync->touched;
    sync->touched = (struct synced_users){0};
    pthread_mutex_unlock(&sync->lock);
    enum status status = ledger_visit_blocked(sync->service->ledger, &visitor, error);

    if (status == STATUS_OK && fresh.count > 0)
        qsort(fresh.users, fresh.count, sizeof(*fresh.users), sync_compare);
    for (size_t i = 0; i < fresh.count && status == STATUS_OK; i++)
        if (!sync_has(&sync->blocked, &fresh.users[i]))
            status = gate_block(gate, &fresh.users[i], true, error);
    for (size_t i = 0; i < sync->blocked.count && status == STATUS_OK; i++)
        if (!sync_has(&fresh, &sync->blocked.users[i]))
            status = gate_block(gate, &sync->blocked.users[i], false, error);
    if (status == STATUS_OK)
        status = sync_settle_touched(sync, &touched, &fresh, error);
    for (size_t i = 0; i < touched.count && status != STATUS_OK; i++)
        sync_touch(sync, &touched.users[i]);
    free(touched.users);
    if (status == STATUS_OK) {
        struct synced_users old = sync->blocked;
        sync->blocked = fresh;
        fresh = old;
    }
    free(fresh.users);
    return status;
}

/* --- the thread --- */

static enum status sync_dead_letters(struct sync *sync, struct error *error)
{
    int64_t count = 0;
    enum status status = ledger_dead_letter_count(sync->service->ledger, &count, error);

    if (status == STATUS_OK) {
        int64_t before = atomic_exchange(&sync->service->dead_letter_count, count);
        if (count > before)
            notices_add(&sync->service->notices, clock_wall_ms(), 0, "dead_letters",
                        "Dead letters: %lld, %lld more than before.", (long long)count,
                        (long long)(count - before));
    }
    return status;
}

/* Without any, claims are still won, and none of them becomes a coupon. */
static enum status sync_workers(struct sync *sync, struct error *error)
{
    struct service *service = sync->service;
    int64_t count = 0;
    enum status status = ledger_worker_count(service->ledger, WORKER_GRACE_MS, &count, error);

    if (status != STATUS_OK)
        return status;
    if (service->workers != NULL && count == 0)
        count = 1; /* This process works, and has only begun to say so. */
    int64_t before = atomic_exchange(&service->worker_count, count);
    if (count == 0 && before != 0) {
        log_event(LOG_WARN, "no_worker", LOG_FIELD("next", LOG_TEXT("start `dibs worker`")));
        notices_add(&service->notices, clock_wall_ms(), 0, "no_worker",
                    "No worker is alive: claims wait for their coupons.");
    } else if (count > 0 && before == 0) {
        log_event(LOG_INFO, "worker_there", LOG_FIELD("count", LOG_I64(count)));
        notices_add(&service->notices, clock_wall_ms(), 0, "worker_there",
                    "A worker is alive again.");
    }
    return status;
}

static enum status sync_pass(struct sync *sync, struct error *error)
{
    enum status status = sync_blocked(sync, error);

    sync->lost.count = 0;
    if (status == STATUS_OK)
        status = sync_workers(sync, error);
    if (status == STATUS_OK)
        status = sync_policies(sync, error);
    if (status == STATUS_OK)
        sync_settle_lost(sync);
    if (status == STATUS_OK && sync->look_count++ % LETTER_LOOKS == 0)
        status = sync_dead_letters(sync, error);
    return status;
}

static int64_t sync_run(void *context)
{
    struct sync *sync = context;
    struct error error = {""};
    bool was_failing = sync->is_failing;

    sync->is_failing = sync_pass(sync, &error) != STATUS_OK;
    if (sync->is_failing && !was_failing)
        log_event(LOG_WARN, "sync_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
    return LOOK_MS;
}

enum status sync_start(struct service *service, struct error *error)
{
    struct sync *started = calloc(1, sizeof(*started));

    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the sync");
    started->service = service;
    pthread_mutex_init(&started->lock, NULL);
    enum status status = sync_pass(started, error);
    if (status == STATUS_OK)
        status = periodic_start(&started->periodic, "sync", sync_run, started, LOOK_MS, error);
    if (status == STATUS_OK)
        service->sync = started;
    else
        sync_stop(started);
    return status;
}

void sync_stop(struct sync *sync)
{
    if (sync == NULL)
        return;
    periodic_stop(&sync->periodic);
    free(sync->touched.users);
    free(sync->lacking);
    pthread_mutex_destroy(&sync->lock);
    free(sync->policies);
    free(sync->blocked.users);
    free(sync);
}
