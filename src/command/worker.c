/* worker.c: `dibs worker`: drains the gate into the ledger until it is told to stop. */
#include <signal.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "command/command.h"
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

static enum status work(const struct config *config, struct error *error)
{
    struct service_options options = command_service_options(config, SERVICE_WORKS);
    struct service *service = NULL;
    sigset_t signals;
    int number = 0;
    /* Before any other thread starts: all of them inherit the blocked signals. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    enum status status = service_open(&service, &options, error);
    sodium_memzero(&options.code_key, sizeof options.code_key);
    if (status != STATUS_OK) {
        return status;
    }
    log_event(LOG_INFO, "working", LOG_FIELD("version", LOG_TEXT(DIBS_VERSION)),
              LOG_FIELD("pid", LOG_I64(getpid())));
    (void)sigwait(&signals, &number);
    log_event(LOG_INFO, "stopping", LOG_FIELD("signal", LOG_TEXT(sigabbrev_np(number))));
    service_close(service);
    return STATUS_OK;
}

int command_worker(const struct command_call *call)
{
    struct config config;
    struct error error;
    enum status status = config_load(&config, call->setting_count, call->settings, environ, &error);
    if (status != STATUS_OK) {
        return status == STATUS_INVALID ? command_usage(call, "%s", error.text)
                                        : command_fail(call, "%s", error.text);
    }
    log_configure(config.log_level, config.log_format, STDERR_FILENO);
    status = check(&config, &error);
    ensure(sodium_init() >= 0);
    if (status == STATUS_OK) {
        status = work(&config, &error);
    }
    config_release(&config);
    if (status != STATUS_OK) {
        return status == STATUS_INVALID ? command_usage(call, "%s", error.text)
                                        : command_fail(call, "%s", error.text);
    }
    log_event(LOG_INFO, "stopped", LOG_FIELD("pid", LOG_I64(getpid())));
    return COMMAND_FINE;
}
