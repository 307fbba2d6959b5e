/* compare.h: whether a board says what the ledger says, day by day and product by product.
 *
 * Both are compared as of one place in the feed, so that sales which come in meanwhile make no
 * difference.
 *
 * Threads: any.
 */
#ifndef RANKING_COMPARE_H
#define RANKING_COMPARE_H

#include "ranking/board.h"

struct board_difference {
    int64_t day;
    struct user_id product_id;
    int64_t board;
    int64_t ledger;
};

struct board_comparison {
    const char *board; /* its name */
    int64_t first_day; /* which days were compared */
    int64_t last_day;
    bool is_built;            /* else the board is missing, and the ledger answers */
    bool follows;             /* else it stands for another database, or an older state of this */
    int64_t counter_count;    /* of a product on a day, other than 0 in either of the two */
    int64_t difference_count; /* of them; only the first ones are told */
    size_t told_count;
};

/* Compares these days. A board that is missing, or stands for another database, is no failure: the
 * comparison says so, and has nothing more to say of the first. BUSY: so much is sold that the
 * board could not be read as of one moment; try again. */
enum status board_compare(struct board *board, struct ledger *ledger, int64_t first_day,
                          int64_t last_day, struct board_comparison *comparison,
                          struct board_difference *differences, size_t max,
                          struct error *error) MUST_CHECK;

#endif
