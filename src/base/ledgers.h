/* ledgers.h: the kinds of ledger that there are, and how their URLs look.
 *
 * Threads: values only.
 */
#pragma once

#include <stddef.h>
#include <string.h>

#include "base/buffer.h"

struct ledger_kind {
    const char *name;       /* its folder in ledger/, and in the names of its migrations */
    const char *verified;   /* the parameter for a server that proves who it is; NULL: a file */
    const char *schemes[3]; /* in front of the colon; NULL ends them */
};

/* name, example, verified, schemes */
#define LEDGER_KINDS(X)                                                                           \
    X(sqlite, "sqlite:PATH, as in sqlite:dibs.db", NULL, "sqlite")                                \
    X(postgres, "postgres://user@host/database", "sslmode=verify-full", "postgres", "postgresql") \
    X(mysql, "mysql://user@host/database", "ssl_mode=verify-full", "mysql", "mariadb")

#define LEDGER_KIND_ROW(kind, shown, parameter, ...) \
    {.name = #kind, .verified = (parameter), .schemes = {__VA_ARGS__}},

/* The examples, for the words of an error; what is cut is the last comma. */
#define LEDGER_KIND_EXAMPLE(kind, shown, ...) shown ", "
#define LEDGER_KIND_EXAMPLES                                   \
    ((struct span){.bytes = LEDGER_KINDS(LEDGER_KIND_EXAMPLE), \
                   .length = sizeof(LEDGER_KINDS(LEDGER_KIND_EXAMPLE)) - sizeof(", ")})

/* By the scheme, which is all that is looked at; NULL: there is no such kind. */
static inline const struct ledger_kind *ledger_kind_of(const char *url)
{
    static const struct ledger_kind kinds[] = {LEDGER_KINDS(LEDGER_KIND_ROW)};
    size_t length = strcspn(url, ":");

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        for (const char *const *scheme = kinds[i].schemes; *scheme != NULL; scheme++)
            if (strlen(*scheme) == length && strncmp(url, *scheme, length) == 0)
                return &kinds[i];
    return NULL;
}
