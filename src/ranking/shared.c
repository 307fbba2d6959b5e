/* shared.c: one answer for all servers, and who of them works it out. */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "ranking/cached.h"
#include "ranking/parts.h"

/* For an answer that another server works out. */
#define LOOK_MS 20
#define LOOKS   50

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

struct ranking_answer *ranking_make_once(struct ranking *ranking, int64_t today)
{
    const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
    char token[BOARD_TOKEN_SIZE];
    struct ranking_answer *answer = NULL;
    enum status status = STATUS_BUSY;
    struct error error;
    int64_t age_ms;

    for (int i = 0; i < LOOKS && status == STATUS_BUSY; i++) {
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

void ranking_renew(struct ranking *ranking, int64_t today)
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
