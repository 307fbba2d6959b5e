/* redis_channel.c: connecting, losing and connecting again. */
#include "gate/redis_channel.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "gate/redis_link.h"
#include "gate/redis_uv.h"

#define RETRY_MIN_MS 20
#define RETRY_MAX_MS 1000

void redis_channels_init(struct redis_channels *channels, const struct redis_target *target,
                         uv_loop_t *loop)
{
    *channels = (struct redis_channels){.target = target, .loop = loop};
}

void redis_channels_release(struct redis_channels *channels)
{
    struct redis_channel *next;

    for (struct redis_channel *channel = channels->first; channel != NULL; channel = next) {
        next = channel->next;
        redis_channel_drop(channel);
        free(channel);
    }
    channels->first = NULL;
}

struct redis_channel *redis_channels_find(struct redis_channels *channels,
                                          const struct redis_address *address)
{
    for (struct redis_channel *channel = channels->first; channel != NULL;
         channel = channel->next) {
        if (redis_address_equal(&channel->address, address))
            return channel;
    }
    struct redis_channel *channel = calloc(1, sizeof(*channel));
    ensure(channel != NULL);
    *channel = (struct redis_channel){.all = channels,
                                      .address = *address,
                                      .retry_pause_ms = RETRY_MIN_MS,
                                      .next = channels->first};
    channels->first = channel;
    return channel;
}

static void redis_channel_lost(struct redis_channel *channel)
{
    channel->link = NULL;
    channel->lost_at_ms = clock_monotonic_ms();
    channel->retry_at_ms = channel->lost_at_ms + channel->retry_pause_ms / 2 +
                           (int64_t)random_below((uint64_t)channel->retry_pause_ms);
    channel->retry_pause_ms =
        channel->retry_pause_ms * 2 > RETRY_MAX_MS ? RETRY_MAX_MS : channel->retry_pause_ms * 2;
}

static void redis_channel_on_connect(const redisAsyncContext *link, int status)
{
    /* hiredis frees the connection after this, and calls back what was queued on it. */
    if (status != REDIS_OK)
        redis_channel_lost(link->data);
}

static void redis_channel_on_disconnect(const redisAsyncContext *link, int status)
{
    struct redis_channel *channel = link->data;

    if (status != REDIS_OK)
        log_event(LOG_WARN, "gate_connection_lost",
                  LOG_FIELD("server", LOG_TEXT(redis_address_words(&channel->address).text)),
                  LOG_FIELD("error", LOG_TEXT(link->errstr)));
    redis_channel_lost(channel);
}

static void redis_channel_connect(struct redis_channel *channel)
{
    struct error error;
    redisAsyncContext *link = redis_link_begin(channel->all->target, &channel->address, &error);

    if (link == NULL || !redis_uv_attach(link, channel->all->loop)) {
        if (link != NULL)
            redisAsyncFree(link);
        redis_channel_lost(channel);
        return;
    }
    channel->link = link;
    link->data = channel;
    redisAsyncSetConnectCallback(link, redis_channel_on_connect);
    redisAsyncSetDisconnectCallback(link, redis_channel_on_disconnect);
}

redisAsyncContext *redis_channel_open(struct redis_channel *channel)
{
    if (channel->link == NULL && clock_monotonic_ms() >= channel->retry_at_ms)
        redis_channel_connect(channel);
    return channel->link;
}

void redis_channel_drop(struct redis_channel *channel)
{
    redisAsyncContext *link = channel->link;

    if (link == NULL)
        return;
    redis_channel_lost(channel);
    redisAsyncSetDisconnectCallback(link, NULL);
    redisAsyncFree(link);
}

void redis_channel_is_well(struct redis_channel *channel)
{
    channel->retry_pause_ms = RETRY_MIN_MS;
}

void redis_channel_hurry(struct redis_channel *channel)
{
    channel->retry_at_ms = 0;
}
