/* claims.c: POST /v1/policies/{id}/claims, from the request to the desk and from the verdict to
 * the answer. Nothing on this way allocates or formats: refusing ten thousand people a second is
 * its daily work. */
#include "base/clock.h"
#include "claim/code.h"
#include "http/handlers.h"
#include "http/header.h"
#include "http/live.h"
#include "http/render.h"
#include "http/reply.h"

static const char *const result_names[CLAIM_RESULT_COUNT] = {
    [CLAIM_ISSUED] = "issued",
    [CLAIM_ACCEPTED] = "accepted",
    [CLAIM_ALREADY_ISSUED] = "already_issued",
    [CLAIM_SOLD_OUT] = "sold_out",
    [CLAIM_LIMIT_REACHED] = "limit_reached",
    [CLAIM_BLOCKED] = "blocked",
    [CLAIM_CLOSED] = "closed",
    [CLAIM_PAUSED] = "paused",
    [CLAIM_NOT_OPEN] = "not_open",
    [CLAIM_NOT_FOUND] = "not_found",
    [CLAIM_UNAVAILABLE] = "unavailable",
    [CLAIM_INVALID] = "invalid",
    [CLAIM_UNAUTHORIZED] = "unauthorized",
    [CLAIM_RATE_LIMITED] = "rate_limited",
};

const char *claim_result_name(enum claim_result result)
{
    return result_names[result];
}

/* What a refusing verdict becomes. */
static const struct refusal {
    enum problem problem;
    enum claim_result result;
} refusals[VERDICT_COUNT] = {
    [VERDICT_UNDECIDED] = {PROBLEM_UNAVAILABLE, CLAIM_UNAVAILABLE},
    [VERDICT_NO_POLICY] = {PROBLEM_POLICY_NOT_FOUND, CLAIM_NOT_FOUND},
    [VERDICT_KEYS_FULL] = {PROBLEM_INVALID_REQUEST, CLAIM_INVALID},
    [VERDICT_BLOCKED] = {PROBLEM_BLOCKED, CLAIM_BLOCKED},
    [VERDICT_CLOSED] = {PROBLEM_CLOSED, CLAIM_CLOSED},
    [VERDICT_PAUSED] = {PROBLEM_PAUSED, CLAIM_PAUSED},
    [VERDICT_NOT_OPEN] = {PROBLEM_NOT_OPEN, CLAIM_NOT_OPEN},
    [VERDICT_LIMIT_REACHED] = {PROBLEM_LIMIT_REACHED, CLAIM_LIMIT_REACHED},
    [VERDICT_SOLD_OUT] = {PROBLEM_SOLD_OUT, CLAIM_SOLD_OUT},
    [VERDICT_LEASE_WANTED] = {PROBLEM_UNAVAILABLE, CLAIM_UNAVAILABLE},
    [VERDICT_UNAVAILABLE] = {PROBLEM_UNAVAILABLE, CLAIM_UNAVAILABLE},
};

/* notes.held_code: whether a coupon that was there before is shown with its code. */
enum held_code {
    HELD_CODE_SHOWN,
    HELD_CODE_HIDDEN,
    HELD_CODE_BY_KEY, /* to who has the key that it was claimed with */
};

/* How much later than asked a refused crowd may come back, at most. */
#define NOT_OPEN_JITTER_S 3

void claims_loop_init(struct api_loop *loop)
{
    loop->claim_fields[0] = (struct json_field){
        .name = "user",
        .kind = JSON_ID,
        /* With user tokens the token says who it is. */
        .presence = loop->api->auth.has_user_key ? JSON_OPTIONAL : JSON_REQUIRED,
        .target = &loop->claim_user,
        .seen = &loop->claim_user_seen,
    };
}

/* One that never came to the desk. */
static void count_refused(struct api_loop *loop, enum claim_result result)
{
    counter_add(&loop->counters.claims[result], 1);
    loop->live->has_news = true;
}

static void refuse(struct api_loop *loop, struct http_exchange *exchange, enum claim_result result,
                   enum problem problem, const char *detail, const char *field)
{
    count_refused(loop, result);
    if (detail == NULL) {
        reply_problem(loop, exchange, problem);
    } else {
        reply_problem_about(loop, exchange, problem, detail, field);
    }
}

/* Reads {"user": ...} into loop->claim_user. */
static bool read_body(struct api_loop *loop, struct http_exchange *exchange,
                      const struct http_request *request)
{
    if (!header_is_json(request->content_type)) {
        refuse(loop, exchange, CLAIM_INVALID, PROBLEM_UNSUPPORTED_MEDIA_TYPE, NULL, NULL);
        return false;
    }
    if (request->query.length > 0 || request->body.length == 0) {
        struct ask ask = {.loop = loop, .exchange = exchange, .request = request};
        count_refused(loop, CLAIM_INVALID);
        if (ask_no_query(&ask)) {
            ask_refuse(&ask, "The body must be a JSON object.", NULL);
        }
        return false;
    }
    char field[QUERY_NAME_SIZE];
    struct error error;
    loop->claim_user_seen = JSON_NOT_SEEN;
    if (json_read_object(loop->reader, request->body, loop->claim_fields, 1, field, &error) ==
        STATUS_OK) {
        return true;
    }
    refuse(loop, exchange, CLAIM_INVALID, PROBLEM_INVALID_REQUEST, error.text, field);
    return false;
}

/* Whether this caller may claim at all, before the body is looked at. */
static bool identify(struct api_loop *loop, struct http_exchange *exchange,
                     const struct http_request *request, struct caller *caller)
{
    const struct auth *auth = &loop->api->auth;
    auth_identify(auth, request->authorization, http_loop_wall_ms(loop->http), caller);
    const char *refusal = auth_may_claim(auth, caller, &caller->user);
    if (refusal == NULL) {
        bool has_key = request->idempotency_key.bytes != NULL;
        http_exchange_notes(exchange)->held_code = auth_may_see_held_code(auth, caller)
                                                       ? HELD_CODE_SHOWN
                                                   : has_key ? HELD_CODE_BY_KEY
                                                             : HELD_CODE_HIDDEN;
        return true;
    }
    const struct ask ask = {.loop = loop, .exchange = exchange, .request = request};
    if (caller->is_guess && !guess_was_wrong(&ask, GUESS_TOKEN)) {
        count_refused(loop, CLAIM_RATE_LIMITED);
        return false;
    }
    refuse(loop, exchange, CLAIM_UNAUTHORIZED, PROBLEM_UNAUTHORIZED, refusal, NULL);
    return false;
}

/* Takes one out of the user's allowance. */
static bool within_limit(struct api_loop *loop, struct http_exchange *exchange,
                         const struct user_id *user)
{
    struct rate_limit limit =
        rate_limiter_take(loop->api->users, user_id_span(user), clock_monotonic_ns());
    reply_note_limit(exchange, &limit);
    if (limit.allowed) {
        return true;
    }
    count_refused(loop, CLAIM_RATE_LIMITED);
    reply_rate_limited(loop, exchange, &limit);
    return false;
}

/* Whose claim it is: the token's user when there is one, else the body's. */
static bool choose_user(struct api_loop *loop, struct http_exchange *exchange,
                        const struct caller *caller, struct user_id *user)
{
    if (caller->kind != CALLER_USER) {
        *user = user_id_of(loop->claim_user);
        return true;
    }
    *user = caller->user;
    if (loop->claim_user_seen == JSON_NOT_SEEN ||
        span_equal(loop->claim_user, user_id_span(user))) {
        return true;
    }
    refuse(loop, exchange, CLAIM_UNAUTHORIZED, PROBLEM_UNAUTHORIZED, "The token is another user's.",
           NULL);
    return false;
}

void claims_post(struct api_loop *loop, struct http_exchange *exchange,
                 const struct http_request *request, int64_t policy_id)
{
    struct caller caller = {.kind = CALLER_NOBODY};
    struct wish wish;
    if ((loop->api->auth.has_tokens && !identify(loop, exchange, request, &caller)) ||
        !read_body(loop, exchange, request) || !choose_user(loop, exchange, &caller, &wish.user)) {
        return;
    }
    if (request->idempotency_key.bytes == NULL) {
        wish.request_id = reply_make_id(loop);
    } else {
        char bytes[IDEMPOTENCY_KEY_MAX];
        struct span key;
        if (!header_idempotency_key(request->idempotency_key, bytes, &key)) {
            refuse(loop, exchange, CLAIM_INVALID, PROBLEM_INVALID_REQUEST,
                   "Idempotency-Key: must be 1-128 visible ASCII characters, quoted or bare",
                   "Idempotency-Key");
            return;
        }
        wish.request_id = request_id_of_key(&wish.user, key);
    }
    if (loop->api->users != NULL && !within_limit(loop, exchange, &wish.user)) {
        return;
    }
    if (request->traceparent.bytes != NULL) {
        service_trace(loop->api->service, &wish.request_id, request->traceparent);
    }
    wish.policy_id = policy_id;
    desk_submit(loop->desk, &wish, exchange);
}

void claims_post_routed(struct ask *ask)
{
    int64_t policy_id;
    if (route_policy_id(ask->match.params[0], &policy_id)) {
        claims_post(ask->loop, ask->exchange, ask->request, policy_id);
        return;
    }
    count_refused(ask->loop, CLAIM_INVALID);
    (void)ask_policy_id(ask, 0, &policy_id);
}

/* 201, 202 or 200 with the claim and where it can be read again. */
static void answer_held(struct api_loop *loop, struct http_exchange *exchange,
                        const struct wish *wish)
{
    bool won = wish->verdict == VERDICT_WON;
    enum held_code held = (enum held_code)http_exchange_notes(exchange)->held_code;
    if (!won && held == HELD_CODE_BY_KEY) {
        claim_proof_answer(loop, exchange, wish);
        return;
    }
    struct buffer *body = &loop->body;
    buffer_clear(body);
    render_claim_location(body, wish->policy_id, &wish->user);
    size_t location_length = body->length;
    render_claim(body, loop->api->service, wish,
                 won || held == HELD_CODE_SHOWN ? CODE_SHOWN : CODE_HIDDEN);
    reply_begin(loop, exchange, !won ? 200 : wish->is_accepted ? 202 : 201, JSON_CONTENT_TYPE);
    http_answer_header(exchange, SPAN("Location"), (struct span){body->bytes, location_length});
    http_answer_end(exchange,
                    (struct span){body->bytes + location_length, body->length - location_length});
}

static void answer_not_open(struct api_loop *loop, struct http_exchange *exchange,
                            const struct wish *wish)
{
    struct buffer *body = &loop->body;
    buffer_clear(body);
    problem_begin(body, PROBLEM_NOT_OPEN, SPAN("Claiming has not begun yet."));
    problem_add_time(body, "opens_at", wish->opens_at_ms);
    problem_end(body);
    int64_t wait_ms = wish->opens_at_ms - http_loop_wall_ms(loop->http);
    reply_begin(loop, exchange, problem_status(PROBLEM_NOT_OPEN), SPAN(PROBLEM_CONTENT_TYPE));
    reply_retry_after(exchange, (wait_ms + 999) / 1000, NOT_OPEN_JITTER_S);
    http_answer_end(exchange, (struct span){body->bytes, body->length});
}

static enum claim_result result_of(const struct wish *wish)
{
    if (wish->verdict == VERDICT_WON) {
        return wish->is_accepted ? CLAIM_ACCEPTED : CLAIM_ISSUED;
    }
    return wish->verdict == VERDICT_HELD ? CLAIM_ALREADY_ISSUED : refusals[wish->verdict].result;
}

void claims_answer(void *context, void *asker, const struct wish *wish)
{
    struct api_loop *loop = context;
    struct http_exchange *exchange = asker;
    int64_t elapsed_ns = loop->tick_ns - http_exchange_notes(exchange)->started_ns;
    uint64_t took_ns = elapsed_ns < 0 ? 0 : (uint64_t)elapsed_ns;
    enum claim_result result = result_of(wish);
    histogram_record(&loop->counters.claim_ns, took_ns);
    counter_add(&loop->counters.claims[result], 1);
    live_count(loop, wish, result, took_ns);
    if (wish->verdict == VERDICT_WON || wish->verdict == VERDICT_HELD) {
        answer_held(loop, exchange, wish);
        return;
    }
    const struct refusal *refusal = &refusals[wish->verdict];
    if (wish->verdict == VERDICT_NOT_OPEN) {
        answer_not_open(loop, exchange, wish);
    } else if (wish->verdict == VERDICT_KEYS_FULL) {
        reply_problem_about(loop, exchange, refusal->problem,
                            "Idempotency-Key: the claim this user holds has 31 keys besides its "
                            "own; retry with one of these, or without a key",
                            "Idempotency-Key");
    } else {
        reply_problem(loop, exchange, refusal->problem);
    }
}
