/* render.c: JSON from the values of the domain, field by field. */
#include "http/api/render.h"

#include "base/json.h"
#include "base/policy.h"
#include "base/url.h"
#include "claim/code.h"

void render_policy(struct buffer *out, const struct policy_view *view)
{
    const struct policy *policy = &view->policy;
    const struct gate_numbers *numbers = &view->numbers;
    json_begin(out, '{');
    policy_put(out, policy, POLICY_COLUMN_id);
    policy_put(out, policy, POLICY_COLUMN_name);
    buffer_append_literal(out, ",\"discount\":{");
    json_put(out, "type", policy->discount_type == DISCOUNT_PERCENT ? "percent" : "fixed");
    json_put(out, "value", policy->discount_value);
    buffer_append_literal(out, "}");
    for (int i = POLICY_COLUMN_total; i < POLICY_COLUMN_created_at; i++)
        policy_put(out, policy, (enum policy_column)i);
    json_put(out, "state", policy_state_name(numbers->state));
    json_put(out, "remaining", numbers->remaining);
    json_put(out, "pending", numbers->pending);
    json_put(out, "issued", numbers->issued);
    for (int i = POLICY_COLUMN_created_at; i <= POLICY_COLUMN_version; i++)
        policy_put(out, policy, (enum policy_column)i);
    buffer_append_literal(out, "}");
}

void render_number_members(struct buffer *out, const struct gate_numbers *numbers)
{
    json_put(out, "state", policy_state_name(numbers->state));
    json_put(out, "total", numbers->total);
    json_put(out, "remaining", numbers->remaining);
    json_put(out, "pending", numbers->pending);
    json_put(out, "issued", numbers->issued);
    json_put_flag(out, "paused", numbers->paused);
    json_put_time(out, "opens_at", numbers->opens_at_ms);
    json_put_time(out, "closes_at", numbers->closes_at_ms);
    json_put_time(out, "sold_out_at", numbers->sold_out_at_ms);
}

void render_numbers(struct buffer *out, const struct gate_numbers *numbers, int64_t now_ms)
{
    buffer_append_literal(out, "{");
    json_put_time(out, "now", now_ms);
    json_put(out, "policy_id", numbers->policy_id);
    render_number_members(out, numbers);
    buffer_append_literal(out, "}");
}

/* policy_id, user, seq, nth, coupon_id and, when it may be seen, code. */
static void append_identity(struct buffer *out, const struct service *service, int64_t policy_id,
                            const struct id *user, int64_t seq, int32_t nth,
                            enum code_visibility visibility)
{
    json_put(out, "policy_id", policy_id);
    json_put(out, "user", id_span(user));
    json_put(out, "seq", seq);
    json_put(out, "nth", nth);
    buffer_append_literal(out, ",\"coupon_id\":\"");
    code_append_id(out, policy_id, seq);
    if (visibility == CODE_SHOWN) {
        buffer_append_literal(out, "\",\"code\":\"");
        code_append(out, service, policy_id, seq);
    }
    buffer_append_literal(out, "\"");
}

/* A claim that came to nothing was never issued: the row's time is when that was decided. */
static void append_lifetime(struct buffer *out, const struct coupon *coupon)
{
    bool was_issued = coupon->state != COUPON_VOID && coupon->state != COUPON_MERGED;
    json_put_time(out, "issued_at", was_issued ? coupon->issued_at_ms : 0);
    json_put_time(out, "expires_at", was_issued ? coupon->expires_at_ms : 0);
}

void render_coupon(struct buffer *out, const struct service *service, const struct coupon *coupon,
                   int64_t now_ms, enum code_visibility visibility)
{
    const struct claim *claim = &coupon->claim;
    json_begin(out, '{');
    append_identity(out, service, claim->policy_id, &claim->user, claim->seq, claim->nth,
                    visibility);
    json_put(out, "state",
             coupon_state_name(coupon_state_at(coupon->state, coupon->expires_at_ms, now_ms)));
    append_lifetime(out, coupon);
    json_put_time(out, "redeemed_at", coupon->redeemed_at_ms);
    json_put_time(out, "cancelled_at", coupon->cancelled_at_ms);
    if (coupon->order_id.length > 0)
        json_put(out, "order_id", id_span(&coupon->order_id));
    else
        json_put_null(out, "order_id");
    if (coupon->state == COUPON_VOID)
        json_put(out, "reason", coupon->reason);
    buffer_append_literal(out, "}");
}

/* "state" and "coupon_state": a claim that is VOID or MERGED has no coupon. */
static void append_states(struct buffer *out, enum coupon_state state)
{
    bool has_coupon = state != COUPON_VOID && state != COUPON_MERGED;
    json_put(out, "state", has_coupon ? "ISSUED" : coupon_state_name(state));
    json_put(out, "coupon_state", has_coupon ? coupon_state_name(state) : NULL);
}

/* The fields of one claim, the object still open. */
static void append_claim_entry(struct buffer *out, const struct service *service,
                               const struct claim_status *status, int64_t now_ms,
                               enum code_visibility visibility)
{
    const struct coupon *coupon = &status->coupon;
    const struct claim *claim = &coupon->claim;
    json_begin(out, '{');
    if (status->pending)
        buffer_append_literal(out, "\"state\":\"PENDING\",\"coupon_state\":null");
    else
        append_states(out, coupon_state_at(coupon->state, coupon->expires_at_ms, now_ms));
    append_identity(out, service, claim->policy_id, &claim->user, claim->seq, claim->nth,
                    visibility);
    json_put_time(out, "requested_at", claim->requested_at_ms);
    append_lifetime(out, coupon);
    if (!status->pending && coupon->state == COUPON_VOID)
        json_put(out, "reason", coupon->reason);
    if (!status->pending && coupon->state == COUPON_MERGED) {
        buffer_append_literal(out, ",\"merged_into\":\"");
        code_append_id(out, claim->policy_id, coupon->merged_into_seq);
        buffer_append_literal(out, "\"");
    }
}

void render_claim_status(struct buffer *out, const struct service *service,
                         const struct claim_status *claims, size_t count, int64_t now_ms,
                         enum code_visibility visibility)
{
    append_claim_entry(out, service, &claims[0], now_ms, visibility);
    json_put(out, "ahead", claims[0].ahead);
    buffer_append_literal(out, ",\"claims\":[");
    for (size_t index = 0; index < count; index++) {
        append_claim_entry(out, service, &claims[index], now_ms, visibility);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]}");
}

void render_claim(struct buffer *out, const struct service *service, const struct wish *wish,
                  enum code_visibility visibility)
{
    buffer_append_literal(out, "{");
    json_put(out, "result",
             wish->is_accepted               ? "ACCEPTED"
             : wish->verdict == VERDICT_HELD ? "ALREADY_ISSUED"
                                             : "ISSUED");
    append_identity(out, service, wish->policy_id, &wish->user, wish->seq, wish->nth, visibility);
    if (wish->is_accepted)
        buffer_append_literal(out, ",\"state\":\"PENDING\",\"coupon_state\":null");
    else
        append_states(out, wish->coupon_state);
    buffer_append_literal(out, "}");
}

void render_claim_location(struct buffer *out, int64_t policy_id, const struct id *user)
{
    buffer_append_literal(out, "/v1/policies/");
    buffer_append_i64(out, policy_id);
    buffer_append_literal(out, "/claims/");
    url_append_word(out, id_span(user));
}
