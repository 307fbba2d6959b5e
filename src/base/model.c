/* model.c: the names of the domain's states, and what time does to a coupon. */
#include "base/model.h"

#include "base/array.h"

const char *claim_result_name(enum claim_result result)
{
#define CLAIM_LABEL(WORD, STATUS, LABEL, ...) [CLAIM_##WORD] = #LABEL,
    static const char *const labels[CLAIM_RESULT_COUNT] = {CLAIM_GRANTS(CLAIM_LABEL)
                                                               CLAIM_REFUSALS(CLAIM_LABEL)};
    return labels[result];
}

const char *policy_state_name(enum policy_state state)
{
    static const char *const names[] = {
        [POLICY_SCHEDULED] = "SCHEDULED", [POLICY_OPEN] = "OPEN",     [POLICY_PAUSED] = "PAUSED",
        [POLICY_SOLD_OUT] = "SOLD_OUT",   [POLICY_CLOSED] = "CLOSED",
    };
    ensure((size_t)state < COUNT_OF(names));
    return names[state];
}

const char *coupon_state_name(enum coupon_state state)
{
    static const char *const names[] = {
        [COUPON_ISSUED] = "ISSUED",       [COUPON_REDEEMED] = "REDEEMED",
        [COUPON_CANCELLED] = "CANCELLED", [COUPON_EXPIRED] = "EXPIRED",
        [COUPON_VOID] = "VOID",           [COUPON_MERGED] = "MERGED",
        [COUPON_PENDING] = "PENDING",
    };
    ensure((size_t)state < COUNT_OF(names));
    return names[state];
}

int64_t coupon_expires_at_ms(int64_t valid_days, int64_t expires_at_ms, int64_t requested_at_ms)
{
    int64_t after_days_ms = requested_at_ms + valid_days * DAY_MS;

    if (valid_days == 0)
        return expires_at_ms;
    return expires_at_ms != 0 && expires_at_ms < after_days_ms ? expires_at_ms : after_days_ms;
}

enum coupon_state coupon_state_at(enum coupon_state state, int64_t expires_at_ms, int64_t now_ms)
{
    if (state == COUPON_ISSUED && expires_at_ms != 0 && now_ms >= expires_at_ms)
        return COUPON_EXPIRED;
    return state;
}
