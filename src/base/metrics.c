/* metrics.c: prints families, samples and histograms as Prometheus reads them. */
#include "base/metrics.h"

#include <stdio.h>
#include <stdlib.h>

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
