/* exchange.c: a client command's common way from flags to an answer that people can read. */
#include "command/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/json.h"
#include "base/model.h"
#include "base/url.h"
#include "base/utf8.h"
#include "config/value.h"

#define OUTPUT_MAX     (64 * 1024 * 1024)
#define PAGE_LIMIT_MAX 1000
#define PATH_LENGTH    (4 * EXCHANGE_TEXT_SIZE)

const struct option exchange_options[] = {
    {"url", "URL", "The server to talk to: DIBS_URL, else " CLIENT_URL_DEFAULT "."},
    {"token-file", "FILE",
     "A file with the token to send; without it, the one that DIBS_ADMIN_TOKEN(_FILE) or "
     "DIBS_SERVICE_TOKEN(_FILE) gives."},
    {"timeout", "DURATION", "How long to wait for an answer, as in 5s. [30s]"},
    {"json", NULL, "Print the server's JSON as it is."},
    {NULL, NULL, NULL},
};

/* --- beginning --- */

static int take_token_file(struct exchange *exchange, const char *source, const char *path)
{
    struct buffer bytes;
    struct error error;
    buffer_init(&bytes, CLIENT_TOKEN_LENGTH_MAX + 2);
    enum status status = config_read_file(path, &bytes, NULL, &error);
    if (status == STATUS_OK) {
        size_t length = bytes.length;
        while (length > 0 && (bytes.bytes[length - 1] == '\n' || bytes.bytes[length - 1] == '\r'))
            length--;
        status = client_set_token(&exchange->client, (struct span){bytes.bytes, length}, &error);
    }
    if (bytes.bytes != NULL)
        explicit_bzero(bytes.bytes, bytes.length);
    buffer_release(&bytes);
    if (status != STATUS_OK)
        return command_fail(exchange->call, "%s: %s", source, error.text);
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
    if (path != NULL)
        return take_token_file(exchange, "--token-file", path);
    const enum exchange_token order[2] = {token, !token};
    for (int i = 0; i < 2; i++) {
        struct error error;
        const char *const *names = variables[order[i]];
        const char *value = variable_of(names[0]);
        if (value == NULL && variable_of(names[1]) != NULL)
            return take_token_file(exchange, names[1], variable_of(names[1]));
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
    if (client_set_url(&exchange->client, url, &error) != STATUS_OK)
        return command_usage(call, "%s: %s", flag != NULL ? "--url" : "DIBS_URL", error.text);
    int code = command_duration(call, "timeout", 1, &exchange->client.timeout_ms);
    if (code == COMMAND_FINE)
        code = take_token(exchange, token);
    if (code != COMMAND_FINE)
        client_release(&exchange->client);
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
    if (body->length > 0)
        exchange->document = yyjson_read(body->bytes, body->length, YYJSON_READ_NOFLAG);
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
    if (body->length > 0 && body->bytes[body->length - 1] != '\n')
        fputc('\n', stdout);
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
    buffer_init(&words, 16 * EXCHANGE_TEXT_SIZE);
    utf8_append_visible(&words, span_of(exchange_text(exchange->root, "title", title)));
    buffer_append_text(&words, ": ");
    utf8_append_visible(&words, span_of(exchange_text(exchange->root, "detail", detail)));
    command_fail(exchange->call, "%s", words.bytes);
    if (exchange->answer.status == 401)
        fprintf(stderr, "Set DIBS_ADMIN_TOKEN or use --token-file FILE.\n");
    buffer_release(&words);
    return COMMAND_FAILED;
}

/* Whether the last answer is a refusal. */
static bool exchange_was_refused(const struct exchange *exchange)
{
    return exchange->answer.status < 200 || exchange->answer.status > 299;
}

static int exchange_send(struct exchange *exchange, const struct client_request *request)
{
    if (!exchange_ask(exchange, request))
        return COMMAND_FAILED;
    if (exchange_was_refused(exchange))
        return exchange_refused(exchange);
    if (exchange->json)
        print_raw(&exchange->answer.body);
    return COMMAND_FINE;
}

int exchange_once(const struct command_call *call, enum exchange_token token,
                  const struct client_request *request, void (*show)(yyjson_val *root))
{
    struct exchange exchange;
    int code = exchange_begin(&exchange, call, token);
    if (code != COMMAND_FINE)
        return code;
    code = exchange_send(&exchange, request);
    if (code == COMMAND_FINE && !exchange.json)
        show(exchange.root);
    exchange_end(&exchange);
    return code;
}

/* --- showing --- */

const char *exchange_text(yyjson_val *object, const char *member, char text[EXCHANGE_TEXT_SIZE])
{
    yyjson_val *value = yyjson_obj_get(object, member);
    if (yyjson_is_str(value))
        snprintf(text, EXCHANGE_TEXT_SIZE, "%s", yyjson_get_str(value));
    else if (yyjson_is_int(value))
        snprintf(text, EXCHANGE_TEXT_SIZE, "%" PRId64, yyjson_get_sint(value));
    else if (yyjson_is_bool(value))
        snprintf(text, EXCHANGE_TEXT_SIZE, "%s", yyjson_get_bool(value) ? "yes" : "no");
    else
        snprintf(text, EXCHANGE_TEXT_SIZE, "-");
    return text;
}

static const char *cell_text(const struct table_column *column, yyjson_val *object,
                             char text[EXCHANGE_TEXT_SIZE])
{
    return column->show != NULL ? column->show(object, text)
                                : exchange_text(object, column->member, text);
}

void exchange_print_facts(yyjson_val *object, const struct table_column *columns, size_t count)
{
    static const struct table_column pair[] = {FACT(NULL, NULL), FACT(NULL, NULL)};
    char text[EXCHANGE_TEXT_SIZE];
    struct table facts;
    table_init(&facts, pair, 2);
    for (const struct table_column *column = columns; column < columns + count; column++) {
        yyjson_val *value = yyjson_obj_get(object, column->member);
        if (column->show == NULL && (value == NULL || yyjson_is_null(value)))
            continue;
        table_add(&facts, column->title);
        table_add(&facts, cell_text(column, object, text));
    }
    exchange_print_table(&facts);
}

void exchange_add_rows(struct table *table, yyjson_val *list)
{
    char text[EXCHANGE_TEXT_SIZE];
    yyjson_val *object;
    yyjson_arr_iter objects;
    yyjson_arr_iter_init(list, &objects);
    while ((object = yyjson_arr_iter_next(&objects)) != NULL)
        for (size_t i = 0; i < table->column_count; i++)
            table_add(table, cell_text(&table->columns[i], object, text));
}

void exchange_print_rows(yyjson_val *list, const struct table_column *columns, size_t count)
{
    struct table table;
    table_init(&table, columns, count);
    exchange_add_rows(&table, list);
    exchange_print_table(&table);
}

void exchange_print_table(struct table *table)
{
    struct buffer out;
    buffer_init(&out, OUTPUT_MAX);
    table_append(&out, table, terminal_wants_colour(stdout));
    command_print(&out);
    table_release(table);
}

/* --- lists --- */

bool exchange_next_page(yyjson_val *page, char after[EXCHANGE_TEXT_SIZE])
{
    char next[EXCHANGE_TEXT_SIZE];
    exchange_text(page, "next", next);
    /* A cursor that does not move would never end. */
    bool has_more = yyjson_is_str(yyjson_obj_get(page, "next")) && strcmp(next, after) != 0;
    memcpy(after, next, EXCHANGE_TEXT_SIZE);
    return has_more;
}

/* One page, behind the cursor `after` unless that is "". */
static int send_for_page(struct exchange *exchange, const struct exchange_listing *list,
                         int64_t limit, const char *after)
{
    struct buffer path;
    buffer_init(&path, PATH_LENGTH);
    buffer_printf(&path, "%s?limit=%" PRId64 "%s", list->path, limit,
                  after[0] != '\0' ? "&after=" : "");
    url_append_word(&path, span_of(after));
    int code =
        exchange_send(exchange, &(struct client_request){.method = "GET", .path = path.bytes});
    buffer_release(&path);
    return code;
}

int exchange_print_list(struct exchange *exchange, const struct exchange_listing *list,
                        const char *heading)
{
    struct table table;
    char after[EXCHANGE_TEXT_SIZE] = "";
    int code;
    table_init(&table, list->columns, list->column_count);
    do {
        code = send_for_page(exchange, list, PAGE_LIMIT_MAX, after);
        if (code == COMMAND_FINE)
            exchange_add_rows(&table, yyjson_obj_get(exchange->root, "items"));
    } while (code == COMMAND_FINE && exchange_next_page(exchange->root, after));
    if (code == COMMAND_FINE && table.cell_count == 0) {
        fprintf(stderr, "%s\n", list->nothing);
    } else if (code == COMMAND_FINE) {
        fputs(heading, stdout);
        exchange_print_table(&table);
        return code;
    }
    table_release(&table);
    return code;
}

int exchange_list(const struct command_call *call, const struct exchange_listing *list)
{
    int64_t limit = PAGE_LIMIT_MAX;
    const char *after = command_option(call, "after");
    struct exchange exchange;
    int code = command_number(call, "limit", 1, PAGE_LIMIT_MAX, &limit);
    if (code == COMMAND_FINE)
        code = exchange_begin(&exchange, call, EXCHANGE_ADMIN);
    if (code != COMMAND_FINE)
        return code;
    if (exchange.json)
        code = send_for_page(&exchange, list, limit, after != NULL ? after : "");
    else if (after != NULL || command_option(call, "limit") != NULL)
        code = command_usage(call, "--limit and --after are for pages of --json");
    else
        code = exchange_print_list(&exchange, list, "");
    exchange_end(&exchange);
    return code;
}

/* --- words of the command line --- */

int exchange_check_policy(const struct command_call *call, const char *word)
{
    uint64_t id;
    if (!digits_read(span_of(word), POLICY_ID_MAX, &id) || word[0] == '0') {
        return command_usage(call, "\"%s\" is not a policy's id: a number from 1 to %" PRId64, word,
                             POLICY_ID_MAX);
    }
    return COMMAND_FINE;
}

int exchange_check_id(const struct command_call *call, const char *what, const char *word)
{
    if (json_id_valid(span_of(word)))
        return COMMAND_FINE;
    return command_usage(call, "\"%s\" is not %s's id: it " JSON_ID_RULE, word, what);
}
