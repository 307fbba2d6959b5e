/* kafka_watch.h: looks, once in a while, whether the brokers answer and how far the group that
 * writes the ledger has come in the topic of pended claims.
 *
 * Says on the log when the brokers go away and when they are back, once each time.
 *
 * Threads: open and close from the owner, the others from any.
 */
#ifndef RELAY_KAFKA_WATCH_H
#define RELAY_KAFKA_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "relay/kafka_target.h"

#define KAFKA_WATCH_PARTITIONS_MAX 128

struct kafka_watch;

/* What the last look that succeeded has seen; the ends first, then the group's offsets. */
struct kafka_view {
    bool is_up;       /* the last look succeeded */
    bool is_known;    /* whether they answer: some look is over */
    int64_t began_ms; /* monotonic; 0: none has succeeded yet */
    size_t partition_count;
    int64_t ends[KAFKA_WATCH_PARTITIONS_MAX];      /* behind the last message */
    int64_t committed[KAFKA_WATCH_PARTITIONS_MAX]; /* as far as all is in the ledger */
    char words[200];                               /* "ok", or what is wrong */
};

/* Where the topic ended at some time: has the group come that far? */
struct kafka_goal {
    bool is_set;
    bool has_ends;
    int64_t set_ms; /* monotonic */
    size_t partition_count;
    int64_t ends[KAFKA_WATCH_PARTITIONS_MAX];
};

enum status kafka_watch_open(struct kafka_watch **watch, const struct kafka_target *target,
                             struct error *error) MUST_CHECK;
void kafka_watch_close(struct kafka_watch *watch);

void kafka_watch_read(struct kafka_watch *watch, struct kafka_view *view);

/* Messages that the group has not done with, of all partitions; -1: not known. */
int64_t kafka_view_lag(const struct kafka_view *view);

/* True when everything that was in the topic when the goal was set is done with. Sets a goal that
 * is not set, and is false then; unsets one that is reached. */
bool kafka_watch_reached(struct kafka_watch *watch, struct kafka_goal *goal);

#endif
