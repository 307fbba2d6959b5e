/* ledger_postgres.c: the ledger suite on the PostgreSQL that DIBS_TEST_POSTGRES_URL names.
 *
 * The URL's user must be allowed to create databases: each test gets one of its own.
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

const char *ledger_suite_create(void)
{
    static int number;
    const char *maintenance = maintenance_url();

    snprintf(name, sizeof(name), "suite_%d", ++number);
    execute("CREATE DATABASE");
    snprintf(url, sizeof(url), "%.*s/%s", (int)(strrchr(maintenance, '/') - maintenance),
             maintenance, name);
    return url;
}

/* PostgreSQL refuses when somebody is still connected: a session that was not closed is found. */
void ledger_suite_drop(void)
{
    execute("DROP DATABASE");
}

int64_t ledger_suite_imbalance(int64_t policy_id)
{
    char id[24];
    const char *values[] = {id};
    PGconn *connection = connect_to(url);

    snprintf(id, sizeof(id), "%lld", (long long)policy_id);
    PGresult *result =
        PQexecParams(connection, LEDGER_SUITE_IMBALANCE("$1"), 1, NULL, values, NULL, NULL, 0);
    if (PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s", PQresultErrorMessage(result));
    assert_int_equal(PQntuples(result), 1);
    int64_t imbalance = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    PQfinish(connection);
    return imbalance;
}

int main(void)
{
    return ledger_suite_run();
}
