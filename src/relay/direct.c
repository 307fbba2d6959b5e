/* direct.c: nothing in between: what is pending goes straight to the outlet of the same worker. */
#include "relay/direct.h"

#include <stdio.h>
#include <stdlib.h>

#define OUTSTANDING_MAX 5000

struct relay_direct {
    struct relay relay;
    struct relay_outlet outlet;
};

static struct relay_direct *relay_direct_of(struct relay *relay)
{
    return (struct relay_direct *)relay;
}

static enum status relay_direct_run(struct relay *relay, const struct relay_outlet *outlet,
                                    struct error *error)
{
    (void)error;
    relay_direct_of(relay)->outlet = *outlet;
    return STATUS_OK;
}

static enum status relay_direct_begin(struct relay *relay, struct relay_way *way,
                                      struct error *error)
{
    (void)relay;
    (void)error;
    way->cursor = 0;
    return STATUS_OK;
}

static enum status relay_direct_carry(struct relay *relay, struct relay_way *way,
                                      struct claim *claims, size_t count, struct error *error)
{
    const struct relay_outlet *outlet = &relay_direct_of(relay)->outlet;

    if (outlet->outstanding(outlet->context, way->policy_id) > OUTSTANDING_MAX)
        return error_set(error, STATUS_BUSY, "the ledger has much to do");
    way->cursor = claims[count - 1].seq;
    count = outlet->sift(outlet->context, claims, count);
    if (count > 0)
        outlet->issue(outlet->context, claims, count);
    return STATUS_OK;
}

/* What is still pending though the ledger was given it is given again. */
static bool relay_direct_rest(struct relay *relay, struct relay_way *way, int64_t pending_count)
{
    const struct relay_outlet *outlet = &relay_direct_of(relay)->outlet;

    if (way->cursor == 0 || outlet->outstanding(outlet->context, way->policy_id) > 0)
        return false;
    way->cursor = 0;
    return pending_count > (int64_t)outlet->waiting(outlet->context, way->policy_id);
}

static enum status relay_direct_pass(struct relay *relay, struct relay_way *way,
                                     struct claim *claims, size_t count, struct error *error)
{
    (void)relay;
    (void)claims;
    (void)count;
    (void)error;
    way->cursor = 0;
    return STATUS_OK;
}

static void relay_direct_leave(struct relay *relay, struct relay_way *way)
{
    (void)relay;
    way->cursor = 0;
}

static void relay_direct_settled(struct relay *relay, const struct claim *claims,
                                 const enum coupon_state *states, size_t count)
{
    (void)relay;
    (void)claims;
    (void)states;
    (void)count;
}

static bool relay_direct_is_ready(struct relay *relay, struct error *words)
{
    (void)relay;
    snprintf(words->text, sizeof(words->text), "ok");
    return true;
}

static bool relay_direct_count(struct relay *relay, struct relay_numbers *numbers)
{
    (void)relay;
    (void)numbers;
    return false;
}

static void relay_direct_stop(struct relay *relay, int64_t timeout_ms)
{
    (void)relay;
    (void)timeout_ms;
}

static void relay_direct_close(struct relay *relay)
{
    free(relay);
}

static const struct relay_ops relay_direct_ops = {
    .name = "direct",
    .run = relay_direct_run,
    .begin = relay_direct_begin,
    .carry = relay_direct_carry,
    .rest = relay_direct_rest,
    .pass = relay_direct_pass,
    .leave = relay_direct_leave,
    .settled = relay_direct_settled,
    .is_ready = relay_direct_is_ready,
    .count = relay_direct_count,
    .stop = relay_direct_stop,
    .close = relay_direct_close,
};

enum status relay_direct_open(struct relay **relay, struct error *error)
{
    struct relay_direct *direct = calloc(1, sizeof(*direct));

    if (direct == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the relay");
    direct->relay.ops = &relay_direct_ops;
    *relay = &direct->relay;
    return STATUS_OK;
}
