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
    bool has_scores;
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

/* --- building --- */

struct board_local_building {
    struct tally tally;
    struct feed_place place;
};

static enum status board_local_take_place(void *context, const struct feed_place *place,
                                          struct error *error)
{
    struct board_local_building *building = context;
    (void)error;
    building->place = *place;
    return STATUS_OK;
}

static enum status board_local_take_total(void *context, int64_t day,
                                          const struct user_id *product_id, int64_t sold,
                                          struct error *error)
{
    struct board_local_building *building = context;
    return sold == 0 ? STATUS_OK : tally_add(&building->tally, day, product_id, sold, error);
}

static enum status board_local_take_moment(void *context, int64_t day,
                                           const struct user_id *product_id,
                                           const struct sales_moment *moment, struct error *error)
{
    struct board_local_building *building = context;
    return tally_score(&building->tally, day, product_id, moment, error);
}

/* Beside the one that answers meanwhile. */
static enum status board_local_build(struct board *board, struct ledger *ledger, int64_t first_day,
                                     int64_t last_day, struct error *error)
{
    struct board_local *local = board_local(board);
    struct board_local_building building;
    struct sales_visitor visitor = {.place = board_local_take_place,
                                    .total = board_local_take_total,
                                    .moment = local->has_scores ? board_local_take_moment : NULL,
                                    .context = &building};

    building.place = (struct feed_place){0};
    tally_init(&building.tally, local->has_scores ? &local->scoring : NULL);
    tally_forget(&building.tally, first_day);
    enum status status = ledger_sales_days(ledger, first_day, last_day, &visitor, error);
    if (status == STATUS_OK) {
        pthread_rwlock_wrlock(&local->lock);
        struct tally before = local->tally;
        local->tally = building.tally;
        local->place = building.place;
        local->is_built = true;
        pthread_rwlock_unlock(&local->lock);
        building.tally = before;
    }
    tally_release(&building.tally);
    return status;
}

/* An entry without its moment was written by a server that ranks by what was sold alone; what it
 * adds to a score, only the orders tell. */
static enum status board_local_take_entry(struct board_local *local, const struct feed_entry *entry,
                                          struct error *error)
{
    enum status status = STATUS_OK;

    if (local->has_scores && entry->moment.kind == SALES_KIND_NONE) {
        local->is_built = false;
        return error_set(error, STATUS_CONFLICT, "an entry of the feed does not say when it was");
    }
    if (entry->quantity != 0)
        status = tally_add(&local->tally, entry->day, &entry->product_id, entry->quantity, error);
    if (status == STATUS_OK && local->has_scores)
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
    if (!local->is_built || local->place.feed_id != after->feed_id ||
        local->place.written_at_ms != after->written_at_ms)
        status = error_set(error, STATUS_CONFLICT, "the board stands elsewhere in the feed");
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = board_local_take_entry(local, &entries[i], error);
    if (status == STATUS_OK)
        local->place = entries[count - 1].place;
    else if (status != STATUS_CONFLICT)
        local->is_built = false; /* half of them are in it: it is built anew */
    pthread_rwlock_unlock(&local->lock);
    FAULT_POINT("board.after_apply");
    return status;
}

static enum status board_local_forget(struct board *board, int64_t first_day, struct error *error)
{
    struct board_local *local = board_local(board);

    (void)error;
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

/* Under the lock: whether it has all of the window. */
static bool board_local_has(const struct board_local *local, int64_t first_day)
{
    return local->is_built && first_day >= local->tally.first_day;
}

/* --- questions --- */

static enum status board_local_top(struct board *board, int64_t first_day, int64_t last_day,
                                   size_t limit, struct sales_line *lines, size_t *count,
                                   struct error *error)
{
    struct board_local *local = board_local(board);
    enum status status = STATUS_OK;

    pthread_rwlock_rdlock(&local->lock);
    if (board_local_has(local, first_day))
        *count = tally_top(&local->tally, first_day, last_day, limit, lines);
    else
        status = board_local_missing(error);
    pthread_rwlock_unlock(&local->lock);
    return status;
}

static enum status board_local_of(struct board *board, int64_t first_day, int64_t last_day,
                                  const struct user_id *ids, size_t id_count,
                                  struct sales_line *lines, size_t *count, struct error *error)
{
    struct board_local *local = board_local(board);

    pthread_rwlock_rdlock(&local->lock);
    enum status status =
        board_local_has(local, first_day)
            ? tally_of(&local->tally, first_day, last_day, ids, id_count, lines, count, error)
            : board_local_missing(error);
    pthread_rwlock_unlock(&local->lock);
    return status;
}

static enum status board_local_around(struct board *board, int64_t first_day, int64_t last_day,
                                      const struct user_id *product_id, int64_t distance,
                                      struct sales_line *lines, size_t *count, struct error *error)
{
    struct board_local *local = board_local(board);

    pthread_rwlock_rdlock(&local->lock);
    enum status status = board_local_has(local, first_day) ? STATUS_OK : board_local_missing(error);
    if (status == STATUS_OK)
        *count = tally_around(&local->tally, first_day, last_day, product_id, distance, lines);
    pthread_rwlock_unlock(&local->lock);
    return status;
}

static enum status board_local_visit(struct board *board, int64_t first_day, int64_t last_day,
                                     struct feed_place *place, const struct board_visitor *visitor,
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
            status = visitor->total(visitor->context, day->day, &local->tally.products[j],
                                    day->sold[j], error);
    }
    pthread_rwlock_unlock(&local->lock);
    return status;
}

/* --- nothing for others --- */

static enum status board_local_recall(struct board *board, int64_t keep_ms, struct buffer *text,
                                      int64_t *age_ms, struct error *error)
{
    (void)board;
    (void)keep_ms;
    (void)text;
    (void)age_ms;
    return error_set(error, STATUS_NOT_FOUND, "a board in memory keeps no answer");
}

static enum status board_local_refresh(struct board *board, char token[BOARD_TOKEN_SIZE],
                                       struct error *error)
{
    (void)board;
    (void)error;
    token[0] = '\0';
    return STATUS_OK;
}

static enum status board_local_keep(struct board *board, const char *token, struct span text,
                                    int64_t keep_ms, struct error *error)
{
    (void)board;
    (void)token;
    (void)text;
    (void)keep_ms;
    (void)error;
    return STATUS_OK;
}

static const struct board_ops board_local_ops = {
    .name = "local",
    .close = board_local_close,
    .place = board_local_place,
    .build = board_local_build,
    .apply = board_local_apply,
    .forget = board_local_forget,
    .first_day = board_local_first_day,
    .top = board_local_top,
    .of = board_local_of,
    .around = board_local_around,
    .visit = board_local_visit,
    .recall = board_local_recall,
    .refresh = board_local_refresh,
    .keep = board_local_keep,
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
    local->has_scores = scoring != NULL && scoring_is_on(scoring);
    if (local->has_scores)
        local->scoring = *scoring;
    tally_init(&local->tally, local->has_scores ? &local->scoring : NULL);
    board_check(&local->board);
    *board = &local->board;
    return STATUS_OK;
}
