/* clerk.c: one pool of threads over a queue for each kind of people who ask. */
#include "claim/clerk.h"

/* Under the lock. NULL: nothing waits that this clerk looks after. */
static struct clerk_task *clerk_take(struct clerk *clerk)
{
    for (unsigned queue = clerk->own; queue < CLERK_QUEUES; queue++) {
        struct clerk_line *line = &clerk->clerks->lines[queue];
        struct clerk_task *task = line->first;
        if (task == NULL)
            continue;
        line->first = task->next;
        if (line->first == NULL)
            line->end = &line->first;
        line->numbers.waiting--;
        return task;
    }
    return NULL;
}

static void *clerk_main(void *context)
{
    struct clerk *clerk = context;
    struct clerks *clerks = clerk->clerks;

    pthread_mutex_lock(&clerks->lock);
    for (;;) {
        struct clerk_task *task = clerk_take(clerk);
        if (task != NULL) {
            pthread_mutex_unlock(&clerks->lock);
            task->work(task, clerks->service);
            pthread_mutex_lock(&clerks->lock);
        } else if (clerks->stopping) {
            break;
        } else {
            clerk->is_idle = true;
            while (clerk->is_idle && !clerks->stopping)
                pthread_cond_wait(&clerk->woken, &clerks->lock);
            clerk->is_idle = false;
        }
    }
    pthread_mutex_unlock(&clerks->lock);
    return NULL;
}

/* One alone looks after all. */
static enum clerk_queue clerk_own_queue(unsigned index, unsigned count)
{
    if (index + 1 == count || index > count / 2)
        return CLERK_STRANGERS;
    return index == 0 ? CLERK_ADMINS : CLERK_KNOWN;
}

enum status clerks_start(struct clerks *clerks, struct service *service, unsigned count,
                         struct error *error)
{
    ensure(count > 0 && count <= CLERKS_MAX);
    *clerks = (struct clerks){.service = service};
    for (unsigned queue = 0; queue < CLERK_QUEUES; queue++)
        clerks->lines[queue].end = &clerks->lines[queue].first;
    pthread_mutex_init(&clerks->lock, NULL);
    for (; clerks->thread_count < count; clerks->thread_count++) {
        struct clerk *clerk = &clerks->threads[clerks->thread_count];
        *clerk =
            (struct clerk){.clerks = clerks, .own = clerk_own_queue(clerks->thread_count, count)};
        pthread_cond_init(&clerk->woken, NULL);
        if (pthread_create(&clerk->thread, NULL, clerk_main, clerk) != 0) {
            pthread_cond_destroy(&clerk->woken);
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
    for (unsigned i = 0; i < clerks->thread_count; i++)
        pthread_cond_signal(&clerks->threads[i].woken);
    pthread_mutex_unlock(&clerks->lock);
    for (unsigned i = 0; i < clerks->thread_count; i++) {
        pthread_join(clerks->threads[i].thread, NULL);
        pthread_cond_destroy(&clerks->threads[i].woken);
    }
    clerks->thread_count = 0;
    pthread_mutex_destroy(&clerks->lock);
}

/* Under the lock. Whoever is at work looks at the queues when that is done. */
static void clerks_wake_one(struct clerks *clerks, enum clerk_queue queue)
{
    for (unsigned i = 0; i < clerks->thread_count; i++) {
        struct clerk *clerk = &clerks->threads[i];
        if (clerk->is_idle && clerk->own <= queue) {
            clerk->is_idle = false;
            pthread_cond_signal(&clerk->woken);
            return;
        }
    }
}

bool clerks_submit(struct clerks *clerks, struct clerk_task *task)
{
    struct clerk_line *line = &clerks->lines[task->queue];
    size_t max = task->queue == CLERK_STRANGERS ? CLERK_STRANGERS_MAX : CLERK_TASKS_MAX;

    pthread_mutex_lock(&clerks->lock);
    bool has_room = line->numbers.waiting < max;
    if (has_room) {
        task->next = NULL;
        *line->end = task;
        line->end = &task->next;
        line->numbers.waiting++;
        clerks_wake_one(clerks, task->queue);
    } else {
        line->numbers.refused++;
    }
    pthread_mutex_unlock(&clerks->lock);
    return has_room;
}

struct clerk_numbers clerks_count(struct clerks *clerks, enum clerk_queue queue)
{
    pthread_mutex_lock(&clerks->lock);
    struct clerk_numbers numbers = clerks->lines[queue].numbers;
    pthread_mutex_unlock(&clerks->lock);
    return numbers;
}
