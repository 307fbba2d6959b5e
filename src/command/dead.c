/* dead.c: `dibs dead …`: claims that came to nothing: looked at, tried once more, put away. */
#include <stdio.h>
#include <string.h>

#include "command/exchange.h"

#define PAGE_LIMIT "1000"
#define PATH_SIZE  1200

static const struct table_column letter_columns[] = {
    {"ID", TABLE_RIGHT},       {"USER", TABLE_LEFT},   {"DIED AT", TABLE_LEFT},
    {"ATTEMPTS", TABLE_RIGHT}, {"REASON", TABLE_LEFT},
};

static void add_letters(struct table *table, yyjson_val *page)
{
    static const char *const members[] = {"id", "user", "died_at", "attempts", "reason"};
    char text[EXCHANGE_TEXT_SIZE];
    yyjson_val *letter;
    yyjson_arr_iter items;
    yyjson_arr_iter_init(yyjson_obj_get(page, "items"), &items);
    while ((letter = yyjson_arr_iter_next(&items)) != NULL) {
        for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
            table_add(table, exchange_text(letter, members[i], text));
        }
    }
}

static int ask_page(struct exchange *exchange, const char *limit, const char *after)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), "/v1/dead?limit=%s%s%s", limit, after != NULL ? "&after=" : "",
             after != NULL ? after : "");
    return exchange_send(exchange, &(struct client_request){.method = "GET", .path = path});
}

/* Every page, as one table. */
static int print_all(struct exchange *exchange)
{
    struct table table;
    char after[EXCHANGE_TEXT_SIZE] = "";
    bool more;
    table_init(&table, letter_columns, sizeof(letter_columns) / sizeof(letter_columns[0]));
    do {
        int code = ask_page(exchange, PAGE_LIMIT, after[0] != '\0' ? after : NULL);
        if (code != COMMAND_FINE) {
            table_release(&table);
            return code;
        }
        add_letters(&table, exchange->root);
        char next[EXCHANGE_TEXT_SIZE];
        exchange_text(exchange->root, "next", next);
        /* A cursor that does not move would never end. */
        more = yyjson_is_str(yyjson_obj_get(exchange->root, "next")) && strcmp(next, after) != 0;
        snprintf(after, sizeof(after), "%s", next);
    } while (more);
    if (table.cell_count == 0) {
        fprintf(stderr, "There are no dead letters.\n");
        table_release(&table);
        return COMMAND_FINE;
    }
    exchange_print_table(&table);
    return COMMAND_FINE;
}

/* What stands in a URL without escaping: a cursor of the server's own does. */
static bool is_plain(const char *word)
{
    return word[0] != '\0' && word[strspn(word, "0123456789-_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                "abcdefghijklmnopqrstuvwxyz")] == '\0';
}

int command_dead_list(const struct command_call *call)
{
    const char *limit = command_option(call, "limit");
    const char *after = command_option(call, "after");
    if (limit != NULL && (strlen(limit) > 4 || !is_plain(limit))) {
        return command_usage(call, "--limit: \"%s\" is not a number from 1 to %s", limit,
                             PAGE_LIMIT);
    }
    if (after != NULL && (strlen(after) > 100 || !is_plain(after))) {
        return command_usage(call, "--after: \"%s\" is not the `next` of a page", after);
    }
    struct exchange exchange;
    int code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);
    if (code != COMMAND_FINE) {
        return code;
    }
    if (exchange.json) {
        code = ask_page(&exchange, limit != NULL ? limit : PAGE_LIMIT, after);
    } else if (limit != NULL || after != NULL) {
        code = command_usage(call, "--limit and --after are for pages of --json");
    } else {
        code = print_all(&exchange);
    }
    exchange_end(&exchange);
    return code;
}

/* --- one of them --- */

/* "42-17" */
static bool is_letter_id(const char *word)
{
    size_t policy = strspn(word, "0123456789");
    if (policy == 0 || policy > 16 || word[policy] != '-') {
        return false;
    }
    size_t seq = strspn(word + policy + 1, "0123456789");
    return seq > 0 && seq <= 16 && word[policy + 1 + seq] == '\0';
}

static int ask_about(const struct command_call *call, const char *method, const char *end,
                     const struct exchange_member *shown)
{
    char path[96];
    if (!is_letter_id(call->words[0])) {
        return command_usage(call, "\"%s\" is not a dead letter's id, as in 42-17", call->words[0]);
    }
    snprintf(path, sizeof(path), "/v1/dead/%s%s", call->words[0], end);
    struct exchange exchange;
    int code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);
    if (code != COMMAND_FINE) {
        return code;
    }
    code = exchange_send(&exchange, &(struct client_request){.method = method, .path = path});
    if (code == COMMAND_FINE && !exchange.json) {
        struct table facts;
        table_init(&facts, exchange_fact_columns, 2);
        exchange_add_members(&facts, exchange.root, shown);
        exchange_print_table(&facts);
    }
    exchange_end(&exchange);
    return code;
}

int command_dead_retry(const struct command_call *call)
{
    static const struct exchange_member members[] = {
        {"result", "result"}, {"user", "user"}, {"coupon_id", "coupon"},
        {"nth", "nth"},       {NULL, NULL},
    };
    return ask_about(call, "POST", "/retry", members);
}

int command_dead_drop(const struct command_call *call)
{
    static const struct exchange_member members[] = {
        {"id", "dropped"},
        {"user", "user"},
        {"reason", "reason"},
        {NULL, NULL},
    };
    return ask_about(call, "DELETE", "", members);
}
