/* worker.c: `dibs worker`: drains the gate into the ledger until it is told to stop. */
#include <semaphore.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "command/command.h"
#include "command/notify.h"
#include "command/service.h"
#include "version.h"

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

/* --- working --- */

static void stop_working(void *context)
{
    notify_stopping();
    sem_post(context);
}

/* SIGHUP: the tokens are what the files say now. */
static enum status reload_worker(void *context, const struct config *config, struct error *error)
{
    struct metrics_listener *listener = context;

    return listener->api != NULL ? api_reload(listener->api, config, error) : STATUS_OK;
}

/* It can say how its parts stand, which takes their locks. */
static bool worker_is_alive(void *context)
{
    struct service_part parts[SERVICE_PARTS];
    size_t count;
    (void)service_parts(context, parts, &count);
    return count > 0;
}

static enum status work(const struct config *config, struct signal_watch *watch,
                        struct error *error)
{
    struct service_options options = command_service_options(config, SERVICE_WORKS);
    struct service *service = NULL;
    struct metrics_listener metrics_listener = {.api = NULL};
    struct notify notify = {.beat_ms = 0};
    sem_t stop;
    enum status status = service_open(&service, &options, error);
    sodium_memzero(&options.code_key, sizeof(options.code_key));
    if (status != STATUS_OK)
        return status;
    sem_init(&stop, 0, 0);
    status = metrics_listener_open(&metrics_listener, config->worker_listen, service, config, NULL,
                                   error);
    signal_watch_run(watch, stop_working, &stop);
    signal_watch_reload(watch, reload_worker, &metrics_listener);
    if (status == STATUS_OK)
        status = notify_ready(&notify, worker_is_alive, service, error);
    if (status == STATUS_OK) {
        log_event(LOG_INFO, "working", LOG_FIELD("version", LOG_TEXT(DIBS_VERSION)),
                  LOG_FIELD("pid", LOG_I64(getpid())));
        while (sem_wait(&stop) != 0) {
        }
    }
    signal_watch_rest(watch);
    notify_end(&notify);
    metrics_listener_stop(&metrics_listener);
    service_close(service);
    metrics_listener_close(&metrics_listener);
    sem_destroy(&stop);
    return status;
}

int command_worker(const struct command_call *call)
{
    return command_run_service(call, check, work);
}
