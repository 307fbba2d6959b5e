/* answer.c: makes answers, from the board or else from the ledger. */
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "ranking/parts.h"

/* Asks the board, or where there is none the database itself. */
static enum status ranking_ask(struct ranking *ranking, struct board *board,
                               const struct board_question *question, struct sales_line *lines,
                               size_t *count, struct error *error)
{
    int64_t first_day = question->first_day;
    int64_t last_day = question->last_day;

    if (board != NULL)
        return board->ops->ask(board, question, lines, count, error);
    switch (question->kind) {
    case BOARD_TOP:
        return ledger_sales_top(ranking->ledger, first_day, last_day, question->limit, lines, count,
                                error);
    case BOARD_OF:
        return ledger_sales_of(ranking->ledger, first_day, last_day, question->ids,
                               question->id_count, lines, count, error);
    case BOARD_AROUND:
        break;
    }
    return ledger_sales_around(ranking->ledger, first_day, last_day, question->ids,
                               (int64_t)question->limit, lines, count, error);
}

/* Names, prices and changes of lines that have their rank. */
static enum status ranking_complete(struct ranking *ranking, struct board *board,
                                    const struct board_question *question,
                                    const struct sales_line *sales, size_t count,
                                    struct ranking_line *lines, struct error *error)
{
    struct id ids[RANKING_LIMIT_MAX];
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
    /* Where the same products stood in the window that ended yesterday. */
    const struct board_question yesterday = {.kind = BOARD_OF,
                                             .first_day = question->first_day - 1,
                                             .last_day = question->last_day - 1,
                                             .ids = ids,
                                             .id_count = count};
    if (count > 0)
        status = ranking_ask(ranking, board, &yesterday, before, &before_count, error);
    if (status == STATUS_OK && count > 0)
        status = ledger_products_fill(ranking->ledger, products, count, error);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        lines[i] = (struct ranking_line){
            .sales = sales[i], .product = products[i], .change = RANKING_CHANGE_NONE};
        for (size_t j = 0; j < before_count; j++)
            if (id_equal(&before[j].product_id, &ids[i]))
                lines[i].change = before[j].rank - sales[i].rank;
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

/* The database computes no scores: the ledger answers through a board that is built from it for
 * this question. */
static enum status ranking_ask_source(struct ranking *ranking,
                                      const struct board_question *question,
                                      enum ranking_source source, struct ranking_line *lines,
                                      size_t *count, struct error *error)
{
    struct sales_line sales[RANKING_LIMIT_MAX];
    struct board *board = source == RANKING_FROM_BOARD ? ranking->board : NULL;
    enum status status = STATUS_OK;

    *count = 0;
    if (board == NULL && scoring_is_on(&ranking->scoring)) {
        status = board_local_open(&board, &ranking->scoring, error);
        if (status == STATUS_OK)
            status = board->ops->build(board, ranking->ledger, question->first_day - 1,
                                       question->last_day, error);
    }
    if (status == STATUS_OK)
        status = ranking_ask(ranking, board, question, sales, count, error);
    if (status == STATUS_OK)
        status = ranking_complete(ranking, board, question, sales, *count, lines, error);
    if (board != ranking->board)
        board_close(board);
    return status;
}

/* What an answer stands for. */
struct ranking_stamp {
    enum ranking_source source;
    int64_t as_of_ms;   /* wall */
    int64_t made_at_ms; /* monotonic */
};

/* The board answers, if it keeps that window. One that is late, because more comes in than it can
 * take over, does not; nor does one that fails. */
static enum status ranking_work_out(struct ranking *ranking, const struct board_question *question,
                                    struct ranking_line *lines, size_t *count,
                                    struct ranking_stamp *stamp, struct error *error)
{
    int64_t days = question->last_day - question->first_day + 1;
    enum status status = STATUS_UNAVAILABLE;

    pthread_mutex_lock(&ranking->lock);
    *stamp = (struct ranking_stamp){RANKING_FROM_BOARD, ranking->current_wall_ms,
                                    ranking->current_at_ms};
    bool has_window = ranking->is_current && days <= ranking->board->days_max &&
                      clock_monotonic_ms() - ranking->current_at_ms <= RANKING_LATE_MS;
    pthread_mutex_unlock(&ranking->lock);
    if (has_window)
        status = ranking_ask_source(ranking, question, RANKING_FROM_BOARD, lines, count, error);
    if (status != STATUS_OK) {
        *stamp = (struct ranking_stamp){RANKING_FROM_LEDGER, clock_wall_ms(), clock_monotonic_ms()};
        status = ranking_ask_source(ranking, question, RANKING_FROM_LEDGER, lines, count, error);
    }
    if (status == STATUS_OK)
        ranking_fade(ranking, question->last_day, stamp->as_of_ms, lines, *count);
    return status;
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
    const struct board_question question = {.kind = BOARD_TOP,
                                            .first_day = today - days + 1,
                                            .last_day = today,
                                            .limit = RANKING_LIMIT_MAX};
    struct ranking_answer *answer = ranking_answer_new(ranking, days, today);
    struct ranking_stamp stamp;
    struct error error = {""};

    if (answer == NULL)
        return NULL;
    if (ranking_work_out(ranking, &question, answer->lines, &answer->count, &stamp, &error) !=
        STATUS_OK) {
        log_event(LOG_WARN, "ranking_failed", LOG_FIELD("error", LOG_TEXT(error.text)));
        free(answer);
        return NULL;
    }
    answer->source = stamp.source;
    answer->as_of_ms = stamp.as_of_ms;
    answer->made_at_ms = stamp.made_at_ms;
    atomic_store(&answer->fresh_at_ms, answer->made_at_ms);
    return answer;
}

void ranking_answer_release(struct ranking_answer *answer)
{
    if (answer != NULL && atomic_fetch_sub(&answer->holder_count, 1) == 1)
        free(answer);
}

void ranking_outdate(struct ranking_answer *answer)
{
    if (answer != NULL)
        atomic_store_explicit(&answer->fresh_at_ms, INT64_MIN / 2, memory_order_relaxed);
}

void ranking_publish(struct ranking *ranking, int days, struct ranking_answer *answer,
                     uint64_t version)
{
    pthread_mutex_lock(&ranking->lock);
    struct ranking_answer *before = ranking->windows[days].answer;
    if (answer != NULL) {
        if (version < ranking->built_version)
            ranking_outdate(answer);
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

enum status ranking_around(struct ranking *ranking, int days, const struct id *product_id,
                           struct ranking_line lines[2 * RANKING_DISTANCE + 1], size_t *count,
                           enum ranking_source *source, int64_t *as_of_ms, struct error *error)
{
    int64_t today = zone_day(ranking->zone, clock_wall_ms());
    const struct board_question question = {.kind = BOARD_AROUND,
                                            .first_day = today - days + 1,
                                            .last_day = today,
                                            .limit = RANKING_DISTANCE,
                                            .ids = product_id,
                                            .id_count = 1};
    struct ranking_stamp stamp;
    enum status status = ranking_work_out(ranking, &question, lines, count, &stamp, error);

    *source = stamp.source;
    *as_of_ms = stamp.as_of_ms;
    return status;
}
