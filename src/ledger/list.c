/* list.c: JSON arrays, piece by piece. */
#include "ledger/list.h"

void list_begin(struct buffer *text)
{
    buffer_clear(text);
    buffer_append_literal(text, "[");
}

void list_next(struct buffer *text)
{
    if (text->length > 1)
        buffer_append_literal(text, ",");
}

void list_id(struct buffer *text, struct span id)
{
    buffer_append_literal(text, "\"");
    buffer_append_span(text, id);
    buffer_append_literal(text, "\"");
}

enum status list_end(struct buffer *text, struct sql_value *value, struct error *error)
{
    buffer_append_literal(text, "]");
    if (text->overflowed)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a statement's list");
    *value = sql_text((struct span){.bytes = text->bytes, .length = text->length});
    return STATUS_OK;
}
