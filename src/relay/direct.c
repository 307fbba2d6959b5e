/* direct.c: no carrier in between: what the gate gives goes straight into the ledger's queue. */
#include "relay/direct.h"

#include <stdlib.h>

struct relay_direct {
    struct relay relay;
    struct ledger *ledger;
};

static uint64_t relay_direct_push(struct relay *relay, const struct claim *claims,
                                  size_t claim_count, const struct key_binding *bindings,
                                  size_t binding_count)
{
    struct relay_direct *direct = (struct relay_direct *)relay;
    return ledger_issue(direct->ledger, claims, claim_count, bindings, binding_count);
}

static void relay_direct_close(struct relay *relay)
{
    free(relay);
}

static const struct relay_ops relay_direct_ops = {
    .name = "direct",
    .push = relay_direct_push,
    .close = relay_direct_close,
};

enum status relay_direct_open(struct relay **relay, struct ledger *ledger, struct error *error)
{
    struct relay_direct *direct = calloc(1, sizeof(*direct));

    if (direct == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the relay");
    direct->relay.ops = &relay_direct_ops;
    direct->ledger = ledger;
    *relay = &direct->relay;
    return STATUS_OK;
}
