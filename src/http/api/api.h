/* api.h: the HTTP API of dibs on top of the server: who may, what was asked, what to answer.
 *
 * It owns what belongs to each loop (desk, JSON reader, counters, streams) and hands the server the
 * callbacks that use them. Claims go through the loop's desk; everything else that touches the
 * ledger goes to a pool thread and comes back to its loop.
 *
 * Order of life: api_open, http_server_open with api_callbacks, api_attach, http_server_run, then
 * api_stop, then service_close (which ends the pool threads), then api_close, then
 * http_server_close.
 *
 * Threads: open, attach and close on one thread while no loop runs.
 */
#pragma once

#include "base/error.h"
#include "claim/service.h"
#include "config/config.h"
#include "http/server/proxy.h"
#include "http/server/server.h"

struct api;

/* All of it, or only what watches over a process: /healthz, /readyz and /metrics. */
enum api_extent { API_WHOLE, API_WATCHED };

/* All that it names is borrowed until api_close(). */
struct api_options {
    struct service *service;
    const struct config *config;
    enum api_extent extent;
    unsigned threads;    /* the number of loops */
    struct api *watched; /* whose metrics to show; NULL: its own */
};
enum status api_open(struct api **api, const struct api_options *options,
                     struct error *error) MUST_CHECK;

/* For http_options.callbacks; the server_context is the api. */
struct http_callbacks api_callbacks(void);

/* The proxies whose word counts; the api's. */
const struct proxies *api_proxies(const struct api *api);

/* The server that runs it, for its counters and to know when it stops. */
void api_attach(struct api *api, struct http_server *server);

/* Takes the tokens and the users' key as these settings have them; who has begun is answered by the
 * old ones. On any thread, one at a time. CONFLICT: not the same kinds are set. */
enum status api_reload(struct api *api, const struct config *config,
                       struct error *error) MUST_CHECK;

/* Ends what works beside the loops: when they have ended, and before the service closes. */
void api_stop(struct api *api);
void api_close(struct api *api);
