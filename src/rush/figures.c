/* figures.c: sorts the latencies and counts the outcomes into bins. */
#include "rush/figures.h"

#include <math.h>
#include <stdlib.h>

#define START_MIN_NS INT64_C(100000000)

static const char *const rush_group_names[RUSH_GROUPS] = {
    [RUSH_GROUP_WON] = "won",           [RUSH_GROUP_HELD] = "held",
    [RUSH_GROUP_SOLD_OUT] = "sold_out", [RUSH_GROUP_REFUSED] = "refused",
    [RUSH_GROUP_FAILED] = "failed",
};

static const enum rush_group rush_group_of[RUSH_OUTCOMES] = {
    [RUSH_NONE] = RUSH_GROUP_FAILED,   [RUSH_WON] = RUSH_GROUP_WON,
    [RUSH_HELD] = RUSH_GROUP_HELD,     [RUSH_SOLD_OUT] = RUSH_GROUP_SOLD_OUT,
    [RUSH_LIMIT] = RUSH_GROUP_REFUSED, [RUSH_REFUSED] = RUSH_GROUP_REFUSED,
    [RUSH_BUSY] = RUSH_GROUP_FAILED,
};

const char *rush_group_name(enum rush_group group)
{
    ensure(group < RUSH_GROUPS);
    return rush_group_names[group];
}

static int figures_compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

int64_t rush_figures_latency_ns(const struct rush_figures *figures, double quantile)
{
    if (figures->answered_count == 0)
        return 0;
    double place = ceil(quantile * (double)figures->answered_count);
    size_t at = place < 1 ? 0 : (size_t)place - 1;
    return figures->latencies_ns[at < figures->answered_count ? at : figures->answered_count - 1];
}

static void figures_curve(struct rush_figures *figures)
{
    for (size_t i = 0; i < RUSH_CURVE_POINTS; i++) {
        double above = pow(0.5, (double)i / 4);
        if (i > 0 && above * (double)figures->answered_count < 1)
            break;
        figures->curve[i].quantile = 1 - above;
        figures->curve[i].ns = rush_figures_latency_ns(figures, 1 - above);
        figures->curve_count = i + 1;
    }
}

static void figures_count(struct rush_series *series, const struct rush_press *presses,
                          size_t count, int64_t length_ns)
{
    series->bin_count = RUSH_BINS;
    series->bin_ns = length_ns / RUSH_BINS + 1;
    for (size_t i = 0; i < count; i++) {
        const struct rush_press *press = &presses[i];
        int64_t bin = press->answered_ns / series->bin_ns;
        if (press->is_sent && bin < RUSH_BINS)
            series->counts[bin][rush_group_of[press->outcome]]++;
    }
}

enum status rush_figures_make(struct rush_figures *figures, const struct rush_press *presses,
                              size_t count, int64_t sold_out_ns, struct error *error)
{
    double sum_ns = 0;

    *figures = (struct rush_figures){.first_ns = -1};
    figures->latencies_ns = malloc((count + 1) * sizeof(*figures->latencies_ns));
    if (figures->latencies_ns == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the figures");
    for (size_t i = 0; i < count; i++) {
        const struct rush_press *press = &presses[i];
        if (!press->is_sent)
            continue;
        int64_t latency_ns = press->answered_ns - press->due_ns;
        figures->latencies_ns[figures->answered_count++] = latency_ns;
        sum_ns += (double)latency_ns;
        if (figures->first_ns < 0 || press->sent_ns < figures->first_ns)
            figures->first_ns = press->sent_ns;
        if (press->answered_ns > figures->last_ns)
            figures->last_ns = press->answered_ns;
    }
    size_t answered = figures->answered_count;
    if (answered > 0) {
        qsort(figures->latencies_ns, answered, sizeof(*figures->latencies_ns), figures_compare);
        figures->min_ns = figures->latencies_ns[0];
        figures->max_ns = figures->latencies_ns[answered - 1];
        figures->mean_ns = (int64_t)(sum_ns / (double)answered);
        figures_curve(figures);
    }
    figures_count(&figures->whole, presses, count, figures->last_ns);
    int64_t start_ns = sold_out_ns >= 0 ? sold_out_ns + sold_out_ns / 2 : figures->last_ns;
    if (start_ns < START_MIN_NS)
        start_ns = START_MIN_NS;
    figures_count(&figures->start, presses, count,
                  start_ns < figures->last_ns ? start_ns : figures->last_ns);
    return STATUS_OK;
}

void rush_figures_release(struct rush_figures *figures)
{
    free(figures->latencies_ns);
    figures->latencies_ns = NULL;
}
