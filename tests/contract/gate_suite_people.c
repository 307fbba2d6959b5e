/* gate_suite_people.c: the gate's contract about users: limits, repeats, keys, the order of
 * verdicts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "gate_fixture.h"

/* --- users --- */

static void test_gate__repeat_gets_the_same_claim(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 2, 1);
    assert_int_equal(claim(fixture, "a").seq, 1);
    struct wish again = claim(fixture, "a");
    assert_int_equal(again.verdict, VERDICT_HELD);
    assert_int_equal(again.seq, 1);
    assert_int_equal(again.nth, 1);
    assert_int_equal(claim(fixture, "b").seq, 2);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_HELD); /* also when sold out */
    assert_int_equal(look_at_pending(fixture), 2);
    acknowledge(fixture);
    assert_int_equal(claim(fixture, "a").seq, 1);
}

static void test_gate__repeat_in_one_batch(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[] = {wish_of("a"), wish_of("a"), wish_of("b"), wish_of("a")};
    struct wish *batch[] = {&wishes[0], &wishes[1], &wishes[2], &wishes[3]};

    create(fixture, 1, 1);
    gate_hand_claim(&fixture->hand, POLICY, batch, 4);
    assert_int_equal(wishes[0].verdict, VERDICT_WON);
    assert_int_equal(wishes[1].verdict, VERDICT_HELD);
    assert_int_equal(wishes[1].seq, 1);
    assert_int_equal(wishes[2].verdict, VERDICT_SOLD_OUT);
    assert_int_equal(wishes[3].verdict, VERDICT_HELD);
    assert_int_equal(look_at_pending(fixture), 1);
}

static void test_gate__limit_counts_per_user(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 100, 3);
    for (int nth = 1; nth <= 3; nth++) {
        struct wish wish = claim(fixture, "a");
        assert_int_equal(wish.verdict, VERDICT_WON);
        assert_int_equal(wish.nth, nth);
    }
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_LIMIT_REACHED);
    assert_int_equal(claim(fixture, "b").nth, 1);
    assert_int_equal(look_at_pending(fixture), 4);
    acknowledge(fixture);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_LIMIT_REACHED);
}

static void test_gate__limit_counts_within_a_batch(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[5];
    struct wish *batch[5];

    create(fixture, 100, 3);
    for (int i = 0; i < 5; i++) {
        wishes[i] = wish_of("a");
        batch[i] = &wishes[i];
    }
    gate_hand_claim(&fixture->hand, POLICY, batch, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(wishes[i].verdict, i < 3 ? VERDICT_WON : VERDICT_LIMIT_REACHED);
        if (i < 3)
            assert_int_equal(wishes[i].nth, i + 1);
    }
}

static void test_gate__freed_nth_is_taken_first(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 100, 4);
    for (int i = 0; i < 4; i++)
        claim(fixture, "a");
    acknowledge(fixture);
    cancel(fixture, "a", 2);
    cancel(fixture, "a", 3);
    assert_int_equal(claim(fixture, "a").nth, 2);
    assert_int_equal(claim(fixture, "a").nth, 3);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_LIMIT_REACHED);
}

/* Trap 4: losers leave no trace. */
static void test_gate__loser_wins_when_stock_returns(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 1, 1);
    claim(fixture, "winner");
    acknowledge(fixture);
    assert_int_equal(claim(fixture, "loser").verdict, VERDICT_SOLD_OUT);
    cancel(fixture, "winner", 1);
    assert_int_equal(claim(fixture, "loser").verdict, VERDICT_LEASE_WANTED);
    lend_all(fixture);
    struct wish wish = claim(fixture, "loser");
    assert_int_equal(wish.verdict, VERDICT_WON);
    assert_int_equal(wish.seq, 2);
}

/* Trap 32: cancel and claim again, a hundred times. */
static void test_gate__cancel_and_reclaim_many_times(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 2, 1);
    for (int64_t seq = 1; seq <= 100; seq++) {
        struct wish wish = claim(fixture, "a");
        assert_int_equal(wish.verdict, VERDICT_WON);
        assert_int_equal(wish.seq, seq);
        acknowledge(fixture);
        cancel(fixture, "a", seq);
        lend_all(fixture);
    }
    await_numbers(fixture, 2, 0, 0);
}

/* The ledger's news of a coupon may overtake those of its claim. */
static void test_gate__cancelled_before_it_is_acknowledged(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 5, 1);
    claim(fixture, "a");
    claim(fixture, "b");
    assert_int_equal(look_at_pending(fixture), 2);
    struct claim both[2] = {fixture->claims[0], fixture->claims[1]};
    const enum coupon_state states[] = {COUPON_ISSUED, COUPON_ISSUED};
    cancel(fixture, "a", 1);
    gate_suite_acknowledge(fixture->gate, both, states, 2, NULL, 0);
    await_numbers(fixture, 4, 0, 1);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_WON);
}

static void test_gate__redeemed_coupon_is_held(void **state)
{
    struct fixture *fixture = *state;
    struct id user = id_of(SPAN("a"));

    create(fixture, 5, 1);
    claim(fixture, "a");
    acknowledge(fixture);
    for (int i = 0; i < 2; i++)
        assert_ok(fixture,
                  gate_settle(fixture->gate, POLICY, &user, 1, COUPON_REDEEMED, &fixture->error));
    struct wish held = claim(fixture, "a");
    assert_int_equal(held.verdict, VERDICT_HELD);
    assert_int_equal(held.coupon_state, COUPON_REDEEMED);
    await_numbers(fixture, 4, 0, 1);
}

static void test_gate__void_frees_the_user(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 2, 1);
    claim(fixture, "a");
    acknowledge_as(fixture, COUPON_VOID);
    struct wish again = claim(fixture, "a");
    assert_int_equal(again.verdict, VERDICT_WON);
    assert_int_equal(again.seq, 2);
    assert_int_equal(again.nth, 1);
}

static void test_gate__find_lists_newest_first(void **state)
{
    struct fixture *fixture = *state;
    struct gate_claim claims[4];
    struct id user = id_of(SPAN("a"));
    struct id nobody = id_of(SPAN("nobody"));
    size_t count = 0;

    create(fixture, 10, 3);
    int64_t before_ms = gate_suite_now_ms();
    claim(fixture, "a");
    acknowledge(fixture);
    claim(fixture, "b");
    claim(fixture, "a");
    int64_t after_ms = gate_suite_now_ms();
    assert_ok(fixture, gate_find(fixture->gate, POLICY, &user, claims, 4, &count, &fixture->error));
    assert_int_equal(count, 2);
    assert_int_equal(claims[0].seq, 3);
    assert_int_equal(claims[0].nth, 2);
    assert_true(claims[0].pending);
    assert_int_equal(claims[0].ahead, 1);
    assert_int_equal(claims[1].seq, 1);
    assert_int_equal(claims[1].nth, 1);
    assert_false(claims[1].pending);
    assert_int_equal(claims[1].ahead, 0);
    for (size_t i = 0; i < 2; i++) {
        assert_in_range(claims[i].requested_at_ms, before_ms, after_ms);
        assert_int_equal(claims[i].coupon_state, COUPON_ISSUED);
    }
    assert_ok(fixture, gate_find(fixture->gate, POLICY, &user, claims, 1, &count, &fixture->error));
    assert_int_equal(count, 2);
    assert_int_equal(claims[0].seq, 3);
    assert_ok(fixture,
              gate_find(fixture->gate, POLICY, &nobody, claims, 4, &count, &fixture->error));
    assert_int_equal(count, 0);
}

/* Every character that a user's name may have, at its longest. */
static void test_gate__names_of_all_kinds(void **state)
{
    struct fixture *fixture = *state;
    const char *const names[] = {
        "a:b", ":", "1:1:P:0", "user@example.org",
        "-.-", "0", "..x",     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"};
    const size_t count = sizeof(names) / sizeof(names[0]);

    create(fixture, (int64_t)count, 1);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(claim_with_key(fixture, names[i], (uint8_t)(i + 1)).seq, i + 1);
    assert_int_equal(look_at_pending(fixture), count);
    for (size_t i = 0; i < count; i++) {
        assert_true(span_equal(id_span(&fixture->claims[i].user), span_of(names[i])));
        assert_int_equal(claim(fixture, names[i]).seq, i + 1);
        assert_int_equal(claim_with_key(fixture, names[i], (uint8_t)(i + 1)).seq, i + 1);
    }
    acknowledge(fixture);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(claim(fixture, names[i]).seq, i + 1);
}

/* --- keys --- */

static void test_gate__key_names_its_claim(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 10, 5);
    assert_int_equal(claim_with_key(fixture, "a", 1).seq, 1);
    assert_int_equal(claim_with_key(fixture, "a", 2).seq, 2);
    struct wish again = claim_with_key(fixture, "a", 1);
    assert_int_equal(again.verdict, VERDICT_HELD);
    assert_int_equal(again.seq, 1);
    assert_int_equal(claim_with_key(fixture, "b", 1).verdict, VERDICT_WON); /* another key */
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_WON);             /* no key: a new wish */
}

static void test_gate__key_within_a_batch(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[] = {wish_with_key("a", 1), wish_with_key("b", 1), wish_with_key("a", 1),
                            wish_with_key("a", 2), wish_with_key("c", 2)};
    struct wish *batch[] = {&wishes[0], &wishes[1], &wishes[2], &wishes[3], &wishes[4]};

    create(fixture, 10, 1);
    gate_hand_claim(&fixture->hand, POLICY, batch, 5);
    assert_int_equal(wishes[0].verdict, VERDICT_WON);
    assert_int_equal(wishes[1].verdict, VERDICT_WON);
    assert_int_equal(wishes[2].verdict, VERDICT_HELD);
    assert_int_equal(wishes[2].seq, 1);
    assert_int_equal(wishes[3].verdict, VERDICT_HELD); /* and bound */
    assert_int_equal(wishes[4].verdict, VERDICT_WON);
    look_at_pending(fixture);
    assert_int_equal(fixture->binding_count, 1);
    assert_int_equal(fixture->bindings[0].seq, 1);
    assert_int_equal(fixture->bindings[0].request_id.bytes[15], 2);
}

static void test_gate__held_claim_binds_the_key(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 1, 1);
    claim_with_key(fixture, "a", 1);
    acknowledge(fixture);
    assert_int_equal(claim_with_key(fixture, "a", 2).verdict, VERDICT_HELD);
    look_at_pending(fixture);
    assert_int_equal(fixture->binding_count, 1);
    assert_int_equal(fixture->bindings[0].policy_id, POLICY);
    assert_int_equal(fixture->bindings[0].seq, 1);
    assert_int_equal(fixture->bindings[0].request_id.bytes[15], 2);
    acknowledge(fixture);
    look_at_pending(fixture);
    assert_int_equal(fixture->binding_count, 0);
    cancel(fixture, "a", 1);
    lend_all(fixture);
    for (uint8_t key = 1; key <= 2; key++) {
        struct wish after = claim_with_key(fixture, "a", key);
        assert_int_equal(after.verdict, VERDICT_HELD);
        assert_int_equal(after.seq, 1);
        assert_int_equal(after.nth, 1);
        assert_int_equal(after.coupon_state, COUPON_CANCELLED);
    }
    assert_int_equal(claim_with_key(fixture, "a", 3).verdict, VERDICT_WON);
}

/* One claim keeps so many keys; the next is refused, and the others still answer. */
static void test_gate__keys_of_one_claim_are_bounded(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 2, 1);
    claim_with_key(fixture, "a", 1);
    for (uint8_t key = 2; key <= 1 + CLAIM_KEYS_MAX; key++)
        assert_int_equal(claim_with_key(fixture, "a", key).seq, 1);
    for (uint8_t key = 2 + CLAIM_KEYS_MAX; key < 60; key++)
        assert_int_equal(claim_with_key(fixture, "a", key).verdict, VERDICT_KEYS_FULL);
    look_at_pending(fixture);
    assert_int_equal(fixture->binding_count, CLAIM_KEYS_MAX);
    acknowledge(fixture);
    for (uint8_t key = 1; key <= 1 + CLAIM_KEYS_MAX; key++)
        assert_int_equal(claim_with_key(fixture, "a", key).seq, 1);
    assert_int_equal(claim(fixture, "a").seq, 1);
    /* It was forgotten by nobody: it may win once the user holds nothing. */
    cancel(fixture, "a", 1);
    assert_int_equal(claim_with_key(fixture, "a", 59).verdict, VERDICT_WON);
    assert_int_equal(claim_with_key(fixture, "a", 2).coupon_state, COUPON_CANCELLED);
}

static void test_gate__refusal_binds_no_key(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 1, 1);
    claim(fixture, "a");
    acknowledge(fixture);
    assert_int_equal(claim_with_key(fixture, "b", 7).verdict, VERDICT_SOLD_OUT);
    assert_int_equal(claim_with_key(fixture, "c", 7).verdict, VERDICT_SOLD_OUT);
    cancel(fixture, "a", 1);
    lend_all(fixture);
    assert_int_equal(claim_with_key(fixture, "c", 7).verdict, VERDICT_WON);
}

/* --- the order of verdicts --- */

static void test_gate__order_of_verdicts(void **state)
{
    struct fixture *fixture = *state;
    struct id blocked = id_of(SPAN("blocked"));
    struct id holder = id_of(SPAN("blocked-holder"));
    int64_t opens_at_ms = gate_suite_now_ms() + HOUR_MS;

    create(fixture, 3, 1);
    claim_with_key(fixture, "holder", 1);
    claim(fixture, "blocked-holder");
    assert_ok(fixture, gate_block(fixture->gate, &blocked, true, &fixture->error));
    assert_ok(fixture, gate_block(fixture->gate, &holder, true, &fixture->error));

    fixture->policy.opens_at_ms = opens_at_ms;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "new").verdict, VERDICT_NOT_OPEN);
    assert_int_equal(claim(fixture, "new").opens_at_ms, opens_at_ms);
    assert_int_equal(claim(fixture, "holder").verdict, VERDICT_HELD);
    fixture->policy.paused = true;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "new").verdict, VERDICT_PAUSED);
    fixture->policy.closed_at_ms = gate_suite_now_ms();
    set_policy(fixture);
    assert_int_equal(claim(fixture, "new").verdict, VERDICT_CLOSED);
    assert_int_equal(claim(fixture, "blocked").verdict, VERDICT_BLOCKED);
    assert_int_equal(claim(fixture, "blocked-holder").verdict, VERDICT_HELD);
    assert_int_equal(claim(fixture, "holder").verdict, VERDICT_HELD);
    assert_int_equal(claim_with_key(fixture, "blocked", 1).verdict, VERDICT_BLOCKED);
    assert_ok(fixture, gate_block(fixture->gate, &blocked, false, &fixture->error));
    assert_int_equal(claim(fixture, "blocked").verdict, VERDICT_CLOSED);
}

/* The same for somebody who holds one of two, for whom more is looked at. */
static void test_gate__order_of_verdicts_for_a_holder(void **state)
{
    struct fixture *fixture = *state;
    struct id user = id_of(SPAN("a"));

    create(fixture, 3, 2);
    claim_with_key(fixture, "a", 1);
    fixture->policy.opens_at_ms = gate_suite_now_ms() + HOUR_MS;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_NOT_OPEN);
    fixture->policy.paused = true;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_PAUSED);
    fixture->policy.closes_at_ms = gate_suite_now_ms() - 1;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_CLOSED);
    assert_ok(fixture, gate_block(fixture->gate, &user, true, &fixture->error));
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_BLOCKED);
    assert_int_equal(claim_with_key(fixture, "a", 1).verdict, VERDICT_HELD);
}

static void test_gate__sold_out_comes_last(void **state)
{
    struct fixture *fixture = *state;
    struct id blocked = id_of(SPAN("blocked"));

    create(fixture, 2, 2);
    claim(fixture, "a");
    claim(fixture, "a");
    await_state(fixture, POLICY_SOLD_OUT);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_LIMIT_REACHED);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_SOLD_OUT);
    assert_ok(fixture, gate_block(fixture->gate, &blocked, true, &fixture->error));
    assert_int_equal(claim(fixture, "blocked").verdict, VERDICT_BLOCKED);
    fixture->policy.paused = true;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_PAUSED);
    fixture->policy.closed_at_ms = gate_suite_now_ms();
    set_policy(fixture);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_CLOSED);
}

static void test_gate__window_by_its_own_clock(void **state)
{
    struct fixture *fixture = *state;
    int64_t now_ms = gate_suite_now_ms();

    create(fixture, 10, 1);
    fixture->policy.opens_at_ms = now_ms + HOUR_MS;
    fixture->policy.closes_at_ms = now_ms + 2 * HOUR_MS;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_NOT_OPEN);
    await_state(fixture, POLICY_SCHEDULED);
    fixture->policy.opens_at_ms = now_ms;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_WON);
    await_state(fixture, POLICY_OPEN);
    fixture->policy.closes_at_ms = gate_suite_now_ms();
    set_policy(fixture);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_CLOSED);
    await_state(fixture, POLICY_CLOSED);
    assert_false(numbers_of(fixture).closed_by_hand);
    fixture->policy.closes_at_ms = 0;
    fixture->policy.paused = true;
    set_policy(fixture);
    await_state(fixture, POLICY_PAUSED);
    fixture->policy.closed_at_ms = now_ms;
    set_policy(fixture);
    await_state(fixture, POLICY_CLOSED);
    assert_true(numbers_of(fixture).closed_by_hand);
}

static void test_gate__held_coupon_expires(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 10, 1);
    claim_with_key(fixture, "a", 1);
    acknowledge(fixture);
    fixture->policy.coupon_expires_at_ms = gate_suite_now_ms() + HOUR_MS;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").coupon_state, COUPON_ISSUED);
    /* The end of the window ends no coupon. */
    fixture->policy.closes_at_ms = gate_suite_now_ms();
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").coupon_state, COUPON_ISSUED);
    fixture->policy.coupon_expires_at_ms = gate_suite_now_ms();
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_HELD);
    assert_int_equal(claim(fixture, "a").coupon_state, COUPON_EXPIRED);
    assert_int_equal(claim_with_key(fixture, "a", 1).coupon_state, COUPON_EXPIRED);
    /* The earlier of two ends counts. */
    fixture->policy.coupon_valid_days = 1;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").coupon_state, COUPON_EXPIRED);
    fixture->policy.coupon_expires_at_ms = 0;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "a").coupon_state, COUPON_ISSUED);
}

static void test_gate__coupon_expires_after_its_days(void **state)
{
    struct fixture *fixture = *state;
    const char *const users[] = {"old", "young"};
    int64_t now_ms = gate_suite_now_ms();

    fixture->policy = (struct policy){.id = POLICY,
                                      .name = "days",
                                      .total = 2,
                                      .per_user_limit = 1,
                                      .coupon_valid_days = 2,
                                      .next_seq = 3};
    assert_ok(fixture, reset_to_build(fixture->gate, POLICY, 2, &fixture->error));
    set_policy(fixture);
    for (int i = 0; i < 2; i++) {
        struct claim restored = {.policy_id = POLICY,
                                 .seq = i + 1,
                                 .nth = 1,
                                 .requested_at_ms = now_ms - (2 - i) * DAY_MS,
                                 .user = id_of(span_of(users[i]))};
        assert_ok(fixture, gate_restore(fixture->gate, &restored, COUPON_ISSUED, &fixture->error));
    }
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 2, &fixture->error));
    assert_int_equal(claim(fixture, "old").coupon_state, COUPON_EXPIRED);
    assert_int_equal(claim(fixture, "young").coupon_state, COUPON_ISSUED);
}

static struct gate_renaming renaming_of(const struct fixture *fixture, const struct id *from,
                                        const struct id *to)
{
    return (struct gate_renaming){.policy_id = POLICY,
                                  .from = from,
                                  .to = to,
                                  .claims = fixture->claims,
                                  .claim_count = fixture->claim_count};
}

/* Everything that one user holds is another's, and their limit starts anew. */
static void test_gate__what_was_held_has_another_name(void **state)
{
    struct fixture *fixture = *state;
    const struct id a = id_of(SPAN("a"));
    const struct id other = id_of(SPAN("somebody-else"));
    struct gate_claim claims[3];
    size_t count;

    create(fixture, 100, 2);
    claim_with_key(fixture, "a", 1);
    claim_with_key(fixture, "a", 2);
    assert_int_equal(look_at_pending(fixture), 2);
    struct gate_renaming renaming = renaming_of(fixture, &a, &other);
    acknowledge(fixture);
    for (int i = 0; i < 2; i++)
        assert_ok(fixture, gate_rename(fixture->gate, &renaming, &fixture->error));
    assert_ok(fixture,
              gate_find(fixture->gate, POLICY, &other, claims, 3, &count, &fixture->error));
    assert_int_equal(count, 2);
    assert_ok(fixture, gate_find(fixture->gate, POLICY, &a, claims, 3, &count, &fixture->error));
    assert_int_equal(count, 0);
    assert_int_equal(claim(fixture, "somebody-else").verdict, VERDICT_LIMIT_REACHED);
    assert_int_equal(claim_with_key(fixture, "a", 2).verdict, VERDICT_HELD);
    cancel(fixture, "somebody-else", 1);
    assert_int_equal(claim(fixture, "somebody-else").nth, 1);
    for (int nth = 1; nth <= 2; nth++)
        assert_int_equal(claim(fixture, "a").nth, nth);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_LIMIT_REACHED);
    await_numbers(fixture, 96, 3, 1);
}

/* A claim of theirs that the ledger has not told of stays theirs, and so does all else. */
static void test_gate__what_is_pending_keeps_its_name(void **state)
{
    struct fixture *fixture = *state;
    const struct id a = id_of(SPAN("a"));
    const struct id other = id_of(SPAN("somebody-else"));
    struct gate_claim claims[3];
    size_t count;

    create(fixture, 100, 3);
    claim(fixture, "a");
    assert_int_equal(look_at_pending(fixture), 1);
    acknowledge(fixture);
    struct gate_renaming renaming = renaming_of(fixture, &a, &other);
    claim(fixture, "a");
    assert_status(fixture, gate_rename(fixture->gate, &renaming, &fixture->error), STATUS_CONFLICT);
    assert_ok(fixture, gate_find(fixture->gate, POLICY, &a, claims, 3, &count, &fixture->error));
    assert_int_equal(count, 2);
    assert_int_equal(claim(fixture, "somebody-else").nth, 1);
}

int gate_suite_people_run(void)
{
    const struct CMUnitTest tests[] = {
        GATE_TEST(test_gate__repeat_gets_the_same_claim),
        GATE_TEST(test_gate__repeat_in_one_batch),
        GATE_TEST(test_gate__limit_counts_per_user),
        GATE_TEST(test_gate__limit_counts_within_a_batch),
        GATE_TEST(test_gate__freed_nth_is_taken_first),
        GATE_TEST(test_gate__loser_wins_when_stock_returns),
        GATE_TEST(test_gate__cancel_and_reclaim_many_times),
        GATE_TEST(test_gate__cancelled_before_it_is_acknowledged),
        GATE_TEST(test_gate__redeemed_coupon_is_held),
        GATE_TEST(test_gate__void_frees_the_user),
        GATE_TEST(test_gate__find_lists_newest_first),
        GATE_TEST(test_gate__names_of_all_kinds),
        GATE_TEST(test_gate__key_names_its_claim),
        GATE_TEST(test_gate__key_within_a_batch),
        GATE_TEST(test_gate__held_claim_binds_the_key),
        GATE_TEST(test_gate__keys_of_one_claim_are_bounded),
        GATE_TEST(test_gate__refusal_binds_no_key),
        GATE_TEST(test_gate__order_of_verdicts),
        GATE_TEST(test_gate__order_of_verdicts_for_a_holder),
        GATE_TEST(test_gate__sold_out_comes_last),
        GATE_TEST(test_gate__window_by_its_own_clock),
        GATE_TEST(test_gate__held_coupon_expires),
        GATE_TEST(test_gate__coupon_expires_after_its_days),
        GATE_TEST(test_gate__what_was_held_has_another_name),
        GATE_TEST(test_gate__what_is_pending_keeps_its_name),
    };
    return cmocka_run_group_tests_name("gate_people", tests, NULL, NULL);
}
