/* blocklist.c: a sorted array under a read-write lock. */
#include "gate/blocklist.h"

#include <stdlib.h>
#include <string.h>

#define VISITED_AT_ONCE 64

void blocklist_init(struct blocklist *list)
{
    *list = (struct blocklist){0};
    pthread_rwlock_init(&list->lock, NULL);
}

void blocklist_release(struct blocklist *list)
{
    pthread_rwlock_destroy(&list->lock);
    free(list->users);
}

/* Where the user is or would be. */
static size_t blocklist_position(const struct blocklist *list, const struct user_id *user)
{
    size_t low = 0;
    size_t high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (user_id_compare(&list->users[middle], user) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool blocklist_is_at(const struct blocklist *list, size_t at, const struct user_id *user)
{
    return at < list->count && user_id_equal(&list->users[at], user);
}

static bool blocklist_insert(struct blocklist *list, size_t at, const struct user_id *user)
{
    size_t count = list->count;
    if (count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
        struct user_id *grown = realloc(list->users, capacity * sizeof(*grown));
        if (grown == NULL)
            return false;
        list->users = grown;
        list->capacity = capacity;
    }
    memmove(list->users + at + 1, list->users + at, (count - at) * sizeof(*list->users));
    list->users[at] = *user;
    list->count = count + 1;
    return true;
}

bool blocklist_set(struct blocklist *list, const struct user_id *user, bool blocked)
{
    bool done = true;

    pthread_rwlock_wrlock(&list->lock);
    size_t at = blocklist_position(list, user);
    bool present = blocklist_is_at(list, at, user);
    if (blocked && !present) {
        done = blocklist_insert(list, at, user);
    } else if (!blocked && present) {
        size_t count = list->count - 1;
        memmove(list->users + at, list->users + at + 1, (count - at) * sizeof(*list->users));
        list->count = count;
    }
    pthread_rwlock_unlock(&list->lock);
    return done;
}

bool blocklist_find(struct blocklist *list, const struct user_id *user)
{
    pthread_rwlock_rdlock(&list->lock);
    bool found = blocklist_is_at(list, blocklist_position(list, user), user);
    pthread_rwlock_unlock(&list->lock);
    return found;
}

size_t blocklist_list(struct blocklist *list, const struct user_id *after, struct user_id *users,
                      size_t max)
{
    pthread_rwlock_rdlock(&list->lock);
    size_t at = after == NULL ? 0 : blocklist_position(list, after);
    if (after != NULL && blocklist_is_at(list, at, after))
        at++;
    size_t count = list->count - at < max ? list->count - at : max;
    if (count > 0)
        memcpy(users, list->users + at, count * sizeof(*users));
    pthread_rwlock_unlock(&list->lock);
    return count;
}

enum status blocklist_visit(struct blocklist *list, blocklist_visit_fn visit, void *context,
                            struct error *error)
{
    struct user_id users[VISITED_AT_ONCE];
    enum status status = STATUS_OK;
    size_t count = blocklist_list(list, NULL, users, VISITED_AT_ONCE);

    while (count > 0 && status == STATUS_OK) {
        for (size_t i = 0; i < count && status == STATUS_OK; i++)
            status = visit(context, &users[i], error);
        struct user_id last = users[count - 1];
        count = blocklist_list(list, &last, users, VISITED_AT_ONCE);
    }
    return status;
}
