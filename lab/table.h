/* table.h: what a session shows on the terminal: how far it is, each scenario's table, and in the
 * end all of it in one.
 *
 * Threads: one.
 */
#pragma once

#include "lab/report.h"

void lab_table_scenario(const struct lab_book *book, size_t scenario);
void lab_table_all(const struct lab_book *book);
void lab_table_json(const struct lab_contestant *contestant, const struct lab_scenario *scenario,
                    uint64_t seed, const struct lab_figures *figures);

/* Adds the runs that lab_table_json() has printed into a file; false: it cannot be read. */
bool lab_table_recall(struct lab_book *book, const char *file);

/* One line that is written over, on stderr, if that is a terminal. */
struct lab_progress {
    const char *scenario, *design;
    size_t run, run_count; /* this one is the `run`-th */
    int64_t start_ms;
};
void lab_progress_show(void *progress, size_t answered, size_t count);
void lab_progress_clear(void);
