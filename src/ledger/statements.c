/* statements.c: finds named statements in a .sql file. */
#include "ledger/statements.h"

#include <stddef.h>
#include <string.h>

#include "base/error.h"
#include "embedded_statements.h"

static const char *const statement_names[] = {
#define STATEMENT_NAME(name) #name,
    STATEMENTS(STATEMENT_NAME)
#undef STATEMENT_NAME
};

const char *statement_name(enum statement statement)
{
    return statement_names[statement];
}

const char *statement_file(const char *driver_name)
{
    size_t length = strlen(driver_name);

    for (size_t i = 0; i < embedded_statements_count; i++) {
        const char *name = embedded_statements[i].name;
        if (strncmp(name, driver_name, length) == 0 && strcmp(name + length, ".sql") == 0)
            return (const char *)embedded_statements[i].bytes;
    }
    ensure(!"every driver has a .sql file");
    return NULL;
}

#define NAME_MARK "-- name: "

const char *statement_named(const char *file, const char *name, unsigned long *length)
{
    size_t name_length = strlen(name);

    for (const char *mark = strstr(file, NAME_MARK); mark != NULL; mark = strstr(mark, NAME_MARK)) {
        mark += strlen(NAME_MARK);
        if (strncmp(mark, name, name_length) != 0 || mark[name_length] != '\n')
            continue;
        const char *text = mark + name_length + 1;
        const char *end = strstr(text, NAME_MARK);
        *length = end == NULL ? strlen(text) : (unsigned long)(end - text);
        return text;
    }
    return NULL;
}

const char *statement_text(const char *file, enum statement statement, unsigned long *length)
{
    return statement_named(file, statement_names[statement], length);
}
