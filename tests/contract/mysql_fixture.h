/* mysql_fixture.h: what the tests of the MySQL driver stand on: the server that DIBS_TEST_MYSQL_URL
 * names, and a database of its own for each test. They look and kill from beside as the
 * administrator root, who has no password on a server of tests/servers.py.
 *
 * Threads: the connection beside is used by one at a time.
 */
#pragma once

#include "ledger/mysql/session.h"

#define NOW             INT64_C(1763200000000)
#define TIMEOUT_MS      3000
#define TIMEOUT_LONG_MS 60000

extern const struct ledger_driver *const driver;

struct fixture {
    char name[32];
    char url[256];
    struct ledger_store *store;
    struct ledger_store *patient_store;
    struct sql a, b; /* writers that share the ledger */
    MYSQL *beside;   /* the test's own connection */
    struct error error;
};

/* The ledger has policy 1 with lease 7 of its seqs 1 to 10000. */
int set_up(void **state);
int tear_down(void **state);
#define MYSQL_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

/* Fails with the words of the last error unless the status is OK. */
void check(struct fixture *fixture, enum status status);

struct ledger_store *open_store(struct fixture *fixture, enum ledger_use use, int64_t timeout_ms);
struct ledger_session *open_session(struct fixture *fixture, enum session_kind kind);

/* For tests in which one waits for the other, and neither gives up: `a` and `b` anew, with
 * TIMEOUT_LONG_MS. */
void be_patient(struct fixture *fixture);

/* --- beside the driver --- */

void execute(MYSQL *connection, const char *text);

/* The first number that a query answers. */
int64_t number_of(MYSQL *connection, const char *text);

int64_t blocked_count(struct fixture *fixture);

/* The server's number of the driver's connection. */
int64_t connection_of(const struct sql *sql);

/* Ends a connection and waits until it is gone. */
void kill_connection(struct fixture *fixture, int64_t id);

/* Waits until someone waits for a row. */
void await_lock_wait(struct fixture *fixture);

/* The client library finds its socket dead, and the server does not. Returns what keeps it open, to
 * be closed in the end. */
int cut_off(const struct sql *sql);

/* --- through the driver --- */

enum status begin(struct fixture *fixture, struct sql *sql);

/* Counts rows in a size_t. */
enum status note_row(void *context, const struct sql_value *columns, struct error *error);

/* Runs a statement that has one number. */
enum status run_1(struct fixture *fixture, struct sql *sql, enum statement statement,
                  int64_t value);

/* A write that can be counted. */
enum status block(struct fixture *fixture, struct sql *sql, const char *user);
