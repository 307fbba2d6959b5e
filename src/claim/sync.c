/* sync.c: looks at the ledger every second and tells the gate what is new. */
#include "claim/sync.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "claim/lost.h"
#include "claim/parts.h"

#define LOOK_MS         1000
#define LETTER_LOOKS    5 /* every so many looks the dead letters are counted */
#define PAGE            64
#define WORKER_GRACE_MS 2000 /* a worker that has not said so for this long does not live */

/* A policy as the gate was last told of it. */
struct synced_policy {
    int64_t id;
    int64_t version;
    int64_t ends_at_ms; /* wall: when it was closed, or closes by itself; 0: never */
};

struct synced_users {
    struct user_id *users; /* in the order of their bytes */
    size_t count;
    size_t capacity;
};

struct sync {
    struct service *service;
    pthread_t thread;
    bool is_running;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    bool is_stopping;
    struct synced_policy *policies; /* in rising order of ids; changed by the thread, under lock */
    size_t policy_count;
    size_t policy_capacity;
    struct synced_users touched; /* blocked or unblocked here since the last look; under lock */
    struct lost lost;
    /* The thread's own. */
    struct synced_users blocked;
    unsigned look_count;
};

/* --- policies --- */

/* Under the lock. */
static struct synced_policy *sync_place(struct sync *sync, int64_t id, size_t at)
{
    if (at < sync->policy_count && sync->policies[at].id == id)
        return &sync->policies[at];
    if (sync->policy_count == sync->policy_capacity) {
        size_t capacity = sync->policy_capacity == 0 ? 64 : sync->policy_capacity * 2;
        struct synced_policy *grown = realloc(sync->policies, capacity * sizeof(*grown));
        if (grown == NULL)
            return NULL;
        sync->policies = grown;
        sync->policy_capacity = capacity;
    }
    memmove(sync->policies + at + 1, sync->policies + at,
            (sync->policy_count - at) * sizeof(*sync->policies));
    sync->policy_count++;
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
    size_t low = 0;

    for (size_t high = sync->policy_count; low < high;) {
        size_t middle = (low + high) / 2;
        if (sync->policies[middle].id < policy_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sync->policy_count && sync->policies[low].id == policy_id ? &sync->policies[low]
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

void sync_lost_words(struct sync *sync, char *words, size_t size)
{
    words[0] = '\0';
    if (sync != NULL)
        lost_words(&sync->lost, words, size);
}

/* Those from `at` on with ids below that one are not in the ledger any more. */
static void sync_drop_before(struct sync *sync, size_t at, int64_t id)
{
    while (at < sync->policy_count && sync->policies[at].id < id) {
        lost_miss(&sync->lost, sync->policies[at].id);
        pthread_mutex_lock(&sync->lock);
        sync->policy_count--;
        memmove(sync->policies + at, sync->policies + at + 1,
                (sync->policy_count - at) * sizeof(*sync->policies));
        pthread_mutex_unlock(&sync->lock);
    }
}

/* A policy that the gate cannot read is told of by the audit, and keeps nobody from the others. */
static enum status sync_push(struct sync *sync, const struct policy *policy, struct error *error)
{
    enum status status = gate_policy_set(sync->service->gate, policy, error);

    if (status != STATUS_FAILED)
        return status;
    log_event(LOG_WARN, "push_failed", LOG_FIELD("policy", LOG_I64(policy->id)),
              LOG_FIELD("error", LOG_TEXT(error->text)));
    return STATUS_OK;
}

static enum status sync_policies(struct sync *sync, struct error *error)
{
    struct service *service = sync->service;
    struct policy *page = malloc(PAGE * sizeof(*page));
    enum status status = page == NULL ? STATUS_UNAVAILABLE : STATUS_OK;
    int64_t after_id = 0;
    size_t at = 0;
    size_t count = 0;

    while (status == STATUS_OK) {
        status = ledger_policy_list(service->ledger, after_id, page, PAGE, &count, error);
        if (status != STATUS_OK || count == 0)
            break;
        for (size_t i = 0; i < count && status == STATUS_OK; i++, at++) {
            sync_drop_before(sync, at, page[i].id);
            struct synced_policy *known = sync_note(sync, &page[i], at);
            if (known != NULL && known->version != page[i].version) {
                status = sync_push(sync, &page[i], error);
                if (status == STATUS_OK)
                    known->version = page[i].version;
            }
            lost_compare(&sync->lost, &page[i]);
        }
        after_id = page[count - 1].id;
    }
    if (status == STATUS_OK)
        sync_drop_before(sync, at, INT64_MAX);
    free(page);
    return status;
}

/* --- blocked users --- */

static enum status sync_gather(void *context, const struct user_id *user, struct error *error)
{
    struct synced_users *list = context;

    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        struct user_id *grown = realloc(list->users, capacity * sizeof(*grown));
        if (grown == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "no memory for the blocked users");
        list->users = grown;
        list->capacity = capacity;
    }
    list->users[list->count++] = *user;
    return STATUS_OK;
}

static int sync_compare(const void *a, const void *b)
{
    return user_id_compare(a, b);
}

static bool sync_has(const struct synced_users *list, const struct user_id *user)
{
    return list->count > 0 &&
           bsearch(user, list->users, list->count, sizeof(*user), sync_compare) != NULL;
}

void sync_touch(struct sync *sync, const struct user_id *user)
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
    for (size_t i = 0; i < fresh.count && status == STATUS_OK; i++) {
        if (!sync_has(&sync->blocked, &fresh.users[i]))
            status = gate_block(gate, &fresh.users[i], true, error);
    }
    for (size_t i = 0; i < sync->blocked.count && status == STATUS_OK; i++) {
        if (!sync_has(&fresh, &sync->blocked.users[i]))
            status = gate_block(gate, &sync->blocked.users[i], false, error);
    }
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

static enum status sync_letters(struct sync *sync, struct error *error)
{
    int64_t count = 0;
    enum status status = ledger_letter_count(sync->service->ledger, &count, error);

    if (status == STATUS_OK) {
        int64_t before = atomic_exchange(&sync->service->letter_count, count);
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

static enum status sync_look(struct sync *sync, struct error *error)
{
    enum status status = sync_blocked(sync, error);

    lost_begin(&sync->lost);
    if (status == STATUS_OK)
        status = sync_workers(sync, error);
    if (status == STATUS_OK)
        status = sync_policies(sync, error);
    if (status == STATUS_OK)
        lost_end(&sync->lost);
    if (status == STATUS_OK && sync->look_count++ % LETTER_LOOKS == 0)
        status = sync_letters(sync, error);
    return status;
}

static void *sync_main(void *context)
{
    struct sync *sync = context;
    bool was_well = true;

    pthread_mutex_lock(&sync->lock);
    while (!sync->is_stopping) {
        struct timespec until = clock_deadline_in_ms(LOOK_MS);
        struct error error = {""};
        while (!sync->is_stopping && pthread_cond_timedwait(&sync->stop, &sync->lock, &until) == 0)
            continue;
        pthread_mutex_unlock(&sync->lock);
        bool is_well = sync_look(sync, &error) == STATUS_OK;
        if (was_well && !is_well)
            log_event(LOG_WARN, "sync_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
        was_well = is_well;
        pthread_mutex_lock(&sync->lock);
    }
    pthread_mutex_unlock(&sync->lock);
    return NULL;
}

enum status sync_start(struct sync **sync, struct service *service, struct error *error)
{
    struct sync *started = calloc(1, sizeof(*started));

    *sync = NULL;
    if (started == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the sync");
    started->service = service;
    lost_init(&started->lost, service, started);
    pthread_mutex_init(&started->lock, NULL);
    clock_condition_init(&started->stop);
    enum status status = sync_look(started, error);
    if (status == STATUS_OK) {
        started->is_running = pthread_create(&started->thread, NULL, sync_main, started) == 0;
        if (!started->is_running)
            status = error_set(error, STATUS_UNAVAILABLE, "cannot start the sync's thread");
    }
    if (status == STATUS_OK)
        *sync = started;
    else
        sync_stop(started);
    return status;
}

void sync_stop(struct sync *sync)
{
    if (sync == NULL)
        return;
    pthread_mutex_lock(&sync->lock);
    sync->is_stopping = true;
    pthread_cond_broadcast(&sync->stop);
    pthread_mutex_unlock(&sync->lock);
    if (sync->is_running)
        pthread_join(sync->thread, NULL);
    free(sync->touched.users);
    lost_release(&sync->lost);
    pthread_cond_destroy(&sync->stop);
    pthread_mutex_destroy(&sync->lock);
    free(sync->policies);
    free(sync->blocked.users);
    free(sync);
}
