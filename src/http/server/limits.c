/* limits.c: a sharded table of moments, eight places for each hash to land in; and a table of
 * counts, in which an address is only while it has any. */
#include "http/server/limits.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash.h"

struct span rate_limit_address(const struct address *address, char bytes[RATE_LIMIT_ADDRESS_SIZE])
{
    bool v4 = address_is_v4(address);
    size_t length = v4 ? 4 : 8;
    bytes[0] = v4 ? 4 : 6;
    memcpy(bytes + 1, address->bytes + (v4 ? 12 : 0), length);
    return (struct span){bytes, length + 1};
}

/* --- requests per second --- */

#define SHARDS 64
#define WAYS   8

/* Long enough for every setting, short enough that sums never overflow. */
#define TOLERANCE_MAX_NS (INT64_MAX / 4)

struct slot {
    uint64_t hash;   /* 0: empty */
    int64_t full_at; /* when the bucket is full again; in the past, the slot says nothing */
};

struct rate_limiter {
    struct hash_key key;
    int64_t interval_ns;  /* one more unit after this long */
    int64_t tolerance_ns; /* what a full bucket is worth in time */
    uint32_t burst;
    size_t sets_mask;   /* sets of WAYS slots per shard, less one */
    struct slot *slots; /* those of one shard behind those of another */
    pthread_mutex_t locks[SHARDS];
};

static size_t power_of_two_at_least(size_t number)
{
    size_t power = 1;
    while (power < number)
        power *= 2;
    return power;
}

static int64_t interval_of(double per_second, int64_t interval_max_ns)
{
    double interval_ns = 1e9 / per_second;
    if (interval_ns >= (double)interval_max_ns)
        return interval_max_ns;
    return interval_ns < 1 ? 1 : (int64_t)interval_ns;
}

struct rate_limiter *rate_limiter_new(double per_second, int64_t burst, size_t keys_max)
{
    ensure(per_second > 0 && burst >= 1);
    struct rate_limiter *limiter = calloc(1, sizeof(*limiter));
    if (limiter == NULL)
        return NULL;
    size_t sets = power_of_two_at_least((keys_max + SHARDS * WAYS - 1) / (SHARDS * WAYS));
    limiter->slots = calloc(sets * WAYS * SHARDS, sizeof(*limiter->slots));
    if (limiter->slots == NULL) {
        free(limiter);
        return NULL;
    }
    limiter->key = hash_key_random();
    limiter->burst = burst > UINT32_MAX ? UINT32_MAX : (uint32_t)burst;
    limiter->interval_ns = interval_of(per_second, TOLERANCE_MAX_NS / (int64_t)limiter->burst);
    limiter->tolerance_ns = limiter->interval_ns * (int64_t)limiter->burst;
    limiter->sets_mask = sets - 1;
    for (size_t index = 0; index < SHARDS; index++)
        pthread_mutex_init(&limiter->locks[index], NULL);
    return limiter;
}

void rate_limiter_free(struct rate_limiter *limiter)
{
    if (limiter == NULL)
        return;
    for (size_t index = 0; index < SHARDS; index++)
        pthread_mutex_destroy(&limiter->locks[index]);
    free(limiter->slots);
    free(limiter);
}

/* The key's own slot, or the one whose bucket is full the longest: it is missed the least. */
static struct slot *find_slot(struct slot *set, uint64_t hash, int64_t now_ns)
{
    struct slot *oldest = &set[0];
    for (size_t entry = 0; entry < WAYS; entry++) {
        if (set[entry].hash == hash)
            return &set[entry];
        if (set[entry].full_at < oldest->full_at)
            oldest = &set[entry];
    }
    *oldest = (struct slot){.hash = hash, .full_at = now_ns};
    return oldest;
}

static uint32_t whole_seconds(int64_t duration_ns)
{
    int64_t seconds = (duration_ns + 999999999) / 1000000000;
    return seconds > UINT32_MAX ? UINT32_MAX : (uint32_t)seconds;
}

enum use { USE_LOOKS, USE_TAKES };

static struct rate_limit use(struct rate_limiter *limiter, struct span key, int64_t now_ns,
                             enum use use)
{
    uint64_t hash = hash_table(limiter->key, key.bytes, key.length);
    hash += hash == 0;
    size_t shard = hash % SHARDS;
    size_t set = shard * (limiter->sets_mask + 1) + (hash / SHARDS & limiter->sets_mask);
    struct rate_limit result = {.limit = limiter->burst};

    pthread_mutex_lock(&limiter->locks[shard]);
    struct slot *slot = find_slot(limiter->slots + set * WAYS, hash, now_ns);
    int64_t full_at = slot->full_at > now_ns ? slot->full_at : now_ns;
    int64_t wait_ns = full_at + limiter->interval_ns - limiter->tolerance_ns - now_ns;
    if (wait_ns <= 0) {
        result.allowed = true;
        full_at += use == USE_TAKES ? limiter->interval_ns : 0;
        slot->full_at = full_at;
    }
    pthread_mutex_unlock(&limiter->locks[shard]);

    result.remaining =
        (uint32_t)((limiter->tolerance_ns - (full_at - now_ns)) / limiter->interval_ns);
    result.reset_s = whole_seconds(full_at - now_ns);
    result.retry_after_s = result.allowed ? 0 : whole_seconds(wait_ns);
    return result;
}

struct rate_limit rate_limiter_take(struct rate_limiter *limiter, struct span key, int64_t now_ns)
{
    return use(limiter, key, now_ns, USE_TAKES);
}

struct rate_limit rate_limiter_peek(struct rate_limiter *limiter, struct span key, int64_t now_ns)
{
    return use(limiter, key, now_ns, USE_LOOKS);
}

/* --- connections per address --- */

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
    struct per_address *per_address = calloc(1, sizeof(*per_address));
    if (per_address == NULL)
        return NULL;
    per_address->max = max;
    per_address->key = hash_key_random();
    pthread_mutex_init(&per_address->lock, NULL);
    return per_address;
}

void per_address_free(struct per_address *per_address)
{
    if (per_address == NULL)
        return;
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
    return per_address->max > 0 && memcmp(address, &nobody, sizeof(nobody)) != 0 &&
           memcmp(address, &this_v4, sizeof(this_v4)) != 0 &&
           memcmp(address, &this_v6, sizeof(this_v6)) != 0;
}

/* What points to the address's count, or to NULL where it would be. Under the lock. */
static struct address_count **find(struct per_address *per_address, struct span part)
{
    size_t bucket = hash_table(per_address->key, part.bytes, part.length) & (BUCKETS - 1);
    struct address_count **place = &per_address->buckets[bucket];
    while (*place != NULL && !span_equal((struct span){(*place)->bytes, (*place)->length}, part))
        place = &(*place)->next;
    return place;
}

bool per_address_enter(struct per_address *per_address, const struct address *address)
{
    char bytes[RATE_LIMIT_ADDRESS_SIZE];
    if (!is_counted(per_address, address))
        return true;
    struct span part = rate_limit_address(address, bytes);
    pthread_mutex_lock(&per_address->lock);
    struct address_count **place = find(per_address, part);
    struct address_count *count = *place;
    if (count == NULL) {
        count = *place = calloc(1, sizeof(*count));
        if (count != NULL) {
            count->length = part.length;
            memcpy(count->bytes, part.bytes, part.length);
        }
    }
    bool entered = count != NULL && count->count < per_address->max;
    if (entered)
        count->count++;
    pthread_mutex_unlock(&per_address->lock);
    return entered;
}

void per_address_leave(struct per_address *per_address, const struct address *address)
{
    char bytes[RATE_LIMIT_ADDRESS_SIZE];
    if (!is_counted(per_address, address))
        return;
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
