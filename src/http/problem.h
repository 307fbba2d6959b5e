/* problem.h: the table of everything dibs can refuse with, its RFC 9457 bodies and its pages.
 *
 * A body is {"type":"/problems/SOLD_OUT","title":…,"status":409,"code":"SOLD_OUT","detail":…} and
 * whatever members the caller adds. The body without additions is a constant, so that refusing
 * ten thousand people costs one copy each.
 *
 * Threads: constants only; safe from any.
 */
#ifndef HTTP_PROBLEM_H
#define HTTP_PROBLEM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"

enum problem {
    PROBLEM_SOLD_OUT,
    PROBLEM_LIMIT_REACHED,
    PROBLEM_BLOCKED,
    PROBLEM_NO_CLAIM,
    PROBLEM_POLICY_NOT_FOUND,
    PROBLEM_NOT_OPEN,
    PROBLEM_PAUSED,
    PROBLEM_CLOSED,
    PROBLEM_RATE_LIMITED,
    PROBLEM_UNAVAILABLE,
    PROBLEM_INVALID_REQUEST,
    PROBLEM_UNAUTHORIZED,
    PROBLEM_NOT_FOUND,
    PROBLEM_METHOD_NOT_ALLOWED,
    PROBLEM_CONFLICT,
    PROBLEM_TOO_LARGE,
    PROBLEM_UNSUPPORTED_MEDIA_TYPE,
    PROBLEM_URI_TOO_LONG,
    PROBLEM_HEADERS_TOO_LARGE,
    PROBLEM_TIMEOUT,
    PROBLEM_NOT_IMPLEMENTED,
    PROBLEM_VERSION_NOT_SUPPORTED,
    PROBLEM_COUNT,
};

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

/* A body with its own detail and further members: begin, any number of adds, end. Names are
 * ours and need no escaping; values are escaped. */
void problem_begin(struct buffer *out, enum problem problem, struct span detail);
void problem_add_text(struct buffer *out, const char *name, struct span value);
void problem_add_integer(struct buffer *out, const char *name, int64_t value);
void problem_add_time(struct buffer *out, const char *name, int64_t wall_ms);
void problem_end(struct buffer *out);

/* What /problems/{code} shows. */
enum problem_page_format { PROBLEM_PAGE_HTML, PROBLEM_PAGE_JSON };

/* JSON when the Accept header asks for it before it asks for HTML; HTML otherwise. */
enum problem_page_format problem_page_format(struct span accept);

/* One whole page (HTML in light and dark, needing nothing from elsewhere) or one JSON object
 * {"code","status","title","meaning","remedy"}. */
void problem_page(struct buffer *out, enum problem problem, enum problem_page_format format);

/* "text/html; charset=utf-8" or "application/json". */
struct span problem_page_content_type(enum problem_page_format format);

#endif
