/* ranking.h: which products sell best right now.
 *
 * One thread applies the ledger's feed to the board and makes the answers that are asked for; all
 * callers share the last one, so that a crowd costs no more than one caller. While the board is
 * being built, or fails, and for windows that it does not keep, the ledger is asked instead:
 * slower, and just as right.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/zone.h"
#include "ledger/sales/sales.h"
#include "ranking/board.h"
#include "ranking/scoring.h"

#define RANKING_DAYS_MAX    30
#define RANKING_LIMIT_MAX   100
#define RANKING_DISTANCE    2         /* neighbours on each side of a product's rank */
#define RANKING_CACHE_DAYS  3         /* of the answer that servers share */
#define RANKING_CHANGE_NONE INT64_MIN /* a newcomer: not in yesterday's window */
#define RANKING_LATE_MS     1000      /* a board that is further behind is not asked */

struct ranking;

struct ranking_options {
    struct ledger *ledger;
    const struct zone *zone; /* in which days end */
    struct board *board;     /* taken over */
    int64_t refresh_ms;      /* how old an answer may become at least; 0: half a second */
    /* NULL: none. If it is on, the board keeps scores. */
    const struct scoring *scoring;
};

struct ranking_line {
    struct sales_line sales;
    struct product product;
    int64_t change; /* yesterday's rank minus today's, or RANKING_CHANGE_NONE */
    double score;   /* at the answer's as_of, where scores are kept */
};

enum ranking_source {
    RANKING_FROM_BOARD,
    RANKING_FROM_LEDGER,
    RANKING_FROM_CACHE, /* that servers share */
};

/* The best of one window. Shared and never changed: ranking_answer_release() when done. */
struct ranking_answer {
    _Atomic unsigned holder_count;
    int days;
    int64_t last_day;
    int64_t day_start_ms; /* wall: the last day, in which it can be given */
    int64_t day_end_ms;
    int64_t as_of_ms;            /* wall: it has everything that was written before then */
    int64_t made_at_ms;          /* monotonic */
    _Atomic int64_t fresh_at_ms; /* monotonic: nothing more was known then */
    enum ranking_source source;
    size_t count;
    struct ranking_line lines[RANKING_LIMIT_MAX];
};

/* Takes the board over, also when it fails. */
enum status ranking_open(struct ranking **ranking, const struct ranking_options *options,
                         struct error *error) MUST_CHECK;
void ranking_close(struct ranking *ranking);

/* Something was sold: the board catches up at once. */
void ranking_wake(struct ranking *ranking);

enum ranking_wish { RANKING_CACHED, RANKING_FRESH };

/* The last answer, if it is good enough for who does not ask for a fresh one; else NULL. Never
 * waits. */
struct ranking_answer *ranking_peek(struct ranking *ranking, int days);

/* Whether ranking_peek() would hand out this very answer, which the caller holds, at that time
 * (wall and monotonic). Takes no lock and writes to nothing that others read often. */
bool ranking_still(struct ranking *ranking, const struct ranking_answer *answer, int64_t wall_ms,
                   int64_t now_ms);

/* Waits for one. FRESH has every sale that was committed before the call. UNAVAILABLE: neither
 * board nor ledger answers.
 */
enum status ranking_top(struct ranking *ranking, int days, enum ranking_wish wish,
                        struct ranking_answer **answer, struct error *error) MUST_CHECK;
void ranking_answer_release(struct ranking_answer *answer);

/* The product's line with up to RANKING_DISTANCE neighbours on each side. *count is 0 when it sold
 * nothing. Asks the board, or the ledger. */
enum status ranking_around(struct ranking *ranking, int days, const struct id *product_id,
                           struct ranking_line lines[2 * RANKING_DISTANCE + 1], size_t *count,
                           enum ranking_source *source, int64_t *as_of_ms,
                           struct error *error) MUST_CHECK;

/* --- board and ledger --- */

/* Compares the board with the ledger on the days that it answers for, as board_compare(). */
enum status ranking_audit(struct ranking *ranking, struct board_comparison *comparison,
                          struct error *error) MUST_CHECK;

/* Builds the board anew from the ledger. BUSY: another server is doing that. */
enum status ranking_repair(struct ranking *ranking, struct error *error) MUST_CHECK;

/* The same for a board that no ranking of this process has. BUSY: another process builds it. */
enum status ranking_build_board(struct board *board, struct ledger *ledger, int64_t today,
                                struct error *error) MUST_CHECK;

/* What products are ranked by: a copy of the options'. Off: by what was sold. */
const struct scoring *ranking_scoring(const struct ranking *ranking);

/* How the board stands. */
struct ranking_numbers {
    const char *board;    /* its name */
    bool is_current;      /* it is built and follows the feed */
    int64_t behind_ms;    /* since it was last found to have everything */
    uint64_t applied;     /* feed entries */
    uint64_t built;       /* how often it was built */
    uint64_t computed;    /* answers */
    uint64_t from_ledger; /* of these, by the ledger */
    char trouble[256];    /* "": none */
};
void ranking_count(struct ranking *ranking, struct ranking_numbers *numbers);
