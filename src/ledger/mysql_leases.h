/* mysql_leases.h: the open leases with what they have given out, counted one by one.
 *
 * A count per lease, as a subquery, would read the whole policy for each of its leases: MySQL finds
 * a range by an index only when it knows both ends before it starts. So lease_list_open and
 * lease_balance only name the leases (id, policy_id, first_seq, count), and lease_rows is asked for
 * each of them. All of it belongs to one moment when it is asked in a snapshot.
 *
 * Threads: as the session, one at a time.
 */
#ifndef LEDGER_MYSQL_LEASES_H
#define LEDGER_MYSQL_LEASES_H

#include "ledger/driver.h"

/* How a session runs one statement. */
typedef enum status (*ledger_mysql_run_fn)(struct ledger_session *session, enum statement statement,
                                           const struct sql_value *values, size_t value_count,
                                           sql_row_fn row, void *context, int64_t *changed,
                                           struct error *error);

/* As driver.h's run() of lease_list_open. */
enum status ledger_mysql_leases_list(struct ledger_session *session, ledger_mysql_run_fn run,
                                     sql_row_fn row, void *context, struct error *error) MUST_CHECK;

/* As driver.h's run() of lease_balance. */
enum status ledger_mysql_leases_balance(struct ledger_session *session, ledger_mysql_run_fn run,
                                        const struct sql_value *policy_id, sql_row_fn row,
                                        void *context, struct error *error) MUST_CHECK;

#endif
