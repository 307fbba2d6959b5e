/* list.h: many values for one statement: a JSON array, which all databases can take apart. And the
 * entries of a batch by their ids, and which of these the ledger has already.
 *
 * Threads: one session, one thread.
 */
#pragma once

#include "ledger/driver.h"

/* A server may take packets of a megabyte at most; a list leaves room for the rest of one. */
#define LIST_LENGTH_MAX ((size_t)960 * 1024)

/* Starts a list in an emptied buffer. */
void list_begin(struct buffer *text);

/* Adds a value: a number, a text, null, or bytes in hex. */
void list_add(struct buffer *text, struct sql_value value);

/* LIST_ROW(text, sql_i64(1), ...): adds a list of values. */
#define LIST_ROW(text, ...)                                     \
    list_add_row(text, (const struct sql_value[]){__VA_ARGS__}, \
                 sizeof((const struct sql_value[]){__VA_ARGS__}) / sizeof(struct sql_value))
void list_add_row(struct buffer *text, const struct sql_value *values, size_t count);

/* Ends the list; `value` borrows it. UNAVAILABLE: it was too long, or there was no memory. */
enum status list_end(struct buffer *text, struct sql_value *value, struct error *error) MUST_CHECK;

/* --- what is known ---
 *
 * Orders and signals come in batches and may come again: an id is written once, and what comes
 * later under it is held against that, also within one batch. */

/* What an entry begins with. */
struct known_entry {
    const struct id *id;
    size_t place;  /* in the batch */
    bool is_there; /* in the ledger, or as an earlier entry */
};

/* Sorted, the entries stand by rising ids, and those of one id as they came. */
struct known_batch {
    void *entries;
    size_t count;
    size_t entry_size;
};

void known_sort(const struct known_batch *batch);

/* Forgets what was known of the entries, and asks for the rows of all their ids by a statement that
 * takes a list of them; `text` is for the list. */
enum status known_ask(struct sql *sql, enum statement statement, const struct known_batch *batch,
                      struct buffer *text, sql_row_fn row, void *context,
                      struct error *error) MUST_CHECK;

/* The first of the entries with that id, which stand together; the count when there is none. */
size_t known_find(const struct known_batch *batch, const struct id *id);

/* Whether the entry has that id; the one at the count has none. */
bool known_is_at(const struct known_batch *batch, size_t index, const struct id *id);
