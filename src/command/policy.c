/* policy.c: `dibs policy …`, `dibs claim` and `dibs status`: what is handed out, one coupon of it,
 * and how it stands. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/policy.h"
#include "base/url.h"
#include "command/exchange.h"

#define BODY_MAX       (16 * 1024)
#define NONE           "none"
#define KEY_LENGTH_MAX 128
#define WAIT_MAX_S     60

/* --- building bodies --- */

static void begin_member(struct buffer *body, const char *name)
{
    buffer_printf(body, "%s\"%s\":", body->length > 1 ? "," : "", name);
}

/* --total 1000 as "total":1000; the ranges are the server's to judge. */
static int add_number(struct buffer *body, const struct command_call *call, const char *flag,
                      const char *member)
{
    int64_t number = 0;
    int code = command_number(call, flag, 0, POLICY_ID_MAX, &number);
    if (code != COMMAND_FINE || command_option(call, flag) == NULL)
        return code;
    begin_member(body, member);
    buffer_append_i64(body, number);
    return COMMAND_FINE;
}

/* --opens-at TIME; "none" takes the time away. */
static int add_time(struct buffer *body, const struct command_call *call, const char *flag,
                    const char *member)
{
    int64_t wall_ms = 0;
    const char *text = command_option(call, flag);
    if (text == NULL)
        return COMMAND_FINE;
    if (strcmp(text, NONE) == 0) {
        begin_member(body, member);
        buffer_append_text(body, "null");
        return COMMAND_FINE;
    }
    if (!clock_parse_rfc3339(span_of(text), &wall_ms)) {
        return command_usage(call,
                             "--%s: \"%s\" is not a time with its offset, as in "
                             "2026-11-15T12:00:00+09:00, nor \"" NONE "\"",
                             flag, text);
    }
    begin_member(body, member);
    json_append_text(body, span_of(text));
    return COMMAND_FINE;
}

/* --name TEXT, --currency KRW; "none" takes the currency away. */
static int add_text(struct buffer *body, const struct command_call *call, const char *flag,
                    const struct policy_column_rule *rule)
{
    const char *text = command_option(call, flag);
    if (text == NULL)
        return COMMAND_FINE;
    begin_member(body, rule->name);
    if (rule->kind == POLICY_CURRENCY && strcmp(text, NONE) == 0)
        buffer_append_text(body, "null");
    else
        json_append_text(body, span_of(text));
    return COMMAND_FINE;
}

/* "10%" is a percentage, "5000" a fixed amount. */
static int add_discount(struct buffer *body, const struct command_call *call)
{
    const char *text = command_option(call, "discount");
    if (text == NULL)
        return COMMAND_FINE;
    size_t digits = strspn(text, "0123456789");
    bool percent = strcmp(text + digits, "%") == 0;
    if (digits == 0 || digits > 15 || (!percent && text[digits] != '\0')) {
        return command_usage(call,
                             "--discount: \"%s\" is neither a percentage, as in 10%%, nor an "
                             "amount, as in 5000",
                             text);
    }
    begin_member(body, "discount");
    buffer_printf(body, "{\"type\":\"%s\",\"value\":%" PRId64 "}", percent ? "percent" : "fixed",
                  (int64_t)strtoll(text, NULL, 10));
    return COMMAND_FINE;
}

/* A column as its flag says it: --per-user-limit 2 as "per_user_limit":2. */
static int add_column(struct buffer *body, const struct command_call *call,
                      enum policy_column column)
{
    const struct policy_column_rule *rule = &policy_columns[column];
    char flag[32];
    snprintf(flag, sizeof(flag), "%s", rule->name);
    for (char *at = flag; (at = strchr(at, '_')) != NULL;)
        *at = '-';
    switch (rule->kind) {
    case POLICY_DISCOUNT:
        return add_discount(body, call);
    case POLICY_TIME_OR_NONE:
        return add_time(body, call, flag, rule->name);
    case POLICY_TEXT:
    case POLICY_CURRENCY:
        return add_text(body, call, flag, rule);
    default:
        return add_number(body, call, flag, rule->name);
    }
}

static int write_new_policy(struct buffer *body, const struct command_call *call)
{
    static const char *const required[] = {"name", "discount", "total"};
    for (size_t i = 0; i < COUNT_OF(required); i++)
        if (command_option(call, required[i]) == NULL)
            return command_usage(call, "--%s is missing", required[i]);
    int code = COMMAND_FINE;
    buffer_append_text(body, "{");
    for (int i = 0; i < POLICY_COLUMN_COUNT && code == COMMAND_FINE; i++)
        if (policy_columns[i].given != POLICY_NOT_GIVEN && i != POLICY_COLUMN_discount_value)
            code = add_column(body, call, (enum policy_column)i);
    buffer_append_text(body, "}");
    return code;
}

/* --- showing --- */

static const char *discount_text(yyjson_val *policy, char text[EXCHANGE_TEXT_SIZE])
{
    yyjson_val *discount = yyjson_obj_get(policy, "discount");
    bool percent = yyjson_equals_str(yyjson_obj_get(discount, "type"), "percent");
    int64_t value = yyjson_get_sint(yyjson_obj_get(discount, "value"));
    const char *code = yyjson_get_str(yyjson_obj_get(policy, "currency"));
    char amount[CURRENCY_AMOUNT_SIZE];
    if (percent)
        snprintf(text, EXCHANGE_TEXT_SIZE, "%" PRId64 "%%", value);
    else
        snprintf(text, EXCHANGE_TEXT_SIZE, "%s",
                 currency_amount(currency_of(span_of(code != NULL ? code : "")), value, amount));
    return text;
}

static void show_policy(yyjson_val *policy)
{
    static const struct table_column facts[] = {
        FACT("id", "id"),
        FACT("name", "name"),
        FACT("state", "state"),
        COLUMN_BY("discount", LEFT, discount_text),
        FACT("total", "total"),
        FACT("remaining", "remaining"),
        FACT("pending", "pending"),
        FACT("issued", "issued"),
        FACT("per user limit", "per_user_limit"),
        FACT("reserve", "reserve"),
        FACT("opens at", "opens_at"),
        FACT("closes at", "closes_at"),
        FACT("coupon valid days", "coupon_valid_days"),
        FACT("coupon expires at", "coupon_expires_at"),
        FACT("created at", "created_at"),
        FACT("closed at", "closed_at"),
    };
    exchange_print_facts(policy, facts, COUNT_OF(facts));
}

static const struct table_column list_columns[] = {
    COLUMN("ID", RIGHT, "id"),
    COLUMN("STATE", LEFT, "state"),
    COLUMN("TOTAL", RIGHT, "total"),
    COLUMN("REMAINING", RIGHT, "remaining"),
    COLUMN("PENDING", RIGHT, "pending"),
    COLUMN("ISSUED", RIGHT, "issued"),
    COLUMN_BY("DISCOUNT", RIGHT, discount_text),
    COLUMN("NAME", LEFT, "name"),
};

static const struct exchange_listing policies = {
    .path = "/v1/policies",
    .columns = list_columns,
    .column_count = COUNT_OF(list_columns),
    .nothing = "There are no policies yet; `dibs policy create` makes one.",
};

/* --- `dibs policy …` --- */

/* One request about one policy, whose answer is that policy. */
static int ask_about_policy(const struct command_call *call, const char *method, struct span body)
{
    char path[64] = "/v1/policies";
    if (call->word_count > 0) {
        int code = exchange_check_policy(call, call->words[0]);
        if (code != COMMAND_FINE)
            return code;
        snprintf(path, sizeof(path), "/v1/policies/%s", call->words[0]);
    }
    return exchange_once(call, EXCHANGE_ADMIN,
                         &(struct client_request){.method = method, .path = path, .body = body},
                         show_policy);
}

int command_policy_create(const struct command_call *call)
{
    struct buffer body;
    buffer_init(&body, BODY_MAX);
    int code = write_new_policy(&body, call);
    if (code == COMMAND_FINE)
        code = ask_about_policy(call, "POST", buffer_span(&body));
    buffer_release(&body);
    return code;
}

int command_policy_list(const struct command_call *call)
{
    return exchange_list(call, &policies);
}

int command_policy_show(const struct command_call *call)
{
    return ask_about_policy(call, "GET", SPAN(""));
}

int command_policy_pending(const struct command_call *call)
{
    static const struct table_column columns[] = {
        COLUMN("SEQ", RIGHT, "seq"),          COLUMN("USER", LEFT, "user"),
        COLUMN("NTH", RIGHT, "nth"),          COLUMN("REQUESTED AT", LEFT, "requested_at"),
        COLUMN("REFUSED", RIGHT, "attempts"),
    };
    char path[64];
    int code = exchange_check_policy(call, call->words[0]);
    if (code != COMMAND_FINE)
        return code;
    snprintf(path, sizeof(path), "/v1/policies/%s/pending", call->words[0]);
    return exchange_list(call, &(struct exchange_listing){.path = path,
                                                          .columns = columns,
                                                          .column_count = COUNT_OF(columns),
                                                          .nothing = "Nothing is pending."});
}

int command_policy_pause(const struct command_call *call)
{
    return ask_about_policy(call, "PATCH", SPAN("{\"paused\":true}"));
}

int command_policy_resume(const struct command_call *call)
{
    return ask_about_policy(call, "PATCH", SPAN("{\"paused\":false}"));
}

int command_policy_close(const struct command_call *call)
{
    return ask_about_policy(call, "DELETE", SPAN(""));
}

int command_policy_update(const struct command_call *call)
{
    struct buffer body;
    int code = COMMAND_FINE;
    buffer_init(&body, BODY_MAX);
    buffer_append_text(&body, "{");
    for (int i = 0; i < POLICY_COLUMN_COUNT && code == COMMAND_FINE; i++)
        if (policy_columns[i].later != POLICY_STAYS && policy_columns[i].kind != POLICY_FLAG &&
            i != POLICY_COLUMN_discount_value)
            code = add_column(&body, call, (enum policy_column)i);
    buffer_append_text(&body, "}");
    if (code == COMMAND_FINE && body.length == strlen("{}"))
        code = command_usage(
            call, "nothing to change: use --total, --opens-at, --closes-at or another of "
                  "its flags");
    if (code == COMMAND_FINE)
        code = ask_about_policy(call, "PATCH", buffer_span(&body));
    buffer_release(&body);
    return code;
}

/* --- `dibs claim` --- */

static void show_claim(yyjson_val *claim)
{
    static const struct table_column facts[] = {
        FACT("result", "result"), FACT("coupon", "coupon_id"),
        FACT("code", "code"),     FACT("seq", "seq"),
        FACT("nth", "nth"),       FACT("user", "user"),
        FACT("state", "state"),   FACT("coupon state", "coupon_state"),
    };
    exchange_print_facts(claim, facts, COUNT_OF(facts));
}

static int check_key(const struct command_call *call, const char *key)
{
    bool visible = true;
    for (const char *at = key; *at != '\0'; at++)
        visible = visible && *at > ' ' && *at <= '~';
    if (!visible || key[0] == '\0' || strlen(key) > KEY_LENGTH_MAX) {
        return command_usage(call, "--key: must be 1 to %d visible ASCII characters",
                             KEY_LENGTH_MAX);
    }
    return COMMAND_FINE;
}

int command_claim(const struct command_call *call)
{
    const char *key = command_option(call, "key");
    char path[64];
    struct buffer body;
    int code = exchange_check_policy(call, call->words[0]);
    if (code == COMMAND_FINE)
        code = exchange_check_id(call, "a user", call->words[1]);
    if (code == COMMAND_FINE && key != NULL)
        code = check_key(call, key);
    if (code != COMMAND_FINE)
        return code;
    snprintf(path, sizeof(path), "/v1/policies/%s/claims", call->words[0]);
    buffer_init(&body, BODY_MAX);
    json_begin(&body, '{');
    json_put(&body, "user", call->words[1]);
    buffer_append_literal(&body, "}");
    code = exchange_once(
        call, EXCHANGE_SERVICE,
        &(struct client_request){
            .method = "POST", .path = path, .body = buffer_span(&body), .idempotency_key = key},
        show_claim);
    buffer_release(&body);
    return code;
}

/* --- `dibs status` --- */

static const char *readiness_text(yyjson_val *part, char text[EXCHANGE_TEXT_SIZE])
{
    return yyjson_is_true(yyjson_obj_get(part, "ready")) ? "ready" : "not ready";
}

static void print_parts(struct exchange *exchange)
{
    static const struct table_column columns[] = {
        COLUMN(NULL, LEFT, "name"), COLUMN_BY(NULL, LEFT, readiness_text),
        COLUMN(NULL, LEFT, "kind"), COLUMN(NULL, LEFT, "detail")};
    struct table table;
    table_init(&table, columns, COUNT_OF(columns));
    table_add(&table, "server");
    table_add(&table, readiness_text(exchange->root, NULL));
    table_add(&table, "");
    table_add(&table, exchange->client.url);
    exchange_add_rows(&table, yyjson_obj_get(exchange->root, "parts"));
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
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        if (!exchange_ask(exchange,
                          &(struct client_request){.method = "GET", .path = parts[i].path})) {
            buffer_release(&out);
            return COMMAND_FAILED;
        }
        if (exchange->answer.status != 200)
            code = COMMAND_FAILED;
        buffer_printf(&out, "%s\"%s\":", i == 0 ? "{" : ",", parts[i].name);
        buffer_append_span(&out, buffer_span(&exchange->answer.body));
    }
    buffer_append_text(&out, "}\n");
    command_print(&out);
    return code;
}

static int show_server(struct exchange *exchange)
{
    if (exchange->json && command_option(exchange->call, "ready") == NULL)
        return print_server_json(exchange);
    if (!exchange_ask(exchange, &(struct client_request){.method = "GET", .path = "/readyz"}))
        return COMMAND_FAILED;
    /* Its parts are told to admins only; who is none hears that of the policies. */
    if (yyjson_obj_get(exchange->root, "ready") == NULL)
        return exchange_refused(exchange);
    bool ready = yyjson_is_true(yyjson_obj_get(exchange->root, "ready"));
    print_parts(exchange);
    int code = COMMAND_FINE;
    if (command_option(exchange->call, "ready") == NULL)
        code = exchange_print_list(exchange, &policies, "\n");
    return ready ? code : COMMAND_FAILED;
}

static void show_status(yyjson_val *status)
{
    static const struct table_column facts[] = {
        FACT("state", "state"),
        FACT("coupon state", "coupon_state"),
        FACT("reason", "reason"),
        FACT("coupon", "coupon_id"),
        FACT("merged into", "merged_into"),
        FACT("code", "code"),
        FACT("user", "user"),
        FACT("seq", "seq"),
        FACT("nth", "nth"),
        FACT("ahead", "ahead"),
        FACT("requested at", "requested_at"),
        FACT("issued at", "issued_at"),
        FACT("expires at", "expires_at"),
    };
    static const struct table_column columns[] = {
        COLUMN("NTH", RIGHT, "nth"),
        COLUMN("COUPON", LEFT, "coupon_id"),
        COLUMN("STATE", LEFT, "state"),
        COLUMN("COUPON STATE", LEFT, "coupon_state"),
        COLUMN("REQUESTED AT", LEFT, "requested_at"),
    };
    yyjson_val *claims = yyjson_obj_get(status, "claims");
    exchange_print_facts(status, facts, COUNT_OF(facts));
    if (yyjson_arr_size(claims) > 1) {
        fputc('\n', stdout);
        exchange_print_rows(claims, columns, COUNT_OF(columns));
    }
}

static int ask_about_claim(const struct command_call *call)
{
    struct buffer path;
    int64_t wait_s = 0;
    int code = command_number(call, "wait", 0, WAIT_MAX_S, &wait_s);
    if (code == COMMAND_FINE)
        code = exchange_check_policy(call, call->words[0]);
    if (code == COMMAND_FINE)
        code = exchange_check_id(call, "a user", call->words[1]);
    if (code != COMMAND_FINE)
        return code;
    buffer_init(&path, BODY_MAX);
    buffer_printf(&path, "/v1/policies/%s/claims/", call->words[0]);
    url_append_word(&path, span_of(call->words[1]));
    if (command_option(call, "wait") != NULL)
        buffer_printf(&path, "?wait=%" PRId64, wait_s);
    code =
        exchange_once(call, EXCHANGE_SERVICE,
                      &(struct client_request){
                          .method = "GET", .path = path.bytes, .extra_timeout_ms = wait_s * 1000},
                      show_status);
    buffer_release(&path);
    return code;
}

int command_status(const struct command_call *call)
{
    struct exchange exchange;
    if (call->word_count == 2)
        return ask_about_claim(call);
    if (command_option(call, "wait") != NULL)
        return command_usage(call, "--wait: is for the claim of a POLICY and USER");
    if (call->word_count > 0 && command_option(call, "ready") != NULL)
        return command_usage(call, "--ready: is about the server, not about a policy");
    if (call->word_count == 1)
        return command_policy_show(call);
    int code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);
    if (code != COMMAND_FINE)
        return code;
    code = show_server(&exchange);
    exchange_end(&exchange);
    return code;
}
