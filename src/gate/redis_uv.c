/* redis_uv.c: a poll handle per connection. */
#include "gate/redis_uv.h"

#include <stdlib.h>
#include <sys/socket.h>

struct redis_uv {
    uv_poll_t poll; /* first: the handle's close callback frees all of it */
    redisAsyncContext *link;
    int events;
};

/* True when something has come though nobody awaits an answer. Under TLS bytes may come that are no
 * answer. */
static bool redis_uv_is_unasked(const redisAsyncContext *link)
{
    char byte;

    return (link->c.flags & REDIS_CONNECTED) != 0 && link->replies.head == NULL &&
           link->c.privctx == NULL && recv(link->c.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void redis_uv_mind(redisAsyncContext *link)
{
    if (link->replies.head == NULL && link->c.reader->pos < link->c.reader->len)
        redisAsyncFree(link);
}

static void redis_uv_on_event(uv_poll_t *poll, int status, int events)
{
    struct redis_uv *uv = (struct redis_uv *)poll;
    redisAsyncContext *link = uv->link;

    /* The connection may be freed by the first of the two; cleanup then says so. */
    if (link != NULL && (status < 0 || (events & UV_READABLE) != 0)) {
        if (redis_uv_is_unasked(link))
            redisAsyncFree(link);
        else
            redisAsyncHandleRead(link);
    }
    if (uv->link != NULL && (events & UV_WRITABLE) != 0)
        redisAsyncHandleWrite(uv->link);
}

static void redis_uv_want(struct redis_uv *uv, int events)
{
    uv->events = events;
    if (events == 0)
        uv_poll_stop(&uv->poll);
    else
        uv_poll_start(&uv->poll, events, redis_uv_on_event);
}

static void redis_uv_add_read(void *context)
{
    struct redis_uv *uv = context;
    if ((uv->events & UV_READABLE) == 0)
        redis_uv_want(uv, uv->events | UV_READABLE);
}

static void redis_uv_delete_read(void *context)
{
    struct redis_uv *uv = context;
    redis_uv_want(uv, uv->events & ~UV_READABLE);
}

static void redis_uv_add_write(void *context)
{
    struct redis_uv *uv = context;
    if ((uv->events & UV_WRITABLE) == 0)
        redis_uv_want(uv, uv->events | UV_WRITABLE);
}

static void redis_uv_delete_write(void *context)
{
    struct redis_uv *uv = context;
    redis_uv_want(uv, uv->events & ~UV_WRITABLE);
}

static void redis_uv_on_closed(uv_handle_t *handle)
{
    free(handle);
}

static void redis_uv_cleanup(void *context)
{
    struct redis_uv *uv = context;
    uv->link = NULL;
    uv_poll_stop(&uv->poll);
    uv_close((uv_handle_t *)&uv->poll, redis_uv_on_closed);
}

bool redis_uv_attach(redisAsyncContext *link, uv_loop_t *loop)
{
    struct redis_uv *uv = calloc(1, sizeof(*uv));

    if (uv == NULL || uv_poll_init(loop, &uv->poll, link->c.fd) != 0) {
        free(uv);
        return false;
    }
    uv->link = link;
    link->ev.data = uv;
    link->ev.addRead = redis_uv_add_read;
    link->ev.delRead = redis_uv_delete_read;
    link->ev.addWrite = redis_uv_add_write;
    link->ev.delWrite = redis_uv_delete_write;
    link->ev.cleanup = redis_uv_cleanup;
    return true;
}
