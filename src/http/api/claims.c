/* claims.c: POST /v1/policies/{id}/claims, from the request to the desk and from the verdict to
 * the answer. Nothing on this way allocates or formats: refusing ten thousand people a second is
 * its daily work. */
#include "base/clock.h"
#include "claim/code.h"
#include "http/api/call.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"
#include "http/live/live.h"
#include "http/server/header.h"

#define VERDICT_RESULT(VERDICT, LETTER, RESULT, WHY) [VERDICT_##VERDICT] = CLAIM_##RESULT,
static const enum claim_result results[VERDICT_COUNT] = {VERDICTS(VERDICT_RESULT)};

#define CLAIM_STATUS(WORD, STATUS, ...) [CLAIM_##WORD] = STATUS,
static const int statuses[] = {CLAIM_GRANTS(CLAIM_STATUS)};

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
        .presence = api_auth(loop->api)->has_user_key ? JSON_OPTIONAL : JSON_REQUIRED,
        .target = &loop->claim_user,
        .seen = &loop->claim_user_seen,
    };
}

void claims_count_refused(struct api_loop *loop, enum claim_result result)
{
    counter_add(&loop->counters.claims[result], 1);
    loop->live->has_news = true;
}

static void refuse(struct api_loop *loop, struct http_exchange *exchange, enum claim_result result,
                   enum problem problem, const char *detail, const char *field)
{
    claims_count_refused(loop, result);
    if (detail == NULL)
        reply_problem(loop, exchange, problem);
    else
        reply_problem_about(loop, exchange, problem, detail, field);
}

/* Reads {"user": ...} into loop->claim_user. */
static bool read_body(struct api_loop *loop, struct http_exchange *exchange,
                      const struct http_request *request)
{
    if (!header_is_json(request->content_type)) {
        refuse(loop, exchange, CLAIM_INVALID_REQUEST, PROBLEM_UNSUPPORTED_MEDIA_TYPE, NULL, NULL);
        return false;
    }
    if (request->query.length > 0 || request->body.length == 0) {
        struct ask ask = {.loop = loop, .exchange = exchange, .request = request};
        claims_count_refused(loop, CLAIM_INVALID_REQUEST);
        if (ask_no_query(&ask))
            ask_refuse(&ask, "The body must be a JSON object.", NULL);
        return false;
    }
    struct error error;
    loop->claim_user_seen = JSON_NOT_SEEN;
    if (json_read_object(loop->reader, request->body, loop->claim_fields, 1, NULL, &error) ==
        STATUS_OK)
        return true;
    claims_count_refused(loop, CLAIM_INVALID_REQUEST);
    reply_mistakes(loop, exchange, json_reader_mistakes(loop->reader));
    return false;
}

/* Whether this caller may claim at all, before the body is looked at. */
static bool identify(struct api_loop *loop, struct http_exchange *exchange,
                     const struct http_request *request, struct caller *caller)
{
    const struct auth *auth = api_auth(loop->api);
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
        claims_count_refused(loop, CLAIM_RATE_LIMITED);
        return false;
    }
    refuse(loop, exchange, CLAIM_UNAUTHORIZED, PROBLEM_UNAUTHORIZED, refusal, NULL);
    return false;
}

/* Takes one out of the user's allowance. */
static bool within_limit(struct api_loop *loop, struct http_exchange *exchange,
                         const struct id *user)
{
    struct rate_limit limit =
        rate_limiter_take(loop->api->users, id_span(user), clock_monotonic_ns());
    reply_note_limit(exchange, &limit);
    if (limit.allowed)
        return true;
    claims_count_refused(loop, CLAIM_RATE_LIMITED);
    reply_rate_limited(loop, exchange, &limit);
    return false;
}

/* Whose claim it is: the token's user when there is one, else the body's. */
static bool choose_user(struct api_loop *loop, struct http_exchange *exchange,
                        const struct caller *caller, struct id *user)
{
    if (caller->kind != CALLER_USER) {
        *user = id_of(loop->claim_user);
        return true;
    }
    *user = caller->user;
    if (loop->claim_user_seen == JSON_NOT_SEEN || span_equal(loop->claim_user, id_span(user)))
        return true;
    refuse(loop, exchange, CLAIM_UNAUTHORIZED, PROBLEM_UNAUTHORIZED, "The token is another user's.",
           NULL);
    return false;
}

void claims_post(struct api_loop *loop, struct http_exchange *exchange,
                 const struct http_request *request, int64_t policy_id)
{
    struct caller caller = {.kind = CALLER_NOBODY};
    struct wish wish;
    if ((api_auth(loop->api)->has_tokens && !identify(loop, exchange, request, &caller)) ||
        !read_body(loop, exchange, request) || !choose_user(loop, exchange, &caller, &wish.user))
        return;
    if (request->idempotency_key.bytes == NULL) {
        wish.request_id = reply_make_id(loop);
    } else {
        char bytes[IDEMPOTENCY_KEY_MAX];
        struct span key;
        if (!header_idempotency_key(request->idempotency_key, bytes, &key)) {
            refuse(loop, exchange, CLAIM_INVALID_REQUEST, PROBLEM_INVALID_REQUEST,
                   "Idempotency-Key: must be 1-128 visible ASCII characters, quoted or bare",
                   "Idempotency-Key");
            return;
        }
        wish.request_id = request_id_of_key(&wish.user, key);
    }
    if (loop->api->users != NULL && !within_limit(loop, exchange, &wish.user))
        return;
    if (request->traceparent.bytes != NULL)
        service_trace(loop->api->service, &wish.request_id, request->traceparent);
    wish.policy_id = policy_id;
    desk_submit(loop->desk, &wish, exchange);
}

void claims_post_routed(struct ask *ask)
{
    claims_post(ask->loop, ask->exchange, ask->request, ask->policy_id);
}

/* --- proof ---
 *
 * A coupon that was there before is shown to a stranger who claims openly, with its code if they
 * prove by their Idempotency-Key that it is theirs. */

struct proof_call {
    struct call call;
    struct wish wish;
};

/* A key that was bound to the claim later answers with it, too, so what counts is the one that the
 * coupon was made with. While that is not in the ledger yet, nothing is proven. */
static void work_prove(struct call *call, struct service *service)
{
    struct proof_call *self = (struct proof_call *)(void *)call;
    const struct wish *wish = &self->wish;
    struct coupon coupon;
    struct error error;
    enum status status = service_coupon_get(service, wish->policy_id, wish->seq, &coupon, &error);
    if (status != STATUS_NOT_FOUND && !call_is_done(call, status, &error, PROBLEM_UNAVAILABLE))
        return;
    bool proven = status == STATUS_OK && memcmp(&coupon.claim.request_id, &wish->request_id,
                                                sizeof(wish->request_id)) == 0;
    struct buffer *out = call_json(call, 200);
    render_claim_location(out, wish->policy_id, &wish->user);
    call_move_location(call, out);
    render_claim(call_json(call, 200), service, wish, proven ? CODE_SHOWN : CODE_HIDDEN);
}

/* 200 with a claim that was held before, to someone without a token who sent a key. */
static void answer_proven(struct api_loop *loop, struct http_exchange *exchange,
                          const struct wish *wish)
{
    const struct ask ask = {.loop = loop, .exchange = exchange};
    call_start_with(&ask, work_prove, struct proof_call, .wish = *wish);
}

/* --- answers --- */

/* 201, 202 or 200 with the claim and where it can be read again. */
static void answer_held(struct api_loop *loop, struct http_exchange *exchange,
                        const struct wish *wish, enum claim_result result)
{
    bool won = wish->verdict == VERDICT_WON;
    enum held_code held = (enum held_code)http_exchange_notes(exchange)->held_code;
    if (!won && held == HELD_CODE_BY_KEY) {
        answer_proven(loop, exchange, wish);
        return;
    }
    struct buffer *body = &loop->body;
    buffer_clear(body);
    render_claim_location(body, wish->policy_id, &wish->user);
    size_t location_length = body->length;
    render_claim(body, loop->api->service, wish,
                 won || held == HELD_CODE_SHOWN ? CODE_SHOWN : CODE_HIDDEN);
    reply_begin(loop, exchange, statuses[result], JSON_CONTENT_TYPE);
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
    json_put_time(body, "opens_at", wish->opens_at_ms);
    buffer_append_literal(body, "}");
    int64_t wait_ms = wish->opens_at_ms - http_loop_wall_ms(loop->http);
    reply_begin(loop, exchange, problem_status(PROBLEM_NOT_OPEN), SPAN(PROBLEM_CONTENT_TYPE));
    reply_retry_after(exchange, (wait_ms + 999) / 1000, NOT_OPEN_JITTER_S);
    http_answer_end(exchange, (struct span){body->bytes, body->length});
}

static enum claim_result result_of(const struct wish *wish)
{
    enum claim_result result = results[wish->verdict];
    return result == CLAIM_ISSUED && wish->is_accepted ? CLAIM_ACCEPTED : result;
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
    if (result <= CLAIM_ALREADY_ISSUED) {
        answer_held(loop, exchange, wish, result);
    } else if (result == CLAIM_NOT_OPEN) {
        answer_not_open(loop, exchange, wish);
    } else if (wish->verdict == VERDICT_KEYS_FULL) {
        reply_problem_about(loop, exchange, PROBLEM_INVALID_REQUEST,
                            "Idempotency-Key: the claim this user holds has 31 keys besides its "
                            "own; retry with one of these, or without a key",
                            "Idempotency-Key");
    } else {
        /* Problems begin with the results that refuse, in the same order. */
        reply_problem(loop, exchange, (enum problem)(result - CLAIM_SOLD_OUT));
    }
}

/* --- what is won and not yet a coupon, oldest first; for admins --- */

#define CURSOR_KIND 'q'

static enum status read_list(const struct call *call, struct service *service, void *rows,
                             size_t max, size_t *count, struct error *error)
{
    return service_pending_claims(service, call->policy_id, call->page.after_first, rows, max,
                                  count, error);
}

static void render_row(struct buffer *out, const struct service *service, const void *row)
{
    const struct claim *claim = row;
    json_begin(out, '{');
    json_put(out, "seq", claim->seq);
    json_put(out, "user", id_span(&claim->user));
    json_put(out, "nth", claim->nth);
    buffer_append_literal(out, ",\"coupon_id\":\"");
    code_append_id(out, claim->policy_id, claim->seq);
    buffer_append_literal(out, "\"");
    json_put_time(out, "requested_at", claim->requested_at_ms);
    json_put(out, "attempts", claim->attempt);
    buffer_append_literal(out, "}");
}

static void place_row(const void *row, int64_t *first, int64_t *second)
{
    *first = ((const struct claim *)row)->seq;
    *second = 0;
}

static void work_list(struct call *call, struct service *service)
{
    static const struct call_rows rows = {
        sizeof(struct claim), CURSOR_KIND, read_list, render_row, place_row,
    };
    call_list(call, service, &rows);
}

void pending_list(struct ask *ask)
{
    if (ask_page(ask, CURSOR_KIND, NULL))
        call_start(ask, work_list);
}
