/* live.h: what people see who watch a drop: what its streams share.
 *
 * Claims are counted on their loop (live_count), added to what all loops share a few times a second
 * (live_tick), and rendered once per loop for all who watch there.
 *
 * A piece for many watchers goes out over several ticks, so that the claims of one tick do not wait
 * behind a thousand writes, and the more streams a loop has, the longer it is from one piece to the
 * next; each watcher gets every piece that was sent after it came, in order. One that does not read
 * is cut off by http_stream_write().
 *
 * Threads: a struct live_loop and those who watch belong to its loop; struct live is shared, each
 * part with its rule.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/buffer.h"
#include "http/api/context.h"
#include "http/live/history.h"

#define LIVE_RATE_TENTHS   16
#define LIVE_DIRECTORY_MAX 200

struct live_rate_tenth {
    int64_t tenth; /* wall ms / 100 */
    uint32_t counts[LIVE_OUTCOMES];
};

/* A policy on the board. */
struct live_entry {
    int64_t created_at_ms;
    bool is_over; /* makes room for one that is not, however old that is */
    char name[POLICY_NAME_SIZE];
    struct gate_numbers numbers; /* for a policy that the gate has let go of */
};

/* The policies that the board shows, as the ledger last told of them. Names are in the ledger only,
 * so they are read on a pool thread, when a policy was changed here and now and then for what
 * others change; the numbers beside them come from the gate. From any thread. */
struct live_directory {
    struct service *service;
    pthread_mutex_t lock;       /* guards the entries */
    struct live_entry *entries; /* newest first */
    size_t count;
    atomic_bool is_stale; /* something was created or changed */
    atomic_bool is_being_read;
    _Atomic int64_t due_ms; /* monotonic: when it is read anew in any case */
    struct pool_task task;
};

/* What the loops of one server share. */
struct live {
    struct live_history history;
    struct live_directory directory;
    pthread_mutex_t rates_lock;
    struct live_rate_tenth rates[LIVE_RATE_TENTHS];
    pthread_mutex_t
        observe_lock; /* policies are looked at one after the other, or news would come twice */
};

struct watcher;

/* Those on one loop who are sent the same stream. What they are sent is rendered once. */
struct watchers {
    struct api_loop *loop;
    void (*on_empty)(struct watchers *watchers); /* the last one has gone; may free this */
    LIST_HEAD(, watcher) list;
    size_t count;
    struct buffer piece;      /* what is being sent */
    struct watcher *position; /* who gets it next; NULL: all have it */
    size_t per_tick;
    int64_t heartbeat_due_ms;
};

/* Those who watch one policy. Embedded first in what a stream keeps of a policy. */
struct watch {
    struct watchers watchers;
    struct gate_numbers sent;             /* what they were told last */
    void (*release)(struct watch *watch); /* NULL, or: frees what lies behind this */
    LIST_ENTRY(watch) link;
};

/* Policies that are watched on a loop. */
struct watches {
    LIST_HEAD(, watch) list;
    int64_t due_ms; /* when they are sent news */
};

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

    /* GET /v1/policies/{id}/events */
    struct watches events;

    /* GET /v1/live */
    struct watchers board;
    int64_t board_due_ms;
    struct buffer snapshot; /* empty: has to be rendered */
    struct live_sent sent[LIVE_DIRECTORY_MAX];
    size_t sent_count;

    /* GET /v1/policies/{id}/live */
    struct watches watches;
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
    return live->has_news || !LIST_EMPTY(&live->events.list) || !LIST_EMPTY(&live->board.list) ||
           !LIST_EMPTY(&live->watches.list);
}

/* Notices what has happened to a policy since it was last looked at: opened, paused, sold out, ...
 * From any thread. */
void live_view_at(struct api *api, int64_t policy_id);

/* A policy was created or changed here: it is looked at, and the board's names are read anew. From
 * any thread. */
void live_policy_changed(struct api *api, int64_t policy_id);
void live_policy_created(struct api *api, const struct policy_view *view);

/* Claims of the last second by their result, of all loops. */
void live_rates(struct live *live, int64_t wall_ms, uint32_t rates[LIVE_OUTCOMES]);

/* Writes the first `count` outcomes: "issued":3,"accepted":0,... */
void live_put_counts(struct buffer *out, const uint32_t *counts, unsigned count);

/* Whether watchers of a policy would see a difference. */
bool live_numbers_equal(const struct gate_numbers *a, const struct gate_numbers *b);

/* --- board.c --- */

void live_board_tick(struct api_loop *loop, int64_t now_ms);
void live_board_init(struct api_loop *loop);
void live_directory_release(struct live_directory *directory);

/* --- policy.c --- */

void live_watches_tick(struct api_loop *loop, int64_t now_ms);

/* --- watchers.c --- */

void live_events_tick(struct api_loop *loop, int64_t now_ms);

void watchers_init(struct watchers *watchers, struct api_loop *loop,
                   void (*on_empty)(struct watchers *watchers));

/* Ends the streams of all who are left, without on_empty. */
void watchers_release(struct watchers *watchers);

/* Starts the exchange's stream with `piece`. False: it was answered with a problem instead, and is
 * not among them. */
bool watchers_add(struct watchers *watchers, struct http_exchange *exchange, struct span piece);

/* How long it should be from one piece to the next: `least_ms`, but more where this loop has so
 * many streams that they would cost the claims too much. */
int64_t watchers_period_ms(const struct api_loop *loop, int64_t least_ms);

/* Sends to all who are there now, spread over `period_ms` by watchers_tick(), the first of them
 * here. The bytes are copied. */
void watchers_send(struct watchers *watchers, struct span piece, int64_t period_ms, int64_t now_ms);

/* Every TICK_MS: goes on sending, and keeps silent streams alive. */
void watchers_tick(struct watchers *watchers, int64_t now_ms);

struct watch *watches_find(const struct watches *watches, int64_t policy_id);

/* A zeroed one of `size` bytes, in the list until the last watcher has gone. NULL: no memory. */
void *watches_add(struct watches *watches, struct api_loop *loop,
                  const struct gate_numbers *numbers, size_t size);

/* watchers_add() to it; without anybody it goes. */
void watch_join(struct watch *watch, struct http_exchange *exchange, struct span piece);

/* Every TICK_MS: calls `send` for each when it is due, and goes on sending. */
#define WATCH_MS 250
void watches_tick(struct watches *watches, struct api_loop *loop, int64_t now_ms,
                  void (*send)(struct watch *watch, int64_t period_ms, int64_t now_ms));

/* Ends all streams. */
void watches_close(struct watches *watches);
