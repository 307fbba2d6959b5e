/* report.h: what a storm found, as words, as JSON and as a page with pictures.
 *
 * Threads: values only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "rush/prove.h"
#include "rush/storm.h"

/* --- the presses of a storm as figures: latencies by quantile, outcomes over time --- */

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

/* --- the report --- */

/* What a topic of claims has of the policy since the storm began. */
struct rush_topic {
    const char *name;
    int64_t message_count;
    int32_t partition; /* of the last of them: one policy is in one partition */
    int64_t first_offset;
    int64_t last_offset;
};

struct rush_report {
    const char *url;
    int64_t policy_id;
    const char *policy_name;
    bool is_rehearsal;
    bool is_stopped;       /* somebody pressed Ctrl-C */
    int64_t started_at_ms; /* wall */
    uint32_t user_count;
    size_t connection_count;
    const struct rush_plan *plan;
    const struct storm_numbers *numbers;
    const struct rush_evidence *evidence;
    const struct rush_proof *proof;
    const struct rush_figures *figures;
    const char *first_failure;
    const struct rush_topic *topic; /* NULL: nobody asked */
    int64_t p99_target_ms;          /* 0: none */
};

/* A p99 was asked for and is not reached. */
bool rush_report_misses(const struct rush_report *report);

/* A few lines for a person; `in_colour` for a terminal. */
void rush_report_text(struct buffer *out, const struct rush_report *report, bool in_colour);

/* One object on one line. */
void rush_report_json(struct buffer *out, const struct rush_report *report);

/* One self-contained page that loads nothing. */
void rush_report_page(struct buffer *out, const struct rush_report *report);
