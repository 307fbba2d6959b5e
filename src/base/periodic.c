/* periodic.c: a thread that does the same thing again and again. */
#include "base/periodic.h"

#include "base/clock.h"

static void *periodic_main(void *context)
{
    struct periodic *periodic = context;

    pthread_mutex_lock(&periodic->lock);
    for (;;) {
        struct timespec until = clock_deadline_in_ms(periodic->pause_ms);
        while (!periodic->is_stopping && !periodic->is_woken &&
               pthread_cond_timedwait(&periodic->wake, &periodic->lock, &until) == 0)
            continue;
        if (periodic->is_stopping)
            break;
        periodic->is_woken = false;
        pthread_mutex_unlock(&periodic->lock);
        periodic->pause_ms = periodic->run(periodic->context);
        pthread_mutex_lock(&periodic->lock);
    }
    pthread_mutex_unlock(&periodic->lock);
    return NULL;
}

enum status periodic_start(struct periodic *periodic, const char *name,
                           int64_t (*run)(void *context), void *context, int64_t first_ms,
                           struct error *error)
{
    *periodic = (struct periodic){.run = run, .context = context, .pause_ms = first_ms};
    pthread_mutex_init(&periodic->lock, NULL);
    clock_condition_init(&periodic->wake);
    periodic->is_started = pthread_create(&periodic->thread, NULL, periodic_main, periodic) == 0;
    if (periodic->is_started) {
        pthread_setname_np(periodic->thread, name);
        return STATUS_OK;
    }
    pthread_cond_destroy(&periodic->wake);
    pthread_mutex_destroy(&periodic->lock);
    return error_set(error, STATUS_UNAVAILABLE, "cannot start the thread \"%s\"", name);
}

void periodic_wake(struct periodic *periodic)
{
    pthread_mutex_lock(&periodic->lock);
    periodic->is_woken = true;
    pthread_cond_signal(&periodic->wake);
    pthread_mutex_unlock(&periodic->lock);
}

bool periodic_is_stopping(struct periodic *periodic)
{
    pthread_mutex_lock(&periodic->lock);
    bool is_stopping = periodic->is_stopping;
    pthread_mutex_unlock(&periodic->lock);
    return is_stopping;
}

void periodic_stop(struct periodic *periodic)
{
    if (!periodic->is_started)
        return;
    pthread_mutex_lock(&periodic->lock);
    periodic->is_stopping = true;
    pthread_cond_signal(&periodic->wake);
    pthread_mutex_unlock(&periodic->lock);
    pthread_join(periodic->thread, NULL);
    pthread_cond_destroy(&periodic->wake);
    pthread_mutex_destroy(&periodic->lock);
    periodic->is_started = false;
}
