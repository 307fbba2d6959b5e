/* per_address.c: a table of counts; an address is in it only while it has any. */
#include "http/per_address.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/hash.h"
#include "http/rate_limit.h"

#define BUCKETS 4096 /* a power of two */

struct address_count {
    struct address_count *next;
    size_t count;
    size_t length;
    char bytes[RATE_LIMIT_ADDRESS_SIZE];
};

struct per_address {
    size_t max;
    struct hash_key key;
    pthread_mutex_t lock;
    struct address_count *buckets[BUCKETS];
};

struct per_address *per_address_new(size_t max)
{
    struct per_address *per_address = calloc(1, sizeof *per_address);
    if (per_address == NULL) {
        return NULL;
    }
    per_address->max = max;
    per_address->key = hash_key_random();
    pthread_mutex_init(&per_address->lock, NULL);
    return per_address;
}

void per_address_free(struct per_address *per_address)
{
    if (per_address == NULL) {
        return;
    }
    for (size_t index = 0; index < BUCKETS; index++) {
        struct address_count *next;
        for (struct address_count *at = per_address->buckets[index]; at != NULL; at = next) {
            next = at->next;
            free(at);
        }
    }
    pthread_mutex_destroy(&per_address->lock);
    free(per_address);
}

static bool is_counted(const struct per_address *per_address, const struct address *address)
{
    static const struct address nobody;
    static const struct address this_v4 = {{[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
    static const struct address this_v6 = {{[15] = 1}};
    return per_address->max > 0 && memcmp(address, &nobody, sizeof nobody) != 0 &&
           memcmp(address, &this_v4, sizeof this_v4) != 0 &&
           memcmp(address, &this_v6, sizeof this_v6) != 0;
}

/* What points to the address's count, or to NULL where it would be. Under the lock. */
static struct address_count **find(struct per_address *per_address, struct span part)
{
    size_t bucket = hash_table(per_address->key, part.bytes, part.length) & (BUCKETS - 1);
    struct address_count **place = &per_address->buckets[bucket];
    while (*place != NULL && !span_equal((struct span){(*place)->bytes, (*place)->length}, part)) {
        place = &(*place)->next;
    }
    return place;
}

static struct address_count *add(struct span part)
{
    struct address_count *made = calloc(1, sizeof *made);
    if (made != NULL) {
        made->length = part.length;
        memcpy(made->bytes, part.bytes, part.length);
    }
    return made;
}

bool per_address_enter(struct per_address *per_address, const struct address *address)
{
    char bytes[RATE_LIMIT_ADDRESS_SIZE];
    if (!is_counted(per_address, address)) {
        return true;
    }
    struct span part = rate_limit_address(address, bytes);
    pthread_mutex_lock(&per_address->lock);
    struct address_count **place = find(per_address, part);
    if (*place == NULL) {
        *place = add(part);
    }
    bool entered = *place != NULL && (*place)->count < per_address->max;
    if (entered) {
        (*place)->count++;
    }
    pthread_mutex_unlock(&per_address->lock);
    return entered;
}

void per_address_leave(struct per_address *per_address, const struct address *address)
{
    char bytes[RATE_LIMIT_ADDRESS_SIZE];
    if (!is_counted(per_address, address)) {
        return;
    }
    struct span part = rate_limit_address(address, bytes);
    pthread_mutex_lock(&per_address->lock);
    struct address_count **place = find(per_address, part);
    struct address_count *count = *place;
    ensure(count != NULL && count->count > 0);
    if (--count->count == 0) {
        *place = count->next;
        free(count);
    }
    pthread_mutex_unlock(&per_address->lock);
}
