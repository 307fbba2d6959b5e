/* mysql_fixture.c: a database for each test, and a look at it from beside. */
#include "mysql_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/log.h"
#include "ledger/migrate.h"

const struct ledger_driver *const driver = &ledger_mysql_driver;

/* --- the database --- */

static const char *maintenance_url(void)
{
    const char *given = getenv("DIBS_TEST_MYSQL_URL");
    if (given == NULL)
        fail_msg("run me by tests/servers.py run mysql -- …");
    return given;
}

void execute(MYSQL *connection, const char *text)
{
    if (mysql_query(connection, text) != 0)
        fail_msg("%s: %s", text, mysql_error(connection));
}

/* The first number that a query answers. */
int64_t number_of(MYSQL *connection, const char *text)
{
    execute(connection, text);
    MYSQL_RES *result = mysql_store_result(connection);
    assert_non_null(result);
    MYSQL_ROW row = mysql_fetch_row(result);
    assert_non_null(row);
    int64_t number = row[0] != NULL ? strtoll(row[0], NULL, 10) : 0;
    mysql_free_result(result);
    return number;
}

static MYSQL *connect_beside(void)
{
    struct url server;
    struct error error;
    MYSQL *connection = mysql_init(NULL);

    assert_int_equal(url_parse(&server, maintenance_url(), &error), STATUS_OK);
    if (mysql_real_connect(connection, server.hosts[0].name, "root", NULL, NULL,
                           (unsigned)server.hosts[0].port, NULL, 0) == NULL)
        fail_msg("%s", mysql_error(connection));
    url_release(&server);
    /* A transaction that was left open shows as an error instead of a wait without end. */
    execute(connection, "SET lock_wait_timeout = 10");
    return connection;
}

void check(struct fixture *fixture, enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", fixture->error.text);
}

struct ledger_session *open_session(struct fixture *fixture, enum session_kind kind)
{
    struct ledger_session *session = NULL;
    check(fixture, driver->session_open(fixture->store, kind, &session, &fixture->error));
    return session;
}

struct ledger_store *open_store(struct fixture *fixture, enum ledger_use use, int64_t timeout_ms)
{
    struct ledger_store *store = NULL;
    struct store_options options = {
        .url = fixture->url, .use = use, .timeout_ms = timeout_ms, .integrity = LEDGER_CHECK_OFF};
    check(fixture, driver->store_open(&store, &options, &fixture->error));
    return store;
}

int set_up(void **state)
{
    static int number;
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    const char *maintenance = maintenance_url();
    char text[128];

    log_configure(LOG_ERROR + 1, LOG_LOGFMT, STDERR_FILENO);
    snprintf(fixture->name, sizeof(fixture->name), "driver_%d_%d", (int)getpid(), ++number);
    snprintf(fixture->url, sizeof(fixture->url), "%.*s/%s",
             (int)(strrchr(maintenance, '/') - maintenance), maintenance, fixture->name);
    fixture->beside = connect_beside();
    snprintf(text, sizeof(text), "CREATE DATABASE %s", fixture->name);
    execute(fixture->beside, text);
    assert_int_equal(mysql_select_db(fixture->beside, fixture->name), 0);
    fixture->store = open_store(fixture, LEDGER_SHARE, TIMEOUT_MS);
    fixture->patient_store = open_store(fixture, LEDGER_SHARE, TIMEOUT_LONG_MS);
    fixture->a = (struct sql){.driver = driver, .session = open_session(fixture, SESSION_WRITER)};
    check(fixture, migrate_run(&fixture->a, LEDGER_MIGRATION_APPLY, NULL, NULL, &fixture->error));
    fixture->b = (struct sql){.driver = driver, .session = open_session(fixture, SESSION_WRITER)};
    execute(fixture->beside,
            "INSERT INTO policy (id, name, discount_type, discount_value, total, per_user_limit,"
            " reserve, paused, created_at, version, unleased, next_seq)"
            " VALUES (1, 'Täglich', 'fixed', 5, 10000, 5, 0, 0, 1, 1, 0, 10001)");
    execute(fixture->beside, "INSERT INTO lease (id, policy_id, first_seq, count, state)"
                             " VALUES (7, 1, 1, 10000, 'OPEN')");
    *state = fixture;
    return 0;
}

int tear_down(void **state)
{
    struct fixture *fixture = *state;
    char text[128];

    execute(fixture->beside, "SET GLOBAL read_only = 0");
    execute(fixture->beside, "SET GLOBAL innodb_flush_log_at_trx_commit = 1");
    driver->session_close(fixture->a.session);
    driver->session_close(fixture->b.session);
    driver->store_close(fixture->store);
    driver->store_close(fixture->patient_store);
    snprintf(text, sizeof(text), "DROP DATABASE %s", fixture->name);
    execute(fixture->beside, text);
    mysql_close(fixture->beside);
    free(fixture);
    return 0;
}

/* --- moves --- */

enum status begin(struct fixture *fixture, struct sql *sql)
{
    return driver->begin(sql->session, &fixture->error);
}

enum status note_row(void *context, const struct sql_value *columns, struct error *error)
{
    (void)error;
    (void)columns;
    ++*(size_t *)context;
    return STATUS_OK;
}

enum status run_1(struct fixture *fixture, struct sql *sql, enum statement statement, int64_t value)
{
    size_t rows = 0;
    return SQL_RUN(sql, statement, note_row, &rows, &fixture->error, sql_i64(value));
}

enum status block(struct fixture *fixture, struct sql *sql, const char *user)
{
    return SQL_WRITE(sql, STATEMENT_blocked_insert, &fixture->error, sql_text(span_of(user)),
                     sql_i64(NOW));
}

int64_t blocked_count(struct fixture *fixture)
{
    return number_of(fixture->beside, "SELECT COUNT(*) FROM blocked_user");
}

int64_t connection_of(const struct sql *sql)
{
    return (int64_t)mysql_thread_id(sql->session->link.mysql);
}

void kill_connection(struct fixture *fixture, int64_t id)
{
    char text[128];

    snprintf(text, sizeof(text), "KILL %lld", (long long)id);
    execute(fixture->beside, text);
    snprintf(text, sizeof(text),
             "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = %lld", (long long)id);
    while (number_of(fixture->beside, text) > 0)
        usleep(1000);
}

void await_lock_wait(struct fixture *fixture)
{
    while (number_of(fixture->beside, "SELECT COUNT FROM information_schema.INNODB_METRICS"
                                      " WHERE NAME = 'lock_row_lock_current_waits'") == 0)
        usleep(1000);
}

int cut_off(const struct sql *sql)
{
    int socket = mysql_get_socket(sql->session->link.mysql);
    int kept = dup(socket);
    int nothing = open("/dev/null", O_RDWR);

    assert_true(kept >= 0 && nothing >= 0);
    assert_true(dup2(nothing, socket) == socket);
    close(nothing);
    return kept;
}

void be_patient(struct fixture *fixture)
{
    struct sql *both[] = {&fixture->a, &fixture->b};

    for (size_t i = 0; i < 2; i++) {
        driver->session_close(both[i]->session);
        both[i]->session = NULL;
        check(fixture, driver->session_open(fixture->patient_store, SESSION_WRITER,
                                            &both[i]->session, &fixture->error));
    }
}
