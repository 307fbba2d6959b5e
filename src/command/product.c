/* product.c: `dibs product …`: names and prices from a file of JSON lines, and which sell best. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/url.h"
#include "command/exchange.h"

/* What a body of the server's may have, with some room for what is around the lines. */
#define BODY_LENGTH_MAX (16 * 1024)
#define BODY_FULL       (BODY_LENGTH_MAX - 64)
#define BATCH_MAX       500

#define PATH_SIZE       200
#define NUMBER_MAX      999999999

/* --- importing --- */

/* Products that wait to be sent together. */
struct import {
    struct exchange exchange;
    struct buffer body;
    size_t batch_count;
    long long first_line; /* of the batch */
    long long imported;
};

static void import_begin_batch(struct import *import, long long line)
{
    buffer_clear(&import->body);
    buffer_append_literal(&import->body, "{\"products\":[");
    import->batch_count = 0;
    import->first_line = line;
}

static int import_send(struct import *import, long long last_line)
{
    if (import->batch_count == 0)
        return COMMAND_FINE;
    buffer_append_literal(&import->body, "]}");
    struct client_request request = {
        .method = "POST", .path = "/v1/products", .body = buffer_span(&import->body)};
    if (!exchange_ask(&import->exchange, &request))
        return COMMAND_FAILED;
    if (import->exchange.answer.status != 200) {
        fprintf(stderr, "Nothing of lines %lld to %lld was imported; %lld products before were.\n",
                import->first_line, last_line, import->imported);
        return exchange_refused(&import->exchange);
    }
    import->imported += (long long)import->batch_count;
    return COMMAND_FINE;
}

/* Sends what has gathered when the line does not fit any more. */
static int import_line(struct import *import, struct span line, long long number)
{
    size_t needed = line.length + 1;
    if (import->body.length + needed > BODY_FULL || import->batch_count == BATCH_MAX) {
        int code = import_send(import, number - 1);
        if (code != COMMAND_FINE)
            return code;
        import_begin_batch(import, number);
    }
    if (import->body.length + needed > BODY_FULL) {
        return command_fail(import->exchange.call, "line %lld has more than %d bytes", number,
                            BODY_FULL);
    }
    buffer_append_text(&import->body, import->batch_count > 0 ? "," : "");
    buffer_append_span(&import->body, line);
    import->batch_count++;
    return COMMAND_FINE;
}

/* One line is one object: what closes it early would make two of it. */
static bool is_object(struct span line)
{
    yyjson_doc *document = yyjson_read(line.bytes, line.length, YYJSON_READ_NOFLAG);
    bool fits = yyjson_is_obj(yyjson_doc_get_root(document));
    yyjson_doc_free(document);
    return fits;
}

static int import_file(struct import *import, FILE *file, const char *name)
{
    char *text = NULL;
    size_t size = 0;
    ssize_t length;
    long long number = 0;
    int code = COMMAND_FINE;

    import_begin_batch(import, 1);
    while (code == COMMAND_FINE && (length = getline(&text, &size, file)) >= 0) {
        struct span line = {.bytes = text, .length = (size_t)length};
        number++;
        while (line.length > 0 && strchr(" \t\r\n", line.bytes[line.length - 1]) != NULL)
            line.length--;
        if (line.length == 0)
            continue;
        if (!is_object(line)) {
            code = command_fail(import->exchange.call,
                                "line %lld of %s is not a JSON object, as in "
                                "{\"product_id\":\"sku-7\",\"name\":\"Mug\",\"price\":1990}",
                                number, name);
        } else {
            code = import_line(import, line, number);
        }
    }
    free(text);
    if (code == COMMAND_FINE && ferror(file))
        code = command_fail(import->exchange.call, "cannot read %s: %s", name, strerror(errno));
    return code == COMMAND_FINE ? import_send(import, number) : code;
}

int command_product_import(const struct command_call *call)
{
    const char *name = call->words[0];
    bool is_input = strcmp(name, "-") == 0;
    struct import import = {.imported = 0};
    FILE *file = is_input ? stdin : fopen(name, "re");
    if (file == NULL)
        return command_fail(call, "cannot open %s: %s", name, strerror(errno));
    buffer_init(&import.body, BODY_LENGTH_MAX);
    int code = exchange_begin(&import.exchange, call, EXCHANGE_ADMIN);
    if (code == COMMAND_FINE) {
        code = import_file(&import, file, is_input ? "the input" : name);
        if (code == COMMAND_FINE && import.exchange.json)
            printf("{\"count\":%lld}\n", import.imported);
        else if (code == COMMAND_FINE)
            printf("%lld products imported\n", import.imported);
        exchange_end(&import.exchange);
    }
    buffer_release(&import.body);
    if (!is_input)
        fclose(file);
    return code;
}

/* --- which sell best --- */

/* "+2": two places up. A newcomer has no place to have come from. */
static const char *change_text(yyjson_val *item, char text[EXCHANGE_TEXT_SIZE])
{
    yyjson_val *change = yyjson_obj_get(item, "change");
    if (!yyjson_is_int(change))
        return "new";
    snprintf(text, EXCHANGE_TEXT_SIZE, "%+lld", (long long)yyjson_get_sint(change));
    return yyjson_get_sint(change) == 0 ? "=" : text;
}

static const char *score_text(yyjson_val *item, char text[EXCHANGE_TEXT_SIZE])
{
    snprintf(text, EXCHANGE_TEXT_SIZE, "%.6g", yyjson_get_num(yyjson_obj_get(item, "score")));
    return text;
}

/* Where products are ranked by what was sold, there is no column for scores. */
static void show_items(yyjson_val *root, const char *list, const char *nothing)
{
    static const struct table_column columns[] = {
        COLUMN("RANK", RIGHT, "rank"),         COLUMN_BY("CHANGE", RIGHT, change_text),
        COLUMN("PRODUCT", LEFT, "product_id"), COLUMN("NAME", LEFT, "name"),
        COLUMN("PRICE", RIGHT, "price"),       COLUMN("SOLD", RIGHT, "sold"),
        COLUMN_BY("SCORE", RIGHT, score_text),
    };
    char days[EXCHANGE_TEXT_SIZE];
    char as_of[EXCHANGE_TEXT_SIZE];
    char source[EXCHANGE_TEXT_SIZE];
    yyjson_val *items = yyjson_obj_get(root, list);
    if (yyjson_arr_size(items) == 0) {
        fprintf(stderr, "%s\n", nothing);
        return;
    }
    bool has_scores = yyjson_obj_get(root, "ranking") != NULL;
    exchange_print_rows(items, columns, has_scores ? COUNT_OF(columns) : COUNT_OF(columns) - 1);
    fprintf(stderr, "Of %s days, as of %s, from the %s.\n", exchange_text(root, "days", days),
            exchange_text(root, "as_of", as_of), exchange_text(root, "source", source));
}

static void show_top(yyjson_val *root)
{
    show_items(root, "items", "Nothing was sold in these days.");
}

static void show_neighbours(yyjson_val *root)
{
    show_items(root, "neighbours", "Nothing of it was sold in these days.");
}

int command_product_top(const struct command_call *call)
{
    int64_t days = 3;
    int64_t limit = 5;
    char path[PATH_SIZE];
    int code = command_number(call, "days", 0, NUMBER_MAX, &days); /* the server judges */
    if (code == COMMAND_FINE)
        code = command_number(call, "limit", 0, NUMBER_MAX, &limit);
    if (code != COMMAND_FINE)
        return code;
    snprintf(path, sizeof(path), "/v1/products/top?days=%" PRId64 "&limit=%" PRId64 "&fresh=%s",
             days, limit, command_option(call, "fresh") != NULL ? "true" : "false");
    return exchange_once(call, EXCHANGE_ADMIN,
                         &(struct client_request){.method = "GET", .path = path}, show_top);
}

int command_product_rank(const struct command_call *call)
{
    int64_t days = 3;
    struct buffer path;
    int code = command_number(call, "days", 0, NUMBER_MAX, &days);
    if (code == COMMAND_FINE)
        code = exchange_check_id(call, "a product", call->words[0]);
    if (code != COMMAND_FINE)
        return code;
    buffer_init(&path, BODY_LENGTH_MAX);
    buffer_append_literal(&path, "/v1/products/");
    url_append_word(&path, span_of(call->words[0]));
    buffer_printf(&path, "/rank?days=%" PRId64, days);
    code = exchange_once(call, EXCHANGE_ADMIN,
                         &(struct client_request){.method = "GET", .path = path.bytes},
                         show_neighbours);
    buffer_release(&path);
    return code;
}
