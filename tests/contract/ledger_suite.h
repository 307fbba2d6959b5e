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

/* What computes it, for a policy named by the database's kind of placeholder. */
#define LEDGER_SUITE_IMBALANCE(placeholder)                                              \
    "SELECT p.unleased - p.total"                                                        \
    " + (SELECT COALESCE(SUM(l.count - (SELECT COUNT(*) FROM coupon c"                   \
    "      WHERE c.policy_id = l.policy_id AND c.seq >= l.first_seq"                     \
    "        AND c.seq < l.first_seq + l.count)), 0)"                                    \
    "    FROM lease l WHERE l.policy_id = p.id AND l.state = 'OPEN')"                    \
    " + (SELECT COUNT(*) FROM coupon c WHERE c.policy_id = p.id AND c.slot IS NOT NULL)" \
    " FROM policy p WHERE p.id = " placeholder

int ledger_suite_run(void);

#endif
