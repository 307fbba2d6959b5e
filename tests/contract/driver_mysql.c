/* driver_mysql.c: what the MySQL driver writes and reads, and what its transactions lock: batches,
 * values, locks, deadlocks, snapshots. */
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

#include "ledger/transactions.h"
#include "mysql_fixture.h"

#define ROWS_MAX 1100

struct batch {
    struct claim claims[ROWS_MAX];
    struct coupon_row rows[ROWS_MAX];
    size_t count;
};

static struct batch *batch_of(int64_t first_seq, size_t count)
{
    struct batch *batch = calloc(1, sizeof(*batch));

    assert_true(count <= ROWS_MAX);
    batch->count = count;
    for (size_t i = 0; i < count; i++) {
        char user[32];
        int64_t seq = first_seq + (int64_t)i;
        snprintf(user, sizeof(user), "user-%lld", (long long)seq);
        batch->claims[i] = (struct claim){.policy_id = 1,
                                          .seq = seq,
                                          .lease_id = 7,
                                          .requested_at_ms = NOW,
                                          .nth = 1,
                                          .user = id_of(span_of(user))};
        batch->rows[i] = (struct coupon_row){
            .claim = &batch->claims[i], .state = COUPON_ISSUED, .issued_at_ms = NOW};
    }
    return batch;
}

static enum status insert(struct fixture *fixture, struct sql *sql, struct batch *batch)
{
    return driver->insert_coupons(sql->session, batch->rows, batch->count, &fixture->error);
}

static void insert_and_commit(struct fixture *fixture, struct batch *batch)
{
    check(fixture, begin(fixture, &fixture->a));
    check(fixture, insert(fixture, &fixture->a, batch));
    check(fixture, driver->commit(fixture->a.session, &fixture->error));
}

/* --- batches --- */

static void test_driver_mysql__batches_of_every_size(void **state)
{
    struct fixture *fixture = *state;
    static const size_t sizes[] = {1, 2, 3, 5, 31, 500, 512, 513, 1100};
    int64_t seq = 1;

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct batch *batch = batch_of(seq, sizes[i]);
        insert_and_commit(fixture, batch);
        for (size_t j = 0; j < batch->count; j++)
            assert_false(batch->rows[j].conflicts);
        seq += (int64_t)sizes[i];
        assert_int_equal(number_of(fixture->beside, "SELECT COUNT(*) FROM coupon"), seq - 1);
        free(batch);
    }
    assert_int_equal(number_of(fixture->beside,
                               "SELECT COUNT(*) FROM coupon WHERE user_id <> CONCAT('user-', seq)"
                               " OR slot <> 1 OR expires_at IS NOT NULL OR reason IS NOT NULL"),
                     0);
}

static void test_driver_mysql__rows_in_the_way_are_flagged_alone(void **state)
{
    struct fixture *fixture = *state;
    struct batch *first = batch_of(100, 3);
    struct batch *batch = batch_of(1, 500);

    insert_and_commit(fixture, first);
    /* 100 to 102 are there; the user of 400 holds its slot elsewhere. */
    execute(fixture->beside,
            "INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id,"
            " requested_at, issued_at) VALUES (1, 9000, 'user-400', 1, 1, 'ISSUED', '', 7, 1, 1)");
    /* The user of 7 comes again with 8, and 9 comes twice; a void one takes no slot. */
    batch->claims[7].user = batch->claims[6].user;
    batch->claims[9].seq = 9;
    batch->claims[11].user = batch->claims[10].user;
    batch->rows[11].state = COUPON_VOID;
    insert_and_commit(fixture, batch);
    for (size_t i = 0; i < batch->count; i++) {
        int64_t seq = (int64_t)i + 1;
        assert_int_equal(batch->rows[i].conflicts,
                         (seq >= 100 && seq <= 102) || seq == 400 || seq == 8 || seq == 10);
    }
    assert_int_equal(number_of(fixture->beside, "SELECT COUNT(*) FROM coupon"), 498);
    free(first);
    free(batch);
}

static void test_driver_mysql__a_refused_row_is_invalid(void **state)
{
    struct fixture *fixture = *state;
    struct batch *batch = batch_of(1, 8);

    execute(fixture->beside, "ALTER TABLE coupon ADD CONSTRAINT odd CHECK (user_id <> 'user-5')");
    check(fixture, begin(fixture, &fixture->a));
    assert_int_equal(insert(fixture, &fixture->a, batch), STATUS_INVALID);
    driver->rollback(fixture->a.session);
    assert_int_equal(number_of(fixture->beside, "SELECT COUNT(*) FROM coupon"), 0);
    free(batch);
}

/* --- statements --- */

/* Against the schema, so that none can name a column that is not there. Each server has a limit for
 * statements that the other does not know. */
static void test_driver_mysql__all_statements_compile(void **state)
{
    struct fixture *fixture = *state;
    MYSQL *mysql = fixture->a.session->link.mysql;
    enum statement others =
        mariadb_connection(mysql) ? STATEMENT_session_limit_mysql : STATEMENT_session_limit_mariadb;

    for (int i = 0; i < STATEMENT_COUNT; i++) {
        uint8_t order[LEDGER_MYSQL_VALUES_MAX];
        struct buffer text;

        if (mysql_statements[i] == NULL || i == (int)others)
            continue;
        buffer_init(&text, SIZE_MAX / 2);
        ledger_mysql_take_numbers(&text, mysql_statements[i], order, LEDGER_MYSQL_VALUES_MAX);
        MYSQL_STMT *handle = mysql_stmt_init(mysql);
        if (mysql_stmt_prepare(handle, text.bytes, text.length) != 0)
            fail_msg("%s: %s", statement_names[i], mysql_stmt_error(handle));
        mysql_stmt_close(handle);
        buffer_release(&text);
    }
}

/* --- values --- */

static void test_driver_mysql__unchanged_rows_count_as_changed(void **state)
{
    struct fixture *fixture = *state;
    int64_t changed = 0;

    check(fixture, begin(fixture, &fixture->a));
    check(fixture, SQL_CHANGE(&fixture->a, STATEMENT_lease_shrink, &changed, &fixture->error,
                              sql_i64(7), sql_i64(10000)));
    assert_int_equal(changed, 1);
    driver->rollback(fixture->a.session);
}

static enum status stop_at_third(void *context, const struct sql_value *columns,
                                 struct error *error)
{
    size_t *count = context;
    assert_int_equal(columns[1].number, (int64_t)++*count);
    return *count == 3 ? error_set(error, STATUS_NOT_FOUND, "enough") : STATUS_OK;
}

static void test_driver_mysql__a_scan_can_be_ended(void **state)
{
    struct fixture *fixture = *state;
    struct batch *batch = batch_of(1, 1000);
    size_t count = 0;

    insert_and_commit(fixture, batch);
    check(fixture, begin(fixture, &fixture->a));
    assert_int_equal(SQL_RUN(&fixture->a, STATEMENT_coupon_scan, stop_at_third, &count,
                             &fixture->error, sql_i64(1), sql_i64(POLICY_ID_MAX)),
                     STATUS_NOT_FOUND);
    assert_int_equal(count, 3);
    check(fixture, run_1(fixture, &fixture->a, STATEMENT_policy_by_id, 1));
    driver->rollback(fixture->a.session);
    free(batch);
}

/* --- locks --- */

static void test_driver_mysql__issuing_shares_a_lease_and_closing_excludes(void **state)
{
    struct fixture *fixture = *state;

    check(fixture, begin(fixture, &fixture->a));
    check(fixture, begin(fixture, &fixture->b));
    check(fixture, run_1(fixture, &fixture->a, STATEMENT_lease_for_issue, 7));
    check(fixture, run_1(fixture, &fixture->b, STATEMENT_lease_for_issue, 7));
    /* Neither holds the policy. */
    check(fixture, run_1(fixture, &fixture->a, STATEMENT_policy_for_update, 1));
    assert_int_equal(run_1(fixture, &fixture->b, STATEMENT_lease_for_update, 7), STATUS_BUSY);
    driver->rollback(fixture->a.session);
    driver->rollback(fixture->b.session);
}

static void test_driver_mysql__locking_a_coupon_leaves_its_policy_free(void **state)
{
    struct fixture *fixture = *state;
    struct batch *batch = batch_of(1, 1);
    size_t rows = 0;

    insert_and_commit(fixture, batch);
    check(fixture, begin(fixture, &fixture->a));
    check(fixture, begin(fixture, &fixture->b));
    check(fixture, SQL_RUN(&fixture->a, STATEMENT_coupon_for_update, note_row, &rows,
                           &fixture->error, sql_i64(1), sql_i64(1)));
    assert_int_equal(rows, 1);
    check(fixture, run_1(fixture, &fixture->b, STATEMENT_policy_for_update, 1));
    assert_int_equal(SQL_RUN(&fixture->b, STATEMENT_coupon_for_update, note_row, &rows,
                             &fixture->error, sql_i64(1), sql_i64(1)),
                     STATUS_BUSY);
    driver->rollback(fixture->a.session);
    driver->rollback(fixture->b.session);
    free(batch);
}

static enum status insert_policy(struct fixture *fixture, struct sql *sql, int64_t id)
{
    const struct policy policy = {.id = id,
                                  .name = "two",
                                  .discount_value = 1,
                                  .total = 1,
                                  .per_user_limit = 1,
                                  .created_at_ms = NOW};

    return transaction_insert_policy(sql, &policy, &fixture->error);
}

static void test_driver_mysql__an_id_taken_meanwhile_is_tried_again(void **state)
{
    struct fixture *fixture = *state;

    check(fixture, begin(fixture, &fixture->a));
    check(fixture, begin(fixture, &fixture->b));
    check(fixture, insert_policy(fixture, &fixture->a, 2));
    check(fixture, driver->commit(fixture->a.session, &fixture->error));
    assert_int_equal(insert_policy(fixture, &fixture->b, 2), STATUS_BUSY);
    driver->rollback(fixture->b.session);
}

/* --- transactions that the server ends --- */

struct waiting {
    struct fixture *fixture;
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

static void test_driver_mysql__after_a_deadlock_nothing_more_is_written(void **state)
{
    struct fixture *fixture = *state;
    struct waiting waiting = {.fixture = fixture, .sql = &fixture->a};
    pthread_t thread;

    be_patient(fixture);
    check(fixture, begin(fixture, &fixture->a));
    check(fixture, insert_policy(fixture, &fixture->a, 2)); /* The one with more to undo stays. */
    check(fixture, begin(fixture, &fixture->b));
    check(fixture, run_1(fixture, &fixture->b, STATEMENT_policy_for_update, 1));
    assert_int_equal(pthread_create(&thread, NULL, lock_policy_1, &waiting), 0);
    await_lock_wait(fixture);
    assert_int_equal(run_1(fixture, &fixture->b, STATEMENT_policy_for_update, 2), STATUS_BUSY);
    assert_int_equal(fixture->b.session->link.code, 1213);
    assert_int_equal(block(fixture, &fixture->b, "u1"), STATUS_BUSY);
    assert_int_equal(driver->savepoint_end(fixture->b.session, true, &fixture->error), STATUS_BUSY);
    assert_int_equal(driver->commit(fixture->b.session, &fixture->error), STATUS_BUSY);
    driver->rollback(fixture->b.session);
    assert_int_equal(blocked_count(fixture), 0);
    pthread_join(thread, NULL);
    check(fixture, waiting.status);
    check(fixture, driver->commit(fixture->a.session, &fixture->error));
    /* The session is as good as new. */
    check(fixture, begin(fixture, &fixture->b));
    check(fixture, block(fixture, &fixture->b, "u2"));
    check(fixture, driver->commit(fixture->b.session, &fixture->error));
    assert_int_equal(blocked_count(fixture), 1);
}

static void test_driver_mysql__a_savepoint_undoes_one_write(void **state)
{
    struct fixture *fixture = *state;

    check(fixture, begin(fixture, &fixture->a));
    check(fixture, driver->savepoint(fixture->a.session, &fixture->error));
    check(fixture, block(fixture, &fixture->a, "u1"));
    check(fixture, driver->savepoint_end(fixture->a.session, true, &fixture->error));
    check(fixture, driver->savepoint(fixture->a.session, &fixture->error));
    check(fixture, block(fixture, &fixture->a, "u2"));
    check(fixture, driver->savepoint_end(fixture->a.session, false, &fixture->error));
    check(fixture, driver->commit(fixture->a.session, &fixture->error));
    assert_int_equal(blocked_count(fixture), 1);
}

/* --- snapshots --- */

static void test_driver_mysql__a_reader_sees_one_moment_and_cannot_write(void **state)
{
    struct fixture *fixture = *state;
    struct sql reader = {.driver = driver, .session = open_session(fixture, SESSION_READER)};
    size_t rows = 0;

    check(fixture, begin(fixture, &reader));
    execute(fixture->beside, "INSERT INTO blocked_user VALUES ('u1', 1)");
    check(fixture, SQL_RUN(&reader, STATEMENT_blocked_scan, note_row, &rows, &fixture->error));
    assert_int_equal(rows, 0);
    driver->rollback(reader.session);
    check(fixture, SQL_RUN(&reader, STATEMENT_blocked_scan, note_row, &rows, &fixture->error));
    assert_int_equal(rows, 1);
    assert_int_equal(block(fixture, &reader, "u2"), STATUS_FAILED);
    driver->session_close(reader.session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MYSQL_TEST(test_driver_mysql__batches_of_every_size),
        MYSQL_TEST(test_driver_mysql__rows_in_the_way_are_flagged_alone),
        MYSQL_TEST(test_driver_mysql__a_refused_row_is_invalid),
        MYSQL_TEST(test_driver_mysql__all_statements_compile),
        MYSQL_TEST(test_driver_mysql__unchanged_rows_count_as_changed),
        MYSQL_TEST(test_driver_mysql__a_scan_can_be_ended),
        MYSQL_TEST(test_driver_mysql__issuing_shares_a_lease_and_closing_excludes),
        MYSQL_TEST(test_driver_mysql__locking_a_coupon_leaves_its_policy_free),
        MYSQL_TEST(test_driver_mysql__an_id_taken_meanwhile_is_tried_again),
        MYSQL_TEST(test_driver_mysql__after_a_deadlock_nothing_more_is_written),
        MYSQL_TEST(test_driver_mysql__a_savepoint_undoes_one_write),
        MYSQL_TEST(test_driver_mysql__a_reader_sees_one_moment_and_cannot_write),
    };
    return cmocka_run_group_tests_name("driver_mysql", tests, NULL, NULL);
}
