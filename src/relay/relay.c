/* relay.c: opening a relay by its URL, and the way to its backend. */
#include "relay/relay.h"

#include <string.h>

#include "relay/direct.h"
#include "relay/kafka.h"

enum status relay_open(struct relay **relay, const struct relay_options *options,
                       struct error *error)
{
    *relay = NULL;
    enum status status = strcmp(options->url, "direct") == 0
                             ? relay_direct_open(relay, error)
                             : relay_kafka_open(relay, options, error);
    if (status != STATUS_OK)
        return status;
    const struct relay_ops *ops = (*relay)->ops;
    ensure(ops->name && ops->run && ops->begin && ops->carry && ops->rest && ops->pass &&
           ops->leave && ops->settled && ops->is_ready && ops->count && ops->stop && ops->close);
    return STATUS_OK;
}

void relay_close(struct relay *relay)
{
    if (relay != NULL)
        relay->ops->close(relay);
}

enum status relay_run(struct relay *relay, const struct relay_outlet *outlet, struct error *error)
{
    ensure(outlet->issue && outlet->sift && outlet->outstanding && outlet->waiting &&
           outlet->publish && outlet->published && outlet->letter && outlet->bury);
    return relay->ops->run(relay, outlet, error);
}

void relay_stop(struct relay *relay, int64_t timeout_ms)
{
    if (relay != NULL)
        relay->ops->stop(relay, timeout_ms);
}

enum status relay_begin(struct relay *relay, struct relay_way *way, struct error *error)
{
    return relay->ops->begin(relay, way, error);
}

enum status relay_carry(struct relay *relay, struct relay_way *way, struct claim *claims,
                        size_t count, struct error *error)
{
    ensure(count > 0);
    return relay->ops->carry(relay, way, claims, count, error);
}

bool relay_rest(struct relay *relay, struct relay_way *way, int64_t pending_count)
{
    return relay->ops->rest(relay, way, pending_count);
}

enum status relay_pass(struct relay *relay, struct relay_way *way, struct claim *claims,
                       size_t count, struct error *error)
{
    return relay->ops->pass(relay, way, claims, count, error);
}

void relay_leave(struct relay *relay, struct relay_way *way)
{
    relay->ops->leave(relay, way);
}

void relay_settled(struct relay *relay, const struct claim *claims, const enum coupon_state *states,
                   size_t count)
{
    relay->ops->settled(relay, claims, states, count);
}

bool relay_is_ready(struct relay *relay, struct error *words)
{
    return relay->ops->is_ready(relay, words);
}

bool relay_count(struct relay *relay, struct relay_numbers *numbers)
{
    return relay->ops->count(relay, numbers);
}

bool relay_tells(const char *url)
{
    return strncmp(url, "kafka:", strlen("kafka:")) == 0;
}
