/* list.c: JSON arrays, piece by piece; a sorted array of entries of any kind, searched by halves.
 */
#include "ledger/list.h"

#include <stdlib.h>

#include "base/digits.h"
#include "base/json.h"

void list_begin(struct buffer *text)
{
    buffer_clear(text);
    buffer_append_literal(text, "[");
}

static void list_append(struct buffer *text, const struct sql_value *value)
{
    switch (value->kind) {
    case SQL_NULL:
        buffer_append_literal(text, "null");
        break;
    case SQL_I64:
        buffer_append_i64(text, value->number);
        break;
    case SQL_TEXT:
        json_append_text(text, value->bytes);
        break;
    case SQL_BLOB:
        buffer_append_literal(text, "\"");
        if (buffer_reserve(text, 2 * value->bytes.length)) {
            hex_write(text->bytes + text->length, (const uint8_t *)value->bytes.bytes,
                      value->bytes.length);
            text->length += 2 * value->bytes.length;
        }
        buffer_append_literal(text, "\"");
        break;
    }
}

static void list_next(struct buffer *text)
{
    if (text->length > 1)
        buffer_append_literal(text, ",");
}

void list_add(struct buffer *text, struct sql_value value)
{
    list_next(text);
    list_append(text, &value);
}

void list_add_row(struct buffer *text, const struct sql_value *values, size_t count)
{
    list_next(text);
    for (size_t i = 0; i < count; i++) {
        buffer_append(text, i == 0 ? "[" : ",", 1);
        list_append(text, &values[i]);
    }
    buffer_append_literal(text, "]");
}

enum status list_end(struct buffer *text, struct sql_value *value, struct error *error)
{
    buffer_append_literal(text, "]");
    if (text->overflowed)
        return error_set(error, STATUS_UNAVAILABLE, "no memory for a statement's list");
    *value = sql_text((struct span){.bytes = text->bytes, .length = text->length});
    return STATUS_OK;
}

/* --- what is known --- */

static struct known_entry *known_at(const struct known_batch *batch, size_t index)
{
    return (struct known_entry *)(void *)((char *)batch->entries + index * batch->entry_size);
}

static int known_compare(const void *a, const void *b)
{
    const struct known_entry *first = a;
    const struct known_entry *second = b;
    int order = id_compare(first->id, second->id);

    return order != 0 ? order : first->place < second->place ? -1 : 1;
}

void known_sort(const struct known_batch *batch)
{
    qsort(batch->entries, batch->count, batch->entry_size, known_compare);
}

enum status known_ask(struct sql *sql, enum statement statement, const struct known_batch *batch,
                      struct buffer *text, sql_row_fn row, void *context, struct error *error)
{
    struct sql_value ids;

    list_begin(text);
    for (size_t i = 0; i < batch->count; i++) {
        struct known_entry *entry = known_at(batch, i);
        entry->is_there = false;
        list_add(text, sql_text(id_span(entry->id)));
    }
    enum status status = list_end(text, &ids, error);
    return status == STATUS_OK ? SQL_RUN(sql, statement, row, context, error, ids) : status;
}

size_t known_find(const struct known_batch *batch, const struct id *id)
{
    size_t low = 0;

    for (size_t high = batch->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (id_compare(known_at(batch, middle)->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return known_is_at(batch, low, id) ? low : batch->count;
}

bool known_is_at(const struct known_batch *batch, size_t index, const struct id *id)
{
    return index < batch->count && id_equal(known_at(batch, index)->id, id);
}
