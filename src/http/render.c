/* render.c: JSON from the values of the domain, field by field. */
#include "http/render.h"

#include "base/json.h"
#include "claim/code.h"

/* Ids have no character that JSON would escape. */
static void append_id(struct buffer *out, const struct user_id *id)
{
    buffer_append_literal(out, "\"");
    buffer_append(out, id->bytes, id->length);
    buffer_append_literal(out, "\"");
}

static void append_integer_or_null(struct buffer *out, int64_t number)
{
    if (number == 0) {
        buffer_append_literal(out, "null");
    } else {
        buffer_append_i64(out, number);
    }
}

static void append_flag(struct buffer *out, bool flag)
{
    if (flag) {
        buffer_append_literal(out, "true");
    } else {
        buffer_append_literal(out, "false");
    }
}

static void append_quoted(struct buffer *out, const char *word)
{
    buffer_append_literal(out, "\"");
    buffer_append_text(out, word);
    buffer_append_literal(out, "\"");
}

void render_policy(struct buffer *out, const struct policy_view *view)
{
    const struct policy *policy = &view->policy;
    const struct gate_numbers *numbers = &view->numbers;
    buffer_append_literal(out, "{\"id\":");
    buffer_append_i64(out, policy->id);
    buffer_append_literal(out, ",\"name\":");
    json_append_text(out, span_of(policy->name));
    buffer_append_literal(out, ",\"discount\":{\"type\":");
    append_quoted(out, policy->discount_type == DISCOUNT_PERCENT ? "percent" : "fixed");
    buffer_append_literal(out, ",\"value\":");
    buffer_append_i64(out, policy->discount_value);
    buffer_append_literal(out, "},\"total\":");
    buffer_append_i64(out, policy->total);
    buffer_append_literal(out, ",\"per_user_limit\":");
    buffer_append_i64(out, policy->per_user_limit);
    buffer_append_literal(out, ",\"opens_at\":");
    json_append_time(out, policy->opens_at_ms);
    buffer_append_literal(out, ",\"closes_at\":");
    json_append_time(out, policy->closes_at_ms);
    buffer_append_literal(out, ",\"coupon_valid_days\":");
    append_integer_or_null(out, policy->coupon_valid_days);
    buffer_append_literal(out, ",\"reserve\":");
    buffer_append_i64(out, policy->reserve);
    buffer_append_literal(out, ",\"paused\":");
    append_flag(out, policy->paused);
    buffer_append_literal(out, ",\"state\":");
    append_quoted(out, policy_state_name(numbers->state));
    buffer_append_literal(out, ",\"remaining\":");
    buffer_append_i64(out, numbers->remaining);
    buffer_append_literal(out, ",\"pending\":");
    buffer_append_i64(out, numbers->pending);
    buffer_append_literal(out, ",\"issued\":");
    buffer_append_i64(out, numbers->issued);
    buffer_append_literal(out, ",\"created_at\":");
    json_append_time(out, policy->created_at_ms);
    buffer_append_literal(out, ",\"closed_at\":");
    json_append_time(out, policy->closed_at_ms);
    buffer_append_literal(out, ",\"version\":");
    buffer_append_i64(out, policy->version);
    buffer_append_literal(out, "}");
}

void render_number_members(struct buffer *out, const struct gate_numbers *numbers)
{
    buffer_append_literal(out, "\"state\":");
    append_quoted(out, policy_state_name(numbers->state));
    buffer_append_literal(out, ",\"total\":");
    buffer_append_i64(out, numbers->total);
    buffer_append_literal(out, ",\"remaining\":");
    buffer_append_i64(out, numbers->remaining);
    buffer_append_literal(out, ",\"pending\":");
    buffer_append_i64(out, numbers->pending);
    buffer_append_literal(out, ",\"issued\":");
    buffer_append_i64(out, numbers->issued);
    buffer_append_literal(out, ",\"paused\":");
    append_flag(out, numbers->paused);
    buffer_append_literal(out, ",\"opens_at\":");
    json_append_time(out, numbers->opens_at_ms);
    buffer_append_literal(out, ",\"closes_at\":");
    json_append_time(out, numbers->closes_at_ms);
    buffer_append_literal(out, ",\"sold_out_at\":");
    json_append_time(out, numbers->sold_out_at_ms);
}

void render_numbers(struct buffer *out, const struct gate_numbers *numbers, int64_t now_ms)
{
    buffer_append_literal(out, "{\"now\":");
    json_append_time(out, now_ms);
    buffer_append_literal(out, ",\"policy_id\":");
    buffer_append_i64(out, numbers->policy_id);
    buffer_append_literal(out, ",");
    render_number_members(out, numbers);
    buffer_append_literal(out, "}");
}

/* policy_id, user, seq, nth, coupon_id and, when it may be seen, code. */
static void append_identity(struct buffer *out, const struct service *service, int64_t policy_id,
                            const struct user_id *user, int64_t seq, int32_t nth,
                            enum code_sight sight)
{
    buffer_append_literal(out, "\"policy_id\":");
    buffer_append_i64(out, policy_id);
    buffer_append_literal(out, ",\"user\":");
    append_id(out, user);
    buffer_append_literal(out, ",\"seq\":");
    buffer_append_i64(out, seq);
    buffer_append_literal(out, ",\"nth\":");
    buffer_append_i64(out, nth);
    buffer_append_literal(out, ",\"coupon_id\":\"");
    code_append_id(out, policy_id, seq);
    if (sight == CODE_SHOWN) {
        buffer_append_literal(out, "\",\"code\":\"");
        code_append(out, service, policy_id, seq);
    }
    buffer_append_literal(out, "\"");
}

/* A claim that came to nothing was never issued: the row's time is when that was decided. */
static void append_lifetime(struct buffer *out, const struct coupon *coupon)
{
    bool was_issued = coupon->state != COUPON_VOID && coupon->state != COUPON_MERGED;
    buffer_append_literal(out, ",\"issued_at\":");
    json_append_time(out, was_issued ? coupon->issued_at_ms : 0);
    buffer_append_literal(out, ",\"expires_at\":");
    json_append_time(out, was_issued ? coupon->expires_at_ms : 0);
}

void render_coupon(struct buffer *out, const struct service *service, const struct coupon *coupon,
                   int64_t now_ms, enum code_sight sight)
{
    const struct claim *claim = &coupon->claim;
    buffer_append_literal(out, "{");
    append_identity(out, service, claim->policy_id, &claim->user, claim->seq, claim->nth, sight);
    buffer_append_literal(out, ",\"state\":");
    append_quoted(out,
                  coupon_state_name(coupon_state_at(coupon->state, coupon->expires_at_ms, now_ms)));
    append_lifetime(out, coupon);
    buffer_append_literal(out, ",\"redeemed_at\":");
    json_append_time(out, coupon->redeemed_at_ms);
    buffer_append_literal(out, ",\"cancelled_at\":");
    json_append_time(out, coupon->cancelled_at_ms);
    buffer_append_literal(out, ",\"order_id\":");
    if (coupon->order_id.length > 0) {
        append_id(out, &coupon->order_id);
    } else {
        buffer_append_literal(out, "null");
    }
    if (coupon->state == COUPON_VOID) {
        buffer_append_literal(out, ",\"reason\":");
        json_append_text(out, span_of(coupon->reason));
    }
    buffer_append_literal(out, "}");
}

/* "state" and "coupon_state": a claim that is VOID or MERGED has no coupon. */
static void append_states(struct buffer *out, enum coupon_state state)
{
    bool has_coupon = state != COUPON_VOID && state != COUPON_MERGED;
    buffer_append_literal(out, "\"state\":");
    append_quoted(out, has_coupon ? "ISSUED" : coupon_state_name(state));
    buffer_append_literal(out, ",\"coupon_state\":");
    if (has_coupon) {
        append_quoted(out, coupon_state_name(state));
    } else {
        buffer_append_literal(out, "null");
    }
}

/* The fields of one claim, the object still open. */
static void append_claim_entry(struct buffer *out, const struct service *service,
                               const struct claim_status *status, int64_t now_ms,
                               enum code_sight sight)
{
    const struct coupon *coupon = &status->coupon;
    const struct claim *claim = &coupon->claim;
    buffer_append_literal(out, "{");
    if (status->pending) {
        buffer_append_literal(out, "\"state\":\"PENDING\",\"coupon_state\":null");
    } else {
        append_states(out, coupon_state_at(coupon->state, coupon->expires_at_ms, now_ms));
    }
    buffer_append_literal(out, ",");
    append_identity(out, service, claim->policy_id, &claim->user, claim->seq, claim->nth, sight);
    buffer_append_literal(out, ",\"requested_at\":");
    json_append_time(out, claim->requested_at_ms);
    append_lifetime(out, coupon);
    if (!status->pending && coupon->state == COUPON_VOID) {
        buffer_append_literal(out, ",\"reason\":");
        json_append_text(out, span_of(coupon->reason));
    }
    if (!status->pending && coupon->state == COUPON_MERGED) {
        buffer_append_literal(out, ",\"merged_into\":\"");
        code_append_id(out, claim->policy_id, coupon->merged_into_seq);
        buffer_append_literal(out, "\"");
    }
}

void render_claim_status(struct buffer *out, const struct service *service,
                         const struct claim_status *claims, size_t count, int64_t now_ms,
                         enum code_sight sight)
{
    append_claim_entry(out, service, &claims[0], now_ms, sight);
    buffer_append_literal(out, ",\"ahead\":");
    buffer_append_i64(out, claims[0].ahead);
    buffer_append_literal(out, ",\"claims\":[");
    for (size_t index = 0; index < count; index++) {
        if (index > 0) {
            buffer_append_literal(out, ",");
        }
        append_claim_entry(out, service, &claims[index], now_ms, sight);
        buffer_append_literal(out, "}");
    }
    buffer_append_literal(out, "]}");
}

void render_claim(struct buffer *out, const struct service *service, const struct wish *wish,
                  enum code_sight sight)
{
    buffer_append_literal(out, "{\"result\":");
    append_quoted(out, wish->is_accepted               ? "ACCEPTED"
                       : wish->verdict == VERDICT_HELD ? "ALREADY_ISSUED"
                                                       : "ISSUED");
    buffer_append_literal(out, ",");
    append_identity(out, service, wish->policy_id, &wish->user, wish->seq, wish->nth, sight);
    buffer_append_literal(out, ",");
    if (wish->is_accepted) {
        buffer_append_literal(out, "\"state\":\"PENDING\",\"coupon_state\":null");
    } else {
        append_states(out, wish->coupon_state);
    }
    buffer_append_literal(out, "}");
}

void render_claim_location(struct buffer *out, int64_t policy_id, const struct user_id *user)
{
    buffer_append_literal(out, "/v1/policies/");
    buffer_append_i64(out, policy_id);
    buffer_append_literal(out, "/claims/");
    buffer_append(out, user->bytes, user->length);
}
