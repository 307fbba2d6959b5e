/* ledger_suite.h: what every ledger must do, run on each database.
 *
 * A database's program provides the functions of the first part and calls ledger_suite_run() in its
 * main.
 */
#pragma once

#include "ledger/driver.h"

/* --- what a database's program provides --- */

/* Makes an empty database and returns its URL, valid until ledger_suite_drop().
 */
const char *ledger_suite_create(void);
void ledger_suite_drop(void);

/* A session of the test's own beside the ledger's, of the database's administrator. Used by one
 * thread at a time. */
struct ledger_suite_session;
struct ledger_suite_session *ledger_suite_session_open(void);
void ledger_suite_session_close(struct ledger_suite_session *session);

/* Runs a statement; the number in the first column of its first row, or 0. One that does not
 * work ends the program with words. */
int64_t ledger_suite_ask(struct ledger_suite_session *session, const char *text);

/* Makes the table refuse coupons of users named bad…, as a rule of the shop's own would. */
extern const char ledger_suite_refuse_bad[];

/* Several processes can have the database open at once; then the last three are used too. */
extern const bool ledger_suite_is_shared;
extern const struct ledger_driver *const ledger_suite_driver;
/* How many of the database's sessions wait for a lock right now. */
extern const char ledger_suite_lock_waits[];
/* What makes a SELECT lock its rows shared. */
extern const char ledger_suite_for_share[];

/* --- the tests --- */

int ledger_suite_run(void);

/* The parts of it; how many tests failed. */
int ledger_suite_run_terms(void);   /* who looks after a policy */
int ledger_suite_run_issuing(void); /* claims into rows, and what is in their way */
int ledger_suite_run_crowds(void);  /* many at once, through as many ledgers as there can be */
int ledger_suite_run_events(void);  /* what is told of every change */
int ledger_suite_run_sales(void);   /* orders, products, the feed, rankings */
int ledger_suite_run_shared(void);  /* several ledgers on one database */
int ledger_suite_run_locks(void);   /* two transactions, interleaved at every statement */
