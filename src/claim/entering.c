/* entering.c: marked coupons and their keys, page by page from the ledger into the gate. */
#include "claim/entering.h"

#include <stdlib.h>

#include "base/clock.h"
#include "claim/parts.h"

#define PAGE_MAX 100

/* A page, and what of it goes to the gate. */
struct entering {
    struct entering_coupon coupons[PAGE_MAX];
    size_t coupon_count;
    struct claim *claims;
    enum coupon_state *states;
    size_t claim_count;
    size_t claim_capacity;
};

static void entering_free(struct entering *entering)
{
    free(entering->claims);
    free(entering->states);
    free(entering);
}

static enum status entering_add(struct entering *entering, const struct claim *claim,
                                enum coupon_state state, struct error *error)
{
    if (entering->claim_count == entering->claim_capacity) {
        size_t capacity = entering->claim_capacity == 0 ? PAGE_MAX : entering->claim_capacity * 2;
        struct claim *claims = realloc(entering->claims, capacity * sizeof(*claims));
        if (claims != NULL)
            entering->claims = claims;
        enum coupon_state *states = realloc(entering->states, capacity * sizeof(*states));
        if (states != NULL)
            entering->states = states;
        if (claims == NULL || states == NULL)
            return error_set(error, STATUS_UNAVAILABLE, "no memory for what the gate is to hear");
        entering->claim_capacity = capacity;
    }
    entering->claims[entering->claim_count] = *claim;
    entering->states[entering->claim_count++] = state;
    return STATUS_OK;
}

/* A key besides the claim's own: it comes as a claim that is not held any more. */
static enum status entering_add_key(void *context, const struct key_binding *key,
                                    struct error *error)
{
    struct claim claim = {.policy_id = key->policy_id,
                          .seq = key->seq,
                          .request_id = key->request_id,
                          .nth = key->nth,
                          .user = key->user};
    return entering_add(context, &claim, COUPON_CANCELLED, error);
}

/* What is active is held in the gate from now on; of what was cancelled only the key answers. */
static enum status entering_add_coupons(struct entering *entering, struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < entering->coupon_count && status == STATUS_OK; i++) {
        const struct coupon *coupon = &entering->coupons[i].coupon;
        if (coupon_state_is_active(coupon->state) ||
            (coupon->state == COUPON_CANCELLED && request_id_is_keyed(&coupon->claim.request_id)))
            status = entering_add(entering, &coupon->claim, coupon->state, error);
    }
    return status;
}

/* One that was entered and is cancelled by now: whoever cancelled it may have found nothing in the
 * gate to take away. */
static enum status entering_take_away(struct service *service, const struct entering *entering,
                                      struct error *error)
{
    enum status status = STATUS_OK;

    for (size_t i = 0; i < entering->coupon_count && status == STATUS_OK; i++) {
        const struct coupon *coupon = &entering->coupons[i].coupon;
        if (!coupon_state_is_active(coupon->state))
            status = gate_settle(service->gate, coupon->claim.policy_id, &coupon->claim.user,
                                 coupon->claim.seq, COUPON_CANCELLED, error);
    }
    return status;
}

/* A policy that the ledger does not have, or that is closed, and was let go by the gate. */
static bool entering_is_over(struct service *service, int64_t policy_id)
{
    struct policy policy;
    enum status status = ledger_policy_get(service->ledger, policy_id, &policy, NULL);
    return status == STATUS_NOT_FOUND ||
           (status == STATUS_OK && policy_is_closed(&policy, clock_wall_ms()));
}

static enum status entering_tell_page(struct service *service, struct entering *entering,
                                      int64_t policy_id, bool *is_done, struct error *error)
{
    size_t left_count = 0;
    enum status status =
        ledger_entering(service->ledger, policy_id, entering->coupons, PAGE_MAX,
                        &entering->coupon_count, entering_add_key, entering, error);

    if (status == STATUS_OK)
        status = entering_add_coupons(entering, error);
    if (status == STATUS_OK)
        status = gate_enter(service->gate, policy_id, entering->claims, entering->states,
                            entering->claim_count, error);
    if (status == STATUS_NOT_FOUND && entering_is_over(service, policy_id)) {
        *is_done = true;
        return ledger_entering_forget(service->ledger, policy_id, error);
    }
    if (status == STATUS_OK)
        status = entering_take_away(service, entering, error);
    if (status == STATUS_OK && entering->coupon_count > 0)
        status = ledger_entered(service->ledger, entering->coupons, entering->coupon_count,
                                &left_count, error);
    *is_done = status == STATUS_OK && entering->coupon_count < PAGE_MAX && left_count == 0;
    return status;
}

enum status entering_tell(struct service *service, int64_t policy_id, bool *is_done,
                          struct error *error)
{
    struct entering *entering = calloc(1, sizeof(*entering));

    *is_done = false;
    if (entering == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for what the gate is to hear");
    enum status status = entering_tell_page(service, entering, policy_id, is_done, error);
    entering_free(entering);
    return status;
}
