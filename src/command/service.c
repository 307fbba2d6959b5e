/* service.c: settings as a service takes them, what every service begins and ends with, the signals
 * that stop it, and the small listener beside it. */
#include "command/service.h"

#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "http/server/server.h"

/* Threads for calls that block. Those that write share their commits, so more of them than cores
 * means more per commit. */
#define POOL_THREADS 8

struct service_options command_service_options(const struct config *config, enum service_role role)
{
    static const enum ledger_integrity integrity[] = {
        [CONFIG_INTEGRITY_QUICK] = LEDGER_CHECK_QUICK,
        [CONFIG_INTEGRITY_FULL] = LEDGER_CHECK_FULL,
        [CONFIG_INTEGRITY_OFF] = LEDGER_CHECK_OFF,
    };
    struct service_options options = {
        .role = role,
        .gate_url = config->gate,
        .gate_password = config->gate_password.bytes,
        .gate_timeout_ms = config->gate_timeout_ms,
        .ack = strcmp(config->ack, "ledger") == 0 ? GATE_ACK_LEDGER : GATE_ACK_GATE,
        .replicas = (int)config->replicas,
        .sync_interval_ms = config->sync_interval_ms,
        .orders_keep_days = config->orders_keep_days,
        .audit_interval_ms = config->audit_interval_ms,
        .fallback = strcmp(config->fallback, "ledger") == 0 ? FALLBACK_LEDGER : FALLBACK_REJECT,
        .stop_timeout_ms = config->stop_timeout_ms,
        /* A command that only reads is told at once that nothing is there. */
        .start_timeout_ms = role == SERVICE_AUDITS ? 0 : config->start_timeout_ms,
        .ledger_url = config->ledger,
        .ledger_password = config->ledger_password.bytes,
        /* A gate in this process's memory has its ledger to itself. */
        .ledger_use = strcmp(config->gate, "local") == 0 ? LEDGER_OWN : LEDGER_SHARE,
        .ledger_timeout_ms = config->ledger_timeout_ms,
        .relay_url = config->relay,
        .relay_password = config->relay_password.bytes,
        .kafka_names = {.pended = config->kafka_topic_pended,
                        .issued = config->kafka_topic_issued,
                        .orders = config->kafka_topic_orders,
                        .issuer_group = config->kafka_group,
                        .orders_group = config->kafka_orders_group,
                        .partitions = (int)config->kafka_partitions},
        .webhook = {.url = config->webhook,
                    .secrets = {config->webhook_secret.bytes, config->webhook_secret.length},
                    .ca_file = config->webhook_ca_file,
                    .timeout_ms = config->webhook_timeout_ms,
                    .retry_max_ms = config->webhook_retry_max_ms},
        .integrity = integrity[config->integrity_check],
        .board = strcmp(config->board, "local") == 0   ? BOARD_LOCAL
                 : strcmp(config->board, "redis") == 0 ? BOARD_REDIS
                                                       : BOARD_WITH_GATE,
        .timezone = config->timezone,
        .ranking_half_life_ms = config->ranking_half_life_ms,
        .ranking_weights = config->ranking_weights,
        .ranking_refresh_ms = config->ranking_refresh_ms,
        .pending_max = (size_t)config->pending_max,
        .worker_batch = (int)config->worker_batch,
        .worker_pause_ms = config->worker_pause_ms,
        .issue_attempts = (int)config->issue_attempts,
        .ack_timeout_ms = config->ack_timeout_ms,
        .pool_threads = POOL_THREADS,
        .has_code_key = config->code_key.bytes != NULL,
    };
    if (options.has_code_key) {
        crypto_generichash((unsigned char *)&options.code_key, sizeof(options.code_key),
                           (const unsigned char *)config->code_key.bytes, config->code_key.length,
                           NULL, 0);
    }
    return options;
}

/* --- signals --- */

/* Ends the watch itself; whoever else sends it is not heard. */
#define SIGNAL_OVER SIGUSR1

static void signal_watch_stop(struct signal_watch *watch, int number)
{
    log_event(LOG_INFO, "stopping", LOG_FIELD("signal", LOG_TEXT(sigabbrev_np(number))));
    pthread_mutex_lock(&watch->lock);
    if (watch->phase == SIGNALS_STARTING) {
        log_event(LOG_INFO, "stopped", LOG_FIELD("pid", LOG_I64(getpid())));
        log_flush();
        _exit(COMMAND_FINE);
    }
    if (watch->phase == SIGNALS_RUNNING)
        watch->stop(watch->context);
    pthread_mutex_unlock(&watch->lock);
}

static enum status signal_watch_read(const struct signal_watch *watch, struct error *error)
{
    struct config config;
    enum status status = command_read_settings(watch->call, &config, error);

    if (status != STATUS_OK)
        return status;
    status = watch->check(&config, error);
    if (status == STATUS_OK)
        status = watch->reload(watch->reload_context, &config, error);
    config_release(&config);
    return status;
}

/* What is wrong with the new settings leaves the old ones in place. */
static void signal_watch_take_settings(struct signal_watch *watch)
{
    struct error error = {""};

    pthread_mutex_lock(&watch->lock);
    watch->is_reload_due = watch->phase != SIGNALS_ENDING && watch->reload == NULL;
    if (watch->is_reload_due) {
        pthread_mutex_unlock(&watch->lock); /* as soon as it can be done */
        return;
    }
    if (watch->phase != SIGNALS_RUNNING)
        log_event(LOG_WARN, "reload_refused",
                  LOG_FIELD("error", LOG_TEXT("not while it starts or stops")));
    else if (signal_watch_read(watch, &error) == STATUS_OK)
        log_event(LOG_INFO, "reloaded",
                  LOG_FIELD("words", LOG_TEXT("tokens and keys were read again")));
    else
        log_event(LOG_ERROR, "reload_refused", LOG_FIELD("error", LOG_TEXT(error.text)),
                  LOG_FIELD("next", LOG_TEXT("the old tokens and keys stay")));
    pthread_mutex_unlock(&watch->lock);
}

static void *signal_watch_main(void *context)
{
    struct signal_watch *watch = context;
    bool asked = false;

    for (;;) {
        int number = 0;
        if (sigwait(&watch->signals, &number) != 0 || number == SIGNAL_OVER) {
            if (atomic_load(&watch->over))
                return NULL;
        } else if (number == SIGHUP && !isatty(STDIN_FILENO)) {
            signal_watch_take_settings(watch);
        } else if (asked) {
            log_event(LOG_WARN, "stopped_at_once",
                      LOG_FIELD("signal", LOG_TEXT(sigabbrev_np(number))));
            log_flush();
            _exit(COMMAND_FAILED);
        } else {
            asked = true;
            signal_watch_stop(watch, number);
        }
    }
}

static enum status signal_watch_start(struct signal_watch *watch, const struct command_call *call,
                                      enum status (*check)(const struct config *config,
                                                           struct error *error),
                                      struct error *error)
{
    *watch = (struct signal_watch){.phase = SIGNALS_STARTING, .call = call, .check = check};
    pthread_mutex_init(&watch->lock, NULL);
    sigemptyset(&watch->signals);
    sigaddset(&watch->signals, SIGTERM);
    sigaddset(&watch->signals, SIGINT);
    sigaddset(&watch->signals, SIGHUP);
    sigaddset(&watch->signals, SIGNAL_OVER);
    pthread_sigmask(SIG_BLOCK, &watch->signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (pthread_create(&watch->thread, NULL, signal_watch_main, watch) != 0) {
        pthread_mutex_destroy(&watch->lock);
        return error_set(error, STATUS_FAILED, "cannot start a thread");
    }
    return STATUS_OK;
}

static void signal_watch_end(struct signal_watch *watch)
{
    atomic_store(&watch->over, true);
    pthread_kill(watch->thread, SIGNAL_OVER);
    pthread_join(watch->thread, NULL);
    pthread_mutex_destroy(&watch->lock);
}

void signal_watch_run(struct signal_watch *watch, void (*stop)(void *context), void *context)
{
    pthread_mutex_lock(&watch->lock);
    watch->phase = SIGNALS_RUNNING;
    watch->stop = stop;
    watch->context = context;
    pthread_mutex_unlock(&watch->lock);
}

void signal_watch_reload(struct signal_watch *watch,
                         enum status (*reload)(void *context, const struct config *config,
                                               struct error *error),
                         void *context)
{
    pthread_mutex_lock(&watch->lock);
    watch->reload = reload;
    watch->reload_context = context;
    bool is_due = watch->is_reload_due;
    pthread_mutex_unlock(&watch->lock);
    if (is_due)
        signal_watch_take_settings(watch);
}

void signal_watch_rest(struct signal_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->phase = SIGNALS_ENDING;
    pthread_mutex_unlock(&watch->lock);
}

/* --- the listener beside it --- */

#define LOOKOUT_CONNECTIONS_MAX 64
#define LOOKOUT_STOP_MS         1000

static void *metrics_listener_main(void *context)
{
    struct metrics_listener *metrics_listener = context;
    struct error error = {""};
    if (http_server_run(metrics_listener->server, &error) != STATUS_OK)
        log_event(LOG_ERROR, "metrics_listener_ended", LOG_FIELD("error", LOG_TEXT(error.text)));
    return NULL;
}

enum status metrics_listener_open(struct metrics_listener *metrics_listener, const char *where,
                                  struct service *service, const struct config *config,
                                  struct api *watched, struct error *error)
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
    if (where[0] == '\0')
        return STATUS_OK;
    enum status status = api_open(&metrics_listener->api,
                                  &(struct api_options){.service = service,
                                                        .config = config,
                                                        .extent = API_WATCHED,
                                                        .threads = 1,
                                                        .watched = watched},
                                  error);
    if (status != STATUS_OK)
        return status;
    options.server_context = metrics_listener->api;
    status = http_server_open(&metrics_listener->server, &options, error);
    if (status != STATUS_OK)
        return status;
    api_attach(metrics_listener->api, metrics_listener->server);
    metrics_listener->is_running = pthread_create(&metrics_listener->thread, NULL,
                                                  metrics_listener_main, metrics_listener) == 0;
    if (!metrics_listener->is_running)
        return error_set(error, STATUS_UNAVAILABLE, "cannot start a thread");
    log_event(LOG_INFO, "listening",
              LOG_FIELD("address", LOG_TEXT(http_server_address(metrics_listener->server))));
    return STATUS_OK;
}

void metrics_listener_stop(struct metrics_listener *metrics_listener)
{
    if (metrics_listener->is_running) {
        http_server_stop(metrics_listener->server);
        pthread_join(metrics_listener->thread, NULL);
        metrics_listener->is_running = false;
    }
    if (metrics_listener->api != NULL)
        api_stop(metrics_listener->api);
}

void metrics_listener_close(struct metrics_listener *metrics_listener)
{
    if (metrics_listener->api != NULL)
        api_close(metrics_listener->api);
    if (metrics_listener->server != NULL)
        http_server_close(metrics_listener->server);
}

/* --- all of it --- */

/* Logs what the operator should know before it serves or works. */
static void command_warn(const struct config *config)
{
    for (size_t index = 0; index < config->warnings.count; index++) {
        log_event(LOG_WARN, "settings",
                  LOG_FIELD("words", LOG_TEXT(config->warnings.items[index])));
    }
    if (geteuid() == 0) {
        log_event(
            LOG_WARN, "running_as_root",
            LOG_FIELD("words", LOG_TEXT("nothing here needs it; run it as a user of its own")));
    }
}

int command_run_service(const struct command_call *call,
                        enum status (*check)(const struct config *config, struct error *error),
                        enum status (*run)(const struct config *config, struct signal_watch *watch,
                                           struct error *error))
{
    struct config config;
    struct error error;
    struct signal_watch watch;
    int code = command_load_settings(call, &config);
    if (code != COMMAND_FINE)
        return code;
    log_configure(config.log_level, config.log_format, STDERR_FILENO);
    enum status status = check(&config, &error);
    if (status != STATUS_OK) {
        config_release(&config);
        return command_result(call, status, &error);
    }
    command_warn(&config);
    ensure(sodium_init() >= 0);
    log_start();
    status = signal_watch_start(&watch, call, check, &error);
    if (status == STATUS_OK) {
        status = run(&config, &watch, &error);
        signal_watch_end(&watch);
    }
    config_release(&config);
    if (status == STATUS_OK)
        log_event(LOG_INFO, "stopped", LOG_FIELD("pid", LOG_I64(getpid())));
    log_stop();
    return command_result(call, status, &error);
}
