/* desk_parts.h: what a desk is made of; for the files of claim/ only.
 *
 * Threads: a desk belongs to its loop's thread.
 */
#pragma once

#include "base/hash.h"
#include "claim/desk.h"
#include "claim/parts.h"

/* A claim on the desk. */
struct desk_entry {
    struct wish wish;
    void *asker;
    int64_t deadline_ms;
    int void_count;         /* decisions that came to nothing */
    bool is_away;           /* only its place is here: it comes back through desk_away_land() */
    bool is_first;          /* of its policy in this tick */
    uint32_t next_of_group; /* the next one of its policy, or NO_ENTRY */
};

/* The claims of one policy in this tick, as places in the list. */
struct desk_group {
    int64_t policy_id;
    uint64_t tick; /* another one: the group is free */
    uint32_t last;
};

/* Entries in the order they came. */
struct desk_list {
    struct desk_entry *entries;
    size_t first;
    size_t count;
    size_t capacity;
};

struct desk_sent_batch;
struct fallback_tasks;

struct desk {
    struct desk_options options;
    const struct topology *topology;
    struct gate *gate;
    struct gate_line *line;
    struct ledger *ledger;
    struct desk_list incoming; /* to be decided in this tick */
    struct desk_list waiting;  /* decided, resting on a ticket that is not durable */
    struct desk_list parked;   /* held until the steward has leased more stock */
    struct desk_list spare;    /* empty; takes the place of `parked` while that is decided again */
    size_t away_count;         /* claims that a shared gate or pool threads decide */
    struct desk_sent_batch *sent_batches; /* latest first */
    bool any_landed;
    struct fallback_tasks *fallback_tasks; /* NULL: there was none yet */
    struct wish **batch;
    size_t batch_capacity;
    struct hash_key group_key;
    struct desk_group *groups; /* twice as many as claims in a tick, at least */
    size_t groups_mask;
    uint64_t group_tick;
    int64_t parked_tried_ms;
    uint64_t stock_changes_seen;
    _Atomic size_t waiting_count; /* waiting and parked */
    struct histogram batch_sizes;
};

static inline struct desk_entry *desk_entry_of(struct wish *wish)
{
    return (struct desk_entry *)(void *)((char *)wish - offsetof(struct desk_entry, wish));
}

/* Answers now, or puts the claim where it waits. */
void desk_route(struct desk *desk, const struct desk_entry *entry, int64_t now_ms);

/* --- claims that come back later, in claim/shared/desk.c --- */

/* A slot of struct topology. */
void shared_decide(struct desk *desk, int64_t policy_id, size_t count, int64_t wall_ms);

/* The gate has decided the batch. On the desk's thread. */
void desk_away_decided(void *context, struct gate_batch *batch);

/* Routes what has come back since the last tick. */
void desk_away_land(struct desk *desk, int64_t now_ms);

/* Forgets what has not. */
void desk_away_close(struct desk *desk);
