/* answer.c: works out answers, from the board or else from the ledger. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "ranking/parts.h"

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

struct ranking_answer *ranking_answer_new(const struct ranking *ranking, int days, int64_t today)
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

struct ranking_answer *ranking_make(struct ranking *ranking, int days, int64_t today)
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

void ranking_publish(struct ranking *ranking, int days, struct ranking_answer *answer,
                     uint64_t version)
{
    pthread_mutex_lock(&ranking->lock);
    struct ranking_answer *before = ranking->windows[days].answer;
    if (answer != NULL) {
        ranking->windows[days].answer = answer;
        ranking->windows[days].version = version;
        ranking->numbers.computed += answer->source != RANKING_FROM_CACHE;
        ranking->numbers.from_ledger += answer->source == RANKING_FROM_LEDGER;
    }
    ranking->windows[days].attempts++;
    pthread_cond_broadcast(&ranking->done);
    pthread_mutex_unlock(&ranking->lock);
    if (answer != NULL)
        ranking_answer_release(before);
}

/* --- one product --- */

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
