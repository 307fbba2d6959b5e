/* board.h: the ranking's daily counters, kept where they are cheap to ask.
 *
 * A board is a copy of the ledger's totals per day, brought up to date from its feed. It knows the
 * place in the feed up to which it counts, and takes entries only from there on, each once, and
 * together with the new place: a crash neither loses nor doubles a sale. Of two servers that feed
 * the same board, the slower one is told that the place has moved.
 *
 * Questions are answered as the ledger would: more sold, then more sold on the last day, then the
 * smaller product id in byte order; products with nothing sold have no rank.
 *
 * Threads: every function may be called from any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "ledger/sales/sales.h"

#define BOARD_TOKEN_SIZE 33
#define BOARD_CACHE_MS   600000 /* how long the answer that servers share is kept */

struct board;
struct scoring;
struct tally;

enum board_question_kind {
    BOARD_TOP,    /* the best `limit` products, as ledger_sales_top() */
    BOARD_OF,     /* the lines of `ids`, as ledger_sales_of() */
    BOARD_AROUND, /* the first of `ids` and `limit` neighbours on each side, as
                     ledger_sales_around() */
};

/* A question about the days first_day … last_day. */
struct board_question {
    enum board_question_kind kind;
    int64_t first_day;
    int64_t last_day;
    size_t limit;
    const struct id *ids;
    size_t id_count;
};

/* The answer that servers share, as text, beside the counters of a board that they share. */
struct board_cache_ops {
    /* The text, and how old it is. NOT_FOUND: there is none. */
    enum status (*recall)(struct board *board, struct buffer *text, int64_t *age_ms,
                          struct error *error) MUST_CHECK;
    /* OK: the caller works the next one out, and gives the token back with it. BUSY: another one
     * does, for some seconds. */
    enum status (*refresh)(struct board *board, char token[BOARD_TOKEN_SIZE],
                           struct error *error) MUST_CHECK;
    /* Leaves the text for BOARD_CACHE_MS. CONFLICT: the caller took too long, and nothing was kept.
     */
    enum status (*keep)(struct board *board, const char *token, struct span text,
                        struct error *error) MUST_CHECK;
};

/* A backend. Every slot is required. */
struct board_ops {
    const char *name;
    void (*close)(struct board *board);
    /* The place up to which the board counts. NOT_FOUND: it has none, or lost it, and has to be
     * built. */
    enum status (*place)(struct board *board, struct feed_place *place,
                         struct error *error) MUST_CHECK;
    /* Replaces everything by the ledger's totals of these days and their place. BUSY: another
     * process builds it. */
    enum status (*build)(struct board *board, struct ledger *ledger, int64_t first_day,
                         int64_t last_day, struct error *error) MUST_CHECK;
    /* Takes the entries, if any, behind `after`, and moves the place to the last one's, in
     * one step. CONFLICT: the board stands elsewhere; ask for its place. UNKNOWN: it may have been
     * done; the place tells. */
    enum status (*apply)(struct board *board, const struct feed_place *after,
                         const struct feed_entry *entries, size_t count,
                         struct error *error) MUST_CHECK;
    /* Days before this one will not be asked for any more. */
    enum status (*forget)(struct board *board, int64_t first_day, struct error *error) MUST_CHECK;
    /* The first day that the board still has, as of the last place(); another server, whose clock
     * is ahead, may have made it forget. Windows that begin earlier are NOT_FOUND. */
    int64_t (*first_day)(struct board *board);
    /* The lines that answer the question, by rank. NOT_FOUND: the board has to be built first, or
     * does not keep these days. */
    enum status (*ask)(struct board *board, const struct board_question *question,
                       struct sales_line *lines, size_t *count, struct error *error) MUST_CHECK;
    /* Adds the counters of these days to the tally, and gives the place up to which they count.
     * NOT_FOUND: the board has to be built first. BUSY: it has changed meanwhile, and what was
     * added is to be thrown away. */
    enum status (*read)(struct board *board, int64_t first_day, int64_t last_day,
                        struct tally *tally, struct feed_place *place,
                        struct error *error) MUST_CHECK;
};

/* Every backend's struct starts with this. */
struct board {
    const struct board_ops *ops;
    const struct board_cache_ops *cache; /* NULL: one process has it, and shares no answer */
    int days_max; /* of windows that end today; longer ones are the ledger's to answer */
};

static inline bool feed_place_equal(const struct feed_place *a, const struct feed_place *b)
{
    return a->feed_id == b->feed_id && a->written_at_ms == b->written_at_ms;
}

/* The board in this process's memory. It ranks by score when `scoring` (copied; NULL: none) is on,
 * of a ledger that keeps moments. */
enum status board_local_open(struct board **board, const struct scoring *scoring,
                             struct error *error) MUST_CHECK;

/* For backends: checks that every slot is filled. */
void board_check(const struct board *board);

/* NULL is fine. */
void board_close(struct board *board);

/* --- board and ledger --- */

struct board_comparison {
    const char *board;        /* its name */
    bool is_built;            /* else the board is missing, and the ledger answers */
    bool follows;             /* else it is of another database, or of an older state of this */
    int64_t counter_count;    /* of a product on a day, other than 0 in either of the two */
    int64_t difference_count; /* of them */
};

/* Compares board and ledger on these days, product by product, as of one place in the feed: sales
 * that come in meanwhile make no difference. A board that is missing, or is of another database, is
 * no failure: the comparison says so. BUSY: so much is sold that the board could not be read as of
 * one moment; try again. */
enum status board_compare(struct board *board, struct ledger *ledger, int64_t first_day,
                          int64_t last_day, struct board_comparison *comparison,
                          struct error *error) MUST_CHECK;
