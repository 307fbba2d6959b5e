/* local.c: the board in this process's memory: a tally, its place, and a lock. */
#include <pthread.h>
#include <stdlib.h>

#include "base/fault.h"
#include "ranking/board.h"
#include "ranking/tally.h"

/* A window of 30 days, and the one of yesterday to compare it with. */
#define DAYS_MAX 30

struct board_local {
    struct board board;
    pthread_rwlock_t lock;
    bool is_built;
    struct feed_place place;
    struct scoring scoring;
    const struct scoring *scores; /* how they are kept; NULL: none are */
    struct tally tally;
};

static struct board_local *board_local(struct board *board)
{
    return (struct board_local *)board;
}

static void board_local_close(struct board *board)
{
    struct board_local *local = board_local(board);

    tally_release(&local->tally);
    pthread_rwlock_destroy(&local->lock);
    free(local);
}

static enum status board_local_missing(struct error *error)
{
    return error_set(error, STATUS_NOT_FOUND, "the board is being built");
}

static enum status board_local_place(struct board *board, struct feed_place *place,
                                     struct error *error)
{
    struct board_local *local = board_local(board);

    pthread_rwlock_rdlock(&local->lock);
    bool is_built = local->is_built;
    *place = local->place;
    pthread_rwlock_unlock(&local->lock);
    return is_built ? STATUS_OK : board_local_missing(error);
}

/* The new one is read beside the one that answers meanwhile. */
static enum status board_local_build(struct board *board, struct ledger *ledger, int64_t first_day,
                                     int64_t last_day, struct error *error)
{
    struct board_local *local = board_local(board);
    struct tally tally = {.scoring = local->scores, .first_day = first_day};
    struct feed_place place = {0};
    enum status status = tally_read(&tally, ledger, first_day, last_day, &place, error);

    if (status == STATUS_OK) {
        pthread_rwlock_wrlock(&local->lock);
        struct tally before = local->tally;
        local->tally = tally;
        local->place = place;
        local->is_built = true;
        pthread_rwlock_unlock(&local->lock);
        tally = before;
    }
    tally_release(&tally);
    return status;
}

/* An entry without its moment was written by a server that ranks by what was sold alone; what it
 * adds to a score, only the orders tell. */
static enum status board_local_take_entry(struct board_local *local, const struct feed_entry *entry,
                                          struct error *error)
{
    enum status status = STATUS_OK;

    if (local->scores != NULL && entry->moment.kind == SALES_KIND_NONE) {
        local->is_built = false;
        return error_set(error, STATUS_CONFLICT, "an entry of the feed does not say when it was");
    }
    if (entry->quantity != 0)
        status = tally_add(&local->tally, entry->day, &entry->product_id, entry->quantity, error);
    if (status == STATUS_OK && local->scores != NULL)
        status = tally_score(&local->tally, entry->day, &entry->product_id, &entry->moment, error);
    return status;
}

static enum status board_local_apply(struct board *board, const struct feed_place *after,
                                     const struct feed_entry *entries, size_t count,
                                     struct error *error)
{
    struct board_local *local = board_local(board);
    enum status status = STATUS_OK;

    FAULT_POINT("board.before_apply");
    pthread_rwlock_wrlock(&local->lock);
    if (!local->is_built || !feed_place_equal(&local->place, after))
        status = error_set(error, STATUS_CONFLICT, "the board stands elsewhere in the feed");
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = board_local_take_entry(local, &entries[i], error);
    if (status == STATUS_OK && count > 0)
        local->place = entries[count - 1].place;
    else if (status != STATUS_OK && status != STATUS_CONFLICT)
        local->is_built = false; /* half of them are in it: it is built anew */
    pthread_rwlock_unlock(&local->lock);
    FAULT_POINT("board.after_apply");
    return status;
}

static enum status board_local_forget(struct board *board, int64_t first_day, struct error *error)
{
    struct board_local *local = board_local(board);

    pthread_rwlock_wrlock(&local->lock);
    tally_forget(&local->tally, first_day);
    pthread_rwlock_unlock(&local->lock);
    return STATUS_OK;
}

static int64_t board_local_first_day(struct board *board)
{
    struct board_local *local = board_local(board);

    pthread_rwlock_rdlock(&local->lock);
    int64_t first_day = local->tally.first_day;
    pthread_rwlock_unlock(&local->lock);
    return first_day;
}

static enum status board_local_ask(struct board *board, const struct board_question *question,
                                   struct sales_line *lines, size_t *count, struct error *error)
{
    struct board_local *local = board_local(board);
    const struct tally *tally = &local->tally;
    int64_t first_day = question->first_day;
    int64_t last_day = question->last_day;
    enum status status = STATUS_OK;

    pthread_rwlock_rdlock(&local->lock);
    if (!local->is_built || first_day < tally->first_day)
        status = board_local_missing(error);
    else if (question->kind == BOARD_TOP)
        *count = tally_top(tally, first_day, last_day, question->limit, lines);
    else if (question->kind == BOARD_OF)
        status = tally_of(tally, first_day, last_day, question->ids, question->id_count, lines,
                          count, error);
    else
        *count = tally_around(tally, first_day, last_day, question->ids, question->limit, lines);
    pthread_rwlock_unlock(&local->lock);
    return status;
}

static enum status board_local_read(struct board *board, int64_t first_day, int64_t last_day,
                                    struct tally *tally, struct feed_place *place,
                                    struct error *error)
{
    struct board_local *local = board_local(board);

    pthread_rwlock_rdlock(&local->lock);
    enum status status = local->is_built ? STATUS_OK : board_local_missing(error);
    *place = local->place;
    for (size_t i = 0; i < local->tally.day_count && status == STATUS_OK; i++) {
        const struct tally_day *day = &local->tally.days[i];
        if (day->day < first_day || day->day > last_day)
            continue;
        for (size_t j = 0; j < day->length && status == STATUS_OK; j++)
            if (day->sold[j] != 0)
                status = tally_add(tally, day->day, &local->tally.products[j], day->sold[j], error);
    }
    pthread_rwlock_unlock(&local->lock);
    return status;
}

static const struct board_ops board_local_ops = {
    .name = "local",
    .close = board_local_close,
    .place = board_local_place,
    .build = board_local_build,
    .apply = board_local_apply,
    .forget = board_local_forget,
    .first_day = board_local_first_day,
    .ask = board_local_ask,
    .read = board_local_read,
};

enum status board_local_open(struct board **board, const struct scoring *scoring,
                             struct error *error)
{
    struct board_local *local = calloc(1, sizeof(*local));

    *board = NULL;
    if (local == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the board");
    local->board = (struct board){.ops = &board_local_ops, .days_max = DAYS_MAX};
    pthread_rwlock_init(&local->lock, NULL);
    if (scoring != NULL && scoring_is_on(scoring)) {
        local->scoring = *scoring;
        local->scores = local->tally.scoring = &local->scoring;
    }
    board_check(&local->board);
    *board = &local->board;
    return STATUS_OK;
}
