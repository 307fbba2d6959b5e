/* metrics.h: histograms, and the Prometheus text format.
 *
 * The counters live where they are counted (one set per loop, summed when asked); this only
 * knows how to print families. Never a label per user.
 *
 * Threads: one buffer per call; histograms have a rule of their own.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

/* --- histograms: durations or sizes in logarithmic buckets, ten per power of ten ---
 *
 * Promises are made in round numbers, so 1, 2 and 5 times every power of ten is where a bucket
 * ends. One thread records, any thread may read: the counters are relaxed atomics. */

/* Up to 10^12: a quarter of an hour in nanoseconds; what is above falls into the last. */
#define HISTOGRAM_BUCKETS 120

struct histogram {
    _Atomic uint64_t counts[HISTOGRAM_BUCKETS];
    _Atomic uint64_t sum;
};

/* A plain copy, for adding up several recorders and for reading quantiles. */
struct histogram_snapshot {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t sum;
    uint64_t count;
};

/* Single writer per histogram. */
void histogram_record(struct histogram *histogram, uint64_t value);

/* Adds the present counts to `snapshot` (zero it first). */
void histogram_add_to(const struct histogram *histogram, struct histogram_snapshot *snapshot);

/* Which bucket a value falls into, and the largest value that does; UINT64_MAX for the last. */
unsigned histogram_bucket(uint64_t value);
uint64_t histogram_bucket_limit(unsigned bucket);

/* Whether it ends at 1, 2 or 5 times a power of ten. */
bool histogram_bucket_is_round(unsigned bucket);

/* The middle of the first bucket up to which `quantile` (0..1) of the values lie; 0 when empty. */
uint64_t histogram_quantile(const struct histogram_snapshot *snapshot, double quantile);

/* --- the text --- */

enum metrics_kind { METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM };

/* # HELP and # TYPE lines; the help has no line end and no backslash. */
void metrics_family(struct buffer *out, const char *name, enum metrics_kind kind, const char *help);

/* One sample, a finite number; `labels` is NULL or text such as `result="issued"`, whose values
 * have nothing that would have to be escaped. */
void metrics_sample(struct buffer *out, const char *name, const char *labels, double value);
void metrics_sample_u64(struct buffer *out, const char *name, const char *labels, uint64_t value);

/* A family of one sample without labels. */
void metrics_single(struct buffer *out, const char *name, enum metrics_kind kind, const char *help,
                    uint64_t value);

/* The _bucket, _sum and _count lines; recorded values are divided by `divisor` (1e9 for
 * nanoseconds shown as seconds, 1 for sizes). The buckets that end at 1, 2 and 5 times a power of
 * ten become lines, from 10 us on. */
void metrics_histogram(struct buffer *out, const char *name, const char *labels,
                       const struct histogram_snapshot *snapshot, double divisor);
