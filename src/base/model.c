/* model.c: the names of the domain's states, and what time does to a coupon. */
#include "base/model.h"

const char *policy_state_name(enum policy_state state)
{
    switch (state) {
    case POLICY_SCHEDULED:
        return "SCHEDULED";
    case POLICY_OPEN:
        return "OPEN";
    case POLICY_PAUSED:
        return "PAUSED";
    case POLICY_SOLD_OUT:
        return "SOLD_OUT";
    case POLICY_CLOSED:
        return "CLOSED";
    }
    ensure_failed("a known policy state", __FILE__, __LINE__, __func__);
}

const char *coupon_state_name(enum coupon_state state)
{
    switch (state) {
    case COUPON_ISSUED:
        return "ISSUED";
    case COUPON_REDEEMED:
        return "REDEEMED";
    case COUPON_CANCELLED:
        return "CANCELLED";
    case COUPON_EXPIRED:
        return "EXPIRED";
    case COUPON_VOID:
        return "VOID";
    case COUPON_PENDING:
        return "PENDING";
    case COUPON_MERGED:
        return "MERGED";
    }
    ensure_failed("a known coupon state", __FILE__, __LINE__, __func__);
}

int64_t coupon_expires_at_ms(const struct policy *policy, int64_t requested_at_ms)
{
    if (policy->coupon_valid_days != 0)
        return requested_at_ms + policy->coupon_valid_days * DAY_MS;
    return policy->closes_at_ms;
}

enum coupon_state coupon_state_at(enum coupon_state state, int64_t expires_at_ms, int64_t now_ms)
{
    if (state == COUPON_ISSUED && expires_at_ms != 0 && now_ms >= expires_at_ms)
        return COUPON_EXPIRED;
    return state;
}
