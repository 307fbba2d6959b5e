/* test_outbox.c: whose events are written when one write of a transaction is undone. */
#include "ledger/outbox.h"

#include <pthread.h>
#include <time.h>

#include "database.h"
#include "ledger/writer.h"

#define NOW        INT64_C(1763200000000)
#define TIMEOUT_MS 20000

struct fixture {
    struct database database;
    struct ledger_options options;
    struct ledger_stats stats;
    struct writer writer;
    struct policy policy;
    struct lease lease;
    _Atomic bool is_held;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct create_policy create = {.policy = &fixture->policy, .lease = &fixture->lease};

    database_open(&fixture->database);
    fixture->policy =
        (struct policy){.name = "test", .discount_value = 1, .total = 100, .per_user_limit = 1};
    database_write(&fixture->database, transaction_create_policy, &create);
    fixture->options = (struct ledger_options){.tells = {[LEDGER_SINK_KAFKA] = true},
                                               .on_issued = database_no_claims,
                                               .on_durable = database_no_waiters};
    database_check(&fixture->database,
                   writer_start(&fixture->writer, fixture->database.sql, &fixture->options,
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

static struct claim claim_of(const struct fixture *fixture, int64_t seq)
{
    struct claim claim = {.policy_id = fixture->policy.id,
                          .seq = seq,
                          .lease_id = fixture->lease.id,
                          .requested_at_ms = NOW,
                          .nth = 1};
    char user[16];

    snprintf(user, sizeof(user), "u%d", (int)seq);
    claim.user = id_of(span_of(user));
    claim.request_id.bytes[15] = (uint8_t)seq;
    return claim;
}

/* Keeps the writer until somebody waits for its next transaction. */
static enum status hold(struct sql *sql, void *argument, struct error *error)
{
    struct fixture *fixture = argument;
    bool is_awaited = false;

    (void)sql;
    (void)error;
    fixture->is_held = true;
    for (int waited = 0; !is_awaited && waited < TIMEOUT_MS; waited++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        pthread_mutex_lock(&fixture->writer.lock);
        is_awaited = fixture->writer.gathering.writes != NULL;
        pthread_mutex_unlock(&fixture->writer.lock);
    }
    return is_awaited ? STATUS_OK : STATUS_FAILED;
}

static void *act_hold(void *context)
{
    struct fixture *fixture = context;
    struct error error;

    return writer_run(&fixture->writer, hold, fixture, &error) == STATUS_OK ? fixture : NULL;
}

/* Writes an event of its own, and is refused. */
static enum status tell_and_fail(struct sql *sql, void *argument, struct error *error)
{
    struct claim claim = claim_of(argument, 2);
    struct coupon_row row = {.claim = &claim, .state = COUPON_ISSUED, .issued_at_ms = NOW};

    outbox_note_row(sql->outbox, &row);
    enum status status = outbox_write(sql, error);
    return status == STATUS_OK ? error_set(error, STATUS_CONFLICT, "refused") : status;
}

static void test_outbox__refused_write_takes_only_its_own_events_with_it(void **state)
{
    struct fixture *fixture = *state;
    struct claim claim = claim_of(fixture, 1);
    struct error error;
    pthread_t holder;
    void *held;

    pthread_create(&holder, NULL, act_hold, fixture);
    for (int waited = 0; !fixture->is_held && waited < TIMEOUT_MS; waited++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    (void)writer_issue(&fixture->writer, &claim, 1, NULL, 0);
    assert_int_equal(
        writer_run_in(&fixture->writer, WRITE_BEHIND_EVENTS, tell_and_fail, fixture, &error),
        STATUS_CONFLICT);
    pthread_join(holder, &held);
    assert_non_null(held);
    assert_int_equal(database_number(&fixture->database, "SELECT COUNT(*) FROM coupon"), 1);
    assert_int_equal(database_number(&fixture->database, "SELECT COUNT(*) FROM outbox"), 1);
    assert_int_equal(database_number(&fixture->database, "SELECT seq FROM outbox"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_outbox__refused_write_takes_only_its_own_events_with_it, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
