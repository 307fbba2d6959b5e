/* duty_sync.c: the leases of an armed policy, and what its users hold, in a shared gate and in the
 * ledger, held against each other. */
#include <stdlib.h>

#include "base/log.h"
#include "claim/shared/worker_parts.h"

#define DRIFT_MS 3000 /* a change under way is over by then */

/* Whether it is no change under way: it has been the same amount for a while. Begins anew then. */
static bool duty_drift_lasts(struct duty_drift *drift, int64_t amount, int64_t now_ms)
{
    if (amount <= 0 || amount != drift->amount)
        *drift = (struct duty_drift){.amount = amount, .since_ms = now_ms};
    if (amount <= 0 || now_ms - drift->since_ms < DRIFT_MS)
        return false;
    drift->amount = 0;
    return true;
}

/* --- leases ---
 *
 * The ledger is told what a gate does with a lease in steps, and whoever takes them may die in
 * between: units recalled from the gate that the ledger still counts as lent, a lease that the
 * ledger has given and the gate never got, one that is sold and written and still open. Stock only
 * ever moves through leases here; what the gate has left is never set from the ledger's numbers. */

struct duty_leases {
    struct gate_lease *in_gate;
    size_t gate_count;
    int64_t highest_id;
    struct lease *in_ledger;
    size_t ledger_count;
    int64_t first_pending_seq; /* INT64_MAX: nothing is pending */
};

/* In this order: a lease that is sold when the gate tells of it has all of its claims pending, or
 * written, when the pending ones are read. */
static enum status duty_leases_read(struct worker *worker, const struct duty *duty,
                                    struct duty_leases *leases, struct error *error)
{
    struct service *service = worker->service;
    struct gate_pending *pending = worker->pending;
    enum status status = ledger_lease_list(service->ledger, duty->policy_id, &leases->in_ledger,
                                           &leases->ledger_count, error);

    if (status == STATUS_OK)
        status = gate_leases(service->shared, duty->policy_id, &leases->in_gate,
                             &leases->gate_count, &leases->highest_id, error);
    if (status == STATUS_OK)
        status = gate_pending(service->shared, duty->policy_id, 0, pending, error);
    if (status == STATUS_OK && !pending->is_armed)
        status = error_set(error, STATUS_UNAVAILABLE, "the policy awaits its steward");
    leases->first_pending_seq =
        status == STATUS_OK && pending->claim_count > 0 ? pending->claims[0].seq : INT64_MAX;
    return status;
}

static const struct gate_lease *duty_leases_find(const struct duty_leases *leases, int64_t id)
{
    for (size_t i = 0; i < leases->gate_count; i++)
        if (leases->in_gate[i].id == id)
            return &leases->in_gate[i];
    return NULL;
}

/* Everything of it was given out or recalled, and all that was given out is written. */
static bool duty_leases_is_over(const struct duty_leases *leases, const struct lease *lease)
{
    const struct gate_lease *in_gate = duty_leases_find(leases, lease->id);

    if (in_gate == NULL && lease->id > leases->highest_id)
        return false;
    return (in_gate == NULL || in_gate->next_seq >= in_gate->end_seq) &&
           leases->first_pending_seq >= lease->first_seq + lease->count;
}

/* Whether the gate has every lease of the ledger as it is there: one that is missing may be sold,
 * with units that came back. */
static bool duty_leases_agree(const struct duty_leases *leases)
{
    for (size_t i = 0; i < leases->ledger_count; i++) {
        const struct lease *lease = &leases->in_ledger[i];
        const struct gate_lease *in_gate = duty_leases_find(leases, lease->id);
        if (in_gate == NULL || in_gate->end_seq - in_gate->first_seq != lease->count)
            return false;
    }
    return true;
}

/* Units of a lease that is still being sold which the gate gave back and the ledger never heard of.
 * 0: none, or they may be on their way. */
static int64_t duty_leases_drift(const struct duty_leases *leases, struct lease_shrunk *shrunk,
                                 size_t *shrunk_count)
{
    int64_t units = 0;

    *shrunk_count = 0;
    for (size_t i = 0; i < leases->ledger_count; i++) {
        const struct lease *lease = &leases->in_ledger[i];
        const struct gate_lease *in_gate = duty_leases_find(leases, lease->id);
        if (in_gate == NULL || *shrunk_count == GATE_RECALL_LEASES_MAX)
            continue;
        int64_t left = in_gate->end_seq - in_gate->first_seq;
        if (left >= lease->count)
            continue;
        units += lease->count - left;
        shrunk[(*shrunk_count)++] = (struct lease_shrunk){.lease_id = lease->id, .count = left};
    }
    return units;
}

static enum status duty_leases_give_back(struct worker *worker, struct duty *duty,
                                         const struct duty_leases *leases, int64_t now_ms,
                                         struct error *error)
{
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    const struct policy_change nothing = {.term = duty->term};
    struct policy policy;
    size_t shrunk_count = 0;
    int64_t units = duty_leases_drift(leases, shrunk, &shrunk_count);

    if (!duty_drift_lasts(&duty->units, units, now_ms))
        return STATUS_OK;
    log_event(LOG_WARN, "units_found", LOG_FIELD("policy", LOG_I64(duty->policy_id)),
              LOG_FIELD("units", LOG_I64(units)));
    return ledger_policy_change(worker->service->ledger, duty->policy_id, &nothing, shrunk,
                                shrunk_count, &policy, error);
}

/* One that the gate never got is lent. When the gate has seen a later one, or is empty and nobody
 * has been told of new stock, it goes back, and its units are lent as others are. */
static enum status duty_leases_settle(struct worker *worker, const struct duty *duty,
                                      const struct duty_leases *leases, const struct lease *lease,
                                      struct error *error)
{
    struct service *service = worker->service;

    if (duty_leases_is_over(leases, lease))
        return ledger_lease_close(service->ledger, lease->id, duty->term, error);
    if (lease->id <= leases->highest_id)
        return STATUS_OK;
    enum status status = gate_lend(service->gate, lease, 0, duty->term, error);
    if (status == STATUS_CONFLICT || status == STATUS_BUSY)
        status = ledger_lease_close(service->ledger, lease->id, duty->term, error);
    return status;
}

void duty_sync_leases(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct duty_leases leases = {0};
    struct policy policy;
    struct error error = {""};
    int64_t interval_ms = worker_sync_ms(worker);
    int64_t wait_ms;
    bool is_watched = duty->units.amount != 0 && interval_ms > DRIFT_MS;

    if (duty->synced_at_ms != 0 &&
        now_ms - duty->synced_at_ms < (is_watched ? DRIFT_MS : interval_ms))
        return;
    if (!duty_is_held(worker, duty, now_ms))
        return;
    duty->synced_at_ms = now_ms;
    enum status status = duty_leases_read(worker, duty, &leases, &error);
    if (status == STATUS_OK)
        status = duty_leases_give_back(worker, duty, &leases, now_ms, &error);
    for (size_t i = 0; i < leases.ledger_count && status == STATUS_OK; i++)
        status = duty_leases_settle(worker, duty, &leases, &leases.in_ledger[i], &error);
    bool agrees = duty_leases_agree(&leases);
    free(leases.in_ledger);
    free(leases.in_gate);
    /* What the ledger has lent is in the gate, and it is not about to lend more. */
    if (status == STATUS_OK && duty->lend_at_ms == 0)
        status = gate_announce(worker->service->shared, duty->policy_id,
                               agrees ? GATE_LEASES_AGREE : 0, &wait_ms, &error);
    if (status == STATUS_OK)
        status = service_refresh(worker->service, duty->policy_id, &policy, &error);
    if (status != STATUS_OK)
        duty_say(duty, "lease_sync_failed", &error);
}

/* --- users ---
 *
 * A coupon is cancelled in the ledger first, and then the gate is told. Whoever does it may die in
 * between: then a user holds a coupon in the gate and none in the ledger, and is refused another
 * one. The number of active coupons in both tells: when the gate keeps having more, it is told once
 * more of everything that was cancelled or redeemed, which changes nothing where it knows. */

static enum status duty_tell_again(void *context, const struct claim *claim,
                                   enum coupon_state state, struct error *error)
{
    struct gate *gate = context;

    if (state != COUPON_CANCELLED && state != COUPON_REDEEMED)
        return STATUS_OK;
    return gate_settle(gate, claim->policy_id, &claim->user, claim->seq, state, error);
}

/* How many more coupons are active in the gate than in the ledger, and of which version of the
 * policy that is so. BUSY: something is pending, so nothing can be said. */
static enum status duty_count_surplus(struct worker *worker, const struct duty *duty,
                                      int64_t *surplus, int64_t *version, struct error *error)
{
    struct service *service = worker->service;
    struct ledger_balance balance;
    struct gate_numbers numbers;
    enum status status = gate_refresh(service->shared, duty->policy_id, error);

    if (status == STATUS_OK)
        status = ledger_balance(service->ledger, duty->policy_id, &balance, error);
    if (status == STATUS_OK)
        status = gate_count(service->gate, duty->policy_id, 0, &numbers);
    if (status == STATUS_OK && numbers.pending > 0)
        status = error_set(error, STATUS_BUSY, "claims are pending");
    if (status != STATUS_OK)
        return status;
    *surplus = numbers.issued - balance.active;
    *version = numbers.version;
    return STATUS_OK;
}

void duty_sync_users(struct worker *worker, struct duty *duty, int64_t now_ms)
{
    struct ledger_visitor visitor = {.claim = duty_tell_again, .context = worker->service->gate};
    int64_t interval_ms = worker_sync_ms(worker);
    int64_t surplus = 0;
    int64_t version = 0;
    struct error error = {""};

    /* Only a change of the policy's row can have returned a unit. */
    if (worker->pending->version == duty->counted_version || worker->pending->pending_count > 0 ||
        now_ms - duty->counted_at_ms < interval_ms || !duty_is_held(worker, duty, now_ms))
        return;
    duty->counted_at_ms = now_ms;
    if (duty_count_surplus(worker, duty, &surplus, &version, &error) != STATUS_OK)
        return;
    if (surplus <= 0)
        duty->counted_version = version;
    if (!duty_drift_lasts(&duty->surplus, surplus, now_ms))
        return;
    log_event(LOG_WARN, "holders_found", LOG_FIELD("policy", LOG_I64(duty->policy_id)),
              LOG_FIELD("coupons", LOG_I64(surplus)));
    if (ledger_visit_policy(worker->service->ledger, duty->policy_id, &visitor, &error) !=
        STATUS_OK)
        duty_say(duty, "holder_sync_failed", &error);
}
