/* reply.h: answers with the headers that every answer of the API has.
 *
 * Threads: the exchange's loop.
 */
#pragma once

#include "base/buffer.h"
#include "claim/service.h"
#include "http/api/context.h"
#include "http/api/problem.h"
#include "http/server/server.h"

#define JSON_CONTENT_TYPE SPAN("application/json")

/* http_answer_begin() with X-Request-Id, the allowance and what CORS wants; counts the answer. It
 * tells how things are at this moment, so no cache may keep it. */
void reply_begin(struct api_loop *loop, struct http_exchange *exchange, int status,
                 struct span content_type);

/* The Cache-Control of what only a new version changes. */
#define PAGE_CACHE SPAN("public, max-age=300")

/* The same with a Cache-Control of its own. */
void reply_begin_cached(struct api_loop *loop, struct http_exchange *exchange, int status,
                        struct span content_type, struct span cache_control);

/* What nobody shows loads nothing, and is in nobody's frame. */
#define DATA_POLICY SPAN("Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n")

/* The same with a Content-Security-Policy of its own, for what a browser shows as a page: whole
 * lines, each with its CRLF. */
void reply_begin_shown(struct api_loop *loop, struct http_exchange *exchange, int status,
                       struct span content_type, struct span cache_control, struct span policy);

/* A whole JSON answer. */
void reply_json(struct api_loop *loop, struct http_exchange *exchange, int status,
                struct span body);

/* A problem with its usual detail: a constant. */
void reply_problem(struct api_loop *loop, struct http_exchange *exchange, enum problem problem);

/* A problem with its own detail and, unless NULL or "", the field it is about. */
void reply_problem_about(struct api_loop *loop, struct http_exchange *exchange,
                         enum problem problem, const char *detail, const char *field);

/* 400 about all that is wrong with a body: the first is its detail, and all are its errors. */
struct json_mistakes;
void reply_mistakes(struct api_loop *loop, struct http_exchange *exchange,
                    const struct json_mistakes *mistakes);

/* A problem whose body is already written (problem_begin). */
void reply_problem_body(struct api_loop *loop, struct http_exchange *exchange, enum problem problem,
                        struct span body);

/* Between begin and end: "Retry-After: seconds" plus up to `jitter_s` more, so that those who
 * were refused together do not come back together. */
void reply_retry_after(struct http_exchange *exchange, int64_t seconds, uint64_t jitter_s);

/* Remembers the tighter of the limits for the RateLimit headers. */
void reply_note_limit(struct http_exchange *exchange, const struct rate_limit *limit);
void reply_rate_limited(struct api_loop *loop, struct http_exchange *exchange,
                        const struct rate_limit *limit);

/* How long a 503 asks to wait. */
#define UNAVAILABLE_RETRY_S  1
#define UNAVAILABLE_JITTER_S 3
#define RATE_LIMIT_JITTER_S  1

/* Fills in the notes from the request: its id (taken or made) and its origin. */
void reply_prepare(struct api_loop *loop, struct http_exchange *exchange,
                   const struct http_request *request);

/* The preflight's answer, also for plain OPTIONS. */
void reply_options(struct api_loop *loop, struct http_exchange *exchange,
                   const struct http_request *request, struct span allow);

/* The server's own id of the request at hand: the loop's random bytes and a count, the first bit
 * clear. Only within the handler, before the next reply_prepare(). */
struct request_id reply_make_id(const struct api_loop *loop);

/* The X-Request-Id of this exchange. */
struct span reply_request_id(struct http_exchange *exchange);

/* --- policies, claims and coupons as the JSON that /openapi.json describes --- */

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
