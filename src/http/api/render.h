/* render.h: policies, claims and coupons as the JSON that /openapi.json describes.
 *
 * Threads: one buffer per call, no shared state.
 */
#pragma once

#include "base/buffer.h"
#include "claim/service.h"

/* Whether a coupon's code may be seen by whoever asked. */
enum code_visibility { CODE_HIDDEN, CODE_SHOWN };

void render_policy(struct buffer *out, const struct policy_view *view);

/* {"now","policy_id","state","total","remaining","pending","issued","paused","opens_at","closes_at",
 * "sold_out_at"} */
void render_numbers(struct buffer *out, const struct gate_numbers *numbers, int64_t now_ms);

/* The same without its first two members and the braces, for what says more of the policy. */
void render_number_members(struct buffer *out, const struct gate_numbers *numbers);

void render_coupon(struct buffer *out, const struct service *service, const struct coupon *coupon,
                   int64_t now_ms, enum code_visibility visibility);

/* The latest claim's fields, "ahead", and "claims": all of them; count > 0. */
void render_claim_status(struct buffer *out, const struct service *service,
                         const struct claim_status *claims, size_t count, int64_t now_ms,
                         enum code_visibility visibility);

/* The answer to a claim that is held. `result` is "ACCEPTED" while it is pending, then "ISSUED" for
 * the one who won it just now and "ALREADY_ISSUED" for one who asks again. */
void render_claim(struct buffer *out, const struct service *service, const struct wish *wish,
                  enum code_visibility visibility);

/* "/v1/policies/42/claims/u1" */
void render_claim_location(struct buffer *out, int64_t policy_id, const struct id *user);
