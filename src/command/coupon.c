/* coupon.c: `dibs coupon …`: one coupon, by its id or its code: looked at, cancelled, redeemed,
 * given anew. */
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/json.h"
#include "command/exchange.h"

#define BODY_MAX (4 * 1024)

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

int command_coupon_reissue(const struct command_call *call)
{
    return ask_about(call, "POST", "/reissue", SPAN("{}"));
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
