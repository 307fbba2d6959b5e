/* blocklist.c: a sorted array under a read-write lock. */
#include "gate/blocklist.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

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
static size_t blocklist_position(const struct blocklist *list, const struct id *user)
{
    size_t low = 0;
    size_t high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (id_compare(&list->users[middle], user) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool blocklist_is_at(const struct blocklist *list, size_t at, const struct id *user)
{
    return at < list->count && id_equal(&list->users[at], user);
}

enum status blocklist_set(struct blocklist *list, const struct id *user, bool blocked,
                          struct error *error)
{
    enum status status = STATUS_OK;

    pthread_rwlock_wrlock(&list->lock);
    size_t at = blocklist_position(list, user);
    bool present = blocklist_is_at(list, at, user);
    if (!blocked && present)
        array_remove(list->users, at, list->count);
    else if (blocked && !present && array_insert(list->users, at, list->count, list->capacity))
        list->users[at] = *user;
    else if (blocked && !present)
        status = error_set(error, STATUS_UNAVAILABLE, "no memory for the list of blocked users");
    pthread_rwlock_unlock(&list->lock);
    return status;
}

bool blocklist_find(struct blocklist *list, const struct id *user)
{
    pthread_rwlock_rdlock(&list->lock);
    bool found = blocklist_is_at(list, blocklist_position(list, user), user);
    pthread_rwlock_unlock(&list->lock);
    return found;
}

enum status blocklist_visit(struct blocklist *list, blocklist_visit_fn visit, void *context,
                            struct error *error)
{
    enum status status = STATUS_OK;

    pthread_rwlock_rdlock(&list->lock);
    size_t count = list->count;
    struct id *users = malloc((count + 1) * sizeof(*users));
    if (users != NULL && count > 0)
        memcpy(users, list->users, count * sizeof(*users));
    pthread_rwlock_unlock(&list->lock);
    if (users == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the list of blocked users");
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = visit(context, &users[i], error);
    free(users);
    return status;
}
