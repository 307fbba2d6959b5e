/* gate_suite.c: the gate's contract as tests. */
#include "gate_suite.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#define POLICY     42
#define NOW        1000000
#define CLAIMS_MAX 20000

/* The ledger's side of the gate: keeps what was pushed, and acknowledges it when told. */
struct outbox {
    pthread_mutex_t lock;
    struct claim claims[CLAIMS_MAX];
    struct key_binding bindings[64];
    size_t claim_count;
    size_t binding_count;
    size_t acknowledged_count;
    uint64_t ticket;
};

struct fixture {
    struct gate *gate;
    struct outbox outbox;
    struct policy policy;
    int64_t lease_id;
};

static uint64_t outbox_push(void *context, const struct claim *claims, size_t claim_count,
                            const struct key_binding *bindings, size_t binding_count)
{
    struct outbox *outbox = context;
    pthread_mutex_lock(&outbox->lock);
    ensure(outbox->claim_count + claim_count <= CLAIMS_MAX);
    ensure(outbox->binding_count + binding_count <= 64);
    if (claim_count > 0)
        memcpy(outbox->claims + outbox->claim_count, claims, claim_count * sizeof(*claims));
    if (binding_count > 0)
        memcpy(outbox->bindings + outbox->binding_count, bindings,
               binding_count * sizeof(*bindings));
    outbox->claim_count += claim_count;
    outbox->binding_count += binding_count;
    uint64_t ticket = ++outbox->ticket;
    pthread_mutex_unlock(&outbox->lock);
    return ticket;
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    pthread_mutex_init(&fixture->outbox.lock, NULL);
    fixture->gate =
        gate_suite_open((struct gate_outlet){.push = outbox_push, .context = &fixture->outbox});
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    gate_close(fixture->gate);
    pthread_mutex_destroy(&fixture->outbox.lock);
    free(fixture);
    return 0;
}

/* --- the ledger's moves --- */

static void set_policy(struct fixture *fixture)
{
    struct error error;
    fixture->policy.version++;
    assert_int_equal(gate_policy_set(fixture->gate, &fixture->policy, &error), STATUS_OK);
}

/* Lends everything that is unleased, as the steward would. */
static void lend_all(struct fixture *fixture)
{
    struct error error;
    struct lease lease = {.id = ++fixture->lease_id,
                          .policy_id = POLICY,
                          .first_seq = fixture->policy.next_seq,
                          .count = fixture->policy.unleased,
                          .open = true};
    fixture->policy.next_seq += lease.count;
    fixture->policy.unleased = 0;
    assert_int_equal(gate_lend(fixture->gate, &lease, 0, &error), STATUS_OK);
    set_policy(fixture);
}

static void create(struct fixture *fixture, int64_t total, int32_t per_user_limit)
{
    fixture->policy = (struct policy){.id = POLICY,
                                      .name = "contract",
                                      .discount_value = 10,
                                      .total = total,
                                      .per_user_limit = per_user_limit,
                                      .unleased = total,
                                      .next_seq = 1};
    set_policy(fixture);
    lend_all(fixture);
}

static void acknowledge_as(struct fixture *fixture, enum coupon_state state)
{
    struct outbox *outbox = &fixture->outbox;
    size_t from = outbox->acknowledged_count;
    size_t count = outbox->claim_count - from;
    enum coupon_state *states = calloc(count + 1, sizeof(*states));

    for (size_t i = 0; i < count; i++)
        states[i] = state;
    gate_acknowledge(fixture->gate, outbox->claims + from, states, count);
    outbox->acknowledged_count += count;
    free(states);
}

static void acknowledge(struct fixture *fixture)
{
    acknowledge_as(fixture, COUPON_ISSUED);
}

/* A cancelled coupon: its slot is free and its unit is back in the ledger. */
static void cancel(struct fixture *fixture, int64_t seq)
{
    struct user_id user = {0};
    struct error error;

    for (size_t i = 0; i < fixture->outbox.claim_count; i++) {
        if (fixture->outbox.claims[i].seq == seq)
            user = fixture->outbox.claims[i].user;
    }
    assert_int_equal(gate_settle(fixture->gate, POLICY, &user, seq, COUPON_CANCELLED, &error),
                     STATUS_OK);
    fixture->policy.unleased++;
    set_policy(fixture);
}

/* --- wishes --- */

static struct wish wish_of(const char *user)
{
    return (struct wish){.policy_id = POLICY, .user = user_id_of(span_of(user))};
}

static struct wish wish_with_key(const char *user, uint8_t key)
{
    struct wish wish = wish_of(user);
    wish.request_id.bytes[0] = 0x80;
    wish.request_id.bytes[15] = key;
    return wish;
}

static struct wish claim_at(struct fixture *fixture, struct wish wish, int64_t now_ms)
{
    struct wish *wishes[] = {&wish};
    gate_suite_claim(fixture->gate, POLICY, wishes, 1, now_ms);
    return wish;
}

static struct wish claim(struct fixture *fixture, const char *user)
{
    return claim_at(fixture, wish_of(user), NOW);
}

static struct wish claim_with_key(struct fixture *fixture, const char *user, uint8_t key)
{
    return claim_at(fixture, wish_with_key(user, key), NOW);
}

static struct gate_numbers numbers_of(struct fixture *fixture)
{
    struct gate_numbers numbers;
    assert_int_equal(gate_count(fixture->gate, POLICY, NOW, &numbers), STATUS_OK);
    assert_int_equal(numbers.remaining + numbers.pending + numbers.issued, numbers.total);
    return numbers;
}

/* --- stock --- */

static void test_gate__unknown_policy(void **state)
{
    struct fixture *fixture = *state;
    struct gate_numbers numbers;
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_NO_POLICY);
    assert_int_equal(gate_count(fixture->gate, POLICY, NOW, &numbers), STATUS_NOT_FOUND);
}

static void test_gate__batch_in_order_then_sold_out(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[200];
    struct wish *batch[200];

    create(fixture, 150, 1);
    for (int i = 0; i < 200; i++) {
        char user[16];
        snprintf(user, sizeof(user), "user-%d", i);
        wishes[i] = wish_of(user);
        batch[i] = &wishes[i];
    }
    gate_suite_claim(fixture->gate, POLICY, batch, 200, NOW);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(wishes[i].verdict, i < 150 ? VERDICT_WON : VERDICT_SOLD_OUT);
        if (i < 150)
            assert_int_equal(wishes[i].seq, i + 1);
    }
    assert_int_equal(fixture->outbox.claim_count, 150);
    for (size_t i = 0; i < 150; i++) {
        assert_int_equal(fixture->outbox.claims[i].seq, i + 1);
        assert_int_equal(fixture->outbox.claims[i].lease_id, 1);
        assert_true(user_id_equal(&fixture->outbox.claims[i].user, &wishes[i].user));
    }
    assert_int_equal(numbers_of(fixture).state, POLICY_SOLD_OUT);
    assert_int_equal(numbers_of(fixture).sold_out_at_ms, NOW);
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
    assert_int_equal(numbers_of(fixture).state, POLICY_OPEN);
    lend_all(fixture);
    assert_int_equal(claim(fixture, "b").seq, 2);
    assert_int_equal(claim(fixture, "c").seq, 3);
    assert_int_equal(claim(fixture, "d").verdict, VERDICT_SOLD_OUT);
}

/* Trap 33: a stalled steward pushes a lease that another already pushed. */
static void test_gate__lease_counts_once(void **state)
{
    struct fixture *fixture = *state;
    struct error error;
    struct lease again = {.id = 1, .policy_id = POLICY, .first_seq = 1, .count = 5, .open = true};
    struct lease old_seqs = {.id = 9, .policy_id = POLICY, .first_seq = 3, .count = 5};

    create(fixture, 5, 1);
    assert_int_equal(gate_lend(fixture->gate, &again, 0, &error), STATUS_CONFLICT);
    assert_int_equal(gate_lend(fixture->gate, &old_seqs, 0, &error), STATUS_CONFLICT);
    for (int i = 0; i < 5; i++) {
        char user[16];
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim(fixture, user).verdict, VERDICT_WON);
    }
    assert_int_equal(claim(fixture, "late").verdict, VERDICT_SOLD_OUT);
}

/* The same, when the units of that lease have been given back meanwhile. */
static void test_gate__recalled_lease_does_not_come_back(void **state)
{
    struct fixture *fixture = *state;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    struct lease again = {.id = 1, .policy_id = POLICY, .first_seq = 1, .count = 5, .open = true};
    size_t shrunk_count = 0;
    struct error error;

    create(fixture, 5, 1);
    assert_int_equal(
        gate_recall(fixture->gate, POLICY, GATE_RECALL_ALL, shrunk, &shrunk_count, &error),
        STATUS_OK);
    assert_int_equal(gate_lend(fixture->gate, &again, 0, &error), STATUS_CONFLICT);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_SOLD_OUT);
    fixture->policy.unleased = 5;
    fixture->policy.next_seq = 1;
    lend_all(fixture);
    assert_int_equal(claim(fixture, "a").seq, 1);
}

static void test_gate__recall_is_all_or_none(void **state)
{
    struct fixture *fixture = *state;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;
    struct error error;

    create(fixture, 10, 1);
    claim(fixture, "a");
    assert_int_equal(gate_recall(fixture->gate, POLICY, 10, shrunk, &shrunk_count, &error),
                     STATUS_CONFLICT);
    assert_int_equal(shrunk_count, 0);
    assert_int_equal(gate_recall(fixture->gate, POLICY, 8, shrunk, &shrunk_count, &error),
                     STATUS_OK);
    assert_int_equal(shrunk_count, 1);
    assert_int_equal(shrunk[0].lease_id, 1);
    assert_int_equal(shrunk[0].count, 2);
    assert_int_equal(claim(fixture, "b").seq, 2);
    assert_int_equal(claim(fixture, "c").verdict, VERDICT_SOLD_OUT);
}

static void test_gate__recall_all_over_several_leases(void **state)
{
    struct fixture *fixture = *state;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;
    struct error error;
    int64_t back = 0;

    create(fixture, 3, 1);
    fixture->policy.total += 4;
    fixture->policy.unleased = 4;
    lend_all(fixture);
    claim(fixture, "a");
    assert_int_equal(
        gate_recall(fixture->gate, POLICY, GATE_RECALL_ALL, shrunk, &shrunk_count, &error),
        STATUS_OK);
    assert_int_equal(shrunk_count, 2);
    for (size_t i = 0; i < shrunk_count; i++)
        back += (shrunk[i].lease_id == 1 ? 3 : 4) - shrunk[i].count;
    assert_int_equal(back, 6);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_SOLD_OUT);
    assert_int_equal(
        gate_recall(fixture->gate, POLICY, GATE_RECALL_ALL, shrunk, &shrunk_count, &error),
        STATUS_OK);
    assert_int_equal(shrunk_count, 0);
}

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
    assert_int_equal(fixture->outbox.claim_count, 2);
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
    assert_int_equal(fixture->outbox.claim_count, 4);
}

static void test_gate__freed_nth_is_taken_first(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 100, 4);
    for (int i = 0; i < 4; i++)
        claim(fixture, "a");
    acknowledge(fixture);
    cancel(fixture, 2);
    cancel(fixture, 3);
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
    cancel(fixture, 1);
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
    create(fixture, 1, 1);
    for (int64_t seq = 1; seq <= 100; seq++) {
        struct wish wish = claim(fixture, "a");
        assert_int_equal(wish.verdict, VERDICT_WON);
        assert_int_equal(wish.seq, seq);
        acknowledge(fixture);
        cancel(fixture, seq);
        lend_all(fixture);
    }
    assert_int_equal(numbers_of(fixture).remaining, 1);
}

static void test_gate__find_lists_newest_first(void **state)
{
    struct fixture *fixture = *state;
    struct gate_claim claims[4];
    struct user_id user = user_id_of(SPAN("a"));
    size_t count = 0;
    struct error error;

    create(fixture, 10, 3);
    claim(fixture, "a");
    acknowledge(fixture);
    claim(fixture, "b");
    claim(fixture, "a");
    assert_int_equal(gate_find(fixture->gate, POLICY, &user, claims, 4, &count, &error), STATUS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(claims[0].seq, 3);
    assert_true(claims[0].pending);
    assert_int_equal(claims[0].ahead, 1);
    assert_int_equal(claims[1].seq, 1);
    assert_false(claims[1].pending);
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
    assert_int_equal(claim_with_key(fixture, "b", 1).verdict, VERDICT_KEY_MISMATCH);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_WON); /* no key: a new wish */
}

static void test_gate__held_claim_binds_the_key(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 1, 1);
    claim_with_key(fixture, "a", 1);
    acknowledge(fixture);
    struct wish bound = claim_with_key(fixture, "a", 2);
    assert_int_equal(bound.verdict, VERDICT_HELD);
    assert_int_not_equal(bound.ticket, 0); /* the binding is not durable yet */
    assert_int_equal(fixture->outbox.binding_count, 1);
    assert_int_equal(fixture->outbox.bindings[0].seq, 1);
    cancel(fixture, 1);
    lend_all(fixture);
    for (uint8_t key = 1; key <= 2; key++) {
        struct wish after = claim_with_key(fixture, "a", key);
        assert_int_equal(after.verdict, VERDICT_HELD);
        assert_int_equal(after.seq, 1);
        assert_int_equal(after.coupon_state, COUPON_CANCELLED);
    }
    assert_int_equal(claim_with_key(fixture, "a", 3).verdict, VERDICT_WON);
}

static void test_gate__refusal_binds_no_key(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 1, 1);
    claim(fixture, "a");
    acknowledge(fixture);
    assert_int_equal(claim_with_key(fixture, "b", 7).verdict, VERDICT_SOLD_OUT);
    assert_int_equal(claim_with_key(fixture, "c", 7).verdict, VERDICT_SOLD_OUT);
    cancel(fixture, 1);
    lend_all(fixture);
    assert_int_equal(claim_with_key(fixture, "c", 7).verdict, VERDICT_WON);
}

/* --- the order of verdicts --- */

static void test_gate__order_of_verdicts(void **state)
{
    struct fixture *fixture = *state;
    struct user_id blocked = user_id_of(SPAN("blocked"));
    struct error error;

    create(fixture, 3, 1);
    claim_with_key(fixture, "holder", 1);
    claim(fixture, "blocked-holder");
    assert_int_equal(gate_block(fixture->gate, &blocked, true, &error), STATUS_OK);
    struct user_id holder = user_id_of(SPAN("blocked-holder"));
    assert_int_equal(gate_block(fixture->gate, &holder, true, &error), STATUS_OK);

    fixture->policy.opens_at_ms = NOW + 1;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "new").verdict, VERDICT_NOT_OPEN);
    assert_int_equal(claim(fixture, "new").opens_at_ms, NOW + 1);
    assert_int_equal(claim(fixture, "holder").verdict, VERDICT_HELD);
    fixture->policy.paused = true;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "new").verdict, VERDICT_PAUSED);
    fixture->policy.closed_at_ms = NOW;
    set_policy(fixture);
    assert_int_equal(claim(fixture, "new").verdict, VERDICT_CLOSED);
    assert_int_equal(claim(fixture, "blocked").verdict, VERDICT_BLOCKED);
    assert_int_equal(claim(fixture, "blocked-holder").verdict, VERDICT_HELD);
    assert_int_equal(claim(fixture, "holder").verdict, VERDICT_HELD);
    assert_int_equal(claim_with_key(fixture, "blocked", 1).verdict, VERDICT_KEY_MISMATCH);
    assert_int_equal(gate_block(fixture->gate, &blocked, false, &error), STATUS_OK);
    assert_int_equal(claim(fixture, "blocked").verdict, VERDICT_CLOSED);
}

static void test_gate__window_by_the_given_clock(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 10, 1);
    fixture->policy.opens_at_ms = NOW;
    fixture->policy.closes_at_ms = NOW + 10;
    set_policy(fixture);
    assert_int_equal(claim_at(fixture, wish_of("a"), NOW - 1).verdict, VERDICT_NOT_OPEN);
    assert_int_equal(claim_at(fixture, wish_of("a"), NOW).verdict, VERDICT_WON);
    assert_int_equal(claim_at(fixture, wish_of("b"), NOW + 9).verdict, VERDICT_WON);
    assert_int_equal(claim_at(fixture, wish_of("c"), NOW + 10).verdict, VERDICT_CLOSED);
}

static void test_gate__held_coupon_expires(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 10, 1);
    fixture->policy.closes_at_ms = NOW + 10;
    set_policy(fixture);
    claim(fixture, "a");
    acknowledge(fixture);
    assert_int_equal(claim_at(fixture, wish_of("a"), NOW + 9).coupon_state, COUPON_ISSUED);
    assert_int_equal(claim_at(fixture, wish_of("a"), NOW + 10).verdict, VERDICT_HELD);
    assert_int_equal(claim_at(fixture, wish_of("a"), NOW + 10).coupon_state, COUPON_EXPIRED);
    fixture->policy.coupon_valid_days = 1;
    set_policy(fixture);
    assert_int_equal(claim_at(fixture, wish_of("a"), NOW + 10).coupon_state, COUPON_ISSUED);
    assert_int_equal(claim_at(fixture, wish_of("a"), NOW + DAY_MS).coupon_state, COUPON_EXPIRED);
}

static void test_gate__limit_before_sold_out(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 2, 2);
    claim(fixture, "a");
    claim(fixture, "a");
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_LIMIT_REACHED);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_SOLD_OUT);
}

static void test_gate__older_version_is_ignored(void **state)
{
    struct fixture *fixture = *state;
    struct error error;
    create(fixture, 2, 1);
    struct policy old = fixture->policy;
    fixture->policy.paused = true;
    set_policy(fixture);
    assert_int_equal(gate_policy_set(fixture->gate, &old, &error), STATUS_OK);
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_PAUSED);
}

/* --- guarantee 8 --- */

static void test_gate__verdicts_wait_for_what_they_rest_on(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 1, 1);
    uint64_t won = claim(fixture, "a").ticket;
    assert_int_not_equal(won, 0);
    assert_int_equal(claim(fixture, "a").ticket, won);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_SOLD_OUT);
    assert_int_equal(claim(fixture, "b").ticket, won);
    acknowledge(fixture);
    assert_int_equal(claim(fixture, "a").ticket, 0);
    assert_int_equal(claim(fixture, "b").ticket, 0);
}

static void test_gate__repeat_in_one_batch_waits_too(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[3] = {wish_of("a"), wish_of("a"), wish_of("b")};
    struct wish *batch[3] = {&wishes[0], &wishes[1], &wishes[2]};

    create(fixture, 1, 1);
    gate_suite_claim(fixture->gate, POLICY, batch, 3, NOW);
    assert_int_equal(wishes[0].verdict, VERDICT_WON);
    assert_int_equal(wishes[1].verdict, VERDICT_HELD);
    assert_int_equal(wishes[2].verdict, VERDICT_SOLD_OUT);
    assert_int_not_equal(wishes[0].ticket, 0);
    assert_int_equal(wishes[1].ticket, wishes[0].ticket);
    assert_int_equal(wishes[2].ticket, wishes[0].ticket);
}

/* A key that leads to a claim, or away from another's, may itself not be written yet. */
static void test_gate__verdict_by_key_waits_for_the_key(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 10, 1);
    uint64_t won = claim_with_key(fixture, "a", 1).ticket;
    struct wish mismatch = claim_with_key(fixture, "b", 1);
    assert_int_equal(mismatch.verdict, VERDICT_KEY_MISMATCH);
    assert_int_equal(mismatch.ticket, won);
    acknowledge(fixture);
    assert_int_equal(claim_with_key(fixture, "b", 1).ticket, 0);

    uint64_t bound = claim_with_key(fixture, "a", 2).ticket;
    assert_true(bound > won);
    struct wish repeat = claim_with_key(fixture, "a", 2);
    assert_int_equal(repeat.verdict, VERDICT_HELD);
    assert_int_equal(repeat.ticket, bound);
    assert_int_equal(claim_with_key(fixture, "b", 2).ticket, bound);
    assert_int_equal(claim(fixture, "a").ticket, 0);
}

static void test_gate__verdict_by_key_waits_within_a_batch(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[] = {wish_with_key("a", 2), wish_with_key("b", 2), wish_with_key("a", 2)};
    struct wish *batch[] = {&wishes[0], &wishes[1], &wishes[2]};

    create(fixture, 10, 1);
    uint64_t won = claim_with_key(fixture, "a", 1).ticket;
    acknowledge(fixture);
    gate_suite_claim(fixture->gate, POLICY, batch, 3, NOW);
    assert_true(wishes[0].ticket > won);
    assert_int_equal(wishes[1].verdict, VERDICT_KEY_MISMATCH);
    assert_int_equal(wishes[1].ticket, wishes[0].ticket);
    assert_int_equal(wishes[2].ticket, wishes[0].ticket);
}

static void test_gate__limit_reached_waits_too(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 10, 2);
    claim(fixture, "a");
    uint64_t won = claim(fixture, "a").ticket;
    struct wish refused = claim(fixture, "a");
    assert_int_equal(refused.verdict, VERDICT_LIMIT_REACHED);
    assert_int_equal(refused.ticket, won);
    acknowledge(fixture);
    assert_int_equal(claim(fixture, "a").ticket, 0);
}

static void test_gate__void_frees_the_user(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 2, 1);
    struct wish won = claim(fixture, "a");
    acknowledge_as(fixture, COUPON_VOID);
    assert_false(gate_stands(fixture->gate, &won));
    struct wish again = claim(fixture, "a");
    assert_int_equal(again.verdict, VERDICT_WON);
    assert_int_equal(again.seq, 2);
}

/* The unit of a lost claim is in the ledger again, though its row has not come by yet. */
static void test_gate__void_is_stock_again(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 1, 1);
    claim(fixture, "a");
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_SOLD_OUT);
    acknowledge_as(fixture, COUPON_VOID);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_LEASE_WANTED);
    assert_int_equal(numbers_of(fixture).state, POLICY_OPEN);
}

/* One wish must not take two units because a neighbour's claim came to nothing. */
static void test_gate__win_stands_beside_a_void(void **state)
{
    struct fixture *fixture = *state;
    const enum coupon_state states[] = {COUPON_ISSUED, COUPON_VOID};

    create(fixture, 2, 3);
    struct wish won = claim(fixture, "a");
    struct wish lost = claim(fixture, "b");
    struct wish refused = claim(fixture, "c");
    assert_int_equal(refused.verdict, VERDICT_SOLD_OUT);
    gate_acknowledge(fixture->gate, fixture->outbox.claims, states, 2);
    assert_true(gate_stands(fixture->gate, &won));
    assert_false(gate_stands(fixture->gate, &lost));
    assert_false(gate_stands(fixture->gate, &refused));
}

static void test_gate__numbers_add_up(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 5, 1);
    claim(fixture, "a");
    claim(fixture, "b");
    assert_int_equal(numbers_of(fixture).pending, 2);
    assert_int_equal(numbers_of(fixture).issued, 0);
    acknowledge(fixture);
    claim(fixture, "c");
    assert_int_equal(numbers_of(fixture).pending, 1);
    assert_int_equal(numbers_of(fixture).issued, 2);
    assert_int_equal(numbers_of(fixture).remaining, 2);
    cancel(fixture, 1);
    assert_int_equal(numbers_of(fixture).remaining, 3);
}

/* --- restoring --- */

static void restore_claim_of(struct fixture *fixture, const char *user, int64_t seq, int32_t nth,
                             uint8_t key, enum coupon_state coupon_state)
{
    struct error error;
    struct claim claim = {.policy_id = POLICY,
                          .seq = seq,
                          .nth = nth,
                          .request_id = wish_with_key(user, key).request_id,
                          .requested_at_ms = NOW - 5,
                          .user = user_id_of(span_of(user))};
    assert_int_equal(gate_restore(fixture->gate, &claim, coupon_state, &error), STATUS_OK);
}

/* Also when no lease is open any more, which is how a sold policy looks at the second start. */
static void test_gate__restored_sold_out_says_since_when(void **state)
{
    struct fixture *fixture = *state;
    struct claim claim = {.policy_id = POLICY,
                          .seq = 1,
                          .nth = 1,
                          .lease_id = 1,
                          .requested_at_ms = NOW - 7,
                          .user = user_id_of(SPAN("a"))};
    struct error error;

    fixture->policy = (struct policy){
        .id = POLICY, .name = "sold", .total = 1, .per_user_limit = 1, .next_seq = 2};
    set_policy(fixture);
    assert_int_equal(gate_restore(fixture->gate, &claim, COUPON_ISSUED, &error), STATUS_OK);
    assert_int_equal(numbers_of(fixture).state, POLICY_SOLD_OUT);
    assert_int_equal(numbers_of(fixture).sold_out_at_ms, NOW - 7);
}

static void test_gate__restored_gate_goes_on(void **state)
{
    struct fixture *fixture = *state;
    struct error error;
    struct lease lease = {.id = 1, .policy_id = POLICY, .first_seq = 1, .count = 4, .open = true};
    struct key_binding binding = {
        .policy_id = POLICY, .seq = 1, .request_id = wish_with_key("a", 9).request_id};

    fixture->policy = (struct policy){.id = POLICY,
                                      .name = "restored",
                                      .total = 4,
                                      .per_user_limit = 1,
                                      .unleased = 1,
                                      .next_seq = 5};
    set_policy(fixture);
    restore_claim_of(fixture, "a", 1, 1, 1, COUPON_ISSUED);
    restore_claim_of(fixture, "b", 2, 1, 2, COUPON_CANCELLED);
    assert_int_equal(gate_restore_key(fixture->gate, &binding, &error), STATUS_OK);
    assert_int_equal(gate_lend(fixture->gate, &lease, 2, &error), STATUS_OK);

    assert_int_equal(claim(fixture, "a").verdict, VERDICT_HELD);
    assert_int_equal(claim(fixture, "a").ticket, 0);
    assert_int_equal(claim_with_key(fixture, "a", 9).seq, 1);
    struct wish cancelled = claim_with_key(fixture, "b", 2);
    assert_int_equal(cancelled.verdict, VERDICT_HELD);
    assert_int_equal(cancelled.coupon_state, COUPON_CANCELLED);
    assert_int_equal(claim(fixture, "b").seq, 3);
    assert_int_equal(claim(fixture, "c").seq, 4);
    assert_int_equal(claim(fixture, "d").verdict, VERDICT_LEASE_WANTED);
    assert_int_equal(numbers_of(fixture).remaining, 1);
}

/* --- races --- */

#define RACERS      8
#define RACE_TOTAL  3000
#define RACE_WISHES 1500

#define RACE_BATCH  5

struct racer {
    struct fixture *fixture;
    pthread_barrier_t *start;
    int number;
    int won_count;
    bool same_users;
};

static void *race(void *context)
{
    struct racer *racer = context;
    struct wish wishes[RACE_BATCH];
    struct wish *batch[RACE_BATCH];

    pthread_barrier_wait(racer->start);
    for (int done = 0; done < RACE_WISHES; done += RACE_BATCH) {
        for (int i = 0; i < RACE_BATCH; i++) {
            char user[32];
            snprintf(user, sizeof(user), "user-%d-%d", racer->same_users ? 0 : racer->number,
                     done + i);
            wishes[i] = wish_of(user);
            batch[i] = &wishes[i];
        }
        gate_suite_claim(racer->fixture->gate, POLICY, batch, RACE_BATCH, NOW);
        for (int i = 0; i < RACE_BATCH; i++)
            racer->won_count += wishes[i].verdict == VERDICT_WON;
    }
    return NULL;
}

static int run_race(struct fixture *fixture, bool same_users)
{
    pthread_t threads[RACERS];
    struct racer racers[RACERS];
    pthread_barrier_t start;
    int won_count = 0;

    pthread_barrier_init(&start, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){
            .fixture = fixture, .start = &start, .number = i, .same_users = same_users};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(threads[i], NULL);
        won_count += racers[i].won_count;
    }
    pthread_barrier_destroy(&start);
    return won_count;
}

static void test_gate__threads_race_for_the_stock(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, RACE_TOTAL, 1);
    assert_int_equal(run_race(fixture, false), RACE_TOTAL);
    assert_int_equal(fixture->outbox.claim_count, RACE_TOTAL);
    for (size_t i = 0; i < RACE_TOTAL; i++)
        assert_int_equal(fixture->outbox.claims[i].seq, i + 1);
}

/* Trap 3: the same user in parallel. */
static void test_gate__threads_race_as_the_same_users(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, RACE_TOTAL, 1);
    assert_int_equal(run_race(fixture, true), RACE_WISHES);
    assert_int_equal(numbers_of(fixture).remaining, RACE_TOTAL - RACE_WISHES);
}

#define NEW_POLICIES 20000
#define EARLY_BIRDS  3

/* Asks for the policy that is just being made known. */
struct early_bird {
    struct gate *gate;
    _Atomic int64_t policy_id; /* 0: done */
    _Atomic int sold_out_count;
};

static void *ask_early(void *context)
{
    struct early_bird *bird = context;
    int64_t policy_id;
    while ((policy_id = atomic_load(&bird->policy_id)) != 0) {
        struct wish wish = {.policy_id = policy_id, .user = user_id_of(SPAN("early"))};
        struct wish *wishes[] = {&wish};
        gate_suite_claim(bird->gate, policy_id, wishes, 1, NOW);
        bird->sold_out_count += wish.verdict == VERDICT_SOLD_OUT;
    }
    return NULL;
}

/* Known is known with its stock: there is no moment in between. */
static void test_gate__new_policy_is_never_sold_out(void **state)
{
    struct fixture *fixture = *state;
    struct early_bird bird = {.gate = fixture->gate, .policy_id = 1};
    struct error error;
    pthread_t threads[EARLY_BIRDS];

    for (int i = 0; i < EARLY_BIRDS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_early, &bird), 0);
    for (int64_t id = 1; id <= NEW_POLICIES; id++) {
        struct policy policy = {.id = id,
                                .name = "new",
                                .total = 1,
                                .per_user_limit = 1,
                                .unleased = 1,
                                .next_seq = 1,
                                .version = 1};
        atomic_store(&bird.policy_id, id);
        assert_int_equal(gate_policy_set(fixture->gate, &policy, &error), STATUS_OK);
    }
    atomic_store(&bird.policy_id, 0);
    for (int i = 0; i < EARLY_BIRDS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(bird.sold_out_count, 0);
}

int gate_suite_run(void)
{
#define GATE_TEST(name) cmocka_unit_test_setup_teardown(test_gate__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        GATE_TEST(unknown_policy),
        GATE_TEST(batch_in_order_then_sold_out),
        GATE_TEST(leases_follow_each_other),
        GATE_TEST(lease_counts_once),
        GATE_TEST(recalled_lease_does_not_come_back),
        GATE_TEST(recall_is_all_or_none),
        GATE_TEST(recall_all_over_several_leases),
        GATE_TEST(repeat_gets_the_same_claim),
        GATE_TEST(limit_counts_per_user),
        GATE_TEST(freed_nth_is_taken_first),
        GATE_TEST(loser_wins_when_stock_returns),
        GATE_TEST(cancel_and_reclaim_many_times),
        GATE_TEST(find_lists_newest_first),
        GATE_TEST(key_names_its_claim),
        GATE_TEST(held_claim_binds_the_key),
        GATE_TEST(refusal_binds_no_key),
        GATE_TEST(order_of_verdicts),
        GATE_TEST(window_by_the_given_clock),
        GATE_TEST(held_coupon_expires),
        GATE_TEST(limit_before_sold_out),
        GATE_TEST(older_version_is_ignored),
        GATE_TEST(verdicts_wait_for_what_they_rest_on),
        GATE_TEST(repeat_in_one_batch_waits_too),
        GATE_TEST(verdict_by_key_waits_for_the_key),
        GATE_TEST(verdict_by_key_waits_within_a_batch),
        GATE_TEST(limit_reached_waits_too),
        GATE_TEST(void_frees_the_user),
        GATE_TEST(void_is_stock_again),
        GATE_TEST(win_stands_beside_a_void),
        GATE_TEST(numbers_add_up),
        GATE_TEST(restored_sold_out_says_since_when),
        GATE_TEST(restored_gate_goes_on),
        GATE_TEST(threads_race_for_the_stock),
        GATE_TEST(threads_race_as_the_same_users),
        GATE_TEST(new_policy_is_never_sold_out),
    };
    return cmocka_run_group_tests_name("gate", tests, NULL, NULL) + gate_visit_suite_run();
}
