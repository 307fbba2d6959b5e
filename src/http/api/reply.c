/* reply.c: what every answer carries. */
#include "http/api/reply.h"

#include "base/clock.h"
#include "base/digits.h"
#include "base/log.h"
#include "base/random.h"
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
