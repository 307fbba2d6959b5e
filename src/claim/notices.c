/* notices.c: a ring of events under a lock. */
#include "claim/notices.h"

#include <stdarg.h>
#include <stdio.h>

void notices_init(struct notices *notices)
{
    notices->count = 0;
    pthread_mutex_init(&notices->lock, NULL);
}

void notices_release(struct notices *notices)
{
    pthread_mutex_destroy(&notices->lock);
}

void notices_add(struct notices *notices, int64_t at_ms, int64_t policy_id, const char *event,
                 const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&notices->lock);
    struct notice *notice = &notices->ring[notices->count % NOTICES_MAX];
    notice->number = ++notices->count;
    notice->at_ms = at_ms;
    notice->policy_id = policy_id;
    notice->event = event;
    va_start(arguments, format);
    vsnprintf(notice->text, sizeof(notice->text), format, arguments);
    va_end(arguments);
    pthread_mutex_unlock(&notices->lock);
}

size_t notices_read(struct notices *notices, int64_t policy_id, uint64_t after, uint64_t until,
                    struct notice *out, size_t max)
{
    size_t count = 0;

    pthread_mutex_lock(&notices->lock);
    uint64_t oldest = notices->count > NOTICES_MAX ? notices->count - NOTICES_MAX : 0;
    uint64_t from = after > oldest ? after : oldest;
    uint64_t last = until < notices->count ? until : notices->count;
    /* Backwards, so that the latest are those that are kept. */
    for (uint64_t number = last; number > from && count < max; number--) {
        const struct notice *notice = &notices->ring[(number - 1) % NOTICES_MAX];
        if (notice->policy_id == policy_id || notice->policy_id == 0)
            out[count++] = *notice;
    }
    pthread_mutex_unlock(&notices->lock);
    for (size_t i = 0; i < count / 2; i++) {
        struct notice first = out[i];
        out[i] = out[count - 1 - i];
        out[count - 1 - i] = first;
    }
    return count;
}

uint64_t notices_latest(struct notices *notices)
{
    pthread_mutex_lock(&notices->lock);
    uint64_t count = notices->count;
    pthread_mutex_unlock(&notices->lock);
    return count;
}
