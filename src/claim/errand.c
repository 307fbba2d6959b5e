/* errand.c: a box into which clerks put what they have done; it outlives the desk when they are
 * late. */
#include "claim/errand.h"

#include <stdlib.h>

#include "claim/parts.h"

struct errands {
    struct service *service;
    void (*wake)(void *context);
    void *context;
    pthread_mutex_t lock;
    bool is_closed;
    struct errand *done;
    struct errand **done_end;
    size_t use_count; /* the desk, and every errand under way */
};

struct errands *errands_open(struct service *service, void (*wake)(void *context), void *context)
{
    struct errands *errands = calloc(1, sizeof(*errands));

    if (errands == NULL)
        return NULL;
    *errands = (struct errands){.service = service, .wake = wake, .context = context};
    pthread_mutex_init(&errands->lock, NULL);
    errands->done_end = &errands->done;
    errands->use_count = 1;
    return errands;
}

/* Under the lock, which is let go. */
static void errands_leave(struct errands *errands)
{
    bool is_last = --errands->use_count == 0;

    pthread_mutex_unlock(&errands->lock);
    if (!is_last)
        return;
    pthread_mutex_destroy(&errands->lock);
    free(errands);
}

void errands_close(struct errands *errands)
{
    struct errand *next;

    if (errands == NULL)
        return;
    pthread_mutex_lock(&errands->lock);
    while (errands->done != NULL) {
        next = errands->done->next;
        free(errands->done);
        errands->done = next;
    }
    errands->is_closed = true;
    errands_leave(errands);
}

/* On a clerk's thread. */
static void errand_run(struct clerk_task *task, struct service *service)
{
    struct errand *errand = (struct errand *)task;
    struct errands *errands = errand->errands;

    if (errand->cause == ERRAND_AWAY)
        fallback_serve(service->fallback, errand->wish);
    else
        fallback_answer(service->fallback, errand->wish);
    pthread_mutex_lock(&errands->lock);
    if (errands->is_closed) {
        free(errand);
    } else {
        errand->next = NULL;
        *errands->done_end = errand;
        errands->done_end = &errand->next;
        errands->wake(errands->context);
    }
    errands_leave(errands);
}

bool errands_send(struct errands *errands, struct errand *errand, struct wish *wish,
                  enum errand_cause cause)
{
    *errand = (struct errand){.task = {.work = errand_run, .queue = CLERK_KNOWN},
                              .errands = errands,
                              .wish = wish,
                              .cause = cause};
    pthread_mutex_lock(&errands->lock);
    errands->use_count++;
    pthread_mutex_unlock(&errands->lock);
    if (service_submit(errands->service, &errand->task))
        return true;
    if (cause == ERRAND_AWAY)
        fallback_drop(errands->service->fallback, wish->policy_id);
    pthread_mutex_lock(&errands->lock);
    errands_leave(errands);
    return false;
}

struct errand *errands_take(struct errands *errands)
{
    pthread_mutex_lock(&errands->lock);
    struct errand *done = errands->done;
    errands->done = NULL;
    errands->done_end = &errands->done;
    pthread_mutex_unlock(&errands->lock);
    return done;
}
