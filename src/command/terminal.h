/* terminal.h: how answers look to people: tables, facts, colours.
 *
 * Text that came over the network is shown without control characters, so that nobody's coupon
 * name can drive a terminal. Colours appear on a terminal only, and never with NO_COLOR.
 *
 * Threads: the main thread.
 */
#ifndef COMMAND_TERMINAL_H
#define COMMAND_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/buffer.h"

#define TABLE_COLUMNS_MAX 12

struct table_column {
    const char *title;
    enum { TABLE_LEFT, TABLE_RIGHT } side;
};

/* Cells are added row by row and printed together, when the widths are known. */
struct table {
    const struct table_column *columns;
    size_t column_count;
    char **cells;
    size_t cell_count;
    size_t cell_capacity;
};

/* `columns` is borrowed. */
void table_init(struct table *table, const struct table_column *columns, size_t column_count);
void table_release(struct table *table);

/* The next cell; the text is copied, with escapes for what could drive a terminal. */
void table_add(struct table *table, const char *text);

/* Appends the titles and all rows; the last row must be complete. No titles when they are all
 * NULL. */
void table_append(struct buffer *out, const struct table *table, bool in_colour);

/* Whether this stream wants colours. */
bool terminal_wants_colour(FILE *stream);

#endif
