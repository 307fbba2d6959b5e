/* ask.c: the checks that handlers share: who asks, parameters, bodies, and those who guess. */
#include "http/api/ask.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/api/reply.h"
#include "http/server/header.h"

/* --- the query: name=value pairs, strictly --- */

static enum status read_pair(struct span pair, struct query_param *params, size_t count,
                             char field[QUERY_NAME_SIZE], struct error *error)
{
    const char *equals = memchr(pair.bytes, '=', pair.length);
    size_t name_length = equals == NULL ? pair.length : (size_t)(equals - pair.bytes);
    size_t length;
    if (!percent_decode((struct span){pair.bytes, name_length}, field, QUERY_NAME_SIZE - 1,
                        &length))
        return error_set(error, STATUS_INVALID, "The query's percent-encoding is broken.");
    field[length] = '\0';
    struct query_param *param = NULL;
    for (size_t index = 0; index < count; index++)
        if (strcmp(params[index].name, field) == 0 && strlen(field) == length)
            param = &params[index];
    if (param == NULL)
        return error_set(error, STATUS_INVALID, "%s: is not a parameter of this call", field);
    if (param->present)
        return error_set(error, STATUS_INVALID, "%s: is given twice", field);
    size_t skipped = name_length + (equals != NULL);
    struct span value = {pair.bytes + skipped, pair.length - skipped};
    if (!percent_decode(value, param->value, sizeof(param->value), &param->length))
        return error_set(error, STATUS_INVALID, "%s: its percent-encoding is broken", field);
    if (param->length == sizeof(param->value))
        return error_set(error, STATUS_INVALID, "%s: is too long", field);
    param->value[param->length] = '\0';
    param->present = true;
    return STATUS_OK;
}

enum status query_read(struct span query, struct query_param *params, size_t count,
                       char field[QUERY_NAME_SIZE], struct error *error)
{
    field[0] = '\0';
    for (size_t index = 0; index < count; index++) {
        params[index].present = false;
        params[index].length = 0;
    }
    size_t start = 0;
    for (size_t at = 0; at <= query.length; at++) {
        if (at < query.length && query.bytes[at] != '&')
            continue;
        if (at > start) {
            struct span pair = {query.bytes + start, at - start};
            enum status status = read_pair(pair, params, count, field, error);
            if (status != STATUS_OK)
                return status;
        }
        start = at + 1;
    }
    return STATUS_OK;
}

/* Digits only, no leading zero but "0" itself, up to 18 of them. */
static bool read_digits(const char **at, const char *end, int64_t *number)
{
    const char *start = *at;
    *number = 0;
    while (*at < end && **at >= '0' && **at <= '9' && *at - start < 18) {
        *number = *number * 10 + (**at - '0');
        (*at)++;
    }
    size_t length = (size_t)(*at - start);
    return length > 0 && (start[0] != '0' || length == 1);
}

enum status query_integer(const struct query_param *param, int64_t minimum, int64_t maximum,
                          int64_t fallback, int64_t *number, struct error *error)
{
    *number = fallback;
    if (!param->present)
        return STATUS_OK;
    const char *at = param->value;
    const char *end = param->value + param->length;
    if (!read_digits(&at, end, number) || at != end || *number < minimum || *number > maximum) {
        return error_set(error, STATUS_INVALID,
                         "%s: must be an integer from %" PRId64 " to %" PRId64, param->name,
                         minimum, maximum);
    }
    return STATUS_OK;
}

void cursor_write(char text[CURSOR_SIZE], char kind, int64_t first, int64_t second)
{
    char plain[44];
    int length = snprintf(plain, sizeof(plain), "%c%" PRId64 "-%" PRId64, kind, first, second);
    sodium_bin2base64(text, CURSOR_SIZE, (const unsigned char *)plain, (size_t)length,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

bool cursor_read(struct span text, char kind, int64_t *first, int64_t *second)
{
    char plain[44];
    size_t length;
    if (sodium_base642bin((unsigned char *)plain, sizeof(plain), text.bytes, text.length, NULL,
                          &length, NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0)
        return false;
    const char *at = plain + 1;
    const char *end = plain + length;
    if (length < 4 || plain[0] != kind || !read_digits(&at, end, first) || at == end || *at != '-')
        return false;
    at++;
    return read_digits(&at, end, second) && at == end;
}

/* --- guessing --- */

/* Ten wrong ones, then one every five seconds, from one address; in all some hundreds, then twenty
 * a second. */
#define ADDRESS_PER_SECOND 0.2
#define ADDRESS_BURST      10
#define ADDRESS_KEYS       65536
#define ALL_PER_SECOND     20.0
#define ALL_BURST          400

#define ALARM_NS           INT64_C(60000000000)

static const struct span everybody = {"all", 3};

enum status guesses_init(struct guesses *guesses, struct error *error)
{
    guesses->addresses = rate_limiter_new(ADDRESS_PER_SECOND, ADDRESS_BURST, ADDRESS_KEYS);
    guesses->all = rate_limiter_new(ALL_PER_SECOND, ALL_BURST, 1);
    return guesses->addresses != NULL && guesses->all != NULL
               ? STATUS_OK
               : error_set(error, STATUS_FAILED, "no memory for the rate limits");
}

void guesses_release(struct guesses *guesses)
{
    rate_limiter_free(guesses->addresses);
    rate_limiter_free(guesses->all);
}

static void log_guess(const struct ask *ask, enum log_level level, const char *event)
{
    struct guesses *guesses = &ask->loop->api->guesses;
    char text[ADDRESS_TEXT_SIZE];
    struct address client = ask_address(ask);
    address_format(&client, text);
    log_event(level, event, LOG_FIELD("request_id", LOG_SPAN(reply_request_id(ask->exchange))),
              LOG_FIELD("address", LOG_TEXT(text)),
              LOG_FIELD("wrong_codes", LOG_I64(atomic_load(&guesses->wrong[GUESS_CODE]))),
              LOG_FIELD("wrong_tokens", LOG_I64(atomic_load(&guesses->wrong[GUESS_TOKEN]))));
}

/* Whatever is answered, it is the connection's last. */
static void throttle(const struct ask *ask, int64_t now_ns)
{
    struct guesses *guesses = &ask->loop->api->guesses;
    int64_t raised_ns = atomic_load(&guesses->alarm_ns);
    atomic_fetch_add(&guesses->throttled, 1);
    if ((raised_ns == 0 || now_ns - raised_ns > ALARM_NS) &&
        atomic_compare_exchange_strong(&guesses->alarm_ns, &raised_ns, now_ns))
        log_guess(ask, LOG_ERROR, "guessing");
    http_answer_close(ask->exchange);
}

static void refuse_guess(const struct ask *ask, const struct rate_limit *limit)
{
    reply_note_limit(ask->exchange, limit);
    reply_rate_limited(ask->loop, ask->exchange, limit);
}

bool guess_may_try_code(struct ask *ask)
{
    struct api *api = ask->loop->api;
    if (!api_auth(api)->has_tokens)
        return true;
    if (!ask_identify(ask))
        return false;
    if (ask->caller.kind == CALLER_ADMIN || ask->caller.kind == CALLER_SERVICE)
        return true;
    char bytes[RATE_LIMIT_ADDRESS_SIZE];
    struct address client = ask_address(ask);
    int64_t now_ns = clock_monotonic_ns();
    struct rate_limit own =
        rate_limiter_peek(api->guesses.addresses, rate_limit_address(&client, bytes), now_ns);
    struct rate_limit all = rate_limiter_peek(api->guesses.all, everybody, now_ns);
    if (own.allowed && (all.allowed || own.remaining == own.limit))
        return true;
    throttle(ask, now_ns);
    refuse_guess(ask, own.allowed ? &all : &own);
    return false;
}

static struct rate_limit count_wrong(const struct ask *ask, enum guess_kind kind)
{
    static const char *const events[] = {
        [GUESS_CODE] = "wrong_code", [GUESS_TOKEN] = "wrong_token"};
    struct guesses *guesses = &ask->loop->api->guesses;
    char bytes[RATE_LIMIT_ADDRESS_SIZE];
    struct address client = ask_address(ask);
    int64_t now_ns = clock_monotonic_ns();
    struct rate_limit limit =
        rate_limiter_take(guesses->addresses, rate_limit_address(&client, bytes), now_ns);
    atomic_fetch_add(&guesses->wrong[kind], 1);
    /* One address alone cannot use up what all have. */
    if (limit.allowed)
        limit = rate_limiter_take(guesses->all, everybody, now_ns);
    if (limit.allowed)
        log_guess(ask, LOG_WARN, events[kind]);
    else
        throttle(ask, now_ns);
    return limit;
}

bool guess_was_wrong(const struct ask *ask, enum guess_kind kind)
{
    struct rate_limit limit = count_wrong(ask, kind);
    if (!limit.allowed)
        refuse_guess(ask, &limit);
    return limit.allowed;
}

void guess_note_wrong(const struct ask *ask, enum guess_kind kind)
{
    (void)count_wrong(ask, kind);
}

/* --- one request --- */

void ask_refuse(struct ask *ask, const char *detail, const char *field)
{
    reply_problem_about(ask->loop, ask->exchange, PROBLEM_INVALID_REQUEST, detail, field);
}

static bool read_id(struct ask *ask, struct span text, const char *name)
{
    struct error error;
    if (json_id_valid(text)) {
        ask->id = id_of(text);
        return true;
    }
    error_set(&error, STATUS_INVALID, "%s: " JSON_ID_RULE, name);
    ask_refuse(ask, error.text, name);
    return false;
}

/* The parameters of the path that are the same wherever they stand. */
static bool read_params(struct ask *ask)
{
    static const struct {
        struct span word;
        const char *name; /* for the refusal */
    } ids[] = {
        {{"{user}", 6}, "user"}, {{"{order}", 7}, "order_id"}, {{"{product}", 9}, "product_id"}};
    const char *at = ask->route->pattern;
    for (size_t param = 0; param < ask->match.param_count; param++) {
        at = strchr(at + 1, '{');
        if (strncmp(at, "{policy_id}", 11) == 0 &&
            !route_policy_id(ask->match.params[param], &ask->policy_id)) {
            ask_refuse(ask, "policy_id: must be an integer from 1 to 9007199254740991",
                       "policy_id");
            return false;
        }
        for (size_t index = 0; index < sizeof(ids) / sizeof(ids[0]); index++)
            if (strncmp(at, ids[index].word.bytes, ids[index].word.length) == 0 &&
                !read_id(ask, ask->match.params[param], ids[index].name))
                return false;
    }
    return true;
}

bool ask_keeps_rules(struct ask *ask)
{
    const struct route *route = ask->route;
    if ((route_role(route) != ACCESS_NOTHING && !ask_role(ask, route_role(route))) ||
        (route->access == ROUTE_KNOWN && !ask_identify(ask)) || !read_params(ask) ||
        (route->access == ROUTE_OWNER && !ask_may_see(ask, &ask->id)) ||
        ((route->flags & ROUTE_QUERY) == 0 && !ask_no_query(ask)))
        return false;
    if ((route->flags & ROUTE_BULK) != 0)
        http_exchange_notes(ask->exchange)->queue = POOL_KNOWN;
    return true;
}

struct address ask_address(const struct ask *ask)
{
    return proxies_client(&ask->loop->api->proxies, *http_exchange_peer(ask->exchange),
                          ask->request);
}

/* Where there are no tokens, there are no strangers: only this machine is served. */
static enum pool_queue queue_of(const struct auth *auth, const struct caller *caller)
{
    switch (caller->kind) {
    case CALLER_ADMIN:
        return POOL_ADMINS;
    case CALLER_SERVICE:
    case CALLER_USER:
        return POOL_KNOWN;
    case CALLER_NOBODY:
    case CALLER_WRONG:
        break;
    }
    return auth->has_tokens ? POOL_STRANGERS : POOL_KNOWN;
}

static void identify(struct ask *ask)
{
    auth_identify_request(api_auth(ask->loop->api), ask->request,
                          http_loop_wall_ms(ask->loop->http), &ask->caller);
    struct http_exchange_notes *notes = http_exchange_notes(ask->exchange);
    notes->token = ask->caller.token;
    notes->client = ask_address(ask);
    notes->queue = queue_of(api_auth(ask->loop->api), &ask->caller);
    notes->acts_for_many = ask->caller.kind == CALLER_ADMIN || ask->caller.kind == CALLER_SERVICE ||
                           !api_auth(ask->loop->api)->has_tokens;
}

bool ask_identify(struct ask *ask)
{
    identify(ask);
    return !ask->caller.is_guess || guess_was_wrong(ask, GUESS_TOKEN);
}

bool ask_is_admin(struct ask *ask)
{
    identify(ask);
    if (ask->caller.is_guess)
        guess_note_wrong(ask, GUESS_TOKEN);
    return auth_may_administer(api_auth(ask->loop->api), &ask->caller, ACCESS_VIEWER) == NULL;
}

static bool allow(struct ask *ask, const char *refusal)
{
    if (refusal == NULL)
        return true;
    reply_problem_about(ask->loop, ask->exchange, PROBLEM_UNAUTHORIZED, refusal, NULL);
    return false;
}

bool ask_role(struct ask *ask, enum access_role role)
{
    if (!ask_identify(ask) ||
        !allow(ask, auth_may_administer(api_auth(ask->loop->api), &ask->caller, role)))
        return false;
    http_exchange_notes(ask->exchange)->queue = POOL_ADMINS;
    return true;
}

bool ask_may_see(struct ask *ask, const struct id *user)
{
    return ask_identify(ask) &&
           allow(ask, auth_may_see(api_auth(ask->loop->api), &ask->caller, user));
}

bool ask_query(struct ask *ask, struct query_param *params, size_t count)
{
    char field[QUERY_NAME_SIZE];
    struct error error;
    if (query_read(ask->request->query, params, count, field, &error) == STATUS_OK)
        return true;
    ask_refuse(ask, error.text, field);
    return false;
}

bool ask_no_query(struct ask *ask)
{
    return ask->request->query.length == 0 || ask_query(ask, NULL, 0);
}

bool ask_number(struct ask *ask, const struct query_param *param, int64_t minimum, int64_t maximum,
                int64_t fallback, int64_t *number)
{
    struct error error;
    if (query_integer(param, minimum, maximum, fallback, number, &error) == STATUS_OK)
        return true;
    ask_refuse(ask, error.text, param->name);
    return false;
}

bool ask_page(struct ask *ask, char cursor_kind, struct query_param *extra)
{
    struct query_param params[3] = {{.name = "limit"}, {.name = "after"}};
    struct page *page = &ask->page;
    int64_t limit;
    if (extra != NULL)
        params[2] = *extra;
    if (!ask_query(ask, params, extra != NULL ? 3 : 2))
        return false;
    if (extra != NULL)
        *extra = params[2];
    if (!ask_number(ask, &params[0], 1, PAGE_LIMIT_MAX, PAGE_LIMIT_DEFAULT, &limit))
        return false;
    page->limit = (size_t)limit;
    http_exchange_expect(ask->exchange, page->limit * PAGE_ITEM_BYTES);
    struct span cursor = {params[1].value, params[1].length};
    if (params[1].present &&
        !cursor_read(cursor, cursor_kind, &page->after_first, &page->after_second)) {
        ask_refuse(ask, "after: must be the next of the page before", params[1].name);
        return false;
    }
    return true;
}

void ask_note(struct ask *ask, const char *field, const char *message)
{
    json_reader_note(ask->loop->reader, field, message);
}

bool ask_has_mistakes(const struct ask *ask)
{
    return json_reader_mistakes(ask->loop->reader)->count > 0;
}

bool ask_is_right(struct ask *ask)
{
    if (ask_has_mistakes(ask))
        reply_mistakes(ask->loop, ask->exchange, json_reader_mistakes(ask->loop->reader));
    return !ask_has_mistakes(ask);
}

bool ask_body_read(struct ask *ask, enum ask_body presence, const struct json_field *fields,
                   size_t field_count)
{
    const struct http_request *request = ask->request;
    struct error error;
    bool is_needed = presence == ASK_BODY_REQUIRED || request->body.length > 0;
    if (is_needed && !header_is_json(request->content_type)) {
        reply_problem(ask->loop, ask->exchange, PROBLEM_UNSUPPORTED_MEDIA_TYPE);
        return false;
    }
    /* An empty body is not an object, even where every field is optional. */
    if (is_needed && request->body.length == 0) {
        ask_refuse(ask, "The body must be a JSON object.", NULL);
        return false;
    }
    (void)!json_read_object(ask->loop->reader, request->body, fields, field_count, NULL, &error);
    return true;
}

bool ask_body(struct ask *ask, enum ask_body presence, const struct json_field *fields,
              size_t field_count)
{
    return ask_body_read(ask, presence, fields, field_count) && ask_is_right(ask);
}
