/* exchange.h: what every client command does: find the server, ask it, show what it says.
 *
 * With --json the server's answer goes to stdout byte for byte, refusals too; otherwise a refusal
 * becomes a message on stderr. Either way the exit code tells.
 *
 * Threads: the main thread.
 */
#pragma once

#include <stdbool.h>
#include <yyjson.h>

#include "command/client.h"
#include "command/command.h"
#include "command/terminal.h"

/* --url, --token-file, --timeout, --json: for `shared_options`. */
extern const struct option exchange_options[];

struct exchange {
    const struct command_call *call;
    struct client client;
    bool json; /* --json was given */
    struct client_answer answer;
    yyjson_doc *document;
    yyjson_val *root; /* of the last answer; an object */
};

/* Whose token is taken from the environment when no --token-file names one; the other's comes
 * second. */
enum exchange_token { EXCHANGE_ADMIN, EXCHANGE_SERVICE };

/* --- asking --- */

/* Reads flags and environment. COMMAND_FINE, or the code to exit with after words were said; then
 * there is nothing to end. */
int exchange_begin(struct exchange *exchange, const struct command_call *call,
                   enum exchange_token token);
void exchange_end(struct exchange *exchange);

/* Asks without judging the status code or printing. True when a JSON object came back: `root` is it
 * until the next one; false in words. */
bool exchange_ask(struct exchange *exchange, const struct client_request *request);

/* Prints a refusal, as it is with --json, else in words on stderr; COMMAND_FAILED. */
int exchange_refused(struct exchange *exchange);

/* A whole command: one request, and `show` with its answer unless --json has printed it. */
int exchange_once(const struct command_call *call, enum exchange_token token,
                  const struct client_request *request, void (*show)(yyjson_val *root));

/* --- lists, which the server gives in pages --- */

struct exchange_listing {
    const char *path;
    const struct table_column *columns;
    size_t column_count;
    const char *nothing; /* said when it is empty */
};

/* A whole command: every page as one table, or with --json the page of --limit and --after. */
int exchange_list(const struct command_call *call, const struct exchange_listing *list);

/* Every page as one table after `heading`. COMMAND_FINE, or COMMAND_FAILED in words. */
int exchange_print_list(struct exchange *exchange, const struct exchange_listing *list,
                        const char *heading);

/* Moves `after` on to the `next` of a page; false when that was the last one. */
#define EXCHANGE_TEXT_SIZE 1024
bool exchange_next_page(yyjson_val *page, char after[EXCHANGE_TEXT_SIZE]);

/* --- showing --- */

/* The text of a member for people: "-" for null or a missing one. Valid until the next call with
 * the same `text`. */
const char *exchange_text(yyjson_val *object, const char *member, char text[EXCHANGE_TEXT_SIZE]);

/* A line for each column of the object that is there and not null. */
void exchange_print_facts(yyjson_val *object, const struct table_column *columns, size_t count);

/* A row for each object of the list, as the table's columns say. */
void exchange_add_rows(struct table *table, yyjson_val *list);
void exchange_print_rows(yyjson_val *list, const struct table_column *columns, size_t count);

/* Prints a table on stdout and releases it. */
void exchange_print_table(struct table *table);

/* --- words of the command line --- */

/* COMMAND_FINE, or COMMAND_USAGE in words; `what` is as in "a user". */
int exchange_check_policy(const struct command_call *call, const char *word);
int exchange_check_id(const struct command_call *call, const char *what, const char *word);
