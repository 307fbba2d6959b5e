/* ledger_mysql.c: the ledger suite on the MySQL or MariaDB that DIBS_TEST_MYSQL_URL names.
 *
 * The URL's user must be allowed to create databases: each test gets one of its own.
 */
#include <mysql.h>
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

static const char *maintenance_url(void)
{
    const char *given = getenv("DIBS_TEST_MYSQL_URL");
    if (given == NULL)
        fail_msg("run me by tests/servers.py run mysql -- …");
    return given;
}

static void execute(MYSQL *connection, const char *text)
{
    if (mysql_query(connection, text) != 0)
        fail_msg("%s: %s", text, mysql_error(connection));
}

/* The URL is one that tests/servers.py makes: without a password or options. */
static MYSQL *connect_to(const char *database)
{
    char user[32];
    char host[64];
    unsigned port = 0;
    MYSQL *connection = mysql_init(NULL);

    assert_non_null(connection);
    assert_int_equal(sscanf(maintenance_url(), "mysql://%31[^@]@%63[^:]:%u/", user, host, &port),
                     3);
    if (mysql_real_connect(connection, host, user, NULL, database, port, NULL, 0) == NULL)
        fail_msg("%s", mysql_error(connection));
    /* A transaction that was left open shows as an error instead of a wait without end. */
    execute(connection, "SET lock_wait_timeout = 10");
    return connection;
}

static void execute_with_name(const char *what)
{
    char text[128];
    MYSQL *connection = connect_to(NULL);

    snprintf(text, sizeof(text), "%s %s", what, name);
    execute(connection, text);
    mysql_close(connection);
}

const char *ledger_suite_create(void)
{
    static int number;
    const char *maintenance = maintenance_url();

    snprintf(name, sizeof(name), "suite_%d", ++number);
    execute_with_name("CREATE DATABASE");
    snprintf(url, sizeof(url), "%.*s/%s", (int)(strrchr(maintenance, '/') - maintenance),
             maintenance, name);
    return url;
}

void ledger_suite_drop(void)
{
    execute_with_name("DROP DATABASE");
}

int64_t ledger_suite_imbalance(int64_t policy_id)
{
    char text[1024];
    char id[24];
    MYSQL *connection = connect_to(name);

    snprintf(id, sizeof(id), "%lld", (long long)policy_id);
    snprintf(text, sizeof(text), LEDGER_SUITE_IMBALANCE("%s"), id);
    execute(connection, text);
    MYSQL_RES *result = mysql_store_result(connection);
    assert_non_null(result);
    MYSQL_ROW row = mysql_fetch_row(result);
    assert_non_null(row);
    int64_t imbalance = strtoll(row[0], NULL, 10);
    mysql_free_result(result);
    mysql_close(connection);
    return imbalance;
}

int main(void)
{
    return ledger_suite_run();
}
