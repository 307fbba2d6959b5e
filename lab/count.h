/* count.h: what a run came to: everything that was told against every row that is there.
 *
 * Threads: values only.
 */
#pragma once

#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "lab/storm.h"

/* X(field, JSON name, heading, what it means); all of them are 0 where a design is right. */
#define LAB_ANOMALIES(X)                                                                         \
    X(oversold, "oversold", "oversold", "rows beyond the total")                                 \
    X(overtold, "overtold", "overtold", "people told yes beyond the total")                      \
    X(unsold, "unsold", "unsold", "coupons never sold, though more people asked than there are") \
    X(yes_without_row, "yes_without_row", "no row", "told yes, and no row")                      \
    X(row_without_yes, "row_without_yes", "no yes", "a row, and told no")                        \
    X(won_twice, "won_twice", "twice", "users with more than one row")                           \
    X(already_with_nothing, "already_with_nothing", "\"already\"",                               \
      "told that they have one, and have none")                                                  \
    X(sent_away, "sent_away", "sent away", "gave up after errors and 503s")                      \
    X(overtaken, "overtaken", "overtaken", "losers who were answered before a winner asked")

struct lab_figures {
#define FIELD(field, json, heading, words) int64_t field;
    LAB_ANOMALIES(FIELD)
#undef FIELD
    int64_t presses;
    int64_t yes; /* people who were told so */
    int64_t rows;
    int64_t lost; /* presses without an answer, or with an error */
    double seconds;
    double p50_ms, p99_ms, max_ms;              /* of an answer */
    double row_p50_ms, row_p99_ms, row_last_ms; /* from the answer to the row */
    double front_cpu, redis_cpu, database_cpu;  /* seconds per million presses */
    double commands, bytes;                     /* of Redis, per press */
};

/* How many anomalies there are, of all kinds. */
int64_t lab_figures_wrong(const struct lab_figures *figures);

/* Reads the rows (the statement gives user and time in ms) and counts. */
enum status lab_count(struct lab_figures *figures, const struct lab_storm *storm,
                      const struct storm_shape *shape, int64_t total, const char *database,
                      const char *statement, struct error *error) MUST_CHECK;
