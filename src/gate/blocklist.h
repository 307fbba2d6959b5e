/* blocklist.h: the users whose claims are refused, asked on every claim and nearly always empty.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/model.h"

struct blocklist {
    pthread_rwlock_t lock;
    struct id *users; /* sorted */
    _Atomic size_t count;
    size_t capacity;
};

void blocklist_init(struct blocklist *list);
void blocklist_release(struct blocklist *list);

/* UNAVAILABLE: no memory. */
enum status blocklist_set(struct blocklist *list, const struct id *user, bool blocked,
                          struct error *error) MUST_CHECK;

bool blocklist_find(struct blocklist *list, const struct id *user);

/* Tells every user, in the order of their bytes and without the lock, until a status is not OK. */
typedef enum status (*blocklist_visit_fn)(void *context, const struct id *user,
                                          struct error *error);
enum status blocklist_visit(struct blocklist *list, blocklist_visit_fn visit, void *context,
                            struct error *error) MUST_CHECK;

static inline bool blocklist_has(struct blocklist *list, const struct id *user)
{
    return atomic_load_explicit(&list->count, memory_order_relaxed) != 0 &&
           blocklist_find(list, user);
}
