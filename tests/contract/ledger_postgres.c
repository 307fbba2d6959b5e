/* ledger_postgres.c: the ledger suite on the PostgreSQL that DIBS_TEST_POSTGRES_URL names.
 *
 * The URL's user must be allowed to create databases, for each test gets one of its own, and
 * `postgres` must be let in as the administrator.
 */
#include <libpq-fe.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "ledger_suite.h"

static char url[256];
static char name[32];

static PGconn *connect_to(const char *where)
{
    PGconn *connection = PQconnectdb(where);
    if (PQstatus(connection) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(connection));
    return connection;
}

static const char *maintenance_url(void)
{
    const char *given = getenv("DIBS_TEST_POSTGRES_URL");
    if (given == NULL)
        fail_msg("run me by tests/servers.py run postgres -- …");
    return given;
}

/* Runs a statement that names the test's database. */
static void execute(const char *what)
{
    char text[128];
    PGconn *connection = connect_to(maintenance_url());

    snprintf(text, sizeof(text), "%s %s", what, name);
    PGresult *result = PQexec(connection, text);
    if (PQresultStatus(result) != PGRES_COMMAND_OK)
        fail_msg("%s: %s", text, PQresultErrorMessage(result));
    PQclear(result);
    PQfinish(connection);
}

/* Deadlocks are looked for soon, so that tests which make them do not wait. */
const char *ledger_suite_create(void)
{
    static int number;
    const char *maintenance = maintenance_url();

    snprintf(name, sizeof(name), "suite_%d", ++number);
    execute("CREATE DATABASE");
    snprintf(url, sizeof(url), "%.*s/%s", (int)(strrchr(maintenance, '/') - maintenance),
             maintenance, name);
    struct ledger_suite_session *session = ledger_suite_session_open();
    char text[128];
    snprintf(text, sizeof(text), "ALTER DATABASE %s SET deadlock_timeout = '20ms'", name);
    ledger_suite_ask(session, text);
    ledger_suite_session_close(session);
    return url;
}

/* PostgreSQL refuses when somebody is still connected: a session that was not closed is found. */
void ledger_suite_drop(void)
{
    execute("DROP DATABASE");
}

/* The URL is one that tests/servers.py makes: without a password or options. Whoever looks for a
 * deadlock first is the one to be given up on: never the test. */
struct ledger_suite_session *ledger_suite_session_open(void)
{
    char where[256];

    snprintf(where, sizeof(where), "postgres://postgres%s", strchr(url, '@'));
    struct ledger_suite_session *session = (struct ledger_suite_session *)connect_to(where);
    ledger_suite_ask(session, "SET deadlock_timeout = '10min'");
    return session;
}

void ledger_suite_session_close(struct ledger_suite_session *session)
{
    PQfinish((PGconn *)session);
}

int64_t ledger_suite_ask(struct ledger_suite_session *session, const char *text)
{
    int64_t number = 0;
    PGresult *result = PQexec((PGconn *)session, text);
    ExecStatusType status = PQresultStatus(result);

    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        print_error("%s: %s\n", text, PQresultErrorMessage(result));
    ensure(status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK);
    if (PQntuples(result) > 0)
        number = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return number;
}

const char ledger_suite_refuse_bad[] =
    "ALTER TABLE coupon ADD CONSTRAINT refuse_bad CHECK (user_id NOT LIKE 'bad%')";

const bool ledger_suite_is_shared = true;
const struct ledger_driver *const ledger_suite_driver = &ledger_postgres_driver;
const char ledger_suite_lock_waits[] = "SELECT COUNT(*) FROM pg_stat_activity"
                                       " WHERE datname = current_database()"
                                       " AND wait_event_type = 'Lock'";
const char ledger_suite_for_share[] = "FOR SHARE";

int main(void)
{
    return ledger_suite_run();
}
