/* query.h: the parameters after the '?', and the cursors that page through lists.
 *
 * A parameter that the call does not know, or that comes twice, is refused: a mistyped name would
 * otherwise be a silent default.
 *
 * Threads: values only.
 */
#ifndef HTTP_QUERY_H
#define HTTP_QUERY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"

#define QUERY_VALUE_SIZE 96
#define QUERY_NAME_SIZE  64 /* what an offender's name is cut to, with its NUL */

struct query_param {
    const char *name;
    bool present;
    size_t length;
    char value[QUERY_VALUE_SIZE]; /* decoded; longer ones are refused */
};

/* Fills the parameters that are there. STATUS_INVALID with words; `field` gets the name. */
enum status query_read(struct span query, struct query_param *params, size_t count,
                       char field[QUERY_NAME_SIZE], struct error *error) MUST_CHECK;

/* A whole number in minimum ... maximum; `fallback` when it is absent. */
enum status query_integer(const struct query_param *param, int64_t minimum, int64_t maximum,
                          int64_t fallback, int64_t *number, struct error *error) MUST_CHECK;

/* A cursor is opaque to clients: base64url of a kind and one or two numbers. */
#define CURSOR_SIZE 64
void cursor_write(char text[CURSOR_SIZE], char kind, int64_t first, int64_t second);
/* False unless it is a cursor of this kind, as cursor_write() made it. */
bool cursor_read(struct span text, char kind, int64_t *first, int64_t *second);

#endif
