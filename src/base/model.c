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
    case COUPON_MERGED:
        return "MERGED";
    }
    ensure_failed("a known coupon state", __FILE__, __LINE__, __func__);
}

enum coupon_state coupon_state_at(const struct coupon *coupon, int64_t now_ms)
{
    if (coupon->state == COUPON_ISSUED && coupon->expires_at_ms != 0 &&
        now_ms >= coupon->expires_at_ms) {
        return COUPON_EXPIRED;
    }
    return coupon->state;
}
