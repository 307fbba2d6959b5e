/* pages.c: what only a new version changes: the API's description, the problems' pages, and the
 * board, the storefront and their assets. */
#include "http/pages/pages.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "embedded_assets.h"
#include "embedded_web.h"
#include "http/api/handlers.h"
#include "http/api/problem.h"
#include "http/api/reply.h"
#include "http/server/header.h"

/* Room for the pictures of the shop file. */
#define ASSETS_MORE 3

/* Its few styles are in it. */
#define PROBLEM_PAGE_POLICY                                                         \
    SPAN("Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; " \
         "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n")

/* --- files and their forms --- */

static const struct {
    const char *suffix;
    struct span name;
} assets_codings[ASSET_CODING_COUNT] = {
    [ASSET_PLAIN] = {"", {"identity", 8}},
    [ASSET_GZIP] = {".gz", {"gzip", 4}},
    [ASSET_BROTLI] = {".br", {"br", 2}},
};

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);
    size_t end_length = strlen(end);
    return length >= end_length && strcmp(name + length - end_length, end) == 0;
}

static struct span content_type_of(const char *name)
{
    static const struct {
        const char *end;
        const char *type;
    } types[] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".woff2", "font/woff2"},
    };
    for (size_t index = 0; index < sizeof(types) / sizeof(types[0]); index++)
        if (ends_with(name, types[index].end))
            return span_of(types[index].type);
    return SPAN("application/octet-stream");
}

static struct asset_form form_of(const struct embedded_file *file)
{
    struct asset_form form = {.body = {(const char *)file->bytes, file->length}};
    uint64_t hash = hash_mac((struct hash_key){0, 0}, form.body.bytes, form.body.length);
    snprintf(form.etag, sizeof(form.etag), "\"%016" PRIx64 "\"", hash);
    return form;
}

static const struct embedded_file *find_file(const struct embedded_file *files, size_t count,
                                             const char *name, const char *suffix)
{
    size_t length = strlen(name);
    for (size_t index = 0; index < count; index++)
        if (strncmp(files[index].name, name, length) == 0 &&
            strcmp(files[index].name + length, suffix) == 0)
            return &files[index];
    return NULL;
}

enum status assets_open(struct assets *assets, const struct embedded_file *files, size_t count,
                        struct error *error)
{
    *assets = (struct assets){.items = calloc(count + ASSETS_MORE, sizeof(struct asset))};
    if (assets->items == NULL)
        return error_set(error, STATUS_FAILED, "no memory for the pages");
    for (size_t index = 0; index < count; index++) {
        const char *name = files[index].name;
        if (ends_with(name, assets_codings[ASSET_GZIP].suffix) ||
            ends_with(name, assets_codings[ASSET_BROTLI].suffix))
            continue;
        struct asset *asset = &assets->items[assets->count++];
        *asset = (struct asset){.name = name, .content_type = content_type_of(name)};
        for (unsigned coding = 0; coding < ASSET_CODING_COUNT; coding++) {
            const struct embedded_file *file =
                find_file(files, count, name, assets_codings[coding].suffix);
            if (file != NULL)
                asset->forms[coding] = form_of(file);
        }
    }
    return STATUS_OK;
}

void assets_close(struct assets *assets)
{
    free(assets->items);
    *assets = (struct assets){0};
}

const struct asset *assets_find(const struct assets *assets, struct span name)
{
    for (size_t index = 0; index < assets->count; index++)
        if (span_equal(span_of(assets->items[index].name), name))
            return &assets->items[index];
    return NULL;
}

/* RFC 9110 12.5.3: what is not named is taken as "*" says, and the plain form unless refused. */
static int quality_of(struct span accept_encoding, enum asset_coding coding)
{
    int quality = header_quality(accept_encoding, assets_codings[coding].name);
    if (quality < 0)
        quality = header_quality(accept_encoding, SPAN("*"));
    /* Taken, but less gladly than anything that is named. */
    return quality < 0 && coding == ASSET_PLAIN ? 1 : quality;
}

enum asset_coding asset_choose(const struct asset *asset, struct span accept_encoding)
{
    enum asset_coding chosen = ASSET_PLAIN;
    if (accept_encoding.bytes == NULL)
        return chosen;
    int best = quality_of(accept_encoding, ASSET_PLAIN);
    for (unsigned coding = ASSET_GZIP; coding < ASSET_CODING_COUNT; coding++) {
        int quality = quality_of(accept_encoding, (enum asset_coding)coding);
        if (asset->forms[coding].body.bytes != NULL && quality > 0 && quality >= best) {
            chosen = (enum asset_coding)coding;
            best = quality;
        }
    }
    return chosen;
}

static void add_asset(struct assets *assets, const char *name, const struct buffer *bytes)
{
    const struct embedded_file file = {
        .name = name, .bytes = (const unsigned char *)bytes->bytes, .length = bytes->length};
    if (name[0] != '\0')
        assets->items[assets->count++] = (struct asset){.name = name,
                                                        .content_type = content_type_of(name),
                                                        .forms = {[ASSET_PLAIN] = form_of(&file)}};
}

/* The storefront's page with the shop's own head in the place of ours, which is its title and icon.
 */
static void brand_storefront(struct api *api)
{
    struct asset *shell = (struct asset *)(uintptr_t)assets_find(&api->assets, SPAN("drop.html"));
    if (shell == NULL || api->shop.head.length == 0)
        return;
    const char *page = shell->forms[ASSET_PLAIN].body.bytes;
    size_t length = shell->forms[ASSET_PLAIN].body.length;
    const char *from = memmem(page, length, "<title>", 7);
    const char *end =
        from != NULL ? memmem(from, length - (size_t)(from - page), "data:,\">\n", 9) : NULL;
    ensure(end != NULL);
    buffer_init(&api->storefront, 64 * 1024);
    buffer_append(&api->storefront, page, (size_t)(from - page));
    buffer_append_span(&api->storefront, buffer_span(&api->shop.head));
    buffer_append(&api->storefront, end + 9, length - (size_t)(end + 9 - page));
    const struct embedded_file file = {.name = shell->name,
                                       .bytes = (const unsigned char *)api->storefront.bytes,
                                       .length = api->storefront.length};
    memset(shell->forms, 0, sizeof(shell->forms));
    shell->forms[ASSET_PLAIN] = form_of(&file);
}

enum status pages_open(struct api *api, struct error *error)
{
    const struct embedded_file *document =
        find_file(embedded_assets, embedded_assets_count, "openapi.json", "");
    ensure(document != NULL);
    api->openapi = form_of(document);
    enum status status = shop_open(&api->shop, api->config->shop_file, error);
    if (status == STATUS_OK)
        status = assets_open(&api->assets, embedded_web, embedded_web_count, error);
    if (status != STATUS_OK)
        return status;
    add_asset(&api->assets, api->shop.logo.name, &api->shop.logo.bytes);
    add_asset(&api->assets, api->shop.icon.name, &api->shop.icon.bytes);
    brand_storefront(api);
    return STATUS_OK;
}

void pages_close(struct api *api)
{
    assets_close(&api->assets);
    shop_close(&api->shop);
    buffer_release(&api->storefront);
}

/* --- the API and its problems --- */

void pages_openapi(struct ask *ask)
{
    const struct asset_form *document = &ask->loop->api->openapi;
    struct span etag = span_of(document->etag);
    bool known = header_knows_etag(ask->request->if_none_match, etag);
    reply_begin_cached(ask->loop, ask->exchange, known ? 304 : 200, JSON_CONTENT_TYPE, PAGE_CACHE);
    http_answer_header(ask->exchange, SPAN("ETag"), etag);
    http_answer_end(ask->exchange, known ? (struct span){NULL, 0} : document->body);
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

/* --- the board, the storefront and their assets --- */

/* A shell names its assets by their hash: it must be fresh, they never change. */
#define SHELL_CACHE SPAN("no-cache")
#define ASSET_CACHE SPAN("public, max-age=31536000, immutable")

/* Nothing from elsewhere, nothing inline, in nobody's frame. */
#define SHELL_POLICY                                                                             \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src " \
    "'self' data:; "                                                                             \
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'\r\n"

static const char web_absent[] =
    "dibs is running, and was built without its pages (make build WEB=false).\n"
    "With node and npm at hand, `make build` puts them in; scripts/setup build installs both.\n"
    "The API is described at /openapi.json.\n";

#define SHELL_LINES \
    SHELL_POLICY "Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n"

/* The form that the client likes best, or 304 when it has that one. */
static void send_form(struct ask *ask, const struct asset *asset, struct span cache_control,
                      struct span lines)
{
    enum asset_coding coding = asset_choose(asset, ask->request->accept_encoding);
    const struct asset_form *form = &asset->forms[coding];
    bool known = header_knows_etag(ask->request->if_none_match, span_of(form->etag));
    reply_begin_shown(ask->loop, ask->exchange, known ? 304 : 200, asset->content_type,
                      cache_control, lines);
    http_answer_header(ask->exchange, SPAN("ETag"), span_of(form->etag));
    http_answer_header(ask->exchange, SPAN("Vary"), SPAN("Accept-Encoding"));
    http_answer_header(ask->exchange, SPAN("Cross-Origin-Resource-Policy"), SPAN("same-origin"));
    if (coding != ASSET_PLAIN && !known)
        http_answer_header(ask->exchange, SPAN("Content-Encoding"), assets_codings[coding].name);
    http_answer_end(ask->exchange, known ? (struct span){NULL, 0} : form->body);
}

static void send_shell(struct ask *ask, const struct asset *shell)
{
    send_form(ask, shell, SHELL_CACHE, SPAN(SHELL_LINES));
}

/* Without its pages dibs says so where one would be. */
static void send_page(struct ask *ask, struct span name)
{
    const struct asset *shell = assets_find(&ask->loop->api->assets, name);
    if (shell != NULL) {
        send_shell(ask, shell);
        return;
    }
    reply_begin_cached(ask->loop, ask->exchange, 200, SPAN("text/plain; charset=utf-8"),
                       SHELL_CACHE);
    http_answer_end(ask->exchange, span_of(web_absent));
}

void web_board(struct ask *ask)
{
    send_page(ask, SPAN("index.html"));
}

void web_docs(struct ask *ask)
{
    send_page(ask, SPAN("docs.html"));
}

void web_drop(struct ask *ask)
{
    const struct asset *shell = assets_find(&ask->loop->api->assets, SPAN("drop.html"));
    int64_t policy_id;
    if (shell == NULL || !route_policy_id(ask->match.params[0], &policy_id)) {
        reply_problem(ask->loop, ask->exchange, PROBLEM_NOT_FOUND);
        return;
    }
    send_shell(ask, shell);
}

void web_asset(struct ask *ask)
{
    const struct asset *asset = assets_find(&ask->loop->api->assets, ask->match.params[0]);
    /* The shells have addresses of their own, and no hash in their names. */
    if (asset == NULL || span_equal(asset->content_type, SPAN("text/html; charset=utf-8"))) {
        reply_problem(ask->loop, ask->exchange, PROBLEM_NOT_FOUND);
        return;
    }
    send_form(ask, asset, ASSET_CACHE, DATA_POLICY);
}
