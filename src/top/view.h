/* view.h: how a server stands at one moment, read from what it tells (readiness, policies,
 * metrics); and two such snapshots held against each other: how fast it goes, and what happened.
 *
 * Threads: a view belongs to one owner.
 */
#pragma once

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

struct top_snapshot {
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
    bool
        lacks_policies; /* the server could not list them: these are those of the snapshot before */
    /* From the metrics; since the server's start. */
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

/* Each takes one answer of the server; what is not there stays as it is. */
void top_snapshot_read_readiness(struct top_snapshot *snapshot, yyjson_val *root);
void top_snapshot_read_policies(struct top_snapshot *snapshot, yyjson_val *root);
void top_snapshot_read_metrics(struct top_snapshot *snapshot, struct span text);

/* --- a view --- */

#define TOP_EVENTS_MAX 64
#define TOP_HISTORY    60

struct top_event {
    int64_t wall_ms;
    char text[TOP_NAME_SIZE];
};

struct top_view {
    struct top_snapshot now;
    size_t *order;  /* of the policies, as they are shown: those that can be claimed first */
    bool has_rates; /* there was a snapshot before, of the same run of the server */
    double rates[TOP_RESULTS]; /* claims a second between the two */
    double p50_s;              /* of the claims between the two; 0: there were none */
    double p99_s;
    double history[TOP_HISTORY];             /* claims a second, the latest last */
    struct top_event events[TOP_EVENTS_MAX]; /* the oldest first */
    size_t event_count;
};

/* Takes the next snapshot over, and with it its memory. */
void top_view_take(struct top_view *view, struct top_snapshot *next);
void top_view_release(struct top_view *view);

/* The policy at a place of what is shown. */
const struct top_policy *top_view_policy(const struct top_view *view, size_t place);

/* Where that policy is shown; when it is not, the nearest place to `otherwise` that there is. */
size_t top_view_place(const struct top_view *view, int64_t policy_id, size_t otherwise);

/* Claims a second, of all results. */
double top_view_rate(const struct top_view *view);
