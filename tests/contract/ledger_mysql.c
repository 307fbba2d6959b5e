/* ledger_mysql.c: the ledger suite on the MySQL or MariaDB that DIBS_TEST_MYSQL_URL names.
 *
 * The URL's user must be allowed to create databases, for each test gets one of its own, and `root`
 * must be let in as the administrator.
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

/* The URL is one that tests/servers.py makes: without a password or options. The user is its own
 * unless another one is named. */
static MYSQL *connect_to(const char *database, const char *other_user)
{
    char user[32];
    char host[64];
    unsigned port = 0;
    MYSQL *connection = mysql_init(NULL);

    assert_non_null(connection);
    assert_int_equal(sscanf(maintenance_url(), "mysql://%31[^@]@%63[^:]:%u/", user, host, &port),
                     3);
    if (mysql_real_connect(connection, host, other_user != NULL ? other_user : user, NULL, database,
                           port, NULL, 0) == NULL)
        fail_msg("%s", mysql_error(connection));
    /* A transaction that was left open shows as an error instead of a wait without end. */
    execute(connection, "SET lock_wait_timeout = 10");
    return connection;
}

static void execute_with_name(const char *what)
{
    char text[128];
    MYSQL *connection = connect_to(NULL, NULL);

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

struct ledger_suite_session *ledger_suite_session_open(void)
{
    MYSQL *connection = connect_to(name, "root");
    execute(connection, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED");
    return (struct ledger_suite_session *)connection;
}

void ledger_suite_session_close(struct ledger_suite_session *session)
{
    mysql_close((MYSQL *)session);
}

int64_t ledger_suite_ask(struct ledger_suite_session *session, const char *text)
{
    MYSQL *connection = (MYSQL *)session;
    int64_t number = 0;
    bool works = mysql_query(connection, text) == 0;

    if (!works)
        print_error("%s: %s\n", text, mysql_error(connection));
    ensure(works);
    MYSQL_RES *result = mysql_store_result(connection);
    if (result != NULL) {
        MYSQL_ROW row = mysql_fetch_row(result);
        if (row != NULL && row[0] != NULL)
            number = strtoll(row[0], NULL, 10);
        mysql_free_result(result);
    }
    return number;
}

const char ledger_suite_refuse_bad[] =
    "ALTER TABLE coupon ADD CONSTRAINT refuse_bad CHECK (user_id NOT LIKE 'bad%')";

const bool ledger_suite_is_shared = true;
const struct ledger_driver *const ledger_suite_driver = &ledger_mysql_driver;
/* INNODB_TRX shows the past to whoever asks more often than ten times a second. */
const char ledger_suite_lock_waits[] = "SELECT COUNT FROM information_schema.INNODB_METRICS"
                                       " WHERE NAME = 'lock_row_lock_current_waits'";
const char ledger_suite_for_share[] = "LOCK IN SHARE MODE";

int main(void)
{
    return ledger_suite_run();
}
