/* coupon.c: `dibs coupon …`: one coupon, by its id or its code: looked at, cancelled, redeemed,
 * given anew. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/array.h"
#include "base/json.h"
#include "command/exchange.h"

#define BODY_MAX (4 * 1024)

/* A cancelled unit is back in stock within a second; a reissue waits for it so long. */
#define REISSUE_TRIES   20
#define REISSUE_WAIT_MS 250

static void show_coupon(yyjson_val *coupon)
{
    static const struct table_column facts[] = {
        FACT("coupon", "coupon_id"),
        FACT("code", "code"),
        FACT("user", "user"),
        FACT("state", "state"),
        FACT("nth", "nth"),
        FACT("issued at", "issued_at"),
        FACT("expires at", "expires_at"),
        FACT("redeemed at", "redeemed_at"),
        FACT("order", "order_id"),
        FACT("cancelled at", "cancelled_at"),
        FACT("reason", "reason"),
    };
    exchange_print_facts(coupon, facts, COUNT_OF(facts));
}

/* "42-17", or that and the letters and digits of a code. */
static int check_coupon(const struct command_call *call)
{
    const char *word = call->words[0];
    size_t policy = strspn(word, "0123456789");
    size_t seq = word[policy] == '-' ? strspn(word + policy + 1, "0123456789") : 0;
    const char *rest = word + policy + 1 + seq;
    bool is_id = policy > 0 && policy <= 16 && seq > 0 && seq <= 16 && strlen(word) <= 64;
    if (!is_id ||
        (rest[0] != '\0' && (rest[0] != '-' || rest[1] == '\0' ||
                             strspn(rest + 1, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                              "abcdefghijklmnopqrstuvwxyz") != strlen(rest + 1))))
        return command_usage(call, "\"%s\" is not a coupon's id, as in 42-17, nor a code", word);
    return COMMAND_FINE;
}

static int ask_about(const struct command_call *call, const char *method, const char *end,
                     struct span body)
{
    char path[96];
    int code = check_coupon(call);
    if (code != COMMAND_FINE)
        return code;
    snprintf(path, sizeof(path), "/v1/coupons/%s%s", call->words[0], end);
    return exchange_once(call, EXCHANGE_ADMIN,
                         &(struct client_request){.method = method, .path = path, .body = body},
                         show_coupon);
}

int command_coupon_show(const struct command_call *call)
{
    return ask_about(call, "GET", "", SPAN(""));
}

int command_coupon_cancel(const struct command_call *call)
{
    return ask_about(call, "POST", "/cancel", SPAN("{}"));
}

int command_coupon_redeem(const struct command_call *call)
{
    const char *order = command_option(call, "order");
    struct buffer body;
    int code = order != NULL ? exchange_check_id(call, "an order", order) : COMMAND_FINE;
    if (code != COMMAND_FINE)
        return code;
    buffer_init(&body, BODY_MAX);
    json_begin(&body, '{');
    if (order != NULL)
        json_put(&body, "order_id", order);
    buffer_append_literal(&body, "}");
    code = ask_about(call, "POST", "/redeem", buffer_span(&body));
    buffer_release(&body);
    return code;
}

/* --- reissuing --- */

static int claim_anew(struct exchange *exchange, int64_t policy_id, const char *old,
                      const char *user)
{
    char path[64];
    char key[80];
    struct buffer body;
    bool is_there = false;
    snprintf(path, sizeof(path), "/v1/policies/%" PRId64 "/claims", policy_id);
    /* Asked again, it is the same wish: the coupon is given anew once. */
    snprintf(key, sizeof(key), "reissue-%s", old);
    buffer_init(&body, BODY_MAX);
    json_begin(&body, '{');
    json_put(&body, "user", user);
    buffer_append_literal(&body, "}");
    const struct client_request request = {
        .method = "POST", .path = path, .body = buffer_span(&body), .idempotency_key = key};
    for (int i = 0; i < REISSUE_TRIES; i++) {
        is_there = exchange_ask(exchange, &request);
        if (!is_there || (exchange->answer.status != 409 && exchange->answer.status != 503))
            break;
        nanosleep(&(struct timespec){.tv_nsec = REISSUE_WAIT_MS * 1000000}, NULL);
    }
    buffer_release(&body);
    if (!is_there)
        return COMMAND_FAILED;
    return exchange_was_refused(exchange) ? exchange_refused(exchange) : COMMAND_FINE;
}

/* Before anything is cancelled: whether a claim for its user would be heard. */
static int check_reissue(struct exchange *exchange)
{
    const struct client_request ask = {.method = "GET", .path = "/v1/session"};
    if (!exchange_ask(exchange, &ask))
        return COMMAND_FAILED;
    return yyjson_is_true(yyjson_obj_get(exchange->root, "user_tokens"))
               ? command_fail(exchange->call,
                              "users claim with tokens of their own here: cancel the coupon, and "
                              "let its user press again")
               : COMMAND_FINE;
}

/* Cancels it and claims for its user: another seq, another code. */
static int reissue(struct exchange *exchange)
{
    char path[96];
    char old[EXCHANGE_TEXT_SIZE];
    char user[EXCHANGE_TEXT_SIZE];
    int code = check_reissue(exchange);
    if (code != COMMAND_FINE)
        return code;
    snprintf(path, sizeof(path), "/v1/coupons/%s/cancel", exchange->call->words[0]);
    if (!exchange_ask(exchange,
                      &(struct client_request){.method = "POST", .path = path, .body = SPAN("{}")}))
        return COMMAND_FAILED;
    if (exchange_was_refused(exchange))
        return exchange_refused(exchange);
    int64_t policy_id = yyjson_get_sint(yyjson_obj_get(exchange->root, "policy_id"));
    exchange_text(exchange->root, "coupon_id", old);
    exchange_text(exchange->root, "user", user);
    code = claim_anew(exchange, policy_id, old, user);
    if (code != COMMAND_FINE)
        fprintf(stderr,
                "The coupon %s is cancelled, and nothing has taken its place yet: run this "
                "again.\n",
                old);
    return code;
}

static void show_claim(yyjson_val *claim)
{
    static const struct table_column facts[] = {FACT("coupon", "coupon_id"), FACT("code", "code"),
                                                FACT("user", "user"), FACT("result", "result")};
    exchange_print_facts(claim, facts, COUNT_OF(facts));
}

int command_coupon_reissue(const struct command_call *call)
{
    struct exchange exchange;
    int code = check_coupon(call);
    if (code == COMMAND_FINE)
        code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);
    if (code != COMMAND_FINE)
        return code;
    code = reissue(&exchange);
    if (code == COMMAND_FINE)
        exchange_show(&exchange, show_claim);
    exchange_end(&exchange);
    return code;
}
