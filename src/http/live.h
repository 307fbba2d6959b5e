/* live.h: what people see who watch a drop: the parts that its two streams share.
 *
 * Claims are counted on their loop (live_count), added to what all loops share a few times a second
 * (live_tick), and rendered once per loop for all who watch there.
 *
 * Threads: a struct live_loop belongs to its loop; struct live is shared, each part with its rule.
 */
#ifndef HTTP_LIVE_H
#define HTTP_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "http/context.h"
#include "http/live_directory.h"
#include "http/live_history.h"
#include "http/watchers.h"

/* What is said of claims per second. */
enum live_rate {
    LIVE_RATE_ISSUED,
    LIVE_RATE_ACCEPTED,
    LIVE_RATE_ALREADY_ISSUED,
    LIVE_RATE_SOLD_OUT,
    LIVE_RATE_LIMIT_REACHED,
    LIVE_RATE_NOT_OPEN,
    LIVE_RATE_OTHER,
    LIVE_RATES,
};

#define LIVE_RATE_TENTHS 16

struct live_rate_tenth {
    int64_t tenth; /* wall ms / 100 */
    uint32_t counts[LIVE_RATES];
};

/* Of the whole server. */
struct live {
    struct live_history history;
    struct live_directory directory;
    pthread_mutex_t rates_lock;
    struct live_rate_tenth rates[LIVE_RATE_TENTHS];
    pthread_mutex_t
        look_lock; /* policies are looked at one after the other, or news would come twice */
};

struct live_watch;

/* What the board was last sent of a policy. */
struct live_sent {
    int64_t policy_id;
    uint64_t hash;
};

/* Of one loop. */
struct live_loop {
    struct live_tallies tallies;
    bool has_news;                        /* something was counted since the last fold */
    uint64_t counted[CLAIM_RESULT_COUNT]; /* of the loop's counters, by the last fold */

    /* GET /v1/live */
    struct watchers board;
    int64_t board_due_ms;
    struct buffer snapshot; /* empty: has to be rendered */
    struct live_sent sent[LIVE_DIRECTORY_MAX];
    size_t sent_count;

    /* GET /v1/policies/{id}/live */
    struct live_watch *watches;
    int64_t watches_due_ms;
    struct live_past past; /* scratch */
};

/* --- live.c --- */

enum status live_open(struct api *api, struct error *error) MUST_CHECK;
void live_close(struct api *api);

enum status live_loop_open(struct api_loop *loop, struct error *error) MUST_CHECK;
void live_loop_close(struct api_loop *loop);
/* Frees what live_loop_open() took; after the streams were ended. */
void live_loop_free(struct api_loop *loop);

/* A claim was answered: on the claim path. */
void live_count(struct api_loop *loop, const struct wish *wish, enum claim_result result,
                uint64_t elapsed_ns);

/* Every TICK_MS while live_wants_ticks(). */
void live_tick(struct api_loop *loop, int64_t now_ms);
static inline bool live_wants_ticks(const struct live_loop *live)
{
    return live->has_news || live->board.first != NULL || live->watches != NULL;
}

/* Notices what has happened to a policy since it was last looked at: opened, paused, sold out, ...
 * From any thread. */
void live_look_at(struct api *api, int64_t policy_id);

/* A policy was created or changed here: it is looked at, and the board's names are read anew. From
 * any thread. */
void live_policy_changed(struct api *api, int64_t policy_id);
void live_policy_created(struct api *api, const struct policy_view *view);

/* Claims of the last second by their result, of all loops. */
void live_rates(struct live *live, int64_t wall_ms, uint32_t rates[LIVE_RATES]);

/* --- live_board.c --- */

void live_board_tick(struct api_loop *loop, int64_t now_ms);
void live_board_init(struct api_loop *loop);

/* --- live_policy.c --- */

void live_watches_tick(struct api_loop *loop, int64_t now_ms);
void live_watches_close(struct api_loop *loop);

#endif
