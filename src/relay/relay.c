/* relay.c: opening a relay by its URL. */
#include "relay/relay.h"

#include <string.h>

#include "relay/direct.h"

enum status relay_open(struct relay **relay, const char *url, struct ledger *ledger,
                       struct error *error)
{
    *relay = NULL;
    if (strcmp(url, "direct") != 0)
        return error_set(error, STATUS_INVALID, "relay %s: unknown kind; this build knows: direct",
                         url);
    enum status status = relay_direct_open(relay, ledger, error);
    if (status == STATUS_OK)
        ensure((*relay)->ops->name && (*relay)->ops->push && (*relay)->ops->close);
    return status;
}

void relay_close(struct relay *relay)
{
    if (relay != NULL)
        relay->ops->close(relay);
}

uint64_t relay_push(struct relay *relay, const struct claim *claims, size_t claim_count,
                    const struct key_binding *bindings, size_t binding_count)
{
    return relay->ops->push(relay, claims, claim_count, bindings, binding_count);
}
