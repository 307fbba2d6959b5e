/* gate_visit_suite.c: the gate's contract about what it tells of itself. */
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

#include "gate_suite.h"

#define NOW        1000000
#define CLAIMS_MAX 20000
#define FEW_MAX    256

/* The ledger's side: the claims and keys in the order they came. */
struct outbox {
    pthread_mutex_t lock;
    struct claim claims[CLAIMS_MAX];
    size_t claim_count;
    uint64_t ticket;
};

/* What a walk has told. */
struct told {
    struct policy policies[FEW_MAX];
    size_t policy_count;
    struct lease leases[FEW_MAX];
    int64_t given_counts[FEW_MAX];
    size_t lease_count;
    struct held_claim claims[CLAIMS_MAX];
    size_t claim_count;
    struct key_binding keys[FEW_MAX];
    size_t key_count;
    struct user_id users[FEW_MAX];
    size_t user_count;
    size_t claims_before_stop; /* 0: never */
    struct gate *claimed_from; /* not NULL: people claim while leases are told */
};

struct fixture {
    struct gate *gate;
    struct outbox outbox;
    struct told told;
};

static uint64_t outbox_push(void *context, const struct claim *claims, size_t claim_count,
                            const struct key_binding *bindings, size_t binding_count)
{
    struct outbox *outbox = context;
    (void)bindings;
    (void)binding_count;
    pthread_mutex_lock(&outbox->lock);
    ensure(outbox->claim_count + claim_count <= CLAIMS_MAX);
    if (claim_count > 0)
        memcpy(outbox->claims + outbox->claim_count, claims, claim_count * sizeof(*claims));
    outbox->claim_count += claim_count;
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

/* --- claiming --- */

/* `key` 0: none. */
static struct wish claim_with(struct gate *gate, int64_t policy_id, const char *user, uint8_t key)
{
    struct wish wish = {.policy_id = policy_id, .user = user_id_of(span_of(user))};
    struct wish *wishes[] = {&wish};
    wish.request_id.bytes[0] = key != 0 ? 0x80 : 0;
    wish.request_id.bytes[15] = key;
    gate_suite_claim(gate, policy_id, wishes, 1, NOW);
    return wish;
}

static void claim_many(struct gate *gate, int count)
{
    for (int i = 0; i < count; i++) {
        char user[32];
        snprintf(user, sizeof(user), "user-%d", i);
        ensure(claim_with(gate, 42, user, 0).verdict == VERDICT_WON);
    }
}

/* --- the visitor --- */

static enum status tell_policy(void *context, const struct policy *policy, struct error *error)
{
    struct told *told = context;
    (void)error;
    ensure(told->policy_count < FEW_MAX);
    told->policies[told->policy_count++] = *policy;
    return STATUS_OK;
}

static enum status tell_lease(void *context, const struct lease *lease, int64_t given_count,
                              struct error *error)
{
    struct told *told = context;
    (void)error;
    ensure(told->lease_count < FEW_MAX);
    told->given_counts[told->lease_count] = given_count;
    told->leases[told->lease_count++] = *lease;
    if (told->claimed_from != NULL && told->lease_count == 1)
        claim_many(told->claimed_from, 100);
    return STATUS_OK;
}

static enum status tell_claim(void *context, const struct held_claim *held, struct error *error)
{
    struct told *told = context;
    ensure(told->claim_count < CLAIMS_MAX);
    told->claims[told->claim_count++] = *held;
    if (told->claim_count == told->claims_before_stop)
        return error_set(error, STATUS_UNAVAILABLE, "enough");
    return STATUS_OK;
}

static enum status tell_key(void *context, const struct key_binding *binding, struct error *error)
{
    struct told *told = context;
    (void)error;
    ensure(told->key_count < FEW_MAX);
    told->keys[told->key_count++] = *binding;
    return STATUS_OK;
}

static enum status tell_blocked(void *context, const struct user_id *user, struct error *error)
{
    struct told *told = context;
    (void)error;
    ensure(told->user_count < FEW_MAX);
    told->users[told->user_count++] = *user;
    return STATUS_OK;
}

static enum status walk(struct fixture *fixture, int64_t policy_id, struct error *error)
{
    struct told *told = &fixture->told;
    struct gate_visitor visitor = {.policy = tell_policy,
                                   .lease = tell_lease,
                                   .claim = tell_claim,
                                   .key = tell_key,
                                   .blocked = tell_blocked,
                                   .context = told};

    *told = (struct told){.claims_before_stop = told->claims_before_stop,
                          .claimed_from = told->claimed_from};
    return gate_visit(fixture->gate, policy_id, &visitor, error);
}

static const struct told *walk_all(struct fixture *fixture)
{
    struct error error;
    assert_int_equal(walk(fixture, GATE_VISIT_ALL, &error), STATUS_OK);
    return &fixture->told;
}

/* --- moves --- */

static void set_policy(struct gate *gate, int64_t id, int64_t total, int64_t version,
                       int64_t next_seq)
{
    struct error error;
    struct policy policy = {.id = id,
                            .name = "visited",
                            .discount_type = DISCOUNT_FIXED,
                            .discount_value = 500,
                            .total = total,
                            .per_user_limit = 1,
                            .coupon_valid_days = 3,
                            .next_seq = next_seq,
                            .version = version};
    assert_int_equal(gate_policy_set(gate, &policy, &error), STATUS_OK);
}

static void lend(struct gate *gate, int64_t policy_id, int64_t lease_id, int64_t first_seq,
                 int64_t count)
{
    struct error error;
    struct lease lease = {.id = lease_id,
                          .policy_id = policy_id,
                          .first_seq = first_seq,
                          .count = count,
                          .open = true};
    assert_int_equal(gate_lend(gate, &lease, 0, &error), STATUS_OK);
}

static void acknowledge(struct fixture *fixture, size_t from, size_t count, enum coupon_state state)
{
    enum coupon_state states[FEW_MAX];
    for (size_t i = 0; i < count; i++)
        states[i] = state;
    gate_acknowledge(fixture->gate, fixture->outbox.claims + from, states, count);
}

static void settle(struct fixture *fixture, int64_t policy_id, int64_t seq, enum coupon_state state)
{
    struct user_id user = {0};
    struct error error;

    for (size_t i = 0; i < fixture->outbox.claim_count; i++) {
        const struct claim *claim = &fixture->outbox.claims[i];
        if (claim->policy_id == policy_id && claim->seq == seq)
            user = claim->user;
    }
    assert_int_equal(gate_settle(fixture->gate, policy_id, &user, seq, state, &error), STATUS_OK);
}

static void block(struct gate *gate, const char *user, bool blocked)
{
    struct error error;
    struct user_id id = user_id_of(span_of(user));
    assert_int_equal(gate_block(gate, &id, blocked, &error), STATUS_OK);
}

/* Six of ten are given out: redeemed, cancelled, void, held with a second key, the second one's
 * again, and one that is pending. */
static void fill(struct fixture *fixture)
{
    struct gate *gate = fixture->gate;

    set_policy(gate, 42, 10, 1, 11);
    lend(gate, 42, 3, 1, 10);
    assert_int_equal(claim_with(gate, 42, "redeemer", 0).seq, 1);
    assert_int_equal(claim_with(gate, 42, "canceller", 7).seq, 2);
    assert_int_equal(claim_with(gate, 42, "voided", 0).seq, 3);
    assert_int_equal(claim_with(gate, 42, "holder", 8).seq, 4);
    acknowledge(fixture, 0, 2, COUPON_ISSUED);
    acknowledge(fixture, 2, 1, COUPON_VOID);
    acknowledge(fixture, 3, 1, COUPON_ISSUED);
    settle(fixture, 42, 1, COUPON_REDEEMED);
    settle(fixture, 42, 2, COUPON_CANCELLED);
    assert_int_equal(claim_with(gate, 42, "holder", 9).seq, 4);
    assert_int_equal(claim_with(gate, 42, "canceller", 0).seq, 5);
    acknowledge(fixture, 4, 1, COUPON_ISSUED);
    assert_int_equal(claim_with(gate, 42, "waiter", 0).seq, 6);
    block(gate, "mallory", true);
    block(gate, "eve", true);
    block(gate, "trudy", true);
    block(gate, "trudy", false);
}

/* --- tests --- */

static void assert_held(const struct held_claim *held, int64_t seq, const char *user, uint8_t key,
                        enum coupon_state state, bool is_pending)
{
    assert_int_equal(held->claim.policy_id, 42);
    assert_int_equal(held->claim.seq, seq);
    assert_true(span_equal(user_id_span(&held->claim.user), span_of(user)));
    assert_int_equal(held->claim.nth, 1);
    assert_int_equal(held->claim.requested_at_ms, NOW);
    assert_int_equal(held->claim.request_id.bytes[15], key);
    assert_int_equal(held->state, state);
    assert_int_equal(held->is_pending, is_pending);
}

static void test_gate_visit__tells_all_it_holds(void **state)
{
    struct fixture *fixture = *state;

    fill(fixture);
    const struct told *told = walk_all(fixture);
    assert_int_equal(told->policy_count, 1);
    assert_string_equal(told->policies[0].name, "visited");
    assert_int_equal(told->policies[0].discount_type, DISCOUNT_FIXED);
    assert_int_equal(told->policies[0].discount_value, 500);
    assert_int_equal(told->policies[0].coupon_valid_days, 3);
    assert_int_equal(told->policies[0].total, 10);
    assert_int_equal(told->policies[0].next_seq, 11);
    assert_int_equal(told->lease_count, 1);
    assert_int_equal(told->leases[0].id, 3);
    assert_int_equal(told->leases[0].first_seq, 1);
    assert_int_equal(told->leases[0].count, 10);
    assert_int_equal(told->given_counts[0], 6);
    assert_true(told->leases[0].open);
    assert_int_equal(told->claim_count, 6);
    assert_held(&told->claims[0], 1, "redeemer", 0, COUPON_REDEEMED, false);
    assert_held(&told->claims[1], 2, "canceller", 7, COUPON_CANCELLED, false);
    assert_held(&told->claims[2], 3, "voided", 0, COUPON_VOID, false);
    assert_held(&told->claims[3], 4, "holder", 8, COUPON_ISSUED, false);
    assert_held(&told->claims[4], 5, "canceller", 0, COUPON_ISSUED, false);
    assert_held(&told->claims[5], 6, "waiter", 0, COUPON_ISSUED, true);
    assert_int_equal(told->key_count, 1);
    assert_int_equal(told->keys[0].seq, 4);
    assert_int_equal(told->keys[0].request_id.bytes[15], 9);
    assert_int_equal(told->user_count, 2);
    assert_true(span_equal(user_id_span(&told->users[0]), SPAN("eve")));
    assert_true(span_equal(user_id_span(&told->users[1]), SPAN("mallory")));
}

/* A ledger must never lend a lease below one that the gate has seen, also one that is sold. */
static void test_gate_visit__tells_the_highest_lease(void **state)
{
    struct fixture *fixture = *state;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;
    struct error error;

    set_policy(fixture->gate, 42, 5, 1, 4);
    lend(fixture->gate, 42, 7, 1, 2);
    lend(fixture->gate, 42, 9, 3, 1);
    assert_int_equal(gate_recall(fixture->gate, 42, 1, shrunk, &shrunk_count, &error), STATUS_OK);
    const struct told *told = walk_all(fixture);
    assert_int_equal(told->lease_count, 2);
    assert_int_equal(told->leases[0].id, 7);
    assert_int_equal(told->leases[1].id, 9);
    assert_int_equal(told->leases[1].count, 0);
    assert_false(told->leases[1].open);

    assert_int_equal(claim_with(fixture->gate, 42, "a", 0).verdict, VERDICT_WON);
    assert_int_equal(claim_with(fixture->gate, 42, "b", 0).verdict, VERDICT_WON);
    told = walk_all(fixture);
    assert_int_equal(told->lease_count, 1);
    assert_int_equal(told->leases[0].id, 9);
    assert_int_equal(told->claim_count, 2);
}

/* A row that is older than the lease: the seqs of the lease are spoken for all the same. */
static void test_gate_visit__next_seq_is_above_all_seen(void **state)
{
    struct fixture *fixture = *state;

    set_policy(fixture->gate, 42, 5, 1, 1);
    lend(fixture->gate, 42, 1, 1, 5);
    assert_int_equal(walk_all(fixture)->policies[0].next_seq, 6);
}

static void test_gate_visit__one_policy_or_all_in_order(void **state)
{
    struct fixture *fixture = *state;
    struct error error;

    set_policy(fixture->gate, 7, 1, 1, 1);
    set_policy(fixture->gate, 3, 1, 1, 1);
    set_policy(fixture->gate, 5, 1, 1, 1);
    lend(fixture->gate, 5, 1, 1, 1);
    block(fixture->gate, "eve", true);
    const struct told *told = walk_all(fixture);
    assert_int_equal(told->policy_count, 3);
    assert_int_equal(told->policies[0].id, 3);
    assert_int_equal(told->policies[1].id, 5);
    assert_int_equal(told->policies[2].id, 7);
    assert_int_equal(told->user_count, 1);

    assert_int_equal(walk(fixture, 5, &error), STATUS_OK);
    assert_int_equal(told->policy_count, 1);
    assert_int_equal(told->policies[0].id, 5);
    assert_int_equal(told->lease_count, 1);
    assert_int_equal(told->user_count, 0);
    assert_int_equal(walk(fixture, 4, &error), STATUS_NOT_FOUND);
}

static void test_gate_visit__visitor_ends_the_walk(void **state)
{
    struct fixture *fixture = *state;
    struct error error;

    fill(fixture);
    fixture->told.claims_before_stop = 2;
    assert_int_equal(walk(fixture, GATE_VISIT_ALL, &error), STATUS_UNAVAILABLE);
    assert_string_equal(error.text, "enough");
    assert_int_equal(fixture->told.claim_count, 2);
    assert_int_equal(fixture->told.key_count + fixture->told.user_count, 0);
}

/* More of everything than is told under one hold of a lock. */
static void test_gate_visit__tells_many(void **state)
{
    struct fixture *fixture = *state;
    char user[16];

    set_policy(fixture->gate, 42, 2000, 1, 2001);
    for (int i = 0; i < 200; i++)
        lend(fixture->gate, 42, i + 1, i * 10 + 1, 10);
    for (int i = 0; i < 500; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim_with(fixture->gate, 42, user, 0).seq, i + 1);
    }
    for (int i = 0; i < 150; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim_with(fixture->gate, 42, user, (uint8_t)(i + 1)).seq, i + 1);
        snprintf(user, sizeof(user), "bad-%03d", i);
        block(fixture->gate, user, true);
    }
    const struct told *told = walk_all(fixture);
    assert_int_equal(told->lease_count, 150);
    for (size_t i = 0; i < 150; i++) {
        assert_int_equal(told->leases[i].id, i + 51);
        assert_int_equal(told->keys[i].seq, i + 1);
        assert_int_equal(told->keys[i].request_id.bytes[15], i + 1);
        snprintf(user, sizeof(user), "bad-%03zu", i);
        assert_true(span_equal(user_id_span(&told->users[i]), span_of(user)));
    }
    assert_int_equal(told->key_count, 150);
    assert_int_equal(told->user_count, 150);
    assert_int_equal(told->claim_count, 500);
    for (size_t i = 0; i < 500; i++) {
        assert_int_equal(told->claims[i].claim.seq, i + 1);
        snprintf(user, sizeof(user), "user-%zu", i);
        assert_true(span_equal(user_id_span(&told->claims[i].claim.user), span_of(user)));
    }
}

/* What is told is all that it takes: a gate made from it answers the same. */
static void test_gate_visit__gate_made_from_the_walk_goes_on(void **state)
{
    struct fixture *fixture = *state;
    struct outbox *outbox = calloc(1, sizeof(*outbox));
    struct error error;

    pthread_mutex_init(&outbox->lock, NULL);
    fill(fixture);
    const struct told *told = walk_all(fixture);
    struct gate *made =
        gate_suite_open((struct gate_outlet){.push = outbox_push, .context = outbox});
    assert_int_equal(gate_policy_set(made, &told->policies[0], &error), STATUS_OK);
    for (size_t i = 0; i < told->claim_count; i++)
        assert_int_equal(gate_restore(made, &told->claims[i].claim, told->claims[i].state, &error),
                         STATUS_OK);
    assert_int_equal(gate_restore_key(made, &told->keys[0], &error), STATUS_OK);
    assert_int_equal(gate_lend(made, &told->leases[0], told->given_counts[0], &error), STATUS_OK);
    for (size_t i = 0; i < told->user_count; i++)
        assert_int_equal(gate_block(made, &told->users[i], true, &error), STATUS_OK);

    const struct {
        const char *user;
        uint8_t key;
    } asked[] = {{"redeemer", 0}, {"canceller", 0}, {"canceller", 7}, {"holder", 8}, {"holder", 9},
                 {"other", 9},    {"waiter", 0},    {"eve", 0},       {"trudy", 0},  {"voided", 0}};
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        struct wish there = claim_with(fixture->gate, 42, asked[i].user, asked[i].key);
        struct wish here = claim_with(made, 42, asked[i].user, asked[i].key);
        assert_int_equal(here.verdict, there.verdict);
        assert_int_equal(here.seq, there.seq);
        assert_int_equal(here.coupon_state, there.coupon_state);
    }
    gate_close(made);
    pthread_mutex_destroy(&outbox->lock);
    free(outbox);
}

/* --- while people claim --- */

#define RACE_TOTAL 15000

static void *claim_all(void *context)
{
    struct fixture *fixture = context;
    claim_many(fixture->gate, RACE_TOTAL);
    return NULL;
}

static size_t outbox_count(struct outbox *outbox)
{
    pthread_mutex_lock(&outbox->lock);
    size_t count = outbox->claim_count;
    pthread_mutex_unlock(&outbox->lock);
    return count;
}

/* What the walk missed is covered by a lease that it has told. */
static void assert_covered(const struct fixture *fixture, size_t from, size_t to)
{
    const struct told *told = &fixture->told;
    for (size_t i = from; i < to; i++) {
        const struct claim *claim = &fixture->outbox.claims[i];
        bool covered = false;
        for (size_t l = 0; l < told->lease_count && !covered; l++)
            covered = told->leases[l].id == claim->lease_id &&
                      claim->seq < told->leases[l].first_seq + told->leases[l].count;
        assert_true(covered);
    }
}

/* Leases are sold while they are told: what was given out of those that are not told any more is
 * among the claims. */
static void test_gate_visit__claims_follow_leases(void **state)
{
    struct fixture *fixture = *state;

    set_policy(fixture->gate, 42, 200, 1, 201);
    for (int i = 0; i < 200; i++)
        lend(fixture->gate, 42, i + 1, i + 1, 1);
    fixture->told.claimed_from = fixture->gate;
    const struct told *told = walk_all(fixture);
    assert_true(told->lease_count < 200);
    assert_covered(fixture, told->claim_count, 100);
}

/* Each walk has every claim from before it, once and in order. */
static void test_gate_visit__walks_beside_claims(void **state)
{
    struct fixture *fixture = *state;
    const struct told *told = &fixture->told;
    pthread_t claimer;
    size_t before = 0;

    set_policy(fixture->gate, 42, RACE_TOTAL, 1, RACE_TOTAL + 1);
    for (int i = 0; i < RACE_TOTAL / 100; i++)
        lend(fixture->gate, 42, i + 1, i * 100 + 1, 100);
    assert_int_equal(pthread_create(&claimer, NULL, claim_all, fixture), 0);
    while (before < RACE_TOTAL) {
        before = outbox_count(&fixture->outbox);
        walk_all(fixture);
        size_t after = outbox_count(&fixture->outbox);
        assert_true(told->claim_count >= before);
        for (size_t i = 0; i < told->claim_count; i++)
            assert_int_equal(told->claims[i].claim.seq, i + 1);
        assert_covered(fixture, told->claim_count, after);
    }
    pthread_join(claimer, NULL);
}

int gate_visit_suite_run(void)
{
#define VISIT_TEST(name) cmocka_unit_test_setup_teardown(test_gate_visit__##name, set_up, tear_down)
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
