/* histogram.c: which bucket a value falls into, and what the counts say together. */
#include "base/histogram.h"

#include "base/error.h"

/* 0, 1, 2, 3, 4, 5, 6, 7, 8-9, 10-11, ...: the highest bit and the two below it. */
unsigned histogram_bucket(uint64_t value)
{
    if (value < 4)
        return (unsigned)value;
    unsigned highest = 63 - (unsigned)__builtin_clzll(value);
    unsigned bucket = 4 * (highest - 1) + (unsigned)(value >> (highest - 2) & 3);
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
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
    if (bucket == HISTOGRAM_BUCKETS - 1)
        return UINT64_MAX;
    if (bucket < 4)
        return bucket;
    uint64_t step = UINT64_C(1) << (bucket / 4 - 1);
    return (4 + bucket % 4) * step + step - 1;
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
