/* signals.h: SIGTERM, SIGINT and SIGHUP of a process that runs until it is told to stop.
 *
 * Before it runs there is nothing to end in order, so the first signal ends it at once, also while
 * the start waits for another process. Once it runs, the first ends it in good order, the next at
 * once.
 *
 * Threads: started before any other thread, because all of them inherit the blocked signals; its
 * own thread calls stop().
 */
#ifndef COMMAND_SIGNALS_H
#define COMMAND_SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/error.h"

enum signal_phase { SIGNALS_STARTING, SIGNALS_RUNNING, SIGNALS_ENDING };

struct signal_watch {
    pthread_t thread;
    sigset_t signals;
    pthread_mutex_t lock;
    enum signal_phase phase;
    void (*stop)(void *context);
    void *context;
    atomic_bool over;
};

enum status signal_watch_start(struct signal_watch *watch, struct error *error) MUST_CHECK;
void signal_watch_end(struct signal_watch *watch);

/* It runs: stop(context) is called by the first signal. */
void signal_watch_run(struct signal_watch *watch, void (*stop)(void *context), void *context);

/* It ends, for whichever reason: stop() is not called any more. */
void signal_watch_rest(struct signal_watch *watch);

#endif
