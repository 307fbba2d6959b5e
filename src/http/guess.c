/* guess.c: counts wrong codes and tokens, and makes them slow. */
#include "http/guess.h"

#include "base/clock.h"
#include "base/log.h"
#include "http/ask.h"
#include "http/reply.h"

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
        atomic_compare_exchange_strong(&guesses->alarm_ns, &raised_ns, now_ns)) {
        log_guess(ask, LOG_ERROR, "guessing");
    }
    http_answer_close(ask->exchange);
}

static void refuse(const struct ask *ask, const struct rate_limit *limit)
{
    reply_note_limit(ask->exchange, limit);
    reply_rate_limited(ask->loop, ask->exchange, limit);
}

bool guess_may_try_code(struct ask *ask)
{
    struct api *api = ask->loop->api;
    if (!api->auth.has_tokens) {
        return true;
    }
    if (!ask_identify(ask)) {
        return false;
    }
    if (ask->caller.kind == CALLER_ADMIN || ask->caller.kind == CALLER_SERVICE) {
        return true;
    }
    char bytes[RATE_LIMIT_ADDRESS_SIZE];
    struct address client = ask_address(ask);
    int64_t now_ns = clock_monotonic_ns();
    struct rate_limit own =
        rate_limiter_look(api->guesses.addresses, rate_limit_address(&client, bytes), now_ns);
    struct rate_limit all = rate_limiter_look(api->guesses.all, everybody, now_ns);
    if (own.allowed && (all.allowed || own.remaining == own.limit)) {
        return true;
    }
    throttle(ask, now_ns);
    refuse(ask, own.allowed ? &all : &own);
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
    if (limit.allowed) {
        limit = rate_limiter_take(guesses->all, everybody, now_ns);
    }
    if (limit.allowed) {
        log_guess(ask, LOG_WARN, events[kind]);
    } else {
        throttle(ask, now_ns);
    }
    return limit;
}

bool guess_was_wrong(const struct ask *ask, enum guess_kind kind)
{
    struct rate_limit limit = count_wrong(ask, kind);
    if (!limit.allowed) {
        refuse(ask, &limit);
    }
    return limit.allowed;
}

void guess_note_wrong(const struct ask *ask, enum guess_kind kind)
{
    (void)count_wrong(ask, kind);
}
