/* live_directory.c: the newest policies, read page by page. */
#include "http/live_directory.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define PAGE         50
#define READ_MS      2000   /* at least so long between two reads that nobody asked for */
#define READ_SHARE   20     /* and so many times as long as the last one took */
#define SHOWN_FOR_MS DAY_MS /* after its end */

void live_directory_init(struct live_directory *directory, struct service *service)
{
    memset(directory, 0, sizeof *directory);
    directory->service = service;
    pthread_mutex_init(&directory->lock, NULL);
}

void live_directory_release(struct live_directory *directory)
{
    free(directory->entries);
    pthread_mutex_destroy(&directory->lock);
}

void live_directory_spoil(struct live_directory *directory)
{
    atomic_store(&directory->is_stale, true);
}

/* When it was closed or will close; 0: that is not known yet. */
static int64_t end_of(const struct policy *policy)
{
    return policy->closed_at_ms != 0 ? policy->closed_at_ms : policy->closes_at_ms;
}

static bool is_over(const struct policy *policy, int64_t wall_ms)
{
    return end_of(policy) != 0 && end_of(policy) <= wall_ms;
}

static bool is_shown(const struct policy *policy, int64_t wall_ms)
{
    return end_of(policy) == 0 || end_of(policy) > wall_ms - SHOWN_FOR_MS;
}

/* Newest first; of the same moment the higher id. */
static int compare_entries(const void *a, const void *b)
{
    const struct live_entry *left = a;
    const struct live_entry *right = b;
    if (left->created_at_ms != right->created_at_ms) {
        return left->created_at_ms > right->created_at_ms ? -1 : 1;
    }
    return left->numbers.policy_id > right->numbers.policy_id ? -1 : 1;
}

/* Whether the first makes room for the second: what is over first, then what is older. */
static bool yields_to(const struct live_entry *entry, const struct live_entry *other)
{
    return entry->is_over != other->is_over ? entry->is_over : compare_entries(entry, other) > 0;
}

/* Keeps the entry in a free place, or in that of one which yields to it. */
static void keep_entry(struct live_entry *entries, size_t *count, const struct live_entry *entry)
{
    if (*count < LIVE_DIRECTORY_MAX) {
        entries[(*count)++] = *entry;
        return;
    }
    struct live_entry *least = &entries[0];
    for (size_t index = 1; index < *count; index++) {
        if (yields_to(&entries[index], least)) {
            least = &entries[index];
        }
    }
    if (yields_to(least, entry)) {
        *least = *entry;
    }
}

static enum status read_pages(struct service *service, struct live_entry *entries, size_t *count,
                              struct policy_view *views, struct error *error)
{
    int64_t wall_ms = clock_wall_ms();
    int64_t after_id = 0;
    for (;;) {
        size_t got = 0;
        enum status status = service_policy_list(service, after_id, views, PAGE, &got, error);
        if (status != STATUS_OK) {
            return status;
        }
        for (size_t index = 0; index < got; index++) {
            const struct policy *policy = &views[index].policy;
            if (is_shown(policy, wall_ms)) {
                struct live_entry entry = {.created_at_ms = policy->created_at_ms,
                                           .is_over = is_over(policy, wall_ms),
                                           .numbers = views[index].numbers};
                memcpy(entry.name, policy->name, sizeof entry.name);
                keep_entry(entries, count, &entry);
            }
        }
        if (got < PAGE) {
            return STATUS_OK;
        }
        after_id = views[got - 1].policy.id;
    }
}

static void read_anew(struct live_directory *directory)
{
    struct live_entry *entries = malloc(LIVE_DIRECTORY_MAX * sizeof *entries);
    struct policy_view *views = malloc(PAGE * sizeof *views);
    struct error error;
    size_t count = 0;
    /* Cleared before: what is changed meanwhile is read once more. */
    atomic_store(&directory->is_stale, false);
    int64_t began_ms = clock_monotonic_ms();
    /* A ledger that cannot be read just now leaves the board with what it had. */
    if (entries != NULL && views != NULL &&
        read_pages(directory->service, entries, &count, views, &error) == STATUS_OK) {
        qsort(entries, count, sizeof *entries, compare_entries);
        pthread_mutex_lock(&directory->lock);
        struct live_entry *before = directory->entries;
        directory->entries = entries;
        directory->count = count;
        pthread_mutex_unlock(&directory->lock);
        entries = before;
    }
    int64_t now_ms = clock_monotonic_ms();
    int64_t rest_ms = (now_ms - began_ms) * READ_SHARE;
    atomic_store(&directory->due_ms, now_ms + (rest_ms > READ_MS ? rest_ms : READ_MS));
    free(entries);
    free(views);
}

static bool is_due(struct live_directory *directory, int64_t now_ms)
{
    return atomic_load(&directory->is_stale) || now_ms >= atomic_load(&directory->due_ms);
}

void live_directory_read(struct live_directory *directory)
{
    if (is_due(directory, clock_monotonic_ms())) {
        read_anew(directory);
    }
}

static void work(struct clerk_task *task, struct service *service)
{
    struct live_directory *directory =
        (struct live_directory *)(void *)((char *)task - offsetof(struct live_directory, task));
    (void)service;
    read_anew(directory);
    atomic_store(&directory->is_being_read, false);
}

void live_directory_keep(struct live_directory *directory, int64_t now_ms)
{
    if (!is_due(directory, now_ms) || atomic_exchange(&directory->is_being_read, true)) {
        return;
    }
    directory->task = (struct clerk_task){.work = work, .queue = CLERK_ADMINS};
    if (!service_submit(directory->service, &directory->task)) {
        atomic_store(&directory->is_being_read, false);
    }
}
