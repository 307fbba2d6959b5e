/* signals.c: the thread that waits for the signals to stop. */
#include "command/signals.h"

#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "command/command.h"

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

static void *signal_watch_main(void *context)
{
    struct signal_watch *watch = context;
    bool asked = false;

    for (;;) {
        int number = 0;
        if (sigwait(&watch->signals, &number) != 0 || number == SIGNAL_OVER) {
            if (atomic_load(&watch->over))
                return NULL;
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

enum status signal_watch_start(struct signal_watch *watch, struct error *error)
{
    *watch = (struct signal_watch){.phase = SIGNALS_STARTING};
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

void signal_watch_end(struct signal_watch *watch)
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

void signal_watch_rest(struct signal_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->phase = SIGNALS_ENDING;
    pthread_mutex_unlock(&watch->lock);
}
