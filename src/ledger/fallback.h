/* fallback.h: one claim from unleased stock, decided by the database itself.
 *
 * While the gate is away a transaction takes its place: slower, but as exact. It never touches
 * stock that is lent to a gate.
 *
 * Threads: one session, one thread.
 */
#ifndef LEDGER_FALLBACK_H
#define LEDGER_FALLBACK_H

#include "ledger/driver.h"

/* The body of a transaction; the argument is a struct ledger_wish. BUSY when the user's slot is
 * taken at this very moment by someone else. */
enum status fallback_claim(struct sql *sql, void *argument, struct error *error) MUST_CHECK;

#endif
