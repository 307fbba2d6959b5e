/* duty_users.c: what users hold in a shared gate, held against the ledger.
 *
 * A coupon is cancelled in the ledger first, and then the gate is told. Whoever does it may die in
 * between: then a user holds a coupon in the gate and none in the ledger, and is refused another
 * one. The number of active coupons in both tells: when the gate keeps having more, it is told once
 * more of everything that was cancelled or redeemed, which changes nothing where it knows. */
#include "base/log.h"
#include "claim/worker_parts.h"

#define DRIFT_MS 3000 /* a change under way is over by then */

static enum status duty_tell_again(void *context, const struct claim *claim,
                                   enum coupon_state state, struct error *error)
{
    struct gate *gate = context;

    if (state != COUPON_CANCELLED && state != COUPON_REDEEMED)
        return STATUS_OK;
    return gate_settle(gate, claim->policy_id, &claim->user, claim->seq, state, error);
}

static enum status duty_pass_key(void *context, const struct key_binding *binding,
                                 struct error *error)
{
    (void)context;
    (void)binding;
    (void)error;
    return STATUS_OK;
}

/* How many more coupons are active in the gate than in the ledger, and of which version of the
 * policy that is so. BUSY: something is pending, so nothing can be said. */
static enum status duty_count_surplus(struct worker *worker, const struct duty *duty,
                                      int64_t *surplus, int64_t *version, struct error *error)
{
    struct service *service = worker->service;
    struct ledger_balance balance;
    struct gate_numbers numbers;
    enum status status = gate_look(service->gate, duty->policy_id, error);

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
    struct ledger_visitor visitor = {
        .claim = duty_tell_again, .key = duty_pass_key, .context = worker->service->gate};
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
    if (surplus <= 0) {
        duty->surplus = 0;
        duty->counted_version = version;
        return;
    }
    if (surplus != duty->surplus) {
        duty->surplus = surplus;
        duty->surplus_since_ms = now_ms;
    }
    if (now_ms - duty->surplus_since_ms < DRIFT_MS)
        return;
    log_event(LOG_WARN, "holders_found", LOG_FIELD("policy", LOG_I64(duty->policy_id)),
              LOG_FIELD("coupons", LOG_I64(surplus)));
    duty->surplus = 0;
    if (ledger_visit_policy(worker->service->ledger, duty->policy_id, &visitor, &error) !=
        STATUS_OK)
        duty_say(duty, "holder_sync_failed", &error);
}
