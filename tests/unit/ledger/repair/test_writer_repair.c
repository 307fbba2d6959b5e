/* test_writer_repair.c: the writer on a database that turns out to be older, and its repair. */
#include <pthread.h>
#include <time.h>

#include "database.h"
#include "ledger/rows.h"
#include "ledger/writer.h"

#define TIMEOUT_MS 30000

/* The next COMMIT is not answered; it was done, or not, and the database may be away after it. */
enum fate { FATE_NORMAL, FATE_DONE, FATE_NOT_DONE };

/* SQLite as if it were another process. */
static struct {
    pthread_mutex_t lock;
    enum fate fate;
    bool goes_away;
    bool is_away;
} link_state = {.lock = PTHREAD_MUTEX_INITIALIZER};

static enum status remote_begin(struct ledger_session *session, struct error *error)
{
    pthread_mutex_lock(&link_state.lock);
    bool is_away = link_state.is_away;
    pthread_mutex_unlock(&link_state.lock);
    if (is_away)
        return error_set(error, STATUS_UNAVAILABLE, "away");
    return ledger_sqlite_driver.begin(session, error);
}

static enum status remote_commit(struct ledger_session *session, struct error *error)
{
    pthread_mutex_lock(&link_state.lock);
    enum fate fate = link_state.fate;
    link_state.fate = FATE_NORMAL;
    link_state.is_away = fate != FATE_NORMAL && link_state.goes_away;
    pthread_mutex_unlock(&link_state.lock);
    if (fate == FATE_NOT_DONE) {
        ledger_sqlite_driver.rollback(session);
        return error_set(error, STATUS_UNKNOWN, "not answered");
    }
    enum status status = ledger_sqlite_driver.commit(session, error);
    return fate == FATE_DONE ? error_set(error, STATUS_UNKNOWN, "not answered") : status;
}

static void set_link(enum fate fate, bool goes_away)
{
    pthread_mutex_lock(&link_state.lock);
    link_state.fate = fate;
    link_state.goes_away = goes_away;
    link_state.is_away = false;
    pthread_mutex_unlock(&link_state.lock);
}

struct fixture {
    struct database database;
    struct ledger_driver driver;
    struct ledger_options options;
    struct ledger_stats stats;
    struct writer writer;
    struct policy policy;
    struct lease lease;
    _Atomic int issued_count;
    /* What the repair's body does. */
    int runs;
    enum status answer;
    struct claim told; /* seq 0: none */
};

static void on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count)
{
    struct fixture *fixture = context;
    (void)claims;
    for (size_t i = 0; i < count; i++)
        fixture->issued_count += states[i] == COUPON_ISSUED;
}

static void on_durable(void *context)
{
    (void)context;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct create_policy create = {.policy = &fixture->policy, .lease = &fixture->lease};

    set_link(FATE_NORMAL, false);
    database_open(&fixture->database);
    fixture->policy =
        (struct policy){.name = "test", .discount_value = 1, .total = 100, .per_user_limit = 1};
    database_write(&fixture->database, transaction_create_policy, &create);
    fixture->driver = ledger_sqlite_driver;
    fixture->driver.is_remote = true;
    fixture->driver.begin = remote_begin;
    fixture->driver.commit = remote_commit;
    fixture->options = (struct ledger_options){
        .use = LEDGER_OWN, .on_issued = on_issued, .on_durable = on_durable, .context = fixture};
    struct sql sql = {.driver = &fixture->driver, .session = fixture->database.sql.session};
    database_check(&fixture->database, writer_start(&fixture->writer, sql, &fixture->options,
                                                    &fixture->stats, &fixture->database.error));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    writer_stop(&fixture->writer);
    database_close(&fixture->database);
    free(fixture);
    return 0;
}

/* --- moves --- */

static bool is_healthy(struct fixture *fixture)
{
    return atomic_load(&fixture->writer.healthy);
}

static void await(struct fixture *fixture, bool healthy)
{
    for (int waited = 0; is_healthy(fixture) != healthy; waited++) {
        assert_true(waited < TIMEOUT_MS);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

static void await_durable(struct fixture *fixture, uint64_t ticket)
{
    for (int waited = 0; atomic_load(&fixture->writer.durable) < ticket; waited++) {
        assert_true(waited < TIMEOUT_MS);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* As if an older backup had been put in its place. */
static void go_back(struct fixture *fixture)
{
    database_execute(&fixture->database, "UPDATE writer SET mark = mark - 1");
}

static int64_t mark_now(struct fixture *fixture)
{
    return database_number(&fixture->database, "SELECT mark FROM writer WHERE name = 'owner'");
}

static enum status write_something(struct sql *sql, void *argument, struct error *error)
{
    (void)argument;
    return SQL_WRITE(sql, STATEMENT_policy_return_unit, error, sql_i64(1));
}

/* Leaves a trace, and the claim that the gate remembers. */
static enum status body(struct sql *sql, void *argument, struct error *error)
{
    struct fixture *fixture = argument;

    fixture->runs++;
    enum status status = SQL_WRITE(sql, STATEMENT_secret_insert, error, sql_text(SPAN("repaired")),
                                   sql_blob("yes", 3));
    if (status == STATUS_OK && fixture->told.seq != 0) {
        struct coupon_row row = {.claim = &fixture->told, .state = COUPON_ISSUED};
        status = sql->driver->insert_coupons(sql->session, &row, 1, error);
    }
    if (status == STATUS_OK && fixture->answer != STATUS_OK)
        return error_set(error, fixture->answer, "told so");
    return status;
}

static enum status run_repair(struct fixture *fixture)
{
    return writer_repair(&fixture->writer, body, fixture, &fixture->database.error);
}

static bool is_repaired(struct fixture *fixture)
{
    return database_number(&fixture->database, "SELECT COUNT(*) FROM secret") == 1;
}

static struct claim claim_of(struct fixture *fixture, int64_t seq)
{
    return (struct claim){.policy_id = fixture->policy.id,
                          .seq = seq,
                          .lease_id = fixture->lease.id,
                          .nth = 1,
                          .user = id_of(SPAN("ann"))};
}

/* The writer works again: what it commits moves the mark by one. */
static void assert_works(struct fixture *fixture)
{
    int64_t before = mark_now(fixture);
    database_check(&fixture->database,
                   writer_run(&fixture->writer, write_something, NULL, &fixture->database.error));
    assert_int_equal(mark_now(fixture), before + 1);
    assert_false(atomic_load(&fixture->writer.behind));
}

/* --- tests --- */

static void test_writer_repair__nothing_to_do(void **state)
{
    struct fixture *fixture = *state;
    int64_t before = mark_now(fixture);

    assert_int_equal(run_repair(fixture), STATUS_OK);
    assert_int_equal(fixture->runs, 0);
    assert_int_equal(mark_now(fixture), before);
    assert_works(fixture);
}

static void test_writer_repair__idle_writer_comes_back(void **state)
{
    struct fixture *fixture = *state;
    int64_t before = mark_now(fixture);

    go_back(fixture);
    await(fixture, false);
    assert_true(atomic_load(&fixture->writer.behind));
    assert_int_equal(writer_run(&fixture->writer, write_something, NULL, &fixture->database.error),
                     STATUS_UNAVAILABLE);
    assert_non_null(strstr(fixture->database.error.text, "audit --repair"));
    assert_int_equal(run_repair(fixture), STATUS_OK);
    assert_true(is_healthy(fixture));
    assert_int_equal(fixture->runs, 1);
    assert_true(is_repaired(fixture));
    assert_int_equal(mark_now(fixture), before + 2);
    assert_works(fixture);
    assert_int_equal(run_repair(fixture), STATUS_OK);
    assert_int_equal(fixture->runs, 1);
}

/* Asked for before anyone has noticed, and on a ledger from before this server's first start. */
static void test_writer_repair__mark_is_gone(void **state)
{
    struct fixture *fixture = *state;
    int64_t before = mark_now(fixture);

    database_execute(&fixture->database, "DELETE FROM writer");
    assert_int_equal(run_repair(fixture), STATUS_OK);
    assert_int_equal(fixture->runs, 1);
    assert_int_equal(mark_now(fixture), before + 2);
    assert_works(fixture);
}

/* Claims that are tried again and again do not keep a repair out, and are in once it is done. */
static void test_writer_repair__between_two_tries(void **state)
{
    struct fixture *fixture = *state;

    go_back(fixture);
    fixture->told = claim_of(fixture, 1);
    uint64_t ticket = writer_issue(&fixture->writer, &fixture->told, 1, NULL, 0);
    await(fixture, false);
    assert_int_equal(database_number(&fixture->database, "SELECT COUNT(*) FROM coupon"), 0);
    assert_int_equal(run_repair(fixture), STATUS_OK);
    await_durable(fixture, ticket);
    assert_int_equal(fixture->issued_count, 1);
    assert_int_equal(database_number(&fixture->database, "SELECT COUNT(*) FROM coupon"), 1);
    await(fixture, true);
    assert_works(fixture);
}

static void test_writer_repair__refused_is_undone(void **state)
{
    struct fixture *fixture = *state;

    go_back(fixture);
    await(fixture, false);
    int64_t before = mark_now(fixture);
    fixture->answer = STATUS_CONFLICT;
    assert_int_equal(run_repair(fixture), STATUS_CONFLICT);
    assert_string_equal(fixture->database.error.text, "told so");
    assert_false(is_repaired(fixture));
    assert_false(is_healthy(fixture));
    assert_int_equal(mark_now(fixture), before);
    fixture->answer = STATUS_BUSY;
    assert_int_equal(run_repair(fixture), STATUS_UNAVAILABLE);
    assert_true(fixture->runs > 2);
    fixture->answer = STATUS_OK;
    assert_int_equal(run_repair(fixture), STATUS_OK);
    assert_works(fixture);
}

/* --- a commit that is not answered --- */

static void test_writer_repair__lost_answer_of_a_done_repair(void **state)
{
    struct fixture *fixture = *state;

    go_back(fixture);
    await(fixture, false);
    set_link(FATE_DONE, false);
    assert_int_equal(run_repair(fixture), STATUS_OK);
    assert_true(is_healthy(fixture));
    assert_true(is_repaired(fixture));
    assert_works(fixture);
}

static void test_writer_repair__lost_answer_of_one_not_done(void **state)
{
    struct fixture *fixture = *state;

    go_back(fixture);
    await(fixture, false);
    set_link(FATE_NOT_DONE, false);
    assert_int_equal(run_repair(fixture), STATUS_UNAVAILABLE);
    assert_false(is_repaired(fixture));
    assert_false(is_healthy(fixture));
    assert_int_equal(run_repair(fixture), STATUS_OK);
    assert_true(is_repaired(fixture));
    assert_works(fixture);
}

/* The database is away when the outcome is looked up: it is found out when it is back, and a repair
 * that was done is neither taken for another process's work nor for that of a batch. */
static void test_writer_repair__outcome_is_found_out_later(void **state)
{
    static const enum fate fates[] = {FATE_DONE, FATE_NOT_DONE};
    struct fixture *fixture = *state;

    for (size_t i = 0; i < 2; i++) {
        database_execute(&fixture->database, "DELETE FROM secret");
        go_back(fixture);
        await(fixture, false);
        set_link(fates[i], true);
        assert_int_equal(run_repair(fixture), STATUS_UNKNOWN);
        set_link(FATE_NORMAL, false);
        assert_int_equal(run_repair(fixture), STATUS_OK);
        await(fixture, true);
        assert_true(is_repaired(fixture));
        assert_works(fixture);
    }
    assert_int_equal(fixture->runs, 3);
}

/* A batch in doubt, then an older database, then its repair: the batch is written. */
static void test_writer_repair__batch_in_doubt_is_written_again(void **state)
{
    struct fixture *fixture = *state;
    struct claim claim = claim_of(fixture, 1);

    set_link(FATE_NOT_DONE, true);
    uint64_t ticket = writer_issue(&fixture->writer, &claim, 1, NULL, 0);
    await(fixture, false);
    go_back(fixture);
    set_link(FATE_NORMAL, false);
    assert_int_equal(run_repair(fixture), STATUS_OK);
    assert_int_equal(fixture->runs, 1);
    await_durable(fixture, ticket);
    assert_int_equal(fixture->issued_count, 1);
    assert_int_equal(database_number(&fixture->database, "SELECT COUNT(*) FROM coupon"), 1);
    await(fixture, true);
    assert_works(fixture);
}

int main(void)
{
#define REPAIR_TEST(name) \
    cmocka_unit_test_setup_teardown(test_writer_repair__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        REPAIR_TEST(nothing_to_do),
        REPAIR_TEST(idle_writer_comes_back),
        REPAIR_TEST(mark_is_gone),
        REPAIR_TEST(between_two_tries),
        REPAIR_TEST(refused_is_undone),
        REPAIR_TEST(lost_answer_of_a_done_repair),
        REPAIR_TEST(lost_answer_of_one_not_done),
        REPAIR_TEST(outcome_is_found_out_later),
        REPAIR_TEST(batch_in_doubt_is_written_again),
    };
    return cmocka_run_group_tests_name("writer_repair", tests, NULL, NULL);
}
