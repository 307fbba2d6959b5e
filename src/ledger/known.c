/* known.c: a sorted array of entries of any kind, searched by halves. */
#include "ledger/known.h"

#include <stdlib.h>

#include "ledger/list.h"

static struct known_entry *known_at(const struct known_batch *batch, size_t index)
{
    return (struct known_entry *)(void *)((char *)batch->entries + index * batch->entry_size);
}

static int known_compare(const void *a, const void *b)
{
    const struct known_entry *first = a;
    const struct known_entry *second = b;
    int order = user_id_compare(first->id, second->id);

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
        list_next(text);
        list_id(text, user_id_span(entry->id));
    }
    enum status status = list_end(text, &ids, error);
    return status == STATUS_OK ? SQL_RUN(sql, statement, row, context, error, ids) : status;
}

size_t known_find(const struct known_batch *batch, const struct user_id *id)
{
    size_t low = 0;

    for (size_t high = batch->count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (user_id_compare(known_at(batch, middle)->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return known_is_at(batch, low, id) ? low : batch->count;
}

bool known_is_at(const struct known_batch *batch, size_t index, const struct user_id *id)
{
    return index < batch->count && user_id_equal(known_at(batch, index)->id, id);
}
