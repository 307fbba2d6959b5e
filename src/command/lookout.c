/* lookout.c: the small server beside a worker or a server. */
#include "command/lookout.h"

#include "base/log.h"
#include "http/server.h"

#define LOOKOUT_CONNECTIONS_MAX 64
#define LOOKOUT_STOP_MS         1000

static void *lookout_main(void *context)
{
    struct lookout *lookout = context;
    struct error error = {""};
    if (http_server_run(lookout->server, &error) != STATUS_OK) {
        log_event(LOG_ERROR, "lookout_ended", LOG_FIELD("error", LOG_TEXT(error.text)));
    }
    return NULL;
}

enum status lookout_open(struct lookout *lookout, const char *where, struct service *service,
                         const struct config *config, struct api *watched, struct error *error)
{
    struct http_options options = {
        .listen = where,
        .threads = 1,
        .connections_max = LOOKOUT_CONNECTIONS_MAX,
        .header_timeout_ms = config->header_timeout_ms,
        .body_timeout_ms = config->body_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .write_timeout_ms = config->write_timeout_ms,
        .stop_timeout_ms = LOOKOUT_STOP_MS,
        .callbacks = api_callbacks(),
    };
    if (where[0] == '\0') {
        return STATUS_OK;
    }
    enum status status = api_open(&lookout->api,
                                  &(struct api_options){.service = service,
                                                        .config = config,
                                                        .extent = API_WATCHED,
                                                        .threads = 1,
                                                        .watched = watched},
                                  error);
    if (status != STATUS_OK) {
        return status;
    }
    options.server_context = lookout->api;
    status = http_server_open(&lookout->server, &options, error);
    if (status != STATUS_OK) {
        return status;
    }
    api_attach(lookout->api, lookout->server);
    lookout->is_running = pthread_create(&lookout->thread, NULL, lookout_main, lookout) == 0;
    if (!lookout->is_running) {
        return error_set(error, STATUS_UNAVAILABLE, "cannot start a thread");
    }
    log_event(LOG_INFO, "listening",
              LOG_FIELD("address", LOG_TEXT(http_server_address(lookout->server))));
    return STATUS_OK;
}

void lookout_stop(struct lookout *lookout)
{
    if (lookout->is_running) {
        http_server_stop(lookout->server);
        pthread_join(lookout->thread, NULL);
        lookout->is_running = false;
    }
    if (lookout->api != NULL) {
        api_stop(lookout->api);
    }
}

void lookout_close(struct lookout *lookout)
{
    if (lookout->api != NULL) {
        api_close(lookout->api);
    }
    if (lookout->server != NULL) {
        http_server_close(lookout->server);
    }
}
