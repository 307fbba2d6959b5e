/* stats.c: what became of all claims on a policy, by minutes and hours; for admins. */
#include <stdlib.h>
#include <string.h>

#include "claim/totals.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "ledger/totals.h"

/* The last month: whoever wants more reads the ledger. */
#define HOURS_SHOWN_MAX 744

/* Sums by the words of this endpoint. */
struct stats {
    int64_t asked;
    int64_t won;
    int64_t asked_again;
    int64_t sold_out;
    int64_t refused_by[CLAIM_RESULT_COUNT];
};

static void stats_add(struct stats *stats, const struct claim_total *total)
{
    unsigned result = 0;

    while (result < CLAIM_RESULT_COUNT && strcmp(total->result, claim_result_name(result)) != 0)
        result++;
    stats->asked += total->count;
    if (result == CLAIM_ISSUED || result == CLAIM_ACCEPTED)
        stats->won += total->count;
    else if (result == CLAIM_ALREADY_ISSUED)
        stats->asked_again += total->count;
    else if (result == CLAIM_SOLD_OUT)
        stats->sold_out += total->count;
    else if (result < CLAIM_RESULT_COUNT)
        stats->refused_by[result] += total->count;
}

/* Without the closing brace. What a newer dibs has counted and this one cannot name is refused. */
static void stats_render(struct buffer *out, const struct stats *stats)
{
    json_put(out, "asked", stats->asked);
    json_put(out, "won", stats->won);
    json_put(out, "asked_again", stats->asked_again);
    json_put(out, "sold_out", stats->sold_out);
    json_put(out, "refused", stats->asked - stats->won - stats->asked_again - stats->sold_out);
}

static void stats_render_reasons(struct buffer *out, const struct stats *stats)
{
    const char *comma = "";

    buffer_append_literal(out, ",\"refused_by\":{");
    for (unsigned result = CLAIM_SOLD_OUT + 1; result < CLAIM_RESULT_COUNT; result++) {
        if (stats->refused_by[result] == 0)
            continue;
        buffer_printf(out, "%s\"%s\":%lld", comma, claim_result_name(result),
                      (long long)stats->refused_by[result]);
        comma = ",";
    }
    buffer_append_literal(out, "}");
}

/* One entry for each minute, or each hour, that has something. */
static void stats_render_series(struct buffer *out, const char *name,
                                const struct claim_total *totals, size_t count, int64_t seconds,
                                int64_t since_ms)
{
    buffer_printf(out, ",\"%s\":[", name);
    for (size_t i = 0; i < count;) {
        struct stats stats = {.asked = 0};
        size_t first = i;
        for (; i < count && totals[i].starts_at_ms == totals[first].starts_at_ms &&
               totals[i].seconds == totals[first].seconds;
             i++)
            stats_add(&stats, &totals[i]);
        if (totals[first].seconds != seconds || totals[first].starts_at_ms < since_ms)
            continue;
        json_begin(out, '{');
        json_put_time(out, "at", totals[first].starts_at_ms);
        stats_render(out, &stats);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

static void work_show(struct call *call, struct service *service)
{
    struct policy_view view;
    struct claim_total *totals = NULL;
    struct stats sum = {.asked = 0};
    struct error error;
    size_t count = 0;
    enum status status = service_policy_show(service, call->policy_id, &view, &error);

    /* What is not in yet is added a little later. */
    if (status == STATUS_OK)
        (void)!totals_flush(service_totals(service), &error);
    if (status == STATUS_OK)
        status = ledger_totals(service_ledger(service), call->policy_id, &totals, &count, &error);
    if (call_is_done(call, status, &error, PROBLEM_POLICY_NOT_FOUND)) {
        const struct policy *policy = &view.policy;
        struct buffer *body = call_json(call, 200);
        int64_t last_ms = count > 0 ? totals[count - 1].starts_at_ms : 0;
        for (size_t i = 0; i < count; i++)
            stats_add(&sum, &totals[i]);
        json_begin(body, '{');
        json_put(body, "policy_id", policy->id);
        json_put_time(body, "opened_at",
                      policy->opens_at_ms != 0 ? policy->opens_at_ms : policy->created_at_ms);
        stats_render(body, &sum);
        stats_render_reasons(body, &sum);
        stats_render_series(body, "minutes", totals, count, 60, 0);
        stats_render_series(body, "hours", totals, count, 3600,
                            last_ms - (HOURS_SHOWN_MAX - 1) * INT64_C(3600000));
        buffer_append_literal(body, "}");
    }
    free(totals);
}

void stats_show(struct ask *ask)
{
    call_start(ask, work_show);
}
