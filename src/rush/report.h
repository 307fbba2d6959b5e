/* report.h: what a storm found, as words, as JSON and as a page with pictures.
 *
 * Threads: values only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "rush/figures.h"
#include "rush/prove.h"
#include "rush/storm.h"

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
