/* options.h: what dibs-lab is told: flags of a session, and those of the processes of a run.
 *
 * Threads: one.
 */
#pragma once

#include <stdbool.h>

#include "lab/run.h"

#define LAB_GIVEN_MAX 64

struct lab_options {
    struct lab_setting setting; /* of a process of a run */
    int port, kill_at;          /* of the same */
    int rounds;
    const char *only, *scenarios; /* names with commas between them; NULL: all */
    const char *report, *picture; /* files */
    const char *from;             /* the same: of runs to show again */
    const char *redis, *postgres; /* servers of somebody else's */
    const char *dibs;
    bool is_json, is_quick, is_promised;
    /* Flags about the setting, in their order: they come after what a scenario wants. */
    struct {
        const struct number_flag *flag;
        int64_t value;
    } given[LAB_GIVEN_MAX];
    size_t given_count;
};

/* Reads flags from `at` on. False: the program is over, with that exit code. */
bool lab_options_read(struct lab_options *options, int argc, char **argv, int at, int *code);

/* Puts the flags about the setting over it. */
void lab_options_apply(const struct lab_options *options, struct lab_setting *setting);

/* Whether a list with commas has the name; NULL has all. */
bool lab_is_listed(const char *list, const char *name);
