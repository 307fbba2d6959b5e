/* list.h: many values for one statement: a JSON array, which all databases can take apart.
 *
 * Threads: as the buffer it is written into.
 */
#ifndef LEDGER_LIST_H
#define LEDGER_LIST_H

#include "ledger/driver.h"

/* A server may take packets of a megabyte at most; a list leaves room for the rest of one. */
#define LIST_LENGTH_MAX ((size_t)960 * 1024)

/* Starts a list in an emptied buffer. */
void list_begin(struct buffer *text);

/* Starts the next element, and puts the commas between elements. */
void list_next(struct buffer *text);

/* An id or anything else of letters that JSON does not escape, in quotes. */
void list_id(struct buffer *text, struct span id);

/* Ends the list; `value` borrows it. UNAVAILABLE: it was too long, or there was no memory. */
enum status list_end(struct buffer *text, struct sql_value *value, struct error *error) MUST_CHECK;

#endif
