/* problem.c: every refusal as JSON and as a page. */
#include "http/api/problem.h"

#include <strings.h>

#include "base/error.h"
#include "base/json.h"

/* Titles and details go into JSON text as they stand: no quotes, no backslashes in them. */
#define OPENING(CODE, STATUS, TITLE)                                                \
    "{\"type\":\"/problems/" #CODE "\",\"title\":\"" TITLE "\",\"status\":" #STATUS \
    ",\"code\":\"" #CODE "\""

#define PROBLEM(CODE, STATUS, TITLE, DETAIL, MEANING, REMEDY)                                \
    [PROBLEM_##CODE] = {                                                                     \
        .code = #CODE,                                                                       \
        .status = STATUS,                                                                    \
        .title = TITLE,                                                                      \
        .meaning = MEANING,                                                                  \
        .remedy = REMEDY,                                                                    \
        .opening = {OPENING(CODE, STATUS, TITLE), sizeof(OPENING(CODE, STATUS, TITLE)) - 1}, \
        .body = {OPENING(CODE, STATUS, TITLE) ",\"detail\":\"" DETAIL "\"}",                 \
                 sizeof(OPENING(CODE, STATUS, TITLE) ",\"detail\":\"" DETAIL "\"}") - 1},    \
    },

#define REFUSAL(CODE, STATUS, LABEL, LIVE, RUSH, ...) PROBLEM(CODE, STATUS, __VA_ARGS__)
static const struct problem_entry entries[PROBLEM_COUNT] = {CLAIM_REFUSALS(REFUSAL)
                                                                OTHER_PROBLEMS(PROBLEM)};

const struct problem_entry *problem_entry(enum problem problem)
{
    ensure((unsigned)problem < PROBLEM_COUNT);
    return &entries[problem];
}

bool problem_find(struct span code, enum problem *problem)
{
    for (unsigned index = 0; index < PROBLEM_COUNT; index++) {
        if (span_equal(code, span_of(entries[index].code))) {
            *problem = (enum problem)index;
            return true;
        }
    }
    return false;
}

void problem_begin(struct buffer *out, enum problem problem, struct span detail)
{
    buffer_append_span(out, problem_entry(problem)->opening);
    json_put(out, "detail", detail);
}

/* Where `needle` begins in the header, in any case of letters, or its length when nowhere. */
static size_t position_of(struct span text, struct span needle)
{
    for (size_t at = 0; at + needle.length <= text.length; at++)
        if (strncasecmp(text.bytes + at, needle.bytes, needle.length) == 0)
            return at;
    return text.length;
}

enum problem_page_format problem_page_format(struct span accept)
{
    if (accept.bytes == NULL)
        return PROBLEM_PAGE_HTML;
    size_t html = position_of(accept, SPAN("text/html"));
    size_t json = position_of(accept, SPAN("application/json"));
    return json < html ? PROBLEM_PAGE_JSON : PROBLEM_PAGE_HTML;
}

struct span problem_page_content_type(enum problem_page_format format)
{
    return format == PROBLEM_PAGE_JSON ? SPAN("application/json")
                                       : SPAN("text/html; charset=utf-8");
}

static void append_page_json(struct buffer *out, const struct problem_entry *entry)
{
    buffer_append_literal(out, "{");
    json_put(out, "code", entry->code);
    json_put(out, "status", entry->status);
    json_put(out, "title", entry->title);
    json_put(out, "meaning", entry->meaning);
    json_put(out, "remedy", entry->remedy);
    buffer_append_literal(out, "}");
}

/* The table's words have no characters that HTML would read as its own. */
static void append_page_html(struct buffer *out, const struct problem_entry *entry)
{
    buffer_printf(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
        "<meta name=\"color-scheme\" content=\"light dark\">\n"
        "<title>%s: %s</title>\n"
        "<style>\n"
        ":root{color-scheme:light dark}\n"
        "body{font:1.0625rem/1.6 system-ui,sans-serif;max-width:38rem;"
        "margin:12vh auto;padding:0 1.5rem;background:#fff;color:#1b1f24}\n"
        "p.code{font:600 .9375rem ui-monospace,monospace;color:#57606a;margin:0}\n"
        "h1{font-size:2rem;line-height:1.2;margin:.25rem 0 2rem}\n"
        "h2{font-size:1rem;margin:1.5rem 0 .25rem}\n"
        "p{margin:0}\n"
        "a{color:#0550ae}\n"
        "footer{margin-top:3rem;font-size:.9375rem}\n"
        "@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}"
        "p.code{color:#9198a1}a{color:#79c0ff}}\n"
        "</style>\n"
        "<main>\n<p class=\"code\">%d %s</p>\n<h1>%s</h1>\n"
        "<h2>What it means</h2>\n<p>%s</p>\n"
        "<h2>What to do</h2>\n<p>%s</p>\n"
        "<footer><a href=\"/openapi.json\">The whole API</a></footer>\n</main>\n</html>\n",
        entry->code, entry->title, entry->status, entry->code, entry->title, entry->meaning,
        entry->remedy);
}

void problem_page(struct buffer *out, enum problem problem, enum problem_page_format format)
{
    if (format == PROBLEM_PAGE_JSON)
        append_page_json(out, problem_entry(problem));
    else
        append_page_html(out, problem_entry(problem));
}
