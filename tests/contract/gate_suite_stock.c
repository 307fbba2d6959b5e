/* gate_suite_stock.c: the gate's contract about stock: leases, recalls, numbers, restoring. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "gate/shared.h"
#include "gate_fixture.h"

/* --- leases --- */

static void test_gate__unknown_policy(void **state)
{
    struct fixture *fixture = *state;
    struct id user = id_of(SPAN("a"));
    struct gate_claim claims[1];
    struct gate_numbers numbers;
    size_t count = 0;

    fixture->policy.id = POLICY;
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_NO_POLICY);
    assert_int_equal(claim_with_key(fixture, "a", 1).verdict, VERDICT_NO_POLICY);
    assert_int_equal(gate_count(fixture->gate, POLICY, gate_suite_now_ms(), &numbers),
                     STATUS_NOT_FOUND);
    assert_status(fixture,
                  gate_find(fixture->gate, POLICY, &user, claims, 1, &count, &fixture->error),
                  STATUS_NOT_FOUND);
    assert_status(fixture, lend(fixture, 1, 1, 5), STATUS_NOT_FOUND);
}

static void test_gate__batch_in_order_then_sold_out(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[200];
    struct wish *batch[200];

    create(fixture, 150, 1);
    for (int i = 0; i < 200; i++) {
        char user[24];
        snprintf(user, sizeof(user), "user-%d", i);
        wishes[i] = wish_of(user);
        batch[i] = &wishes[i];
    }
    int64_t before_ms = gate_suite_now_ms();
    gate_hand_claim(&fixture->hand, POLICY, batch, 200);
    int64_t after_ms = gate_suite_now_ms();
    for (int i = 0; i < 200; i++) {
        assert_int_equal(wishes[i].verdict, i < 150 ? VERDICT_WON : VERDICT_SOLD_OUT);
        if (i < 150) {
            assert_int_equal(wishes[i].seq, i + 1);
            assert_int_equal(wishes[i].nth, 1);
        }
    }
    assert_int_equal(look_at_pending(fixture), 150);
    for (size_t i = 0; i < 150; i++) {
        const struct claim *won = &fixture->claims[i];
        assert_int_equal(won->policy_id, POLICY);
        assert_int_equal(won->seq, i + 1);
        assert_int_equal(won->nth, 1);
        assert_int_equal(won->lease_id, 1);
        assert_in_range(won->requested_at_ms, before_ms, after_ms);
        assert_true(id_equal(&won->user, &wishes[i].user));
        assert_memory_equal(&won->request_id, &wishes[i].request_id, sizeof(won->request_id));
    }
    await_state(fixture, POLICY_SOLD_OUT);
    assert_in_range(numbers_of(fixture).sold_out_at_ms, before_ms, after_ms);
}

/* More than a backend may want to decide in one go. */
static void test_gate__batch_of_thousands(void **state)
{
    struct fixture *fixture = *state;
    static struct wish wishes[2500];
    static struct wish *batch[2500];

    create(fixture, 2200, 1);
    for (int i = 0; i < 2500; i++) {
        char user[24];
        snprintf(user, sizeof(user), "user-%d", i);
        wishes[i] = wish_of(user);
        batch[i] = &wishes[i];
    }
    gate_hand_claim(&fixture->hand, POLICY, batch, 2500);
    for (int i = 0; i < 2500; i++) {
        assert_int_equal(wishes[i].verdict, i < 2200 ? VERDICT_WON : VERDICT_SOLD_OUT);
        if (i < 2200)
            assert_int_equal(wishes[i].seq, i + 1);
    }
    assert_int_equal(look_at_pending(fixture), 2200);
    acknowledge(fixture);
    assert_int_equal(look_at_pending(fixture), 0);
    await_numbers(fixture, 0, 0, 2200);
}

static void test_gate__leases_follow_each_other(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 1, 1);
    assert_int_equal(claim(fixture, "a").seq, 1);
    fixture->policy.total += 2;
    fixture->policy.unleased += 2;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_LEASE_WANTED);
    await_state(fixture, POLICY_OPEN);
    lend_all(fixture);
    assert_int_equal(claim(fixture, "b").seq, 2);
    assert_int_equal(claim(fixture, "c").seq, 3);
    assert_int_equal(claim(fixture, "d").verdict, VERDICT_SOLD_OUT);
    assert_int_equal(look_at_pending(fixture), 3);
    assert_int_equal(fixture->claims[0].lease_id, 1);
    assert_int_equal(fixture->claims[1].lease_id, 2);
    assert_int_equal(fixture->claims[2].lease_id, 2);
}

/* One batch that takes the last of one lease and the first of the next. */
static void test_gate__batch_over_two_leases(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[] = {wish_of("a"), wish_of("b"), wish_of("c"), wish_of("d")};
    struct wish *batch[] = {&wishes[0], &wishes[1], &wishes[2], &wishes[3]};

    create(fixture, 2, 1);
    fixture->policy.total += 1;
    fixture->policy.unleased = 1;
    fixture->policy.next_seq = 10; /* somebody else had the seqs in between */
    lend_all(fixture);
    gate_hand_claim(&fixture->hand, POLICY, batch, 4);
    assert_int_equal(wishes[0].seq, 1);
    assert_int_equal(wishes[1].seq, 2);
    assert_int_equal(wishes[2].seq, 10);
    assert_int_equal(wishes[3].verdict, VERDICT_SOLD_OUT);
}

/* Trap 33: a stalled steward pushes a lease that another already pushed. */
static void test_gate__lease_counts_once(void **state)
{
    struct fixture *fixture = *state;

    create(fixture, 5, 1);
    assert_status(fixture, lend(fixture, 1, 1, 5), STATUS_CONFLICT);
    assert_status(fixture, lend(fixture, 1, 6, 5), STATUS_CONFLICT);
    assert_status(fixture, lend(fixture, 9, 3, 5), STATUS_CONFLICT);
    for (int i = 0; i < 5; i++) {
        char user[24];
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim(fixture, user).verdict, VERDICT_WON);
    }
    assert_int_equal(claim(fixture, "late").verdict, VERDICT_SOLD_OUT);
    assert_status(fixture, lend(fixture, 1, 1, 5), STATUS_CONFLICT);
    assert_int_equal(claim(fixture, "late").verdict, VERDICT_SOLD_OUT);
}

/* --- recalls --- */

static enum status recall(struct fixture *fixture, int64_t count, struct lease_shrunk *shrunk,
                          size_t *shrunk_count)
{
    return gate_recall(fixture->gate, POLICY, count, shrunk, shrunk_count, &fixture->error);
}

/* A lease that was given back does not come back by itself, but its seqs may: they were never given
 * out, and the ledger's line stays dense. */
static void test_gate__recalled_lease_does_not_come_back(void **state)
{
    struct fixture *fixture = *state;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;

    create(fixture, 5, 1);
    assert_int_equal(claim(fixture, "a").seq, 1);
    assert_ok(fixture, recall(fixture, GATE_RECALL_ALL, shrunk, &shrunk_count));
    assert_int_equal(shrunk_count, 1);
    assert_int_equal(shrunk[0].count, 1);
    assert_status(fixture, lend(fixture, 1, 2, 4), STATUS_CONFLICT);
    assert_status(fixture, lend(fixture, 1, 1, 5), STATUS_CONFLICT);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_SOLD_OUT);
    fixture->policy.unleased = 4;
    fixture->policy.next_seq = 2;
    lend_all(fixture);
    assert_int_equal(claim(fixture, "b").seq, 2);
}

static void test_gate__recall_is_all_or_none(void **state)
{
    struct fixture *fixture = *state;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;

    create(fixture, 10, 1);
    claim(fixture, "a");
    assert_status(fixture, recall(fixture, 10, shrunk, &shrunk_count), STATUS_CONFLICT);
    assert_int_equal(shrunk_count, 0);
    assert_ok(fixture, recall(fixture, 8, shrunk, &shrunk_count));
    assert_int_equal(shrunk_count, 1);
    assert_int_equal(shrunk[0].lease_id, 1);
    assert_int_equal(shrunk[0].count, 2);
    assert_int_equal(claim(fixture, "b").seq, 2);
    /* They are on their way back until the total is lower. */
    fixture->policy.total = 2;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "c").verdict, VERDICT_SOLD_OUT);
}

static void test_gate__recall_all_over_several_leases(void **state)
{
    struct fixture *fixture = *state;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;
    int64_t back = 0;

    create(fixture, 3, 1);
    fixture->policy.total += 4;
    fixture->policy.unleased = 4;
    lend_all(fixture);
    claim(fixture, "a");
    assert_ok(fixture, recall(fixture, GATE_RECALL_ALL, shrunk, &shrunk_count));
    assert_int_equal(shrunk_count, 2);
    for (size_t i = 0; i < shrunk_count; i++)
        back += (shrunk[i].lease_id == 1 ? 3 : 4) - shrunk[i].count;
    assert_int_equal(back, 6);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_SOLD_OUT);
    assert_ok(fixture, recall(fixture, GATE_RECALL_ALL, shrunk, &shrunk_count));
    assert_int_equal(shrunk_count, 0);
}

/* More leases than one recall may touch: none is forgotten. */
static void test_gate__recall_over_many_leases(void **state)
{
    struct fixture *fixture = *state;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    bool is_back[151] = {false};
    size_t shrunk_count = 0;
    size_t back_count = 0;

    create(fixture, 1, 1);
    for (int i = 0; i < 149; i++) {
        fixture->policy.total++;
        fixture->policy.unleased = 1;
        lend_all(fixture);
    }
    assert_status(fixture, recall(fixture, 100, shrunk, &shrunk_count), STATUS_UNAVAILABLE);
    assert_int_equal(shrunk_count, 0);
    do {
        assert_ok(fixture, recall(fixture, GATE_RECALL_ALL, shrunk, &shrunk_count));
        assert_true(shrunk_count <= GATE_RECALL_LEASES_MAX);
        for (size_t i = 0; i < shrunk_count; i++) {
            assert_in_range(shrunk[i].lease_id, 1, 150);
            assert_int_equal(shrunk[i].count, 0);
            assert_false(is_back[shrunk[i].lease_id]);
            is_back[shrunk[i].lease_id] = true;
            back_count++;
        }
    } while (shrunk_count > 0);
    assert_int_equal(back_count, 150);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_SOLD_OUT);
}

/* Units that come back one by one, and that nobody wants, pile up as leases of one. */
static void test_gate__all_leases_count_however_many(void **state)
{
    struct fixture *fixture = *state;
    const int64_t lease_count = GATE_STATE_LEASES_MAX + 4;
    struct gate_state stands;

    create(fixture, 3, 1);
    int64_t first_seq = fixture->policy.next_seq;
    for (int64_t i = 0; i < lease_count; i++)
        assert_ok(fixture, lend(fixture, ++fixture->lease_id, first_seq + i, 1));
    assert_ok(fixture, gate_inspect(fixture->gate, fixture->policy.id, &stands, &fixture->error));
    assert_int_equal(stands.remaining, 3 + lease_count);
    assert_int_equal(stands.left, 3 + lease_count);
    assert_int_equal(stands.lease_count, GATE_STATE_LEASES_MAX);
    assert_int_equal(stands.seq_top, first_seq + lease_count - 1);
}

/* --- rows --- */

static void test_gate__older_version_is_ignored(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 2, 1);
    struct policy old = fixture->policy;
    fixture->policy.paused = true;
    set_policy(fixture);
    assert_ok(fixture, gate_policy_set(fixture->gate, &old, &fixture->error));
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_PAUSED);
}

/* Trap 2: the sync of a policy never writes over the stock in the gate. */
static void test_gate__row_never_touches_the_stock(void **state)
{
    struct fixture *fixture = *state;
    char user[24];

    create(fixture, 5, 1);
    for (int i = 0; i < 7; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        struct wish wish = claim(fixture, user);
        assert_int_equal(wish.verdict, i < 5 ? VERDICT_WON : VERDICT_SOLD_OUT);
        set_policy(fixture);
        assert_ok(fixture, gate_policy_set(fixture->gate, &fixture->policy, &fixture->error));
    }
    await_numbers(fixture, 0, 5, 0);
}

/* Known, but without its stock: nobody is told that it is sold out. */
static void test_gate__new_policy_is_not_sold_out(void **state)
{
    struct fixture *fixture = *state;

    fixture->policy = (struct policy){
        .id = POLICY, .name = "new", .total = 3, .per_user_limit = 1, .unleased = 3, .next_seq = 1};
    set_policy(fixture);
    enum verdict verdict = claim(fixture, "early").verdict;
    assert_true(verdict == VERDICT_LEASE_WANTED || verdict == VERDICT_UNAVAILABLE);
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 0, &fixture->error));
    assert_int_equal(claim(fixture, "early").verdict, VERDICT_LEASE_WANTED);
    lend_all(fixture);
    assert_int_equal(claim(fixture, "early").verdict, VERDICT_WON);
}

static void test_gate__lists_its_policies(void **state)
{
    struct fixture *fixture = *state;
    const int64_t wanted[] = {7, 42, INT64_C(9007199254740991)};
    int64_t ids[8];

    for (size_t i = 3; i > 0; i--) {
        fixture->policy = (struct policy){
            .id = wanted[i - 1], .name = "listed", .total = 1, .per_user_limit = 1, .next_seq = 1};
        set_policy(fixture);
    }
    assert_int_equal(gate_list(fixture->gate, 0, ids, 8), 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(ids[i], wanted[i]);
    assert_int_equal(gate_list(fixture->gate, 0, ids, 2), 2);
    assert_int_equal(gate_list(fixture->gate, 42, ids, 8), 1);
    assert_int_equal(ids[0], wanted[2]);
}

/* --- numbers --- */

static void test_gate__numbers_add_up(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 5, 1);
    claim(fixture, "a");
    claim(fixture, "b");
    await_numbers(fixture, 3, 2, 0);
    acknowledge(fixture);
    claim(fixture, "c");
    await_numbers(fixture, 2, 1, 2);
    cancel(fixture, "a", 1);
    await_numbers(fixture, 3, 1, 1);
    acknowledge(fixture);
    await_numbers(fixture, 3, 0, 2);
}

static void test_gate__void_is_stock_again(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 1, 1);
    claim(fixture, "a");
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_SOLD_OUT);
    acknowledge_as(fixture, COUPON_VOID);
    /* Its unit is in the ledger again, though its row has not come by yet. */
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_LEASE_WANTED);
    await_numbers(fixture, 1, 0, 0);
    await_state(fixture, POLICY_OPEN);
    fixture->policy.unleased = 1;
    lend_all(fixture);
    assert_int_equal(claim(fixture, "b").seq, 2);
}

/* One that was cancelled before the gate heard that it was issued: its unit and its user's place
 * are free, and its key still answers with it. */
static void test_gate__cancelled_before_it_was_acknowledged(void **state)
{
    struct fixture *fixture = *state;
    if (gate_shared(fixture->gate) == NULL)
        return; /* A gate in the ledger's process hears of everything in order. */
    create(fixture, 2, 1);
    assert_int_equal(claim_with_key(fixture, "a", 1).seq, 1);
    acknowledge_as(fixture, COUPON_CANCELLED);
    assert_int_equal(claim_with_key(fixture, "a", 1).seq, 1);
    assert_int_equal(claim_with_key(fixture, "a", 2).seq, 2);
}

/* What judges the window runs on this machine, whether it is a process of its own or not. */
static void test_gate__survey_finds_that_the_clocks_agree(void **state)
{
    struct fixture *fixture = *state;
    struct shared_gate *shared = gate_shared(fixture->gate);
    struct gate_survey survey = {.ahead_ms = shared == NULL ? 0 : 1000000};
    create(fixture, 1, 1);
    if (shared != NULL)
        assert_ok(fixture, gate_survey(shared, POLICY, &survey, &fixture->error));
    assert_in_range(survey.ahead_ms + 1000, 0, 2000);
}

static void test_gate__acknowledged_in_parts(void **state)
{
    struct fixture *fixture = *state;
    const enum coupon_state states[] = {COUPON_ISSUED, COUPON_VOID, COUPON_MERGED, COUPON_ISSUED};

    create(fixture, 10, 1);
    claim(fixture, "a");
    claim(fixture, "b");
    claim(fixture, "c");
    claim(fixture, "d");
    assert_int_equal(look_at_pending(fixture), 4);
    gate_suite_acknowledge(fixture->gate, fixture->claims, states, 3, NULL, 0);
    await_numbers(fixture, 8, 1, 1);
    assert_int_equal(look_at_pending(fixture), 1);
    assert_int_equal(fixture->claims[0].seq, 4);
    gate_suite_acknowledge(fixture->gate, fixture->claims, states + 3, 1, NULL, 0);
    await_numbers(fixture, 8, 0, 2);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_HELD);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_WON);
    assert_int_equal(claim(fixture, "c").verdict, VERDICT_WON);
}

/* --- restoring --- */

static void restore_claim(struct fixture *fixture, const char *user, int64_t seq, uint8_t key,
                          int64_t requested_at_ms, enum coupon_state coupon_state)
{
    struct wish wish = key == 0 ? wish_of(user) : wish_with_key(user, key);
    struct claim restored = {.policy_id = POLICY,
                             .seq = seq,
                             .nth = 1,
                             .request_id = wish.request_id,
                             .requested_at_ms = requested_at_ms,
                             .user = wish.user};
    assert_ok(fixture, gate_restore(fixture->gate, &restored, coupon_state, &fixture->error));
}

static void restore_key(struct fixture *fixture, const char *user, int64_t seq, uint8_t key)
{
    struct wish wish = wish_with_key(user, key);
    struct key_binding binding = {.policy_id = POLICY,
                                  .seq = seq,
                                  .nth = 1,
                                  .request_id = wish.request_id,
                                  .user = wish.user};
    assert_ok(fixture, gate_restore_key(fixture->gate, &binding, &fixture->error));
}

/* As after a drop that was half sold: what is left comes in a fresh lease. */
static void test_gate__restored_gate_goes_on(void **state)
{
    struct fixture *fixture = *state;
    int64_t now_ms = gate_suite_now_ms();

    fixture->policy = (struct policy){.id = POLICY,
                                      .name = "restored",
                                      .total = 4,
                                      .per_user_limit = 1,
                                      .unleased = 2,
                                      .next_seq = 5};
    assert_ok(fixture, reset_to_build(fixture->gate, POLICY, 4, &fixture->error));
    set_policy(fixture);
    restore_claim(fixture, "a", 1, 1, now_ms - HOUR_MS, COUPON_ISSUED);
    restore_claim(fixture, "b", 2, 2, now_ms - HOUR_MS, COUPON_CANCELLED);
    restore_claim(fixture, "c", 3, 0, now_ms - 5, COUPON_REDEEMED);
    restore_key(fixture, "a", 1, 9);
    restore_key(fixture, "b", 2, 8);
    fixture->lease_id = 7;
    lend_all(fixture);
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 2, &fixture->error));

    await_numbers(fixture, 2, 0, 2);
    assert_int_equal(look_at_pending(fixture), 0);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_HELD);
    assert_int_equal(claim_with_key(fixture, "a", 9).seq, 1);
    for (uint8_t key = 2; key <= 8; key += 6) {
        struct wish cancelled = claim_with_key(fixture, "b", key);
        assert_int_equal(cancelled.verdict, VERDICT_HELD);
        assert_int_equal(cancelled.seq, 2);
        assert_int_equal(cancelled.coupon_state, COUPON_CANCELLED);
    }
    struct wish redeemed = claim(fixture, "c");
    assert_int_equal(redeemed.verdict, VERDICT_HELD);
    assert_int_equal(redeemed.seq, 3);
    assert_int_equal(redeemed.coupon_state, COUPON_REDEEMED);
    assert_int_equal(claim(fixture, "b").seq, 5);
    assert_int_equal(claim(fixture, "d").seq, 6);
    assert_int_equal(claim(fixture, "e").verdict, VERDICT_SOLD_OUT);
    assert_status(fixture, lend(fixture, 8, 5, 5), STATUS_CONFLICT);
}

/* A claim that has all the keys it may have when the gate is built anew takes no more. */
static void test_gate__restored_keys_are_counted(void **state)
{
    struct fixture *fixture = *state;

    fixture->policy = (struct policy){
        .id = POLICY, .name = "keys", .total = 2, .per_user_limit = 1, .next_seq = 3};
    assert_ok(fixture, reset_to_build(fixture->gate, POLICY, 2, &fixture->error));
    set_policy(fixture);
    restore_claim(fixture, "a", 1, 1, gate_suite_now_ms(), COUPON_ISSUED);
    restore_claim(fixture, "b", 2, 0, gate_suite_now_ms(), COUPON_ISSUED);
    for (uint8_t key = 2; key <= 1 + CLAIM_KEYS_MAX; key++)
        restore_key(fixture, "a", 1, key);
    restore_key(fixture, "b", 2, 1);
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 2, &fixture->error));
    assert_int_equal(claim_with_key(fixture, "a", 100).verdict, VERDICT_KEYS_FULL);
    for (uint8_t key = 1; key <= 1 + CLAIM_KEYS_MAX; key++)
        assert_int_equal(claim_with_key(fixture, "a", key).seq, 1);
    for (uint8_t key = 1; key <= CLAIM_KEYS_MAX; key++)
        assert_int_equal(claim_with_key(fixture, "b", key).seq, 2);
    assert_int_equal(claim_with_key(fixture, "b", 100).verdict, VERDICT_KEYS_FULL);
}

static void test_gate__restores_many(void **state)
{
    struct fixture *fixture = *state;
    int64_t now_ms = gate_suite_now_ms();
    char user[24];

    fixture->policy = (struct policy){
        .id = POLICY, .name = "many", .total = 2000, .per_user_limit = 1, .next_seq = 2001};
    assert_ok(fixture, reset_to_build(fixture->gate, POLICY, 2000, &fixture->error));
    set_policy(fixture);
    for (int i = 1; i <= 2000; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        restore_claim(fixture, user, i, i % 10 == 0 ? (uint8_t)(i / 10) : 0, now_ms - 2000 + i,
                      COUPON_ISSUED);
    }
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 2000, &fixture->error));
    await_numbers(fixture, 0, 0, 2000);
    for (int i = 1; i <= 2000; i += 7) {
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim(fixture, user).seq, i);
    }
    assert_int_equal(claim(fixture, "late").verdict, VERDICT_SOLD_OUT);
    /* Also when no lease is open any more, which is how a sold policy looks at a restart. */
    assert_int_equal(numbers_of(fixture).sold_out_at_ms, now_ms);
}

int gate_suite_stock_run(void)
{
    const struct CMUnitTest tests[] = {
        GATE_TEST(test_gate__unknown_policy),
        GATE_TEST(test_gate__batch_in_order_then_sold_out),
        GATE_TEST(test_gate__batch_of_thousands),
        GATE_TEST(test_gate__leases_follow_each_other),
        GATE_TEST(test_gate__batch_over_two_leases),
        GATE_TEST(test_gate__lease_counts_once),
        GATE_TEST(test_gate__recalled_lease_does_not_come_back),
        GATE_TEST(test_gate__recall_is_all_or_none),
        GATE_TEST(test_gate__recall_all_over_several_leases),
        GATE_TEST(test_gate__recall_over_many_leases),
        GATE_TEST(test_gate__all_leases_count_however_many),
        GATE_TEST(test_gate__older_version_is_ignored),
        GATE_TEST(test_gate__row_never_touches_the_stock),
        GATE_TEST(test_gate__new_policy_is_not_sold_out),
        GATE_TEST(test_gate__lists_its_policies),
        GATE_TEST(test_gate__numbers_add_up),
        GATE_TEST(test_gate__void_is_stock_again),
        GATE_TEST(test_gate__cancelled_before_it_was_acknowledged),
        GATE_TEST(test_gate__survey_finds_that_the_clocks_agree),
        GATE_TEST(test_gate__acknowledged_in_parts),
        GATE_TEST(test_gate__restored_gate_goes_on),
        GATE_TEST(test_gate__restored_keys_are_counted),
        GATE_TEST(test_gate__restores_many),
    };
    return cmocka_run_group_tests_name("gate_stock", tests, NULL, NULL);
}
