/* histogram.c: which bucket a value falls into, and what the counts say together. */
#include "base/histogram.h"

#include "base/error.h"

/* Steps of the tenth root of ten (the Renard series R10), of which three make a doubling. */
#define DECADE(POWER)                                                              \
    UINT64_C(100) * (POWER), UINT64_C(125) * (POWER), UINT64_C(160) * (POWER),     \
        UINT64_C(200) * (POWER), UINT64_C(250) * (POWER), UINT64_C(315) * (POWER), \
        UINT64_C(400) * (POWER), UINT64_C(500) * (POWER), UINT64_C(630) * (POWER), \
        UINT64_C(800) * (POWER)

/* The largest value of each bucket. */
static const uint64_t histogram_limits[HISTOGRAM_BUCKETS] = {
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    12,
    16,
    20,
    25,
    31,
    40,
    50,
    63,
    80,
    DECADE(1),
    DECADE(10),
    DECADE(100),
    DECADE(1000),
    DECADE(10000),
    DECADE(100000),
    DECADE(1000000),
    DECADE(10000000),
    DECADE(100000000),
    DECADE(1000000000),
    UINT64_C(1000000000000),
    UINT64_MAX,
};

/* Begins at a bucket that ends at the value's highest bit or a little below it, three per power of
 * two; at most six limits are looked at. */
unsigned histogram_bucket(uint64_t value)
{
    if (value < 2)
        return (unsigned)value;
    unsigned highest = 63 - (unsigned)__builtin_clzll(value);
    unsigned bucket = 3 * highest - 2;
    if (bucket >= HISTOGRAM_BUCKETS)
        return HISTOGRAM_BUCKETS - 1;
    while (value > histogram_limits[bucket])
        bucket++;
    return bucket;
}

/* A plain load and store: there is one writer, so a locked addition would only cost. */
static inline void add_relaxed(_Atomic uint64_t *counter, uint64_t value)
{
    uint64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + value, memory_order_relaxed);
}

void histogram_record(struct histogram *histogram, uint64_t value)
{
    add_relaxed(&histogram->counts[histogram_bucket(value)], 1);
    add_relaxed(&histogram->sum, value);
}

void histogram_add_to(const struct histogram *histogram, struct histogram_snapshot *snapshot)
{
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        uint64_t count = atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
        snapshot->counts[i] += count;
        snapshot->count += count;
    }
    snapshot->sum += atomic_load_explicit(&histogram->sum, memory_order_relaxed);
}

uint64_t histogram_bucket_limit(unsigned bucket)
{
    ensure(bucket < HISTOGRAM_BUCKETS);
    return histogram_limits[bucket];
}

bool histogram_bucket_is_round(unsigned bucket)
{
    uint64_t digit = histogram_bucket_limit(bucket);
    while (digit >= 10 && digit % 10 == 0)
        digit /= 10;
    return digit == 1 || digit == 2 || digit == 5;
}

static uint64_t bucket_middle(unsigned bucket)
{
    uint64_t least = bucket > 0 ? histogram_bucket_limit(bucket - 1) + 1 : 0;
    return bucket == HISTOGRAM_BUCKETS - 1 ? least : (least + histogram_bucket_limit(bucket)) / 2;
}

uint64_t histogram_quantile(const struct histogram_snapshot *snapshot, double quantile)
{
    if (snapshot->count == 0)
        return 0;
    double exact_rank = quantile * (double)snapshot->count;
    uint64_t below = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        below += snapshot->counts[i];
        if (below > 0 && (double)below >= exact_rank)
            return bucket_middle(i);
    }
    return UINT64_MAX;
}
