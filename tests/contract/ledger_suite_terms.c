/* ledger_suite_terms.c: who looks after a policy, and in which term. */
#include "ledger_fixture.h"

#include <unistd.h>

static struct ledger_stewardship take(struct fixture *fixture, int64_t policy_id,
                                      const char *holder)
{
    struct ledger_stewardship taken;

    check(fixture,
          ledger_steward_take(fixture->ledger, policy_id, holder, 0, &taken, &fixture->error));
    return taken;
}

static bool note_term(void *context, const struct ledger_term *term)
{
    struct ledger_term *wanted = context;

    if (term->policy_id == wanted->policy_id)
        *wanted = *term;
    return true;
}

/* Says that the holder lives for so long, and hears of one policy. */
static struct ledger_term beat(struct fixture *fixture, const char *holder, int64_t life_ms,
                               int64_t policy_id)
{
    struct ledger_term heard = {.policy_id = policy_id, .term = -1};

    check(fixture, ledger_steward_beat(fixture->ledger, holder, life_ms, note_term, &heard,
                                       &fixture->error));
    return heard;
}

static void test_ledger__stewardship_is_taken_in_terms(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    int64_t id = create(fixture, 1, &lease).id;
    int64_t other_id = create(fixture, 1, &lease).id;

    beat(fixture, "a", 600000, id);
    struct ledger_stewardship first = take(fixture, id, "a");
    assert_true(first.is_held);
    assert_int_equal(first.term, first.previous + 1);
    struct ledger_term heard = beat(fixture, "a", 600000, id);
    assert_int_equal(heard.term, first.term);
    assert_true(heard.is_own);
    /* Another one that lives has it, unless nobody else can use the ledger. */
    assert_int_equal(take(fixture, id, "b").is_held, !ledger_suite_is_shared);
    assert_true(take(fixture, other_id, "b").is_held);
    int64_t newest = beat(fixture, "", 0, id).term;
    /* Whoever has it takes the next one, above what it knows of besides. */
    assert_int_equal(take(fixture, id, "a").term, newest + 1);
    struct ledger_stewardship high;
    check(fixture, ledger_steward_take(fixture->ledger, id, "a", 100, &high, &fixture->error));
    assert_int_equal(high.term, 101);
    assert_int_equal(high.previous, newest + 1);
    check(fixture, ledger_steward_confirm(fixture->ledger, id, 101, &fixture->error));
    assert_int_equal(ledger_steward_confirm(fixture->ledger, id, 100, &fixture->error),
                     STATUS_CONFLICT);
    /* Only its holder gives it up, and the count goes on. */
    check(fixture, ledger_steward_release(fixture->ledger, id, "b", &fixture->error));
    assert_int_equal(take(fixture, id, "b").is_held, !ledger_suite_is_shared);
    char holder[] = "a";
    check(fixture, ledger_steward_leave(fixture->ledger, holder, &fixture->error));
    newest = beat(fixture, "", 0, id).term;
    assert_true(newest >= 101);
    assert_false(beat(fixture, "", 0, id).is_held);
    assert_int_equal(take(fixture, id, "b").term, newest + 1);
}

/* Trap 33: one that was stalled finds out that another one has taken over. */
static void test_ledger__stewardship_runs_out(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    int64_t id = create(fixture, 1, &lease).id;
    int64_t started_ms = clock_monotonic_ms();

    beat(fixture, "a", 300, id);
    int64_t term = take(fixture, id, "a").term;
    while (!take(fixture, id, "b").is_held)
        usleep(5000);
    assert_true(clock_monotonic_ms() - started_ms >= (ledger_suite_is_shared ? 300 - 2 : 0));
    assert_int_equal(ledger_steward_confirm(fixture->ledger, id, term, &fixture->error),
                     STATUS_CONFLICT);
    assert_int_equal(beat(fixture, "a", 300, id).term, term + 1);
    assert_false(beat(fixture, "a", 300, id).is_own);
}

/* Trap 46: whatever a steward writes in an earlier term is refused, and changes nothing. */
static void test_ledger__writes_of_an_earlier_term_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_balance before;
    struct ledger_balance after;
    struct policy policy;
    struct lease lease;
    int64_t id = create(fixture, 10, &lease).id;
    int64_t late = take(fixture, id, "late").term;
    check(fixture, ledger_steward_release(fixture->ledger, id, "late", &fixture->error));
    int64_t newest = take(fixture, id, "heir").term;
    const struct lease_shrunk shrunk = {.lease_id = lease.id, .count = 4};
    struct policy_change nothing = {.term = late};
    struct ledger_fix fix = {.policy_id = id, .term = late};

    check(fixture, ledger_balance(fixture->ledger, id, &before, &fixture->error));
    assert_int_equal(ledger_lease_close(fixture->ledger, lease.id, late, &fixture->error),
                     STATUS_CONFLICT);
    assert_non_null(strstr(fixture->error.text, "term"));
    assert_int_equal(
        ledger_policy_change(fixture->ledger, id, &nothing, &shrunk, 1, &policy, &fixture->error),
        STATUS_CONFLICT);
    assert_int_equal(ledger_fix(fixture->ledger, &fix, &fixture->error), STATUS_CONFLICT);
    check(fixture, ledger_balance(fixture->ledger, id, &after, &fixture->error));
    assert_memory_equal(&before, &after, sizeof(before));
    check(fixture, ledger_lease_close(fixture->ledger, lease.id, newest, &fixture->error));
    struct lease none = {0};
    assert_int_equal(
        ledger_lease_take(fixture->ledger, id, late, 0, &none, &policy, &fixture->error),
        STATUS_CONFLICT);
    check(fixture,
          ledger_lease_take(fixture->ledger, id, newest, 0, &none, &policy, &fixture->error));
    assert_int_equal(none.count, 10);
    fix.term = nothing.term = newest;
    check(fixture, ledger_fix(fixture->ledger, &fix, &fixture->error));
    check(fixture,
          ledger_policy_change(fixture->ledger, id, &nothing, NULL, 0, &policy, &fixture->error));
}

int ledger_suite_run_terms(void)
{
#define LEDGER_TEST(name) cmocka_unit_test_setup_teardown(test_ledger__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LEDGER_TEST(stewardship_is_taken_in_terms),
        LEDGER_TEST(stewardship_runs_out),
        LEDGER_TEST(writes_of_an_earlier_term_are_refused),
    };
    return cmocka_run_group_tests_name("terms", tests, NULL, NULL);
}
