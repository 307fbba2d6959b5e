/* report.c: the page: the verdict, all of it at a glance, what each design costs, and which
 * commands failed and why. */
#include "lab/report.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"

#define PARTS 4 /* of a bar */

static const char HEAD[] =
    "<!doctype html><html lang=en><meta charset=utf-8>"
    "<meta name=viewport content='width=device-width,initial-scale=1'>"
    "<title>Handing out coupons: which way is right, by how much</title><style>"
    ":root{color-scheme:light dark;--ink:#1c2530;--soft:#55636f;--back:#fff;--card:#f6f8fa;"
    "--line:#dde3ea;--good:#0a6b44;--goodback:#d8efe3;--bad:#b3261e;--badback:#c0392f;"
    "--a:#3b6ea8;--b:#c77d1a;--c:#7a5aa6;--d:#4d8f8b}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6ebf1;--soft:#9aa8b6;--back:#12171d;"
    "--card:#1a2129;--line:#2b343e;--good:#5fd39c;--goodback:#173a2b;--bad:#ff8f85;"
    "--badback:#b8443a;--a:#6ea8e6;--b:#e0a458;--c:#b195dd;--d:#6fbdb7}}"
    "*{box-sizing:border-box}body{font:16px/1.5 system-ui,-apple-system,'Segoe UI',sans-serif;"
    "color:var(--ink);background:var(--back);margin:0 auto;max-width:74rem;padding:1.5rem 1.2rem "
    "4rem}"
    "h1{font-size:1.7rem;line-height:1.2;margin:.3rem 0 .6rem}h2{font-size:1.2rem;margin:2.6rem 0 "
    ".4rem}"
    ".note,.soft{color:var(--soft)}.note{margin:.2rem 0 "
    "1rem;max-width:60rem}.lead{font-size:1.1rem;"
    "max-width:60rem}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:.86rem}"
    "th{font-weight:600}code{font-size:.86em;overflow-wrap:anywhere}"
    ".map{border-collapse:separate;border-spacing:2px}.map td{height:1.6rem;min-width:2.4rem;"
    "text-align:center;border-radius:3px;padding:0 .2rem}.map th.name{position:sticky;left:0;"
    "background:var(--back);text-align:left;font-weight:500;padding-right:.7rem;white-space:nowrap}"
    ".map th.group{color:var(--soft);font-weight:650;padding-top:.7rem}"
    ".map th.head{height:9rem;vertical-align:bottom;padding:0}.map th.head span{display:block;"
    "writing-mode:vertical-rl;transform:rotate(180deg);max-height:9rem;margin:0 auto;"
    "font-weight:500;line-height:1.15}.yes{background:var(--goodback);color:var(--good)}"
    ".no{background:var(--badback);color:#fff;font-weight:650}.map td.cost{text-align:right;"
    "white-space:nowrap;padding-left:.8rem;font-variant-numeric:tabular-nums}"
    ".bars{display:grid;grid-template-columns:9.5rem 1fr 5rem;gap:.25rem .8rem;align-items:center;"
    "font-size:.88rem}.bars b{font-weight:500;text-align:right;font-variant-numeric:tabular-nums}"
    ".track{display:flex;height:.95rem}.track i{display:block;min-width:1px}.track i:first-child{"
    "border-radius:2px 0 0 "
    "2px}.a{background:var(--a)}.b{background:var(--b)}.c{background:var(--c)}"
    ".d{background:var(--d)}.key "
    "i{display:inline-block;width:.75rem;height:.75rem;border-radius:2px;"
    "margin:0 .3rem 0 1rem}.key i:first-child{margin-left:0}"
    ".cards{columns:2 26rem;column-gap:1rem}.card{break-inside:avoid;margin:0 0 1rem}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.9rem "
    "1.1rem}"
    ".card h3{margin:0 0 "
    ".3rem;font-size:1.02rem;display:flex;justify-content:space-between;gap:1rem}"
    ".card ul{margin:.6rem 0 0;padding-left:1.1rem}.card li{margin:.35rem "
    "0}.good{color:var(--good)}"
    ".wrong{color:var(--bad)}dl{display:grid;grid-template-columns:minmax(8rem,14rem) 1fr;"
    "gap:.3rem "
    "1.2rem}dt{font-weight:600}dd{margin:0}details{margin-top:1rem}summary{cursor:pointer}"
    ".all td,.all th{padding:.25rem .5rem;border-bottom:1px solid var(--line);text-align:right;"
    "white-space:nowrap;font-variant-numeric:tabular-nums}.all td:first-child,.all th:first-child{"
    "text-align:left}@media(max-width:600px){body{padding:1rem .9rem 3rem}h1{font-size:1.35rem}"
    ".bars{grid-template-columns:7.6rem 1fr 4.2rem;gap:.2rem .5rem;font-size:.8rem}"
    "dl{grid-template-columns:1fr}dd{margin-bottom:.6rem}.map td{min-width:2rem}}"
    "@media print{.card{break-inside:avoid}}</style>";

void lab_text(struct buffer *out, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '<')
            buffer_append_text(out, "&lt;");
        else if (*text == '&')
            buffer_append_text(out, "&amp;");
        else
            buffer_append(out, text, 1);
}

/* --- the verdict --- */

/* The names of those for which nothing, or something, went wrong; how many there are. */
static int report_names(struct buffer *out, const struct lab_book *book, bool is_dibs,
                        bool is_right)
{
    int count = 0;
    for (size_t i = 0; i < book->contestant_count; i++) {
        int run, right;
        lab_book_judge(book, i, &run, &right);
        if ((book->contestants[i]->strategy == NULL) != is_dibs || (run == right) != is_right)
            continue;
        buffer_printf(out, "%s<b>", count++ > 0 ? ", " : "");
        lab_text(out, book->contestants[i]->name);
        buffer_append_text(out, "</b>");
    }
    return count;
}

static void report_verdict(struct buffer *out, const struct lab_book *book)
{
    char today[CLOCK_TEXT_SIZE];
    struct utsname machine;
    double memory_gb = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGE_SIZE) / 1e9;
    clock_format_rfc3339(clock_wall_ms(), today);
    ensure(uname(&machine) == 0);
    buffer_append_text(out, "<h1>Handing out coupons: which way is right, by how much</h1>"
                            "<p class=lead>Right in everything they were put through: ");
    int count = report_names(out, book, false, true);
    if (count == 0)
        buffer_append_text(out, "none of the designs that teams write");
    buffer_append_text(out, "; and of dibs ");
    if (report_names(out, book, true, true) == 0)
        buffer_append_text(out, "none");
    buffer_append_text(out, ".</p>");
    buffer_printf(out,
                  "<p class=note>%.10s, a machine with %ld cores (%s) and %.0f GB, everything on "
                  "it: crowd, servers, Redis, PostgreSQL, Kafka. %d round%s of each run, the first "
                  "with seed %llu; designs in turn, fresh servers for each run. Times are those of "
                  "this machine: they tell the designs apart, no more.</p>",
                  today, sysconf(_SC_NPROCESSORS_ONLN), machine.machine, memory_gb, book->rounds,
                  book->rounds > 1 ? "s" : "", (unsigned long long)book->seed);
}

/* --- at a glance --- */

static double report_cpu_sum(const struct lab_result *result)
{
    const struct lab_figures *sum = &result->sum;
    return (sum->front_cpu + sum->redis_cpu + sum->database_cpu + sum->broker_cpu) / result->rounds;
}

static void report_cell(struct buffer *out, const struct lab_result *result)
{
    char words[256];
    long long wrong = (long long)lab_figures_wrong(&result->sum);
    if (result->rounds == 0) {
        buffer_append_text(out, "<td>");
        return;
    }
    lab_result_tell(result, words, sizeof(words));
    for (char *quote = strchr(words, '"'); quote != NULL; quote = strchr(quote, '"'))
        *quote = '\'';
    buffer_printf(out, "<td class=%s title=\"%s\">", wrong > 0 ? "no" : "yes", words);
    if (wrong > 0)
        buffer_printf(out, "%lld", wrong);
    else
        buffer_append_text(out, "✓");
}

static void report_map(struct buffer *out, const struct lab_book *book)
{
    buffer_append_text(out,
                       "<h2>At a glance</h2><p class=note>✓: nothing went wrong. A number: how "
                       "many coupons and people it went wrong for. Empty: it does not concern "
                       "this design.</p><div class=wide><table class=map><tr><th class=name>");
    for (size_t i = 0; i < book->scenario_count; i++) {
        buffer_append_text(out, "<th class=head><span>");
        lab_text(out, book->scenarios[i]->title);
        buffer_append_text(out, "</span>");
    }
    buffer_append_text(out, "<th class=head><span>99 of 100 answers within</span>"
                            "<th class=head><span>CPU seconds per million</span>");
    for (size_t j = 0; j < book->contestant_count; j++) {
        const struct lab_contestant *one = book->contestants[j];
        const struct lab_result *first = &book->results[0][j];
        if (j == 0 || strcmp(one->group, book->contestants[j - 1]->group) != 0)
            buffer_printf(out, "<tr><th class='name group'>%s", one->group);
        buffer_printf(out, "<tr><th class=name>%s", one->name);
        for (size_t i = 0; i < book->scenario_count; i++)
            report_cell(out, &book->results[i][j]);
        if (first->rounds > 0)
            buffer_printf(out, "<td class=cost>%.0f ms<td class=cost>%.0f s",
                          first->sum.p99_ms / first->rounds, report_cpu_sum(first));
    }
    buffer_append_text(out, "</table></div>");
}

/* --- costs --- */

static void report_answers(const struct lab_figures *sum, double parts[PARTS])
{
    parts[0] = sum->p50_ms;
    parts[1] = sum->p99_ms - sum->p50_ms;
}

static void report_rows(const struct lab_figures *sum, double parts[PARTS])
{
    parts[0] = sum->row_p50_ms;
    parts[1] = sum->row_p99_ms - sum->row_p50_ms;
}

static void report_cpu(const struct lab_figures *sum, double parts[PARTS])
{
    parts[0] = sum->front_cpu;
    parts[1] = sum->redis_cpu;
    parts[2] = sum->database_cpu;
    parts[3] = sum->broker_cpu;
}

static void report_commands(const struct lab_figures *sum, double parts[PARTS])
{
    parts[0] = sum->commands;
}

struct report_chart {
    const char *title, *key, *unit;
    void (*parts_of)(const struct lab_figures *, double parts[PARTS]);
};

static double report_parts(const struct report_chart *chart, const struct lab_result *result,
                           double parts[PARTS])
{
    double sum = 0;
    for (int i = 0; i < PARTS; i++)
        parts[i] = 0;
    chart->parts_of(&result->sum, parts);
    for (int i = 0; i < PARTS; i++)
        sum += parts[i] /= result->rounds > 0 ? result->rounds : 1;
    return sum;
}

static void report_bars(struct buffer *out, const struct lab_book *book, size_t scenario,
                        const struct report_chart *chart)
{
    double most = 0, parts[PARTS];
    for (size_t i = 0; i < book->contestant_count; i++) {
        double sum = report_parts(chart, &book->results[scenario][i], parts);
        most = sum > most ? sum : most;
    }
    buffer_printf(out, "<h2>%s", chart->title);
    if (scenario > 0) {
        buffer_append_text(out, ": ");
        lab_text(out, book->scenarios[scenario]->title);
    }
    buffer_printf(out, "</h2><p class='note key'>%s<br>", chart->key);
    lab_text(out, book->scenarios[scenario]->words);
    buffer_append_text(out, "</p><div class=bars>");
    for (size_t i = 0; i < book->contestant_count; i++) {
        if (book->results[scenario][i].rounds == 0)
            continue;
        double sum = report_parts(chart, &book->results[scenario][i], parts);
        buffer_printf(out, "<span>%s</span><span class=track>", book->contestants[i]->name);
        for (int j = 0; j < PARTS; j++)
            if (parts[j] > 0)
                buffer_printf(out, "<i class=%c style='width:%.2f%%'></i>", 'a' + j,
                              most > 0 ? 100 * parts[j] / most : 0);
        buffer_printf(out, "</span><b>%.*f %s</b>", sum < 10 ? 1 : 0, sum, chart->unit);
    }
    buffer_append_text(out, "</div>");
}

static const struct report_chart answers = {
    "How long an answer takes", "<i class=a></i>half of the people <i class=b></i>99 of 100", "ms",
    report_answers};

static void report_costs(struct buffer *out, const struct lab_book *book)
{
    static const struct report_chart charts[] = {
        {"How long after the answer the row is there",
         "<i class=a></i>half of the winners <i class=b></i>99 of 100", "ms", report_rows},
        {"CPU seconds per million presses",
         "<i class=a></i>servers and worker <i class=b></i>Redis <i class=c></i>database "
         "<i class=d></i>broker",
         "s", report_cpu},
        {"Commands that Redis hears, per press", "<i class=a></i>commands", "", report_commands},
    };
    report_bars(out, book, 0, &answers);
    for (size_t i = 1; i < book->scenario_count; i++)
        if (book->settings[i].latency_ms > 0)
            report_bars(out, book, i, &answers);
    for (size_t i = 0; i < sizeof(charts) / sizeof(*charts); i++)
        report_bars(out, book, 0, &charts[i]);
}

/* --- why --- */

static bool report_is_same(const char *why, const char *other)
{
    return why == other || (why != NULL && other != NULL && strcmp(why, other) == 0);
}

/* What one scenario shows for that reason: "oversold 90, overtold 90 in “…”". */
static bool report_shown(struct buffer *out, const struct lab_book *book, size_t contestant,
                         size_t scenario, const char *why, bool is_first)
{
    int count = 0;
    for (int kind = 0; kind < LAB_WRONGS; kind++) {
        long long found = (long long)lab_figures_of(&book->results[scenario][contestant].sum,
                                                    (enum lab_wrong)kind);
        if (found == 0 ||
            !report_is_same(lab_book_why(book, scenario, contestant, (enum lab_wrong)kind), why))
            continue;
        buffer_printf(out, "%s%s %lld",
                      count++ > 0 ? ", "
                      : is_first  ? "<b class=wrong>"
                                  : "; <b class=wrong>",
                      lab_wrong_headings[kind], found);
    }
    if (count == 0)
        return false;
    buffer_append_text(out, "</b> in “");
    lab_text(out, book->scenarios[scenario]->title);
    buffer_append_text(out, "”");
    return true;
}

/* One reason with all that it leads to. */
static void report_reason(struct buffer *out, const struct lab_book *book, size_t contestant,
                          size_t scenario, const char *why)
{
    bool is_first = true;
    buffer_append_text(out, "<li>");
    for (size_t i = scenario; i < book->scenario_count; i++)
        if (report_shown(out, book, contestant, i, why, is_first))
            is_first = false;
    buffer_append_text(out, ". ");
    if (why != NULL)
        lab_text(out, why);
    else
        buffer_printf(
            out,
            "Nothing here explains this: <code>--scenario %s --only %s --seed %llu</code> "
            "runs it again.",
            book->scenarios[scenario]->name, book->contestants[contestant]->name,
            (unsigned long long)book->seed);
}

/* Every reason once, where it is met first. */
static void report_reasons(struct buffer *out, const struct lab_book *book, size_t contestant)
{
    const char *told[LAB_SCENARIOS_MAX * LAB_WRONGS];
    size_t told_count = 0;
    for (size_t i = 0; i < book->scenario_count; i++)
        for (int kind = 0; kind < LAB_WRONGS; kind++) {
            const char *why = lab_book_why(book, i, contestant, (enum lab_wrong)kind);
            bool is_told =
                lab_figures_of(&book->results[i][contestant].sum, (enum lab_wrong)kind) == 0;
            for (size_t j = 0; j < told_count; j++)
                is_told |= report_is_same(told[j], why);
            if (is_told)
                continue;
            told[told_count++] = why;
            report_reason(out, book, contestant, i, why);
        }
}

static void report_card(struct buffer *out, const struct lab_book *book, size_t contestant)
{
    const struct lab_contestant *one = book->contestants[contestant];
    int run, right;
    lab_book_judge(book, contestant, &run, &right);
    buffer_printf(out, "<div class=card><h3>%s <span class=%s>right in %d of %d</span></h3><code>",
                  one->name, run == right ? "good" : "wrong", right, run);
    if (one->strategy != NULL)
        lab_text(out, one->strategy->commands);
    else
        buffer_printf(out, "gate=%s, ack=%s%s", one->gate, one->ack,
                      one->has_kafka ? ", relay=kafka" : "");
    buffer_append_text(out, "</code>");
    if (run != right) {
        buffer_append_text(out, "<ul>");
        report_reasons(out, book, contestant);
        buffer_append_text(out, "</ul>");
    }
    buffer_append_text(out, "</div>");
}

static void report_words(struct buffer *out, const struct lab_book *book)
{
    buffer_append_text(out, "<h2>Which commands failed, and why</h2><div class=cards>");
    for (size_t i = 0; i < book->contestant_count; i++)
        report_card(out, book, i);
    buffer_append_text(out, "</div><h2>What was done to them</h2><dl>");
    for (size_t i = 0; i < book->scenario_count; i++) {
        buffer_append_text(out, "<dt>");
        lab_text(out, book->scenarios[i]->title);
        buffer_append_text(out, "<dd>");
        lab_text(out, book->scenarios[i]->words);
    }
    buffer_append_text(out, "</dl><h2>What was counted</h2><dl>");
    for (int i = 0; i < LAB_WRONGS; i++)
        buffer_printf(out, "<dt>%s<dd>%s", lab_wrong_headings[i], lab_wrong_words[i]);
    buffer_append_text(out, "</dl>");
}

/* --- every number --- */

static void report_numbers(struct buffer *out, const struct lab_book *book)
{
    buffer_append_text(out, "<h2>Every number</h2><p class=note>Counts are of all rounds together, "
                            "measures their mean. CPU is in seconds per million presses, Redis's "
                            "commands and bytes are per press.</p>");
    for (size_t i = 0; i < book->scenario_count; i++) {
        buffer_append_text(out, "<details><summary>");
        lab_text(out, book->scenarios[i]->title);
        buffer_append_text(out, "</summary><div class=wide><table class=all><tr><th>design"
                                "<th>presses<th>yes<th>rows");
        for (int kind = 0; kind < LAB_WRONGS; kind++)
            buffer_printf(out, "<th>%s", lab_wrong_headings[kind]);
#define PRINT(field) buffer_append_text(out, "<th>" #field);
        LAB_MEASURES(PRINT)
#undef PRINT
        for (size_t j = 0; j < book->contestant_count; j++) {
            const struct lab_result *result = &book->results[i][j];
            if (result->rounds == 0)
                continue;
            buffer_printf(out, "<tr><td>%s<td>%lld<td>%lld<td>%lld", book->contestants[j]->name,
                          (long long)result->sum.presses, (long long)result->sum.yes,
                          (long long)result->sum.rows);
            for (int kind = 0; kind < LAB_WRONGS; kind++)
                buffer_printf(out, "<td>%lld",
                              (long long)lab_figures_of(&result->sum, (enum lab_wrong)kind));
#define PRINT(field) buffer_printf(out, "<td>%.1f", result->sum.field / result->rounds);
            LAB_MEASURES(PRINT)
#undef PRINT
        }
        buffer_append_text(out, "</table></div></details>");
    }
}

void lab_report(struct buffer *out, const struct lab_book *book)
{
    buffer_append_text(out, HEAD);
    report_verdict(out, book);
    report_map(out, book);
    report_costs(out, book);
    report_words(out, book);
    report_numbers(out, book);
    buffer_append_text(out, "</html>\n");
}
