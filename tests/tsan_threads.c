/* tsan_threads.c: C11 threads in terms of POSIX ones, for builds with ThreadSanitizer.
 *
 * librdkafka starts its threads and takes its locks through <threads.h>, which ThreadSanitizer does
 * not know: it crashes on threads that it has not seen start, and sees no order between what one
 * thread gives to librdkafka and another gets from it. Defined in the program, these functions are
 * the ones that librdkafka finds; glibc's types are the same on both sides. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>

_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t) && sizeof(cnd_t) == sizeof(pthread_cond_t),
               "glibc's C11 threads are POSIX threads");

struct tsan_start {
    thrd_start_t function;
    void *argument;
};

static int tsan_result(int code)
{
    return code == 0           ? thrd_success
           : code == ETIMEDOUT ? thrd_timedout
           : code == EBUSY     ? thrd_busy
           : code == ENOMEM    ? thrd_nomem
                               : thrd_error;
}

static void *tsan_main(void *context)
{
    struct tsan_start start = *(struct tsan_start *)context;

    free(context);
    return (void *)(intptr_t)start.function(start.argument);
}

int thrd_create(thrd_t *thread, thrd_start_t function, void *argument)
{
    struct tsan_start *start = malloc(sizeof(*start));

    if (start == NULL)
        return thrd_nomem;
    *start = (struct tsan_start){.function = function, .argument = argument};
    int code = pthread_create(thread, NULL, tsan_main, start);
    if (code != 0)
        free(start);
    return tsan_result(code);
}

int thrd_join(thrd_t thread, int *result)
{
    void *value = NULL;
    int code = pthread_join(thread, &value);

    if (result != NULL)
        *result = (int)(intptr_t)value;
    return tsan_result(code);
}

int mtx_init(mtx_t *mutex, int type)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    if ((type & mtx_recursive) != 0)
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    int code = pthread_mutex_init((pthread_mutex_t *)mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return tsan_result(code);
}

void mtx_destroy(mtx_t *mutex)
{
    pthread_mutex_destroy((pthread_mutex_t *)mutex);
}

int mtx_lock(mtx_t *mutex)
{
    return tsan_result(pthread_mutex_lock((pthread_mutex_t *)mutex));
}

int mtx_unlock(mtx_t *mutex)
{
    return tsan_result(pthread_mutex_unlock((pthread_mutex_t *)mutex));
}

int cnd_init(cnd_t *condition)
{
    return tsan_result(pthread_cond_init((pthread_cond_t *)condition, NULL));
}

void cnd_destroy(cnd_t *condition)
{
    pthread_cond_destroy((pthread_cond_t *)condition);
}

int cnd_signal(cnd_t *condition)
{
    return tsan_result(pthread_cond_signal((pthread_cond_t *)condition));
}

int cnd_broadcast(cnd_t *condition)
{
    return tsan_result(pthread_cond_broadcast((pthread_cond_t *)condition));
}

int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    return tsan_result(pthread_cond_wait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex));
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex,
                  const struct timespec *restrict until)
{
    return tsan_result(
        pthread_cond_timedwait((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until));
}
