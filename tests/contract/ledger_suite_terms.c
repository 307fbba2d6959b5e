/* ledger_suite_terms.c: who looks after a policy, and in which term; and the totals of its claims.
 */
#include "ledger_fixture.h"

#include "base/array.h"
#include "ledger/totals.h"

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

/* --- totals --- */

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS   (60 * MINUTE_MS)

static struct claim_total total_of(int64_t policy_id, int64_t at_ms, int64_t count,
                                   const char *result)
{
    struct claim_total total = {.policy_id = policy_id, .starts_at_ms = at_ms, .count = count};
    snprintf(total.result, sizeof(total.result), "%s", result);
    return total;
}

static void add_totals(struct fixture *fixture, int64_t process, int64_t number,
                       const struct claim_total *totals, size_t count)
{
    check(fixture, ledger_totals_add(fixture->ledger,
                                     &(struct claim_totals_batch){.process = process,
                                                                  .number = number,
                                                                  .totals = totals,
                                                                  .count = count,
                                                                  .now_ms = NOW},
                                     &fixture->error));
}

static void assert_total(struct fixture *fixture, int64_t policy_id, size_t index, int64_t at_ms,
                         int64_t seconds, const char *result, int64_t count)
{
    struct claim_total *totals;
    size_t found;

    check(fixture, ledger_totals(fixture->ledger, policy_id, &totals, &found, &fixture->error));
    assert_true(index < found);
    assert_int_equal(totals[index].starts_at_ms, at_ms);
    assert_int_equal(totals[index].seconds, seconds);
    assert_string_equal(totals[index].result, result);
    assert_int_equal(totals[index].count, count);
    free(totals);
}

static size_t count_totals(struct fixture *fixture, int64_t policy_id)
{
    struct claim_total *totals;
    size_t found;

    check(fixture, ledger_totals(fixture->ledger, policy_id, &totals, &found, &fixture->error));
    free(totals);
    return found;
}

/* An unanswered commit is followed by the same batch, which must not count twice. */
static void test_ledger__totals_of_a_batch_are_added_once(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    int64_t id = policy.id;
    int64_t at_ms = policy.created_at_ms - policy.created_at_ms % MINUTE_MS;
    const struct claim_total batch[] = {total_of(id, at_ms, 3, "issued"),
                                        total_of(id, at_ms, 4, "sold_out"),
                                        total_of(id + 1000, at_ms, 5, "issued")};

    add_totals(fixture, 7, 1, batch, COUNT_OF(batch));
    add_totals(fixture, 7, 1, batch, COUNT_OF(batch));
    assert_int_equal(count_totals(fixture, id), 2);
    assert_int_equal(count_totals(fixture, id + 1000), 0); /* there is none */
    assert_total(fixture, id, 0, at_ms, 60, "issued", 3);
    assert_total(fixture, id, 1, at_ms, 60, "sold_out", 4);
    /* Its next one, and another process's of the same number, are added. */
    add_totals(fixture, 7, 2, batch, 1);
    add_totals(fixture, 8, 1, batch, 1);
    assert_total(fixture, id, 0, at_ms, 60, "issued", 9);
    check(fixture, ledger_totals_end(fixture->ledger, 7, &fixture->error));
    reopen(fixture);
    assert_total(fixture, id, 0, at_ms, 60, "issued", 9);
}

static void test_ledger__totals_are_of_minutes_for_an_hour_and_then_of_hours(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    int64_t id = policy.id;
    int64_t first_ms = policy.created_at_ms - policy.created_at_ms % MINUTE_MS;
    int64_t hour_ms = first_ms + HOUR_MS - (first_ms + HOUR_MS) % HOUR_MS;
    int64_t before_ms = first_ms - MINUTE_MS - (first_ms - MINUTE_MS) % HOUR_MS;
    const struct claim_total batch[] = {total_of(id, first_ms - MINUTE_MS, 1, "not_open"),
                                        total_of(id, first_ms, 2, "issued"),
                                        total_of(id, first_ms + 59 * MINUTE_MS, 3, "issued"),
                                        total_of(id, first_ms + 60 * MINUTE_MS, 4, "issued"),
                                        total_of(id, hour_ms + HOUR_MS - MINUTE_MS, 5, "issued")};

    add_totals(fixture, 7, 1, batch, COUNT_OF(batch));
    assert_int_equal(count_totals(fixture, id), 4);
    assert_total(fixture, id, 0, before_ms, 3600, "not_open", 1);
    assert_total(fixture, id, 1, first_ms, 60, "issued", 2);
    /* The last minute, and the rest of its hour, which began before or with it. */
    size_t hour_at = hour_ms < first_ms + 59 * MINUTE_MS ? 2 : 3;
    if (hour_ms == first_ms + 59 * MINUTE_MS)
        hour_at = 3;
    assert_total(fixture, id, hour_at, hour_ms, 3600, "issued", 9);
    assert_total(fixture, id, 5 - hour_at, first_ms + 59 * MINUTE_MS, 60, "issued", 3);
}

/* More rows than one statement takes. */
static void test_ledger__totals_of_many_policies_at_once(void **state)
{
    enum { MANY = 2500 };
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct claim_total *batch = calloc(MANY, sizeof(*batch));
    int64_t hour_ms = policy.created_at_ms - policy.created_at_ms % HOUR_MS;

    assert_non_null(batch);
    for (int i = 0; i < MANY; i++)
        batch[i] = total_of(policy.id, hour_ms - (i + 2) * HOUR_MS, i + 1, "sold_out");
    add_totals(fixture, 7, 1, batch, MANY);
    add_totals(fixture, 7, 2, batch, MANY);
    assert_int_equal(count_totals(fixture, policy.id), MANY);
    assert_total(fixture, policy.id, 0, hour_ms - (MANY + 1) * HOUR_MS, 3600, "sold_out", 2 * MANY);
    assert_total(fixture, policy.id, MANY - 1, hour_ms - 2 * HOUR_MS, 3600, "sold_out", 2);
    free(batch);
}

int ledger_suite_run_terms(void)
{
#define LEDGER_TEST(name) cmocka_unit_test_setup_teardown(test_ledger__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LEDGER_TEST(stewardship_is_taken_in_terms),
        LEDGER_TEST(stewardship_runs_out),
        LEDGER_TEST(writes_of_an_earlier_term_are_refused),
        LEDGER_TEST(totals_of_a_batch_are_added_once),
        LEDGER_TEST(totals_are_of_minutes_for_an_hour_and_then_of_hours),
        LEDGER_TEST(totals_of_many_policies_at_once),
    };
    return cmocka_run_group_tests_name("terms", tests, NULL, NULL);
}
