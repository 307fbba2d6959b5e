/* driver_mysql_connections.c: connections of the MySQL driver that break or seem to, who owns the
 * ledger, servers that will not do, and the schema. */
#include <pthread.h>
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
#include "mysql_fixture.h"

/* --- connections that break --- */

static void test_driver_mysql__an_idle_connection_that_broke_is_replaced(void **state)
{
    struct fixture *fixture = *state;
    struct sql reader = {.driver = driver, .session = open_session(fixture, SESSION_READER)};

    check(fixture, run_1(fixture, &reader, STATEMENT_policy_by_id, 1));
    kill_connection(fixture, connection_of(&reader));
    check(fixture, run_1(fixture, &reader, STATEMENT_policy_by_id, 1));
    driver->session_close(reader.session);

    kill_connection(fixture, connection_of(&fixture->a));
    check(fixture, begin(fixture, &fixture->a));
    check(fixture, block(fixture, &fixture->a, "u1"));
    check(fixture, driver->commit(fixture->a.session, &fixture->error));
    assert_int_equal(blocked_count(fixture), 1);
}

static void test_driver_mysql__a_transaction_does_not_survive_its_connection(void **state)
{
    struct fixture *fixture = *state;

    check(fixture, begin(fixture, &fixture->a));
    check(fixture, block(fixture, &fixture->a, "u1"));
    kill_connection(fixture, connection_of(&fixture->a));
    assert_int_equal(block(fixture, &fixture->a, "u2"), STATUS_UNAVAILABLE);
    assert_int_equal(block(fixture, &fixture->a, "u3"), STATUS_UNAVAILABLE);
    assert_int_equal(driver->commit(fixture->a.session, &fixture->error), STATUS_UNAVAILABLE);
    driver->rollback(fixture->a.session);
    assert_int_equal(blocked_count(fixture), 0);
    check(fixture, begin(fixture, &fixture->a));
    driver->rollback(fixture->a.session);
}

/* The server still has the transaction open when we come back: it is ended before we go on. */
static void test_driver_mysql__the_former_connection_is_ended_first(void **state)
{
    struct fixture *fixture = *state;
    char text[128];

    check(fixture, begin(fixture, &fixture->a));
    check(fixture, run_1(fixture, &fixture->a, STATEMENT_policy_for_update, 1));
    check(fixture, block(fixture, &fixture->a, "u1"));
    int64_t former = connection_of(&fixture->a);
    int kept = cut_off(&fixture->a);
    assert_int_equal(driver->commit(fixture->a.session, &fixture->error), STATUS_UNKNOWN);
    driver->rollback(fixture->a.session);

    check(fixture, begin(fixture, &fixture->a));
    snprintf(text, sizeof(text),
             "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id = %lld",
             (long long)former);
    assert_int_equal(number_of(fixture->beside, text), 0);
    check(fixture, run_1(fixture, &fixture->a, STATEMENT_policy_for_update, 1));
    driver->rollback(fixture->a.session);
    assert_int_equal(blocked_count(fixture), 0);
    close(kept);
}

/* The fixture's own sessions, which share the ledger, end. */
static void close_sharers(struct fixture *fixture)
{
    driver->session_close(fixture->a.session);
    driver->session_close(fixture->b.session);
    fixture->a.session = fixture->b.session = NULL;
}

/* Their gates would sell the same stock. */
static void test_driver_mysql__sharers_and_an_owner_exclude_each_other(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store = open_store(fixture, LEDGER_OWN, TIMEOUT_MS);
    struct ledger_session *owner = NULL;
    struct ledger_session *sharer = NULL;

    /* One of two is enough. */
    driver->session_close(fixture->a.session);
    fixture->a.session = NULL;
    assert_int_equal(driver->session_open(store, SESSION_WRITER, &owner, &fixture->error),
                     STATUS_CONFLICT);
    assert_non_null(strstr(fixture->error.text, "a gate in Redis"));
    close_sharers(fixture);
    check(fixture, driver->session_open(store, SESSION_WRITER, &owner, &fixture->error));
    assert_int_equal(driver->session_open(fixture->store, SESSION_WRITER, &sharer, &fixture->error),
                     STATUS_CONFLICT);
    assert_non_null(strstr(fixture->error.text, "a gate in Redis"));
    driver->session_close(owner);
    driver->store_close(store);
}

static void test_driver_mysql__an_owner_takes_the_ledger_back_from_itself_only(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store = open_store(fixture, LEDGER_OWN, TIMEOUT_MS);
    struct ledger_store *other_store = open_store(fixture, LEDGER_OWN, TIMEOUT_MS);
    struct sql owner = {.driver = driver};
    struct ledger_session *other = NULL;
    char words[64];

    close_sharers(fixture);
    check(fixture, driver->session_open(store, SESSION_WRITER, &owner.session, &fixture->error));
    int kept = cut_off(&owner);
    check(fixture, begin(fixture, &owner));
    driver->rollback(owner.session);
    close(kept);
    /* Others are told who it is. */
    assert_int_equal(driver->session_open(other_store, SESSION_WRITER, &other, &fixture->error),
                     STATUS_CONFLICT);
    snprintf(words, sizeof(words), "connection %lld of user", (long long)connection_of(&owner));
    assert_non_null(strstr(fixture->error.text, words));
    /* Another process that became the owner meanwhile is left alone. */
    kill_connection(fixture, connection_of(&owner));
    check(fixture, driver->session_open(other_store, SESSION_WRITER, &other, &fixture->error));
    assert_int_equal(begin(fixture, &owner), STATUS_CONFLICT);
    driver->session_close(other);
    check(fixture, begin(fixture, &owner));
    driver->rollback(owner.session);
    driver->session_close(owner.session);
    driver->store_close(store);
    driver->store_close(other_store);
}

struct waiting {
    struct sql *sql;
    enum status status;
};

static void *lock_policy_1(void *context)
{
    struct waiting *waiting = context;
    size_t rows = 0;
    waiting->status =
        SQL_RUN(waiting->sql, STATEMENT_policy_for_update, note_row, &rows, NULL, sql_i64(1));
    return NULL;
}

/* A statement that is interrupted does not end its connection. */
static void test_driver_mysql__an_interrupted_statement_is_unavailable(void **state)
{
    struct fixture *fixture = *state;
    struct waiting waiting = {.sql = &fixture->a};
    pthread_t thread;
    char text[128];

    be_patient(fixture);
    check(fixture, begin(fixture, &fixture->b));
    check(fixture, run_1(fixture, &fixture->b, STATEMENT_policy_for_update, 1));
    check(fixture, begin(fixture, &fixture->a));
    int64_t id = connection_of(&fixture->a);
    assert_int_equal(pthread_create(&thread, NULL, lock_policy_1, &waiting), 0);
    await_lock_wait(fixture);
    snprintf(text, sizeof(text), "KILL QUERY %lld", (long long)id);
    execute(fixture->beside, text);
    pthread_join(thread, NULL);
    assert_int_equal(waiting.status, STATUS_UNAVAILABLE);
    assert_int_equal(connection_of(&fixture->a), id);
    driver->rollback(fixture->a.session);
    driver->rollback(fixture->b.session);
}

/* --- servers that will not do --- */

static void test_driver_mysql__a_read_only_server_is_not_written_to(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_session *writer = NULL;

    execute(fixture->beside, "SET GLOBAL read_only = 1");
    assert_int_equal(driver->session_open(fixture->store, SESSION_WRITER, &writer, &fixture->error),
                     STATUS_UNAVAILABLE);
    assert_non_null(strstr(fixture->error.text, "read-only"));
    /* One that turns read-only is left, because another may be the primary now. */
    check(fixture, begin(fixture, &fixture->a));
    assert_int_equal(block(fixture, &fixture->a, "u1"), STATUS_UNAVAILABLE);
    assert_null(fixture->a.session->link.mysql);
    driver->rollback(fixture->a.session);
    assert_int_equal(begin(fixture, &fixture->a), STATUS_UNAVAILABLE);
    /* Whoever only reads does not mind. */
    driver->session_close(open_session(fixture, SESSION_READER));
    execute(fixture->beside, "SET GLOBAL read_only = 0");
    check(fixture, begin(fixture, &fixture->a));
    check(fixture, block(fixture, &fixture->a, "u1"));
    check(fixture, driver->commit(fixture->a.session, &fixture->error));
    assert_int_equal(blocked_count(fixture), 1);
}

static void test_driver_mysql__commits_that_may_be_lost_are_warned_of(void **state)
{
    struct fixture *fixture = *state;
    char text[1024];
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    log_configure(LOG_WARN, LOG_LOGFMT, ends[1]);
    driver->session_close(open_session(fixture, SESSION_WRITER));
    execute(fixture->beside, "SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    driver->session_close(open_session(fixture, SESSION_WRITER));
    log_configure(LOG_ERROR + 1, LOG_LOGFMT, STDERR_FILENO);
    close(ends[1]);
    ssize_t length = read(ends[0], text, sizeof(text) - 1);
    close(ends[0]);
    assert_true(length > 0);
    text[length] = '\0';
    assert_non_null(strstr(text, "setting=innodb_flush_log_at_trx_commit value=2"));
    assert_null(strstr(strstr(text, "value=2"), "setting=innodb_flush"));
}

/* --- the schema --- */

static void test_driver_mysql__a_migration_that_was_cut_short_is_run_again(void **state)
{
    struct fixture *fixture = *state;
    int version = 0;

    execute(fixture->beside, "DELETE FROM schema_migration WHERE number > 1");
    execute(fixture->beside, "DROP TABLE writer");
    check(fixture, driver->schema_version(fixture->a.session, &version, &fixture->error));
    assert_int_equal(version, 1);
    check(fixture, migrate_run(&fixture->a, LEDGER_MIGRATION_APPLY, NULL, NULL, &fixture->error));
    check(fixture, driver->schema_version(fixture->a.session, &version, &fixture->error));
    assert_true(version >= 2);
    assert_int_equal(number_of(fixture->beside, "SELECT COUNT(*) FROM writer"), 0);
}

static void test_driver_mysql__one_migrates_at_a_time(void **state)
{
    struct fixture *fixture = *state;

    check(fixture, driver->schema_lock(fixture->a.session, &fixture->error));
    assert_int_equal(driver->schema_lock(fixture->b.session, &fixture->error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(fixture->error.text, "connection"));
    driver->schema_unlock(fixture->a.session);
    check(fixture, driver->schema_lock(fixture->b.session, &fixture->error));
    driver->schema_unlock(fixture->b.session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MYSQL_TEST(test_driver_mysql__an_idle_connection_that_broke_is_replaced),
        MYSQL_TEST(test_driver_mysql__a_transaction_does_not_survive_its_connection),
        MYSQL_TEST(test_driver_mysql__the_former_connection_is_ended_first),
        MYSQL_TEST(test_driver_mysql__sharers_and_an_owner_exclude_each_other),
        MYSQL_TEST(test_driver_mysql__an_owner_takes_the_ledger_back_from_itself_only),
        MYSQL_TEST(test_driver_mysql__an_interrupted_statement_is_unavailable),
        MYSQL_TEST(test_driver_mysql__a_read_only_server_is_not_written_to),
        MYSQL_TEST(test_driver_mysql__commits_that_may_be_lost_are_warned_of),
        MYSQL_TEST(test_driver_mysql__a_migration_that_was_cut_short_is_run_again),
        MYSQL_TEST(test_driver_mysql__one_migrates_at_a_time),
    };
    return cmocka_run_group_tests_name("driver_mysql_connections", tests, NULL, NULL);
}
