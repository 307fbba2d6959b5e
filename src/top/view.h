/* view.h: two sights of a server held against each other: how fast it goes, and what happened.
 *
 * Threads: a view belongs to one owner.
 */
#ifndef TOP_VIEW_H
#define TOP_VIEW_H

#include "top/sight.h"

#define TOP_EVENTS_MAX 64
#define TOP_HISTORY    60

struct top_event {
    int64_t wall_ms;
    char text[TOP_NAME_SIZE];
};

struct top_view {
    struct top_sight now;
    size_t *order;  /* of the policies, as they are shown: those that can be claimed first */
    bool has_rates; /* there was a sight before, of the same run of the server */
    double rates[TOP_RESULTS]; /* claims a second between the two */
    double p50_s;              /* of the claims between the two; 0: there were none */
    double p99_s;
    double history[TOP_HISTORY];             /* claims a second, the latest last */
    struct top_event events[TOP_EVENTS_MAX]; /* the oldest first */
    size_t event_count;
};

/* Takes the next sight over, and with it its memory. */
void top_view_take(struct top_view *view, struct top_sight *next);
void top_view_release(struct top_view *view);

/* The policy at a place of what is shown. */
const struct top_policy *top_view_policy(const struct top_view *view, size_t place);

/* Where that policy is shown; when it is not, the nearest place to `otherwise` that there is. */
size_t top_view_place(const struct top_view *view, int64_t policy_id, size_t otherwise);

/* Claims a second, of all results. */
double top_view_rate(const struct top_view *view);

#endif
