/* board.h: the ranking's daily counters, kept where they are cheap to ask.
 *
 * A board is a copy of the ledger's totals per day, brought up to date from its feed. It knows the
 * place in the feed that it stands for and takes entries only from there on, each once, together
 * with the place: a crash neither loses nor doubles a sale. Of two who feed the same board, the
 * slower one is told that the place has moved.
 *
 * Questions are answered as the ledger would: more sold, then more sold on the last day, then the
 * smaller product id in byte order; products with nothing sold have no rank.
 *
 * Threads: every function may be called from any thread.
 */
#ifndef RANKING_BOARD_H
#define RANKING_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "ledger/sales.h"

struct board;

/* Who is told a board's counters, in any order, also of 0. */
struct board_visitor {
    enum status (*total)(void *context, int64_t day, const struct user_id *product_id, int64_t sold,
                         struct error *error);
    void *context;
};

#define BOARD_TOKEN_SIZE 33

/* A backend. Every slot is required. */
struct board_ops {
    const char *name;
    void (*close)(struct board *board);
    enum status (*place)(struct board *board, struct feed_place *place, struct error *error);
    enum status (*build)(struct board *board, struct ledger *ledger, int64_t first_day,
                         int64_t last_day, struct error *error);
    enum status (*apply)(struct board *board, const struct feed_place *after,
                         const struct feed_entry *entries, size_t count, struct error *error);
    enum status (*forget)(struct board *board, int64_t first_day, struct error *error);
    int64_t (*first_day)(struct board *board);
    enum status (*top)(struct board *board, int64_t first_day, int64_t last_day, size_t limit,
                       struct sales_line *lines, size_t *count, struct error *error);
    enum status (*of)(struct board *board, int64_t first_day, int64_t last_day,
                      const struct user_id *ids, size_t id_count, struct sales_line *lines,
                      size_t *count, struct error *error);
    enum status (*around)(struct board *board, int64_t first_day, int64_t last_day,
                          const struct user_id *product_id, int64_t distance,
                          struct sales_line *lines, size_t *count, struct error *error);
    enum status (*visit)(struct board *board, int64_t first_day, int64_t last_day,
                         struct feed_place *place, const struct board_visitor *visitor,
                         struct error *error);
    enum status (*recall)(struct board *board, int64_t keep_ms, struct buffer *text,
                          int64_t *age_ms, struct error *error);
    enum status (*refresh)(struct board *board, char token[BOARD_TOKEN_SIZE], struct error *error);
    enum status (*keep)(struct board *board, const char *token, struct span text, int64_t keep_ms,
                        struct error *error);
};

/* Every backend's struct starts with this. */
struct board {
    const struct board_ops *ops;
    int days_max; /* of windows that end today; longer ones are the ledger's to answer */
};

void board_close(struct board *board);

/* The place that the board stands for. NOT_FOUND: it has none, or lost it, and has to be built. */
enum status board_place(struct board *board, struct feed_place *place,
                        struct error *error) MUST_CHECK;

/* Replaces everything by the ledger's totals of these days and their place. */
enum status board_build(struct board *board, struct ledger *ledger, int64_t first_day,
                        int64_t last_day, struct error *error) MUST_CHECK;

/* Takes the entries behind `after`, and moves the place to the last one's, in one step. CONFLICT:
 * the board stands elsewhere; ask for its place. UNKNOWN: it may have been done; the place tells.
 */
enum status board_apply(struct board *board, const struct feed_place *after,
                        const struct feed_entry *entries, size_t count,
                        struct error *error) MUST_CHECK;

/* Days before this one will not be asked for any more. */
enum status board_forget(struct board *board, int64_t first_day, struct error *error) MUST_CHECK;

/* The first day that has not been forgotten, by whoever has one of its servers' clocks ahead, as of
 * the last board_place(). Windows that begin earlier are NOT_FOUND. */
int64_t board_first_day(struct board *board);

/* As ledger_sales_top(), ledger_sales_of() and ledger_sales_around(). NOT_FOUND: the board has to
 * be built first. */
enum status board_top(struct board *board, int64_t first_day, int64_t last_day, size_t limit,
                      struct sales_line *lines, size_t *count, struct error *error) MUST_CHECK;
enum status board_of(struct board *board, int64_t first_day, int64_t last_day,
                     const struct user_id *ids, size_t id_count, struct sales_line *lines,
                     size_t *count, struct error *error) MUST_CHECK;
enum status board_around(struct board *board, int64_t first_day, int64_t last_day,
                         const struct user_id *product_id, int64_t distance,
                         struct sales_line *lines, size_t *count, struct error *error) MUST_CHECK;

/* Tells the counters of these days, and the place they stand for. NOT_FOUND: the board has to be
 * built first. BUSY: it has changed meanwhile, and what was told is worth nothing. */
enum status board_visit(struct board *board, int64_t first_day, int64_t last_day,
                        struct feed_place *place, const struct board_visitor *visitor,
                        struct error *error) MUST_CHECK;

/* Beside its counters a board that servers share has room for one answer, as text, for all of them.
 * One in a process's memory has not: it keeps nothing and lets everybody refresh it.
 *
 * The text, and how old it is; `keep_ms` as it was given to board_keep(). NOT_FOUND: there is none.
 */
enum status board_recall(struct board *board, int64_t keep_ms, struct buffer *text, int64_t *age_ms,
                         struct error *error) MUST_CHECK;

/* Whether it is the caller who works the next one out. BUSY: another one does, for some seconds. */
enum status board_refresh(struct board *board, char token[BOARD_TOKEN_SIZE],
                          struct error *error) MUST_CHECK;

/* Leaves it, for so long. CONFLICT: the caller took too long, and nothing was kept. */
enum status board_keep(struct board *board, const char *token, struct span text, int64_t keep_ms,
                       struct error *error) MUST_CHECK;

/* The board in this process's memory. It ranks by score when `scoring` (copied; NULL: none) is on,
 * of a ledger that keeps moments. */
struct scoring;
enum status board_local_open(struct board **board, const struct scoring *scoring,
                             struct error *error) MUST_CHECK;

/* For backends: checks that every slot is filled. */
void board_check(const struct board *board);

#endif
