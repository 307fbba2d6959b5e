/* view.c: JSON and Prometheus text into a snapshot; rates, quantiles and events between two. */
#include "top/view.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/error.h"
#include "base/utf8.h"

#define TEXT_VISIBLE_MAX 8192

static const char *const top_result_names[TOP_RESULTS] = {
    [TOP_WON] = "won",         [TOP_HELD] = "asked again",        [TOP_SOLD_OUT] = "sold out",
    [TOP_REFUSED] = "refused", [TOP_UNAVAILABLE] = "unavailable",
};

const char *top_result_name(enum top_result result)
{
    ensure(result < TOP_RESULTS);
    return top_result_names[result];
}

static void top_snapshot_release(struct top_snapshot *snapshot)
{
    free(snapshot->policies);
    *snapshot = (struct top_snapshot){0};
}

/* No name can drive the terminal. */
static void top_take_text(char *text, size_t size, yyjson_val *value)
{
    struct span from = {.bytes = yyjson_get_str(value), .length = yyjson_get_len(value)};
    struct buffer visible;

    buffer_init(&visible, TEXT_VISIBLE_MAX);
    utf8_append_visible(&visible, from);
    struct span shown =
        utf8_prefix((struct span){.bytes = visible.bytes, .length = visible.length}, size - 1);
    snprintf(text, size, "%.*s", (int)shown.length, shown.length > 0 ? shown.bytes : "");
    buffer_release(&visible);
}

void top_snapshot_read_readiness(struct top_snapshot *snapshot, yyjson_val *root)
{
    yyjson_val *part;
    yyjson_arr_iter parts;

    snapshot->is_ready = yyjson_is_true(yyjson_obj_get(root, "ready"));
    snapshot->part_count = 0;
    yyjson_arr_iter_init(yyjson_obj_get(root, "parts"), &parts);
    while ((part = yyjson_arr_iter_next(&parts)) != NULL && snapshot->part_count < TOP_PARTS_MAX) {
        struct top_part *taken = &snapshot->parts[snapshot->part_count++];
        taken->is_ready = yyjson_is_true(yyjson_obj_get(part, "ready"));
        top_take_text(taken->name, sizeof(taken->name), yyjson_obj_get(part, "name"));
        top_take_text(taken->kind, sizeof(taken->kind), yyjson_obj_get(part, "kind"));
        top_take_text(taken->detail, sizeof(taken->detail), yyjson_obj_get(part, "detail"));
    }
}

void top_snapshot_read_policies(struct top_snapshot *snapshot, yyjson_val *root)
{
    yyjson_val *item;
    yyjson_arr_iter items;

    yyjson_arr_iter_init(yyjson_obj_get(root, "items"), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        if (!array_make_room(snapshot->policies, snapshot->policy_count, snapshot->policy_capacity))
            return;
        struct top_policy *policy = &snapshot->policies[snapshot->policy_count++];
        policy->id = yyjson_get_sint(yyjson_obj_get(item, "id"));
        policy->total = yyjson_get_sint(yyjson_obj_get(item, "total"));
        policy->remaining = yyjson_get_sint(yyjson_obj_get(item, "remaining"));
        policy->pending = yyjson_get_sint(yyjson_obj_get(item, "pending"));
        policy->issued = yyjson_get_sint(yyjson_obj_get(item, "issued"));
        top_take_text(policy->name, sizeof(policy->name), yyjson_obj_get(item, "name"));
        top_take_text(policy->state, sizeof(policy->state), yyjson_obj_get(item, "state"));
    }
}

/* --- metrics --- */

/* Whether the line is of this metric, without labels. */
static bool top_is_metric(const char *line, const char *name)
{
    size_t length = strlen(name);
    return strncmp(line, name, length) == 0 && line[length] == ' ';
}

/* The value of a label, when the line is of this metric and has it alone. */
static bool top_label(const char *line, const char *start, char value[TOP_TEXT_SIZE])
{
    size_t length = strlen(start);
    const char *end;

    if (strncmp(line, start, length) != 0 || (end = strchr(line + length, '"')) == NULL ||
        (size_t)(end - line) - length >= TOP_TEXT_SIZE)
        return false;
    memcpy(value, line + length, (size_t)(end - line) - length);
    value[(size_t)(end - line) - length] = '\0';
    return true;
}

static enum top_result top_result_of(const char *name)
{
    static const struct {
        const char *name;
        enum top_result result;
    } known[] = {
        {"issued", TOP_WON},
        {"accepted", TOP_WON},
        {"already_issued", TOP_HELD},
        {"sold_out", TOP_SOLD_OUT},
        {"unavailable", TOP_UNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].result;
    return TOP_REFUSED;
}

static void top_read_line(struct top_snapshot *snapshot, const char *line)
{
    const struct {
        const char *name;
        double *number;
    } plain[] = {
        {"process_start_time_seconds", &snapshot->started_at_s},
        {"dibs_pending", &snapshot->pending},
        {"dibs_pending_oldest_seconds", &snapshot->oldest_pending_s},
        {"dibs_http_connections", &snapshot->connections},
        {"dibs_dead_letters", &snapshot->dead_letters},
    };
    char label[TOP_TEXT_SIZE];
    const char *blank = strrchr(line, ' ');

    if (line[0] == '#' || blank == NULL)
        return;
    double number = strtod(blank + 1, NULL);
    if (top_label(line, "dibs_claims_total{result=\"", label)) {
        snapshot->claims[top_result_of(label)] += number;
        return;
    }
    if (top_label(line, "dibs_claim_seconds_bucket{le=\"", label)) {
        if (snapshot->bucket_count < TOP_BUCKETS_MAX) {
            snapshot->bucket_limits_s[snapshot->bucket_count] =
                strcmp(label, "+Inf") == 0 ? INFINITY : strtod(label, NULL);
            snapshot->bucket_counts[snapshot->bucket_count++] = number;
        }
        return;
    }
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
        if (top_is_metric(line, plain[i].name))
            *plain[i].number = number;
}

void top_snapshot_read_metrics(struct top_snapshot *snapshot, struct span text)
{
    char line[512];
    const char *at = text.bytes;
    const char *end = at + text.length;

    memset(snapshot->claims, 0, sizeof(snapshot->claims));
    snapshot->bucket_count = 0;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline != NULL ? newline : end) - at);
        if (length < sizeof(line)) { /* a longer one is none of these */
            memcpy(line, at, length);
            line[length] = '\0';
            top_read_line(snapshot, line);
        }
        at += length + 1;
    }
}

/* --- what happened between two --- */

PRINTF_LIKE(2, 3)
static void top_note(struct top_view *view, const char *format, ...)
{
    va_list arguments;

    if (view->event_count == TOP_EVENTS_MAX) {
        memmove(view->events, view->events + 1, (TOP_EVENTS_MAX - 1) * sizeof(*view->events));
        view->event_count--;
    }
    struct top_event *event = &view->events[view->event_count++];
    event->wall_ms = view->now.wall_ms;
    va_start(arguments, format);
    vsnprintf(event->text, sizeof(event->text), format, arguments);
    va_end(arguments);
}

static void top_note_policies(struct top_view *view, const struct top_snapshot *before)
{
    const struct top_snapshot *now = &view->now;
    size_t old = 0;

    for (size_t i = 0; i < now->policy_count; i++) {
        const struct top_policy *policy = &now->policies[i];
        while (old < before->policy_count && before->policies[old].id < policy->id)
            old++;
        if (old == before->policy_count || before->policies[old].id != policy->id)
            top_note(view, "policy %" PRId64 " was created: %s", policy->id, policy->name);
        else if (strcmp(before->policies[old].state, policy->state) != 0)
            top_note(view, "policy %" PRId64 " is %s, it was %s", policy->id, policy->state,
                     before->policies[old].state);
        else if (before->policies[old].total != policy->total)
            top_note(view, "policy %" PRId64 " has %" PRId64 " coupons, it had %" PRId64,
                     policy->id, policy->total, before->policies[old].total);
    }
}

static void top_note_parts(struct top_view *view, const struct top_snapshot *before)
{
    const struct top_snapshot *now = &view->now;

    for (size_t i = 0; i < now->part_count && i < before->part_count; i++) {
        const struct top_part *part = &now->parts[i];
        if (strcmp(part->name, before->parts[i].name) == 0 &&
            part->is_ready != before->parts[i].is_ready)
            top_note(view, "%s (%s) is %s%s%s", part->name, part->kind,
                     part->is_ready ? "ready" : "not ready", part->is_ready ? "" : ": ",
                     part->is_ready ? "" : part->detail);
    }
}

static void top_note_changes(struct top_view *view, const struct top_snapshot *before)
{
    const struct top_snapshot *now = &view->now;

    if (now->is_reachable && !before->is_reachable)
        top_note(view, "the server answers again");
    else if (!now->is_reachable && before->is_reachable)
        top_note(view, "the server does not answer: %.200s", now->trouble);
    if (!now->is_reachable || !before->is_reachable)
        return;
    if (now->started_at_s != before->started_at_s)
        top_note(view, "the server was started again");
    top_note_parts(view, before);
    if (!now->lacks_policies)
        top_note_policies(view, before);
    if (now->dead_letters > before->dead_letters)
        top_note(view, "%.0f new dead letters: `dibs dead list`",
                 now->dead_letters - before->dead_letters);
}

/* The least bucket that has this share of the claims between the two snapshots. */
static double top_quantile(const struct top_snapshot *before, const struct top_snapshot *now,
                           double quantile)
{
    if (now->bucket_count == 0 || now->bucket_count != before->bucket_count)
        return 0;
    size_t last = now->bucket_count - 1;
    double count = now->bucket_counts[last] - before->bucket_counts[last];
    if (count <= 0)
        return 0;
    for (size_t i = 0; i < last; i++)
        if (now->bucket_counts[i] - before->bucket_counts[i] >= ceil(quantile * count))
            return now->bucket_limits_s[i];
    return last > 0 ? now->bucket_limits_s[last - 1] : 0;
}

static void top_measure(struct top_view *view, const struct top_snapshot *before)
{
    const struct top_snapshot *now = &view->now;
    double seconds = (double)(now->seen_at_ms - before->seen_at_ms) / 1000;

    view->has_rates = now->is_reachable && before->is_reachable && seconds > 0 &&
                      now->started_at_s == before->started_at_s;
    memset(view->rates, 0, sizeof(view->rates));
    view->p50_s = 0;
    view->p99_s = 0;
    if (view->has_rates) {
        for (size_t i = 0; i < TOP_RESULTS; i++)
            view->rates[i] = (now->claims[i] - before->claims[i]) / seconds;
        view->p50_s = top_quantile(before, now, 0.50);
        view->p99_s = top_quantile(before, now, 0.99);
    }
    memmove(view->history, view->history + 1, (TOP_HISTORY - 1) * sizeof(*view->history));
    view->history[TOP_HISTORY - 1] = top_view_rate(view);
}

/* What can be claimed, or soon can, is what a watcher looks for. */
static int top_rank(const struct top_policy *policy)
{
    static const char *const states[] = {"OPEN", "PAUSED", "SCHEDULED", "SOLD_OUT"};
    int rank = 0;

    while (rank < 4 && strcmp(policy->state, states[rank]) != 0)
        rank++;
    return rank;
}

static void top_arrange(struct top_view *view)
{
    const struct top_snapshot *now = &view->now;
    size_t *order = realloc(view->order, (now->policy_count + 1) * sizeof(*order));
    size_t count = 0;

    ensure(order != NULL);
    view->order = order;
    for (int rank = 0; rank <= 4; rank++) {
        for (size_t i = 0; i < now->policy_count; i++)
            if (top_rank(&now->policies[i]) == rank)
                order[count++] = i;
    }
}

/* A server that does not answer is shown as it was last seen. */
static void top_keep(struct top_snapshot *next, struct top_snapshot *before)
{
    struct top_snapshot kept = *before;

    kept.seen_at_ms = next->seen_at_ms;
    kept.wall_ms = next->wall_ms;
    kept.is_reachable = false;
    kept.is_ready = false;
    memcpy(kept.trouble, next->trouble, sizeof(kept.trouble));
    before->policies = NULL;
    before->policy_count = 0;
    top_snapshot_release(next);
    *next = kept;
}

/* A list that the server cannot give is not an empty one. */
static void top_keep_policies(struct top_snapshot *next, struct top_snapshot *before)
{
    free(next->policies);
    next->policies = before->policies;
    next->policy_count = before->policy_count;
    next->policy_capacity = before->policy_capacity;
    before->policies = NULL;
    before->policy_count = 0;
}

void top_view_take(struct top_view *view, struct top_snapshot *next)
{
    struct top_snapshot before = view->now;
    bool is_first = before.wall_ms == 0;

    if (!next->is_reachable)
        top_keep(next, &before);
    else if (next->lacks_policies)
        top_keep_policies(next, &before);
    view->now = *next;
    *next = (struct top_snapshot){0};
    top_arrange(view);
    if (!is_first) {
        top_measure(view, &before);
        top_note_changes(view, &before);
    }
    top_snapshot_release(&before);
}

void top_view_release(struct top_view *view)
{
    top_snapshot_release(&view->now);
    free(view->order);
    view->order = NULL;
}

const struct top_policy *top_view_policy(const struct top_view *view, size_t place)
{
    ensure(place < view->now.policy_count);
    return &view->now.policies[view->order[place]];
}

size_t top_view_place(const struct top_view *view, int64_t policy_id, size_t otherwise)
{
    size_t count = view->now.policy_count;

    for (size_t place = 0; place < count; place++)
        if (top_view_policy(view, place)->id == policy_id)
            return place;
    return otherwise < count ? otherwise : count > 0 ? count - 1 : 0;
}

double top_view_rate(const struct top_view *view)
{
    double rate = 0;

    for (size_t i = 0; i < TOP_RESULTS; i++)
        rate += view->rates[i];
    return rate;
}
