/* text.c: writes a view down. */
#include "top/text.h"

#include <inttypes.h>

#include "base/json.h"

#define BAR_CELLS 24

void top_append_latency(struct buffer *out, double seconds)
{
    if (seconds <= 0)
        buffer_append_literal(out, "-");
    else if (seconds < 1e-3)
        buffer_printf(out, "%.0f us", seconds * 1e6);
    else if (seconds < 1)
        buffer_printf(out, "%.*f ms", seconds < 0.01 ? 1 : 0, seconds * 1e3);
    else
        buffer_printf(out, "%.1f s", seconds);
}

void top_append_rates(struct buffer *out, const struct top_view *view)
{
    if (!view->has_rates) {
        buffer_append_literal(out, "-");
        return;
    }
    buffer_printf(out, "%.0f/s", top_view_rate(view));
    const char *separator = ": ";
    for (enum top_result result = 0; result < TOP_RESULTS; result++) {
        if (view->rates[result] <= 0)
            continue;
        buffer_printf(out, "%s%s %.0f", separator, top_result_name(result), view->rates[result]);
        separator = ", ";
    }
}

void top_bar(const struct top_policy *policy, int cells, int parts[3])
{
    double total = policy->total > 0 ? (double)policy->total : 1;
    int remaining = (int)((double)policy->remaining / total * cells + 0.5);
    int pending = (int)((double)policy->pending / total * cells + 0.5);

    /* What is there shows, however little it is. */
    remaining = remaining == 0 && policy->remaining > 0 ? 1 : remaining;
    pending = pending == 0 && policy->pending > 0 ? 1 : pending;
    remaining = remaining > cells ? cells : remaining;
    pending = pending > cells - remaining ? cells - remaining : pending;
    parts[0] = cells - remaining - pending;
    parts[1] = pending;
    parts[2] = remaining;
}

static void top_text_policy(struct buffer *out, const struct top_policy *policy)
{
    static const char marks[3] = {'#', '+', '.'};
    int parts[3];

    top_bar(policy, BAR_CELLS, parts);
    buffer_printf(out, "%8" PRId64 "  %-9s  [", policy->id, policy->state);
    for (int part = 0; part < 3; part++)
        for (int i = 0; i < parts[part]; i++)
            buffer_append(out, &marks[part], 1);
    buffer_printf(
        out, "] %9" PRId64 " left, %" PRId64 " pending, %" PRId64 " of %" PRId64 " issued  %s\n",
        policy->remaining, policy->pending, policy->issued, policy->total, policy->name);
}

void top_text(struct buffer *out, const struct top_view *view, const char *url)
{
    const struct top_snapshot *now = &view->now;

    buffer_printf(out, "%s  %s%s%s\n", url,
                  !now->is_reachable ? "does not answer"
                  : now->is_ready    ? "ready"
                                     : "not ready",
                  now->trouble[0] != '\0' ? ": " : "", now->trouble);
    buffer_append_literal(out, "claims   ");
    top_append_rates(out, view);
    buffer_append_literal(out, "\nlatency  p50 ");
    top_append_latency(out, view->p50_s);
    buffer_append_literal(out, ", p99 ");
    top_append_latency(out, view->p99_s);
    buffer_printf(out, "\npending  %.0f", now->pending);
    if (now->oldest_pending_s > 0)
        buffer_printf(out, ", the oldest for %.1f s", now->oldest_pending_s);
    buffer_printf(out, "; %.0f connections", now->connections);
    if (now->dead_letters > 0)
        buffer_printf(out, "; %.0f dead letters", now->dead_letters);
    buffer_append_literal(out, "\nparts    ");
    for (size_t i = 0; i < now->part_count; i++)
        buffer_printf(out, "%s%s (%s) %s", i > 0 ? ", " : "", now->parts[i].name,
                      now->parts[i].kind, now->parts[i].is_ready ? "ok" : now->parts[i].detail);
    buffer_append_literal(out, "\n\n");
    for (size_t i = 0; i < now->policy_count; i++)
        top_text_policy(out, top_view_policy(view, i));
    if (now->policy_count == 0 && now->lacks_policies)
        buffer_append_literal(out, "Which policies there are cannot be told right now.\n");
    else if (now->policy_count == 0)
        buffer_append_literal(out, "There are no policies yet; `dibs policy create` makes one.\n");
}

/* --- JSON --- */

static void top_json_parts(struct buffer *out, const struct top_snapshot *now)
{
    buffer_append_literal(out, ",\"parts\":[");
    for (size_t i = 0; i < now->part_count; i++) {
        const struct top_part *part = &now->parts[i];
        json_begin(out, '{');
        json_put(out, "name", part->name);
        json_put(out, "kind", part->kind);
        json_put_flag(out, "ready", part->is_ready);
        json_put(out, "detail", part->detail);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

static void top_json_policies(struct buffer *out, const struct top_snapshot *now)
{
    if (now->lacks_policies && now->policy_count == 0) {
        json_put_null(out, "policies");
        return;
    }
    buffer_append_literal(out, ",\"policies\":[");
    for (size_t i = 0; i < now->policy_count; i++) {
        const struct top_policy *policy = &now->policies[i];
        json_begin(out, '{');
        json_put(out, "id", policy->id);
        json_put(out, "name", policy->name);
        json_put(out, "state", policy->state);
        json_put(out, "total", policy->total);
        json_put(out, "remaining", policy->remaining);
        json_put(out, "pending", policy->pending);
        json_put(out, "issued", policy->issued);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

void top_json(struct buffer *out, const struct top_view *view, const char *url)
{
    static const char *const names[TOP_RESULTS] = {
        [TOP_WON] = "won",
        [TOP_HELD] = "held",
        [TOP_SOLD_OUT] = "sold_out",
        [TOP_REFUSED] = "refused",
        [TOP_UNAVAILABLE] = "unavailable",
    };
    const struct top_snapshot *now = &view->now;

    buffer_append_literal(out, "{");
    json_put(out, "url", url);
    json_put_time(out, "at", now->wall_ms);
    json_put_flag(out, "reachable", now->is_reachable);
    json_put_flag(out, "ready", now->is_ready);
    buffer_append_literal(out, ",\"claims_per_second\":{");
    for (enum top_result result = 0; result < TOP_RESULTS; result++)
        buffer_printf(out, "%s\"%s\":%.1f", result > 0 ? "," : "", names[result],
                      view->rates[result]);
    buffer_printf(out,
                  "},\"p50_ms\":%.3f,\"p99_ms\":%.3f,\"pending\":%.0f,\"oldest_pending_s\":%.3f,"
                  "\"connections\":%.0f,\"dead_letters\":%.0f",
                  view->p50_s * 1e3, view->p99_s * 1e3, now->pending, now->oldest_pending_s,
                  now->connections, now->dead_letters);
    top_json_parts(out, now);
    top_json_policies(out, now);
    buffer_append_literal(out, "}\n");
}
