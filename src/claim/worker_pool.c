/* worker_pool.c: one pool of threads over a queue for each kind of people who ask. */
#include "claim/worker_pool.h"

/* Under the lock. NULL: nothing waits that this pool thread looks after. */
static struct pool_task *pool_take(struct pool_thread *thread)
{
    for (unsigned queue = thread->own; queue < POOL_QUEUES; queue++) {
        struct pool_line *line = &thread->pool->lines[queue];
        struct pool_task *task = line->first;
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

static void *pool_main(void *context)
{
    struct pool_thread *thread = context;
    struct worker_pool *pool = thread->pool;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        struct pool_task *task = pool_take(thread);
        if (task != NULL) {
            pthread_mutex_unlock(&pool->lock);
            task->work(task, pool->service);
            pthread_mutex_lock(&pool->lock);
        } else if (pool->stopping) {
            break;
        } else {
            thread->is_idle = true;
            while (thread->is_idle && !pool->stopping)
                pthread_cond_wait(&thread->woken, &pool->lock);
            thread->is_idle = false;
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* One alone looks after all. */
static enum pool_queue pool_own_queue(unsigned index, unsigned count)
{
    if (index + 1 == count || index > count / 2)
        return POOL_STRANGERS;
    return index == 0 ? POOL_ADMINS : POOL_KNOWN;
}

enum status worker_pool_start(struct worker_pool *pool, struct service *service, unsigned count,
                              struct error *error)
{
    ensure(count > 0 && count <= POOL_THREADS_MAX);
    *pool = (struct worker_pool){.service = service};
    for (unsigned queue = 0; queue < POOL_QUEUES; queue++)
        pool->lines[queue].end = &pool->lines[queue].first;
    pthread_mutex_init(&pool->lock, NULL);
    for (; pool->thread_count < count; pool->thread_count++) {
        struct pool_thread *thread = &pool->threads[pool->thread_count];
        *thread =
            (struct pool_thread){.pool = pool, .own = pool_own_queue(pool->thread_count, count)};
        pthread_cond_init(&thread->woken, NULL);
        if (pthread_create(&thread->thread, NULL, pool_main, thread) != 0) {
            pthread_cond_destroy(&thread->woken);
            worker_pool_stop(pool);
            return error_set(error, STATUS_UNAVAILABLE, "cannot start %u threads", count);
        }
    }
    return STATUS_OK;
}

void worker_pool_stop(struct worker_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    pool->stopping = true;
    for (unsigned i = 0; i < pool->thread_count; i++)
        pthread_cond_signal(&pool->threads[i].woken);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->thread_count; i++) {
        pthread_join(pool->threads[i].thread, NULL);
        pthread_cond_destroy(&pool->threads[i].woken);
    }
    pool->thread_count = 0;
    pthread_mutex_destroy(&pool->lock);
}

/* Under the lock. Whoever is at work looks at the queues when that is done. */
static void worker_pool_wake_one(struct worker_pool *pool, enum pool_queue queue)
{
    for (unsigned i = 0; i < pool->thread_count; i++) {
        struct pool_thread *thread = &pool->threads[i];
        if (thread->is_idle && thread->own <= queue) {
            thread->is_idle = false;
            pthread_cond_signal(&thread->woken);
            return;
        }
    }
}

bool worker_pool_submit(struct worker_pool *pool, struct pool_task *task)
{
    struct pool_line *line = &pool->lines[task->queue];
    size_t max = task->queue == POOL_STRANGERS ? POOL_STRANGERS_MAX : POOL_TASKS_MAX;

    pthread_mutex_lock(&pool->lock);
    bool has_room = line->numbers.waiting < max;
    if (has_room) {
        task->next = NULL;
        *line->end = task;
        line->end = &task->next;
        line->numbers.waiting++;
        worker_pool_wake_one(pool, task->queue);
    } else {
        line->numbers.refused++;
    }
    pthread_mutex_unlock(&pool->lock);
    return has_room;
}

struct pool_numbers worker_pool_count(struct worker_pool *pool, enum pool_queue queue)
{
    pthread_mutex_lock(&pool->lock);
    struct pool_numbers numbers = pool->lines[queue].numbers;
    pthread_mutex_unlock(&pool->lock);
    return numbers;
}
