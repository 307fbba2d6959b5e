/* pages.c: what only a new version changes: the API's description and the problems' pages. */
#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "embedded_assets.h"
#include "http/handlers.h"
#include "http/header.h"
#include "http/problem.h"
#include "http/reply.h"

/* Its few styles are in it. */
#define PROBLEM_PAGE_POLICY                                                         \
    SPAN("Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; " \
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n")

static struct span find_asset(const char *name)
{
    for (size_t index = 0; index < embedded_assets_count; index++) {
        const struct embedded_file *file = &embedded_assets[index];
        if (strcmp(file->name, name) == 0) {
            return (struct span){(const char *)file->bytes, file->length};
        }
    }
    return (struct span){NULL, 0};
}

void pages_init(struct api *api)
{
    struct span document = find_asset("openapi.json");
    ensure(document.bytes != NULL);
    uint64_t hash = hash_mac((struct hash_key){0, 0}, document.bytes, document.length);
    snprintf(api->etag, sizeof api->etag, "\"%016" PRIx64 "\"", hash);
}

void pages_openapi(struct ask *ask)
{
    struct span etag = span_of(ask->loop->api->etag);
    bool known = header_knows_etag(ask->request->if_none_match, etag);
    reply_begin_cached(ask->loop, ask->exchange, known ? 304 : 200, JSON_CONTENT_TYPE, PAGE_CACHE);
    http_answer_header(ask->exchange, SPAN("ETag"), etag);
    http_answer_end(ask->exchange, known ? (struct span){NULL, 0} : find_asset("openapi.json"));
}

void pages_problem(struct ask *ask)
{
    enum problem problem;
    if (!problem_find(ask->match.params[0], &problem)) {
        reply_problem(ask->loop, ask->exchange, PROBLEM_NOT_FOUND);
        return;
    }
    enum problem_page_format format = problem_page_format(ask->request->accept);
    struct buffer *page = &ask->loop->body;
    buffer_clear(page);
    problem_page(page, problem, format);
    reply_begin_shown(ask->loop, ask->exchange, 200, problem_page_content_type(format), PAGE_CACHE,
                      PROBLEM_PAGE_POLICY);
    http_answer_header(ask->exchange, SPAN("Vary"), SPAN("Accept"));
    http_answer_end(ask->exchange, (struct span){page->bytes, page->length});
}
