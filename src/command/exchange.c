/* exchange.c: a client command's common way from flags to an answer that people can read. */
#include "command/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/model.h"
#include "base/utf8.h"
#include "config/read.h"
#include "config/value.h"

#define OUTPUT_MAX (64 * 1024 * 1024)

const struct option exchange_options[] = {
    {"url", "URL", "The server to talk to: DIBS_URL, else " CLIENT_URL_DEFAULT "."},
    {"token-file", "FILE",
     "A file with the token to send; without it, the one that DIBS_ADMIN_TOKEN(_FILE) or "
     "DIBS_SERVICE_TOKEN(_FILE) gives."},
    {"timeout", "DURATION", "How long to wait for an answer, as in 5s. [30s]"},
    {"json", NULL, "Print the server's JSON as it is."},
    {NULL, NULL, NULL},
};

const struct table_column exchange_fact_columns[2] = {{NULL, TABLE_LEFT}, {NULL, TABLE_LEFT}};

/* --- beginning --- */

static int take_token_file(struct exchange *exchange, const char *source, const char *path)
{
    struct buffer bytes;
    struct error error;
    buffer_init(&bytes, CLIENT_TOKEN_LENGTH_MAX + 2);
    enum status status = config_read_file(path, &bytes, NULL, &error);
    if (status == STATUS_OK) {
        size_t length = bytes.length;
        while (length > 0 && (bytes.bytes[length - 1] == '\n' || bytes.bytes[length - 1] == '\r')) {
            length--;
        }
        status = client_set_token(&exchange->client, (struct span){bytes.bytes, length}, &error);
    }
    if (bytes.bytes != NULL) {
        explicit_bzero(bytes.bytes, bytes.length);
    }
    buffer_release(&bytes);
    if (status != STATUS_OK) {
        return command_fail(exchange->call, "%s: %s", source, error.text);
    }
    return COMMAND_FINE;
}

/* A variable that is set and not empty. */
static const char *variable_of(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* The variables of the server's settings serve here too, so that one environment does for both. */
static int take_token(struct exchange *exchange, enum exchange_token token)
{
    static const char *const variables[2][2] = {
        [EXCHANGE_ADMIN] = {"DIBS_ADMIN_TOKEN", "DIBS_ADMIN_TOKEN_FILE"},
        [EXCHANGE_SERVICE] = {"DIBS_SERVICE_TOKEN", "DIBS_SERVICE_TOKEN_FILE"},
    };
    const char *path = command_option(exchange->call, "token-file");
    if (path != NULL) {
        return take_token_file(exchange, "--token-file", path);
    }
    const enum exchange_token order[2] = {token, !token};
    for (int i = 0; i < 2; i++) {
        struct error error;
        const char *const *names = variables[order[i]];
        const char *value = variable_of(names[0]);
        if (value == NULL && variable_of(names[1]) != NULL) {
            return take_token_file(exchange, names[1], variable_of(names[1]));
        }
        if (value != NULL) {
            return client_set_token(&exchange->client, span_of(value), &error) == STATUS_OK
                       ? COMMAND_FINE
                       : command_fail(exchange->call, "%s: %s", names[0], error.text);
        }
    }
    return COMMAND_FINE;
}

int exchange_begin(struct exchange *exchange, const struct command_call *call,
                   enum exchange_token token)
{
    *exchange = (struct exchange){.call = call, .json = command_option(call, "json") != NULL};
    exchange->client.timeout_ms = CLIENT_TIMEOUT_MS;
    struct error error;
    const char *flag = command_option(call, "url");
    const char *variable = variable_of("DIBS_URL");
    const char *url = flag != NULL ? flag : variable != NULL ? variable : CLIENT_URL_DEFAULT;
    if (client_set_url(&exchange->client, url, &error) != STATUS_OK) {
        return command_usage(call, "%s: %s", flag != NULL ? "--url" : "DIBS_URL", error.text);
    }
    const char *timeout = command_option(call, "timeout");
    if (timeout != NULL && (!config_parse_duration(timeout, &exchange->client.timeout_ms) ||
                            exchange->client.timeout_ms < 1)) {
        return command_usage(call, "--timeout: \"%s\" is not a duration, as in 500ms or 5s",
                             timeout);
    }
    int code = take_token(exchange, token);
    if (code != COMMAND_FINE) {
        client_release(&exchange->client);
    }
    return code;
}

static void exchange_forget_answer(struct exchange *exchange)
{
    yyjson_doc_free(exchange->document);
    client_answer_release(&exchange->answer);
    exchange->document = NULL;
    exchange->root = NULL;
    exchange->answer = (struct client_answer){0};
}

void exchange_end(struct exchange *exchange)
{
    exchange_forget_answer(exchange);
    client_release(&exchange->client);
}

/* --- asking --- */

static void say_no_answer(const struct exchange *exchange, const struct client_request *request,
                          enum status status, const struct error *error)
{
    bool changes = strcmp(request->method, "GET") != 0;
    command_fail(exchange->call, "%s%s", error->text,
                 status == STATUS_UNKNOWN && changes
                     ? "; it may have been done all the same: look before you repeat it"
                     : "");
}

bool exchange_ask(struct exchange *exchange, const struct client_request *request)
{
    struct error error;
    exchange_forget_answer(exchange);
    enum status status = client_send(&exchange->client, request, &exchange->answer, &error);
    if (status != STATUS_OK) {
        say_no_answer(exchange, request, status, &error);
        return false;
    }
    struct buffer *body = &exchange->answer.body;
    if (body->length > 0) {
        exchange->document = yyjson_read(body->bytes, body->length, YYJSON_READ_NOFLAG);
    }
    exchange->root = yyjson_doc_get_root(exchange->document);
    if (!yyjson_is_obj(exchange->root)) {
        command_fail(exchange->call, "%s answered %d, but not as a dibs server does",
                     exchange->client.url, exchange->answer.status);
        return false;
    }
    return true;
}

static void print_raw(const struct buffer *body)
{
    fwrite(body->bytes, 1, body->length, stdout);
    if (body->length > 0 && body->bytes[body->length - 1] != '\n') {
        fputc('\n', stdout);
    }
}

int exchange_refused(struct exchange *exchange)
{
    if (exchange->json) {
        print_raw(&exchange->answer.body);
        return COMMAND_FAILED;
    }
    char title[EXCHANGE_TEXT_SIZE];
    char detail[EXCHANGE_TEXT_SIZE];
    struct buffer words;
    buffer_init(&words, 4 * EXCHANGE_TEXT_SIZE);
    buffer_append_text(&words, exchange_text(exchange->root, "title", title));
    buffer_append_text(&words, ": ");
    buffer_append_text(&words, exchange_text(exchange->root, "detail", detail));
    struct buffer clean;
    buffer_init(&clean, 4 * EXCHANGE_TEXT_SIZE);
    utf8_append_visible(&clean, (struct span){words.bytes, words.length});
    command_fail(exchange->call, "%s", clean.bytes);
    if (exchange->answer.status == 401) {
        fprintf(stderr, "Set DIBS_ADMIN_TOKEN or use --token-file FILE.\n");
    }
    buffer_release(&clean);
    buffer_release(&words);
    return COMMAND_FAILED;
}

int exchange_send(struct exchange *exchange, const struct client_request *request)
{
    if (!exchange_ask(exchange, request)) {
        return COMMAND_FAILED;
    }
    if (exchange->answer.status < 200 || exchange->answer.status > 299) {
        return exchange_refused(exchange);
    }
    if (exchange->json) {
        print_raw(&exchange->answer.body);
    }
    return COMMAND_FINE;
}

/* --- reading and showing --- */

const char *exchange_text(yyjson_val *object, const char *member, char text[EXCHANGE_TEXT_SIZE])
{
    yyjson_val *value = yyjson_obj_get(object, member);
    if (yyjson_is_str(value)) {
        snprintf(text, EXCHANGE_TEXT_SIZE, "%s", yyjson_get_str(value));
    } else if (yyjson_is_int(value)) {
        snprintf(text, EXCHANGE_TEXT_SIZE, "%" PRId64, yyjson_get_sint(value));
    } else if (yyjson_is_bool(value)) {
        snprintf(text, EXCHANGE_TEXT_SIZE, "%s", yyjson_get_bool(value) ? "yes" : "no");
    } else {
        snprintf(text, EXCHANGE_TEXT_SIZE, "-");
    }
    return text;
}

void exchange_add_members(struct table *facts, yyjson_val *object,
                          const struct exchange_member *members)
{
    for (const struct exchange_member *member = members; member->name != NULL; member++) {
        char text[EXCHANGE_TEXT_SIZE];
        yyjson_val *value = yyjson_obj_get(object, member->name);
        if (value == NULL || yyjson_is_null(value)) {
            continue;
        }
        table_add(facts, member->title);
        table_add(facts, exchange_text(object, member->name, text));
    }
}

void exchange_print_table(struct table *table)
{
    struct buffer out;
    buffer_init(&out, OUTPUT_MAX);
    table_append(&out, table, terminal_wants_colour(stdout));
    if (out.length > 0) {
        fwrite(out.bytes, 1, out.length, stdout);
    }
    buffer_release(&out);
    table_release(table);
}

int exchange_check_policy(const struct command_call *call, const char *word)
{
    size_t length = strlen(word);
    if (length == 0 || length > 16 || strspn(word, "0123456789") != length || word[0] == '0' ||
        strtoll(word, NULL, 10) > POLICY_ID_MAX) {
        return command_usage(call, "\"%s\" is not a policy's id: a number from 1 to %" PRId64, word,
                             POLICY_ID_MAX);
    }
    return COMMAND_FINE;
}

int exchange_check_user(const struct command_call *call, const char *word)
{
    if (!json_id_valid(span_of(word))) {
        return command_usage(call,
                             "\"%s\" is not a user's id: 1 to %d of A-Z a-z 0-9 . _ : @ - (not . "
                             "or ..)",
                             word, ID_LENGTH_MAX);
    }
    return COMMAND_FINE;
}
