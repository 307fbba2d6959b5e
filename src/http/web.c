/* web.c: serves the pages that the binary carries: the board, the storefront and their assets. */
#include "embedded_web.h"
#include "http/handlers.h"
#include "http/header.h"
#include "http/reply.h"

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

enum status web_open(struct api *api, struct error *error)
{
    return assets_open(&api->assets, embedded_web, embedded_web_count, error);
}

void web_close(struct api *api)
{
    assets_close(&api->assets);
}

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
    if (coding != ASSET_PLAIN && !known) {
        http_answer_header(ask->exchange, SPAN("Content-Encoding"), asset_coding_name(coding));
    }
    http_answer_end(ask->exchange, known ? (struct span){NULL, 0} : form->body);
}

static void send_shell(struct ask *ask, const struct asset *shell)
{
    send_form(ask, shell, SHELL_CACHE, SPAN(SHELL_LINES));
}

void web_board(struct ask *ask)
{
    const struct asset *shell = assets_find(&ask->loop->api->assets, SPAN("index.html"));
    if (shell != NULL) {
        send_shell(ask, shell);
        return;
    }
    reply_begin_cached(ask->loop, ask->exchange, 200, SPAN("text/plain; charset=utf-8"),
                       SHELL_CACHE);
    http_answer_end(ask->exchange, span_of(web_absent));
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
