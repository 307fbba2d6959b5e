/* ledger_suite.h: what every ledger must do, run on each database.
 *
 * A database's program provides the three functions below and lists ledger_suite_run() as its
 * main.
 */
#ifndef CONTRACT_LEDGER_SUITE_H
#define CONTRACT_LEDGER_SUITE_H

#include "ledger/ledger.h"

/* Makes an empty database and returns its URL, valid until ledger_suite_drop(). */
const char *ledger_suite_create(void);
void ledger_suite_drop(void);

/* The conservation of stock in one snapshot, computed by the database itself from the tables:
 * unleased + Σ open leases (count − rows) + active − total, which has to be 0. */
int64_t ledger_suite_imbalance(int64_t policy_id);

int ledger_suite_run(void);

#endif
