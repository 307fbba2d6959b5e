/* driver_postgres.c: what the PostgreSQL driver makes of connections that end, servers that stop,
 * and those that it must not write to. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "postgres_fixture.h"

/* --- connections that end --- */

static void test_postgres__ended_idle_connection_is_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;

    open_session(fixture, SESSION_WRITER, TIMEOUT_MS, &sql, &store);
    end_connections(fixture);
    assert_ok(fixture, block(&sql, "outside", &fixture->error));
    end_connections(fixture);
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, block(&sql, "inside", &fixture->error));
    assert_ok(fixture, driver->commit(sql.session, &fixture->error));
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    end_connections(fixture);
    assert_ok(fixture, driver->savepoint(sql.session, &fixture->error));
    assert_ok(fixture, block(&sql, "behind a savepoint", &fixture->error));
    assert_ok(fixture, driver->savepoint_end(sql.session, true, &fixture->error));
    assert_ok(fixture, driver->commit(sql.session, &fixture->error));
    assert_int_equal(blocked_count(fixture), 3);
    close_both(&sql, store);
}

static void test_postgres__transaction_that_was_cut_off_is_not_committed(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;

    open_session(fixture, SESSION_WRITER, TIMEOUT_MS, &sql, &store);
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, block(&sql, "first", &fixture->error));
    end_connections(fixture);
    assert_status(fixture, block(&sql, "second", &fixture->error), STATUS_UNAVAILABLE);
    assert_status(fixture, block(&sql, "third", &fixture->error), STATUS_UNAVAILABLE);
    assert_status(fixture, driver->commit(sql.session, &fixture->error), STATUS_UNAVAILABLE);
    driver->rollback(sql.session);
    assert_int_equal(blocked_count(fixture), 0);
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, block(&sql, "again", &fixture->error));
    assert_ok(fixture, driver->commit(sql.session, &fixture->error));
    assert_int_equal(blocked_count(fixture), 1);
    close_both(&sql, store);
}

static void *end_committing_connection(void *context)
{
    struct fixture *fixture = context;

    await(fixture->admin, 1,
          "SELECT COUNT(*) " BACKENDS " AND query = 'COMMIT'"
          " AND state = 'active' AND wait_event = 'PgSleep'");
    end_connections(fixture);
    return NULL;
}

static void test_postgres__commit_without_an_answer_is_unknown(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;
    pthread_t thread;

    open_session(fixture, SESSION_WRITER, TIMEOUT_MS, &sql, &store);
    put_trigger(fixture, "blocked_user", "at commit", "PERFORM pg_sleep(60);");
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, block(&sql, "someone", &fixture->error));
    assert_int_equal(pthread_create(&thread, NULL, end_committing_connection, fixture), 0);
    assert_status(fixture, driver->commit(sql.session, &fixture->error), STATUS_UNKNOWN);
    pthread_join(thread, NULL);
    driver->rollback(sql.session);
    close_both(&sql, store);
}

static void test_postgres__refused_commit_is_none(void **state)
{
    static const struct {
        const char *code;
        enum status status;
    } cases[] = {{"40001", STATUS_BUSY},
                 {"53100", STATUS_UNAVAILABLE},
                 {"25006", STATUS_UNKNOWN}, /* it ends the connection: better look */
                 {"P0001", STATUS_FAILED}};
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;
    char body[128];

    open_session(fixture, SESSION_WRITER, TIMEOUT_MS, &sql, &store);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(body, sizeof(body), "RAISE 'no' USING ERRCODE = '%s';", cases[i].code);
        put_trigger(fixture, "blocked_user", "at commit", body);
        assert_ok(fixture, driver->begin(sql.session, &fixture->error));
        assert_ok(fixture, block(&sql, "someone", &fixture->error));
        assert_status(fixture, driver->commit(sql.session, &fixture->error), cases[i].status);
        driver->rollback(sql.session);
        assert_int_equal(blocked_count(fixture), 0);
        ask(fixture->admin, "DROP FUNCTION act CASCADE");
    }
    /* What failed before is not committed either, whatever the COMMIT looks like. */
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, block(&sql, "someone", &fixture->error));
    assert_status(
        fixture, SQL_WRITE(&sql, STATEMENT_blocked_insert, &fixture->error, sql_null(), sql_null()),
        STATUS_FAILED);
    assert_status(fixture, driver->commit(sql.session, &fixture->error), STATUS_FAILED);
    driver->rollback(sql.session);
    assert_int_equal(blocked_count(fixture), 0);
    close_both(&sql, store);
}

/* --- a server that stops --- */

static void test_postgres__stopped_server_hangs_nobody(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;

    open_session(fixture, SESSION_WRITER, TIMEOUT_SHORT_MS, &sql, &store);
    stop_backend(fixture);
    int64_t started_ms = clock_monotonic_ms();
    assert_status(fixture, block(&sql, "someone", &fixture->error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(fixture->error.text, "does not answer"));
    assert_in_range(clock_monotonic_ms() - started_ms, TIMEOUT_SHORT_MS, 3 * TIMEOUT_MS);
    continue_backend(fixture);
    assert_ok(fixture, block(&sql, "another", &fixture->error));
    close_both(&sql, store);
}

static void test_postgres__commit_to_a_stopped_server_is_unknown(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;

    open_session(fixture, SESSION_WRITER, TIMEOUT_SHORT_MS, &sql, &store);
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, SQL_WRITE(&sql, STATEMENT_writer_enter, &fixture->error,
                                 sql_text(SPAN("owner")), sql_text(SPAN("test"))));
    stop_backend(fixture);
    assert_status(fixture, driver->commit(sql.session, &fixture->error), STATUS_UNKNOWN);
    driver->rollback(sql.session);
    /* The look waits for the transaction that may still be committed. */
    assert_status(fixture,
                  SQL_WRITE(&sql, STATEMENT_writer_enter, &fixture->error, sql_text(SPAN("owner")),
                            sql_text(SPAN("test"))),
                  STATUS_BUSY);
    continue_backend(fixture);
    assert_ok(fixture, SQL_WRITE(&sql, STATEMENT_writer_enter, &fixture->error,
                                 sql_text(SPAN("owner")), sql_text(SPAN("test"))));
    close_both(&sql, store);
}

/* --- ownership --- */

static void test_postgres__owner_is_alone_and_named(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct ledger_store *second_store;
    struct sql sql;
    struct sql second;
    char pid[32];

    assert_ok(fixture, open_as(fixture, SESSION_WRITER, LEDGER_OWN, TIMEOUT_MS, &sql, &store));
    snprintf(pid, sizeof(pid), "process %d ", (int)backend_of(fixture));
    assert_status(fixture,
                  open_as(fixture, SESSION_WRITER, LEDGER_OWN, TIMEOUT_MS, &second, &second_store),
                  STATUS_CONFLICT);
    assert_non_null(strstr(fixture->error.text, pid));
    assert_non_null(strstr(fixture->error.text, "dibs"));
    close_both(&second, second_store);
    close_both(&sql, store);
    assert_ok(fixture,
              open_as(fixture, SESSION_WRITER, LEDGER_OWN, TIMEOUT_MS, &second, &second_store));
    close_both(&second, second_store);
}

/* Their gates would sell the same stock. */
static void test_postgres__sharers_and_an_owner_exclude_each_other(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *stores[2];
    struct ledger_store *store;
    struct sql sharers[2];
    struct sql sql;

    for (size_t i = 0; i < 2; i++)
        assert_ok(fixture, open_as(fixture, SESSION_WRITER, LEDGER_SHARE, TIMEOUT_MS, &sharers[i],
                                   &stores[i]));
    close_both(&sharers[0], stores[0]);
    assert_status(fixture,
                  open_as(fixture, SESSION_WRITER, LEDGER_OWN, TIMEOUT_SHORT_MS, &sql, &store),
                  STATUS_CONFLICT);
    assert_non_null(strstr(fixture->error.text, "a gate in Redis"));
    close_both(&sql, store);
    close_both(&sharers[1], stores[1]);
    assert_ok(fixture, open_as(fixture, SESSION_WRITER, LEDGER_OWN, TIMEOUT_MS, &sql, &store));
    assert_status(
        fixture,
        open_as(fixture, SESSION_WRITER, LEDGER_SHARE, TIMEOUT_SHORT_MS, &sharers[0], &stores[0]),
        STATUS_CONFLICT);
    close_both(&sharers[0], stores[0]);
    close_both(&sql, store);
}

static void test_postgres__owner_who_lost_it_comes_back(void **state)
{
    static const char lock[] = "%s(1684628083, hashtext(current_schema()))";
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;
    char take[128];
    char leave[128];

    snprintf(take, sizeof(take), lock, "SELECT pg_advisory_lock");
    snprintf(leave, sizeof(leave), lock, "SELECT pg_advisory_unlock");
    open_session(fixture, SESSION_READER, TIMEOUT_MS, &sql, &store);
    close_both(&sql, store);
    assert_ok(fixture, open_as(fixture, SESSION_WRITER, LEDGER_OWN, TIMEOUT_MS, &sql, &store));
    end_connections(fixture);
    ask(fixture->admin, "%s", take);
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_status(fixture, block(&sql, "someone", &fixture->error), STATUS_CONFLICT);
    assert_non_null(strstr(fixture->error.text, "in use"));
    driver->rollback(sql.session);
    ask(fixture->admin, "%s", leave);
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, block(&sql, "someone", &fixture->error));
    assert_ok(fixture, driver->commit(sql.session, &fixture->error));
    assert_int_equal(ask(fixture->admin, "SELECT COUNT(*) FROM pg_locks"
                                         " WHERE locktype = 'advisory' AND granted"),
                     1);
    close_both(&sql, store);
}

/* --- what is refused --- */

static void test_postgres__unfit_servers_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;
    char name[48];

    ask(fixture->admin, "ALTER DATABASE %s SET default_transaction_read_only = on", fixture->name);
    assert_status(fixture, open_as(fixture, SESSION_WRITER, LEDGER_SHARE, TIMEOUT_MS, &sql, &store),
                  STATUS_UNAVAILABLE);
    assert_non_null(strstr(fixture->error.text, "default_transaction_read_only"));
    close_both(&sql, store);
    assert_ok(fixture, open_as(fixture, SESSION_READER, LEDGER_SHARE, TIMEOUT_MS, &sql, &store));
    close_both(&sql, store);

    snprintf(name, sizeof(name), "%s_latin", fixture->name);
    ask(fixture->admin, "SET default_transaction_read_only = off");
    ask(fixture->admin, "CREATE DATABASE %s TEMPLATE template0 ENCODING LATIN1 LOCALE 'C'", name);
    struct fixture latin = *fixture;
    snprintf(latin.url, sizeof(latin.url), "%.*s/%s",
             (int)(strrchr(fixture->url, '/') - fixture->url), fixture->url, name);
    assert_status(&latin, open_as(&latin, SESSION_WRITER, LEDGER_SHARE, TIMEOUT_MS, &sql, &store),
                  STATUS_FAILED);
    assert_non_null(strstr(latin.error.text, "LATIN1"));
    close_both(&sql, store);
    ask(fixture->admin, "DROP DATABASE %s", name);
}

static void test_postgres__bad_urls_are_refused_without_their_passwords(void **state)
{
    static const char *const urls[] = {
        "postgres://dibs:tr%zzick@127.0.0.1/shop",
        "postgres://dibs:trick@127.0.0.1/shop?sslmod=require",
        "postgres://dibs:trick@[127.0.0.1/shop",
        "postgres://dibs@127.0.0.1/shop?password=trick=trick",
    };
    struct fixture *fixture = *state;
    struct ledger_store *store;

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        const struct store_options options = {.url = urls[i], .timeout_ms = TIMEOUT_MS};
        assert_status(fixture, driver->store_open(&store, &options, &fixture->error),
                      STATUS_INVALID);
        assert_null(strstr(fixture->error.text, "rick"));
    }
    struct fixture nobody = *fixture;
    struct sql sql;
    snprintf(nobody.url, sizeof(nobody.url), "postgres://dibs:trick@127.0.0.1:1/shop");
    assert_status(&nobody, open_as(&nobody, SESSION_WRITER, LEDGER_SHARE, TIMEOUT_MS, &sql, &store),
                  STATUS_UNAVAILABLE);
    assert_null(strstr(nobody.error.text, "trick"));
    close_both(&sql, store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POSTGRES_TEST(test_postgres__ended_idle_connection_is_replaced),
        POSTGRES_TEST(test_postgres__transaction_that_was_cut_off_is_not_committed),
        POSTGRES_TEST(test_postgres__commit_without_an_answer_is_unknown),
        POSTGRES_TEST(test_postgres__refused_commit_is_none),
        POSTGRES_TEST(test_postgres__stopped_server_hangs_nobody),
        POSTGRES_TEST(test_postgres__commit_to_a_stopped_server_is_unknown),
        POSTGRES_TEST(test_postgres__owner_is_alone_and_named),
        POSTGRES_TEST(test_postgres__sharers_and_an_owner_exclude_each_other),
        POSTGRES_TEST(test_postgres__owner_who_lost_it_comes_back),
        POSTGRES_TEST(test_postgres__unfit_servers_are_refused),
        POSTGRES_TEST(test_postgres__bad_urls_are_refused_without_their_passwords),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
