/* test_desk.c: who is answered when: at once, after the commit, after a lease, or too late. */
#include "shop.h"

#include <time.h>

#include "gate/gate.h"

/* --- durability --- */

static void test_desk__winner_waits_for_the_commit(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 5, 1);
    struct shop_answer answer;

    shop_stall(shop);
    shop_submit(shop, policy, "a", 0, &answer);
    assert_int_equal(desk_waiting(shop->desk), 1);
    shop_tick(shop);
    shop_tick(shop);
    assert_int_equal(answer.count, 0);
    assert_int_equal(shop_show(shop, policy).numbers.pending, 1);
    shop_resume(shop);
    shop_settle(shop);
    assert_int_equal(answer.count, 1);
    assert_int_equal(answer.wish.verdict, VERDICT_WON);
    assert_int_equal(answer.wish.seq, 1);
    assert_int_equal(shop_active(shop, policy), 1);
    assert_int_equal(shop_show(shop, policy).numbers.pending, 0);
}

/* Guarantee 8, for every verdict that rests on a claim. */
static void test_desk__verdicts_wait_for_what_they_rest_on(void **state)
{
    struct shop *shop = *state;
    int64_t single = shop_create(shop, 1, 1);
    int64_t twice = shop_create(shop, 5, 2);
    struct shop_answer won[3];
    struct shop_answer resting[3];

    shop_stall(shop);
    shop_submit(shop, single, "a", 7, &won[0]);
    shop_submit(shop, twice, "a", 0, &won[1]);
    shop_submit(shop, twice, "a", 0, &won[2]);
    shop_tick(shop);
    shop_submit(shop, single, "a", 0, &resting[0]);
    shop_submit(shop, single, "b", 0, &resting[1]);
    shop_submit(shop, twice, "a", 0, &resting[2]);
    shop_tick(shop);
    for (int i = 0; i < 3; i++)
        assert_int_equal(resting[i].count, 0);
    shop_resume(shop);
    shop_settle(shop);
    for (int i = 0; i < 3; i++)
        assert_int_equal(won[i].wish.verdict, VERDICT_WON);
    for (int i = 0; i < 3; i++)
        assert_int_equal(resting[i].count, 1);
    assert_int_equal(resting[0].wish.verdict, VERDICT_HELD);
    assert_int_equal(resting[0].wish.seq, won[0].wish.seq);
    assert_int_equal(resting[1].wish.verdict, VERDICT_SOLD_OUT);
    assert_int_equal(resting[2].wish.verdict, VERDICT_LIMIT_REACHED);
}

static void test_desk__durable_verdicts_go_out_in_their_tick(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 1, 1);
    int64_t paused = shop_create(shop, 1, 1);
    struct shop_answer answers[5];

    assert_int_equal(shop_claim(shop, policy, "a", 7).verdict, VERDICT_WON);
    assert_int_equal(shop_set_paused(shop, paused, true), STATUS_OK);
    shop_stall(shop);
    shop_submit(shop, policy, "a", 0, &answers[0]);
    shop_submit(shop, policy, "b", 0, &answers[1]);
    shop_submit(shop, policy, "b", 7, &answers[2]);
    shop_submit(shop, paused, "b", 0, &answers[3]);
    shop_submit(shop, 999, "b", 0, &answers[4]);
    shop_tick(shop);
    for (int i = 0; i < 5; i++)
        assert_int_equal(answers[i].count, 1);
    assert_int_equal(answers[0].wish.verdict, VERDICT_HELD);
    assert_int_equal(answers[1].wish.verdict, VERDICT_SOLD_OUT);
    assert_int_equal(answers[2].wish.verdict, VERDICT_SOLD_OUT); /* another's key is not theirs */
    assert_int_equal(answers[3].wish.verdict, VERDICT_PAUSED);
    assert_int_equal(answers[4].wish.verdict, VERDICT_NO_POLICY);
    shop_resume(shop);
}

/* Trap 28's cousin: a binding is part of what a 200 with a key promises. */
static void test_desk__bound_key_waits_and_survives(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 2, 1);
    struct shop_answer answers[2];

    assert_int_equal(shop_claim(shop, policy, "a", 0).seq, 1);
    shop_stall(shop);
    shop_submit(shop, policy, "a", 9, &answers[0]);
    shop_submit(shop, policy, "a", 9, &answers[1]);
    shop_tick(shop);
    assert_int_equal(answers[0].count + answers[1].count, 0);
    shop_resume(shop);
    shop_settle(shop);
    assert_int_equal(shop_cancel(shop, policy, 1), STATUS_OK);
    shop_restart(shop);
    struct wish again = shop_claim(shop, policy, "a", 9);
    assert_int_equal(again.verdict, VERDICT_HELD);
    assert_int_equal(again.seq, 1);
    assert_int_equal(again.coupon_state, COUPON_CANCELLED);
}

/* --- batches --- */

static void test_desk__several_policies_in_one_tick(void **state)
{
    enum { POLICIES = 3, ROUNDS = 100 };
    struct shop *shop = *state;
    static struct shop_answer answers[ROUNDS][POLICIES];
    int64_t policies[POLICIES];

    for (int i = 0; i < POLICIES; i++)
        policies[i] = shop_create(shop, ROUNDS - i, 1);
    for (int round = 0; round < ROUNDS; round++) {
        char user[16];
        snprintf(user, sizeof(user), "user-%d", round);
        for (int i = 0; i < POLICIES; i++)
            shop_submit(shop, policies[i], user, 0, &answers[round][i]);
    }
    shop_settle(shop);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < POLICIES; i++) {
            bool wins = round < ROUNDS - i;
            assert_int_equal(answers[round][i].count, 1);
            assert_int_equal(answers[round][i].wish.verdict, wins ? VERDICT_WON : VERDICT_SOLD_OUT);
            assert_int_equal(answers[round][i].wish.policy_id, policies[i]);
            if (wins)
                assert_int_equal(answers[round][i].wish.seq, round + 1);
        }
    }
    uint64_t calls = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
        calls += atomic_load(&desk_batch_sizes(shop->desk)->counts[i]);
    assert_int_equal(calls, POLICIES);
    assert_int_equal(atomic_load(&desk_batch_sizes(shop->desk)->sum), POLICIES * ROUNDS);
}

static int64_t thread_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* What one tick costs in which everybody names a policy that is not there: the ids are `step`
 * apart. */
static int64_t cost_of_unknown_ids_ns(struct shop *shop, int64_t step)
{
    enum { CLAIMS = 30000, TRIES = 3 };
    static struct shop_answer answers[CLAIMS];
    int64_t least_ns = INT64_MAX;

    for (int try = 0; try < TRIES; try++) {
        for (int i = 0; i < CLAIMS; i++)
            shop_submit(shop, 1000000 + i * step, "a", 0, &answers[i]);
        int64_t from_ns = thread_cpu_ns();
        shop_tick(shop);
        int64_t took_ns = thread_cpu_ns() - from_ns;
        least_ns = took_ns < least_ns ? took_ns : least_ns;
        for (int i = 0; i < CLAIMS; i++)
            assert_int_equal(answers[i].wish.verdict, VERDICT_NO_POLICY);
    }
    return least_ns;
}

/* Comparing each claim with each would cost hundreds of times as much. */
static void test_desk__many_ids_in_one_tick_cost_about_as_much_as_one(void **state)
{
    struct shop *shop = *state;
    int64_t one_ns = cost_of_unknown_ids_ns(shop, 0);
    int64_t many_ns = cost_of_unknown_ids_ns(shop, 1);

    if (many_ns > 50 * one_ns)
        fail_msg("%lld us for many ids, %lld us for one", (long long)many_ns / 1000,
                 (long long)one_ns / 1000);
}

/* --- too late, too much, not now --- */

static void test_desk__timeout_and_the_retry_finds_the_claim(void **state)
{
    struct shop *shop = *state;
    shop->options.ack_timeout_ms = 30;
    shop_restart(shop);
    int64_t policy = shop_create(shop, 5, 1);
    struct shop_answer answer;

    shop_stall(shop);
    shop_submit(shop, policy, "a", 0, &answer);
    shop_settle(shop);
    assert_int_equal(answer.count, 1);
    assert_int_equal(answer.wish.verdict, VERDICT_UNAVAILABLE);
    shop_resume(shop);
    struct wish again;
    do
        again = shop_claim(shop, policy, "a", 0);
    while (again.verdict == VERDICT_UNAVAILABLE);
    assert_int_equal(again.verdict, VERDICT_HELD);
    assert_int_equal(again.seq, 1);
    assert_int_equal(shop_active(shop, policy), 1);
}

static void test_desk__over_the_pending_cap_nothing_reaches_the_gate(void **state)
{
    struct shop *shop = *state;
    shop->options.pending_max = 2;
    shop_restart(shop);
    int64_t policy = shop_create(shop, 5, 1);
    struct shop_answer first[2];
    struct shop_answer second[2];

    shop_stall(shop);
    shop_submit(shop, policy, "a", 0, &first[0]);
    shop_submit(shop, policy, "b", 0, &first[1]);
    shop_tick(shop);
    shop_submit(shop, policy, "c", 0, &second[0]);
    shop_submit(shop, policy, "a", 0, &second[1]);
    shop_tick(shop);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(second[i].count, 1);
        assert_int_equal(second[i].wish.verdict, VERDICT_UNAVAILABLE);
    }
    assert_int_equal(shop_show(shop, policy).numbers.pending, 2);
    shop_resume(shop);
    shop_settle(shop);
    assert_int_equal(first[1].wish.verdict, VERDICT_WON);
    assert_int_equal(shop_claim(shop, policy, "c", 0).seq, 3);
}

static void test_desk__refusing_ledger_and_recovery(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 5, 1);
    struct shop_answer stuck;

    shop_break_disk();
    shop_submit(shop, policy, "a", 0, &stuck);
    shop_tick(shop);
    while (ledger_healthy(service_ledger(shop->service)))
        shop_wait(shop);
    assert_int_equal(stuck.count, 0);
    struct shop_answer turned_away;
    shop_submit(shop, policy, "b", 0, &turned_away);
    shop_tick(shop);
    assert_int_equal(turned_away.count, 1);
    assert_int_equal(turned_away.wish.verdict, VERDICT_UNAVAILABLE);
    /* Nobody who writes may hang behind the claim that is tried again. */
    assert_int_equal(shop_set_paused(shop, policy, true), STATUS_UNAVAILABLE);
    shop_fix_disk();
    shop_settle(shop);
    assert_int_equal(stuck.wish.verdict, VERDICT_WON);
    assert_int_equal(stuck.wish.seq, 1);
    assert_int_equal(shop_claim(shop, policy, "b", 0).seq, 2);
    assert_int_equal(shop_imbalance(shop, policy), 0);
}

/* --- stock that comes later --- */

static void test_desk__parked_claims_win_in_their_order(void **state)
{
    struct shop *shop = *state;
    int64_t policy =
        shop_create_with(shop, (struct policy){.total = 5, .per_user_limit = 1, .reserve = 4});
    struct shop_answer answers[6];
    char user[] = "a";

    assert_int_equal(shop_claim(shop, policy, "first", 0).seq, 1);
    for (int i = 0; i < 6; i++, user[0]++)
        shop_submit(shop, policy, user, 0, &answers[i]);
    shop_settle(shop);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(answers[i].wish.verdict, VERDICT_WON);
        assert_int_equal(answers[i].wish.seq, i + 2);
    }
    assert_int_equal(answers[4].wish.verdict, VERDICT_SOLD_OUT);
    assert_int_equal(answers[5].wish.verdict, VERDICT_SOLD_OUT);
    assert_int_equal(shop_imbalance(shop, policy), 0);
}

static void test_desk__parked_behind_a_refusing_ledger(void **state)
{
    struct shop *shop = *state;
    shop->options.ack_timeout_ms = 150;
    shop_restart(shop);
    int64_t policy =
        shop_create_with(shop, (struct policy){.total = 2, .per_user_limit = 1, .reserve = 1});

    assert_int_equal(shop_claim(shop, policy, "a", 0).verdict, VERDICT_WON);
    shop_break_disk();
    assert_int_equal(shop_claim(shop, policy, "b", 0).verdict, VERDICT_UNAVAILABLE);
    assert_int_equal(shop_show(shop, policy).numbers.state, POLICY_OPEN);
    shop_fix_disk();
    struct wish wish;
    do
        wish = shop_claim(shop, policy, "b", 0);
    while (wish.verdict == VERDICT_UNAVAILABLE);
    assert_int_equal(wish.seq, 2);
    assert_int_equal(shop_claim(shop, policy, "c", 0).verdict, VERDICT_SOLD_OUT);
}

/* A user is blocked between decision and commit. */
static void test_desk__void_claims_are_decided_again_and_only_they(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 2, 2);
    struct id blocked = id_of(SPAN("blocked"));
    struct shop_answer answers[3];

    shop_stall(shop);
    shop_submit(shop, policy, "a", 0, &answers[0]);
    shop_submit(shop, policy, "blocked", 0, &answers[1]);
    shop_submit(shop, policy, "c", 0, &answers[2]);
    shop_tick(shop);
    shop_execute(shop->staller, "INSERT INTO blocked_user VALUES ('blocked', 1)");
    assert_int_equal(gate_block(service_gate(shop->service), &blocked, true, &shop->error),
                     STATUS_OK);
    shop_resume(shop);
    shop_settle(shop);
    assert_int_equal(answers[0].wish.verdict, VERDICT_WON);
    assert_int_equal(answers[0].wish.seq, 1);
    assert_int_equal(answers[1].wish.verdict, VERDICT_BLOCKED);
    /* The unit came back, so "sold out" would have been wrong. */
    assert_int_equal(answers[2].wish.verdict, VERDICT_WON);
    assert_int_equal(answers[2].wish.seq, 3);
    assert_int_equal(shop_active(shop, policy), 2);
    assert_int_equal(shop_imbalance(shop, policy), 0);
}

int main(void)
{
#define DESK_TEST(name) \
    cmocka_unit_test_setup_teardown(test_desk__##name, shop_set_up, shop_tear_down)
    const struct CMUnitTest tests[] = {
        DESK_TEST(winner_waits_for_the_commit),
        DESK_TEST(verdicts_wait_for_what_they_rest_on),
        DESK_TEST(durable_verdicts_go_out_in_their_tick),
        DESK_TEST(bound_key_waits_and_survives),
        DESK_TEST(several_policies_in_one_tick),
        DESK_TEST(many_ids_in_one_tick_cost_about_as_much_as_one),
        DESK_TEST(timeout_and_the_retry_finds_the_claim),
        DESK_TEST(over_the_pending_cap_nothing_reaches_the_gate),
        DESK_TEST(refusing_ledger_and_recovery),
        DESK_TEST(parked_claims_win_in_their_order),
        DESK_TEST(parked_behind_a_refusing_ledger),
        DESK_TEST(void_claims_are_decided_again_and_only_they),
    };
    return cmocka_run_group_tests_name("desk", tests, NULL, NULL);
}
