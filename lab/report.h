/* report.h: all runs of a session: what the table, the picture and the page are made of.
 *
 * Threads: values only.
 */
#pragma once

#include <stddef.h>

#include "base/buffer.h"
#include "lab/plan.h"
#include "lab/run.h"

/* All rounds of one design in one scenario. */
struct lab_result {
    int rounds;             /* 0: it does not concern this design */
    int right;              /* of them without an anomaly */
    struct lab_figures sum; /* of all rounds: measures are to be divided by `rounds` */
};

struct lab_book {
    const struct lab_contestant *contestants[LAB_CONTESTANTS_MAX];
    size_t contestant_count;
    const struct lab_scenario *scenarios[LAB_SCENARIOS_MAX];
    struct lab_setting settings[LAB_SCENARIOS_MAX];
    size_t scenario_count;
    struct lab_result results[LAB_SCENARIOS_MAX][LAB_CONTESTANTS_MAX];
    int rounds;
    uint64_t seed;
    double seconds; /* that the session took */
    bool is_broken; /* a promise of a reference was not kept */
};

void lab_result_add(struct lab_result *result, const struct lab_figures *figures);

/* "burnt 103, no row 2", up to the length; "right". */
void lab_result_tell(const struct lab_result *result, char *text, size_t size);

/* In how many scenarios a design was run, and in how many it was right. */
void lab_book_judge(const struct lab_book *book, size_t contestant, int *run, int *right);

/* Why an anomaly came about, in one sentence. */
const char *lab_book_why(const struct lab_book *book, size_t scenario, size_t contestant,
                         enum lab_wrong kind);

/* Appends the whole page, or the picture alone. */
void lab_report(struct buffer *out, const struct lab_book *book);
void lab_picture(struct buffer *out, const struct lab_book *book);

/* What the picture and the page share: text for XML. */
void lab_text(struct buffer *out, const char *text);
