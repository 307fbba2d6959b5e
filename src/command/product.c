/* product.c: `dibs product import`: names and prices from a file of JSON lines. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command/exchange.h"

/* What a body of the server's may have, with some room for what is around the lines. */
#define BODY_LENGTH_MAX (16 * 1024)
#define BODY_FULL       (BODY_LENGTH_MAX - 64)
#define BATCH_MAX       500

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
    if (import->batch_count == 0) {
        return COMMAND_FINE;
    }
    buffer_append_literal(&import->body, "]}");
    struct client_request request = {
        .method = "POST",
        .path = "/v1/products",
        .body = {.bytes = import->body.bytes, .length = import->body.length}};
    if (!exchange_ask(&import->exchange, &request)) {
        return COMMAND_FAILED;
    }
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
        if (code != COMMAND_FINE) {
            return code;
        }
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
        while (line.length > 0 && strchr(" \t\r\n", line.bytes[line.length - 1]) != NULL) {
            line.length--;
        }
        if (line.length == 0) {
            continue;
        }
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
    if (code == COMMAND_FINE && ferror(file)) {
        code = command_fail(import->exchange.call, "cannot read %s: %s", name, strerror(errno));
    }
    return code == COMMAND_FINE ? import_send(import, number) : code;
}

int command_product_import(const struct command_call *call)
{
    const char *name = call->words[0];
    bool is_input = strcmp(name, "-") == 0;
    struct import import = {.imported = 0};
    FILE *file = is_input ? stdin : fopen(name, "re");
    if (file == NULL) {
        return command_fail(call, "cannot open %s: %s", name, strerror(errno));
    }
    buffer_init(&import.body, BODY_LENGTH_MAX);
    int code = exchange_begin(&import.exchange, call, EXCHANGE_ADMIN);
    if (code == COMMAND_FINE) {
        code = import_file(&import, file, is_input ? "the input" : name);
        if (code == COMMAND_FINE && import.exchange.json) {
            printf("{\"count\":%lld}\n", import.imported);
        } else if (code == COMMAND_FINE) {
            printf("%lld products imported\n", import.imported);
        }
        exchange_end(&import.exchange);
    }
    buffer_release(&import.body);
    if (!is_input) {
        fclose(file);
    }
    return code;
}
