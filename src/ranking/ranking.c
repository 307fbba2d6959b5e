/* ranking.c: the ranking's thread, and the answers it leaves for everybody. */
#include "ranking/ranking.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ranking/parts.h"

#define LOOK_MS     200   /* at the feed, when nobody wakes */
#define WANTED_MS   60000 /* for so long after a question its answer is kept up to date */
#define PATIENCE_MS 10000
#define RETRY_MS    1000 /* after a failure */

/* Between two answers of a window, for those who do not ask for a fresh one. */
#define REST_MS        (RANKING_FRESH_MS / 2)
#define LEDGER_REST_MS 10000 /* of one that no board keeps */

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
    return is_old && now_ms - window->answer->made_at_ms >= (has_board ? REST_MS : LEDGER_REST_MS);
}

static void ranking_refresh(struct ranking *ranking, int days, int64_t today)
{
    struct ranking_window *window = &ranking->windows[days];

    pthread_mutex_lock(&ranking->lock);
    bool is_due = ranking_is_due(ranking, days, today, clock_monotonic_ms());
    bool is_cold = days == RANKING_CACHE_DAYS && !window->is_wanted_fresh &&
                   (window->answer == NULL || window->answer->last_day != today);
    uint64_t version = ranking->version;
    /* Who asks from now on may have seen more than this answer will know. */
    window->is_wanted = false;
    window->is_wanted_fresh = false;
    pthread_mutex_unlock(&ranking->lock);
    if (!is_due)
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

static void *ranking_main(void *context)
{
    struct ranking *ranking = context;
    bool is_fine = true;

    for (;;) {
        int64_t today = zone_day(ranking->zone, clock_wall_ms());
        /* Nobody waits for a board that hangs. */
        if (!is_fine)
            ranking_refresh_all(ranking, today);
        is_fine = ranking_follow(ranking, today);
        if (is_fine)
            ranking_renew(ranking, today);
        /* The day may have changed meanwhile; an answer for another one is worth nothing. */
        ranking_refresh_all(ranking, zone_day(ranking->zone, clock_wall_ms()));
        struct timespec until = clock_deadline_in_ms(is_fine ? LOOK_MS : RETRY_MS);
        pthread_mutex_lock(&ranking->lock);
        while (!ranking->is_stopping && !ranking->is_woken &&
               pthread_cond_timedwait(&ranking->work, &ranking->lock, &until) == 0)
            continue;
        ranking->is_woken = false;
        bool ends = ranking->is_stopping;
        pthread_mutex_unlock(&ranking->lock);
        if (ends)
            return NULL;
    }
}

/* --- asking --- */

/* A crowd on many cores writes here once a second at most. */
static void ranking_note_asked(struct ranking_window *window, int64_t now_ms)
{
    if (now_ms - atomic_load_explicit(&window->asked_at_ms, memory_order_relaxed) >= 1000)
        atomic_store_explicit(&window->asked_at_ms, now_ms, memory_order_relaxed);
}

bool ranking_still(struct ranking *ranking, const struct ranking_answer *answer,
                   enum ranking_wish wish, int64_t wall_ms, int64_t now_ms)
{
    struct ranking_window *window = &ranking->windows[answer->days];
    int64_t fresh_at_ms = atomic_load_explicit(&answer->fresh_at_ms, memory_order_relaxed);

    ranking_note_asked(window, now_ms);
    /* The caller holds it: no other answer can have come to the same place in memory. */
    return atomic_load_explicit(&window->answer, memory_order_relaxed) == answer &&
           wall_ms >= answer->day_start_ms && wall_ms < answer->day_end_ms &&
           now_ms - fresh_at_ms <= (wish == RANKING_FRESH ? RANKING_FRESH_MS : ranking->cache_ms);
}

/* The window's answer, when it is good enough; with one more holder. Under the lock. */
static struct ranking_answer *ranking_take(struct ranking *ranking, int days,
                                           enum ranking_wish wish)
{
    struct ranking_answer *answer = ranking->windows[days].answer;
    int64_t now_ms = clock_monotonic_ms();

    ranking_note_asked(&ranking->windows[days], now_ms);
    if (answer == NULL || !ranking_still(ranking, answer, wish, clock_wall_ms(), now_ms))
        return NULL;
    atomic_fetch_add(&answer->holder_count, 1);
    return answer;
}

/* What was worked out since it was asked for is fresh, however long that took. Under the lock. */
static struct ranking_answer *ranking_take_since(struct ranking *ranking, int days,
                                                 int64_t asked_at_ms)
{
    struct ranking_answer *answer = ranking->windows[days].answer;

    if (answer == NULL || answer->made_at_ms < asked_at_ms ||
        !ranking_still(ranking, answer, RANKING_CACHED, clock_wall_ms(), clock_monotonic_ms()))
        return NULL;
    atomic_fetch_add(&answer->holder_count, 1);
    return answer;
}

struct ranking_answer *ranking_peek(struct ranking *ranking, int days, enum ranking_wish wish)
{
    ensure(days >= 1 && days <= RANKING_DAYS_MAX);
    pthread_mutex_lock(&ranking->lock);
    struct ranking_answer *answer = ranking_take(ranking, days, wish);
    pthread_mutex_unlock(&ranking->lock);
    return answer;
}

enum status ranking_top(struct ranking *ranking, int days, enum ranking_wish wish,
                        struct ranking_answer **answer, struct error *error)
{
    struct timespec until = clock_deadline_in_ms(PATIENCE_MS);
    int64_t asked_at_ms = clock_monotonic_ms();
    enum status status = STATUS_OK;

    ensure(days >= 1 && days <= RANKING_DAYS_MAX);
    pthread_mutex_lock(&ranking->lock);
    *answer = ranking_take(ranking, days, wish);
    uint64_t attempts = ranking->windows[days].attempts;
    while (*answer == NULL && status == STATUS_OK) {
        /* An attempt that had begun before may not be it; the second one is. */
        if (ranking->windows[days].attempts >= attempts + 2 || ranking->is_stopping) {
            status = error_set(error, STATUS_UNAVAILABLE, "the ranking cannot be worked out now");
            break;
        }
        ranking->windows[days].is_wanted = true;
        ranking->windows[days].is_wanted_fresh |= wish == RANKING_FRESH;
        ranking->is_woken = true;
        pthread_cond_signal(&ranking->work);
        if (pthread_cond_timedwait(&ranking->done, &ranking->lock, &until) != 0)
            status = error_set(error, STATUS_UNAVAILABLE, "the ranking takes too long");
        *answer = ranking_take(ranking, days, wish);
        if (*answer == NULL)
            *answer = ranking_take_since(ranking, days, asked_at_ms);
    }
    pthread_mutex_unlock(&ranking->lock);
    return *answer != NULL ? STATUS_OK : status;
}

/* --- board and ledger --- */

enum status ranking_audit(struct ranking *ranking, struct board_comparison *comparison,
                          struct board_difference *differences, size_t max, struct error *error)
{
    int64_t today = zone_day(ranking->zone, clock_wall_ms());

    return board_compare(ranking->board, ranking->ledger, today - ranking->board->days_max + 1,
                         today, comparison, differences, max, error);
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
    pthread_mutex_lock(&ranking->lock);
    ranking->is_woken = true;
    pthread_cond_signal(&ranking->work);
    pthread_mutex_unlock(&ranking->lock);
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
    if (options->scoring != NULL)
        opened->scoring = *options->scoring;
    opened->cache_ms = options->cache_ms > 0 ? options->cache_ms : RANKING_CACHE_MS;
    opened->turn = clock_wall_ms() / opened->cache_ms;
    pthread_mutex_init(&opened->lock, NULL);
    clock_condition_init(&opened->work);
    clock_condition_init(&opened->done);
    opened->has_thread = pthread_create(&opened->thread, NULL, ranking_main, opened) == 0;
    return opened->has_thread
               ? STATUS_OK
               : error_set(error, STATUS_UNAVAILABLE, "cannot start the ranking's thread");
}

void ranking_close(struct ranking *ranking)
{
    if (ranking == NULL)
        return;
    pthread_mutex_lock(&ranking->lock);
    ranking->is_stopping = true;
    pthread_cond_broadcast(&ranking->work);
    pthread_cond_broadcast(&ranking->done);
    pthread_mutex_unlock(&ranking->lock);
    if (ranking->has_thread)
        pthread_join(ranking->thread, NULL);
    for (int days = 0; days <= RANKING_DAYS_MAX; days++)
        ranking_answer_release(ranking->windows[days].answer);
    board_close(ranking->board);
    pthread_mutex_destroy(&ranking->lock);
    pthread_cond_destroy(&ranking->work);
    pthread_cond_destroy(&ranking->done);
    free(ranking->entries);
    free(ranking);
}
