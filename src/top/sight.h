/* sight.h: how a server stands at one moment, read from what it tells: readiness, policies,
 * metrics.
 *
 * Threads: a sight belongs to one owner.
 */
#ifndef TOP_SIGHT_H
#define TOP_SIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <yyjson.h>

#include "base/buffer.h"

#define TOP_PARTS_MAX   8
#define TOP_BUCKETS_MAX 48
#define TOP_TEXT_SIZE   64
#define TOP_NAME_SIZE   256

struct top_part {
    char name[TOP_TEXT_SIZE];
    char kind[TOP_TEXT_SIZE];
    char detail[TOP_NAME_SIZE];
    bool is_ready;
};

struct top_policy {
    int64_t id;
    int64_t total;
    int64_t remaining;
    int64_t pending;
    int64_t issued;
    char name[TOP_NAME_SIZE];
    char state[TOP_TEXT_SIZE];
};

/* The results of claims that are shown; those that say the same to a watcher are added up. */
enum top_result { TOP_WON, TOP_HELD, TOP_SOLD_OUT, TOP_REFUSED, TOP_UNAVAILABLE };
#define TOP_RESULTS (TOP_UNAVAILABLE + 1)

/* "won", "sold out", ... */
const char *top_result_name(enum top_result result);

struct top_sight {
    int64_t seen_at_ms; /* monotonic */
    int64_t wall_ms;
    bool is_reachable;
    char trouble[TOP_NAME_SIZE]; /* why not; "": nothing is wrong */
    bool is_ready;
    struct top_part parts[TOP_PARTS_MAX];
    size_t part_count;
    struct top_policy *policies;
    size_t policy_count;
    size_t policy_capacity;
    bool lacks_policies; /* the server could not list them: these are those of the sight before */
    /* Of the metrics; since the server's start. */
    double started_at_s;
    double claims[TOP_RESULTS];
    double bucket_limits_s[TOP_BUCKETS_MAX]; /* of the latency of claims */
    double bucket_counts[TOP_BUCKETS_MAX];   /* so many took at most that long */
    size_t bucket_count;
    double pending;
    double oldest_pending_s;
    double connections;
    double dead_letters;
};

void top_sight_release(struct top_sight *sight);

/* Each takes one answer of the server; what is not there stays as it is. */
void top_sight_read_readiness(struct top_sight *sight, yyjson_val *root);
void top_sight_read_policies(struct top_sight *sight, yyjson_val *root);
void top_sight_read_metrics(struct top_sight *sight, struct span text);

#endif
