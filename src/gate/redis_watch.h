/* redis_watch.h: what this process remembers of the policies in Redis, looked at four times a
 * second: their numbers, for those who only watch, and who has won in those that are sold out.
 *
 * A policy that is sold out answers from here whoever is certainly not among its winners. That is
 * safe because stock comes back to a sold-out policy in two steps: first it is announced, which
 * every server sees at its next look; and only half a second later may it be lent. What was looked
 * at longer ago than that is not used.
 *
 * Threads: every function may be called from any thread; the looking is done on one of its own.
 */
#ifndef GATE_REDIS_WATCH_H
#define GATE_REDIS_WATCH_H

#include <pthread.h>

#include "base/hash.h"
#include "gate/blocklist.h"
#include "gate/gate.h"
#include "gate/redis_pool.h"

/* Hashes of users; one more entry than it needs to be open for search. */
struct redis_winners {
    uint64_t *hashes; /* 0: free */
    size_t mask;
};

struct redis_watched {
    struct gate_numbers numbers; /* `state` is made when it is asked for */
    bool is_known;               /* Redis has it */
    bool is_armed;
    int64_t stock;         /* in Redis and, as it was told, unleased; may be more than there is */
    int64_t changes;       /* Redis's count of changes of its stock and terms */
    int64_t looked_at_ms;  /* when it was asked for, monotonic; 0: never */
    int64_t asked_ns;      /* the same, to tell two looks apart */
    int64_t redis_ms;      /* Redis's clock then or a little later */
    int64_t won_count;     /* wins that Redis has told this process of */
    int64_t pending_count; /* its part of the watch's pending_count */
    struct redis_winners winners;
    int64_t winners_changes; /* `changes` when they were read; -1: not read */
};

struct redis_watch {
    struct redis_pool *pool;
    void (*stock_changed)(void *context);
    void *context;
    struct hash_key key;
    pthread_t thread;
    bool is_running;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    bool is_stopping;
    struct redis_watched *policies; /* in rising order of ids */
    size_t policy_count;
    size_t policy_capacity;
    int64_t pending_count; /* of all policies: as looked at, and what was won since */
    int64_t asking_count;  /* wishes that Redis has not answered yet */
    struct error trouble;  /* why Redis cannot be asked; "" */
};

enum status redis_watch_start(struct redis_watch *watch, struct redis_pool *pool,
                              void (*stock_changed)(void *context), void *context,
                              struct error *error) MUST_CHECK;
void redis_watch_stop(struct redis_watch *watch);

/* Looks at a policy now, and from now on. */
enum status redis_watch_look(struct redis_watch *watch, int64_t policy_id,
                             struct error *error) MUST_CHECK;

/* Reads who has won in a policy that was seen sold out, once per sell-out. */
void redis_watch_note_winners(struct redis_watch *watch, int64_t policy_id);

/* What was seen last, also of a policy that Redis has lost. NOT_FOUND: it was never seen. */
enum status redis_watch_count(struct redis_watch *watch, int64_t policy_id,
                              struct gate_numbers *numbers) MUST_CHECK;
size_t redis_watch_list(struct redis_watch *watch, int64_t after_id, int64_t *ids, size_t ids_max);

/* Decides what can be decided without Redis: SOLD_OUT or BLOCKED for those certainly not among the
 * winners, and UNAVAILABLE for the others while options->pending_max claims are pending, of all
 * policies, those counted in that are being asked for. When verdicts wait for the ledger nobody is
 * told SOLD_OUT while any is pending. Returns how many are left undecided: these are counted until
 * redis_watch_answered(). */
size_t redis_watch_decide(struct redis_watch *watch, const struct gate_batch *batch,
                          struct blocklist *blocklist, const struct gate_options *options);

/* Redis has answered so many wishes that were left to it, or they were given up; so many have won.
 */
void redis_watch_answered(struct redis_watch *watch, int64_t policy_id, size_t count,
                          size_t won_count);

/* Redis has answered for this policy: it is looked at from now on. */
void redis_watch_meet(struct redis_watch *watch, int64_t policy_id);

/* There is no such policy any more: it is forgotten. */
void redis_watch_drop(struct redis_watch *watch, int64_t policy_id);

/* Whether the ledger is known to have such a policy though Redis may not. */
bool redis_watch_has(struct redis_watch *watch, int64_t policy_id);

/* Whether Redis has answered a look at the policy that was begun after that, by the monotonic
 * clock. */
bool redis_watch_saw(struct redis_watch *watch, int64_t policy_id, int64_t since_ms);

bool redis_watch_is_well(struct redis_watch *watch, struct error *words);

#endif
