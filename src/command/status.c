/* status.c: `dibs status`: how the server and its policies stand, or one policy, or one user's
 * claim.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command/exchange.h"
#include "command/policy.h"

#define WAIT_MAX_S 60

/* --- the server --- */

static void print_parts(struct exchange *exchange, bool ready)
{
    static const struct table_column columns[] = {
        {NULL, TABLE_LEFT}, {NULL, TABLE_LEFT}, {NULL, TABLE_LEFT}, {NULL, TABLE_LEFT}};
    char text[EXCHANGE_TEXT_SIZE];
    struct table table;
    table_init(&table, columns, 4);
    table_add(&table, "server");
    table_add(&table, ready ? "ready" : "not ready");
    table_add(&table, "");
    table_add(&table, exchange->client.url);
    yyjson_val *part;
    yyjson_arr_iter parts;
    yyjson_arr_iter_init(yyjson_obj_get(exchange->root, "parts"), &parts);
    while ((part = yyjson_arr_iter_next(&parts)) != NULL) {
        table_add(&table, exchange_text(part, "name", text));
        table_add(&table, yyjson_is_true(yyjson_obj_get(part, "ready")) ? "ready" : "not ready");
        table_add(&table, exchange_text(part, "kind", text));
        table_add(&table, exchange_text(part, "detail", text));
    }
    exchange_print_table(&table);
}

/* {"readiness":…,"policies":…}: both answers of the server as they are. */
static int print_server_json(struct exchange *exchange)
{
    static const struct {
        const char *name;
        const char *path;
    } parts[] = {{"readiness", "/readyz"}, {"policies", "/v1/policies?limit=1000"}};
    struct buffer out;
    int code = COMMAND_FINE;
    buffer_init(&out, 2 * CLIENT_ANSWER_MAX);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (!exchange_ask(exchange,
                          &(struct client_request){.method = "GET", .path = parts[i].path})) {
            buffer_release(&out);
            return COMMAND_FAILED;
        }
        if (exchange->answer.status != 200) {
            code = COMMAND_FAILED;
        }
        buffer_printf(&out, "%s\"%s\":", i == 0 ? "{" : ",", parts[i].name);
        buffer_append(&out, exchange->answer.body.bytes, exchange->answer.body.length);
    }
    buffer_append_text(&out, "}\n");
    fwrite(out.bytes, 1, out.length, stdout);
    buffer_release(&out);
    return code;
}

static int show_server(struct exchange *exchange)
{
    if (exchange->json) {
        return print_server_json(exchange);
    }
    if (!exchange_ask(exchange, &(struct client_request){.method = "GET", .path = "/readyz"})) {
        return COMMAND_FAILED;
    }
    /* Its parts are told to admins only; who is none hears that of the policies. */
    if (yyjson_obj_get(exchange->root, "ready") == NULL) {
        return exchange_refused(exchange);
    }
    bool ready = yyjson_is_true(yyjson_obj_get(exchange->root, "ready"));
    print_parts(exchange, ready);
    int code = policy_print_all(exchange, "\n");
    return ready ? code : COMMAND_FAILED;
}

/* --- one claim --- */

static const struct exchange_member status_members[] = {
    {"state", "state"},
    {"coupon_state", "coupon state"},
    {"reason", "reason"},
    {"coupon_id", "coupon"},
    {"merged_into", "merged into"},
    {"code", "code"},
    {"user", "user"},
    {"seq", "seq"},
    {"nth", "nth"},
    {"ahead", "ahead"},
    {"requested_at", "requested at"},
    {"issued_at", "issued at"},
    {"expires_at", "expires at"},
    {NULL, NULL},
};

static void print_claims(yyjson_val *claims)
{
    static const struct table_column columns[] = {
        {"NTH", TABLE_RIGHT},         {"COUPON", TABLE_LEFT},       {"STATE", TABLE_LEFT},
        {"COUPON STATE", TABLE_LEFT}, {"REQUESTED AT", TABLE_LEFT},
    };
    static const char *const members[] = {"nth", "coupon_id", "state", "coupon_state",
                                          "requested_at"};
    char text[EXCHANGE_TEXT_SIZE];
    struct table table;
    table_init(&table, columns, sizeof(columns) / sizeof(columns[0]));
    yyjson_val *claim;
    yyjson_arr_iter items;
    yyjson_arr_iter_init(claims, &items);
    while ((claim = yyjson_arr_iter_next(&items)) != NULL) {
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
            table_add(&table, exchange_text(claim, members[i], text));
        }
    }
    exchange_print_table(&table);
}

static int show_claim(struct exchange *exchange, const char *policy, const char *user,
                      const char *wait_s)
{
    char path[160];
    snprintf(path, sizeof(path), "/v1/policies/%s/claims/%s%s%s", policy, user,
             wait_s != NULL ? "?wait=" : "", wait_s != NULL ? wait_s : "");
    const struct client_request request = {
        .method = "GET",
        .path = path,
        .extra_timeout_ms = wait_s != NULL ? strtol(wait_s, NULL, 10) * 1000 : 0,
    };
    int code = exchange_send(exchange, &request);
    if (code != COMMAND_FINE || exchange->json) {
        return code;
    }
    struct table facts;
    table_init(&facts, exchange_fact_columns, 2);
    exchange_add_members(&facts, exchange->root, status_members);
    exchange_print_table(&facts);
    yyjson_val *claims = yyjson_obj_get(exchange->root, "claims");
    if (yyjson_arr_size(claims) > 1) {
        fputc('\n', stdout);
        print_claims(claims);
    }
    return COMMAND_FINE;
}

static int check_claim_words(const struct command_call *call, const char *wait_s)
{
    if (wait_s != NULL && call->word_count < 2) {
        return command_usage(call, "--wait: is for the claim of a POLICY and USER");
    }
    if (wait_s != NULL &&
        (wait_s[0] == '\0' || strlen(wait_s) > 2 || wait_s[strspn(wait_s, "0123456789")] != '\0' ||
         strtol(wait_s, NULL, 10) > WAIT_MAX_S)) {
        return command_usage(call, "--wait: \"%s\" is not a number of seconds from 0 to %d", wait_s,
                             WAIT_MAX_S);
    }
    if (call->word_count == 0) {
        return COMMAND_FINE;
    }
    int code = exchange_check_policy(call, call->words[0]);
    return code != COMMAND_FINE || call->word_count == 1
               ? code
               : exchange_check_user(call, call->words[1]);
}

int command_status(const struct command_call *call)
{
    const char *wait_s = command_option(call, "wait");
    int code = check_claim_words(call, wait_s);
    struct exchange exchange;
    if (code == COMMAND_FINE && call->word_count == 1) {
        return command_policy_show(call);
    }
    if (code == COMMAND_FINE) {
        code = exchange_begin(&exchange, call,
                              call->word_count > 0 ? EXCHANGE_SERVICE : EXCHANGE_ADMIN);
    }
    if (code != COMMAND_FINE) {
        return code;
    }
    code = call->word_count > 0 ? show_claim(&exchange, call->words[0], call->words[1], wait_s)
                                : show_server(&exchange);
    exchange_end(&exchange);
    return code;
}
