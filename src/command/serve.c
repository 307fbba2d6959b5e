/* serve.c: `dibs serve`: settings, service, HTTP server, and an orderly end. */
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "claim/service.h"
#include "command/command.h"
#include "command/notify.h"
#include "command/service.h"
#include "config/config.h"
#include "demo/demo.h"
#include "http/api/api.h"
#include "http/server/server.h"
#include "version.h"

#define THREADS_MAX 256

/* --- options --- */

static unsigned thread_count(const struct config *config)
{
    unsigned wanted = config->threads > 0 ? (unsigned)config->threads : uv_available_parallelism();
    return wanted > THREADS_MAX ? THREADS_MAX : wanted;
}

static struct http_options http_options(const struct config *config, struct api *api)
{
    return (struct http_options){
        .listen = config->listen,
        .threads = thread_count(config),
        .connections_max = (size_t)config->connections_max,
        .connections_per_address = (size_t)config->connections_per_address,
        .proxies = api_proxies(api),
        .unsent_max = (size_t)config->unsent_max_mib * 1024 * 1024,
        .header_timeout_ms = config->header_timeout_ms,
        .body_timeout_ms = config->body_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .write_timeout_ms = config->write_timeout_ms,
        .stop_timeout_ms = config->stop_timeout_ms,
        .callbacks = api_callbacks(),
        .server_context = api,
    };
}

/* --- running --- */

/* On a terminal: what to do now, ready to paste. */
static void say_what_next(const struct config *config, const char *address)
{
    if (!isatty(STDERR_FILENO))
        return;
    const char *token =
        config_has_admin(config) ? " \\\n    -H \"Authorization: Bearer $DIBS_ADMIN_TOKEN\"" : "";
    fprintf(stderr,
            "\ndibs %s listens on http://%s\n\n"
            "  Open http://%s/ to watch%s.\n\n"
            "  Create a policy of 100 coupons:\n"
            "  curl -s http://%s/v1/policies%s \\\n"
            "    -H 'Content-Type: application/json' \\\n"
            "    -d '{\"id\":1,\"name\":\"First\",\"discount\":{\"type\":\"percent\",\"value\":10},"
            "\"total\":100}'\n\n"
            "  Claim one:\n"
            "  curl -s http://%s/v1/policies/1/claims%s \\\n"
            "    -H 'Content-Type: application/json' -d '{\"user\":\"u1\"}'\n\n"
            "  Watch it live:\n"
            "  curl -sN http://%s/v1/policies/1/events\n\n"
            "Ctrl-C stops it in good order.\n\n",
            DIBS_VERSION, address, address,
            config->demo == CONFIG_ON ? ": a demo drop opens in 5 seconds" : "", address, token,
            address, token, address);
}

/* What runs, and who is told about it. */
struct serving {
    struct service *service;
    struct api *api;
    struct http_server *server;
    struct metrics_listener metrics_listener; /* where metrics have a listener of their own */
};

static void stop_server(void *context)
{
    notify_stopping();
    http_server_stop(context);
}

/* SIGHUP: the tokens are what the files say now. */
static enum status reload_server(void *context, const struct config *config, struct error *error)
{
    struct serving *serving = context;
    enum status status = api_reload(serving->api, config, error);

    if (status == STATUS_OK && serving->metrics_listener.api != NULL)
        status = api_reload(serving->metrics_listener.api, config, error);
    return status;
}

/* A claim needs nothing but its loop. */
static bool server_is_alive(void *context)
{
    return http_server_turns(context);
}

static bool server_is_over(const void *context)
{
    return http_server_stopping(context);
}

static enum status start_demo(const struct config *config, const struct http_server *server,
                              struct demo **demo, struct error *error)
{
    const struct config_secret *token = &config->admin_token;
    return demo_start(demo,
                      &(struct demo_options){.address = http_server_address(server),
                                             .admin_token = {token->bytes, token->length},
                                             .is_over = server_is_over,
                                             .context = server},
                      error);
}

static enum status run_server(const struct config *config, struct serving *serving,
                              struct signal_watch *watch, struct error *error)
{
    struct http_options options = http_options(config, serving->api);
    enum status status = http_server_open(&serving->server, &options, error);
    if (status != STATUS_OK)
        return status;
    const char *address = http_server_address(serving->server);
    api_attach(serving->api, serving->server);
    signal_watch_run(watch, stop_server, serving->server);
    log_event(LOG_INFO, "listening", LOG_FIELD("address", LOG_TEXT(address)),
              LOG_FIELD("threads", LOG_I64(options.threads)),
              LOG_FIELD("version", LOG_TEXT(DIBS_VERSION)),
              LOG_FIELD("revision", LOG_TEXT(DIBS_REVISION)));
    say_what_next(config, address);
    struct demo *demo = NULL;
    struct notify notify = {.beat_ms = 0};
    status = metrics_listener_open(&serving->metrics_listener, config->metrics_listen,
                                   serving->service, config, serving->api, error);
    if (status == STATUS_OK && config->demo == CONFIG_ON)
        status = start_demo(config, serving->server, &demo, error);
    signal_watch_reload(watch, reload_server, serving);
    if (status == STATUS_OK)
        status = notify_ready(&notify, server_is_alive, serving->server, error);
    if (status == STATUS_OK)
        status = http_server_run(serving->server, error);
    notify_end(&notify);
    signal_watch_rest(watch);
    demo_stop(demo);
    return status;
}

/* Opens in order; closes so that nobody is left who could still use what is gone: the loops have
 * ended, then the pool threads with the service, then what both of them shared. */
static enum status run_service(const struct config *config, struct signal_watch *watch,
                               struct error *error)
{
    struct service_options options = command_service_options(config, SERVICE_SERVES);
    struct serving serving = {.service = NULL};
    enum status status = service_open(&serving.service, &options, error);
    sodium_memzero(&options.code_key, sizeof(options.code_key));
    if (status != STATUS_OK)
        return status;
    status = api_open(&serving.api,
                      &(struct api_options){.service = serving.service,
                                            .config = config,
                                            .extent = API_WHOLE,
                                            .threads = thread_count(config)},
                      error);
    if (status == STATUS_OK) {
        status = run_server(config, &serving, watch, error);
        metrics_listener_stop(&serving.metrics_listener);
        api_stop(serving.api);
    }
    service_close(serving.service);
    metrics_listener_close(&serving.metrics_listener);
    if (serving.api != NULL)
        api_close(serving.api);
    if (serving.server != NULL)
        http_server_close(serving.server);
    return status;
}

int command_serve(const struct command_call *call)
{
    return command_run_service(call, config_check, run_service);
}
