/* figures.h: the presses of a storm as figures: latencies by quantile, outcomes over time.
 *
 * Threads: values only.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "rush/storm.h"

#define RUSH_CURVE_POINTS 64
#define RUSH_BINS         120

/* What is drawn together. */
enum rush_group {
    RUSH_GROUP_WON,
    RUSH_GROUP_HELD,
    RUSH_GROUP_SOLD_OUT,
    RUSH_GROUP_REFUSED,
    RUSH_GROUP_FAILED
};
#define RUSH_GROUPS (RUSH_GROUP_FAILED + 1)
const char *rush_group_name(enum rush_group group);

struct rush_series {
    int64_t bin_ns;
    size_t bin_count;
    uint32_t counts[RUSH_BINS][RUSH_GROUPS]; /* by when they were answered */
};

struct rush_figures {
    size_t answered_count;
    int64_t first_ns; /* when the first press was sent, the last answered */
    int64_t last_ns;
    int64_t mean_ns;
    int64_t min_ns;
    int64_t max_ns;
    /* Half as many lie above each point as above the one four before. */
    struct {
        double quantile;
        int64_t ns;
    } curve[RUSH_CURVE_POINTS];
    size_t curve_count;
    int64_t *latencies_ns; /* sorted */
    struct rush_series whole;
    struct rush_series start; /* up to a little after the sell-out */
};

/* `sold_out_ns`: -1 when it was not. UNAVAILABLE: no memory. */
enum status rush_figures_make(struct rush_figures *figures, const struct rush_press *presses,
                              size_t count, int64_t sold_out_ns, struct error *error) MUST_CHECK;
void rush_figures_release(struct rush_figures *figures);

/* The least latency that `quantile` (0 to 1) of the presses did not exceed; 0: there are none. */
int64_t rush_figures_latency_ns(const struct rush_figures *figures, double quantile);
