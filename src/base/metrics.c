/* metrics.c: prints families, samples and histograms as Prometheus reads them. */
#include "base/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"

static const char *kind_name(enum metrics_kind kind)
{
    switch (kind) {
    case METRICS_COUNTER:
        return "counter";
    case METRICS_GAUGE:
        return "gauge";
    case METRICS_HISTOGRAM:
        return "histogram";
    }
    ensure_failed("a known kind of metric", __FILE__, __LINE__, __func__);
}

/* Help texts are UTF-8 in which a newline and a backslash are escaped. */
static void append_escaped(struct buffer *out, struct span text)
{
    while (text.length > 0) {
        uint32_t code_point;
        size_t count = utf8_decode(text.bytes, text.length, &code_point);
        if (count == 0) {
            count = 1;
            buffer_append_literal(out, "\xef\xbf\xbd");
        } else if (code_point == '\n') {
            buffer_append_literal(out, "\\n");
        } else if (code_point == '\\') {
            buffer_append_literal(out, "\\\\");
        } else {
            buffer_append(out, text.bytes, count);
        }
        text.bytes += count;
        text.length -= count;
    }
}

/* The fewest digits that read back as the same number. */
static void append_double(struct buffer *out, double value)
{
    if (isnan(value)) {
        buffer_append_literal(out, "NaN");
        return;
    }
    if (isinf(value)) {
        buffer_append_text(out, value > 0 ? "+Inf" : "-Inf");
        return;
    }
    char digits[32];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof(digits), "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    buffer_append_text(out, digits);
}

void metrics_family(struct buffer *out, const char *name, enum metrics_kind kind, const char *help)
{
    buffer_printf(out, "# HELP %s ", name);
    append_escaped(out, span_of(help));
    buffer_printf(out, "\n# TYPE %s %s\n", name, kind_name(kind));
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
        if (labelled) {
            buffer_append_text(out, labels);
        }
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
        /* Two buckets per power of two, so every fourth ends at a second one. */
        if (i % 4 != 3) {
            continue;
        }
        buffer_clear(&limit);
        if (i == HISTOGRAM_BUCKETS - 1) {
            buffer_append_literal(&limit, "+Inf");
        } else {
            append_double(&limit, (double)histogram_bucket_limit(i) / divisor);
        }
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
