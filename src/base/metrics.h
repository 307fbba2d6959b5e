/* metrics.h: writes the Prometheus text format.
 *
 * The counters live where they are counted (one set per loop, summed when asked); this only
 * knows how to print families. Never a label per user.
 *
 * Threads: one buffer per call, no shared state.
 */
#pragma once

#include <stdint.h>

#include "base/buffer.h"
#include "base/histogram.h"

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
