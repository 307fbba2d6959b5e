/* gate_visit_suite.c: the gate's contract about what it tells of itself. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "gate_fixture.h"

#define FEW_MAX 256

/* What a walk has told. */
struct told {
    struct policy policies[FEW_MAX];
    size_t policy_count;
    struct lease leases[FEW_MAX];
    int64_t given_counts[FEW_MAX];
    size_t lease_count;
    struct held_claim claims[CLAIMS_MAX]; /* active ones; a gate may forget the others */
    size_t claim_count;
    struct key_binding keys[FEW_MAX];
    size_t key_count;
    struct id users[FEW_MAX];
    size_t user_count;
    size_t claims_before_stop;  /* 0: never */
    struct fixture *claimed_by; /* not NULL: people claim while leases are told */
};

static struct told *told;

static int visit_set_up(void **state)
{
    told = calloc(1, sizeof(*told));
    return gate_fixture_set_up(state);
}

static int visit_tear_down(void **state)
{
    free(told);
    return gate_fixture_tear_down(state);
}

/* --- claiming --- */

/* `key` 0: none. */
static struct wish claim_as(struct fixture *fixture, const char *user, uint8_t key)
{
    return key == 0 ? claim(fixture, user) : claim_with_key(fixture, user, key);
}

static void claim_many(struct gate_hand *hand, int from, int count)
{
    static struct wish wishes[500];
    static struct wish *batch[500];

    ensure(count <= 500);
    for (int i = 0; i < count; i++) {
        char user[32];
        snprintf(user, sizeof(user), "user-%d", from + i);
        wishes[i] = wish_of(user);
        batch[i] = &wishes[i];
    }
    gate_hand_claim(hand, POLICY, batch, (size_t)count);
    for (int i = 0; i < count; i++)
        ensure(wishes[i].verdict == VERDICT_WON);
}

/* --- the visitor --- */

static enum status tell_policy(void *context, const struct policy *policy, struct error *error)
{
    (void)context;
    (void)error;
    ensure(told->policy_count < FEW_MAX);
    told->policies[told->policy_count++] = *policy;
    return STATUS_OK;
}

static enum status tell_lease(void *context, const struct lease *lease, int64_t given_count,
                              struct error *error)
{
    (void)context;
    (void)error;
    ensure(told->lease_count < FEW_MAX);
    told->given_counts[told->lease_count] = given_count;
    told->leases[told->lease_count++] = *lease;
    if (told->claimed_by != NULL && told->lease_count == 1)
        claim_many(&told->claimed_by->hand, 0, 100);
    return STATUS_OK;
}

static enum status tell_claim(void *context, const struct held_claim *held, struct error *error)
{
    (void)context;
    if (!coupon_state_is_active(held->state))
        return STATUS_OK;
    ensure(told->claim_count < CLAIMS_MAX);
    told->claims[told->claim_count++] = *held;
    if (told->claim_count == told->claims_before_stop)
        return error_set(error, STATUS_UNAVAILABLE, "enough");
    return STATUS_OK;
}

static enum status tell_key(void *context, const struct key_binding *binding, struct error *error)
{
    (void)context;
    (void)error;
    ensure(told->key_count < FEW_MAX);
    told->keys[told->key_count++] = *binding;
    return STATUS_OK;
}

static enum status tell_blocked(void *context, const struct id *user, struct error *error)
{
    (void)context;
    (void)error;
    ensure(told->user_count < FEW_MAX);
    told->users[told->user_count++] = *user;
    return STATUS_OK;
}

static enum status walk(struct fixture *fixture, int64_t policy_id)
{
    struct claim_visitor visitor = {.policy = tell_policy,
                                    .lease = tell_lease,
                                    .claim = tell_claim,
                                    .key = tell_key,
                                    .blocked = tell_blocked};

    *told = (struct told){.claims_before_stop = told->claims_before_stop,
                          .claimed_by = told->claimed_by};
    return gate_visit(fixture->gate, policy_id, &visitor, &fixture->error);
}

static void walk_all(struct fixture *fixture)
{
    assert_ok(fixture, walk(fixture, GATE_VISIT_ALL));
}

/* --- moves --- */

/* A policy whose seqs below `next_seq` are all spoken for, without stock in the gate. */
static void make(struct fixture *fixture, int64_t id, int64_t total, int64_t next_seq)
{
    fixture->policy = (struct policy){.id = id,
                                      .name = "visited \xc3\xa9 \"it's\"",
                                      .discount_type = DISCOUNT_FIXED,
                                      .discount_value = 500,
                                      .total = total,
                                      .per_user_limit = 1,
                                      .coupon_valid_days = 3,
                                      .coupon_expires_at_ms = 1900000000123,
                                      .currency = currency_of(SPAN("KRW")),
                                      .reserve = 2,
                                      .created_at_ms = 1700000000123,
                                      .next_seq = next_seq};
    set_policy(fixture);
}

static void settle(struct fixture *fixture, const char *user, int64_t seq, enum coupon_state state)
{
    struct id id = id_of(span_of(user));
    assert_ok(fixture, gate_settle(fixture->gate, POLICY, &id, seq, state, &fixture->error));
}

static void block(struct fixture *fixture, const char *user, bool blocked)
{
    struct id id = id_of(span_of(user));
    assert_ok(fixture, gate_block(fixture->gate, &id, blocked, &fixture->error));
}

/* Six of ten are given out: redeemed, cancelled, void, held with a second key, the second one's
 * again, and one that is pending. */
static void fill(struct fixture *fixture)
{
    const enum coupon_state states[] = {COUPON_ISSUED, COUPON_ISSUED, COUPON_VOID, COUPON_ISSUED};

    make(fixture, POLICY, 10, 11);
    assert_ok(fixture, lend(fixture, 3, 1, 10));
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 0, &fixture->error));
    assert_int_equal(claim_as(fixture, "redeemer", 0).seq, 1);
    assert_int_equal(claim_as(fixture, "canceller", 7).seq, 2);
    assert_int_equal(claim_as(fixture, "voided", 0).seq, 3);
    assert_int_equal(claim_as(fixture, "holder", 8).seq, 4);
    assert_int_equal(look_at_pending(fixture), 4);
    gate_suite_acknowledge(fixture->gate, fixture->claims, states, 4, NULL, 0);
    settle(fixture, "redeemer", 1, COUPON_REDEEMED);
    settle(fixture, "canceller", 2, COUPON_CANCELLED);
    assert_int_equal(claim_as(fixture, "holder", 9).seq, 4);
    assert_int_equal(claim_as(fixture, "canceller", 0).seq, 5);
    acknowledge(fixture);
    assert_int_equal(claim_as(fixture, "waiter", 0).seq, 6);
    block(fixture, "mallory", true);
    block(fixture, "eve", true);
    block(fixture, "trudy", true);
    block(fixture, "trudy", false);
}

/* --- tests --- */

static void assert_held(const struct held_claim *held, int64_t seq, const char *user, uint8_t key,
                        enum coupon_state state, bool is_pending)
{
    assert_int_equal(held->claim.policy_id, POLICY);
    assert_int_equal(held->claim.seq, seq);
    assert_true(span_equal(id_span(&held->claim.user), span_of(user)));
    assert_int_equal(held->claim.nth, 1);
    assert_int_equal(held->claim.request_id.bytes[15], key);
    assert_int_equal(held->state, state);
    assert_int_equal(held->is_pending, is_pending);
}

/* The keys that are told besides those of claims that are told. */
static bool is_told(uint8_t key, int64_t seq)
{
    for (size_t i = 0; i < told->key_count; i++)
        if (told->keys[i].request_id.bytes[15] == key && told->keys[i].seq == seq)
            return true;
    return false;
}

static void test_gate_visit__tells_all_it_holds(void **state)
{
    struct fixture *fixture = *state;
    int64_t before_ms = gate_suite_now_ms();

    fill(fixture);
    int64_t after_ms = gate_suite_now_ms();
    walk_all(fixture);
    const struct policy *policy = &told->policies[0];
    assert_int_equal(told->policy_count, 1);
    assert_string_equal(policy->name, fixture->policy.name);
    assert_int_equal(policy->discount_type, DISCOUNT_FIXED);
    assert_int_equal(policy->discount_value, 500);
    assert_int_equal(policy->coupon_valid_days, 3);
    assert_int_equal(policy->coupon_expires_at_ms, 1900000000123);
    assert_int_equal(policy->currency, currency_of(SPAN("KRW")));
    assert_int_equal(policy->total, 10);
    assert_int_equal(policy->per_user_limit, 1);
    assert_int_equal(policy->reserve, 2);
    assert_int_equal(policy->created_at_ms, 1700000000123);
    assert_int_equal(policy->next_seq, 11);
    assert_int_equal(policy->version, fixture->policy.version);
    assert_int_equal(told->lease_count, 1);
    assert_int_equal(told->leases[0].id, 3);
    assert_int_equal(told->leases[0].first_seq, 1);
    assert_int_equal(told->leases[0].count, 10);
    assert_int_equal(told->given_counts[0], 6);
    assert_true(told->leases[0].open);
    assert_int_equal(told->claim_count, 4);
    assert_held(&told->claims[0], 1, "redeemer", 0, COUPON_REDEEMED, false);
    assert_held(&told->claims[1], 4, "holder", 8, COUPON_ISSUED, false);
    assert_held(&told->claims[2], 5, "canceller", 0, COUPON_ISSUED, false);
    assert_held(&told->claims[3], 6, "waiter", 0, COUPON_ISSUED, true);
    for (size_t i = 0; i < told->claim_count; i++)
        assert_in_range(told->claims[i].claim.requested_at_ms, before_ms, after_ms);
    assert_true(is_told(9, 4));
    assert_false(is_told(8, 4));
    assert_int_equal(told->user_count, 2);
    assert_true(span_equal(id_span(&told->users[0]), SPAN("eve")));
    assert_true(span_equal(id_span(&told->users[1]), SPAN("mallory")));
}

/* A ledger must never lend a lease below one that the gate has seen, also one that is sold. */
static void test_gate_visit__tells_the_highest_lease(void **state)
{
    struct fixture *fixture = *state;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;

    make(fixture, POLICY, 5, 4);
    assert_ok(fixture, lend(fixture, 7, 1, 2));
    assert_ok(fixture, lend(fixture, 9, 3, 1));
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 0, &fixture->error));
    assert_ok(fixture,
              gate_recall(fixture->gate, POLICY, 1, shrunk, &shrunk_count, &fixture->error));
    walk_all(fixture);
    assert_int_equal(told->lease_count, 2);
    assert_int_equal(told->leases[0].id, 7);
    assert_int_equal(told->leases[1].id, 9);
    assert_int_equal(told->leases[1].count, 0);
    assert_false(told->leases[1].open);

    assert_int_equal(claim(fixture, "a").verdict, VERDICT_WON);
    assert_int_equal(claim(fixture, "b").verdict, VERDICT_WON);
    walk_all(fixture);
    assert_int_equal(told->lease_count, 1);
    assert_int_equal(told->leases[0].id, 9);
    assert_int_equal(told->claim_count, 2);
}

/* A row that is older than the lease: the seqs of the lease are spoken for all the same. */
static void test_gate_visit__next_seq_is_above_all_seen(void **state)
{
    struct fixture *fixture = *state;

    make(fixture, POLICY, 5, 1);
    assert_ok(fixture, lend(fixture, 1, 1, 5));
    walk_all(fixture);
    assert_int_equal(told->policies[0].next_seq, 6);
}

static void test_gate_visit__one_policy_or_all_in_order(void **state)
{
    struct fixture *fixture = *state;

    make(fixture, 7, 1, 1);
    make(fixture, 3, 1, 1);
    make(fixture, 5, 1, 1);
    assert_ok(fixture, lend(fixture, 1, 1, 1));
    block(fixture, "eve", true);
    walk_all(fixture);
    assert_int_equal(told->policy_count, 3);
    assert_int_equal(told->policies[0].id, 3);
    assert_int_equal(told->policies[1].id, 5);
    assert_int_equal(told->policies[2].id, 7);
    assert_int_equal(told->user_count, 1);

    assert_ok(fixture, walk(fixture, 5));
    assert_int_equal(told->policy_count, 1);
    assert_int_equal(told->policies[0].id, 5);
    assert_int_equal(told->lease_count, 1);
    assert_int_equal(told->user_count, 0);
    assert_status(fixture, walk(fixture, 4), STATUS_NOT_FOUND);
}

static void test_gate_visit__visitor_ends_the_walk(void **state)
{
    struct fixture *fixture = *state;

    fill(fixture);
    told->claims_before_stop = 2;
    assert_int_equal(walk(fixture, GATE_VISIT_ALL), STATUS_UNAVAILABLE);
    assert_string_equal(fixture->error.text, "enough");
    assert_int_equal(told->claim_count, 2);
    assert_int_equal(told->key_count + told->user_count, 0);
}

/* More of everything than is told under one hold of a lock. */
static void test_gate_visit__tells_many(void **state)
{
    struct fixture *fixture = *state;
    char user[32];

    make(fixture, POLICY, 2000, 2001);
    for (int i = 0; i < 200; i++)
        assert_ok(fixture, lend(fixture, i + 1, i * 10 + 1, 10));
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 0, &fixture->error));
    claim_many(&fixture->hand, 0, 500);
    for (int i = 0; i < 150; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim_as(fixture, user, (uint8_t)(i + 1)).seq, i + 1);
        snprintf(user, sizeof(user), "bad-%03d", i);
        block(fixture, user, true);
    }
    walk_all(fixture);
    assert_int_equal(told->lease_count, 150);
    for (size_t i = 0; i < 150; i++) {
        assert_int_equal(told->leases[i].id, i + 51);
        assert_int_equal(told->keys[i].seq, i + 1);
        assert_int_equal(told->keys[i].request_id.bytes[15], i + 1);
        snprintf(user, sizeof(user), "bad-%03zu", i);
        assert_true(span_equal(id_span(&told->users[i]), span_of(user)));
    }
    assert_int_equal(told->key_count, 150);
    assert_int_equal(told->user_count, 150);
    assert_int_equal(told->claim_count, 500);
    for (size_t i = 0; i < 500; i++) {
        assert_int_equal(told->claims[i].claim.seq, i + 1);
        snprintf(user, sizeof(user), "user-%zu", i);
        assert_true(span_equal(id_span(&told->claims[i].claim.user), span_of(user)));
    }
}

/* Builds the gate that was told of. What was left of its lease comes in a new one. */
static void rebuild(struct fixture *fixture)
{
    struct policy policy = told->policies[0];
    int64_t left = told->leases[0].count - told->given_counts[0];

    assert_ok(fixture, reset_to_build(fixture->gate, POLICY, policy.next_seq - 1, &fixture->error));
    assert_ok(fixture, gate_policy_set(fixture->gate, &policy, &fixture->error));
    for (size_t i = 0; i < told->claim_count; i++)
        assert_ok(fixture, gate_restore(fixture->gate, &told->claims[i].claim,
                                        told->claims[i].state, &fixture->error));
    for (size_t i = 0; i < told->key_count; i++) {
        struct key_binding key = told->keys[i];
        for (size_t j = 0; j < told->claim_count; j++) {
            if (told->claims[j].claim.seq == key.seq) {
                key.user = told->claims[j].claim.user;
                key.nth = told->claims[j].claim.nth;
            }
        }
        if (key.seq == 4)
            assert_ok(fixture, gate_restore_key(fixture->gate, &key, &fixture->error));
    }
    fixture->policy.id = POLICY;
    assert_ok(fixture, lend(fixture, told->leases[0].id + 1, policy.next_seq, left));
    for (size_t i = 0; i < told->user_count; i++)
        assert_ok(fixture, gate_block(fixture->gate, &told->users[i], true, &fixture->error));
    assert_ok(fixture,
              arm_for_long(fixture->gate, POLICY, (int64_t)told->claim_count, &fixture->error));
}

/* What is told is all that it takes: a gate made from it answers the same. */
static void test_gate_visit__gate_made_from_the_walk_goes_on(void **state)
{
    struct fixture *fixture = *state;
    const struct {
        const char *user;
        uint8_t key;
    } asked[] = {{"redeemer", 0}, {"canceller", 0}, {"holder", 8}, {"holder", 9}, {"other", 9},
                 {"waiter", 0},   {"eve", 0},       {"trudy", 0},  {"voided", 0}};
    struct wish there[sizeof(asked) / sizeof(asked[0])];

    fill(fixture);
    walk_all(fixture);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++)
        there[i] = claim_as(fixture, asked[i].user, asked[i].key);
    gate_hand_close(&fixture->hand);
    gate_suite_close(fixture->gate);
    fixture->gate = gate_suite_open();
    gate_hand_open(&fixture->hand, fixture->gate);
    rebuild(fixture);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        struct wish here = claim_as(fixture, asked[i].user, asked[i].key);
        assert_int_equal(here.verdict, there[i].verdict);
        assert_int_equal(here.coupon_state, there[i].coupon_state);
        if (here.verdict == VERDICT_HELD)
            assert_int_equal(here.seq, there[i].seq);
    }
}

/* --- while people claim --- */

#define RACE_TOTAL 15000
#define RACE_BATCH 50

static void *claim_all(void *context)
{
    struct fixture *fixture = context;
    struct gate_hand hand;

    gate_hand_open(&hand, fixture->gate);
    for (int i = 0; i < RACE_TOTAL; i += RACE_BATCH)
        claim_many(&hand, i, RACE_BATCH);
    gate_hand_close(&hand);
    return NULL;
}

static bool is_claim_told(int64_t seq)
{
    size_t low = 0;
    size_t high = told->claim_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (told->claims[middle].claim.seq < seq)
            low = middle + 1;
        else
            high = middle;
    }
    return low < told->claim_count && told->claims[low].claim.seq == seq;
}

/* What the walk missed is covered by a lease that it has told. */
static void assert_covered(const struct fixture *fixture)
{
    for (size_t i = 0; i < fixture->claim_count; i++) {
        const struct claim *missed = &fixture->claims[i];
        bool covered = is_claim_told(missed->seq);
        for (size_t l = 0; l < told->lease_count && !covered; l++)
            covered = told->leases[l].id == missed->lease_id &&
                      missed->seq < told->leases[l].first_seq + told->leases[l].count;
        assert_true(covered);
    }
}

/* Leases are sold while they are told: what was given out of those that are not told any more is
 * among the claims. */
static void test_gate_visit__claims_follow_leases(void **state)
{
    struct fixture *fixture = *state;

    make(fixture, POLICY, 200, 201);
    for (int i = 0; i < 200; i++)
        assert_ok(fixture, lend(fixture, i + 1, i + 1, 1));
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 0, &fixture->error));
    told->claimed_by = fixture;
    walk_all(fixture);
    assert_int_equal(look_at_pending(fixture), 100);
    assert_covered(fixture);
}

/* Each walk has every claim from before it, once and in order. */
static void test_gate_visit__walks_beside_claims(void **state)
{
    struct fixture *fixture = *state;
    pthread_t claimer;
    size_t before = 0;

    make(fixture, POLICY, RACE_TOTAL, RACE_TOTAL + 1);
    for (int i = 0; i < RACE_TOTAL / 100; i++)
        assert_ok(fixture, lend(fixture, i + 1, i * 100 + 1, 100));
    assert_ok(fixture, arm_for_long(fixture->gate, POLICY, 0, &fixture->error));
    assert_int_equal(pthread_create(&claimer, NULL, claim_all, fixture), 0);
    while (before < RACE_TOTAL) {
        before = look_at_pending(fixture);
        walk_all(fixture);
        look_at_pending(fixture);
        assert_true(told->claim_count >= before);
        for (size_t i = 0; i < told->claim_count; i++)
            if (i < before)
                assert_int_equal(told->claims[i].claim.seq, i + 1);
            else if (i > 0)
                assert_true(told->claims[i].claim.seq > told->claims[i - 1].claim.seq);
        assert_covered(fixture);
    }
    pthread_join(claimer, NULL);
}

int gate_visit_suite_run(void)
{
#define VISIT_TEST(name) \
    cmocka_unit_test_setup_teardown(test_gate_visit__##name, visit_set_up, visit_tear_down)
    const struct CMUnitTest tests[] = {
        VISIT_TEST(tells_all_it_holds),
        VISIT_TEST(tells_the_highest_lease),
        VISIT_TEST(next_seq_is_above_all_seen),
        VISIT_TEST(one_policy_or_all_in_order),
        VISIT_TEST(visitor_ends_the_walk),
        VISIT_TEST(tells_many),
        VISIT_TEST(gate_made_from_the_walk_goes_on),
        VISIT_TEST(claims_follow_leases),
        VISIT_TEST(walks_beside_claims),
    };
    return cmocka_run_group_tests_name("gate_visit", tests, NULL, NULL);
}
