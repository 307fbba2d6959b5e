/* relay.h: carries pending claims from the gate to the ledger.
 *
 * A relay never drops, reorders or invents a claim of a policy.
 *
 * Threads: relay_push() may be called from any thread, also with a gate's lock held.
 */
#ifndef RELAY_RELAY_H
#define RELAY_RELAY_H

#include "base/error.h"
#include "base/model.h"
#include "ledger/ledger.h"

struct relay;

/* A backend. Every slot is required. */
struct relay_ops {
    const char *name;
    uint64_t (*push)(struct relay *relay, const struct claim *claims, size_t claim_count,
                     const struct key_binding *bindings, size_t binding_count);
    void (*close)(struct relay *relay);
};

/* Every backend's struct starts with this. */
struct relay {
    const struct relay_ops *ops;
};

/* "direct" hands claims straight to the ledger of this process. */
enum status relay_open(struct relay **relay, const char *url, struct ledger *ledger,
                       struct error *error) MUST_CHECK;
void relay_close(struct relay *relay);

/* Takes claims in seq order; the ticket is the ledger's. */
uint64_t relay_push(struct relay *relay, const struct claim *claims, size_t claim_count,
                    const struct key_binding *bindings, size_t binding_count);

#endif
