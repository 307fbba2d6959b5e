/* terminal.h: how answers look to people: tables, facts, colours.
 *
 * Text that came over the network is shown without control characters, so that nobody's coupon
 * name can drive a terminal. Colours appear on a terminal only, and never with NO_COLOR.
 *
 * Threads: the main thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/buffer.h"

#define TABLE_COLUMNS_MAX 12

struct yyjson_val;

/* Also what is shown of a JSON object: as a column of many, or as a line about one. */
struct table_column {
    const char *title;
    enum { TABLE_LEFT, TABLE_RIGHT } side;
    const char *member; /* of the object; NULL: `show` says it, or whoever adds the cells */
    const char *(*show)(struct yyjson_val *object, char *text);
};
#define COLUMN(title, side, member)  {title, TABLE_##side, member, NULL}
#define COLUMN_BY(title, side, show) {title, TABLE_##side, NULL, show}
#define FACT(title, member)          COLUMN(title, LEFT, member)

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
 * NULL, or when there is no row. */
void table_append(struct buffer *out, const struct table *table, bool in_colour);

/* Whether this stream wants colours. */
bool terminal_wants_colour(FILE *stream);
