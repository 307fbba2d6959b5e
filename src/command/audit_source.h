/* audit_source.h: where `dibs audit` looks: at a running server, or with the settings of one at its
 * ledger and Redis itself.
 *
 * Either way the answer is the JSON of the API.
 *
 * Threads: the main thread.
 */
#pragma once

#include "command/exchange.h"
#include "config/config.h"

struct service;

struct audit_source {
    const struct command_call *call;
    struct exchange exchange; /* with a server */
    struct service *service;  /* NULL: a server is asked */
    struct config config;     /* of the service */
    yyjson_doc *document;     /* of the service's last answer */
    yyjson_val *root;         /* the last answer, until the next one */
};

/* COMMAND_FINE, or the code to exit with after words were said; then there is nothing to end. */
int audit_source_begin(struct audit_source *source, const struct command_call *call);
void audit_source_end(struct audit_source *source);

/* The same codes; `root` is the answer. `policy` may be NULL for all; `after` is the `next` of the
 * page before, or NULL. */
int audit_source_fetch(struct audit_source *source, const char *policy, const char *after);
int audit_source_repair(struct audit_source *source, const char *policy, bool forgets);
int audit_source_history(struct audit_source *source);
