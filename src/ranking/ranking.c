/* ranking.c: the thread that follows the feed, and the answers it leaves for everybody. */
#include "ranking/ranking.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "ranking/cached.h"

#define LOOK_MS     200   /* at the feed, when nobody wakes */
#define WANTED_MS   60000 /* for so long after a question its answer is kept up to date */
#define PATIENCE_MS 10000
#define RETRY_MS    1000 /* after a failure */
#define ENTRIES     1000

/* For an answer that another server works out. */
#define SHARED_LOOK_MS 20
#define SHARED_LOOKS   50

struct ranking_window {
    _Atomic int64_t asked_at_ms;           /* monotonic; 0: never; a second more or less */
    bool is_wanted;                        /* somebody waits for it */
    bool is_wanted_fresh;                  /* and not for what was worked out before */
    uint64_t version;                      /* of the board when the answer was made */
    uint64_t attempts;                     /* to make one, to see that one came after a question */
    struct ranking_answer *_Atomic answer; /* changed under the lock */
};

struct ranking {
    struct ledger *ledger;
    const struct zone *zone;
    struct board *board;
    struct scoring scoring;
    int64_t cache_ms;
    pthread_t thread;
    bool has_thread;
    struct feed_entry *entries; /* the thread's own */
    struct feed_place place;    /* the thread's own: where it last saw the board */
    int64_t turn;               /* the thread's own: which ten minutes the shared answer is of */
    int64_t today;              /* the thread's own: for which days the board was last trimmed */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t work;
    pthread_cond_t done; /* an answer was made, or could not be */
    bool is_stopping;
    bool is_woken;
    uint64_t version; /* of the board; rises with every change */
    bool is_current;
    int64_t current_wall_ms; /* when the feed was last found to have nothing more */
    int64_t current_at_ms;
    struct ranking_numbers numbers;
    struct ranking_window windows[RANKING_DAYS_MAX + 1]; /* by days */
};

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

static enum status ranking_build(struct ranking *ranking, int64_t today, struct error *error)
{
    int64_t started_ms = clock_monotonic_ms();
    /* The window of yesterday begins a day earlier, and a clock may be a little ahead. */
    enum status status = board_build(ranking->board, ranking->ledger,
                                     today - ranking->board->days_max, today + 1, error);

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
    if (status == STATUS_OK) {
        ranking_look(ranking, &place);
        status =
            ledger_sales_after(ranking->ledger, &place, ranking->entries, ENTRIES, &count, error);
        *is_over = status == STATUS_OK && count < ENTRIES;
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

/* What was made of the board as it still is, is as fresh as the board. Under the lock. */
static void ranking_confirm(struct ranking *ranking, int64_t now_ms)
{
    for (int days = 1; days <= RANKING_DAYS_MAX; days++) {
        struct ranking_window *window = &ranking->windows[days];
        struct ranking_answer *answer = window->answer;
        if (answer != NULL && answer->source == RANKING_FROM_BOARD &&
            window->version == ranking->version)
            atomic_store_explicit(&answer->fresh_at_ms, now_ms, memory_order_relaxed);
    }
}

/* True when the board has everything that was in the ledger when it began. */
static bool ranking_follow(struct ranking *ranking, int64_t today)
{
    struct error error = {""};
    int64_t wall_ms = clock_wall_ms();
    int64_t now_ms = clock_monotonic_ms();
    enum status status = STATUS_OK;
    bool is_over = false;

    if (ranking->today != today) {
        status = board_forget(ranking->board, today - ranking->board->days_max, &error);
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

/* --- making answers --- */

struct ranking_asking {
    struct ranking *ranking;
    enum ranking_source source;
    struct board *board; /* that is asked; NULL: the database itself */
    int64_t first_day;
    int64_t last_day;
};

/* Scores are not the database's business: the ledger answers through a board that is built of it
 * for this question. */
static enum status ranking_ask_begin(struct ranking_asking *asking, struct error *error)
{
    struct ranking *ranking = asking->ranking;

    asking->board = asking->source == RANKING_FROM_BOARD ? ranking->board : NULL;
    if (asking->board != NULL || !scoring_is_on(&ranking->scoring))
        return STATUS_OK;
    enum status status = board_local_open(&asking->board, &ranking->scoring, error);
    return status == STATUS_OK ? board_build(asking->board, ranking->ledger, asking->first_day - 1,
                                             asking->last_day, error)
                               : status;
}

static void ranking_ask_end(struct ranking_asking *asking)
{
    if (asking->board != asking->ranking->board)
        board_close(asking->board);
}

static enum status ranking_ask_top(const struct ranking_asking *asking, struct sales_line *lines,
                                   size_t *count, struct error *error)
{
    const struct ranking *ranking = asking->ranking;

    return asking->board != NULL
               ? board_top(asking->board, asking->first_day, asking->last_day, RANKING_LIMIT_MAX,
                           lines, count, error)
               : ledger_sales_top(ranking->ledger, asking->first_day, asking->last_day,
                                  RANKING_LIMIT_MAX, lines, count, error);
}

/* Where the same products stood in the window that ended yesterday. */
static enum status ranking_ask_before(const struct ranking_asking *asking,
                                      const struct user_id *ids, size_t id_count,
                                      struct sales_line *lines, size_t *count, struct error *error)
{
    const struct ranking *ranking = asking->ranking;

    return asking->board != NULL
               ? board_of(asking->board, asking->first_day - 1, asking->last_day - 1, ids, id_count,
                          lines, count, error)
               : ledger_sales_of(ranking->ledger, asking->first_day - 1, asking->last_day - 1, ids,
                                 id_count, lines, count, error);
}

/* Names, prices and changes of lines that have their rank. */
static enum status ranking_complete(const struct ranking_asking *asking,
                                    const struct sales_line *sales, size_t count,
                                    struct ranking_line *lines, struct error *error)
{
    struct user_id ids[RANKING_LIMIT_MAX];
    struct sales_line before[RANKING_LIMIT_MAX];
    struct product *products = calloc(count + 1, sizeof(*products));
    size_t before_count = 0;
    enum status status = STATUS_OK;

    if (products == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a ranking");
    for (size_t i = 0; i < count; i++) {
        ids[i] = sales[i].product_id;
        products[i].id = sales[i].product_id;
    }
    if (count > 0)
        status = ranking_ask_before(asking, ids, count, before, &before_count, error);
    if (status == STATUS_OK && count > 0)
        status = ledger_products_fill(asking->ranking->ledger, products, count, error);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        lines[i] = (struct ranking_line){
            .sales = sales[i], .product = products[i], .change = RANKING_CHANGE_NONE};
        for (size_t j = 0; j < before_count; j++) {
            if (user_id_equal(&before[j].product_id, &ids[i]))
                lines[i].change = before[j].rank - sales[i].rank;
        }
    }
    free(products);
    return status;
}

/* A board's scores are of the beginning of the last day; all of them fade alike. */
static void ranking_fade(const struct ranking *ranking, int64_t last_day, int64_t as_of_ms,
                         struct ranking_line *lines, size_t count)
{
    int64_t half_life_ms = ranking->scoring.half_life_ms;
    int64_t since_ms = as_of_ms - zone_day_start_ms(ranking->zone, last_day);

    for (size_t i = 0; i < count; i++)
        lines[i].score = half_life_ms == 0 ? lines[i].sales.score
                                           : lines[i].sales.score *
                                                 exp2(-(double)since_ms / (double)half_life_ms);
}

static enum status ranking_make_from(struct ranking *ranking, int days, int64_t today,
                                     enum ranking_source source, struct ranking_answer *answer,
                                     struct error *error)
{
    struct ranking_asking asking = {
        .ranking = ranking, .source = source, .first_day = today - days + 1, .last_day = today};
    struct sales_line sales[RANKING_LIMIT_MAX];

    answer->source = source;
    answer->count = 0;
    enum status status = ranking_ask_begin(&asking, error);
    if (status == STATUS_OK)
        status = ranking_ask_top(&asking, sales, &answer->count, error);
    if (status == STATUS_OK)
        status = ranking_complete(&asking, sales, answer->count, answer->lines, error);
    ranking_ask_end(&asking);
    ranking_fade(ranking, today, answer->as_of_ms, answer->lines, answer->count);
    return status;
}

/* Whether the board can answer for that window. One that is late, because more comes in than it can
 * take over, cannot. */
static bool ranking_has_window(struct ranking *ranking, int days)
{
    pthread_mutex_lock(&ranking->lock);
    bool has = ranking->is_current && days <= ranking->board->days_max &&
               clock_monotonic_ms() - ranking->current_at_ms <= RANKING_LATE_MS;
    pthread_mutex_unlock(&ranking->lock);
    return has;
}

/* One without lines. */
static struct ranking_answer *ranking_answer_new(const struct ranking *ranking, int days,
                                                 int64_t today)
{
    struct ranking_answer *answer = calloc(1, sizeof(*answer));

    if (answer == NULL)
        return NULL;
    atomic_init(&answer->holder_count, 1);
    answer->days = days;
    answer->last_day = today;
    answer->day_start_ms = zone_day_start_ms(ranking->zone, today);
    answer->day_end_ms = zone_day_start_ms(ranking->zone, today + 1);
    answer->made_at_ms = clock_monotonic_ms();
    return answer;
}

static struct ranking_answer *ranking_make(struct ranking *ranking, int days, int64_t today)
{
    struct ranking_answer *answer = ranking_answer_new(ranking, days, today);
    struct error error = {""};
    enum status status = STATUS_UNAVAILABLE;

    if (answer == NULL)
        return NULL;
    if (ranking_has_window(ranking, days)) {
        pthread_mutex_lock(&ranking->lock);
        answer->as_of_ms = ranking->current_wall_ms;
        answer->made_at_ms = ranking->current_at_ms;
        pthread_mutex_unlock(&ranking->lock);
        status = ranking_make_from(ranking, days, today, RANKING_FROM_BOARD, answer, &error);
    }
    if (status != STATUS_OK) {
        answer->as_of_ms = clock_wall_ms();
        answer->made_at_ms = clock_monotonic_ms();
        status = ranking_make_from(ranking, days, today, RANKING_FROM_LEDGER, answer, &error);
    }
    atomic_store(&answer->fresh_at_ms, answer->made_at_ms);
    if (status == STATUS_OK)
        return answer;
    log_event(LOG_WARN, "ranking_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
    free(answer);
    return NULL;
}

void ranking_answer_release(struct ranking_answer *answer)
{
    if (answer != NULL && atomic_fetch_sub(&answer->holder_count, 1) == 1)
        free(answer);
}

/* --- the answer that servers share --- */

/* What one of them has left for all. NULL: nothing that is good today. */
static struct ranking_answer *ranking_recall(struct ranking *ranking, int64_t today,
                                             int64_t *age_ms)
{
    struct ranking_answer *answer = ranking_answer_new(ranking, RANKING_CACHE_DAYS, today);
    struct buffer text;
    struct error error;

    buffer_init(&text, CACHED_LENGTH_MAX);
    bool is_good =
        answer != NULL &&
        board_recall(ranking->board, ranking->cache_ms, &text, age_ms, &error) == STATUS_OK &&
        cached_read((struct span){text.bytes, text.length}, answer, &error) == STATUS_OK &&
        answer->days == RANKING_CACHE_DAYS && answer->last_day == today;
    buffer_release(&text);
    if (!is_good) {
        free(answer);
        return NULL;
    }
    answer->source = RANKING_FROM_CACHE;
    answer->made_at_ms -= *age_ms;
    atomic_store(&answer->fresh_at_ms, answer->made_at_ms);
    return answer;
}

/* Works it out, as the one whose turn it is, and leaves it for all. */
static struct ranking_answer *ranking_make_for_all(struct ranking *ranking, int64_t today,
                                                   const char *token)
{
    struct ranking_answer *answer = ranking_make(ranking, RANKING_CACHE_DAYS, today);
    struct buffer text;
    struct error error;

    if (answer == NULL)
        return NULL;
    buffer_init(&text, CACHED_LENGTH_MAX);
    cached_write(answer, &text);
    /* Without it the others ask once more, that is all. */
    (void)!board_keep(ranking->board, token, (struct span){text.bytes, text.length},
                      ranking->cache_ms, &error);
    buffer_release(&text);
    return answer;
}

/* For a server that has none at hand: the shared one, or, of all servers that need it, one works it
 * out while the others wait for it. */
static struct ranking_answer *ranking_make_once(struct ranking *ranking, int64_t today)
{
    const struct timespec pause = {.tv_nsec = SHARED_LOOK_MS * 1000000};
    char token[BOARD_TOKEN_SIZE];
    struct ranking_answer *answer = NULL;
    enum status status = STATUS_BUSY;
    struct error error;
    int64_t age_ms;

    for (int i = 0; i < SHARED_LOOKS && status == STATUS_BUSY; i++) {
        if (i > 0)
            nanosleep(&pause, NULL);
        answer = ranking_recall(ranking, today, &age_ms);
        if (answer != NULL)
            return answer;
        status = board_refresh(ranking->board, token, &error);
    }
    /* Whoever has waited has fallen behind. */
    if (status == STATUS_BUSY)
        (void)ranking_follow(ranking, today);
    return status == STATUS_OK ? ranking_make_for_all(ranking, today, token)
                               : ranking_make(ranking, RANKING_CACHE_DAYS, today);
}

/* --- the thread --- */

/* Everybody gets it from now on; takes it over. NULL: it could not be made. */
static void ranking_publish(struct ranking *ranking, int days, struct ranking_answer *answer,
                            uint64_t version)
{
    pthread_mutex_lock(&ranking->lock);
    struct ranking_answer *before = ranking->windows[days].answer;
    if (answer != NULL) {
        ranking->windows[days].answer = answer;
        ranking->windows[days].version = version;
        ranking->numbers.computed += answer->source != RANKING_FROM_CACHE;
    }
    ranking->windows[days].attempts++;
    pthread_cond_broadcast(&ranking->done);
    pthread_mutex_unlock(&ranking->lock);
    if (answer != NULL)
        ranking_answer_release(before);
}

/* Every ten minutes on the clock one server renews the answer for all. */
static void ranking_renew(struct ranking *ranking, int64_t today)
{
    int64_t wall_ms = clock_wall_ms();
    int64_t age_ms;
    char token[BOARD_TOKEN_SIZE];
    struct error error;

    if (ranking->turn == wall_ms / ranking->cache_ms)
        return;
    struct ranking_answer *answer = ranking_recall(ranking, today, &age_ms);
    bool is_done = answer != NULL && answer->as_of_ms >= wall_ms - wall_ms % ranking->cache_ms;
    ranking_answer_release(answer);
    if (!is_done && board_refresh(ranking->board, token, &error) == STATUS_OK) {
        pthread_mutex_lock(&ranking->lock);
        uint64_t version = ranking->version;
        pthread_mutex_unlock(&ranking->lock);
        answer = ranking_make_for_all(ranking, today, token);
        is_done = answer != NULL;
        ranking_publish(ranking, RANKING_CACHE_DAYS, answer, version);
    }
    if (is_done)
        ranking->turn = wall_ms / ranking->cache_ms;
}

/* Whether a window's answer has to be made now. Under the lock. */
static bool ranking_is_due(const struct ranking *ranking, int days, int64_t today, int64_t now_ms)
{
    const struct ranking_window *window = &ranking->windows[days];

    if (window->is_wanted)
        return true;
    if (window->asked_at_ms == 0 || now_ms - window->asked_at_ms > WANTED_MS ||
        window->answer == NULL)
        return false;
    bool is_old = window->version != ranking->version || window->answer->last_day != today ||
                  window->answer->source != RANKING_FROM_BOARD;
    return is_old && now_ms - window->answer->made_at_ms >= RANKING_FRESH_MS / 2;
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

static void *ranking_main(void *context)
{
    struct ranking *ranking = context;

    for (;;) {
        int64_t today = zone_day(ranking->zone, clock_wall_ms());
        bool is_fine = ranking_follow(ranking, today);
        if (is_fine)
            ranking_renew(ranking, today);
        for (int days = 1; days <= RANKING_DAYS_MAX; days++)
            ranking_refresh(ranking, days, today);
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

static enum status ranking_around_from(struct ranking_asking *asking,
                                       const struct user_id *product_id, struct ranking_line *lines,
                                       size_t *count, struct error *error)
{
    struct sales_line sales[2 * RANKING_DISTANCE + 1];
    enum status status = ranking_ask_begin(asking, error);

    *count = 0;
    if (status == STATUS_OK)
        status =
            asking->board != NULL
                ? board_around(asking->board, asking->first_day, asking->last_day, product_id,
                               RANKING_DISTANCE, sales, count, error)
                : ledger_sales_around(asking->ranking->ledger, asking->first_day, asking->last_day,
                                      product_id, RANKING_DISTANCE, sales, count, error);
    if (status == STATUS_OK)
        status = ranking_complete(asking, sales, *count, lines, error);
    ranking_ask_end(asking);
    return status;
}

enum status ranking_around(struct ranking *ranking, int days, const struct user_id *product_id,
                           struct ranking_line lines[2 * RANKING_DISTANCE + 1], size_t *count,
                           enum ranking_source *source, int64_t *as_of_ms, struct error *error)
{
    int64_t today = zone_day(ranking->zone, clock_wall_ms());
    struct ranking_asking asking = {
        .ranking = ranking, .first_day = today - days + 1, .last_day = today};
    enum status status = STATUS_UNAVAILABLE;

    if (ranking_has_window(ranking, days)) {
        pthread_mutex_lock(&ranking->lock);
        *as_of_ms = ranking->current_wall_ms;
        pthread_mutex_unlock(&ranking->lock);
        asking.source = RANKING_FROM_BOARD;
        status = ranking_around_from(&asking, product_id, lines, count, error);
    }
    if (status != STATUS_OK) {
        *as_of_ms = clock_wall_ms();
        asking.source = RANKING_FROM_LEDGER;
        status = ranking_around_from(&asking, product_id, lines, count, error);
    }
    *source = asking.source;
    if (status == STATUS_OK)
        ranking_fade(ranking, today, *as_of_ms, lines, *count);
    return status;
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
    if (opened == NULL || (opened->entries = malloc(ENTRIES * sizeof(*opened->entries))) == NULL) {
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
