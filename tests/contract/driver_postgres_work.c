/* driver_postgres_work.c: locks, limits, rows, batches and migrations on the PostgreSQL driver. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "postgres_fixture.h"

/* --- locks and limits --- */

static enum status lock_policy(struct sql *sql, int64_t id, struct error *error)
{
    return SQL_WRITE(sql, STATEMENT_policy_for_update, error, sql_i64(id));
}

static void put_policies(struct fixture *fixture)
{
    ask(fixture->admin, "INSERT INTO policy (id, name, discount_type, discount_value, total,"
                        " per_user_limit, reserve, paused, created_at, version, unleased, next_seq)"
                        " SELECT id, 'p', 'fixed', 1, 1000000, 1, 0, 0, 1, 1, 0, 1"
                        " FROM generate_series(1, 2) id");
}

struct crossing {
    struct fixture *fixture;
    struct sql sql;
    enum status status;
};

static void *lock_the_first(void *context)
{
    struct crossing *crossing = context;
    struct error error;

    crossing->status = lock_policy(&crossing->sql, 1, &error);
    driver->rollback(crossing->sql.session);
    return NULL;
}

static void test_postgres__locks_are_busy(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct ledger_store *hasty_store;
    struct crossing crossing = {.fixture = fixture};
    struct sql sql;
    struct sql hasty;
    pthread_t thread;

    open_session(fixture, SESSION_WRITER, TIMEOUT_MS, &sql, &store);
    put_policies(fixture);
    assert_ok(fixture, open_as(fixture, SESSION_WRITER, LEDGER_SHARE, TIMEOUT_SHORT_MS, &hasty,
                               &hasty_store));
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, lock_policy(&sql, 1, &fixture->error));
    assert_ok(fixture, driver->begin(hasty.session, &fixture->error));
    assert_status(fixture, lock_policy(&hasty, 1, &fixture->error), STATUS_BUSY);
    driver->rollback(hasty.session);

    assert_ok(fixture,
              driver->session_open(store, SESSION_WRITER, &crossing.sql.session, &fixture->error));
    crossing.sql.driver = driver;
    assert_ok(fixture, driver->begin(crossing.sql.session, &fixture->error));
    assert_ok(fixture, lock_policy(&crossing.sql, 2, &fixture->error));
    assert_int_equal(pthread_create(&thread, NULL, lock_the_first, &crossing), 0);
    enum status status = lock_policy(&sql, 2, &fixture->error);
    driver->rollback(sql.session);
    pthread_join(thread, NULL);
    assert_true((status == STATUS_BUSY) != (crossing.status == STATUS_BUSY));
    assert_true((status == STATUS_OK) != (crossing.status == STATUS_OK));

    driver->session_close(crossing.sql.session);
    close_both(&hasty, hasty_store);
    close_both(&sql, store);
}

static void test_postgres__slow_statement_is_given_up(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;

    open_session(fixture, SESSION_WRITER, TIMEOUT_SHORT_MS, &sql, &store);
    pid_t backend = backend_of(fixture);
    put_trigger(fixture, "blocked_user", "at once", "PERFORM pg_sleep(60);");
    assert_status(fixture, block(&sql, "someone", &fixture->error), STATUS_UNAVAILABLE);
    /* The server itself gave it up, and the connection is good. */
    assert_int_equal(backend_of(fixture), backend);
    close_both(&sql, store);
}

static void test_postgres__commits_are_durable_whatever_the_role_says(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;

    ask(fixture->admin, "ALTER DATABASE %s SET synchronous_commit = off", fixture->name);
    open_session(fixture, SESSION_WRITER, TIMEOUT_MS, &sql, &store);
    put_trigger(fixture, "blocked_user", "at once",
                "IF current_setting('synchronous_commit') <> 'on' THEN RAISE 'not durable';"
                " END IF;");
    assert_ok(fixture, block(&sql, "someone", &fixture->error));
    close_both(&sql, store);

    ask(fixture->admin, "ALTER DATABASE %s SET synchronous_commit = remote_apply", fixture->name);
    ask(fixture->admin, "DROP FUNCTION act CASCADE");
    put_trigger(fixture, "blocked_user", "at once",
                "IF current_setting('synchronous_commit') <> 'remote_apply' THEN RAISE 'less';"
                " END IF;");
    assert_ok(fixture, open_as(fixture, SESSION_WRITER, LEDGER_SHARE, TIMEOUT_MS, &sql, &store));
    assert_ok(fixture, block(&sql, "another", &fixture->error));
    close_both(&sql, store);
}

/* --- rows --- */

static enum status count_row(void *context, const struct sql_value *columns, struct error *error)
{
    (void)columns;
    (void)error;
    ++*(int64_t *)context;
    return STATUS_OK;
}

static enum status refuse_row(void *context, const struct sql_value *columns, struct error *error)
{
    (void)columns;
    return ++*(int64_t *)context == 10 ? error_set(error, STATUS_INVALID, "enough") : STATUS_OK;
}

#define SCAN_ROWS 200000 /* more than all buffers on the way hold */

/* In all longer than the server lets a statement run, and than the driver waits for an answer. */
static enum status dawdle(void *context, const struct sql_value *columns, struct error *error)
{
    (void)columns;
    (void)error;
    if (++*(int64_t *)context % (SCAN_ROWS / 4) == 1)
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
    return STATUS_OK;
}

static void put_coupons(struct fixture *fixture, int64_t first, int64_t count)
{
    ask(fixture->admin,
        "INSERT INTO coupon (policy_id, seq, lease_id, requested_at, issued_at, nth, slot,"
        " request_id, user_id, state)"
        " SELECT 1, seq, 1, 1, 1, 1, 1, '\\x00112233445566778899aabbccddeeff', 'user-' || seq,"
        " 'ISSUED' FROM generate_series(%lld::bigint, %lld) seq",
        (long long)first, (long long)(first + count - 1));
}

static enum status scan(struct sql *sql, sql_row_fn row, int64_t *count, struct error *error)
{
    *count = 0;
    return SQL_RUN(sql, STATEMENT_coupon_scan, row, count, error, sql_i64(1),
                   sql_i64(POLICY_ID_MAX));
}

static void test_postgres__snapshot_is_long_and_of_one_moment(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;
    int64_t count = 0;

    open_session(fixture, SESSION_READER, TIMEOUT_SHORT_MS, &sql, &store);
    put_coupons(fixture, 1, SCAN_ROWS);
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, scan(&sql, dawdle, &count, &fixture->error));
    assert_int_equal(count, SCAN_ROWS);
    put_coupons(fixture, SCAN_ROWS + 1, 5);
    assert_ok(fixture, scan(&sql, count_row, &count, &fixture->error));
    assert_int_equal(count, SCAN_ROWS);
    assert_ok(fixture, driver->commit(sql.session, &fixture->error));

    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_status(fixture, scan(&sql, refuse_row, &count, &fixture->error), STATUS_INVALID);
    assert_int_equal(count, 10);
    driver->rollback(sql.session);
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, scan(&sql, count_row, &count, &fixture->error));
    assert_int_equal(count, SCAN_ROWS + 5);
    driver->rollback(sql.session);
    close_both(&sql, store);
}

static void test_postgres__reader_cannot_write(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;

    open_session(fixture, SESSION_READER, TIMEOUT_MS, &sql, &store);
    assert_int_not_equal(block(&sql, "someone", &fixture->error), STATUS_OK);
    assert_int_equal(blocked_count(fixture), 0);
    close_both(&sql, store);
}

struct kept {
    struct sql_value columns[2];
    char bytes[256];
    int64_t numbers[2];
};

static enum status keep_row(void *context, const struct sql_value *columns, struct error *error)
{
    struct kept *kept = context;

    (void)error;
    kept->columns[0] = columns[0];
    if (columns[0].kind == SQL_BLOB || columns[0].kind == SQL_TEXT)
        memcpy(kept->bytes, columns[0].bytes.bytes, columns[0].bytes.length);
    return STATUS_OK;
}

static void test_postgres__values_come_back_as_they_were(void **state)
{
    static const int64_t numbers[] = {INT64_MIN, -1, 0, 1, INT64_MAX};
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;
    struct kept kept = {0};
    uint8_t bytes[256];
    int64_t changed = 0;

    open_session(fixture, SESSION_WRITER, TIMEOUT_MS, &sql, &store);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    assert_ok(fixture, SQL_WRITE(&sql, STATEMENT_secret_insert, &fixture->error,
                                 sql_text(SPAN("all")), sql_blob(bytes, sizeof(bytes))));
    assert_ok(fixture, SQL_WRITE(&sql, STATEMENT_secret_insert, &fixture->error, sql_text(SPAN("")),
                                 sql_blob(bytes, 0)));
    assert_ok(fixture, SQL_RUN(&sql, STATEMENT_secret_by_name, keep_row, &kept, &fixture->error,
                               sql_text(SPAN("all"))));
    assert_int_equal(kept.columns[0].kind, SQL_BLOB);
    assert_int_equal(kept.columns[0].bytes.length, sizeof(bytes));
    assert_memory_equal(kept.bytes, bytes, sizeof(bytes));
    assert_ok(fixture, SQL_RUN(&sql, STATEMENT_secret_by_name, keep_row, &kept, &fixture->error,
                               sql_text(SPAN(""))));
    assert_int_equal(kept.columns[0].kind, SQL_BLOB);
    assert_int_equal(kept.columns[0].bytes.length, 0);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (i == 0)
            assert_ok(fixture, SQL_WRITE(&sql, STATEMENT_writer_enter, &fixture->error,
                                         sql_text(SPAN("w")), sql_text(SPAN(""))));
        assert_ok(fixture, SQL_CHANGE(&sql, STATEMENT_writer_move, &changed, &fixture->error,
                                      sql_text(SPAN("w")), sql_i64(i == 0 ? 1 : numbers[i - 1]),
                                      sql_i64(numbers[i])));
        assert_int_equal(changed, 1);
        assert_ok(fixture, SQL_RUN(&sql, STATEMENT_writer_read, keep_row, &kept, &fixture->error,
                                   sql_text(SPAN("w"))));
        assert_int_equal(kept.columns[0].number, numbers[i]);
    }
    assert_ok(fixture, SQL_CHANGE(&sql, STATEMENT_writer_move, &changed, &fixture->error,
                                  sql_text(SPAN("w")), sql_i64(5), sql_i64(6)));
    assert_int_equal(changed, 0);
    close_both(&sql, store);
}

/* --- batches --- */

#define BATCH_ROWS 25000

static struct coupon_row *make_rows(size_t count)
{
    struct claim *claims = calloc(count, sizeof(*claims));
    struct coupon_row *rows = calloc(count, sizeof(*rows));

    for (size_t i = 0; i < count; i++) {
        char user[32];
        snprintf(user, sizeof(user), "user-%zu", i + 1);
        claims[i] = (struct claim){.policy_id = 1,
                                   .seq = (int64_t)i + 1,
                                   .lease_id = 1,
                                   .requested_at_ms = 1,
                                   .nth = 1,
                                   .user = id_of(span_of(user))};
        rows[i] =
            (struct coupon_row){.claim = &claims[i], .state = COUPON_ISSUED, .issued_at_ms = 1};
    }
    return rows;
}

static void free_rows(struct coupon_row *rows)
{
    free((void *)(uintptr_t)rows[0].claim);
    free(rows);
}

static void test_postgres__large_batch_flags_what_is_there(void **state)
{
    static const int64_t present[] = {7, 10000, 10001, 24999};
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;
    struct coupon_row *rows = make_rows(BATCH_ROWS);
    size_t flagged = 0;

    open_session(fixture, SESSION_WRITER, TIMEOUT_MS, &sql, &store);
    for (size_t i = 0; i < sizeof(present) / sizeof(present[0]); i++)
        put_coupons(fixture, present[i], 1);
    const struct claim *last = rows[BATCH_ROWS - 1].claim;
    rows[BATCH_ROWS - 1].claim = rows[BATCH_ROWS - 2000].claim; /* twice in one statement */
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, driver->insert_coupons(sql.session, rows, BATCH_ROWS, &fixture->error));
    assert_ok(fixture, driver->commit(sql.session, &fixture->error));
    for (size_t i = 0; i < BATCH_ROWS; i++)
        flagged += rows[i].conflicts;
    assert_int_equal(flagged, 5);
    for (size_t i = 0; i < sizeof(present) / sizeof(present[0]); i++)
        assert_true(rows[present[i] - 1].conflicts);
    assert_true(rows[BATCH_ROWS - 1].conflicts);
    assert_int_equal(ask(fixture->admin, "SELECT COUNT(*) FROM coupon"), BATCH_ROWS - 1);
    rows[BATCH_ROWS - 1].claim = last;
    free_rows(rows);
    close_both(&sql, store);
}

static void test_postgres__bad_row_is_told_from_a_taken_slot(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;
    struct coupon_row *rows = make_rows(4);
    struct claim other = *rows[1].claim;

    open_session(fixture, SESSION_WRITER, TIMEOUT_MS, &sql, &store);
    ask(fixture->admin, "ALTER TABLE coupon ADD CHECK (user_id <> 'user-3')");
    other.seq = 100;
    struct coupon_row taken = rows[1];
    taken.claim = &other;
    assert_ok(fixture, driver->begin(sql.session, &fixture->error));
    assert_ok(fixture, driver->insert_coupons(sql.session, rows, 2, &fixture->error));
    assert_ok(fixture, driver->savepoint(sql.session, &fixture->error));
    assert_status(fixture, driver->insert_coupons(sql.session, &taken, 1, &fixture->error),
                  STATUS_CONFLICT);
    assert_ok(fixture, driver->savepoint_end(sql.session, false, &fixture->error));
    assert_ok(fixture, driver->savepoint(sql.session, &fixture->error));
    assert_status(fixture, driver->insert_coupons(sql.session, rows + 2, 2, &fixture->error),
                  STATUS_INVALID);
    assert_ok(fixture, driver->savepoint_end(sql.session, false, &fixture->error));
    assert_ok(fixture, driver->savepoint(sql.session, &fixture->error));
    assert_ok(fixture, driver->insert_coupons(sql.session, rows + 3, 1, &fixture->error));
    assert_ok(fixture, driver->savepoint_end(sql.session, true, &fixture->error));
    assert_ok(fixture, driver->commit(sql.session, &fixture->error));
    assert_int_equal(ask(fixture->admin, "SELECT SUM(seq) FROM coupon"), 1 + 2 + 4);
    free_rows(rows);
    close_both(&sql, store);
}

/* --- the schema --- */

static void test_postgres__migration_is_whole_or_not_at_all(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct sql sql;
    int version = 0;

    open_session(fixture, SESSION_SCHEMA, TIMEOUT_MS, &sql, &store);
    assert_ok(fixture, driver->schema_version(sql.session, &version, &fixture->error));
    int newest = version;
    assert_true(newest > 0);
    assert_ok(fixture, driver->schema_lock(sql.session, &fixture->error));
    assert_status(fixture,
                  driver->schema_apply(sql.session, newest + 1, "bad",
                                       "CREATE TABLE half (x int); SELECT 1 / 0;", &fixture->error),
                  STATUS_FAILED);
    assert_non_null(strstr(fixture->error.text, "division by zero"));
    assert_ok(fixture, driver->schema_version(sql.session, &version, &fixture->error));
    assert_int_equal(version, newest);
    assert_int_equal(ask(fixture->admin, "SELECT COUNT(to_regclass('half'))"), 0);
    assert_ok(fixture, driver->schema_apply(sql.session, newest + 1, "good",
                                            "CREATE TABLE half (x int); CREATE TABLE whole ();",
                                            &fixture->error));
    driver->schema_unlock(sql.session);
    assert_ok(fixture, driver->schema_version(sql.session, &version, &fixture->error));
    assert_int_equal(version, newest + 1);
    /* Another schema has a ledger of its own. */
    ask(fixture->admin, "CREATE SCHEMA elsewhere");
    ask(fixture->admin, "ALTER DATABASE %s SET search_path = elsewhere, public", fixture->name);
    close_both(&sql, store);
    assert_ok(fixture, open_as(fixture, SESSION_SCHEMA, LEDGER_SHARE, TIMEOUT_MS, &sql, &store));
    assert_ok(fixture, driver->schema_version(sql.session, &version, &fixture->error));
    assert_int_equal(version, 0);
    close_both(&sql, store);
}

static void test_postgres__one_migrates_at_a_time(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_store *store;
    struct ledger_store *second_store;
    struct sql sql;
    struct sql second;

    open_session(fixture, SESSION_SCHEMA, TIMEOUT_MS, &sql, &store);
    assert_ok(fixture, open_as(fixture, SESSION_SCHEMA, LEDGER_SHARE, TIMEOUT_SHORT_MS, &second,
                               &second_store));
    assert_ok(fixture, driver->schema_lock(sql.session, &fixture->error));
    assert_status(fixture, driver->schema_lock(second.session, &fixture->error),
                  STATUS_UNAVAILABLE);
    assert_non_null(strstr(fixture->error.text, "migrating"));
    driver->schema_unlock(sql.session);
    assert_ok(fixture, driver->schema_lock(second.session, &fixture->error));
    /* The lock ends with its connection, and nobody goes on without it. */
    end_connections(fixture);
    assert_status(
        fixture,
        driver->schema_apply(second.session, 99, "late", "CREATE TABLE late ();", &fixture->error),
        STATUS_UNAVAILABLE);
    driver->schema_unlock(second.session);
    assert_int_equal(ask(fixture->admin, "SELECT COUNT(to_regclass('late'))"), 0);
    close_both(&second, second_store);
    close_both(&sql, store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POSTGRES_TEST(test_postgres__locks_are_busy),
        POSTGRES_TEST(test_postgres__slow_statement_is_given_up),
        POSTGRES_TEST(test_postgres__commits_are_durable_whatever_the_role_says),
        POSTGRES_TEST(test_postgres__snapshot_is_long_and_of_one_moment),
        POSTGRES_TEST(test_postgres__reader_cannot_write),
        POSTGRES_TEST(test_postgres__values_come_back_as_they_were),
        POSTGRES_TEST(test_postgres__large_batch_flags_what_is_there),
        POSTGRES_TEST(test_postgres__bad_row_is_told_from_a_taken_slot),
        POSTGRES_TEST(test_postgres__migration_is_whole_or_not_at_all),
        POSTGRES_TEST(test_postgres__one_migrates_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
