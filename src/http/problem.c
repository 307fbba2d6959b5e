/* problem.c: the words of every refusal, kept in one table. */
#include "http/problem.h"

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
    }

static const struct problem_entry entries[PROBLEM_COUNT] = {
    PROBLEM(SOLD_OUT, 409, "Sold out", "Every coupon of this policy has been handed out.",
            "All units of the policy are taken, and every one of them is in the ledger.",
            "Nothing, unless a coupon is cancelled or the total is raised: then claiming works "
            "again within a second."),
    PROBLEM(LIMIT_REACHED, 409, "Limit reached",
            "This user already holds as many coupons of this policy as one user may.",
            "The user holds per_user_limit active coupons of this policy.",
            "Show the user the coupons they hold: GET /v1/policies/{id}/claims/{user}."),
    PROBLEM(BLOCKED, 403, "Blocked", "This user may not claim.", "An admin has blocked the user.",
            "An admin can lift it with PUT /v1/users/{user} and blocked false."),
    PROBLEM(NO_CLAIM, 404, "No claim", "This user holds no claim of this policy.",
            "Nothing was ever won by this user here. policy_state says how the policy stands, and "
            "sold_out_at since when nothing is left.",
            "Claim, if the policy is OPEN."),
    PROBLEM(POLICY_NOT_FOUND, 404, "No such policy", "There is no policy with this id.",
            "No policy has the id in the path.", "Look it up with GET /v1/policies."),
    PROBLEM(NOT_OPEN, 403, "Not open yet", "Claiming has not begun yet.",
            "The policy's opens_at lies ahead; the answer carries it.",
            "Claim again at opens_at. Retry-After counts the seconds until then."),
    PROBLEM(PAUSED, 403, "Paused", "This policy is paused.",
            "An admin has paused the policy. Claims already won are safe.",
            "Try again later; an admin resumes it with PATCH and paused false."),
    PROBLEM(CLOSED, 410, "Closed", "This policy is closed.",
            "The policy's closes_at has passed, or an admin has closed it.",
            "Nothing: a closed policy gives out no more coupons."),
    PROBLEM(RATE_LIMITED, 429, "Too many requests", "Too many requests in a short time.",
            "This user or this address has used up its allowance of requests.",
            "Wait for the seconds that Retry-After says. A retry with the same Idempotency-Key "
            "never claims twice."),
    PROBLEM(UNAVAILABLE, 503, "Unavailable right now",
            "This cannot be answered right now. Nothing is lost: ask again.",
            "A part that is needed for a truthful answer does not answer: the ledger cannot write, "
            "too much is pending, the server is full or about to stop. If the claim was won after "
            "all, the retry finds it.",
            "Retry after the seconds that Retry-After says, with the same Idempotency-Key. "
            "Operators: /readyz names the part."),
    PROBLEM(INVALID_REQUEST, 400, "Invalid request", "The request is not valid.",
            "The request is malformed, or a field, parameter or header is missing, unknown, "
            "doubled, of the wrong type or out of range. field names it where there is one. "
            "Nothing was changed.",
            "Correct the request; /openapi.json has every range."),
    PROBLEM(UNAUTHORIZED, 401, "Not authorized", "A valid token is needed for this.",
            "The Authorization header is missing, or its token is wrong, expired or not allowed "
            "to do this.",
            "Send Authorization: Bearer with an admin, service or user token, as the call needs."),
    PROBLEM(NOT_FOUND, 404, "Not found", "There is nothing here.",
            "Nothing has this path, or no coupon has this id or code.",
            "Check the path against /openapi.json."),
    PROBLEM(METHOD_NOT_ALLOWED, 405, "Method not allowed", "This path does not take this method.",
            "The path exists, the method does not.", "The Allow header lists what it takes."),
    PROBLEM(CONFLICT, 409, "Conflict", "The present state forbids this.",
            "The id is taken, or the coupon or policy is in a state that forbids the change, or an "
            "order "
            "with that id and other contents is there. detail says which. Nothing was changed.",
            "Read the present state, then decide."),
    PROBLEM(TOO_LARGE, 413, "Body too large", "The body is larger than this call takes.",
            "A body may have 16 KiB, that of a claim 4 KiB.", "Send less."),
    PROBLEM(UNSUPPORTED_MEDIA_TYPE, 415, "Unsupported media type",
            "The body must be application/json in UTF-8.",
            "The Content-Type is missing or is not JSON.", "Send Content-Type: application/json."),
    PROBLEM(URI_TOO_LONG, 414, "Request line too long", "The request line may have 2048 bytes.",
            "Method, path and query together are longer than 2 KiB.", "Shorten the query."),
    PROBLEM(HEADERS_TOO_LARGE, 431, "Headers too large",
            "The headers may have 8192 bytes and 64 lines.",
            "The request has more than 64 headers or more than 8 KiB of them.",
            "Send fewer headers; often it is cookies."),
    PROBLEM(TIMEOUT, 408, "Request too slow", "The request did not arrive in time.",
            "Headers have 5 seconds in all to arrive, a body another 5.",
            "Send the request in one piece."),
    PROBLEM(NOT_IMPLEMENTED, 501, "Not implemented", "This server does not do that part of HTTP.",
            "The method is unknown, or the request carries a Transfer-Encoding.",
            "Send the body with a Content-Length."),
    PROBLEM(VERSION_NOT_SUPPORTED, 505, "HTTP version not supported",
            "This server speaks HTTP/1.1 and HTTP/1.0.",
            "The request line names another version of HTTP.", "Use HTTP/1.1."),
};

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

static void append_name(struct buffer *out, const char *name)
{
    buffer_append_literal(out, ",\"");
    buffer_append_text(out, name);
    buffer_append_literal(out, "\":");
}

void problem_begin(struct buffer *out, enum problem problem, struct span detail)
{
    buffer_append_span(out, problem_entry(problem)->opening);
    problem_add_text(out, "detail", detail);
}

void problem_add_text(struct buffer *out, const char *name, struct span value)
{
    append_name(out, name);
    json_append_text(out, value);
}

void problem_add_integer(struct buffer *out, const char *name, int64_t value)
{
    append_name(out, name);
    buffer_append_i64(out, value);
}

void problem_add_time(struct buffer *out, const char *name, int64_t wall_ms)
{
    append_name(out, name);
    json_append_time(out, wall_ms);
}

void problem_end(struct buffer *out)
{
    buffer_append_literal(out, "}");
}

/* Where `needle` begins in the header, in any case of letters, or its length when nowhere. */
static size_t position_of(struct span text, struct span needle)
{
    for (size_t at = 0; at + needle.length <= text.length; at++) {
        if (strncasecmp(text.bytes + at, needle.bytes, needle.length) == 0) {
            return at;
        }
    }
    return text.length;
}

enum problem_page_format problem_page_format(struct span accept)
{
    if (accept.bytes == NULL) {
        return PROBLEM_PAGE_HTML;
    }
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
    problem_add_integer(out, "status", entry->status);
    problem_add_text(out, "title", span_of(entry->title));
    problem_add_text(out, "meaning", span_of(entry->meaning));
    problem_add_text(out, "remedy", span_of(entry->remedy));
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
    if (format == PROBLEM_PAGE_JSON) {
        append_page_json(out, problem_entry(problem));
    } else {
        append_page_html(out, problem_entry(problem));
    }
}
