/* board.c: whether a board says what the ledger says: reads the board, then the ledger, adds what
 * the feed has in between, and compares. */
#include "ranking/board.h"

#include <stdlib.h>
#include <time.h>

#include "ranking/tally.h"

#define ENTRIES      1000
#define ATTEMPTS_MAX 20
#define PAUSE_MS     50

void board_check(const struct board *board)
{
    const struct board_ops *ops = board->ops;
    ensure(ops->name && ops->close && ops->place && ops->build && ops->apply && ops->forget &&
           ops->first_day && ops->ask && ops->read);
}

void board_close(struct board *board)
{
    if (board != NULL)
        board->ops->close(board);
}

/* A shared board is read in pieces, and may change between them. */
static enum status compare_read_board(struct board *board, int64_t first_day, int64_t last_day,
                                      struct tally *tally, struct feed_place *place,
                                      struct error *error)
{
    enum status status = STATUS_BUSY;

    for (int i = 0; i < ATTEMPTS_MAX && status == STATUS_BUSY; i++) {
        struct timespec pause = {.tv_nsec = i == 0 ? 0 : PAUSE_MS * 1000000};
        nanosleep(&pause, NULL);
        tally_release(tally);
        status = board->ops->read(board, first_day, last_day, tally, place, error);
    }
    return status;
}

/* Brings the board's side to the ledger's place. NOT_FOUND: the feed does not lead there. */
static enum status compare_catch_up(struct ledger *ledger, int64_t first_day, int64_t last_day,
                                    struct tally *tally, struct feed_place *place,
                                    const struct feed_place *until, struct error *error)
{
    struct feed_entry *entries = malloc(ENTRIES * sizeof(*entries));
    enum status status = entries == NULL
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory for the feed")
                             : STATUS_OK;
    size_t count = 1;

    while (status == STATUS_OK && count > 0 && place->feed_id < until->feed_id) {
        status = ledger_sales_after(ledger, place, entries, ENTRIES, &count, error);
        for (size_t i = 0; i < count && status == STATUS_OK; i++) {
            if (entries[i].place.feed_id > until->feed_id)
                break;
            *place = entries[i].place;
            if (entries[i].day >= first_day && entries[i].day <= last_day)
                status = tally_add(tally, entries[i].day, &entries[i].product_id,
                                   entries[i].quantity, error);
        }
    }
    free(entries);
    if (status == STATUS_OK && !feed_place_equal(place, until))
        status = error_set(error, STATUS_NOT_FOUND, "the feed does not lead from board to ledger");
    return status;
}

static void compare_counter(struct board_comparison *comparison, int64_t board, int64_t ledger)
{
    comparison->counter_count += board != 0 || ledger != 0;
    comparison->difference_count += board != ledger;
}

static void compare_day(struct board_comparison *comparison, int64_t day, const struct tally *board,
                        const struct tally *ledger)
{
    for (size_t i = 0; i < ledger->product_count; i++)
        compare_counter(comparison, tally_one(board, day, &ledger->products[i]),
                        tally_one(ledger, day, &ledger->products[i]));
    for (size_t i = 0; i < board->product_count; i++)
        if (!tally_has(ledger, &board->products[i]))
            compare_counter(comparison, tally_one(board, day, &board->products[i]), 0);
}

enum status board_compare(struct board *board, struct ledger *ledger, int64_t first_day,
                          int64_t last_day, struct board_comparison *comparison,
                          struct error *error)
{
    struct tally board_tally = {0};
    struct tally ledger_tally = {0};
    struct feed_place board_place;
    struct feed_place ledger_place;

    *comparison = (struct board_comparison){.board = board->ops->name};
    enum status status =
        compare_read_board(board, first_day, last_day, &board_tally, &board_place, error);
    comparison->is_built = status == STATUS_OK;
    if (status == STATUS_OK)
        status = tally_read(&ledger_tally, ledger, first_day, last_day, &ledger_place, error);
    if (status == STATUS_OK) {
        status = compare_catch_up(ledger, first_day, last_day, &board_tally, &board_place,
                                  &ledger_place, error);
        comparison->follows = status == STATUS_OK;
        bool is_read = comparison->follows || status == STATUS_NOT_FOUND;
        for (int64_t day = first_day; day <= last_day && is_read; day++)
            compare_day(comparison, day, &board_tally, &ledger_tally);
    }
    tally_release(&board_tally);
    tally_release(&ledger_tally);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}
