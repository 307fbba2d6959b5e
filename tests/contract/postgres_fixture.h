/* postgres_fixture.h: what the tests of the PostgreSQL driver stand on: the server that
 * DIBS_TEST_POSTGRES_URL names, whose user must be allowed to create databases, and a database of
 * its own for each test.
 *
 * Threads: the admin's connection is used by one at a time.
 */
#pragma once

#include <libpq-fe.h>
#include <sys/types.h>

#include "ledger/driver.h"

#define TIMEOUT_MS       10000
#define TIMEOUT_SHORT_MS 400

extern const struct ledger_driver *const driver;

struct fixture {
    char name[32];
    char url[256];
    PGconn *admin; /* on the test's database, beside the driver */
    pid_t stopped; /* a process of the server that stands still; 0: none */
    struct error error;
};

int set_up(void **state);
int tear_down(void **state);
#define POSTGRES_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

/* --- asking beside the driver --- */

PGconn *connect_to(const char *url);

/* Runs a statement; the number in its first field, or 0. */
int64_t ask(PGconn *connection, const char *format, ...) PRINTF_LIKE(2, 3);

/* Asks until the answer is that number. */
void await(PGconn *connection, int64_t number, const char *text);

/* The driver's connections to the test's database. */
#define BACKENDS \
    "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'dibs'"

/* The process behind the one connection that the driver has. */
pid_t backend_of(struct fixture *fixture);

/* SIGSTOP to the process behind it, and SIGCONT, at the latest when the test ends. */
void stop_backend(struct fixture *fixture);
void continue_backend(struct fixture *fixture);

/* Ends the connections that the driver has, and waits until they are gone. */
void end_connections(struct fixture *fixture);

int64_t blocked_count(struct fixture *fixture);

/* Makes every insert into a table run some PL/pgSQL: "at once", or "at commit". */
void put_trigger(struct fixture *fixture, const char *table, const char *when, const char *body);

/* --- the driver's sessions --- */

enum status open_as(struct fixture *fixture, enum session_kind kind, enum ledger_use use,
                    int64_t timeout_ms, struct sql *sql, struct ledger_store **store);
void close_both(struct sql *sql, struct ledger_store *store);

/* A session that shares, on a database with tables. */
void open_session(struct fixture *fixture, enum session_kind kind, int64_t timeout_ms,
                  struct sql *sql, struct ledger_store **store);

/* A statement that writes something small. */
enum status block(struct sql *sql, const char *user, struct error *error);

#define assert_status(fixture, actual, expected)                                    \
    do {                                                                            \
        enum status actual_ = (actual);                                             \
        if (actual_ != (expected))                                                  \
            fail_msg("%s, not %s: %s", status_name(actual_), status_name(expected), \
                     (fixture)->error.text);                                        \
    } while (0)
#define assert_ok(fixture, actual) assert_status(fixture, actual, STATUS_OK)
