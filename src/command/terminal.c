/* terminal.c: aligned columns, a few colours for states, and no control characters. */
#include "command/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/error.h"
#include "base/utf8.h"

#define CELL_LENGTH_MAX 8192

#define COLOUR_RESET    "\x1b[0m"
#define COLOUR_TITLE    "\x1b[2m"

/* Words that mean something at a glance. */
static const struct {
    const char *word;
    const char *colour;
} state_colours[] = {
    {"OPEN", "\x1b[32m"},      {"ISSUED", "\x1b[32m"},    {"ready", "\x1b[32m"},
    {"SCHEDULED", "\x1b[36m"}, {"PENDING", "\x1b[36m"},   {"ACCEPTED", "\x1b[36m"},
    {"PAUSED", "\x1b[33m"},    {"CLOSED", "\x1b[2m"},     {"SOLD_OUT", "\x1b[35m"},
    {"VOID", "\x1b[31m"},      {"not ready", "\x1b[31m"},
};

static const char *colour_of(const char *text)
{
    for (size_t i = 0; i < sizeof(state_colours) / sizeof(state_colours[0]); i++)
        if (strcmp(state_colours[i].word, text) == 0)
            return state_colours[i].colour;
    return "";
}

bool terminal_wants_colour(FILE *stream)
{
    const char *refusal = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    return isatty(fileno(stream)) && (refusal == NULL || refusal[0] == '\0') && terminal != NULL &&
           strcmp(terminal, "dumb") != 0;
}

void table_init(struct table *table, const struct table_column *columns, size_t column_count)
{
    ensure(column_count > 0 && column_count <= TABLE_COLUMNS_MAX);
    *table = (struct table){.columns = columns, .column_count = column_count};
}

void table_release(struct table *table)
{
    for (size_t i = 0; i < table->cell_count; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct table){0};
}

void table_add(struct table *table, const char *text)
{
    ensure(array_make_room(table->cells, table->cell_count, table->cell_capacity));
    struct buffer clean;
    buffer_init(&clean, CELL_LENGTH_MAX);
    utf8_append_visible(&clean, span_of(text));
    char *cell = strdup(clean.length > 0 ? clean.bytes : "");
    ensure(cell != NULL);
    table->cells[table->cell_count++] = cell;
    buffer_release(&clean);
}

/* Characters, not bytes; wide ones count once, which only matters in the last column, where no
 * padding follows. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (const char *at = text; *at != '\0'; at++)
        width += ((unsigned char)*at & 0xc0) != 0x80;
    return width;
}

static void append_cell(struct buffer *out, const char *text, size_t width, int side, bool last,
                        const char *colour)
{
    size_t padding = width - width_of(text);
    if (side == TABLE_RIGHT)
        buffer_printf(out, "%*s", (int)padding, "");
    buffer_printf(out, "%s%s%s", colour, text, colour[0] != '\0' ? COLOUR_RESET : "");
    if (side == TABLE_LEFT && !last)
        buffer_printf(out, "%*s", (int)padding, "");
    buffer_append_text(out, last ? "\n" : "  ");
}

void table_append(struct buffer *out, const struct table *table, bool in_colour)
{
    size_t widths[TABLE_COLUMNS_MAX] = {0};
    ensure(table->column_count > 0);
    bool titled = table->cell_count > 0 && table->columns[0].title != NULL;
    for (size_t i = 0; i < table->column_count && titled; i++)
        widths[i] = width_of(table->columns[i].title);
    for (size_t i = 0; i < table->cell_count; i++) {
        size_t width = width_of(table->cells[i]);
        size_t *widest = &widths[i % table->column_count];
        *widest = width > *widest ? width : *widest;
    }
    for (size_t i = 0; i < table->column_count && titled; i++) {
        append_cell(out, table->columns[i].title, widths[i], table->columns[i].side,
                    i + 1 == table->column_count, in_colour ? COLOUR_TITLE : "");
    }
    for (size_t i = 0; i < table->cell_count; i++) {
        size_t column = i % table->column_count;
        append_cell(out, table->cells[i], widths[column], table->columns[column].side,
                    column + 1 == table->column_count, in_colour ? colour_of(table->cells[i]) : "");
    }
}
