/* parts.h: what the ranking is made of; for the files of ranking/ only.
 *
 * Threads: what is the thread's own is touched by ranking_main() alone; the rest says its rule.
 */
#pragma once

#include <pthread.h>

#include "base/periodic.h"
#include "ranking/ranking.h"

#define RANKING_ENTRIES    1000 /* of the feed, at a time */
#define RANKING_AHEAD_DAYS 30   /* that a board is built for */

struct ranking_window {
    _Atomic int64_t asked_at_ms;           /* monotonic; 0: never; a second more or less */
    bool is_wanted;                        /* somebody waits for it */
    bool is_wanted_fresh;                  /* and not for what was worked out before */
    int64_t wanted_after_ms;               /* monotonic: the last that such a question came */
    uint64_t version;                      /* of the board when the answer was made */
    uint64_t attempts;                     /* to make one, to see that one came after a question */
    struct ranking_answer *_Atomic answer; /* changed under the lock */
};

struct ranking {
    struct ledger *ledger;
    const struct zone *zone;
    struct board *board;
    int64_t refresh_ms;
    struct scoring scoring;
    struct periodic periodic;
    struct feed_entry *entries; /* the thread's own */
    struct feed_place place;    /* the thread's own: where it last saw the board */
    int64_t turn;               /* the thread's own: which ten minutes the shared answer is of */
    int64_t today;              /* the thread's own: for which days the board was last trimmed */
    bool is_troubled;           /* the thread's own: the board could not follow the feed */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t done;  /* an answer was made, or could not be */
    bool is_stopping;
    uint64_t version;       /* of the board; rises with every change */
    uint64_t built_version; /* when it was last built anew: answers of older ones may be wrong */
    bool is_current;
    int64_t current_wall_ms; /* when the feed was last found to have nothing more */
    int64_t current_at_ms;
    struct ranking_numbers numbers;
    struct ranking_window windows[RANKING_DAYS_MAX + 1]; /* by days */
};

/* --- ranking.c --- */

/* Follows the feed, on the ranking's thread. True when the board has everything that was in the
 * ledger when it began, or is about to; false: there is trouble. */
bool ranking_follow(struct ranking *ranking, int64_t today);

/* --- answer.c --- */

/* One without lines. NULL: no memory. */
struct ranking_answer *ranking_answer_new(const struct ranking *ranking, int days, int64_t today);

/* Makes a window's answer, from the board or else from the ledger. NULL: neither answers. */
struct ranking_answer *ranking_make(struct ranking *ranking, int days, int64_t today);

/* Everybody gets it from now on; takes it over. NULL: it could not be made. */
void ranking_publish(struct ranking *ranking, int days, struct ranking_answer *answer,
                     uint64_t version);

/* Nobody gets it any more: the board that it comes from was wrong, and has been built anew. */
void ranking_outdate(struct ranking_answer *answer);

/* --- shared.c: the answer that servers share --- */

/* For a server that has no answer: the shared one. If there is none, one of the servers that need
 * it makes it while the others wait. On the ranking's thread. */
struct ranking_answer *ranking_make_once(struct ranking *ranking, int64_t today);

/* Every ten minutes on the clock one server renews the answer for all. On the ranking's thread. */
void ranking_renew(struct ranking *ranking, int64_t today);

/* Appends an answer as text, for servers to share and for others to read: the JSON of
 * GET /v1/products/top, and what it takes to be given as an answer again. */
#define RANKING_TEXT_MAX 1000000
void ranking_write_text(const struct ranking_answer *answer, struct buffer *text);

/* Fills days, the last day, as_of and the lines. INVALID: it is not such a text. */
enum status ranking_read_text(struct span text, struct ranking_answer *answer,
                              struct error *error) MUST_CHECK;
