/* worker.c: `dibs worker`: drains the gate into the ledger until it is told to stop. */
#include <pthread.h>
#include <semaphore.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "command/command.h"
#include "command/service.h"
#include "command/signals.h"
#include "http/api.h"
#include "version.h"

#define LOOKOUT_CONNECTIONS_MAX 64
#define LOOKOUT_STOP_MS         1000

/* What a worker needs, beyond settings that are right by themselves. */
static enum status check(const struct config *config, struct error *error)
{
    if (strcmp(config->gate, "local") == 0) {
        return error_set(error, STATUS_INVALID,
                         "gate: a worker drains a Redis, as in --gate redis://127.0.0.1:6379; the "
                         "local gate is drained by its own server");
    }
    if (strncmp(config->ledger, "sqlite:", strlen("sqlite:")) == 0) {
        return error_set(error, STATUS_INVALID,
                         "ledger: SQLite belongs to one process: serve drains the gate itself; "
                         "use postgres:// or mysql:// to have workers");
    }
    return STATUS_OK;
}

/* --- being watched --- */

/* The server of /healthz, /readyz and /metrics, on a thread of its own. */
struct lookout {
    struct api *api;
    struct http_server *server;
    pthread_t thread;
    bool is_running;
};

static void *lookout_main(void *context)
{
    struct lookout *lookout = context;
    struct error error = {""};
    if (http_server_run(lookout->server, &error) != STATUS_OK) {
        log_event(LOG_ERROR, "lookout_ended", LOG_FIELD("error", LOG_TEXT(error.text)));
    }
    return NULL;
}

static enum status lookout_open(struct lookout *lookout, struct service *service,
                                const struct config *config, struct error *error)
{
    struct http_options options = {
        .listen = config->worker_listen,
        .threads = 1,
        .connections_max = LOOKOUT_CONNECTIONS_MAX,
        .header_timeout_ms = config->header_timeout_ms,
        .body_timeout_ms = config->body_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .write_timeout_ms = config->write_timeout_ms,
        .stop_timeout_ms = LOOKOUT_STOP_MS,
        .callbacks = api_callbacks(),
    };
    if (config->worker_listen[0] == '\0') {
        return STATUS_OK;
    }
    enum status status = api_open(&lookout->api, service, config, API_WATCHED, 1, error);
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

/* Before the service closes: nobody asks about it any more. */
static void lookout_stop(struct lookout *lookout)
{
    if (lookout->is_running) {
        http_server_stop(lookout->server);
        pthread_join(lookout->thread, NULL);
    }
}

static void lookout_close(struct lookout *lookout)
{
    if (lookout->api != NULL) {
        api_close(lookout->api);
    }
    if (lookout->server != NULL) {
        http_server_close(lookout->server);
    }
}

/* --- working --- */

static void stop_working(void *context)
{
    sem_post(context);
}

static enum status work(const struct config *config, struct signal_watch *watch,
                        struct error *error)
{
    struct service_options options = command_service_options(config, SERVICE_WORKS);
    struct service *service = NULL;
    struct lookout lookout = {.api = NULL};
    sem_t stop;
    enum status status = service_open(&service, &options, error);
    sodium_memzero(&options.code_key, sizeof options.code_key);
    if (status != STATUS_OK) {
        return status;
    }
    sem_init(&stop, 0, 0);
    status = lookout_open(&lookout, service, config, error);
    signal_watch_run(watch, stop_working, &stop);
    if (status == STATUS_OK) {
        log_event(LOG_INFO, "working", LOG_FIELD("version", LOG_TEXT(DIBS_VERSION)),
                  LOG_FIELD("pid", LOG_I64(getpid())));
        while (sem_wait(&stop) != 0) {
        }
    }
    signal_watch_rest(watch);
    lookout_stop(&lookout);
    service_close(service);
    lookout_close(&lookout);
    sem_destroy(&stop);
    return status;
}

int command_worker(const struct command_call *call)
{
    struct config config;
    struct error error;
    struct signal_watch watch;
    enum status status = config_load(&config, call->setting_count, call->settings, environ, &error);
    if (status != STATUS_OK) {
        return status == STATUS_INVALID ? command_usage(call, "%s", error.text)
                                        : command_fail(call, "%s", error.text);
    }
    log_configure(config.log_level, config.log_format, STDERR_FILENO);
    command_warn(&config);
    status = check(&config, &error);
    ensure(sodium_init() >= 0);
    log_start();
    if (status == STATUS_OK) {
        status = signal_watch_start(&watch, &error);
    }
    if (status == STATUS_OK) {
        status = work(&config, &watch, &error);
        signal_watch_end(&watch);
    }
    config_release(&config);
    if (status == STATUS_OK) {
        log_event(LOG_INFO, "stopped", LOG_FIELD("pid", LOG_I64(getpid())));
    }
    log_stop();
    if (status != STATUS_OK) {
        return status == STATUS_INVALID ? command_usage(call, "%s", error.text)
                                        : command_fail(call, "%s", error.text);
    }
    return COMMAND_FINE;
}
