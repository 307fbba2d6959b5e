/* clerk.c: a plain thread pool over one queue. */
#include "claim/clerk.h"

#include "claim/service.h"

static void *clerk_main(void *context)
{
    struct clerks *clerks = context;

    pthread_mutex_lock(&clerks->lock);
    for (;;) {
        while (clerks->first == NULL && !clerks->stopping)
            pthread_cond_wait(&clerks->work, &clerks->lock);
        struct clerk_task *task = clerks->first;
        if (task == NULL)
            break;
        clerks->first = task->next;
        if (clerks->first == NULL)
            clerks->end = &clerks->first;
        atomic_fetch_sub(&clerks->waiting_count, 1);
        pthread_mutex_unlock(&clerks->lock);
        task->work(task, clerks->service);
        pthread_mutex_lock(&clerks->lock);
    }
    pthread_mutex_unlock(&clerks->lock);
    return NULL;
}

enum status clerks_start(struct clerks *clerks, struct service *service, unsigned count,
                         struct error *error)
{
    ensure(count > 0 && count <= CLERKS_MAX);
    *clerks = (struct clerks){.service = service};
    clerks->end = &clerks->first;
    pthread_mutex_init(&clerks->lock, NULL);
    pthread_cond_init(&clerks->work, NULL);
    for (; clerks->thread_count < count; clerks->thread_count++) {
        if (pthread_create(&clerks->threads[clerks->thread_count], NULL, clerk_main, clerks) != 0) {
            clerks_stop(clerks);
            return error_set(error, STATUS_UNAVAILABLE, "cannot start %u threads", count);
        }
    }
    return STATUS_OK;
}

void clerks_stop(struct clerks *clerks)
{
    pthread_mutex_lock(&clerks->lock);
    clerks->stopping = true;
    pthread_cond_broadcast(&clerks->work);
    pthread_mutex_unlock(&clerks->lock);
    for (unsigned i = 0; i < clerks->thread_count; i++)
        pthread_join(clerks->threads[i], NULL);
    clerks->thread_count = 0;
    pthread_cond_destroy(&clerks->work);
    pthread_mutex_destroy(&clerks->lock);
}

bool clerks_submit(struct clerks *clerks, struct clerk_task *task)
{
    if (atomic_load(&clerks->waiting_count) >= CLERK_TASKS_MAX)
        return false;
    task->next = NULL;
    pthread_mutex_lock(&clerks->lock);
    *clerks->end = task;
    clerks->end = &task->next;
    atomic_fetch_add(&clerks->waiting_count, 1);
    pthread_cond_signal(&clerks->work);
    pthread_mutex_unlock(&clerks->lock);
    return true;
}
