/* ranking.c: the ranking's thread, which follows the feed, and the answers it leaves for everybody.
 */
#include "ranking/ranking.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "ranking/parts.h"

#define POLL_MS    200   /* between reads of the feed, when nobody wakes it */
#define WANTED_MS  60000 /* for so long after a question its answer is kept up to date */
#define TIMEOUT_MS 10000
#define RETRY_MS   1000 /* after a failure */

/* Between two answers of a window, for those who do not ask for a fresh one. */
#define REST_MS        500
#define LEDGER_REST_MS 10000 /* of one that no board keeps */

/* --- following the feed --- */

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

static void ranking_changed(struct ranking *ranking, size_t applied, bool is_built)
{
    pthread_mutex_lock(&ranking->lock);
    ranking->version++;
    ranking->numbers.applied += applied;
    ranking->numbers.built += is_built;
    if (is_built) {
        ranking->built_version = ranking->version;
        for (int days = 1; days <= RANKING_DAYS_MAX; days++)
            ranking_outdate(ranking->windows[days].answer);
    }
    pthread_mutex_unlock(&ranking->lock);
}

/* The window of yesterday begins a day earlier. */
static int64_t ranking_first_day(const struct board *board, int64_t today)
{
    return today - board->days_max;
}

/* Servers whose clocks are ahead of this one's have sold on days to come: the board has to have all
 * of those days or none. */
enum status ranking_build_board(struct board *board, struct ledger *ledger, int64_t today,
                                struct error *error)
{
    return board->ops->build(board, ledger, ranking_first_day(board, today),
                             today + RANKING_AHEAD_DAYS, error);
}

static enum status ranking_build(struct ranking *ranking, int64_t today, struct error *error)
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

/* A board that others share has changed when its place has. */
static void ranking_note_place(struct ranking *ranking, const struct feed_place *place)
{
    if (feed_place_equal(place, &ranking->place))
        return;
    ranking->place = *place;
    ranking_changed(ranking, 0, false);
}

/* Applies the next entries of the feed; *is_over: there are no more. */
static enum status ranking_step(struct ranking *ranking, int64_t today, bool *is_over,
                                struct error *error)
{
    struct feed_place place;
    size_t count = 0;
    enum status status = ranking->board->ops->place(ranking->board, &place, error);

    *is_over = false;
    /* A server whose clock was ahead made the board drop days that are still needed. One day does
     * not count: servers do not pass midnight at the same instant. */
    if (status == STATUS_OK && ranking->board->ops->first_day(ranking->board) >
                                   ranking_first_day(ranking->board, today) + 1)
        status = error_set(error, STATUS_NOT_FOUND, "the board has forgotten days");
    if (status == STATUS_OK) {
        ranking_note_place(ranking, &place);
        status = ledger_sales_after(ranking->ledger, &place, ranking->entries, RANKING_ENTRIES,
                                    &count, error);
        *is_over = status == STATUS_OK && count < RANKING_ENTRIES;
    }
    if (status == STATUS_OK && count > 0)
        status = ranking->board->ops->apply(ranking->board, &place, ranking->entries, count, error);
    if (status == STATUS_NOT_FOUND) {
        *is_over = false;
        return ranking_build(ranking, today, error);
    }
    /* Another process was quicker, or the answer was lost: the next place() tells. */
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

/* Answers that were made since the feed last changed are as fresh as the board. Under the lock. */
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

/* After the clock has jumped the board may lack any day: past days were dropped, and days far ahead
 * were not built. */
static enum status ranking_pass_midnight(struct ranking *ranking, int64_t today,
                                         struct error *error)
{
    if (ranking->today == 0 || today == ranking->today + 1)
        return ranking->board->ops->forget(ranking->board, ranking_first_day(ranking->board, today),
                                           error);
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
    /* Bounded, so that questions are answered while the feed keeps growing. */
    for (int i = 0; i < 100 && status == STATUS_OK && !is_over; i++)
        status = ranking_step(ranking, today, &is_over, &error);
    if (status != STATUS_OK && status != STATUS_BUSY) {
        ranking_trouble(ranking, &error);
        return false;
    }
    pthread_mutex_lock(&ranking->lock);
    if (status ==
        STATUS_BUSY) { /* Another server builds the board; until then the ledger answers. */
        ranking->is_current = false;
        pthread_mutex_unlock(&ranking->lock);
        return true;
    }
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

/* --- the thread --- */

/* Whether a window's answer has to be made now. Under the lock. */
static bool ranking_is_due(const struct ranking *ranking, int days, int64_t today, int64_t now_ms)
{
    const struct ranking_window *window = &ranking->windows[days];

    if (window->is_wanted)
        return true;
    if (window->asked_at_ms == 0 || now_ms - window->asked_at_ms > WANTED_MS ||
        window->answer == NULL)
        return false;
    bool has_board = days <= ranking->board->days_max;
    bool is_old = window->version != ranking->version || window->answer->last_day != today ||
                  (has_board && window->answer->source != RANKING_FROM_BOARD);
    return is_old && now_ms - window->answer->made_at_ms >=
                         (has_board || ranking->refresh_ms > LEDGER_REST_MS ? ranking->refresh_ms
                                                                            : LEDGER_REST_MS);
}

static void ranking_refresh(struct ranking *ranking, int days, int64_t today)
{
    struct ranking_window *window = &ranking->windows[days];

    pthread_mutex_lock(&ranking->lock);
    bool is_due = ranking_is_due(ranking, days, today, clock_monotonic_ms());
    bool is_cold = days == RANKING_CACHE_DAYS && ranking->board->cache != NULL &&
                   !window->is_wanted_fresh &&
                   (window->answer == NULL || window->answer->last_day != today);
    uint64_t version = ranking->version;
    /* Nothing was sold since it was worked out: whoever waits for a fresh one takes it. */
    bool is_confirmed = window->is_wanted_fresh && window->answer != NULL &&
                        window->answer->last_day == today &&
                        window->answer->fresh_at_ms > window->wanted_after_ms;
    /* A caller that asks from now on may have seen sales that this answer will not have. */
    window->is_wanted = false;
    window->is_wanted_fresh = false;
    if (is_confirmed) {
        window->attempts++;
        pthread_cond_broadcast(&ranking->done);
    }
    pthread_mutex_unlock(&ranking->lock);
    if (!is_due || is_confirmed)
        return;
    struct ranking_answer *answer =
        is_cold ? ranking_make_once(ranking, today) : ranking_make(ranking, days, today);
    ranking_publish(ranking, days, answer, version);
}

static void ranking_refresh_all(struct ranking *ranking, int64_t today)
{
    for (int days = 1; days <= RANKING_DAYS_MAX; days++)
        ranking_refresh(ranking, days, today);
}

static int64_t ranking_run(void *context)
{
    struct ranking *ranking = context;
    int64_t today = zone_day(ranking->zone, clock_wall_ms());

    /* Nobody waits for a board that hangs. */
    if (ranking->is_troubled)
        ranking_refresh_all(ranking, today);
    ranking->is_troubled = !ranking_follow(ranking, today);
    if (!ranking->is_troubled)
        ranking_renew(ranking, today);
    /* The day may have changed meanwhile; an answer for another one is worth nothing. */
    ranking_refresh_all(ranking, zone_day(ranking->zone, clock_wall_ms()));
    return ranking->is_troubled ? RETRY_MS : POLL_MS;
}

/* --- asking --- */

/* At most one write a second, however many cores ask. */
static void ranking_note_asked(struct ranking_window *window, int64_t now_ms)
{
    if (now_ms - atomic_load_explicit(&window->asked_at_ms, memory_order_relaxed) >= 1000)
        atomic_store_explicit(&window->asked_at_ms, now_ms, memory_order_relaxed);
}

bool ranking_still(struct ranking *ranking, const struct ranking_answer *answer, int64_t wall_ms,
                   int64_t now_ms)
{
    struct ranking_window *window = &ranking->windows[answer->days];
    int64_t fresh_at_ms = atomic_load_explicit(&answer->fresh_at_ms, memory_order_relaxed);

    ranking_note_asked(window, now_ms);
    /* The caller holds it, so no other answer can have its address. */
    return atomic_load_explicit(&window->answer, memory_order_relaxed) == answer &&
           wall_ms >= answer->day_start_ms && wall_ms < answer->day_end_ms &&
           now_ms - fresh_at_ms <= BOARD_CACHE_MS;
}

/* The window's answer, when nothing was known after that time that it does not have; with one more
 * holder. Under the lock. */
static struct ranking_answer *ranking_take(struct ranking *ranking, int days, int64_t after_ms)
{
    struct ranking_answer *answer = ranking->windows[days].answer;
    int64_t now_ms = clock_monotonic_ms();

    ranking_note_asked(&ranking->windows[days], now_ms);
    if (answer == NULL || answer->fresh_at_ms <= after_ms ||
        !ranking_still(ranking, answer, clock_wall_ms(), now_ms))
        return NULL;
    atomic_fetch_add(&answer->holder_count, 1);
    return answer;
}

/* An answer that was made after the question is fresh, however long it took. Under the lock. */
static struct ranking_answer *ranking_take_since(struct ranking *ranking, int days,
                                                 int64_t asked_at_ms)
{
    struct ranking_answer *answer = ranking->windows[days].answer;

    if (answer == NULL || answer->made_at_ms < asked_at_ms ||
        !ranking_still(ranking, answer, clock_wall_ms(), clock_monotonic_ms()))
        return NULL;
    atomic_fetch_add(&answer->holder_count, 1);
    return answer;
}

struct ranking_answer *ranking_peek(struct ranking *ranking, int days)
{
    ensure(days >= 1 && days <= RANKING_DAYS_MAX);
    pthread_mutex_lock(&ranking->lock);
    struct ranking_answer *answer = ranking_take(ranking, days, INT64_MIN);
    pthread_mutex_unlock(&ranking->lock);
    return answer;
}

enum status ranking_top(struct ranking *ranking, int days, enum ranking_wish wish,
                        struct ranking_answer **answer, struct error *error)
{
    struct timespec until = clock_deadline_in_ms(TIMEOUT_MS);
    int64_t asked_at_ms = clock_monotonic_ms();
    bool is_fresh = wish == RANKING_FRESH;
    int64_t after_ms = is_fresh ? asked_at_ms : INT64_MIN;
    enum status status = STATUS_OK;

    ensure(days >= 1 && days <= RANKING_DAYS_MAX);
    /* What begins from now on is told by its time from what began before. */
    while (is_fresh && clock_monotonic_ms() == asked_at_ms)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    pthread_mutex_lock(&ranking->lock);
    *answer = ranking_take(ranking, days, after_ms);
    uint64_t attempts = ranking->windows[days].attempts;
    while (*answer == NULL && status == STATUS_OK) {
        /* The first attempt may have begun before the question, and with a board in trouble the
         * second; the others have not. */
        if (ranking->windows[days].attempts >= attempts + (is_fresh ? 4 : 2) ||
            ranking->is_stopping) {
            status = error_set(error, STATUS_UNAVAILABLE, "the ranking cannot be worked out now");
            break;
        }
        ranking->windows[days].is_wanted = true;
        ranking->windows[days].is_wanted_fresh |= is_fresh;
        if (is_fresh && ranking->windows[days].wanted_after_ms < asked_at_ms)
            ranking->windows[days].wanted_after_ms = asked_at_ms;
        periodic_wake(&ranking->periodic);
        if (pthread_cond_timedwait(&ranking->done, &ranking->lock, &until) != 0)
            status = error_set(error, STATUS_UNAVAILABLE, "the ranking takes too long");
        *answer = ranking_take(ranking, days, after_ms);
        if (*answer == NULL && !is_fresh)
            *answer = ranking_take_since(ranking, days, asked_at_ms);
    }
    pthread_mutex_unlock(&ranking->lock);
    return *answer != NULL ? STATUS_OK : status;
}

/* --- board and ledger --- */

enum status ranking_audit(struct ranking *ranking, struct board_comparison *comparison,
                          struct error *error)
{
    int64_t today = zone_day(ranking->zone, clock_wall_ms());

    return board_compare(ranking->board, ranking->ledger, today - ranking->board->days_max + 1,
                         today, comparison, error);
}

enum status ranking_repair(struct ranking *ranking, struct error *error)
{
    enum status status = ranking_build(ranking, zone_day(ranking->zone, clock_wall_ms()), error);

    ranking_wake(ranking);
    return status;
}

/* --- life --- */

void ranking_wake(struct ranking *ranking)
{
    periodic_wake(&ranking->periodic);
}

const struct scoring *ranking_scoring(const struct ranking *ranking)
{
    return &ranking->scoring;
}

void ranking_count(struct ranking *ranking, struct ranking_numbers *numbers)
{
    pthread_mutex_lock(&ranking->lock);
    *numbers = ranking->numbers;
    numbers->board = ranking->board->ops->name;
    numbers->is_current = ranking->is_current;
    numbers->behind_ms =
        ranking->current_at_ms == 0 ? 0 : clock_monotonic_ms() - ranking->current_at_ms;
    pthread_mutex_unlock(&ranking->lock);
}

enum status ranking_open(struct ranking **ranking, const struct ranking_options *options,
                         struct error *error)
{
    struct ranking *opened = calloc(1, sizeof(*opened));

    *ranking = opened;
    if (opened == NULL ||
        (opened->entries = malloc(RANKING_ENTRIES * sizeof(*opened->entries))) == NULL) {
        board_close(options->board);
        free(opened);
        *ranking = NULL;
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the ranking");
    }
    opened->ledger = options->ledger;
    opened->zone = options->zone;
    opened->board = options->board;
    opened->refresh_ms = options->refresh_ms > 0 ? options->refresh_ms : REST_MS;
    if (options->scoring != NULL)
        opened->scoring = *options->scoring;
    opened->turn = clock_wall_ms() / BOARD_CACHE_MS;
    pthread_mutex_init(&opened->lock, NULL);
    clock_condition_init(&opened->done);
    return periodic_start(&opened->periodic, "ranking", ranking_run, opened, 0, error);
}

void ranking_close(struct ranking *ranking)
{
    if (ranking == NULL)
        return;
    pthread_mutex_lock(&ranking->lock);
    ranking->is_stopping = true;
    pthread_cond_broadcast(&ranking->done);
    pthread_mutex_unlock(&ranking->lock);
    periodic_stop(&ranking->periodic);
    for (int days = 0; days <= RANKING_DAYS_MAX; days++)
        ranking_answer_release(ranking->windows[days].answer);
    board_close(ranking->board);
    pthread_mutex_destroy(&ranking->lock);
    pthread_cond_destroy(&ranking->done);
    free(ranking->entries);
    free(ranking);
}
