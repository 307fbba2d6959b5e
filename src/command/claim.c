/* claim.c: `dibs claim POLICY USER`: asks for one coupon. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "command/exchange.h"

#define KEY_LENGTH_MAX 128

static const struct exchange_member claim_members[] = {
    {"result", "result"}, {"coupon_id", "coupon"},
    {"code", "code"},     {"seq", "seq"},
    {"nth", "nth"},       {"user", "user"},
    {"state", "state"},   {"coupon_state", "coupon state"},
    {NULL, NULL},
};

static int check_key(const struct command_call *call, const char *key)
{
    bool visible = true;
    for (const char *at = key; *at != '\0'; at++) {
        visible = visible && *at > ' ' && *at <= '~';
    }
    if (!visible || key[0] == '\0' || strlen(key) > KEY_LENGTH_MAX) {
        return command_usage(call, "--key: must be 1 to %d visible ASCII characters",
                             KEY_LENGTH_MAX);
    }
    return COMMAND_FINE;
}

int command_claim(const struct command_call *call)
{
    const char *key = command_option(call, "key");
    int code = exchange_check_policy(call, call->words[0]);
    if (code == COMMAND_FINE) {
        code = exchange_check_user(call, call->words[1]);
    }
    if (code == COMMAND_FINE && key != NULL) {
        code = check_key(call, key);
    }
    struct exchange exchange;
    if (code == COMMAND_FINE) {
        code = exchange_begin(&exchange, call, EXCHANGE_SERVICE);
    }
    if (code != COMMAND_FINE) {
        return code;
    }
    char path[64];
    char body[128];
    snprintf(path, sizeof(path), "/v1/policies/%s/claims", call->words[0]);
    snprintf(body, sizeof(body), "{\"user\":\"%s\"}", call->words[1]);
    code = exchange_send(&exchange, &(struct client_request){.method = "POST",
                                                             .path = path,
                                                             .body = span_of(body),
                                                             .idempotency_key = key});
    if (code == COMMAND_FINE && !exchange.json) {
        struct table facts;
        table_init(&facts, exchange_fact_columns, 2);
        exchange_add_members(&facts, exchange.root, claim_members);
        exchange_print_table(&facts);
    }
    exchange_end(&exchange);
    return code;
}
