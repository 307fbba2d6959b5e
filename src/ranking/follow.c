/* follow.c: brings the board up to date from the ledger's feed, and builds it where it is missing.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "ranking/parts.h"

static void ranking_trouble(struct ranking *ranking, const struct error *error)
{
    pthread_mutex_lock(&ranking->lock);
    bool is_news = ranking->numbers.trouble[0] == '\0';
    ranking->is_current = false;
    snprintf(ranking->numbers.trouble, sizeof(ranking->numbers.trouble), "%.250s", error->text);
    pthread_mutex_unlock(&ranking->lock);
    if (is_news)
        log_event(LOG_WARN, "board_behind", LOG_FIELD("board", LOG_TEXT(ranking->board->ops->name)),
                  LOG_FIELD("error", LOG_TEXT(error->text)));
}

/* Another server builds the board: until then the ledger answers. */
static bool ranking_wait(struct ranking *ranking)
{
    pthread_mutex_lock(&ranking->lock);
    ranking->is_current = false;
    pthread_mutex_unlock(&ranking->lock);
    return true;
}

static void ranking_changed(struct ranking *ranking, size_t applied, bool is_built)
{
    pthread_mutex_lock(&ranking->lock);
    ranking->version++;
    ranking->numbers.applied += applied;
    ranking->numbers.built += is_built;
    pthread_mutex_unlock(&ranking->lock);
}

/* The window of yesterday begins a day earlier. */
static int64_t ranking_first_day(const struct board *board, int64_t today)
{
    return today - board->days_max;
}

/* Servers whose clocks are ahead of this one's have sold on days to come: of those, too, the board
 * has all or nothing. */
enum status ranking_build_board(struct board *board, struct ledger *ledger, int64_t today,
                                struct error *error)
{
    return board_build(board, ledger, ranking_first_day(board, today), today + RANKING_AHEAD_DAYS,
                       error);
}

enum status ranking_build(struct ranking *ranking, int64_t today, struct error *error)
{
    int64_t started_ms = clock_monotonic_ms();
    enum status status = ranking_build_board(ranking->board, ranking->ledger, today, error);

    if (status != STATUS_OK)
        return status;
    ranking_changed(ranking, 0, true);
    log_event(LOG_INFO, "board_built", LOG_FIELD("board", LOG_TEXT(ranking->board->ops->name)),
              LOG_FIELD("ms", LOG_I64(clock_monotonic_ms() - started_ms)));
    return STATUS_OK;
}

/* A board that others share has changed when it stands elsewhere. */
static void ranking_look(struct ranking *ranking, const struct feed_place *place)
{
    if (place->feed_id == ranking->place.feed_id &&
        place->written_at_ms == ranking->place.written_at_ms)
        return;
    ranking->place = *place;
    ranking_changed(ranking, 0, false);
}

/* One step behind the place where the board stands; *is_over: there is no more. */
static enum status ranking_step(struct ranking *ranking, int64_t today, bool *is_over,
                                struct error *error)
{
    struct feed_place place;
    size_t count = 0;
    enum status status = board_place(ranking->board, &place, error);

    *is_over = false;
    /* A clock that was ahead had days forgotten that are wanted. One day does not count: servers do
     * not pass midnight at the same instant. */
    if (status == STATUS_OK &&
        board_first_day(ranking->board) > ranking_first_day(ranking->board, today) + 1)
        status = error_set(error, STATUS_NOT_FOUND, "the board has forgotten days");
    if (status == STATUS_OK) {
        ranking_look(ranking, &place);
        status = ledger_sales_after(ranking->ledger, &place, ranking->entries, RANKING_ENTRIES,
                                    &count, error);
        *is_over = status == STATUS_OK && count < RANKING_ENTRIES;
    }
    if (status == STATUS_OK)
        status = board_apply(ranking->board, &place, ranking->entries, count, error);
    if (status == STATUS_NOT_FOUND) {
        *is_over = false;
        return ranking_build(ranking, today, error);
    }
    /* Another process was quicker, or the answer was lost: the place tells. */
    if (status == STATUS_CONFLICT || status == STATUS_UNKNOWN) {
        *is_over = false;
        return STATUS_OK;
    }
    if (status == STATUS_OK && count > 0) {
        ranking->place = ranking->entries[count - 1].place;
        ranking_changed(ranking, count, false);
    }
    return status;
}

/* What was worked out since the feed has last moved is as fresh as the board. Under the lock. */
static void ranking_confirm(struct ranking *ranking, int64_t now_ms)
{
    for (int days = 1; days <= RANKING_DAYS_MAX; days++) {
        struct ranking_window *window = &ranking->windows[days];
        struct ranking_answer *answer = window->answer;
        if (answer != NULL && answer->source != RANKING_FROM_CACHE &&
            window->version == ranking->version)
            atomic_store_explicit(&answer->fresh_at_ms, now_ms, memory_order_relaxed);
    }
}

/* After a jump of the clock the board may lack any day: those behind it were forgotten, and those
 * far ahead were not built. */
static enum status ranking_pass_midnight(struct ranking *ranking, int64_t today,
                                         struct error *error)
{
    if (ranking->today == 0 || today == ranking->today + 1)
        return board_forget(ranking->board, ranking_first_day(ranking->board, today), error);
    return ranking_build(ranking, today, error);
}

/* True when the board has everything that was in the ledger when it began. */
bool ranking_follow(struct ranking *ranking, int64_t today)
{
    struct error error = {""};
    int64_t wall_ms = clock_wall_ms();
    int64_t now_ms = clock_monotonic_ms();
    enum status status = STATUS_OK;
    bool is_over = false;

    if (ranking->today != today) {
        status = ranking_pass_midnight(ranking, today, &error);
        if (status == STATUS_OK)
            ranking->today = today;
        ranking_changed(ranking, 0, false);
    }
    /* Bounded, so that questions are answered although the feed never ends. */
    for (int i = 0; i < 100 && status == STATUS_OK && !is_over; i++)
        status = ranking_step(ranking, today, &is_over, &error);
    if (status == STATUS_BUSY)
        return ranking_wait(ranking);
    if (status != STATUS_OK) {
        ranking_trouble(ranking, &error);
        return false;
    }
    pthread_mutex_lock(&ranking->lock);
    bool was_in_trouble = ranking->numbers.trouble[0] != '\0';
    ranking->numbers.trouble[0] = '\0';
    ranking->is_current = ranking->is_current || is_over;
    if (is_over) {
        ranking->current_wall_ms = wall_ms;
        ranking->current_at_ms = now_ms;
        ranking_confirm(ranking, now_ms);
    }
    pthread_mutex_unlock(&ranking->lock);
    if (was_in_trouble)
        log_event(LOG_INFO, "board_current",
                  LOG_FIELD("board", LOG_TEXT(ranking->board->ops->name)));
    return true;
}
