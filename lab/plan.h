/* plan.h: the scenarios of a whole session of the lab: what is changed, and whom it concerns.
 *
 * Threads: values only.
 */
#pragma once

#include "lab/run.h"

struct lab_scenario {
    const char *name;
    const char *title;
    const char *words; /* what happens, in a sentence or two */
    /* When it is not a design's own doing: what leads to the anomalies; else NULL. */
    const char *why;
    bool (*concerns)(const struct lab_contestant *contestant); /* NULL: all */
    void (*set)(struct lab_setting *setting);
};

extern const struct lab_scenario
    lab_scenarios[]; /* up to the one without a name; the first is quick */
#define LAB_SCENARIOS_MAX 16

/* lua and dibs: those that promise something. */
bool lab_is_reference(const struct lab_contestant *contestant);

/* Whether something goes wrong in that setting that the reference promises to survive. */
bool lab_promises(const struct lab_contestant *reference, const struct lab_setting *setting);

/* What is not changed by a scenario. */
extern const struct lab_setting lab_setting_usual;
