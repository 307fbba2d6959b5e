/* postgres_fixture.c: a database for each test, sessions on it, and another way in. */
#include "postgres_fixture.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "ledger/migrate.h"

#define AWAIT_MS 60000

const struct ledger_driver *const driver = &ledger_postgres_driver;

PGconn *connect_to(const char *url)
{
    PGconn *connection = PQconnectdb(url);
    if (PQstatus(connection) != CONNECTION_OK)
        fail_msg("%s", PQerrorMessage(connection));
    return connection;
}

/* Runs a statement; the number in its first field, or 0. */
int64_t ask(PGconn *connection, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    int64_t number = 0;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    PGresult *result = PQexec(connection, text);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", text, PQresultErrorMessage(result));
    if (PQntuples(result) > 0)
        number = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return number;
}

/* Asks until the answer is that number. */
void await(PGconn *connection, int64_t number, const char *text)
{
    int64_t deadline_ms = clock_monotonic_ms() + AWAIT_MS;

    while (ask(connection, "%s", text) != number) {
        if (clock_monotonic_ms() > deadline_ms)
            fail_msg("%s is still not %lld", text, (long long)number);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

/* The one connection that the driver has. */
pid_t backend_of(struct fixture *fixture)
{
    await(fixture->admin, 1, "SELECT COUNT(*) " BACKENDS);
    return (pid_t)ask(fixture->admin, "SELECT pid " BACKENDS);
}

void stop_backend(struct fixture *fixture)
{
    fixture->stopped = backend_of(fixture);
    assert_int_equal(kill(fixture->stopped, SIGSTOP), 0);
}

void continue_backend(struct fixture *fixture)
{
    assert_int_equal(kill(fixture->stopped, SIGCONT), 0);
    fixture->stopped = 0;
}

/* Ends the connections that the driver has, and waits until they are gone. */
void end_connections(struct fixture *fixture)
{
    ask(fixture->admin, "SELECT COUNT(pg_terminate_backend(pid)) " BACKENDS);
    await(fixture->admin, 0, "SELECT COUNT(*) " BACKENDS);
}

/* --- the fixture --- */

static const char *maintenance_url(void)
{
    const char *given = getenv("DIBS_TEST_POSTGRES_URL");
    if (given == NULL)
        fail_msg("run me by tests/servers.py run postgres -- …");
    return given;
}

int set_up(void **state)
{
    static int number;
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    const char *maintenance = maintenance_url();
    PGconn *connection = connect_to(maintenance);

    snprintf(fixture->name, sizeof(fixture->name), "driver_%d", ++number);
    ask(connection, "CREATE DATABASE %s", fixture->name);
    PQfinish(connection);
    snprintf(fixture->url, sizeof(fixture->url), "%.*s/%s",
             (int)(strrchr(maintenance, '/') - maintenance), maintenance, fixture->name);
    fixture->admin = connect_to(fixture->url);
    *state = fixture;
    return 0;
}

int tear_down(void **state)
{
    struct fixture *fixture = *state;
    PGconn *connection = connect_to(maintenance_url());

    if (fixture->stopped != 0)
        continue_backend(fixture);
    PQfinish(fixture->admin);
    ask(connection, "DROP DATABASE %s WITH (FORCE)", fixture->name);
    PQfinish(connection);
    free(fixture);
    return 0;
}

enum status open_as(struct fixture *fixture, enum session_kind kind, enum ledger_use use,
                    int64_t timeout_ms, struct sql *sql, struct ledger_store **store)
{
    const struct store_options options = {
        .url = fixture->url, .use = use, .timeout_ms = timeout_ms};

    sql->driver = driver;
    sql->session = NULL;
    assert_int_equal(driver->store_open(store, &options, &fixture->error), STATUS_OK);
    return driver->session_open(*store, kind, &sql->session, &fixture->error);
}

void close_both(struct sql *sql, struct ledger_store *store)
{
    driver->session_close(sql->session);
    driver->store_close(store);
}

/* A session that shares, on a database with tables. */
void open_session(struct fixture *fixture, enum session_kind kind, int64_t timeout_ms,
                  struct sql *sql, struct ledger_store **store)
{
    struct sql schema;
    struct ledger_store *schema_store;

    assert_ok(fixture,
              open_as(fixture, SESSION_SCHEMA, LEDGER_SHARE, TIMEOUT_MS, &schema, &schema_store));
    assert_ok(fixture, migrate_run(&schema, LEDGER_MIGRATION_APPLY, NULL, NULL, &fixture->error));
    close_both(&schema, schema_store);
    await(fixture->admin, 0, "SELECT COUNT(*) " BACKENDS);
    assert_ok(fixture, open_as(fixture, kind, LEDGER_SHARE, timeout_ms, sql, store));
}

enum status block(struct sql *sql, const char *user, struct error *error)
{
    return SQL_WRITE(sql, STATEMENT_blocked_insert, error, sql_text(span_of(user)), sql_i64(1));
}

int64_t blocked_count(struct fixture *fixture)
{
    return ask(fixture->admin, "SELECT COUNT(*) FROM blocked_user");
}

/* Makes every insert into a table run some PL/pgSQL: at once, or when it is committed. */
void put_trigger(struct fixture *fixture, const char *table, const char *when, const char *body)
{
    ask(fixture->admin,
        "CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN %s RETURN NEW; END$$",
        body);
    ask(fixture->admin, "CREATE %s ON %s %s FOR EACH ROW EXECUTE FUNCTION act()",
        strcmp(when, "at commit") == 0 ? "CONSTRAINT TRIGGER act AFTER INSERT"
                                       : "TRIGGER act BEFORE INSERT",
        table, strcmp(when, "at commit") == 0 ? "DEFERRABLE INITIALLY DEFERRED" : "");
}
