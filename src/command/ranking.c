/* ranking.c: `dibs product top` and `dibs product rank`: which products sell best, as a table. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/model.h"
#include "command/exchange.h"

#define PATH_SIZE 200

static const struct table_column columns[] = {
    {"RANK", TABLE_RIGHT},  {"CHANGE", TABLE_RIGHT}, {"PRODUCT", TABLE_LEFT}, {"NAME", TABLE_LEFT},
    {"PRICE", TABLE_RIGHT}, {"SOLD", TABLE_RIGHT},   {"SCORE", TABLE_RIGHT},
};

#define COLUMN_COUNT (sizeof(columns) / sizeof(columns[0]))

/* "+2": two places up. A newcomer has no place to have come from. */
static const char *change_text(yyjson_val *item, char text[EXCHANGE_TEXT_SIZE])
{
    yyjson_val *change = yyjson_obj_get(item, "change");
    if (!yyjson_is_int(change)) {
        return "new";
    }
    snprintf(text, EXCHANGE_TEXT_SIZE, "%+lld", (long long)yyjson_get_sint(change));
    return yyjson_get_sint(change) == 0 ? "=" : text;
}

/* Where products are ranked by what was sold, there is no column for scores. */
static void print_items(yyjson_val *root, const char *list)
{
    bool has_scores = yyjson_obj_get(root, "ranking") != NULL;
    char text[EXCHANGE_TEXT_SIZE];
    struct table table;
    yyjson_val *item;
    yyjson_arr_iter items;
    table_init(&table, columns, has_scores ? COLUMN_COUNT : COLUMN_COUNT - 1);
    yyjson_arr_iter_init(yyjson_obj_get(root, list), &items);
    while ((item = yyjson_arr_iter_next(&items)) != NULL) {
        table_add(&table, exchange_text(item, "rank", text));
        table_add(&table, change_text(item, text));
        table_add(&table, exchange_text(item, "product_id", text));
        table_add(&table, exchange_text(item, "name", text));
        table_add(&table, exchange_text(item, "price", text));
        table_add(&table, exchange_text(item, "sold", text));
        if (has_scores) {
            snprintf(text, sizeof(text), "%.6g", yyjson_get_num(yyjson_obj_get(item, "score")));
            table_add(&table, text);
        }
    }
    exchange_print_table(&table);
}

static void print_origin(yyjson_val *root)
{
    char days[EXCHANGE_TEXT_SIZE];
    char as_of[EXCHANGE_TEXT_SIZE];
    char source[EXCHANGE_TEXT_SIZE];
    fprintf(stderr, "Of %s days, as of %s, from the %s.\n", exchange_text(root, "days", days),
            exchange_text(root, "as_of", as_of), exchange_text(root, "source", source));
}

/* Whole numbers; the ranges are the server's to judge. */
static int check_number(const struct command_call *call, const char *flag)
{
    const char *text = command_option(call, flag);
    if (text == NULL ||
        (text[0] != '\0' && strlen(text) <= 9 && strspn(text, "0123456789") == strlen(text))) {
        return COMMAND_FINE;
    }
    return command_usage(call, "--%s: \"%s\" is not a whole number", flag, text);
}

static int ask(const struct command_call *call, const char *path, const char *list,
               const char *nothing)
{
    struct exchange exchange;
    int code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);
    if (code != COMMAND_FINE) {
        return code;
    }
    code = exchange_send(&exchange, &(struct client_request){.method = "GET", .path = path});
    if (code == COMMAND_FINE && !exchange.json) {
        if (yyjson_arr_size(yyjson_obj_get(exchange.root, list)) == 0) {
            fprintf(stderr, "%s\n", nothing);
        } else {
            print_items(exchange.root, list);
            print_origin(exchange.root);
        }
    }
    exchange_end(&exchange);
    return code;
}

int command_product_top(const struct command_call *call)
{
    const char *days = command_option(call, "days");
    const char *limit = command_option(call, "limit");
    char path[PATH_SIZE];
    int code = check_number(call, "days");
    if (code == COMMAND_FINE) {
        code = check_number(call, "limit");
    }
    if (code != COMMAND_FINE) {
        return code;
    }
    snprintf(path, sizeof(path), "/v1/products/top?days=%s&limit=%s&fresh=%s",
             days != NULL ? days : "3", limit != NULL ? limit : "5",
             command_option(call, "fresh") != NULL ? "true" : "false");
    return ask(call, path, "items", "Nothing was sold in these days.");
}

int command_product_rank(const struct command_call *call)
{
    const char *days = command_option(call, "days");
    char path[PATH_SIZE];
    int code = check_number(call, "days");
    if (code != COMMAND_FINE) {
        return code;
    }
    if (!json_id_valid(span_of(call->words[0]))) {
        return command_usage(call,
                             "\"%s\" is not a product's id: 1 to %d of A-Z a-z 0-9 . _ : @ - (not "
                             ". or ..)",
                             call->words[0], ID_LENGTH_MAX);
    }
    snprintf(path, sizeof(path), "/v1/products/%s/rank?days=%s", call->words[0],
             days != NULL ? days : "3");
    return ask(call, path, "neighbours", "Nothing of it was sold in these days.");
}
