/* count.h: what a run came to: everything that was told against every row that is there.
 *
 * Threads: values only.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "lab/anomalies.h"
#include "lab/storm.h"

/* X(field and JSON name): what is measured: the storm; how long an answer takes, and from the
 * answer to the row; CPU seconds per million presses; commands and bytes that Redis sees, per
 * press; what the processes of the run have counted. */
#define LAB_MEASURES(X) \
    X(seconds)          \
    X(per_second)       \
    X(p50_ms)           \
    X(p99_ms)           \
    X(max_ms)           \
    X(row_p50_ms)       \
    X(row_p99_ms)       \
    X(row_last_ms)      \
    X(front_cpu)        \
    X(redis_cpu)        \
    X(database_cpu)     \
    X(broker_cpu)       \
    X(commands)         \
    X(bytes)            \
    X(retries)          \
    X(lock_timeouts)

struct lab_figures {
#define FIELD(field, constant, heading, words) int64_t field;
    LAB_ANOMALIES(FIELD)
#undef FIELD
    int64_t presses;
    int64_t yes; /* people who were told so */
    int64_t rows;
    int64_t lost; /* presses that ended without an answer, or with an error */
#define FIELD(field) double field;
    LAB_MEASURES(FIELD)
#undef FIELD
};

/* How many anomalies there are, of all kinds, and of one. */
int64_t lab_figures_wrong(const struct lab_figures *figures);
int64_t lab_figures_of(const struct lab_figures *figures, enum lab_wrong kind);

extern const char *const lab_wrong_headings[LAB_WRONGS];
extern const char *const lab_wrong_words[LAB_WRONGS];

/* What is in the database: statements that give policy and user, and of rows also the time in ms.
 */
struct lab_records {
    const char *database;
    const char *rows;
    const char *taken_back; /* NULL: that is not done */
};

/* `total` is of each policy; `burnt` how many units second presses took. */
enum status lab_count(struct lab_figures *figures, const struct lab_storm *storm,
                      const struct storm_shape *shape, int64_t total, int64_t burnt,
                      const struct lab_records *records, struct error *error) MUST_CHECK;
