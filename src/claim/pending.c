/* pending.c: the claims that the ledger does not have yet, for people to look at. */
#include <stdlib.h>

#include "claim/parts.h"
#include "claim/service.h"
#include "gate/shared.h"

/* --- a gate in this process --- */

struct pending_page {
    int64_t after_seq;
    struct claim *claims;
    size_t max;
    size_t count;
};

static enum status pending_skip_policy(void *context, const struct policy *policy,
                                       struct error *error)
{
    return STATUS_OK;
}

static enum status pending_skip_lease(void *context, const struct lease *lease, int64_t given_count,
                                      struct error *error)
{
    return STATUS_OK;
}

static enum status pending_skip_key(void *context, const struct key_binding *binding,
                                    struct error *error)
{
    return STATUS_OK;
}

static enum status pending_skip_blocked(void *context, const struct id *user, struct error *error)
{
    return STATUS_OK;
}

/* A full page ends the walk: BUSY, which no gate answers with. */
static enum status pending_take(void *context, const struct held_claim *held, struct error *error)
{
    struct pending_page *page = context;

    if (!held->is_pending || held->claim.seq <= page->after_seq)
        return STATUS_OK;
    if (page->count == page->max)
        return error_set(error, STATUS_BUSY, "the page is full");
    page->claims[page->count++] = held->claim;
    return STATUS_OK;
}

static enum status pending_visit(struct gate *gate, int64_t policy_id, struct pending_page *page,
                                 struct error *error)
{
    const struct claim_visitor visitor = {
        .policy = pending_skip_policy,
        .lease = pending_skip_lease,
        .claim = pending_take,
        .key = pending_skip_key,
        .blocked = pending_skip_blocked,
        .context = page,
    };
    enum status status = gate_visit(gate, policy_id, &visitor, error);

    return status == STATUS_BUSY ? STATUS_OK : status;
}

/* --- a shared gate --- */

/* Of one that the gate does not have, or has let go of, nothing is pending: the ledger knows
 * whether there is such a policy. While the gate has it, the ledger may be away. */
static enum status pending_read(struct service *service, int64_t policy_id,
                                struct pending_page *page, struct error *error)
{
    struct shared_gate *gate = service->shared;
    struct gate_pending *pending = malloc(sizeof(*pending));
    struct policy_view view;
    int64_t after_seq = page->after_seq;
    enum status status = pending == NULL
                             ? error_set(error, STATUS_UNAVAILABLE, "no memory for what is pending")
                             : gate_pending(gate, policy_id, after_seq, pending, error);

    if (status == STATUS_OK && !pending->is_known)
        status = service_policy_show(service, policy_id, &view, error);
    while (status == STATUS_OK && pending->is_known && pending->claim_count > 0 &&
           page->count < page->max) {
        for (size_t i = 0; i < pending->claim_count && page->count < page->max; i++)
            page->claims[page->count++] = pending->claims[i];
        after_seq = pending->claims[pending->claim_count - 1].seq;
        if (page->count < page->max)
            status = gate_pending(gate, policy_id, after_seq, pending, error);
    }
    free(pending);
    return status;
}

enum status service_pending_claims(struct service *service, int64_t policy_id, int64_t after_seq,
                                   struct claim *claims, size_t max, size_t *count,
                                   struct error *error)
{
    struct pending_page page = {.after_seq = after_seq, .claims = claims, .max = max};
    enum status status = service->shared != NULL
                             ? pending_read(service, policy_id, &page, error)
                             : pending_visit(service->gate, policy_id, &page, error);

    *count = page.count;
    return status;
}
