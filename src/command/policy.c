/* policy.c: `dibs policy …`: creates, lists, shows and changes what is handed out. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "command/policy.h"

#define BODY_MAX        (16 * 1024)
#define PATH_MAX_LENGTH 2048
#define PAGE_LIMIT      "1000"
#define NONE            "none"

/* --- building bodies --- */

static void begin_member(struct buffer *body, const char *name)
{
    buffer_printf(body, "%s\"%s\":", body->length > 1 ? "," : "", name);
}

/* --total 1000 as "total":1000; the ranges are the server's to judge. */
static int add_number(struct buffer *body, const struct command_call *call, const char *flag,
                      const char *member)
{
    const char *text = command_option(call, flag);
    if (text == NULL) {
        return COMMAND_FINE;
    }
    size_t length = strlen(text);
    if (length == 0 || length > 18 || strspn(text, "0123456789") != length) {
        return command_usage(call, "--%s: \"%s\" is not a whole number", flag, text);
    }
    begin_member(body, member);
    buffer_append_i64(body, strtoll(text, NULL, 10));
    return COMMAND_FINE;
}

/* --opens-at TIME; "none" takes the time away. */
static int add_time(struct buffer *body, const struct command_call *call, const char *flag,
                    const char *member)
{
    int64_t wall_ms = 0;
    const char *text = command_option(call, flag);
    if (text == NULL) {
        return COMMAND_FINE;
    }
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

/* "10%" is a percentage, "5000" a fixed amount. */
static int add_discount(struct buffer *body, const struct command_call *call)
{
    const char *text = command_option(call, "discount");
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

struct policy_flag {
    const char *flag;
    const char *member;
    int (*add)(struct buffer *, const struct command_call *, const char *, const char *);
};

static int add_members(struct buffer *body, const struct command_call *call,
                       const struct policy_flag *flags)
{
    for (const struct policy_flag *flag = flags; flag->flag != NULL; flag++) {
        int code = flag->add(body, call, flag->flag, flag->member);
        if (code != COMMAND_FINE) {
            return code;
        }
    }
    return COMMAND_FINE;
}

static int write_new_policy(struct buffer *body, const struct command_call *call)
{
    static const char *const required[] = {"name", "discount", "total"};
    static const struct policy_flag flags[] = {
        {"id", "id", add_number},
        {"total", "total", add_number},
        {"per-user-limit", "per_user_limit", add_number},
        {"opens-at", "opens_at", add_time},
        {"closes-at", "closes_at", add_time},
        {"coupon-valid-days", "coupon_valid_days", add_number},
        {"reserve", "reserve", add_number},
        {NULL, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
        if (command_option(call, required[i]) == NULL) {
            return command_usage(call, "--%s is missing", required[i]);
        }
    }
    buffer_append_text(body, "{");
    begin_member(body, "name");
    json_append_text(body, span_of(command_option(call, "name")));
    int code = add_discount(body, call);
    if (code == COMMAND_FINE) {
        code = add_members(body, call, flags);
    }
    buffer_append_text(body, "}");
    return code;
}

/* --- showing --- */

static const char *discount_text(yyjson_val *policy, char text[EXCHANGE_TEXT_SIZE])
{
    yyjson_val *discount = yyjson_obj_get(policy, "discount");
    bool percent = yyjson_equals_str(yyjson_obj_get(discount, "type"), "percent");
    exchange_text(discount, "value", text);
    if (percent) {
        strncat(text, "%", EXCHANGE_TEXT_SIZE - strlen(text) - 1);
    }
    return text;
}

static void show_policy(yyjson_val *policy)
{
    static const struct exchange_member first[] = {
        {"id", "id"}, {"name", "name"}, {"state", "state"}, {NULL, NULL}};
    static const struct exchange_member rest[] = {
        {"total", "total"},
        {"remaining", "remaining"},
        {"pending", "pending"},
        {"issued", "issued"},
        {"per_user_limit", "per user limit"},
        {"reserve", "reserve"},
        {"opens_at", "opens at"},
        {"closes_at", "closes at"},
        {"coupon_valid_days", "coupon valid days"},
        {"created_at", "created at"},
        {"closed_at", "closed at"},
        {NULL, NULL},
    };
    char text[EXCHANGE_TEXT_SIZE];
    struct table facts;
    table_init(&facts, exchange_fact_columns, 2);
    exchange_add_members(&facts, policy, first);
    table_add(&facts, "discount");
    table_add(&facts, discount_text(policy, text));
    exchange_add_members(&facts, policy, rest);
    exchange_print_table(&facts);
}

static const struct table_column policy_columns[] = {
    {"ID", TABLE_RIGHT},        {"STATE", TABLE_LEFT},    {"TOTAL", TABLE_RIGHT},
    {"REMAINING", TABLE_RIGHT}, {"PENDING", TABLE_RIGHT}, {"ISSUED", TABLE_RIGHT},
    {"DISCOUNT", TABLE_RIGHT},  {"NAME", TABLE_LEFT},
};

static void add_page(struct table *table, yyjson_val *page)
{
    static const char *const before_discount[] = {"id",        "state",   "total",
                                                  "remaining", "pending", "issued"};
    char text[EXCHANGE_TEXT_SIZE];
    yyjson_val *policy;
    yyjson_arr_iter items;
    yyjson_arr_iter_init(yyjson_obj_get(page, "items"), &items);
    while ((policy = yyjson_arr_iter_next(&items)) != NULL) {
        for (size_t i = 0; i < sizeof(before_discount) / sizeof(before_discount[0]); i++) {
            table_add(table, exchange_text(policy, before_discount[i], text));
        }
        table_add(table, discount_text(policy, text));
        table_add(table, exchange_text(policy, "name", text));
    }
}

/* Appends "/v1/policies?limit=…&after=…" with the cursor escaped; `after` may be NULL. */
static void policy_append_page_path(struct buffer *path, const char *limit, const char *after)
{
    buffer_printf(path, "/v1/policies?limit=%s", limit);
    if (after == NULL) {
        return;
    }
    buffer_append_text(path, "&after=");
    for (const char *at = after; *at != '\0'; at++) {
        if (isalnum((unsigned char)*at) || strchr("-._~", *at) != NULL) {
            buffer_append(path, at, 1);
        } else {
            buffer_printf(path, "%%%02X", (unsigned char)*at);
        }
    }
}

int policy_print_all(struct exchange *exchange, const char *heading)
{
    struct table table;
    char after[EXCHANGE_TEXT_SIZE] = "";
    table_init(&table, policy_columns, sizeof(policy_columns) / sizeof(policy_columns[0]));
    do {
        struct buffer path;
        buffer_init(&path, PATH_MAX_LENGTH);
        policy_append_page_path(&path, PAGE_LIMIT, after[0] != '\0' ? after : NULL);
        int code =
            exchange_send(exchange, &(struct client_request){.method = "GET", .path = path.bytes});
        buffer_release(&path);
        if (code != COMMAND_FINE) {
            table_release(&table);
            return code;
        }
        add_page(&table, exchange->root);
        bool more = yyjson_is_str(yyjson_obj_get(exchange->root, "next"));
        char next[EXCHANGE_TEXT_SIZE];
        exchange_text(exchange->root, "next", next);
        /* A cursor that does not move would never end. */
        more = more && strcmp(next, after) != 0;
        snprintf(after, sizeof(after), "%s", more ? next : "");
    } while (after[0] != '\0');
    if (table.cell_count == 0) {
        fprintf(stderr, "There are no policies yet; `dibs policy create` makes one.\n");
        table_release(&table);
        return COMMAND_FINE;
    }
    fputs(heading, stdout);
    exchange_print_table(&table);
    return COMMAND_FINE;
}

/* --- the commands --- */

/* One request about one policy, whose answer is that policy. */
static int ask_about_policy(const struct command_call *call, const char *method, struct span body)
{
    char path[64] = "/v1/policies";
    if (call->word_count > 0) {
        int code = exchange_check_policy(call, call->words[0]);
        if (code != COMMAND_FINE) {
            return code;
        }
        snprintf(path, sizeof(path), "/v1/policies/%s", call->words[0]);
    }
    struct exchange exchange;
    int code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);
    if (code != COMMAND_FINE) {
        return code;
    }
    code = exchange_send(&exchange,
                         &(struct client_request){.method = method, .path = path, .body = body});
    if (code == COMMAND_FINE && !exchange.json) {
        show_policy(exchange.root);
    }
    exchange_end(&exchange);
    return code;
}

int command_policy_create(const struct command_call *call)
{
    struct buffer body;
    buffer_init(&body, BODY_MAX);
    int code = write_new_policy(&body, call);
    if (code == COMMAND_FINE) {
        code = ask_about_policy(call, "POST", (struct span){body.bytes, body.length});
    }
    buffer_release(&body);
    return code;
}

int command_policy_list(const struct command_call *call)
{
    const char *limit = command_option(call, "limit");
    const char *after = command_option(call, "after");
    if (limit != NULL &&
        (strlen(limit) > 4 || limit[0] == '\0' || limit[strspn(limit, "0123456789")] != '\0')) {
        return command_usage(call, "--limit: \"%s\" is not a number from 1 to %s", limit,
                             PAGE_LIMIT);
    }
    struct exchange exchange;
    int code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);
    if (code != COMMAND_FINE) {
        return code;
    }
    if (exchange.json) {
        struct buffer path;
        buffer_init(&path, PATH_MAX_LENGTH);
        policy_append_page_path(&path, limit != NULL ? limit : PAGE_LIMIT, after);
        code =
            exchange_send(&exchange, &(struct client_request){.method = "GET", .path = path.bytes});
        buffer_release(&path);
    } else if (limit != NULL || after != NULL) {
        code = command_usage(call, "--limit and --after are for pages of --json");
    } else {
        code = policy_print_all(&exchange, "");
    }
    exchange_end(&exchange);
    return code;
}

int command_policy_show(const struct command_call *call)
{
    return ask_about_policy(call, "GET", SPAN(""));
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
    static const struct policy_flag flags[] = {
        {"total", "total", add_number},
        {"opens-at", "opens_at", add_time},
        {"closes-at", "closes_at", add_time},
        {NULL, NULL, NULL},
    };
    struct buffer body;
    buffer_init(&body, BODY_MAX);
    buffer_append_text(&body, "{");
    int code = add_members(&body, call, flags);
    buffer_append_text(&body, "}");
    if (code == COMMAND_FINE && body.length == strlen("{}")) {
        code = command_usage(call, "nothing to change: use --total, --opens-at or --closes-at");
    }
    if (code == COMMAND_FINE) {
        code = ask_about_policy(call, "PATCH", (struct span){body.bytes, body.length});
    }
    buffer_release(&body);
    return code;
}
