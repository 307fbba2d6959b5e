/* error.c: the words and names of what went wrong. */
#include "base/error.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"

#undef error_set
enum status error_set(struct error *error, enum status status, const char *format, ...)
{
    if (error == NULL)
        return status;
    /* Not straight into error->text: a caller may pass the old words as an argument. */
    struct error failure;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure.text, sizeof(failure.text), format, arguments);
    va_end(arguments);
    memcpy(error->text, failure.text, strlen(failure.text) + 1);
    return status;
}

void error_prefix(struct error *error, const char *format, ...)
{
    if (error == NULL)
        return;
    struct error failure;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(failure.text, sizeof(failure.text), format, arguments);
    va_end(arguments);

    char joined[2 * sizeof(failure.text) + 2];
    snprintf(joined, sizeof(joined), "%s: %s", failure.text, error->text);
    size_t length = strnlen(joined, sizeof(error->text) - 1);
    memcpy(error->text, joined, length);
    error->text[length] = '\0';
}

const char *status_name(enum status status)
{
    static const char *const names[] = {
        [STATUS_OK] = "ok",
        [STATUS_INVALID] = "invalid",
        [STATUS_NOT_FOUND] = "not_found",
        [STATUS_CONFLICT] = "conflict",
        [STATUS_UNAVAILABLE] = "unavailable",
        [STATUS_BUSY] = "busy",
        [STATUS_UNKNOWN] = "unknown",
        [STATUS_FAILED] = "failed",
    };
    ensure((size_t)status < COUNT_OF(names));
    return names[status];
}

/* How long whoever reads stderr may take before the process ends without a word. */
#define READER_MS 1000

void ensure_failed(const char *condition, const char *file, int line, const char *function)
{
    struct pollfd reader = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&reader, 1, READER_MS) > 0)
        fprintf(stderr, "dibs: %s:%d: %s: does not hold: %s\n", file, line, function, condition);
    abort();
}
