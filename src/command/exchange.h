/* exchange.h: what every client command does: find the server, ask it, show a refusal.
 *
 * With --json the server's answer goes to stdout byte for byte, refusals too; otherwise a refusal
 * becomes a message on stderr. Either way the exit code tells.
 *
 * Threads: the main thread.
 */
#ifndef COMMAND_EXCHANGE_H
#define COMMAND_EXCHANGE_H

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

/* Reads flags and environment. COMMAND_FINE, or the code to exit with after words were said; then
 * there is nothing to end. */
int exchange_begin(struct exchange *exchange, const struct command_call *call,
                   enum exchange_token token);
void exchange_end(struct exchange *exchange);

/* COMMAND_FINE when the server said yes (2xx); `root` is its answer until the next one, already
 * printed when --json asks for that. COMMAND_FAILED when it said no or nothing, in words. */
int exchange_send(struct exchange *exchange, const struct client_request *request);

/* The same without judging the status code or printing; false when no JSON object came back, in
 * words. */
bool exchange_ask(struct exchange *exchange, const struct client_request *request);

/* Prints a refusal as exchange_send() does; COMMAND_FAILED. */
int exchange_refused(struct exchange *exchange);

/* The text of a member for people: "-" for null or a missing one. Valid until the next call with
 * the same `text`. */
#define EXCHANGE_TEXT_SIZE 1024
const char *exchange_text(yyjson_val *object, const char *member, char text[EXCHANGE_TEXT_SIZE]);

/* Checks words of the command line. COMMAND_FINE, or COMMAND_USAGE in words. */
int exchange_check_policy(const struct command_call *call, const char *word);
int exchange_check_user(const struct command_call *call, const char *word);

/* Two columns without titles, for one thing's members. Members that are null or missing are left
 * out. `members` ends with a NULL name. */
struct exchange_member {
    const char *name;  /* in the JSON */
    const char *title; /* for people */
};
void exchange_add_members(struct table *facts, yyjson_val *object,
                          const struct exchange_member *members);
extern const struct table_column exchange_fact_columns[2];

/* Prints a table on stdout and releases it. */
void exchange_print_table(struct table *table);

#endif
