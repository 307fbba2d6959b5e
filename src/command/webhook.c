/* webhook.c: `dibs webhook …`: how it does, a test, trying at once, and telling once more. */
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "command/exchange.h"

/* What the server itself may take: its webhook_timeout; reading every coupon. */
#define TEST_WAIT_MS      300000
#define REDELIVER_WAIT_MS 600000

static void show_state(yyjson_val *root)
{
    static const struct table_column facts[] = {
        FACT("url", "url"),       FACT("state", "state"),     FACT("since", "failing_since"),
        FACT("reason", "reason"), FACT("waiting", "waiting"), FACT("oldest", "oldest_at"),
    };
    exchange_print_facts(root, facts, COUNT_OF(facts));
}

int command_webhook_show(const struct command_call *call)
{
    return exchange_once(call, EXCHANGE_ADMIN,
                         &(struct client_request){.method = "GET", .path = "/v1/webhook"},
                         show_state);
}

int command_webhook_enable(const struct command_call *call)
{
    return exchange_once(call, EXCHANGE_ADMIN,
                         &(struct client_request){.method = "POST", .path = "/v1/webhook/enable"},
                         show_state);
}

/* Fails when the test does not arrive. */
int command_webhook_test(const struct command_call *call)
{
    static const struct table_column facts[] = {
        FACT("delivered", "delivered"), FACT("status", "status"), FACT("took ms", "took_ms"),
        FACT("reason", "reason")};
    struct exchange exchange;
    int code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);

    if (code != COMMAND_FINE)
        return code;
    code = COMMAND_FAILED;
    if (exchange_ask(&exchange, &(struct client_request){.method = "POST",
                                                         .path = "/v1/webhook/test",
                                                         .extra_timeout_ms = TEST_WAIT_MS})) {
        if (exchange.answer.status != 200)
            code = exchange_refused(&exchange);
        else if (exchange.json)
            fwrite(exchange.answer.body.bytes, 1, exchange.answer.body.length, stdout);
        else
            exchange_print_facts(exchange.root, facts, COUNT_OF(facts));
        if (exchange.answer.status == 200 &&
            yyjson_is_true(yyjson_obj_get(exchange.root, "delivered")))
            code = COMMAND_FINE;
    }
    exchange_end(&exchange);
    return code;
}

static void show_redelivered(yyjson_val *root)
{
    static const struct table_column facts[] = {FACT("events", "events")};
    exchange_print_facts(root, facts, COUNT_OF(facts));
}

int command_webhook_redeliver(const struct command_call *call)
{
    const char *since = command_option(call, "since");
    const char *policy = command_option(call, "policy");
    char bytes[256];
    struct buffer body = {.bytes = bytes, .capacity = sizeof(bytes), .length_max = sizeof(bytes)};
    int64_t since_ms;

    if (since == NULL)
        return command_usage(call, "--since is missing, as in --since 2026-11-15T12:00:00Z");
    if (!clock_parse_rfc3339(span_of(since), &since_ms))
        return command_usage(call, "--since: \"%s\" is no time, as in 2026-11-15T12:00:00Z", since);
    if (policy != NULL && exchange_check_policy(call, policy) != COMMAND_FINE)
        return COMMAND_USAGE;
    json_begin(&body, '{');
    json_put(&body, "since", since);
    if (policy != NULL)
        json_put(&body, "policy_id", (int64_t)strtoll(policy, NULL, 10));
    buffer_append_literal(&body, "}");
    return exchange_once(call, EXCHANGE_ADMIN,
                         &(struct client_request){.method = "POST",
                                                  .path = "/v1/webhook/redeliver",
                                                  .body = buffer_span(&body),
                                                  .extra_timeout_ms = REDELIVER_WAIT_MS},
                         show_redelivered);
}
