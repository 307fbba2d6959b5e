/* reply.c: what every answer carries. */
#include "http/api/reply.h"

#include "base/clock.h"
#include "base/digits.h"
#include "base/json.h"
#include "base/log.h"
#include "base/policy.h"
#include "base/random.h"
#include "base/url.h"
#include "claim/code.h"
#include "http/server/header.h"

/* notes.cors: 0 nothing, else one more than the index of the origin in the settings. */
#define CORS_ANY UINT8_MAX

struct request_id reply_make_id(const struct api_loop *loop)
{
    struct request_id id;
    uint64_t count = loop->id_count;
    memcpy(id.bytes, loop->id_prefix, 8);
    for (unsigned index = 0; index < 8; index++)
        id.bytes[15 - index] = (uint8_t)(count >> (8 * index));
    return id;
}

/* The bytes of reply_make_id(), in hex. */
static void note_made_id(const struct api_loop *loop, struct http_exchange_notes *notes)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t count = loop->id_count;
    memcpy(notes->request_id, loop->id_prefix_text, 16);
    for (unsigned index = 0; index < 16; index++)
        notes->request_id[31 - index] = digits[count >> (4 * index) & 15];
    notes->request_id_length = 32;
}

static uint8_t cors_of(const struct config_list *allowed, struct span origin)
{
    for (size_t index = 0; index < allowed->count; index++)
        if (span_equal(span_of(allowed->items[index]), origin))
            return (uint8_t)(index + 1);
    return 0;
}

void reply_prepare(struct api_loop *loop, struct http_exchange *exchange,
                   const struct http_request *request)
{
    struct http_exchange_notes *notes = http_exchange_notes(exchange);
    loop->id_count++;
    if (request->request_id.bytes != NULL &&
        header_is_visible(request->request_id, REQUEST_ID_MAX)) {
        memcpy(notes->request_id, request->request_id.bytes, request->request_id.length);
        notes->request_id_length = (uint8_t)request->request_id.length;
    } else {
        note_made_id(loop, notes);
    }
    if (loop->api->allows_any_origin)
        notes->cors = CORS_ANY;
    else if (request->origin.bytes != NULL)
        notes->cors = cors_of(&loop->api->config->cors_origin, request->origin);
}

struct span reply_request_id(struct http_exchange *exchange)
{
    const struct http_exchange_notes *notes = http_exchange_notes(exchange);
    return (struct span){notes->request_id, notes->request_id_length};
}

static void header_number(struct http_exchange *exchange, struct span name, uint64_t number)
{
    char text[24];
    size_t length = digits_count(number);
    for (size_t at = length; at > 0; at--) {
        text[at - 1] = (char)('0' + number % 10);
        number /= 10;
    }
    http_answer_header(exchange, name, (struct span){text, length});
}

static void add_cors(struct api_loop *loop, struct http_exchange *exchange, uint8_t cors)
{
    const struct config_list *allowed = &loop->api->config->cors_origin;
    http_answer_header(exchange, SPAN("Access-Control-Allow-Origin"),
                       cors == CORS_ANY ? SPAN("*") : span_of(allowed->items[cors - 1]));
    http_answer_header(exchange, SPAN("Access-Control-Expose-Headers"),
                       SPAN("Location, Retry-After, X-Request-Id, RateLimit-Limit, "
                            "RateLimit-Remaining, RateLimit-Reset"));
}

static void log_answer(struct http_exchange *exchange, int status)
{
    const struct http_exchange_notes *notes = http_exchange_notes(exchange);
    double elapsed_ms = (double)(clock_monotonic_ns() - notes->started_ns) / 1e6;
    log_event(LOG_DEBUG, "answer", LOG_FIELD("request_id", LOG_SPAN(reply_request_id(exchange))),
              LOG_FIELD("status", LOG_I64(status)), LOG_FIELD("elapsed_ms", LOG_REAL(elapsed_ms)));
}

void reply_begin_cached(struct api_loop *loop, struct http_exchange *exchange, int status,
                        struct span content_type, struct span cache_control)
{
    reply_begin_shown(loop, exchange, status, content_type, cache_control, DATA_POLICY);
}

void reply_begin_shown(struct api_loop *loop, struct http_exchange *exchange, int status,
                       struct span content_type, struct span cache_control, struct span policy)
{
    const struct http_exchange_notes *notes = http_exchange_notes(exchange);
    counter_add(&loop->counters.responses[(unsigned)status / 100], 1);
    http_answer_begin(exchange, status, content_type);
    http_answer_header(exchange, SPAN("X-Request-Id"),
                       (struct span){notes->request_id, notes->request_id_length});
    http_answer_header(exchange, SPAN("Cache-Control"), cache_control);
    http_answer_lines(exchange,
                      SPAN("X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n"));
    http_answer_lines(exchange, policy);
    if (notes->limited != 0) {
        header_number(exchange, SPAN("RateLimit-Limit"), notes->rate_limit);
        header_number(exchange, SPAN("RateLimit-Remaining"), notes->rate_remaining);
        header_number(exchange, SPAN("RateLimit-Reset"), notes->rate_reset_s);
    }
    if (notes->cors != 0)
        add_cors(loop, exchange, notes->cors);
    if (loop->api->varies_by_origin)
        http_answer_header(exchange, SPAN("Vary"), SPAN("Origin"));
    if (loop->api->logs_requests)
        log_answer(exchange, status);
}

void reply_begin(struct api_loop *loop, struct http_exchange *exchange, int status,
                 struct span content_type)
{
    reply_begin_cached(loop, exchange, status, content_type, SPAN("no-store"));
}

void reply_retry_after(struct http_exchange *exchange, int64_t seconds, uint64_t jitter_s)
{
    uint64_t wait_s = seconds < 1 ? 1 : (uint64_t)seconds;
    header_number(exchange, SPAN("Retry-After"), wait_s + random_below(jitter_s + 1));
}

void reply_json(struct api_loop *loop, struct http_exchange *exchange, int status, struct span body)
{
    reply_begin(loop, exchange, status, JSON_CONTENT_TYPE);
    http_answer_end(exchange, body);
}

void reply_problem_body(struct api_loop *loop, struct http_exchange *exchange, enum problem problem,
                        struct span body)
{
    reply_begin(loop, exchange, problem_status(problem), SPAN(PROBLEM_CONTENT_TYPE));
    if (problem == PROBLEM_UNAVAILABLE)
        reply_retry_after(exchange, UNAVAILABLE_RETRY_S, UNAVAILABLE_JITTER_S);
    else if (problem == PROBLEM_UNAUTHORIZED)
        http_answer_header(exchange, SPAN("WWW-Authenticate"), SPAN("Bearer"));
    http_answer_end(exchange, body);
}

void reply_problem(struct api_loop *loop, struct http_exchange *exchange, enum problem problem)
{
    reply_problem_body(loop, exchange, problem, problem_body(problem));
}

void reply_problem_about(struct api_loop *loop, struct http_exchange *exchange,
                         enum problem problem, const char *detail, const char *field)
{
    struct buffer *body = &loop->body;
    buffer_clear(body);
    problem_begin(body, problem, span_of(detail));
    if (field != NULL && field[0] != '\0')
        json_put(body, "field", field);
    buffer_append_literal(body, "}");
    reply_problem_body(loop, exchange, problem, (struct span){body->bytes, body->length});
}

void reply_mistakes(struct api_loop *loop, struct http_exchange *exchange,
                    const struct json_mistakes *mistakes)
{
    struct buffer *body = &loop->body;
    char detail[JSON_FIELD_SIZE + JSON_MESSAGE_SIZE + 2];
    const char *field = mistakes->items[0].field;
    snprintf(detail, sizeof(detail), "%s: %s", field[0] != '\0' ? field : "body",
             mistakes->items[0].message);
    buffer_clear(body);
    problem_begin(body, PROBLEM_INVALID_REQUEST, span_of(detail));
    if (field[0] != '\0') {
        json_put(body, "field", field);
        buffer_append_literal(body, ",\"errors\":[");
        for (size_t i = 0; i < mistakes->count; i++) {
            if (i > 0)
                buffer_append_literal(body, ",");
            json_begin(body, '{');
            json_put(body, "field", (const char *)mistakes->items[i].field);
            json_put(body, "message", (const char *)mistakes->items[i].message);
            buffer_append_literal(body, "}");
        }
        buffer_append_literal(body, "]");
    }
    buffer_append_literal(body, "}");
    reply_problem_body(loop, exchange, PROBLEM_INVALID_REQUEST,
                       (struct span){body->bytes, body->length});
}

void reply_note_limit(struct http_exchange *exchange, const struct rate_limit *limit)
{
    struct http_exchange_notes *notes = http_exchange_notes(exchange);
    if (notes->limited == 0 || limit->remaining < notes->rate_remaining) {
        notes->limited = 1;
        notes->rate_limit = limit->limit;
        notes->rate_remaining = limit->remaining;
        notes->rate_reset_s = limit->reset_s;
    }
}

void reply_rate_limited(struct api_loop *loop, struct http_exchange *exchange,
                        const struct rate_limit *limit)
{
    reply_begin(loop, exchange, problem_status(PROBLEM_RATE_LIMITED), SPAN(PROBLEM_CONTENT_TYPE));
    reply_retry_after(exchange, limit->retry_after_s, RATE_LIMIT_JITTER_S);
    http_answer_end(exchange, problem_body(PROBLEM_RATE_LIMITED));
}

void reply_options(struct api_loop *loop, struct http_exchange *exchange,
                   const struct http_request *request, struct span allow)
{
    const struct http_exchange_notes *notes = http_exchange_notes(exchange);
    reply_begin(loop, exchange, 204, (struct span){NULL, 0});
    http_answer_header(exchange, SPAN("Allow"), allow);
    if (notes->cors != 0 && request->access_control_request_method.bytes != NULL) {
        http_answer_header(exchange, SPAN("Access-Control-Allow-Methods"), allow);
        http_answer_header(exchange, SPAN("Access-Control-Allow-Headers"),
                           SPAN("Authorization, Content-Type, Idempotency-Key, X-Request-Id, "
                                "Last-Event-ID"));
        http_answer_header(exchange, SPAN("Access-Control-Max-Age"), SPAN("600"));
    }
    http_answer_end(exchange, (struct span){NULL, 0});
}

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
