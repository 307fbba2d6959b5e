/* metrics.c: counts in buckets, and prints families, samples and histograms as Prometheus reads
 * them. */
#include "base/metrics.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"

/* In seconds: what is faster needs no telling apart. */
#define SHOWN_MIN 1e-5

/* The fewest digits that read back as the same number. */
static void append_double(struct buffer *out, double value)
{
    char digits[32];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    buffer_append_text(out, digits);
}

void metrics_family(struct buffer *out, const char *name, enum metrics_kind kind, const char *help)
{
    static const char *const kinds[] = {[METRICS_COUNTER] = "counter",
                                        [METRICS_GAUGE] = "gauge",
                                        [METRICS_HISTOGRAM] = "histogram"};
    buffer_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kinds[kind]);
}

/* name_suffix{labels,le="limit"} with what is there of it, and the space before the value. */
static void append_series(struct buffer *out, const char *name, const char *suffix,
                          const char *labels, const char *limit)
{
    bool labelled = labels != NULL && labels[0] != '\0';
    buffer_append_text(out, name);
    buffer_append_text(out, suffix);
    if (labelled || limit != NULL) {
        buffer_append_literal(out, "{");
        if (labelled)
            buffer_append_text(out, labels);
        if (limit != NULL) {
            buffer_append_text(out, labelled ? ",le=\"" : "le=\"");
            buffer_append_text(out, limit);
            buffer_append_literal(out, "\"");
        }
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, " ");
}

void metrics_sample(struct buffer *out, const char *name, const char *labels, double value)
{
    append_series(out, name, "", labels, NULL);
    append_double(out, value);
    buffer_append_literal(out, "\n");
}

void metrics_sample_u64(struct buffer *out, const char *name, const char *labels, uint64_t value)
{
    append_series(out, name, "", labels, NULL);
    buffer_append_u64(out, value);
    buffer_append_literal(out, "\n");
}

void metrics_histogram(struct buffer *out, const char *name, const char *labels,
                       const struct histogram_snapshot *snapshot, double divisor)
{
    struct buffer limit;
    buffer_init(&limit, 64);
    uint64_t at_most = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        at_most += snapshot->counts[i];
        bool is_last = i == HISTOGRAM_BUCKETS - 1;
        double at = (double)histogram_bucket_limit(i) / divisor;
        if (!is_last && (at < SHOWN_MIN || !histogram_bucket_is_round(i)))
            continue;
        buffer_clear(&limit);
        if (is_last)
            buffer_append_literal(&limit, "+Inf");
        else
            append_double(&limit, at);
        append_series(out, name, "_bucket", labels, limit.bytes);
        buffer_append_u64(out, at_most);
        buffer_append_literal(out, "\n");
    }
    buffer_release(&limit);

    append_series(out, name, "_sum", labels, NULL);
    append_double(out, (double)snapshot->sum / divisor);
    buffer_append_literal(out, "\n");
    append_series(out, name, "_count", labels, NULL);
    buffer_append_u64(out, at_most);
    buffer_append_literal(out, "\n");
}

void metrics_single(struct buffer *out, const char *name, enum metrics_kind kind, const char *help,
                    uint64_t value)
{
    metrics_family(out, name, kind, help);
    metrics_sample_u64(out, name, NULL, value);
}

/* --- histograms --- */

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
