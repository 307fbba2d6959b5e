/* service.h: what the commands that run a service share: from the settings to its options, its life
 * until it is told to stop, and a small listener beside it.
 *
 * Threads: the owner's, unless a part says otherwise.
 */
#pragma once

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "claim/service.h"
#include "command/command.h"
#include "config/config.h"
#include "http/api/api.h"

/* --- SIGTERM, SIGINT and SIGHUP ---
 *
 * SIGHUP reads the settings again, for their tokens and keys; on a terminal that closes it is as
 * SIGTERM, which the others are.
 *
 * Before it runs there is nothing to end in order, so the first signal ends it at once, also while
 * the start waits for another process. Once it runs, the first ends it in good order, the next at
 * once.
 *
 * Threads: started before any other thread, because all of them inherit the blocked signals; its
 * own thread calls stop(). */

enum signal_phase { SIGNALS_STARTING, SIGNALS_RUNNING, SIGNALS_ENDING };

struct signal_watch {
    pthread_t thread;
    sigset_t signals;
    pthread_mutex_t lock;
    enum signal_phase phase;
    void (*stop)(void *context);
    void *context;
    const struct command_call *call; /* to read the settings again */
    enum status (*check)(const struct config *config, struct error *error);
    enum status (*reload)(void *context, const struct config *config, struct error *error);
    void *reload_context;
    bool is_reload_due; /* SIGHUP came before */
    atomic_bool over;
};

/* It runs: stop(context) is called by the first signal. */
void signal_watch_run(struct signal_watch *watch, void (*stop)(void *context), void *context);

/* From now on SIGHUP calls reload(context) with settings that were read and checked just now; they
 * are gone when it returns. */
void signal_watch_reload(struct signal_watch *watch,
                         enum status (*reload)(void *context, const struct config *config,
                                               struct error *error),
                         void *context);

/* It ends, for whichever reason: neither is called any more. */
void signal_watch_rest(struct signal_watch *watch);

/* --- a listener of its own for /healthz, /readyz and /metrics, on a thread of its own ---
 *
 * A worker has no other; in front of a server it is one that strangers do not reach. */

struct metrics_listener {
    struct api *api;
    struct http_server *server;
    pthread_t thread;
    bool is_running;
};

/* Listens on `where` and says so on the log; "" means nowhere. `watched`, if not NULL, is the API
 * whose metrics it shows. When it fails, metrics_listener_close() is still due. */
enum status metrics_listener_open(struct metrics_listener *metrics_listener, const char *where,
                                  struct service *service, const struct config *config,
                                  struct api *watched, struct error *error) MUST_CHECK;

/* Before the service closes: nobody asks about it any more. */
void metrics_listener_stop(struct metrics_listener *metrics_listener);
/* After it. */
void metrics_listener_close(struct metrics_listener *metrics_listener);

/* --- a service --- */

/* The texts are the config's. The code key in it is to be wiped by the caller. */
struct service_options command_service_options(const struct config *config, enum service_role role);

/* Reads and checks the settings, starts log and signals, and runs a service until it is told to
 * stop; returns what the command does. */
int command_run_service(const struct command_call *call,
                        enum status (*check)(const struct config *config, struct error *error),
                        enum status (*run)(const struct config *config, struct signal_watch *watch,
                                           struct error *error));
