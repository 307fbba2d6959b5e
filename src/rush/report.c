/* report.c: writes the words, the JSON and the page. */
#include "rush/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "embedded_assets.h"

/* --- figures --- */

#define START_MIN_NS INT64_C(100000000)

static const char *const rush_group_names[RUSH_GROUPS] = {
    [RUSH_GROUP_WON] = "won",           [RUSH_GROUP_HELD] = "held",
    [RUSH_GROUP_SOLD_OUT] = "sold_out", [RUSH_GROUP_REFUSED] = "refused",
    [RUSH_GROUP_FAILED] = "failed",
};

static const enum rush_group rush_group_of[RUSH_OUTCOMES] = {
    [RUSH_NONE] = RUSH_GROUP_FAILED,   [RUSH_WON] = RUSH_GROUP_WON,
    [RUSH_HELD] = RUSH_GROUP_HELD,     [RUSH_SOLD_OUT] = RUSH_GROUP_SOLD_OUT,
    [RUSH_LIMIT] = RUSH_GROUP_REFUSED, [RUSH_REFUSED] = RUSH_GROUP_REFUSED,
    [RUSH_BUSY] = RUSH_GROUP_FAILED,
};

static const char *rush_group_name(enum rush_group group)
{
    ensure(group < RUSH_GROUPS);
    return rush_group_names[group];
}

static int figures_compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left;
    int64_t b = *(const int64_t *)right;
    return a < b ? -1 : a > b;
}

int64_t rush_figures_latency_ns(const struct rush_figures *figures, double quantile)
{
    if (figures->answered_count == 0)
        return 0;
    double place = ceil(quantile * (double)figures->answered_count);
    size_t at = place < 1 ? 0 : (size_t)place - 1;
    return figures->latencies_ns[at < figures->answered_count ? at : figures->answered_count - 1];
}

static void figures_curve(struct rush_figures *figures)
{
    for (size_t i = 0; i < RUSH_CURVE_POINTS; i++) {
        double above = pow(0.5, (double)i / 4);
        if (i > 0 && above * (double)figures->answered_count < 1)
            break;
        figures->curve[i].quantile = 1 - above;
        figures->curve[i].ns = rush_figures_latency_ns(figures, 1 - above);
        figures->curve_count = i + 1;
    }
}

static void figures_count(struct rush_series *series, const struct rush_press *presses,
                          size_t count, int64_t length_ns)
{
    series->bin_count = RUSH_BINS;
    series->bin_ns = length_ns / RUSH_BINS + 1;
    for (size_t i = 0; i < count; i++) {
        const struct rush_press *press = &presses[i];
        int64_t bin = press->answered_ns / series->bin_ns;
        if (press->is_sent && bin < RUSH_BINS)
            series->counts[bin][rush_group_of[press->outcome]]++;
    }
}

enum status rush_figures_make(struct rush_figures *figures, const struct rush_press *presses,
                              size_t count, int64_t sold_out_ns, struct error *error)
{
    double sum_ns = 0;

    *figures = (struct rush_figures){.first_ns = -1};
    figures->latencies_ns = malloc((count + 1) * sizeof(*figures->latencies_ns));
    if (figures->latencies_ns == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the figures");
    for (size_t i = 0; i < count; i++) {
        const struct rush_press *press = &presses[i];
        if (!press->is_sent)
            continue;
        int64_t latency_ns = press->answered_ns - press->due_ns;
        figures->latencies_ns[figures->answered_count++] = latency_ns;
        sum_ns += (double)latency_ns;
        if (figures->first_ns < 0 || press->sent_ns < figures->first_ns)
            figures->first_ns = press->sent_ns;
        if (press->answered_ns > figures->last_ns)
            figures->last_ns = press->answered_ns;
    }
    size_t answered = figures->answered_count;
    if (answered > 0) {
        qsort(figures->latencies_ns, answered, sizeof(*figures->latencies_ns), figures_compare);
        figures->min_ns = figures->latencies_ns[0];
        figures->max_ns = figures->latencies_ns[answered - 1];
        figures->mean_ns = (int64_t)(sum_ns / (double)answered);
        figures_curve(figures);
    }
    figures_count(&figures->whole, presses, count, figures->last_ns);
    int64_t start_ns = sold_out_ns >= 0 ? sold_out_ns + sold_out_ns / 2 : figures->last_ns;
    if (start_ns < START_MIN_NS)
        start_ns = START_MIN_NS;
    figures_count(&figures->start, presses, count,
                  start_ns < figures->last_ns ? start_ns : figures->last_ns);
    return STATUS_OK;
}

void rush_figures_release(struct rush_figures *figures)
{
    free(figures->latencies_ns);
    figures->latencies_ns = NULL;
}

/* --- the report --- */

#define MILLISECOND_NS  1e6
#define SECOND_NS       1e9
#define TOPIC_TEXT_SIZE 256
#define PAGE_NAME       "report.html"
#define PAGE_MARK       "<!-- DATA -->"

bool rush_report_misses(const struct rush_report *report)
{
    return report->p99_target_ms > 0 && (double)rush_figures_latency_ns(report->figures, 0.99) >
                                            (double)report->p99_target_ms * MILLISECOND_NS;
}

/* --- words --- */

#define GROUPED_SIZE 32

/* "1,234,567" */
static const char *report_grouped(char text[GROUPED_SIZE], int64_t number)
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%" PRId64, number);
    size_t at = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0 && digits[i - 1] != '-')
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

/* "0.84 ms", "120 ms", "2.31 s": three digits that matter. */
static void report_append_time(struct buffer *out, int64_t ns)
{
    double ms = (double)ns / MILLISECOND_NS;

    if (ms >= 1000)
        buffer_printf(out, "%.2f s", ms / 1000);
    else
        buffer_printf(out, "%.*f ms", ms >= 100 ? 0 : ms >= 10 ? 1 : 2, ms);
}

static void report_line(struct buffer *out, const char *title, int64_t number, const char *message)
{
    char text[GROUPED_SIZE];
    buffer_printf(out, "  %-12s %12s%s%s\n", title, report_grouped(text, number),
                  message[0] != '\0' ? "  " : "", message);
}

static void report_outcomes(struct buffer *out, const struct rush_report *report)
{
    const uint64_t *outcomes = report->numbers->outcomes;
    const struct rush_proof *proof = report->proof;
    double seconds = (double)(report->figures->last_ns - report->figures->first_ns) / SECOND_NS;
    char text[120];
    char rate[GROUPED_SIZE];

    report_grouped(rate, seconds > 0 ? (int64_t)((double)report->numbers->answered / seconds) : 0);
    snprintf(text, sizeof(text), "in %.2f s, %s a second", seconds, rate);
    report_line(out, "asked", (int64_t)report->numbers->sent, text);
    text[0] = '\0';
    if (proof->winner_count > 0)
        snprintf(text, sizeof(text), "seq %" PRId64 " to %" PRId64, proof->first_seq,
                 proof->last_seq);
    report_line(out, "won", (int64_t)outcomes[RUSH_WON], text);
    if (outcomes[RUSH_HELD] > 0)
        report_line(out, "held", (int64_t)outcomes[RUSH_HELD], "asked again, same claim");
    int64_t last_row_ms;
    size_t row_count = rush_holdings_rows(report->evidence->holdings, &last_row_ms);
    text[0] = '\0';
    if (last_row_ms >= 0)
        snprintf(text, sizeof(text), "the last %" PRId64 " ms after the last accept", last_row_ms);
    report_line(out, "rows", (int64_t)row_count, text);
    text[0] = '\0';
    if (proof->sold_out_ns >= 0)
        snprintf(text, sizeof(text), "the first after %.3f s",
                 (double)proof->sold_out_ns / SECOND_NS);
    report_line(out, "sold out", (int64_t)outcomes[RUSH_SOLD_OUT], text);
    if (outcomes[RUSH_LIMIT] > 0)
        report_line(out, "over limit", (int64_t)outcomes[RUSH_LIMIT], "");
    if (outcomes[RUSH_REFUSED] > 0)
        report_line(out, "refused", (int64_t)outcomes[RUSH_REFUSED], "");
    for (size_t i = 0; i < report->numbers->refusal_count; i++)
        report_line(out, "", (int64_t)report->numbers->refusals[i].count,
                    report->numbers->refusals[i].text);
    uint64_t failed = outcomes[RUSH_NONE] + outcomes[RUSH_BUSY];
    snprintf(text, sizeof(text), "%" PRIu64 " tries without an answer, %" PRIu64 " repeated",
             report->numbers->failures, report->numbers->retries);
    report_line(out, "no verdict", (int64_t)failed,
                report->numbers->failures + report->numbers->retries > 0 ? text : "");
    if (report->first_failure[0] != '\0')
        buffer_printf(out, "  %14s         %s\n", "", report->first_failure);
}

static void report_latencies(struct buffer *out, const struct rush_report *report)
{
    static const struct {
        const char *name;
        double quantile;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p99.9", 0.999}, {"max", 1}};

    buffer_append_text(out, "  latency     ");
    for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
        buffer_printf(out, "  %s ", quantiles[i].name);
        report_append_time(out, rush_figures_latency_ns(report->figures, quantiles[i].quantile));
    }
    if (report->plan->options.shape != RUSH_CLOSED) {
        buffer_append_text(out, "\n  schedule      at most ");
        report_append_time(out, report->numbers->slip_ns);
        buffer_append_text(out, " late");
    }
    buffer_append_text(out, "\n");
}

static void report_topic(struct buffer *out, const struct rush_topic *topic)
{
    char text[TOPIC_TEXT_SIZE];

    snprintf(text, sizeof(text), "in partition %d of %s, offsets %" PRId64 " to %" PRId64,
             topic->partition, topic->name, topic->first_offset, topic->last_offset);
    report_line(out, "messages", topic->message_count, topic->message_count > 0 ? text : "");
}

static const char *report_verdict(const struct rush_report *report)
{
    if (report->proof->is_broken)
        return "BROKEN: this server does not keep what a drop promises";
    if (!report->proof->is_exact)
        return "NOT PROVEN: the server did not tell enough";
    return rush_report_misses(report) ? "EXACT, but slower than asked for" : "EXACT";
}

void rush_report_text(struct buffer *out, const struct rush_report *report, bool in_colour)
{
    static const char *const marks[] = {
        [RUSH_HOLDS] = "ok", [RUSH_BROKEN] = "BROKEN", [RUSH_CANNOT_SAY] = "?"};
    static const char *const colours[] = {
        [RUSH_HOLDS] = "\033[32m", [RUSH_BROKEN] = "\033[1;31m", [RUSH_CANNOT_SAY] = "\033[33m"};
    const char *plain = in_colour ? "\033[0m" : "";

    buffer_printf(out, "policy %" PRId64 " at %s\n", report->policy_id, report->url);
    report_outcomes(out, report);
    report_latencies(out, report);
    if (report->topic != NULL)
        report_topic(out, report->topic);
    buffer_append_text(out, "\n");
    for (size_t i = 0; i < RUSH_CHECKS; i++) {
        const struct rush_check *check = &report->proof->checks[i];
        buffer_printf(out, "  %s%-6s%s %-28s %s\n", in_colour ? colours[check->verdict] : "",
                      marks[check->verdict], plain, check->title, check->text);
    }
    enum rush_verdict verdict = report->proof->is_broken  ? RUSH_BROKEN
                                : report->proof->is_exact ? RUSH_HOLDS
                                                          : RUSH_CANNOT_SAY;
    buffer_printf(out, "\n%s%s%s\n", in_colour ? colours[verdict] : "", report_verdict(report),
                  plain);
}

/* --- JSON --- */

static void report_number(struct buffer *out, const char *name, int64_t number)
{
    buffer_printf(out, ",\"%s\":%" PRId64, name, number);
}

/* Milliseconds, to the microsecond; null for what did not happen. */
static void report_ms(struct buffer *out, const char *name, int64_t ns)
{
    if (ns < 0)
        buffer_printf(out, ",\"%s\":null", name);
    else
        buffer_printf(out, ",\"%s\":%.3f", name, (double)ns / MILLISECOND_NS);
}

static void report_json_outcomes(struct buffer *out, const struct rush_report *report)
{
    const struct storm_numbers *numbers = report->numbers;

    json_put(out, "users", report->user_count);
    json_put(out, "presses", numbers->press_count);
    json_put(out, "sent", numbers->sent);
    json_put(out, "answered", numbers->answered);
    for (enum rush_outcome outcome = RUSH_WON; outcome < RUSH_OUTCOMES; outcome++)
        report_number(out, rush_outcome_name(outcome), numbers->outcomes[outcome]);
    report_number(out, rush_outcome_name(RUSH_NONE), numbers->outcomes[RUSH_NONE]);
    buffer_append_text(out, ",\"refusals\":{");
    for (size_t i = 0; i < numbers->refusal_count; i++)
        buffer_printf(out, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", numbers->refusals[i].text,
                      numbers->refusals[i].count);
    buffer_append_text(out, "}");
    json_put(out, "winners", report->proof->winner_count);
    json_put(out, "first_seq", report->proof->first_seq);
    json_put(out, "last_seq", report->proof->last_seq);
    json_put(out, "retries", numbers->retries);
    json_put(out, "failures", numbers->failures);
    json_put(out, "reconnects", numbers->wire.reconnects);
    json_put(out, "connections", report->connection_count);
    report_ms(out, "sold_out_after_ms", report->proof->sold_out_ns);
    report_ms(out, "last_win_after_ms", report->proof->last_win_ns);
    int64_t last_row_ms;
    report_number(out, "rows",
                  (int64_t)rush_holdings_rows(report->evidence->holdings, &last_row_ms));
    if (last_row_ms < 0)
        json_put_null(out, "last_row_after_accept_ms");
    else
        report_number(out, "last_row_after_accept_ms", last_row_ms);
    report_ms(out, "slip_ms", numbers->slip_ns);
    report_ms(out, "elapsed_ms", report->figures->last_ns - report->figures->first_ns);
}

static void report_json_latency(struct buffer *out, const struct rush_figures *figures)
{
    buffer_append_literal(out, ",\"latency_ms\":{");
    json_put(out, "count", figures->answered_count);
    report_ms(out, "min", figures->min_ns);
    report_ms(out, "mean", figures->mean_ns);
    report_ms(out, "p50", rush_figures_latency_ns(figures, 0.5));
    report_ms(out, "p75", rush_figures_latency_ns(figures, 0.75));
    report_ms(out, "p90", rush_figures_latency_ns(figures, 0.9));
    report_ms(out, "p99", rush_figures_latency_ns(figures, 0.99));
    report_ms(out, "p99_9", rush_figures_latency_ns(figures, 0.999));
    report_ms(out, "max", figures->max_ns);
    buffer_append_literal(out, "}");
}

static void report_json_stock(struct buffer *out, const char *name, const struct rush_stock *stock)
{
    buffer_printf(out, ",\"%s\":", name);
    if (!stock->is_known) {
        buffer_append_literal(out, "null");
        return;
    }
    buffer_append_literal(out, "{");
    json_put(out, "total", stock->total);
    json_put(out, "remaining", stock->remaining);
    json_put(out, "pending", stock->pending);
    json_put(out, "issued", stock->issued);
    buffer_append_literal(out, "}");
}

static void report_json_topic(struct buffer *out, const struct rush_topic *topic)
{
    bool is_there = topic->message_count > 0;

    buffer_append_literal(out, ",\"topic\":{");
    json_put(out, "name", topic->name);
    json_put(out, "messages", topic->message_count);
    if (is_there) {
        json_put(out, "partition", (int64_t)topic->partition);
        json_put(out, "first_offset", topic->first_offset);
        json_put(out, "last_offset", topic->last_offset);
    }
    buffer_append_literal(out, "}");
}

static void report_json_checks(struct buffer *out, const struct rush_proof *proof)
{
    buffer_append_literal(out, ",\"checks\":[");
    for (size_t i = 0; i < RUSH_CHECKS; i++) {
        const struct rush_check *check = &proof->checks[i];
        json_begin(out, '{');
        json_put(out, "name", check->name);
        json_put(out, "title", check->title);
        json_put(out, "verdict", rush_verdict_name(check->verdict));
        json_put(out, "detail", check->text);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]");
}

/* Without the closing brace. */
static void report_json_open(struct buffer *out, const struct rush_report *report)
{
    static const char *const shapes[] = {[RUSH_CLOSED] = "closed",
                                         [RUSH_STEADY] = "steady",
                                         [RUSH_RAMP] = "ramp",
                                         [RUSH_BURSTS] = "bursts"};

    buffer_append_literal(out, "{");
    json_put_flag(out, "exact", report->proof->is_exact);
    json_put_flag(out, "broken", report->proof->is_broken);
    json_put(out, "policy_id", report->policy_id);
    json_put(out, "policy_name", report->policy_name);
    json_put(out, "url", report->url);
    json_put_time(out, "started_at", report->started_at_ms);
    json_put_flag(out, "rehearsal", report->is_rehearsal);
    json_put_flag(out, "stopped", report->is_stopped);
    json_put(out, "shape", shapes[report->plan->options.shape]);
    report_json_outcomes(out, report);
    report_json_latency(out, report->figures);
    if (report->p99_target_ms > 0) {
        json_put(out, "p99_target_ms", report->p99_target_ms);
        json_put_flag(out, "target_missed", rush_report_misses(report));
    }
    if (report->topic != NULL)
        report_json_topic(out, report->topic);
    report_json_stock(out, "before", &report->evidence->before);
    report_json_stock(out, "after", &report->evidence->after);
    report_json_checks(out, report->proof);
}

void rush_report_json(struct buffer *out, const struct rush_report *report)
{
    report_json_open(out, report);
    buffer_append_literal(out, "}\n");
}

/* --- the page --- */

static void report_json_series(struct buffer *out, const char *name,
                               const struct rush_series *series)
{
    buffer_printf(out, ",\"%s\":{\"bin_ms\":%.6f", name, (double)series->bin_ns / MILLISECOND_NS);
    for (enum rush_group group = 0; group < RUSH_GROUPS; group++) {
        buffer_printf(out, ",\"%s\":[", rush_group_name(group));
        for (size_t bin = 0; bin < series->bin_count; bin++)
            buffer_printf(out, "%s%u", bin > 0 ? "," : "", series->counts[bin][group]);
        buffer_append_literal(out, "]");
    }
    buffer_append_literal(out, "}");
}

static void report_json_curve(struct buffer *out, const struct rush_figures *figures)
{
    buffer_append_literal(out, ",\"curve\":[");
    for (size_t i = 0; i < figures->curve_count; i++)
        buffer_printf(out, "%s[%.9f,%.3f]", i > 0 ? "," : "", figures->curve[i].quantile,
                      (double)figures->curve[i].ns / MILLISECOND_NS);
    buffer_append_literal(out, "]");
}

/* A "<" inside the page's data could end it. */
static void report_append_escaped(struct buffer *out, struct span json)
{
    for (size_t i = 0; i < json.length; i++)
        if (json.bytes[i] == '<')
            buffer_append_literal(out, "\\u003c");
        else
            buffer_append(out, json.bytes + i, 1);
}

void rush_report_page(struct buffer *out, const struct rush_report *report)
{
    struct buffer data;
    const char *page = NULL;

    for (size_t i = 0; i < embedded_assets_count; i++)
        if (strcmp(embedded_assets[i].name, PAGE_NAME) == 0)
            page = (const char *)embedded_assets[i].bytes;
    ensure(page != NULL);
    const char *mark = strstr(page, PAGE_MARK);
    ensure(mark != NULL);
    buffer_init(&data, out->length_max);
    report_json_open(&data, report);
    report_json_series(&data, "whole", &report->figures->whole);
    report_json_series(&data, "start", &report->figures->start);
    report_json_curve(&data, report->figures);
    buffer_append_literal(&data, "}");
    buffer_append(out, page, (size_t)(mark - page));
    report_append_escaped(out, buffer_span(&data));
    buffer_append_text(out, mark + strlen(PAGE_MARK));
    buffer_release(&data);
}
