/* issue_exceptions.h: which claims of a batch are not plain wins, whatever their lease says.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_ISSUE_EXCEPTIONS_H
#define LEDGER_ISSUE_EXCEPTIONS_H

#include "ledger/issue.h"

/* Makes rows of blocked users, and those that were refused for good before, VOID, and merges those
 * that issue_find_reserved() finds. Usually there are none, which costs one statement. */
enum status issue_find_exceptions(struct sql *sql, struct issue_room *room, size_t count,
                                  struct error *error) MUST_CHECK;

/* Rows of one policy whose wish has a coupon of the reserve already, in whatever place, become
 * MERGED into that one. Whoever takes from the reserve has the policy and its open leases locked:
 * with one of them locked here, nobody serves one of these wishes meanwhile. */
enum status issue_find_reserved(struct sql *sql, struct issue_room *room, struct coupon_row *rows,
                                size_t count, struct error *error) MUST_CHECK;

#endif
