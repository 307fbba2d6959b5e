/* board_suite.h: what every board must do; each backend gives it boards and runs it. */
#pragma once

#include "ranking/board.h"

/* An empty board, and another way to the same one (of one in memory: the same). */
struct board *board_suite_open(void);
struct board *board_suite_beside(struct board *board);
void board_suite_close(struct board *board, struct board *beside);

/* For the backend's own tests as well: a ledger with the suite's random sales, and a reference. */
struct board_stage;
int board_stage_set_up(void **state);
int board_stage_tear_down(void **state);
struct board *board_stage_board(struct board_stage *stage);

/* Random orders and refunds. */
void board_stage_sell(struct board_stage *stage, int count);

/* Follows the feed to its end, building the board where it is missing. */
void board_stage_follow(struct board_stage *stage, struct board *board);

/* Builds it from the ledger. */
enum status board_stage_build(struct board_stage *stage, struct board *board, struct error *error);

/* Every question about it is answered as by the reference, and it says what the ledger says. */
void board_stage_check(struct board_stage *stage, struct board *board);

/* The best `limit` products of these days. */
enum status board_suite_top(struct board *board, int64_t first_day, int64_t last_day, size_t limit,
                            struct sales_line *lines, size_t *count, struct error *error);

/* Runs the suite and the backend's own tests, which board_stage_set_up() has prepared. */
struct CMUnitTest;
int board_suite_run(const struct CMUnitTest *own, size_t own_count);
