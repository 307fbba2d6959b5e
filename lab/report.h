/* report.h: all runs as one page with pictures that loads nothing.
 *
 * Threads: values only.
 */
#pragma once

#include <stddef.h>

#include "base/buffer.h"
#include "lab/run.h"

/* All rounds of one design. */
struct lab_result {
    const struct lab_contestant *contestant;
    int rounds;
    int right;              /* of them without an anomaly */
    struct lab_figures sum; /* of all rounds; latencies and costs are to be divided by `rounds` */
};

void lab_result_add(struct lab_result *result, const struct lab_figures *figures);

void lab_report(struct buffer *out, const struct lab_result *results, size_t count,
                const struct lab_setting *setting);
