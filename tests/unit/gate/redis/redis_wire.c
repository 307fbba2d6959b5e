/* redis_wire.c: connections of hiredis that read from memory. */
#include "redis_wire.h"

#include <stdio.h>
#include <string.h>

#define NOBODY_HERE "/nobody/listens/here"

static ssize_t wire_read(redisContext *link, char *room, size_t size)
{
    struct span *said = link->privdata;
    size_t length = said->length < size ? said->length : size;

    if (length == 0) {
        link->err = REDIS_ERR_EOF;
        snprintf(link->errstr, sizeof(link->errstr), "nothing more is said");
        return -1;
    }
    memcpy(room, said->bytes, length);
    said->bytes += length;
    said->length -= length;
    return (ssize_t)length;
}

static ssize_t wire_write(redisContext *link)
{
    return (ssize_t)sdslen(link->obuf);
}

void redis_wire_plug(struct redis_pool *pool, struct span *said)
{
    static const redisContextFuncs functions = {.read = wire_read, .write = wire_write};
    redisContext *link = redisConnectFd(REDIS_INVALID_FD);

    ensure(link != NULL && link->err == 0);
    redis_link_limit(link);
    link->funcs = &functions;
    link->privdata = said;
    redis_pool_give(pool, &pool->target->seeds[0], link);
}

static void wire_stock_changed(void *context)
{
    (void)context;
}

void redis_wire_open(struct redis_wire *wire, struct span said)
{
    *wire = (struct redis_wire){.said = said};
    struct gate_redis *redis = &wire->redis;
    redis->gate.ops = &gate_redis_ops;
    redis->target = (struct redis_target){
        .mode = REDIS_MODE_SINGLE, .seeds = {{.host = NOBODY_HERE}}, .seed_count = 1};
    redis_map_init(&redis->map, &redis->target);
    redis_pool_init(&redis->pool, &redis->target, &redis->map, &redis_gate_library);
    redis_wire_plug(&redis->pool, &wire->said);
    redis->watch = (struct redis_watch){.pool = &redis->pool, .stock_changed = wire_stock_changed};
    pthread_mutex_init(&redis->watch.lock, NULL);
}

void redis_wire_close(struct redis_wire *wire)
{
    redis_watch_stop(&wire->redis.watch);
    redis_pool_release(&wire->redis.pool);
    redis_map_release(&wire->redis.map);
}
