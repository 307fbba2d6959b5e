/* scoring.h: what a ranking by score counts: a weight for each kind, and how fast it fades.
 *
 * Something that happened at t counts weight × quantity × 2^((t - now) / half_life). That is a
 * product of a part that never changes, 2^((t - start of its day) / half_life), and one that is the
 * same for all that happened on a day. So the first is added up for each product and day, as an
 * integer: sums do not depend on their order, and what is taken back is taken back exactly. Nothing
 * is rewritten as time passes, and no sum grows without end: every day has its own landmark.
 *
 * Threads: constants and values only.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/zone.h"
#include "ledger/sales/sales.h"

#define SCORING_HALF_LIFE_MIN_MS INT64_C(3600000)
#define SCORING_HALF_LIFE_MAX_MS (INT64_C(30) * 24 * 3600000)
#define SCORING_WEIGHT_MAX       1000

struct scoring {
    int64_t half_life_ms; /* 0: nothing fades */
    int64_t weights[SALES_KIND_COUNT];
    const struct zone *zone; /* in which days begin */
};

/* Reads "view:1,cart:5,order:20"; kinds that are not named count nothing. "" is order:1. INVALID:
 * the words say what is wrong. */
enum status scoring_read_weights(struct scoring *scoring, const char *text,
                                 struct error *error) MUST_CHECK;

/* INVALID: the half-life is neither 0 nor within its bounds. */
enum status scoring_check_half_life(int64_t half_life_ms, struct error *error) MUST_CHECK;

/* Whether products are ranked by score at all: orders alone that never fade are what was sold. */
bool scoring_is_on(const struct scoring *scoring);

/* A sum of what happened on one day. */
typedef __int128 scoring_sum;

/* What one moment adds to the sum of its day, which began at day_start_ms. */
scoring_sum scoring_add(const struct scoring *scoring, int64_t day_start_ms,
                        const struct sales_moment *moment);

/* What one unit of a sum whose day began at day_start_ms is worth at another time. */
double scoring_worth(const struct scoring *scoring, int64_t day_start_ms, int64_t at_ms);
