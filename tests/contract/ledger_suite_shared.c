/* ledger_suite_shared.c: what a database that several processes share must do when they, or
 * someone beside them, hold what the other needs. */
#include "ledger_fixture.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "ledger/inside.h"
#include "ledger/rows.h"
#include "ledger/totals.h"

#define NEVER_MS   30000
#define TIMEOUT_MS 1000 /* of the ledger, with others in its way */

/* Something that may have to wait, in a thread of its own. */
struct waiting_call {
    struct fixture *fixture;
    struct ledger_suite_session *session;
    const char *text;
    int64_t policy_id;
    int64_t lease_id;
    struct claim claim;
    enum status status;
    atomic_bool is_done;
    pthread_t thread;
};

/* `act` is given the call, with which what it belongs to begins. */
static void start(struct waiting_call *waiting_call, void *(*act)(void *))
{
    assert_int_equal(pthread_create(&waiting_call->thread, NULL, act, waiting_call), 0);
}

/* Waits until that call, and so many in all, wait for a lock. */
static void await_waiting(struct fixture *fixture, const struct waiting_call *waiting_call,
                          int64_t count)
{
    for (int waited_ms = 0; ledger_suite_ask(fixture->session, ledger_suite_lock_waits) != count;
         waited_ms += 2) {
        if (waiting_call->is_done || waited_ms > NEVER_MS)
            fail_msg("it did not have to wait");
        usleep(2000);
    }
    assert_false(waiting_call->is_done);
}

static void finish(struct waiting_call *waiting_call)
{
    pthread_join(waiting_call->thread, NULL);
    assert_true(waiting_call->is_done);
}

static void *issue_claim(void *context)
{
    struct waiting_call *waiting_call = context;
    struct ledger *ledger = waiting_call->fixture->ledger;

    wait_for(waiting_call->fixture, ledger_issue(ledger, &waiting_call->claim, 1, NULL, 0));
    waiting_call->is_done = true;
    return NULL;
}

static void *close_lease(void *context)
{
    struct waiting_call *waiting_call = context;
    struct error error;

    waiting_call->status = ledger_lease_close(waiting_call->fixture->ledger, waiting_call->lease_id,
                                              LEDGER_NO_TERM, &error);
    waiting_call->is_done = true;
    return NULL;
}

static void *run_text(void *context)
{
    struct waiting_call *waiting_call = context;

    ledger_suite_ask(waiting_call->session, waiting_call->text);
    waiting_call->is_done = true;
    return NULL;
}

/* What another ledger would write. */
static void write_coupon(struct ledger_suite_session *session, int64_t policy_id, int64_t seq,
                         const char *user, int64_t lease_id)
{
    ask(session,
        "INSERT INTO coupon (policy_id, seq, user_id, nth, slot, state, request_id, lease_id,"
        " requested_at, issued_at)"
        " VALUES (%lld, %lld, '%s', 1, 1, 'ISSUED', '0123456789abcdef', %lld, 1, 1)",
        (long long)policy_id, (long long)seq, user, (long long)lease_id);
}

/* --- the lease --- */

/* Somebody issues: closing waits, and counts what was issued. */
static void test_shared__closing_waits_for_issuing(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 5, &lease);
    struct ledger_suite_session *worker = another_session(fixture);
    static struct waiting_call closing;

    closing = (struct waiting_call){.fixture = fixture, .lease_id = lease.id};
    ask(worker, "BEGIN");
    ask(worker, "SELECT id FROM lease WHERE id = %lld %s", (long long)lease.id,
        ledger_suite_for_share);
    start(&closing, close_lease);
    await_waiting(fixture, &closing, 1);
    write_coupon(worker, policy.id, 1, "a", lease.id);
    ask(worker, "COMMIT");
    finish(&closing);
    assert_int_equal(closing.status, STATUS_OK);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 4);
}

/* Somebody closes: issuing waits, and sees that the lease is closed. */
static void test_shared__issuing_waits_for_closing(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 1, &lease);
    struct ledger_suite_session *steward = another_session(fixture);
    static struct waiting_call issuing;

    issuing = (struct waiting_call){.fixture = fixture, .claim = claim_of(&lease, 1, "a", 1)};
    ask(steward, "BEGIN");
    ask(steward, "SELECT id FROM lease WHERE id = %lld FOR UPDATE", (long long)lease.id);
    start(&issuing, issue_claim);
    await_waiting(fixture, &issuing, 1);
    /* The unit returns, and is gone at once. */
    ask(steward, "UPDATE lease SET state = 'CLOSED' WHERE id = %lld", (long long)lease.id);
    ask(steward,
        "INSERT INTO lease (policy_id, first_seq, count, state) VALUES (%lld, 2, 1, 'OPEN')",
        (long long)policy.id);
    ask(steward, "UPDATE policy SET next_seq = 3 WHERE id = %lld", (long long)policy.id);
    ask(steward, "COMMIT");
    finish(&issuing);
    assert_int_equal(fixture->states[0], COUPON_VOID);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 0);
}

static void test_shared__issuing_does_not_wait_for_issuing(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 5, &lease);
    struct ledger_suite_session *worker = another_session(fixture);

    ask(worker, "BEGIN");
    ask(worker, "SELECT id FROM lease WHERE id = %lld %s", (long long)lease.id,
        ledger_suite_for_share);
    assert_int_equal(issue_one(fixture, &lease, 2, "b", 1), COUPON_ISSUED);
    ask(worker, "COMMIT");
    assert_int_equal(policy_of(fixture, policy.id).unleased, 0);
}

/* --- in the way --- */

/* A write that wants the rows of two policies, one after the other. */
struct crossing {
    struct waiting_call waiting_call;
    int64_t first_id;
    int64_t second_id;
    int runs;
    atomic_bool has_first;
    atomic_bool wants_second; /* it may ask for the second */
    atomic_bool is_free;      /* nobody has any of them */
};

static void await(const atomic_bool *flag)
{
    for (int waited_ms = 0; !*flag && waited_ms < NEVER_MS; waited_ms += 2)
        usleep(2000);
    ensure(*flag);
}

static enum status lock_both(struct sql *sql, void *argument, struct error *error)
{
    struct crossing *crossing = argument;
    struct policy policy;

    if (crossing->runs++ > 0)
        await(&crossing->is_free);
    enum status status = rows_policy_by_id(sql, crossing->first_id, ROWS_LOCK, &policy, error);
    crossing->has_first = true;
    await(&crossing->wants_second);
    return status == STATUS_OK
               ? rows_policy_by_id(sql, crossing->second_id, ROWS_LOCK, &policy, error)
               : status;
}

static void *write_both(void *context)
{
    struct crossing *crossing = context;
    struct fixture *fixture = crossing->waiting_call.fixture;

    crossing->waiting_call.status =
        ledger_write(fixture->ledger, lock_both, crossing, &fixture->error);
    crossing->waiting_call.is_done = true;
    return NULL;
}

/* The ledger has one row and wants another; someone has that and wants the first. The database
 * gives up on the ledger, which has done the least and came last; by then it has been at it for at
 * least that long. */
static void write_through_a_deadlock(struct fixture *fixture, int64_t after_ms)
{
    struct lease lease;
    struct ledger_suite_session *holder = another_session(fixture);
    char text[128];
    static struct crossing crossing;
    static struct waiting_call wanting;

    crossing = (struct crossing){.waiting_call.fixture = fixture};
    crossing.first_id = create(fixture, 5, &lease).id;
    crossing.second_id = create(fixture, 5, &lease).id;
    wanting = (struct waiting_call){.session = holder, .text = text};
    snprintf(text, sizeof(text), "SELECT id FROM policy WHERE id = %lld FOR UPDATE",
             (long long)crossing.first_id);
    ask(holder, "BEGIN");
    ask(holder, "INSERT INTO blocked_user (user_id, blocked_at)"
                " WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 500)"
                " SELECT CONCAT('nobody-', i), 1 FROM n");
    ask(holder, "UPDATE policy SET version = version + 1 WHERE id = %lld",
        (long long)crossing.second_id);
    start(&crossing.waiting_call, write_both);
    await(&crossing.has_first);
    start(&wanting, run_text);
    await_waiting(fixture, &wanting, 1); /* the holder for the ledger */
    int64_t until_ms = clock_monotonic_ms() + after_ms;
    while (clock_monotonic_ms() < until_ms)
        usleep(2000);
    crossing.wants_second = true;
    finish(&wanting); /* The holder has both: the ledger has neither. */
    assert_false(crossing.waiting_call.is_done);
    ask(holder, "ROLLBACK");
    crossing.is_free = true;
    finish(&crossing.waiting_call);
    check(fixture, crossing.waiting_call.status);
    assert_int_equal(crossing.runs, 2);
    assert_true(ledger_healthy(fixture->ledger));
    assert_int_equal(ledger_stats(fixture->ledger)->commit_failures, 0);
}

static void test_shared__a_deadlock_is_done_again(void **state)
{
    write_through_a_deadlock(*state, 0);
}

/* A try that ends in a deadlock may have lasted longer than all tries together are to. */
static void test_shared__a_late_deadlock_is_done_again(void **state)
{
    write_through_a_deadlock(*state, TIMEOUT_MS);
}

/* A lock that is not given up: the caller is told in time, and nothing is half done. */
static void test_shared__a_long_wait_is_unavailable(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 5, &lease);
    struct fixture *impatient = fixture_new(fixture->url, LEDGER_SHARE);
    struct ledger_options options = options_of(impatient);
    struct coupon coupon;

    options.timeout_ms = 100;
    check(impatient, ledger_open(&impatient->ledger, &options, &impatient->error));
    issue_one(fixture, &lease, 1, "a", 1);
    ask(fixture->session, "BEGIN");
    ask(fixture->session, "UPDATE policy SET version = version + 1 WHERE id = %lld",
        (long long)policy.id);
    int64_t started_ms = clock_monotonic_ms();
    assert_int_equal(ledger_coupon_cancel(impatient->ledger, policy.id, 1, NOW, NULL, &coupon,
                                          &policy, &impatient->error),
                     STATUS_UNAVAILABLE);
    assert_true(clock_monotonic_ms() - started_ms < 30000); /* some databases wait whole seconds */
    ask(fixture->session, "ROLLBACK");
    assert_int_equal(coupon_of(fixture, lease.policy_id, 1).state, COUPON_ISSUED);
    check(impatient, ledger_coupon_cancel(impatient->ledger, lease.policy_id, 1, NOW, NULL, &coupon,
                                          &policy, &impatient->error));
    assert_int_equal(policy_of(fixture, lease.policy_id).unleased, 1);
    ledger_close(impatient->ledger);
    fixture_free(impatient);
}

/* The user's slot is being taken by someone else at this very moment: it is waited for, and then
 * the claim is merged, or the slot is free after all. */
static void claim_while_the_slot_is_taken(struct fixture *fixture, bool is_kept)
{
    struct lease lease;
    struct policy policy = create_with(fixture, 5, 2, 1, &lease);
    struct ledger_suite_session *other = another_session(fixture);
    static struct waiting_call issuing;

    issuing = (struct waiting_call){.fixture = fixture, .claim = claim_of(&lease, 1, "a", 1)};
    ask(other, "BEGIN");
    ask(other, "UPDATE policy SET unleased = unleased - 1, next_seq = 5 WHERE id = %lld",
        (long long)policy.id);
    write_coupon(other, policy.id, 4, "a", 0);
    start(&issuing, issue_claim);
    await_waiting(fixture, &issuing, 1);
    ask(other, is_kept ? "COMMIT" : "ROLLBACK");
    finish(&issuing);
    assert_int_equal(fixture->states[fixture->issued_count - 1],
                     is_kept ? COUPON_MERGED : COUPON_ISSUED);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 2);
}

static void test_shared__a_slot_that_is_being_taken(void **state)
{
    claim_while_the_slot_is_taken(*state, true);
    claim_while_the_slot_is_taken(*state, false);
}

/* --- marks --- */

/* Each of those that share has a mark of its own, and takes it along when it goes. */
static void test_shared__everyone_has_a_mark(void **state)
{
    struct fixture *fixture = *state;
    struct fixture *others[3];
    struct lease lease;
    static const char marks[] = "SELECT COUNT(*) FROM writer WHERE name LIKE 'share-%'";

    for (int i = 0; i < 3; i++) {
        others[i] = fixture_new(fixture->url, LEDGER_SHARE);
        open_ledger(others[i]);
        create(others[i], 1, &lease);
    }
    assert_int_equal(ledger_suite_ask(fixture->session, marks), 4);
    assert_int_equal(ask(fixture->session, "SELECT COUNT(DISTINCT name) FROM writer"), 4);
    for (int i = 0; i < 3; i++) {
        ledger_close(others[i]->ledger);
        fixture_free(others[i]);
    }
    assert_int_equal(ledger_suite_ask(fixture->session, marks), 1);
}

/* Numbers that no promise rests on move no mark: a database that was brought back without them is
 * as we left it. Yet each batch is added once. */
static void test_shared__totals_move_no_mark(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 1, &lease);
    struct claim_total total = {
        .policy_id = policy.id, .starts_at_ms = NOW, .result = "won", .count = 3};
    struct claim_totals_batch batch = {
        .process = 7, .number = 1, .now_ms = NOW, .totals = &total, .count = 1};
    static const char marks[] = "SELECT SUM(mark) FROM writer";
    int64_t mark = ask(fixture->session, marks);

    for (int i = 0; i < 2; i++)
        assert_int_equal(ledger_totals_add(fixture->ledger, &batch, &fixture->error), STATUS_OK);
    assert_int_equal(ask(fixture->session, marks), mark);
    assert_int_equal(ask(fixture->session, "SELECT SUM(count) FROM claim_total"), 3);
    create(fixture, 1, &lease);
    assert_true(ask(fixture->session, marks) > mark);
}

int ledger_suite_run_shared(void)
{
#define SHARED_TEST(name) \
    cmocka_unit_test_setup_teardown(test_shared__##name, set_up_shared, tear_down)
    const struct CMUnitTest tests[] = {
        SHARED_TEST(closing_waits_for_issuing),
        SHARED_TEST(issuing_waits_for_closing),
        SHARED_TEST(issuing_does_not_wait_for_issuing),
        SHARED_TEST(a_deadlock_is_done_again),
        SHARED_TEST(a_late_deadlock_is_done_again),
        SHARED_TEST(a_long_wait_is_unavailable),
        SHARED_TEST(a_slot_that_is_being_taken),
        SHARED_TEST(everyone_has_a_mark),
        SHARED_TEST(totals_move_no_mark),
    };
    return cmocka_run_group_tests_name("ledger: shared", tests, NULL, NULL);
}
