/* mysql_error.h: what an error number of the server or of the client library means for the ledger.
 *
 * Threads: pure functions.
 */
#ifndef LEDGER_MYSQL_ERROR_H
#define LEDGER_MYSQL_ERROR_H

#include <stdbool.h>

#include "base/error.h"

/* Numbers that callers ask for by themselves. */
#define LEDGER_MYSQL_DUPLICATE     1062
#define LEDGER_MYSQL_NO_TABLE      1146
#define LEDGER_MYSQL_NO_CONNECTION 1094 /* there is no such connection to end */

/* BUSY, UNAVAILABLE or FAILED, as driver.h has them. `words` are the server's own. */
enum status ledger_mysql_status(unsigned code, const char *words);

/* A connection was refused for a reason that does not pass by itself: password, right, database,
 * certificate. */
bool ledger_mysql_refuses_us(unsigned code, const char *words);

/* The connection is gone, or no good any more: it must be closed and made again. */
bool ledger_mysql_is_lost(unsigned code);

/* The whole transaction is over, or has to be: going on would write outside of it. */
bool ledger_mysql_ends_transaction(unsigned code);

/* As the answer to a COMMIT: it may have been done all the same. */
bool ledger_mysql_leaves_doubt(unsigned code);

/* A value in the row is refused: a check, a trigger, a type. */
bool ledger_mysql_refuses_row(unsigned code, const char *sql_state);

#endif
