/* api.c: what the server calls: opens each loop's part, sends requests to their handlers, ticks. */
#include "http/api/api.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "http/api/call.h"
#include "http/api/context.h"
#include "http/api/handlers.h"
#include "http/api/reply.h"
#include "http/api/router.h"
#include "http/live/live.h"

/* So many users and addresses are remembered by the rate limits: 1 MiB each. */
#define RATE_LIMIT_KEYS 65536

/* --- life --- */

static struct span secret_span(const struct config_secret *secret)
{
    return (struct span){secret->bytes, secret->length};
}

static enum status open_limits(struct api *api, const struct config *config, struct error *error)
{
    if (config->rate_limit_user > 0) {
        api->users = rate_limiter_new(config->rate_limit_user, config->rate_limit_user_burst,
                                      RATE_LIMIT_KEYS);
    }
    if (config->rate_limit_address > 0) {
        api->addresses = rate_limiter_new(config->rate_limit_address,
                                          config->rate_limit_address_burst, RATE_LIMIT_KEYS);
    }
    if ((config->rate_limit_user > 0 && api->users == NULL) ||
        (config->rate_limit_address > 0 && api->addresses == NULL))
        return error_set(error, STATUS_FAILED, "no memory for the rate limits");
    api->streams = per_address_new((size_t)config->streams_per_address);
    if (api->streams == NULL)
        return error_set(error, STATUS_FAILED, "no memory for the streams' addresses");
    return guesses_init(&api->guesses, error);
}

static enum status open_metrics(struct api *api, struct api *watched, struct error *error)
{
    if (watched != NULL) {
        api->metrics = watched->metrics;
        return STATUS_OK;
    }
    api->owns_metrics = true;
    return metrics_page_open(&api->metrics, api, error);
}

static struct auth *new_auth(const struct api *api, const struct config *config)
{
    struct auth *auth = malloc(sizeof(*auth));
    if (auth != NULL)
        auth_init(auth, &(struct auth_options){
                            .admin_token = secret_span(&config->admin_token),
                            .admin_tokens = secret_span(&config->admin_tokens),
                            .service_token = secret_span(&config->service_token),
                            .user_key = secret_span(&config->user_key),
                            .user_audience = span_of(api->config->user_audience),
                            .claims_open = strcmp(config->claims, "open") == 0,
                            .only_watched = api->only_watched,
                        });
    return auth;
}

static void free_auth(struct auth *auth)
{
    while (auth != NULL) {
        struct auth *older = auth->older;
        auth_release(auth);
        free(auth);
        auth = older;
    }
}

enum status api_reload(struct api *api, const struct config *config, struct error *error)
{
    struct auth *auth = new_auth(api, config);
    if (auth == NULL)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for the tokens");
    if (!auth_is_alike(auth, api_auth(api))) {
        free_auth(auth);
        return error_set(error, STATUS_CONFLICT,
                         "a kind of token was set that was not, or is not any more; restart for "
                         "that");
    }
    auth->older = atomic_load(&api->auth);
    atomic_store(&api->auth, auth);
    return STATUS_OK;
}

enum status api_open(struct api **api, const struct api_options *options, struct error *error)
{
    const struct config *config = options->config;
    if (config->cors_origin.count > ORIGINS_MAX)
        return error_set(error, STATUS_INVALID, "cors_origin: at most %d origins", ORIGINS_MAX);
    struct api *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return error_set(error, STATUS_FAILED, "no memory for the API");
    pthread_mutex_init(&opened->loops_lock, NULL);
    opened->service = options->service;
    opened->config = config;
    opened->loops_max = options->threads;
    opened->only_watched = options->extent == API_WATCHED;
    opened->started_ms = clock_wall_ms();
    opened->logs_requests = log_level() <= LOG_DEBUG;
    for (size_t index = 0; index < config->cors_origin.count; index++)
        opened->allows_any_origin |= strcmp(config->cors_origin.items[index], "*") == 0;
    opened->varies_by_origin = config->cors_origin.count > 0 && !opened->allows_any_origin;
    opened->loops = calloc(options->threads, sizeof(struct api_loop *));
    struct auth *auth = new_auth(opened, config);
    atomic_init(&opened->auth, auth);
    enum status status = opened->loops == NULL || auth == NULL
                             ? error_set(error, STATUS_FAILED, "no memory for the API")
                             : open_limits(opened, config, error);
    if (status == STATUS_OK)
        status = proxies_init(&opened->proxies, &config->trusted_proxies, error);
    if (status == STATUS_OK)
        status = pages_open(opened, error);
    if (status == STATUS_OK)
        status = live_open(opened, error);
    if (status == STATUS_OK)
        status = open_metrics(opened, options->watched, error);
    if (status != STATUS_OK) {
        api_close(opened);
        return status;
    }
    *api = opened;
    return STATUS_OK;
}

const struct proxies *api_proxies(const struct api *api)
{
    return &api->proxies;
}

void api_attach(struct api *api, struct http_server *server)
{
    api->server = server;
}

bool api_stopping(const struct api *api)
{
    return http_server_stopping(api->server);
}

static void loop_free(struct api_loop *loop)
{
    json_reader_free(loop->reader);
    live_loop_free(loop);
    buffer_release(&loop->body);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

void api_stop(struct api *api)
{
    if (api->owns_metrics)
        metrics_page_stop(api->metrics);
}

void api_close(struct api *api)
{
    if (api->owns_metrics)
        metrics_page_free(api->metrics);
    for (unsigned index = 0; api->loops != NULL && index < api->loops_max; index++)
        if (api->loops[index] != NULL)
            loop_free(api->loops[index]);
    free(api->loops);
    rate_limiter_free(api->users);
    rate_limiter_free(api->addresses);
    guesses_release(&api->guesses);
    per_address_free(api->streams);
    pages_close(api);
    proxies_release(&api->proxies);
    free_auth(atomic_load(&api->auth));
    live_close(api);
    pthread_mutex_destroy(&api->loops_lock);
    free(api);
}

/* --- one loop --- */

static void run_wake_task(struct http_task *task)
{
    struct api_loop *loop =
        (struct api_loop *)(void *)((char *)task - offsetof(struct api_loop, wake_task));
    /* The tick that follows looks at the desk; whoever wakes from now on wakes anew. */
    atomic_store(&loop->wake_posted, false);
}

/* From any thread. */
static void wake_desk(void *context)
{
    struct api_loop *loop = context;
    if (!atomic_exchange(&loop->wake_posted, true))
        (void)http_loop_post(loop->http, &loop->wake_task);
}

/* A tick follows every return from the wait for events, also one that only time has ended. */
static void on_timer(uv_timer_t *timer)
{
}

void api_loop_keep_ticking(struct api_loop *loop)
{
    if (!loop->timer_runs) {
        loop->timer_runs = true;
        uv_timer_start(&loop->timer, on_timer, TICK_MS, TICK_MS);
    }
}

static void make_id_prefix(struct api_loop *loop)
{
    static const char digits[] = "0123456789abcdef";
    random_bytes(loop->id_prefix, sizeof(loop->id_prefix));
    /* The first bit tells an id made here from a client's key. */
    loop->id_prefix[0] &= 0x7f;
    for (unsigned index = 0; index < sizeof(loop->id_prefix); index++) {
        loop->id_prefix_text[2 * index] = digits[loop->id_prefix[index] >> 4];
        loop->id_prefix_text[2 * index + 1] = digits[loop->id_prefix[index] & 15];
    }
}

static enum status loop_open(void *server_context, struct http_loop *http, unsigned index,
                             void **loop_context, struct error *error)
{
    struct api *api = server_context;
    ensure(index < api->loops_max);
    struct api_loop *loop = calloc(1, sizeof(*loop));
    if (loop == NULL)
        return error_set(error, STATUS_FAILED, "no memory for a loop");
    loop->api = api;
    loop->http = http;
    loop->index = index;
    loop->wake_task.run = run_wake_task;
    pthread_mutex_init(&loop->lock, NULL);
    buffer_init(&loop->body, ANSWER_LENGTH_MAX);
    make_id_prefix(loop);
    claims_loop_init(loop);
    ranking_loop_init(loop);
    call_loop_init(loop);
    loop->reader = json_reader_new(HTTP_BODY_MAX);
    enum status status = STATUS_FAILED;
    if (loop->reader == NULL || !buffer_reserve(&loop->body, CLAIM_BODY_MAX)) {
        error_set(error, STATUS_FAILED, "no memory for a loop");
    } else if (live_loop_open(loop, error) != STATUS_OK) {
        status = STATUS_FAILED;
    } else if (api->only_watched) {
        status = STATUS_OK;
    } else {
        status = desk_open(&loop->desk,
                           &(struct desk_options){.service = api->service,
                                                  .loop = http_loop_uv(http),
                                                  .answer = claims_answer,
                                                  .wake = wake_desk,
                                                  .context = loop},
                           error);
    }
    if (status != STATUS_OK) {
        loop_free(loop);
        return status;
    }
    uv_timer_init(http_loop_uv(http), &loop->timer);
    pthread_mutex_lock(&api->loops_lock);
    api->loops[index] = loop;
    pthread_mutex_unlock(&api->loops_lock);
    *loop_context = loop;
    return STATUS_OK;
}

/* The loop's memory stays until api_close(): a pool thread may still come back to it. */
static void loop_close(void *context)
{
    struct api_loop *loop = context;
    live_loop_close(loop);
    status_loop_close(loop);
    winners_loop_close(loop);
    ranking_loop_close(loop);
    metrics_page_loop_close(loop->api->metrics, loop);
    call_abandon_all(loop);
    pthread_mutex_lock(&loop->api->loops_lock);
    desk_close(loop->desk);
    loop->desk = NULL;
    pthread_mutex_unlock(&loop->api->loops_lock);
}

static void on_tick(void *context, int64_t wall_ms)
{
    struct api_loop *loop = context;
    loop->tick_ns = clock_monotonic_ns();
    if (loop->desk == NULL)
        return;
    desk_tick(loop->desk, wall_ms);
    call_hand_over(loop);
    if (loop->timer_runs) {
        int64_t now_ms = loop->tick_ns / 1000000;
        if (now_ms < loop->due_ms)
            return;
        loop->due_ms = now_ms + TICK_MS;
        status_tick(loop, now_ms);
        live_tick(loop, now_ms);
        winners_tick(loop);
        if (desk_waiting(loop->desk) == 0 && loop->parked == NULL && loop->downloads == NULL &&
            !live_wants_ticks(loop->live)) {
            uv_timer_stop(&loop->timer);
            loop->timer_runs = false;
        }
    } else if (desk_waiting(loop->desk) > 0 || live_wants_ticks(loop->live)) {
        api_loop_keep_ticking(loop);
    }
}

/* --- requests --- */

/* The pattern only: a path itself may hold a coupon's code. */
static void log_request(const struct ask *ask)
{
    const char *pattern = ask->match.first != NULL ? ask->match.first->pattern : "";
    log_event(LOG_DEBUG, "request",
              LOG_FIELD("request_id", LOG_SPAN(reply_request_id(ask->exchange))),
              LOG_FIELD("method", LOG_TEXT(route_method_name(ask->request->method))),
              LOG_FIELD("route", LOG_TEXT(pattern)));
}

/* A claim that never comes to its handler counts, too. */
static void count_refusal(const struct ask *ask, enum claim_result result)
{
    if (ask->route == ROUTE_OF_CLAIMS)
        claims_count_refused(ask->loop, result);
}

static bool within_limit(struct ask *ask)
{
    struct api_loop *loop = ask->loop;
    struct http_exchange *exchange = ask->exchange;
    char bytes[RATE_LIMIT_ADDRESS_SIZE];
    struct address client = ask_address(ask);
    struct span address = rate_limit_address(&client, bytes);
    struct rate_limit limit =
        rate_limiter_take(loop->api->addresses, address, clock_monotonic_ns());
    reply_note_limit(exchange, &limit);
    if (limit.allowed)
        return true;
    count_refusal(ask, CLAIM_RATE_LIMITED);
    reply_rate_limited(loop, exchange, &limit);
    return false;
}

/* Nothing is changed for a page of an origin that nobody has allowed. */
static bool origin_may_change(struct api_loop *loop, struct http_exchange *exchange,
                              const struct http_request *request)
{
    if (request->origin.bytes == NULL || http_exchange_notes(exchange)->cors != 0)
        return true;
    const char *refusal = auth_may_change_from(api_auth(loop->api), request->origin, request->host);
    if (refusal != NULL)
        reply_problem_about(loop, exchange, PROBLEM_UNAUTHORIZED, refusal, NULL);
    return refusal == NULL;
}

/* Before any work is done for it: whether what is not sent yet leaves room for a large answer. Who
 * has an admin token is not kept out by strangers. */
static bool has_room(struct ask *ask)
{
    if ((ask->route->flags & ROUTE_LARGE) == 0 || !http_server_is_full(ask->loop->api->server))
        return true;
    if (!ask_identify(ask))
        return false;
    if (ask->caller.kind == CALLER_ADMIN)
        return true;
    reply_problem(ask->loop, ask->exchange, PROBLEM_UNAVAILABLE);
    return false;
}

static void dispatch(struct ask *ask)
{
    const struct http_request *request = ask->request;
    const struct route *first = ask->match.first;
    char allow[ROUTE_ALLOW_SIZE];
    if (ask->match.is_malformed) {
        ask_refuse(ask, "The path's percent-encoding is broken.", NULL);
    } else if (first == NULL ||
               (ask->loop->api->only_watched && (first->flags & ROUTE_WATCH) == 0)) {
        reply_problem(ask->loop, ask->exchange, PROBLEM_NOT_FOUND);
    } else if (request->method == HTTP_METHOD_OPTIONS) {
        reply_options(ask->loop, ask->exchange, request, route_allow(first, allow));
    } else if (ask->route == NULL) {
        reply_begin(ask->loop, ask->exchange, problem_status(PROBLEM_METHOD_NOT_ALLOWED),
                    SPAN(PROBLEM_CONTENT_TYPE));
        http_answer_header(ask->exchange, SPAN("Allow"), route_allow(first, allow));
        http_answer_end(ask->exchange, problem_body(PROBLEM_METHOD_NOT_ALLOWED));
    } else if (ask->route->method == HTTP_METHOD_GET
                   ? has_room(ask)
                   : origin_may_change(ask->loop, ask->exchange, request)) {
        if (ask_keeps_rules(ask))
            ask->route->handler(ask);
        else
            count_refusal(ask, CLAIM_INVALID_REQUEST);
    }
}

/* What crowds ask for, without a look at the table of paths. */
static bool handle_crowd(struct api_loop *loop, struct http_exchange *exchange,
                         const struct http_request *request)
{
    int64_t policy_id;
    if (request->method == HTTP_METHOD_POST && request->origin.bytes == NULL &&
        router_match_claims(request->path, &policy_id)) {
        claims_post(loop, exchange, request, policy_id);
        return true;
    }
    return request->method == HTTP_METHOD_GET && span_equal(request->path, RANKING_PATH) &&
           ranking_send_again(loop, exchange, request->query);
}

/* Without an admin token: whether the request comes from this machine. Hosts repeat, so the one
 * that was found good is compared only. */
static bool is_local(struct api_loop *loop, struct http_exchange *exchange,
                     const struct http_request *request)
{
    if (!request->is_forwarded && loop->local_host.length > 0 &&
        span_equal(request->host, loop->local_host))
        return true;
    const char *refusal = auth_may_ask(api_auth(loop->api), request);
    if (refusal != NULL) {
        /* That it lives is no secret. */
        if (span_equal(request->path, SPAN("/healthz")))
            return true;
        reply_problem_about(loop, exchange, PROBLEM_UNAUTHORIZED, refusal, NULL);
        return false;
    }
    if (request->host.length <= LOCAL_HOST_MAX) {
        memcpy(loop->local_host_bytes, request->host.bytes, request->host.length);
        loop->local_host = (struct span){loop->local_host_bytes, request->host.length};
    }
    return true;
}

/* Behind a trusted proxy a client has as many requests under way as it may have connections. */
static bool count_client(struct api_loop *loop, struct http_exchange *exchange,
                         const struct http_request *request)
{
    struct address peer = *http_exchange_peer(exchange);
    struct address client = proxies_client(&loop->api->proxies, peer, request);
    if (memcmp(&client, &peer, sizeof(peer)) == 0 || http_exchange_count_client(exchange, &client))
        return true;
    reply_problem(loop, exchange, PROBLEM_UNAVAILABLE);
    return false;
}

static void handle(void *context, struct http_exchange *exchange,
                   const struct http_request *request)
{
    struct api_loop *loop = context;
    reply_prepare(loop, exchange, request);
    if (loop->api->proxies.count > 0 && request->is_forwarded &&
        !count_client(loop, exchange, request))
        return;
    if (api_auth(loop->api)->local_only && !is_local(loop, exchange, request))
        return;
    if (loop->api->addresses == NULL && !loop->api->logs_requests && !loop->api->only_watched &&
        handle_crowd(loop, exchange, request))
        return;
    struct ask ask = {.loop = loop, .exchange = exchange, .request = request};
    router_match(request->path, &ask.match);
    if (ask.match.first != NULL)
        ask.route = route_for(ask.match.first, request->method);
    if (loop->api->logs_requests)
        log_request(&ask);
    /* Monitoring is never limited. */
    bool is_limited = ask.match.first == NULL || (ask.match.first->flags & ROUTE_WATCH) == 0;
    if (loop->api->addresses == NULL || !is_limited || within_limit(&ask))
        dispatch(&ask);
}

/* Refusals of HTTP itself. */
static void refuse(void *context, struct http_exchange *exchange, enum http_refusal refusal,
                   const char *detail)
{
    static const enum problem problems[] = {
        [HTTP_REFUSE_BAD_REQUEST] = PROBLEM_INVALID_REQUEST,
        [HTTP_REFUSE_TIMEOUT] = PROBLEM_TIMEOUT,
        [HTTP_REFUSE_TOO_LARGE] = PROBLEM_TOO_LARGE,
        [HTTP_REFUSE_URI_TOO_LONG] = PROBLEM_URI_TOO_LONG,
        [HTTP_REFUSE_HEADERS_TOO_LARGE] = PROBLEM_HEADERS_TOO_LARGE,
        [HTTP_REFUSE_NOT_IMPLEMENTED] = PROBLEM_NOT_IMPLEMENTED,
        [HTTP_REFUSE_OVERLOADED] = PROBLEM_UNAVAILABLE,
        [HTTP_REFUSE_VERSION] = PROBLEM_VERSION_NOT_SUPPORTED,
    };
    struct api_loop *loop = context;
    reply_prepare(loop, exchange, &(struct http_request){.method = HTTP_METHOD_OTHER});
    reply_problem_about(loop, exchange, problems[refusal], detail, NULL);
}

static size_t body_max(void *context, enum http_method method, struct span path)
{
    struct route_match match;
    int64_t policy_id;
    if (router_match_claims(path, &policy_id))
        return ROUTE_OF_CLAIMS->body_max;
    router_match(path, &match);
    const struct route *route = match.first == NULL ? NULL : route_for(match.first, method);
    return route != NULL ? route->body_max : HTTP_BODY_MAX;
}

struct http_callbacks api_callbacks(void)
{
    return (struct http_callbacks){
        .handle = handle,
        .refuse = refuse,
        .body_max = body_max,
        .on_tick = on_tick,
        .loop_open = loop_open,
        .loop_close = loop_close,
    };
}
