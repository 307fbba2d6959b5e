/* sight.c: JSON and Prometheus text into one struct. */
#include "top/sight.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

void top_sight_release(struct top_sight *sight)
{
    free(sight->policies);
    *sight = (struct top_sight){0};
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

void top_sight_read_readiness(struct top_sight *sight, yyjson_val *root)
{
    yyjson_val *part;
    yyjson_arr_iter parts;

    sight->is_ready = yyjson_is_true(yyjson_obj_get(root, "ready"));
    sight->part_count = 0;
    yyjson_arr_iter_init(yyjson_obj_get(root, "parts"), &parts);
    while ((part = yyjson_arr_iter_next(&parts)) != NULL && sight->part_count < TOP_PARTS_MAX) {
        struct top_part *taken = &sight->parts[sight->part_count++];
        taken->is_ready = yyjson_is_true(yyjson_obj_get(part, "ready"));
        top_take_text(taken->name, sizeof(taken->name), yyjson_obj_get(part, "name"));
        top_take_text(taken->kind, sizeof(taken->kind), yyjson_obj_get(part, "kind"));
        top_take_text(taken->detail, sizeof(taken->detail), yyjson_obj_get(part, "detail"));
    }
}

void top_sight_read_policies(struct top_sight *sight, yyjson_val *root)
{
    yyjson_val *item;
    yyjson_arr_iter items;

    yyjson_arr_iter_init(yyjson_obj_get(root, "items"), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        if (sight->policy_count == sight->policy_capacity) {
            size_t capacity = sight->policy_capacity == 0 ? 64 : sight->policy_capacity * 2;
            struct top_policy *grown = realloc(sight->policies, capacity * sizeof(*grown));
            if (grown == NULL)
                return;
            sight->policies = grown;
            sight->policy_capacity = capacity;
        }
        struct top_policy *policy = &sight->policies[sight->policy_count++];
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
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(known[i].name, name) == 0)
            return known[i].result;
    }
    return TOP_REFUSED;
}

static void top_read_line(struct top_sight *sight, const char *line)
{
    const struct {
        const char *name;
        double *number;
    } plain[] = {
        {"process_start_time_seconds", &sight->started_at_s},
        {"dibs_pending", &sight->pending},
        {"dibs_pending_oldest_seconds", &sight->oldest_pending_s},
        {"dibs_http_connections", &sight->connections},
        {"dibs_dead_letters", &sight->dead_letters},
    };
    char label[TOP_TEXT_SIZE];
    const char *blank = strrchr(line, ' ');

    if (line[0] == '#' || blank == NULL)
        return;
    double number = strtod(blank + 1, NULL);
    if (top_label(line, "dibs_claims_total{result=\"", label)) {
        sight->claims[top_result_of(label)] += number;
        return;
    }
    if (top_label(line, "dibs_claim_seconds_bucket{le=\"", label)) {
        if (sight->bucket_count < TOP_BUCKETS_MAX) {
            sight->bucket_limits_s[sight->bucket_count] =
                strcmp(label, "+Inf") == 0 ? INFINITY : strtod(label, NULL);
            sight->bucket_counts[sight->bucket_count++] = number;
        }
        return;
    }
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        if (top_is_metric(line, plain[i].name))
            *plain[i].number = number;
    }
}

void top_sight_read_metrics(struct top_sight *sight, struct span text)
{
    char line[512];
    const char *at = text.bytes;
    const char *end = at + text.length;

    memset(sight->claims, 0, sizeof(sight->claims));
    sight->bucket_count = 0;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline != NULL ? newline : end) - at);
        if (length < sizeof(line)) { /* a longer one is none of these */
            memcpy(line, at, length);
            line[length] = '\0';
            top_read_line(sight, line);
        }
        at += length + 1;
    }
}
