/* duty_strays.c: claims that are pending in a shared gate though their users do not hold them.
 *
 * No step of ours leaves one behind, but whoever edits Redis by hand, or a damaged file, can. What
 * a lease gave was won: its user holds it again, and it goes to the ledger as every other. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "claim/worker_parts.h"

#define STRAYS_MAX 100

const struct lease *duty_lease_of(const struct lease *leases, size_t count, int64_t seq)
{
    for (size_t i = 0; i < count; i++) {
        if (seq >= leases[i].first_seq && seq < leases[i].first_seq + leases[i].count)
            return &leases[i];
    }
    return NULL;
}

/* What is to be done about one: it goes when the ledger has a row with its seq, or no lease gave
 * it. */
static enum status duty_strays_plan(struct worker *worker, const struct lease *leases, size_t count,
                                    struct gate_mend *mend, struct error *error)
{
    struct claim *claim = &mend->claim;
    const struct lease *lease = duty_lease_of(leases, count, claim->seq);
    struct coupon coupon;
    enum status status =
        ledger_coupon_get(worker->service->ledger, claim->policy_id, claim->seq, &coupon, error);

    if (status != STATUS_OK && status != STATUS_NOT_FOUND)
        return status;
    bool is_won = status == STATUS_NOT_FOUND && lease != NULL;
    mend->mending = is_won ? GATE_MEND_HELD : GATE_MEND_REMOVE;
    claim->lease_id = lease == NULL ? 0 : lease->id;
    claim->requested_at_ms = clock_wall_ms();
    random_bytes(&claim->request_id, sizeof(claim->request_id));
    claim->request_id.bytes[0] &= 0x7f; /* It is no key's. */
    log_event(LOG_WARN, is_won ? "claim_recovered" : "claim_removed",
              LOG_FIELD("policy", LOG_I64(claim->policy_id)), LOG_FIELD("seq", LOG_I64(claim->seq)),
              LOG_FIELD("user", LOG_SPAN(user_id_span(&claim->user))));
    return STATUS_OK;
}

enum status duty_recover_strays(struct worker *worker, struct duty *duty, struct error *error)
{
    struct service *service = worker->service;
    struct claim *strays = malloc(STRAYS_MAX * sizeof(*strays));
    struct gate_mend *mends = malloc(STRAYS_MAX * sizeof(*mends));
    struct lease *leases = NULL;
    size_t stray_count = 0;
    size_t lease_count = 0;
    int64_t changed_count = 0;
    enum status status =
        strays == NULL || mends == NULL
            ? error_set(error, STATUS_UNAVAILABLE, "no memory for what is pending")
            : gate_strays(service->gate, duty->policy_id, strays, STRAYS_MAX, &stray_count, error);

    if (status == STATUS_OK)
        status =
            ledger_lease_history(service->ledger, duty->policy_id, &leases, &lease_count, error);
    for (size_t i = 0; i < stray_count && status == STATUS_OK; i++) {
        mends[i].claim = strays[i];
        status = duty_strays_plan(worker, leases, lease_count, &mends[i], error);
    }
    if (status == STATUS_OK)
        status =
            gate_mend(service->gate, duty->policy_id, mends, stray_count, &changed_count, error);
    if (status == STATUS_OK && changed_count == 0)
        status = error_set(error, STATUS_FAILED, "pending claims are not readable");
    free(strays);
    free(mends);
    free(leases);
    return status;
}
