/* compare.c: reads the board, then the ledger, adds what the feed has in between, and compares. */
#include "ranking/compare.h"

#include <stdlib.h>
#include <time.h>

#include "ranking/tally.h"

#define ENTRIES      1000
#define ATTEMPTS_MAX 20
#define PAUSE_MS     50

/* One side: what it counts, and the place in the feed that this stands for. */
struct compare_side {
    struct tally tally;
    struct feed_place place;
};

static enum status compare_take_total(void *context, int64_t day, const struct user_id *product_id,
                                      int64_t sold, struct error *error)
{
    struct compare_side *side = context;
    return sold == 0 ? STATUS_OK : tally_add(&side->tally, day, product_id, sold, error);
}

static enum status compare_take_place(void *context, const struct feed_place *place,
                                      struct error *error)
{
    struct compare_side *side = context;
    (void)error;
    side->place = *place;
    return STATUS_OK;
}

/* --- reading --- */

/* A shared board is read in pieces, and may change between them. */
static enum status compare_read_board(struct board *board,
                                      const struct board_comparison *comparison,
                                      struct compare_side *side, struct error *error)
{
    const struct board_visitor visitor = {.total = compare_take_total, .context = side};
    enum status status = STATUS_BUSY;

    for (int i = 0; i < ATTEMPTS_MAX && status == STATUS_BUSY; i++) {
        struct timespec pause = {.tv_nsec = i == 0 ? 0 : PAUSE_MS * 1000000};
        nanosleep(&pause, NULL);
        tally_release(&side->tally);
        status = board_visit(board, comparison->first_day, comparison->last_day, &side->place,
                             &visitor, error);
    }
    return status;
}

static enum status compare_read_ledger(struct ledger *ledger,
                                       const struct board_comparison *comparison,
                                       struct compare_side *side, struct error *error)
{
    const struct sales_visitor visitor = {
        .place = compare_take_place, .total = compare_take_total, .context = side};

    return ledger_sales_days(ledger, comparison->first_day, comparison->last_day, &visitor, error);
}

/* Brings the board's side to the ledger's place. NOT_FOUND: the feed does not lead there. */
static enum status compare_catch_up(struct ledger *ledger,
                                    const struct board_comparison *comparison,
                                    struct compare_side *board, const struct feed_place *until,
                                    struct error *error)
{
    struct feed_entry *entries = malloc(ENTRIES * sizeof(*entries));
    enum status status = entries == NULL
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory for the feed")
                             : STATUS_OK;
    size_t count = 1;

    while (status == STATUS_OK && count > 0 && board->place.feed_id <= until->feed_id) {
        status = ledger_sales_after(ledger, &board->place, entries, ENTRIES, &count, error);
        for (size_t i = 0; i < count && status == STATUS_OK; i++) {
            if (entries[i].place.feed_id > until->feed_id) {
                count = 0;
                break;
            }
            board->place = entries[i].place;
            if (entries[i].day >= comparison->first_day && entries[i].day <= comparison->last_day)
                status = tally_add(&board->tally, entries[i].day, &entries[i].product_id,
                                   entries[i].quantity, error);
        }
    }
    free(entries);
    if (status == STATUS_OK && (board->place.feed_id != until->feed_id ||
                                board->place.written_at_ms != until->written_at_ms))
        status = error_set(error, STATUS_NOT_FOUND, "the feed does not lead from board to ledger");
    return status;
}

/* --- comparing --- */

struct compare_list {
    struct board_comparison *comparison;
    struct board_difference *differences;
    size_t max;
};

static void compare_counter(const struct compare_list *list, int64_t day,
                            const struct user_id *product, int64_t board, int64_t ledger)
{
    struct board_comparison *comparison = list->comparison;

    comparison->counter_count += board != 0 || ledger != 0;
    if (board == ledger)
        return;
    comparison->difference_count++;
    if (comparison->told_count < list->max)
        list->differences[comparison->told_count++] = (struct board_difference){
            .day = day, .product_id = *product, .board = board, .ledger = ledger};
}

static void compare_sides(const struct compare_list *list, const struct tally *board,
                          const struct tally *ledger)
{
    for (int64_t day = list->comparison->first_day; day <= list->comparison->last_day; day++) {
        for (size_t i = 0; i < ledger->product_count; i++) {
            const struct user_id *product = &ledger->products[i];
            compare_counter(list, day, product, tally_one(board, day, product),
                            tally_one(ledger, day, product));
        }
        for (size_t i = 0; i < board->product_count; i++) {
            const struct user_id *product = &board->products[i];
            if (!tally_has(ledger, product))
                compare_counter(list, day, product, tally_one(board, day, product), 0);
        }
    }
}

enum status board_compare(struct board *board, struct ledger *ledger, int64_t first_day,
                          int64_t last_day, struct board_comparison *comparison,
                          struct board_difference *differences, size_t max, struct error *error)
{
    const struct compare_list list = {comparison, differences, max};
    struct compare_side sides[2] = {0};

    *comparison = (struct board_comparison){
        .board = board->ops->name, .first_day = first_day, .last_day = last_day};
    enum status status = compare_read_board(board, comparison, &sides[0], error);
    comparison->is_built = status == STATUS_OK;
    if (status == STATUS_OK)
        status = compare_read_ledger(ledger, comparison, &sides[1], error);
    if (status == STATUS_OK) {
        status = compare_catch_up(ledger, comparison, &sides[0], &sides[1].place, error);
        comparison->follows = status == STATUS_OK;
        if (status == STATUS_OK || status == STATUS_NOT_FOUND) {
            compare_sides(&list, &sides[0].tally, &sides[1].tally);
            status = STATUS_OK;
        }
    } else if (status == STATUS_NOT_FOUND) {
        status = STATUS_OK;
    }
    tally_release(&sides[0].tally);
    tally_release(&sides[1].tally);
    return status;
}
