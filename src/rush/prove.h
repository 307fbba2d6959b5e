/* prove.h: holds what everybody was told against what a drop promises.
 *
 * Each check can come out three ways: it holds, it is broken, or nobody can say because the server
 * did not tell. A storm is exact when every check holds.
 *
 * Threads: values only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "rush/holdings.h"
#include "rush/storm.h"

/* How the policy stood, by its own numbers. */
struct rush_stock {
    bool is_known;
    int64_t total;
    int64_t remaining;
    int64_t pending;
    int64_t issued;
};

struct rush_evidence {
    const struct rush_press *presses; /* in any order */
    size_t press_count;
    const struct rush_holdings *holdings;
    int64_t per_user_limit;
    bool is_alone; /* the policy is the storm's own: nobody else claims from it */
    struct rush_stock before;
    struct rush_stock after;
    enum { RUSH_AUDIT_NONE, RUSH_AUDIT_FINE, RUSH_AUDIT_BROKEN } audit;
    char audit_text[128];    /* of BROKEN */
    int64_t audit_gap_count; /* seqs that the audit counts as given up */
};

enum rush_verdict { RUSH_HOLDS, RUSH_BROKEN, RUSH_CANNOT_SAY };

struct rush_check {
    const char *name;  /* "count", "unique", ... as JSON has it */
    const char *title; /* for people */
    enum rush_verdict verdict;
    char text[200]; /* what was seen */
};

#define RUSH_CHECKS 9

struct rush_proof {
    struct rush_check checks[RUSH_CHECKS];
    bool is_exact;       /* all hold */
    bool is_broken;      /* one is broken */
    size_t winner_count; /* different claims that somebody was told of, or holds */
    int64_t first_seq;   /* 0: there is none */
    int64_t last_seq;
    int64_t sold_out_ns; /* when the first was told so; -1: nobody was */
    int64_t last_win_ns; /* when the last winner was told; -1: there is none */
};

/* UNAVAILABLE: no memory. */
enum status rush_prove(struct rush_proof *proof, const struct rush_evidence *evidence,
                       struct error *error) MUST_CHECK;

/* "holds", "broken", "cannot_say". */
const char *rush_verdict_name(enum rush_verdict verdict);
