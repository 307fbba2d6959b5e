/* gate_local.c: the gate suite on the gate in process memory, and what is only its own: verdicts
 * that wait for the ledger, a clock that the caller brings, going on in a lease. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "gate_fixture.h"

/* --- the ledger's side --- */

/* What the gate has pushed and the ledger has not said to have. */
static struct {
    pthread_mutex_t lock;
    struct claim claims[CLAIMS_MAX];
    size_t claim_count;
    size_t acknowledged_count;
    struct key_binding bindings[BINDINGS_MAX];
    size_t binding_count;
    uint64_t ticket;
} outbox = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t outbox_push(void *context, const struct claim *claims, size_t claim_count,
                            const struct key_binding *bindings, size_t binding_count)
{
    (void)context;
    pthread_mutex_lock(&outbox.lock);
    ensure(outbox.claim_count + claim_count <= CLAIMS_MAX);
    ensure(outbox.binding_count + binding_count <= BINDINGS_MAX);
    if (claim_count > 0)
        memcpy(outbox.claims + outbox.claim_count, claims, claim_count * sizeof(*claims));
    if (binding_count > 0)
        memcpy(outbox.bindings + outbox.binding_count, bindings, binding_count * sizeof(*bindings));
    outbox.claim_count += claim_count;
    outbox.binding_count += binding_count;
    uint64_t ticket = ++outbox.ticket;
    pthread_mutex_unlock(&outbox.lock);
    return ticket;
}

struct gate *gate_suite_open(void)
{
    struct gate *gate = NULL;
    struct error error;
    struct gate_options options = {.url = "local", .outlet = {.push = outbox_push}};

    outbox.claim_count = outbox.acknowledged_count = outbox.binding_count = 0;
    outbox.ticket = 0;
    assert_int_equal(gate_open(&gate, &options, &error), STATUS_OK);
    return gate;
}

void gate_suite_close(struct gate *gate)
{
    gate_close(gate);
}

int64_t gate_suite_now_ms(void)
{
    return clock_wall_ms();
}

size_t gate_suite_pending(struct gate *gate, int64_t policy_id, struct claim *claims,
                          size_t claims_max, struct key_binding *bindings, size_t *binding_count)
{
    (void)gate;
    (void)policy_id;
    pthread_mutex_lock(&outbox.lock);
    size_t count = outbox.claim_count - outbox.acknowledged_count;
    ensure(count <= claims_max);
    memcpy(claims, outbox.claims + outbox.acknowledged_count, count * sizeof(*claims));
    memcpy(bindings, outbox.bindings, outbox.binding_count * sizeof(*bindings));
    *binding_count = outbox.binding_count;
    pthread_mutex_unlock(&outbox.lock);
    return count;
}

void gate_suite_acknowledge(struct gate *gate, const struct claim *claims,
                            const enum coupon_state *states, size_t count,
                            const struct key_binding *bindings, size_t binding_count)
{
    (void)bindings;
    gate_acknowledge(gate, claims, states, count);
    outbox.acknowledged_count += count;
    if (binding_count > 0)
        outbox.binding_count = 0;
}

/* --- guarantee 8 --- */

static void test_local__verdicts_wait_for_what_they_rest_on(void **state)
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

static void test_local__repeat_in_one_batch_waits_too(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[3] = {wish_of("a"), wish_of("a"), wish_of("b")};
    struct wish *batch[3] = {&wishes[0], &wishes[1], &wishes[2]};

    create(fixture, 1, 1);
    gate_hand_claim(&fixture->hand, POLICY, batch, 3);
    assert_int_not_equal(wishes[0].ticket, 0);
    assert_int_equal(wishes[1].ticket, wishes[0].ticket);
    assert_int_equal(wishes[2].ticket, wishes[0].ticket);
}

/* A key that leads to a claim may itself not be written yet. */
static void test_local__verdict_by_key_waits_for_the_key(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 10, 1);
    uint64_t won = claim_with_key(fixture, "a", 1).ticket;
    assert_int_equal(claim_with_key(fixture, "a", 1).ticket, won);
    acknowledge(fixture);
    assert_int_equal(claim_with_key(fixture, "a", 1).ticket, 0);

    uint64_t bound = claim_with_key(fixture, "a", 2).ticket;
    assert_true(bound > won);
    struct wish repeat = claim_with_key(fixture, "a", 2);
    assert_int_equal(repeat.verdict, VERDICT_HELD);
    assert_int_equal(repeat.ticket, bound);
    assert_int_equal(claim(fixture, "a").ticket, 0);
    /* So does the refusal of one too many. */
    for (uint8_t key = 3; key <= 1 + CLAIM_KEYS_MAX; key++)
        bound = claim_with_key(fixture, "a", key).ticket;
    struct wish refused = claim_with_key(fixture, "a", 2 + CLAIM_KEYS_MAX);
    assert_int_equal(refused.verdict, VERDICT_KEYS_FULL);
    assert_int_equal(refused.ticket, bound);
}

static void test_local__verdict_by_key_waits_within_a_batch(void **state)
{
    struct fixture *fixture = *state;
    struct wish wishes[] = {wish_with_key("a", 2), wish_with_key("a", 2)};
    struct wish *batch[] = {&wishes[0], &wishes[1]};

    create(fixture, 10, 1);
    uint64_t won = claim_with_key(fixture, "a", 1).ticket;
    acknowledge(fixture);
    gate_hand_claim(&fixture->hand, POLICY, batch, 2);
    assert_true(wishes[0].ticket > won);
    assert_int_equal(wishes[1].verdict, VERDICT_HELD);
    assert_int_equal(wishes[1].ticket, wishes[0].ticket);
}

static void test_local__limit_reached_waits_too(void **state)
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

static void test_local__void_does_not_stand(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 2, 1);
    struct wish won = claim(fixture, "a");
    acknowledge_as(fixture, COUPON_VOID);
    assert_false(gate_stands(fixture->gate, &won));
}

/* One wish must not take two units because a neighbour's claim came to nothing. */
static void test_local__win_stands_beside_a_void(void **state)
{
    struct fixture *fixture = *state;
    const enum coupon_state states[] = {COUPON_ISSUED, COUPON_VOID};

    create(fixture, 2, 3);
    struct wish won = claim(fixture, "a");
    struct wish lost = claim(fixture, "b");
    struct wish refused = claim(fixture, "c");
    assert_int_equal(refused.verdict, VERDICT_SOLD_OUT);
    gate_acknowledge(fixture->gate, outbox.claims, states, 2);
    assert_true(gate_stands(fixture->gate, &won));
    assert_false(gate_stands(fixture->gate, &lost));
    assert_false(gate_stands(fixture->gate, &refused));
}

/* --- the caller's clock --- */

#define NOW 1000000

static struct wish claim_at(struct fixture *fixture, const char *user, int64_t now_ms)
{
    struct wish wish = wish_of(user);
    struct wish *wishes[] = {&wish};
    struct gate_batch batch = {.policy_id = POLICY, .wishes = wishes, .count = 1};

    assert_true(gate_claim(fixture->hand.line, &batch, now_ms));
    return wish;
}

static void test_local__window_to_the_millisecond(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 10, 1);
    fixture->policy.opens_at_ms = NOW;
    fixture->policy.closes_at_ms = NOW + 10;
    set_policy(fixture);
    assert_int_equal(claim_at(fixture, "a", NOW - 1).verdict, VERDICT_NOT_OPEN);
    assert_int_equal(claim_at(fixture, "a", NOW).verdict, VERDICT_WON);
    assert_int_equal(claim_at(fixture, "b", NOW + 9).verdict, VERDICT_WON);
    assert_int_equal(claim_at(fixture, "c", NOW + 10).verdict, VERDICT_CLOSED);
}

static void test_local__coupon_expires_to_the_millisecond(void **state)
{
    struct fixture *fixture = *state;
    create(fixture, 10, 1);
    fixture->policy.coupon_expires_at_ms = NOW + 10;
    set_policy(fixture);
    claim_at(fixture, "a", NOW);
    acknowledge(fixture);
    assert_int_equal(claim_at(fixture, "a", NOW + 9).coupon_state, COUPON_ISSUED);
    assert_int_equal(claim_at(fixture, "a", NOW + 10).verdict, VERDICT_HELD);
    assert_int_equal(claim_at(fixture, "a", NOW + 10).coupon_state, COUPON_EXPIRED);
    fixture->policy.coupon_expires_at_ms = 0;
    fixture->policy.coupon_valid_days = 1;
    set_policy(fixture);
    assert_int_equal(claim_at(fixture, "a", NOW + 10).coupon_state, COUPON_ISSUED);
    assert_int_equal(claim_at(fixture, "a", NOW + DAY_MS).coupon_state, COUPON_EXPIRED);
}

/* --- restarts --- */

/* The rows of a lease are always its first seqs: a restart goes on behind the last row. */
static void test_local__goes_on_in_the_same_lease(void **state)
{
    struct fixture *fixture = *state;
    const enum coupon_state states[] = {COUPON_ISSUED, COUPON_CANCELLED};
    struct lease lease = {.id = 1, .policy_id = POLICY, .first_seq = 1, .count = 4, .open = true};

    fixture->policy = (struct policy){.id = POLICY,
                                      .name = "restored",
                                      .total = 4,
                                      .per_user_limit = 1,
                                      .unleased = 1,
                                      .next_seq = 5};
    set_policy(fixture);
    for (int i = 0; i < 2; i++) {
        struct wish wish = wish_with_key(i == 0 ? "a" : "b", (uint8_t)(i + 1));
        struct claim restored = {.policy_id = POLICY,
                                 .seq = i + 1,
                                 .nth = 1,
                                 .request_id = wish.request_id,
                                 .requested_at_ms = NOW,
                                 .user = wish.user};
        assert_ok(fixture, gate_restore(fixture->gate, &restored, states[i], &fixture->error));
    }
    assert_ok(fixture, gate_lend(fixture->gate, &lease, 2, 0, &fixture->error));
    assert_int_equal(claim(fixture, "a").verdict, VERDICT_HELD);
    assert_int_equal(claim(fixture, "a").ticket, 0);
    assert_int_equal(claim(fixture, "b").seq, 3);
    assert_int_equal(claim(fixture, "c").seq, 4);
    assert_int_equal(claim(fixture, "d").verdict, VERDICT_LEASE_WANTED);
    assert_int_equal(numbers_of(fixture).remaining, 1);
}

/* --- filled while it is asked --- */

static void fill_with(struct fixture *fixture, struct gate *gate, int64_t policy_id, int64_t total)
{
    struct policy policy = {
        .id = policy_id, .name = "filled", .total = total, .per_user_limit = 1, .next_seq = 4};
    struct lease lease = {.id = 1, .policy_id = policy_id, .first_seq = 1, .count = 3};
    struct wish wish = wish_of("a");
    struct claim restored = {
        .policy_id = policy_id, .seq = 2, .nth = 1, .requested_at_ms = NOW, .user = wish.user};
    int64_t last_seq;

    assert_ok(fixture, gate_policy_set(gate, &policy, &fixture->error));
    assert_int_equal(gate_given(gate, &lease, &last_seq), 0);
    assert_int_equal(last_seq, 0);
    assert_ok(fixture, gate_restore(gate, &restored, COUPON_ISSUED, &fixture->error));
    assert_int_equal(gate_given(gate, &lease, &last_seq), 1);
    assert_int_equal(last_seq, 2);
    lease.first_seq = 3;
    lease.count = 1;
    assert_int_equal(gate_given(gate, &lease, &last_seq), 0);
    assert_ok(fixture, gate_lend(gate, &lease, 0, 0, &fixture->error));
}

/* What is still to come is neither unknown nor sold out, in no answer of the gate's. */
static void test_local__what_is_still_to_come_is_unavailable(void **state)
{
    struct fixture *fixture = *state;
    struct gate *gate = fixture->gate;
    struct gate_numbers numbers;
    struct gate_state inspected = {0};
    struct gate_claim claims[1];
    struct id user = id_of(SPAN("a"));
    size_t count;

    for (int is_filled = 1; is_filled >= 0; is_filled--) {
        enum status unknown = is_filled ? STATUS_UNAVAILABLE : STATUS_NOT_FOUND;
        gate_fill(gate, is_filled ? GATE_IS_FILLED : GATE_IS_FULL);
        assert_int_equal(claim(fixture, "a").verdict,
                         is_filled ? VERDICT_UNAVAILABLE : VERDICT_NO_POLICY);
        assert_int_equal(gate_count(gate, POLICY, NOW, &numbers), unknown);
        assert_int_equal(gate_find(gate, POLICY, &user, claims, 1, &count, &fixture->error),
                         unknown);
        assert_int_equal(gate_settle(gate, POLICY, &user, 1, COUPON_CANCELLED, &fixture->error),
                         unknown);
        assert_int_equal(gate_inspect(gate, POLICY, &inspected, &fixture->error),
                         is_filled ? STATUS_UNAVAILABLE : STATUS_OK);
        assert_false(gate_knows(gate, POLICY));
    }
}

/* They come at once and whole, between those that are there. One that came in another way stays. */
static void test_local__adopts_policies_that_were_built_aside(void **state)
{
    struct fixture *fixture = *state;
    const int64_t here[] = {POLICY - 2, POLICY, POLICY + 2};
    struct gate *aside = NULL;
    struct gate_options options = {.url = "local", .outlet = {.push = outbox_push}};
    int64_t ids[8];

    gate_fill(fixture->gate, GATE_IS_FILLED);
    for (size_t i = 0; i < 3; i++)
        fill_with(fixture, fixture->gate, here[i], 3);
    assert_int_equal(claim(fixture, "b").seq, 3);
    assert_ok(fixture, gate_open(&aside, &options, &fixture->error));
    for (int64_t id = POLICY - 3; id <= POLICY + 3; id++)
        if (id != POLICY - 2)
            fill_with(fixture, aside, id, 9);
    assert_ok(fixture, gate_adopt(fixture->gate, aside, &fixture->error));
    assert_int_equal(gate_list(aside, 0, ids, 8), 0);
    gate_close(aside);
    gate_fill(fixture->gate, GATE_IS_FULL);
    assert_int_equal(gate_list(fixture->gate, 0, ids, 8), 7);
    for (size_t i = 0; i < 7; i++) {
        struct gate_numbers numbers;
        assert_int_equal(ids[i], POLICY - 3 + (int64_t)i);
        assert_int_equal(gate_count(fixture->gate, ids[i], NOW, &numbers), STATUS_OK);
        assert_int_equal(numbers.total, i % 2 == 1 ? 3 : 9);
    }
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_HELD);
    assert_int_equal(claim(fixture, "c").verdict, VERDICT_SOLD_OUT);
}

/* --- what is gone --- */

static size_t freed_count;

static enum status tell_claim(void *context, const struct held_claim *held, struct error *error)
{
    const enum coupon_state wanted[] = {COUPON_CANCELLED, COUPON_VOID, COUPON_ISSUED};

    (void)context;
    (void)error;
    assert_int_equal(held->claim.seq, freed_count + 1);
    assert_int_equal(held->state, wanted[freed_count]);
    freed_count++;
    return STATUS_OK;
}

static enum status tell_policy(void *context, const struct policy *policy, struct error *error)
{
    (void)context;
    (void)policy;
    (void)error;
    return STATUS_OK;
}

static enum status tell_lease(void *context, const struct lease *lease, int64_t given_count,
                              struct error *error)
{
    (void)context;
    (void)lease;
    (void)given_count;
    (void)error;
    return STATUS_OK;
}

/* Memory forgets nothing: claims whose slot was freed are told too. */
static void test_local__tells_what_is_gone(void **state)
{
    struct fixture *fixture = *state;
    const enum coupon_state states[] = {COUPON_ISSUED, COUPON_VOID, COUPON_ISSUED};
    struct claim_visitor visitor = {
        .policy = tell_policy, .lease = tell_lease, .claim = tell_claim};

    create(fixture, 3, 1);
    claim(fixture, "a");
    claim(fixture, "b");
    claim(fixture, "c");
    look_at_pending(fixture);
    gate_suite_acknowledge(fixture->gate, fixture->claims, states, 3, NULL, 0);
    cancel(fixture, "a", 1);
    freed_count = 0;
    assert_ok(fixture, gate_visit(fixture->gate, POLICY, &visitor, &fixture->error));
    assert_int_equal(freed_count, 3);
}

/* --- races --- */

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
    struct gate_hand hand;
    int64_t policy_id;

    gate_hand_open(&hand, bird->gate);
    while ((policy_id = atomic_load(&bird->policy_id)) != 0) {
        struct wish wish = {.policy_id = policy_id, .user = id_of(SPAN("early"))};
        struct wish *wishes[] = {&wish};
        gate_hand_claim(&hand, policy_id, wishes, 1);
        bird->sold_out_count += wish.verdict == VERDICT_SOLD_OUT;
    }
    gate_hand_close(&hand);
    return NULL;
}

/* Known is known with its stock: there is no moment in between. */
static void test_local__new_policy_is_never_sold_out(void **state)
{
    struct fixture *fixture = *state;
    struct early_bird bird = {.gate = fixture->gate, .policy_id = 1};
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
        assert_ok(fixture, gate_policy_set(fixture->gate, &policy, &fixture->error));
    }
    atomic_store(&bird.policy_id, 0);
    for (int i = 0; i < EARLY_BIRDS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(bird.sold_out_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GATE_TEST(test_local__verdicts_wait_for_what_they_rest_on),
        GATE_TEST(test_local__repeat_in_one_batch_waits_too),
        GATE_TEST(test_local__verdict_by_key_waits_for_the_key),
        GATE_TEST(test_local__verdict_by_key_waits_within_a_batch),
        GATE_TEST(test_local__limit_reached_waits_too),
        GATE_TEST(test_local__void_does_not_stand),
        GATE_TEST(test_local__win_stands_beside_a_void),
        GATE_TEST(test_local__window_to_the_millisecond),
        GATE_TEST(test_local__coupon_expires_to_the_millisecond),
        GATE_TEST(test_local__goes_on_in_the_same_lease),
        GATE_TEST(test_local__what_is_still_to_come_is_unavailable),
        GATE_TEST(test_local__adopts_policies_that_were_built_aside),
        GATE_TEST(test_local__tells_what_is_gone),
        GATE_TEST(test_local__new_policy_is_never_sold_out),
    };
    return gate_suite_run() + cmocka_run_group_tests_name("gate_local", tests, NULL, NULL);
}
