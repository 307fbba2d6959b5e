/* report.c: a table of what went wrong, and bars for what it cost. */
#include "lab/report.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

static const char HEAD[] =
    "<!doctype html><html lang=en><meta charset=utf-8>"
    "<meta name=viewport content='width=device-width,initial-scale=1'>"
    "<title>Handing out coupons: which way is right, by how much</title><style>"
    ":root{color-scheme:light dark;--ink:#1c2530;--soft:#5c6b7a;--back:#fff;--line:#dde3ea;"
    "--good:#0a7d4f;--bad:#b3261e;--bar:#3b6ea8;--bar2:#c77d1a;--bar3:#7a5aa6}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6ebf1;--soft:#98a6b5;--back:#12171d;"
    "--line:#2b343e;--good:#4cc38a;--bad:#ff8a80;--bar:#6ea8e6;--bar2:#e0a458;--bar3:#b195dd}}"
    "body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:0 auto;"
    "max-width:70rem;padding:1.5rem}h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2.2rem}"
    "p,.note{color:var(--soft)}table{border-collapse:collapse;width:100%;font-size:.9rem}"
    ".wide{overflow-x:auto}th,td{padding:.35rem .5rem;border-bottom:1px solid var(--line);"
    "text-align:right;vertical-align:top}th:first-child,td:first-child,td.words{text-align:left}"
    "th{font-weight:600}td.bad{color:var(--bad);font-weight:700}td.zero{color:var(--soft)}"
    ".right{color:var(--good);font-weight:700}.wrong{color:var(--bad);font-weight:700}"
    "code{font-size:.85em}.bars{display:grid;grid-template-columns:11rem 1fr 6rem;gap:.2rem .8rem;"
    "align-items:center;font-size:.9rem}.track{display:flex;height:1rem}.track i{display:block}"
    ".a{background:var(--bar)}.b{background:var(--bar2)}.c{background:var(--bar3)}"
    ".key i{display:inline-block;width:.8rem;height:.8rem;margin:0 .3rem 0 1rem}"
    "</style>";

void lab_result_add(struct lab_result *result, const struct lab_figures *figures)
{
    struct lab_figures *sum = &result->sum;
    result->rounds++;
    result->right += lab_figures_wrong(figures) == 0;
#define ADD(field, json, heading, words) sum->field += figures->field;
    LAB_ANOMALIES(ADD)
#undef ADD
    sum->presses += figures->presses;
    sum->yes += figures->yes;
    sum->rows += figures->rows;
    sum->lost += figures->lost;
    sum->p50_ms += figures->p50_ms;
    sum->p99_ms += figures->p99_ms;
    sum->row_p99_ms += figures->row_p99_ms;
    sum->front_cpu += figures->front_cpu;
    sum->redis_cpu += figures->redis_cpu;
    sum->database_cpu += figures->database_cpu;
    sum->commands += figures->commands;
    sum->bytes += figures->bytes;
}

/* Names and sentences are our own, and have nothing in them but quotes and "<". */
static void report_text(struct buffer *out, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '<')
            buffer_append_text(out, "&lt;");
        else
            buffer_append(out, text, 1);
}

static void report_count(struct buffer *out, int64_t number)
{
    buffer_printf(out, "<td class=%s>%lld", number == 0 ? "zero" : "bad", (long long)number);
}

static void report_anomalies(struct buffer *out, const struct lab_result *results, size_t count)
{
    buffer_append_text(out, "<h2>What went wrong</h2><div class=wide><table><tr><th>design<th>"
                            "rounds<th>told yes<th>rows");
#define PRINT(field, json, heading, words) buffer_printf(out, "<th title='%s'>%s", words, heading);
    LAB_ANOMALIES(PRINT)
#undef PRINT
    for (size_t i = 0; i < count; i++) {
        const struct lab_result *result = &results[i];
        bool is_right = result->right == result->rounds;
        buffer_printf(out, "<tr><td>%s <span class=%s>%s</span><td>%d<td>%lld<td>%lld",
                      result->contestant->name, is_right ? "right" : "wrong",
                      is_right ? "right" : "wrong", result->rounds, (long long)result->sum.yes,
                      (long long)result->sum.rows);
#define PRINT(field, json, heading, words) report_count(out, result->sum.field);
        LAB_ANOMALIES(PRINT)
#undef PRINT
    }
    buffer_append_text(out, "</table></div><p class=note>");
#define PRINT(field, json, heading, words) buffer_printf(out, "<b>%s</b>: %s. ", heading, words);
    LAB_ANOMALIES(PRINT)
#undef PRINT
    buffer_append_text(out, "</p>");
}

static void report_reasons(struct buffer *out, const struct lab_result *results, size_t count)
{
    buffer_append_text(out, "<h2>Which commands, and what they lead to</h2><div class=wide><table>"
                            "<tr><th>design<th style='text-align:left'>commands"
                            "<th style='text-align:left'>known to");
    for (size_t i = 0; i < count; i++) {
        const struct lab_contestant *contestant = results[i].contestant;
        const struct lab_strategy *strategy = contestant->strategy;
        buffer_printf(out, "<tr><td>%s<td class=words><code>", contestant->name);
        if (strategy == NULL)
            buffer_printf(out, "gate=%s, ack=%s", contestant->gate, contestant->ack);
        else
            report_text(out, strategy->commands);
        buffer_append_text(out, "</code><td class=words>");
        report_text(out, strategy != NULL && strategy->flaw != NULL ? strategy->flaw
                                                                    : "nothing that a run shows");
    }
    buffer_append_text(out, "</table></div>");
}

/* One bar for each design, of up to three parts. */
static void report_bars(struct buffer *out, const struct lab_result *results, size_t count,
                        const char *heading, const char *note, const char *unit,
                        void (*parts_of)(const struct lab_result *, double parts[3]))
{
    double most = 0, parts[3];
    for (size_t i = 0; i < count; i++) {
        parts_of(&results[i], parts);
        if (parts[0] + parts[1] + parts[2] > most)
            most = parts[0] + parts[1] + parts[2];
    }
    buffer_printf(out, "<h2>%s</h2><p class='note key'>%s</p><div class=bars>", heading, note);
    for (size_t i = 0; i < count; i++) {
        parts_of(&results[i], parts);
        buffer_printf(out, "<span>%s</span><span class=track>", results[i].contestant->name);
        for (int j = 0; j < 3; j++)
            buffer_printf(out, "<i class=%c style='width:%.2f%%'></i>", 'a' + j,
                          most > 0 ? 100 * parts[j] / most : 0);
        buffer_printf(out, "</span><span>%.*f %s</span>",
                      parts[0] + parts[1] + parts[2] < 10 ? 1 : 0, parts[0] + parts[1] + parts[2],
                      unit);
    }
    buffer_append_text(out, "</div>");
}

static void report_latency(const struct lab_result *result, double parts[3])
{
    parts[0] = result->sum.p50_ms / result->rounds;
    parts[1] = (result->sum.p99_ms - result->sum.p50_ms) / result->rounds;
    parts[2] = 0;
}

static void report_delay(const struct lab_result *result, double parts[3])
{
    parts[0] = result->sum.row_p99_ms / result->rounds;
    parts[1] = parts[2] = 0;
}

static void report_cpu(const struct lab_result *result, double parts[3])
{
    parts[0] = result->sum.front_cpu / result->rounds;
    parts[1] = result->sum.redis_cpu / result->rounds;
    parts[2] = result->sum.database_cpu / result->rounds;
}

void lab_report(struct buffer *out, const struct lab_result *results, size_t count,
                const struct lab_setting *setting)
{
    char today[CLOCK_TEXT_SIZE];
    clock_format_rfc3339(clock_wall_ms(), today);
    buffer_append_text(out, HEAD);
    buffer_printf(
        out,
        "<h1>Handing out coupons: which way is right, by how much</h1>"
        "<p>%lld coupons for %u people, %u %% of whom press twice; %zu connections, %u at "
        "once every %d ms; %d server%s; fault: %s. %.10s, a machine with %ld cores; times "
        "are those of that machine and tell the designs apart, no more.</p>",
        (long long)setting->knobs.total, setting->shape.users, setting->shape.duplicates,
        setting->shape.connections, setting->shape.burst, setting->shape.every_ms, setting->fronts,
        setting->fronts > 1 ? "s" : "", lab_fault_names[setting->fault], today,
        sysconf(_SC_NPROCESSORS_ONLN));
    report_anomalies(out, results, count);
    report_reasons(out, results, count);
    report_bars(out, results, count, "How long an answer takes",
                "<i class=a></i>half of the people <i class=b></i>99 of 100", "ms", report_latency);
    report_bars(out, results, count, "How long after the answer the row is there",
                "<i class=a></i>99 of 100", "ms", report_delay);
    report_bars(out, results, count, "CPU seconds per million presses",
                "<i class=a></i>servers and worker <i class=b></i>Redis <i class=c></i>database",
                "s", report_cpu);
    buffer_append_text(out, "</html>\n");
}
