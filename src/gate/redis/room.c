/* room.c: asks each Redis for room, and now and then for its size. */
#include "gate/redis/room.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define MEASURE_MS 5000

void redis_rooms_init(struct redis_rooms *rooms)
{
    pthread_mutex_init(&rooms->lock, NULL);
}

void redis_rooms_release(struct redis_rooms *rooms)
{
    pthread_mutex_destroy(&rooms->lock);
}

bool redis_rooms_begin(struct redis_rooms *rooms)
{
    int64_t now_ms = clock_monotonic_ms();

    if (now_ms < rooms->again_at_ms)
        return false;
    rooms->again_at_ms = now_ms + MEASURE_MS;
    rooms->next_count = 0;
    return true;
}

void redis_rooms_end(struct redis_rooms *rooms)
{
    pthread_mutex_lock(&rooms->lock);
    memcpy(rooms->rooms, rooms->next, rooms->next_count * sizeof(rooms->next[0]));
    rooms->count = rooms->next_count;
    pthread_mutex_unlock(&rooms->lock);
}

size_t redis_rooms_copy(struct redis_rooms *rooms, struct gate_room *copies, size_t max)
{
    pthread_mutex_lock(&rooms->lock);
    size_t count = rooms->count < max ? rooms->count : max;
    memcpy(copies, rooms->rooms, count * sizeof(*copies));
    pthread_mutex_unlock(&rooms->lock);
    return count;
}

/* "name:123" in what INFO says; 0 when it is not there. */
static int64_t redis_room_number(struct span info, const char *name)
{
    const char *at = memmem(info.bytes, info.length, name, strlen(name));

    return at == NULL ? 0 : strtoll(at + strlen(name), NULL, 10);
}

/* A server that does not tell is left out: it may be that INFO is not allowed. */
static void redis_room_measure(struct redis_rooms *rooms, redisContext *link,
                               const struct redis_address *address)
{
    struct gate_room *room = &rooms->next[rooms->next_count];
    struct span info;
    redisReply *memory = redisCommand(link, "INFO memory");
    redisReply *keys = memory == NULL ? NULL : redisCommand(link, "DBSIZE");

    if (rooms->next_count < REDIS_ROOMS_MAX && redis_reply_text(memory, &info) && keys != NULL &&
        keys->type == REDIS_REPLY_INTEGER) {
        snprintf(room->server, sizeof(room->server), "%.*s", (int)sizeof(room->server) - 1,
                 redis_address_text(address).text);
        room->used_bytes = redis_room_number(info, "used_memory:");
        room->limit_bytes = redis_room_number(info, "maxmemory:");
        room->key_count = keys->integer;
        rooms->next_count++;
    }
    freeReplyObject(memory);
    freeReplyObject(keys);
}

enum status redis_room_check(struct redis_pool *pool, const struct redis_address *address,
                             struct redis_rooms *rooms, struct error *error)
{
    redisContext *link = NULL;
    enum status status = redis_pool_take(pool, address, &link, error);

    if (status != STATUS_OK)
        return status;
    redisReply *reply = redisCommand(link, "FCALL dibs_room 0");
    const char *message = reply == NULL ? link->errstr : redis_reply_error(reply);
    if (message != NULL && strncmp(message, "OOM", 3) == 0)
        status = error_set(error, STATUS_UNAVAILABLE,
                           "Redis at %s is full (maxmemory), and takes no claims",
                           redis_address_text(address).text);
    else if (message != NULL)
        status = error_set(error, STATUS_UNAVAILABLE, "Redis at %s: %.300s",
                           redis_address_text(address).text, message);
    if (reply != NULL && rooms != NULL)
        redis_room_measure(rooms, link, address);
    if (reply == NULL || link->err != 0)
        redisFree(link);
    else
        redis_pool_give(pool, address, link);
    freeReplyObject(reply);
    return status;
}
