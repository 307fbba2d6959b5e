/* known.h: the entries of a batch by their ids, and which of these the ledger has already.
 *
 * Orders and signals come in batches and may come again: an id is written once, and what comes
 * later under it is held against that, also within one batch.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_KNOWN_H
#define LEDGER_KNOWN_H

#include "ledger/driver.h"

/* What an entry begins with. */
struct known_entry {
    const struct user_id *id;
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
size_t known_find(const struct known_batch *batch, const struct user_id *id);

/* Whether the entry has that id; the one at the count has none. */
bool known_is_at(const struct known_batch *batch, size_t index, const struct user_id *id);

#endif
