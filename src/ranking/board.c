/* board.c: what every board shares: the way to its functions. */
#include "ranking/board.h"

void board_check(const struct board *board)
{
    const struct board_ops *ops = board->ops;
    ensure(ops->name && ops->close && ops->place && ops->build && ops->apply && ops->forget &&
           ops->first_day && ops->top && ops->of && ops->around && ops->visit && ops->recall &&
           ops->refresh && ops->keep);
}

void board_close(struct board *board)
{
    if (board != NULL)
        board->ops->close(board);
}

enum status board_place(struct board *board, struct feed_place *place, struct error *error)
{
    return board->ops->place(board, place, error);
}

enum status board_build(struct board *board, struct ledger *ledger, int64_t first_day,
                        int64_t last_day, struct error *error)
{
    return board->ops->build(board, ledger, first_day, last_day, error);
}

enum status board_apply(struct board *board, const struct feed_place *after,
                        const struct feed_entry *entries, size_t count, struct error *error)
{
    return count == 0 ? STATUS_OK : board->ops->apply(board, after, entries, count, error);
}

enum status board_forget(struct board *board, int64_t first_day, struct error *error)
{
    return board->ops->forget(board, first_day, error);
}

int64_t board_first_day(struct board *board)
{
    return board->ops->first_day(board);
}

enum status board_top(struct board *board, int64_t first_day, int64_t last_day, size_t limit,
                      struct sales_line *lines, size_t *count, struct error *error)
{
    return board->ops->top(board, first_day, last_day, limit, lines, count, error);
}

enum status board_of(struct board *board, int64_t first_day, int64_t last_day,
                     const struct user_id *ids, size_t id_count, struct sales_line *lines,
                     size_t *count, struct error *error)
{
    return board->ops->of(board, first_day, last_day, ids, id_count, lines, count, error);
}

enum status board_around(struct board *board, int64_t first_day, int64_t last_day,
                         const struct user_id *product_id, int64_t distance,
                         struct sales_line *lines, size_t *count, struct error *error)
{
    return board->ops->around(board, first_day, last_day, product_id, distance, lines, count,
                              error);
}

enum status board_visit(struct board *board, int64_t first_day, int64_t last_day,
                        struct feed_place *place, const struct board_visitor *visitor,
                        struct error *error)
{
    return board->ops->visit(board, first_day, last_day, place, visitor, error);
}

enum status board_recall(struct board *board, int64_t keep_ms, struct buffer *text, int64_t *age_ms,
                         struct error *error)
{
    return board->ops->recall(board, keep_ms, text, age_ms, error);
}

enum status board_refresh(struct board *board, char token[BOARD_TOKEN_SIZE], struct error *error)
{
    return board->ops->refresh(board, token, error);
}

enum status board_keep(struct board *board, const char *token, struct span text, int64_t keep_ms,
                       struct error *error)
{
    return board->ops->keep(board, token, text, keep_ms, error);
}
