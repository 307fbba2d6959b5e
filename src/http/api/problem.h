/* problem.h: the table of everything dibs can refuse with, its RFC 9457 bodies and its pages.
 *
 * A body is {"type":"/problems/SOLD_OUT","title":…,"status":409,"code":"SOLD_OUT","detail":…} and
 * whatever members the caller adds. The body without additions is a constant, so that refusing
 * ten thousand people costs one copy each.
 *
 * Threads: constants only; safe from any.
 */
#pragma once

#include <stdbool.h>

#include "base/buffer.h"
#include "base/verdict.h"

/* What is not said of a claim alone: X(code, status, title, detail, what it means, what to do) */
#define OTHER_PROBLEMS(X)                                                                      \
    X(NO_CLAIM, 404, "No claim", "This user holds no claim of this policy.",                   \
      "Nothing was ever won by this user here. policy_state says how the policy stands, and "  \
      "sold_out_at since when nothing is left.",                                               \
      "Claim, if the policy is OPEN.")                                                         \
    X(NOT_FOUND, 404, "Not found", "There is nothing here.",                                   \
      "Nothing has this path, or no coupon has this id or code.",                              \
      "Check the path against /openapi.json.")                                                 \
    X(METHOD_NOT_ALLOWED, 405, "Method not allowed", "This path does not take this method.",   \
      "The path exists, the method does not.", "The Allow header lists what it takes.")        \
    X(CONFLICT, 409, "Conflict", "The present state forbids this.",                            \
      "The id is taken, or the coupon or policy is in a state that forbids the change, or an " \
      "order "                                                                                 \
      "with that id and other contents is there. detail says which. Nothing was changed.",     \
      "Read the present state, then decide.")                                                  \
    X(TOO_LARGE, 413, "Body too large", "The body is larger than this call takes.",            \
      "A body may have 16 KiB, that of a claim 4 KiB.", "Send less.")                          \
    X(UNSUPPORTED_MEDIA_TYPE, 415, "Unsupported media type",                                   \
      "The body must be application/json in UTF-8.",                                           \
      "The Content-Type is missing or is not JSON.", "Send Content-Type: application/json.")   \
    X(URI_TOO_LONG, 414, "Request line too long", "The request line may have 2048 bytes.",     \
      "Method, path and query together are longer than 2 KiB.", "Shorten the query.")          \
    X(HEADERS_TOO_LARGE, 431, "Headers too large",                                             \
      "The headers may have 8192 bytes and 64 lines.",                                         \
      "The request has more than 64 headers or more than 8 KiB of them.",                      \
      "Send fewer headers; often it is cookies.")                                              \
    X(TIMEOUT, 408, "Request too slow", "The request did not arrive in time.",                 \
      "Headers have 5 seconds in all to arrive, a body another 5.",                            \
      "Send the request in one piece.")                                                        \
    X(NOT_IMPLEMENTED, 501, "Not implemented", "This server does not do that part of HTTP.",   \
      "The method is unknown, or the request carries a Transfer-Encoding.",                    \
      "Send the body with a Content-Length.")                                                  \
    X(VERSION_NOT_SUPPORTED, 505, "HTTP version not supported",                                \
      "This server speaks HTTP/1.1 and HTTP/1.0.",                                             \
      "The request line names another version of HTTP.", "Use HTTP/1.1.")

/* Those that refuse a claim come first, in the order of verdict.h. */
#define PROBLEM_ENUM(CODE, ...) PROBLEM_##CODE,
enum problem { CLAIM_REFUSALS(PROBLEM_ENUM) OTHER_PROBLEMS(PROBLEM_ENUM) PROBLEM_COUNT };

#define PROBLEM_CONTENT_TYPE "application/problem+json"

struct problem_entry {
    const char *code; /* "SOLD_OUT" */
    int status;       /* 409 */
    const char *title;
    const char *meaning; /* for the page: when this is said */
    const char *remedy;  /* for the page: what to do about it */
    struct span opening; /* the JSON up to and with "code", the object still open */
    struct span body;    /* the whole JSON, with the usual detail */
};

const struct problem_entry *problem_entry(enum problem problem);

/* The entry whose code this is, letter for letter; false when there is none. */
bool problem_find(struct span code, enum problem *problem);

/* The whole body with the usual detail: a constant, nothing to build. */
static inline struct span problem_body(enum problem problem)
{
    return problem_entry(problem)->body;
}

static inline int problem_status(enum problem problem)
{
    return problem_entry(problem)->status;
}

/* A body with its own detail, still open: json_put() adds members, the caller closes it. */
void problem_begin(struct buffer *out, enum problem problem, struct span detail);

/* What /problems/{code} shows. */
enum problem_page_format { PROBLEM_PAGE_HTML, PROBLEM_PAGE_JSON };

/* JSON when the Accept header asks for it before it asks for HTML; HTML otherwise. */
enum problem_page_format problem_page_format(struct span accept);

/* One whole page (HTML in light and dark, needing nothing from elsewhere) or one JSON object
 * {"code","status","title","meaning","remedy"}. */
void problem_page(struct buffer *out, enum problem problem, enum problem_page_format format);

/* "text/html; charset=utf-8" or "application/json". */
struct span problem_page_content_type(enum problem_page_format format);
