/* issue_exceptions.h: which claims of a batch are not plain wins, whatever their lease says.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_ISSUE_EXCEPTIONS_H
#define LEDGER_ISSUE_EXCEPTIONS_H

#include "ledger/issue.h"

/* Makes rows of blocked users, and those that were refused for good before, VOID. Usually there are
 * none, which costs one statement. */
enum status issue_find_exceptions(struct sql *sql, struct issue_room *room, size_t count,
                                  struct error *error) MUST_CHECK;

#endif
