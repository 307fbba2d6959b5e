/* ledger_suite.c: the ledger's contract as tests. */
#include "ledger_suite.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#define NOW        INT64_C(1763200000000)
#define CLAIMS_MAX 1024

struct fixture {
    const char *url;
    struct ledger *ledger;
    struct error error;
    pthread_mutex_t lock;
    pthread_cond_t durable;
    /* What the ledger said of the claims, in its order. */
    struct claim claims[CLAIMS_MAX];
    enum coupon_state states[CLAIMS_MAX];
    size_t issued_count;
};

static void on_issued(void *context, const struct claim *claims, const enum coupon_state *states,
                      size_t count)
{
    struct fixture *fixture = context;
    pthread_mutex_lock(&fixture->lock);
    ensure(fixture->issued_count + count <= CLAIMS_MAX);
    memcpy(fixture->claims + fixture->issued_count, claims, count * sizeof(*claims));
    memcpy(fixture->states + fixture->issued_count, states, count * sizeof(*states));
    fixture->issued_count += count;
    pthread_mutex_unlock(&fixture->lock);
}

static void on_durable(void *context)
{
    struct fixture *fixture = context;
    pthread_mutex_lock(&fixture->lock);
    pthread_cond_broadcast(&fixture->durable);
    pthread_mutex_unlock(&fixture->lock);
}

static struct ledger_options options_of(struct fixture *fixture)
{
    return (struct ledger_options){.url = fixture->url,
                                   .integrity = LEDGER_CHECK_FULL,
                                   .readers = 3,
                                   .on_issued = on_issued,
                                   .on_durable = on_durable,
                                   .context = fixture};
}

static void open_ledger(struct fixture *fixture)
{
    struct ledger_options options = options_of(fixture);
    enum status status = ledger_open(&fixture->ledger, &options, &fixture->error);
    if (status != STATUS_OK)
        print_error("%s\n", fixture->error.text);
    assert_int_equal(status, STATUS_OK);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    pthread_mutex_init(&fixture->lock, NULL);
    pthread_cond_init(&fixture->durable, NULL);
    fixture->url = ledger_suite_create();
    open_ledger(fixture);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    ledger_close(fixture->ledger);
    ledger_suite_drop();
    pthread_cond_destroy(&fixture->durable);
    pthread_mutex_destroy(&fixture->lock);
    free(fixture);
    return 0;
}

static void reopen(struct fixture *fixture)
{
    ledger_close(fixture->ledger);
    open_ledger(fixture);
}

/* --- moves --- */

static void wait_for(struct fixture *fixture, uint64_t ticket)
{
    pthread_mutex_lock(&fixture->lock);
    while (ledger_durable(fixture->ledger) < ticket)
        pthread_cond_wait(&fixture->durable, &fixture->lock);
    pthread_mutex_unlock(&fixture->lock);
}

static struct policy create(struct fixture *fixture, int64_t total, struct lease *lease)
{
    struct policy policy = {.name = "Täglich 10 %",
                            .discount_type = DISCOUNT_FIXED,
                            .discount_value = 5000,
                            .total = total,
                            .per_user_limit = 5,
                            .created_at_ms = NOW};
    assert_int_equal(ledger_policy_create(fixture->ledger, &policy, lease, &fixture->error),
                     STATUS_OK);
    return policy;
}

static struct claim claim_of(const struct lease *lease, int64_t seq, const char *user, int32_t nth)
{
    struct claim claim = {.policy_id = lease->policy_id,
                          .seq = seq,
                          .lease_id = lease->id,
                          .requested_at_ms = NOW,
                          .nth = nth,
                          .user = user_id_of(span_of(user))};
    claim.request_id.bytes[7] = (uint8_t)seq;
    claim.request_id.bytes[8] = (uint8_t)nth;
    return claim;
}

/* Issues and returns what became of the last claim. */
static enum coupon_state issue(struct fixture *fixture, const struct claim *claims, size_t count)
{
    wait_for(fixture, ledger_issue(fixture->ledger, claims, count, NULL, 0));
    return fixture->states[fixture->issued_count - 1];
}

static enum coupon_state issue_one(struct fixture *fixture, const struct lease *lease, int64_t seq,
                                   const char *user, int32_t nth)
{
    struct claim claim = claim_of(lease, seq, user, nth);
    return issue(fixture, &claim, 1);
}

static struct coupon coupon_of(struct fixture *fixture, int64_t policy_id, int64_t seq)
{
    struct coupon coupon;
    assert_int_equal(ledger_coupon_get(fixture->ledger, policy_id, seq, &coupon, &fixture->error),
                     STATUS_OK);
    return coupon;
}

static struct policy policy_of(struct fixture *fixture, int64_t id)
{
    struct policy policy;
    assert_int_equal(ledger_policy_get(fixture->ledger, id, &policy, &fixture->error), STATUS_OK);
    assert_int_equal(ledger_suite_imbalance(id), 0);
    return policy;
}

static enum status change(struct fixture *fixture, int64_t id, struct policy_change what,
                          const struct lease_shrunk *shrunk, size_t shrunk_count)
{
    struct policy policy;
    what.now_ms = NOW;
    return ledger_policy_change(fixture->ledger, id, &what, shrunk, shrunk_count, &policy,
                                &fixture->error);
}

/* --- policies --- */

static void test_ledger__policy_comes_back_as_it_went_in(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = {.id = 77,
                            .name = "Seoul 쿠폰 ☕",
                            .discount_type = DISCOUNT_PERCENT,
                            .discount_value = 15,
                            .total = 1000,
                            .per_user_limit = 3,
                            .coupon_valid_days = 30,
                            .opens_at_ms = NOW,
                            .closes_at_ms = NOW + DAY_MS,
                            .reserve = 100,
                            .created_at_ms = NOW - 1};
    assert_int_equal(ledger_policy_create(fixture->ledger, &policy, &lease, &fixture->error),
                     STATUS_OK);
    assert_int_equal(lease.first_seq, 1);
    assert_int_equal(lease.count, 900);

    reopen(fixture);
    struct policy back = policy_of(fixture, 77);
    assert_string_equal(back.name, "Seoul 쿠폰 ☕");
    assert_int_equal(back.discount_type, DISCOUNT_PERCENT);
    assert_int_equal(back.discount_value, 15);
    assert_int_equal(back.total, 1000);
    assert_int_equal(back.per_user_limit, 3);
    assert_int_equal(back.coupon_valid_days, 30);
    assert_int_equal(back.opens_at_ms, NOW);
    assert_int_equal(back.closes_at_ms, NOW + DAY_MS);
    assert_int_equal(back.reserve, 100);
    assert_int_equal(back.created_at_ms, NOW - 1);
    assert_int_equal(back.unleased, 100);
    assert_int_equal(back.next_seq, 901);
    assert_false(back.paused);
    assert_int_equal(back.closed_at_ms, 0);
}

static void test_ledger__policy_ids(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy taken = {
        .id = 5, .name = "x", .discount_value = 1, .total = 1, .per_user_limit = 1};

    assert_int_equal(ledger_policy_create(fixture->ledger, &taken, &lease, &fixture->error),
                     STATUS_OK);
    assert_int_equal(create(fixture, 1, &lease).id, 6);
    struct policy again = {
        .id = 5, .name = "y", .discount_value = 2, .total = 9, .per_user_limit = 1};
    assert_int_equal(ledger_policy_create(fixture->ledger, &again, &lease, &fixture->error),
                     STATUS_CONFLICT);
    assert_string_equal(policy_of(fixture, 5).name, "x");
    struct policy last = {
        .id = POLICY_ID_MAX, .name = "z", .discount_value = 1, .total = 1, .per_user_limit = 1};
    assert_int_equal(ledger_policy_create(fixture->ledger, &last, &lease, &fixture->error),
                     STATUS_OK);
    assert_int_equal(create(fixture, 1, &lease).id, 1); /* the lowest one that is free */
    assert_int_equal(create(fixture, 1, &lease).id, 2);
    struct policy missing;
    assert_int_equal(ledger_policy_get(fixture->ledger, 99, &missing, &fixture->error),
                     STATUS_NOT_FOUND);
}

static void test_ledger__policies_by_page(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policies[2];
    size_t count = 0;

    for (int i = 0; i < 3; i++)
        create(fixture, 1, &lease);
    assert_int_equal(ledger_policy_list(fixture->ledger, 0, policies, 2, &count, &fixture->error),
                     STATUS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(policies[1].id, 2);
    assert_int_equal(ledger_policy_list(fixture->ledger, 2, policies, 2, &count, &fixture->error),
                     STATUS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(policies[0].id, 3);
}

static void test_ledger__total_and_leases(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    int64_t id = policy.id;

    assert_int_equal(
        change(fixture, id, (struct policy_change){.sets_total = true, .total = 15}, NULL, 0),
        STATUS_OK);
    assert_int_equal(policy_of(fixture, id).unleased, 5);
    assert_int_equal(
        change(fixture, id, (struct policy_change){.sets_total = true, .total = 9}, NULL, 0),
        STATUS_CONFLICT);
    assert_int_equal(policy_of(fixture, id).total, 15);

    struct lease_shrunk back = {.lease_id = lease.id, .count = 4};
    for (int i = 0; i < 2; i++) /* giving the same units back twice counts once */
        assert_int_equal(change(fixture, id, (struct policy_change){0}, &back, 1), STATUS_OK);
    struct lease_shrunk stale = {.lease_id = lease.id, .count = 7};
    assert_int_equal(change(fixture, id, (struct policy_change){0}, &stale, 1), STATUS_OK);
    assert_int_equal(policy_of(fixture, id).unleased, 11);
    assert_int_equal(policy_of(fixture, id).next_seq, 5);
    assert_int_equal(
        change(fixture, id, (struct policy_change){.sets_total = true, .total = 9}, NULL, 0),
        STATUS_OK);
    assert_int_equal(ledger_lease_take(fixture->ledger, id, 2, &lease, &policy, &fixture->error),
                     STATUS_OK);
    assert_int_equal(lease.first_seq, 5);
    assert_int_equal(lease.count, 3);
    assert_int_equal(ledger_lease_take(fixture->ledger, id, 2, &lease, &policy, &fixture->error),
                     STATUS_OK);
    assert_int_equal(lease.count, 0);
    policy_of(fixture, id);
}

static void test_ledger__closed_policy_stays_closed(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);

    assert_int_equal(change(fixture, policy.id,
                            (struct policy_change){.sets_paused = true, .paused = true}, NULL, 0),
                     STATUS_OK);
    assert_true(policy_of(fixture, policy.id).paused);
    assert_int_equal(change(fixture, policy.id, (struct policy_change){.closes = true}, NULL, 0),
                     STATUS_OK);
    assert_int_equal(change(fixture, policy.id, (struct policy_change){.closes = true}, NULL, 0),
                     STATUS_OK);
    assert_int_equal(policy_of(fixture, policy.id).closed_at_ms, NOW);
    assert_int_equal(change(fixture, policy.id,
                            (struct policy_change){.sets_total = true, .total = 20}, NULL, 0),
                     STATUS_CONFLICT);
    assert_int_equal(
        ledger_lease_take(fixture->ledger, policy.id, 0, &lease, &policy, &fixture->error),
        STATUS_OK);
    assert_int_equal(lease.count, 0);
}

static void test_ledger__window_must_make_sense(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct policy_change window = {.sets_opens_at = true,
                                   .opens_at_ms = NOW + 10,
                                   .sets_closes_at = true,
                                   .closes_at_ms = NOW + 10};
    assert_int_equal(change(fixture, policy.id, window, NULL, 0), STATUS_INVALID);
    assert_int_equal(policy_of(fixture, policy.id).opens_at_ms, 0);
    window.closes_at_ms++;
    assert_int_equal(change(fixture, policy.id, window, NULL, 0), STATUS_OK);
}

/* --- issuing --- */

static void test_ledger__issues_and_remembers(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct claim claims[2] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "b", 1)};

    assert_int_equal(issue(fixture, claims, 2), COUPON_ISSUED);
    assert_int_equal(ledger_pending(fixture->ledger), 0);
    reopen(fixture);
    struct coupon coupon = coupon_of(fixture, policy.id, 2);
    assert_true(user_id_equal(&coupon.claim.user, &claims[1].user));
    assert_memory_equal(&coupon.claim.request_id, &claims[1].request_id, 16);
    assert_int_equal(coupon.claim.nth, 1);
    assert_int_equal(coupon.claim.requested_at_ms, NOW);
    assert_int_equal(coupon.state, COUPON_ISSUED);
    assert_int_equal(coupon.expires_at_ms, 0);
    policy_of(fixture, policy.id);
}

static void test_ledger__same_claim_twice_is_one_row(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);

    assert_int_equal(issue_one(fixture, &lease, 1, "a", 1), COUPON_ISSUED);
    assert_int_equal(issue_one(fixture, &lease, 1, "a", 1), COUPON_ISSUED);
    struct coupon cancelled;
    assert_int_equal(ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW, &cancelled, &policy,
                                          &fixture->error),
                     STATUS_OK);
    /* A late repeat does not bring a cancelled coupon back. */
    assert_int_equal(issue_one(fixture, &lease, 1, "a", 1), COUPON_CANCELLED);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
}

/* Traps 17 and 22: another user with the same seq is refused, its neighbours are not. */
static void test_ledger__colliding_seq_is_refused_alone(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 600, &lease);
    struct claim claims[500];

    issue_one(fixture, &lease, 250, "first", 1);
    for (int i = 0; i < 500; i++) {
        char user[16];
        snprintf(user, sizeof(user), "user-%d", i + 1);
        claims[i] = claim_of(&lease, i + 1, user, 1);
    }
    issue(fixture, claims, 500);
    for (int i = 0; i < 500; i++)
        assert_int_equal(fixture->states[1 + i], i == 249 ? COUPON_VOID : COUPON_ISSUED);
    struct coupon kept = coupon_of(fixture, policy.id, 250);
    assert_true(span_equal(user_id_span(&kept.claim.user), SPAN("first")));
    assert_int_equal(kept.state, COUPON_ISSUED);
    policy_of(fixture, policy.id);
}

/* Trap 31: the user's slot is taken by another claim. */
static void test_ledger__second_win_is_merged(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);

    issue_one(fixture, &lease, 1, "a", 1);
    assert_int_equal(issue_one(fixture, &lease, 2, "a", 1), COUPON_MERGED);
    assert_int_equal(coupon_of(fixture, policy.id, 2).merged_into_seq, 1);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
    assert_int_equal(issue_one(fixture, &lease, 3, "a", 2), COUPON_ISSUED);
}

static void test_ledger__blocked_user_gets_void(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct user_id bad = user_id_of(SPAN("bad"));
    struct claim claims[3] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "bad", 1),
                              claim_of(&lease, 3, "b", 1)};

    assert_int_equal(ledger_user_block(fixture->ledger, &bad, true, NOW, &fixture->error),
                     STATUS_OK);
    assert_int_equal(issue(fixture, claims, 3), COUPON_ISSUED);
    assert_int_equal(fixture->states[0], COUPON_ISSUED);
    assert_int_equal(fixture->states[1], COUPON_VOID);
    assert_true(strlen(coupon_of(fixture, policy.id, 2).reason) > 0);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
    assert_int_equal(ledger_user_block(fixture->ledger, &bad, false, NOW, &fixture->error),
                     STATUS_OK);
    assert_int_equal(issue_one(fixture, &lease, 4, "bad", 1), COUPON_ISSUED);
}

static void test_ledger__late_claim_of_a_closed_lease(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct lease fresh;
    struct policy policy = create(fixture, 3, &lease);

    issue_one(fixture, &lease, 1, "a", 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ledger_lease_close(fixture->ledger, lease.id, &fixture->error), STATUS_OK);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 2);
    assert_int_equal(issue_one(fixture, &lease, 2, "b", 1), COUPON_ISSUED);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
    assert_int_equal(
        ledger_lease_take(fixture->ledger, policy.id, 0, &fresh, &policy, &fixture->error),
        STATUS_OK);
    assert_int_equal(fresh.first_seq, 4);
    assert_int_equal(issue_one(fixture, &lease, 3, "c", 1), COUPON_VOID);
    assert_int_equal(issue_one(fixture, &fresh, 4, "d", 1), COUPON_ISSUED);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 0);
}

static void test_ledger__expiry_from_valid_days_or_the_window(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy days = {.name = "days",
                          .discount_value = 1,
                          .total = 5,
                          .per_user_limit = 1,
                          .coupon_valid_days = 2,
                          .closes_at_ms = NOW + DAY_MS};
    assert_int_equal(ledger_policy_create(fixture->ledger, &days, &lease, &fixture->error),
                     STATUS_OK);
    issue_one(fixture, &lease, 1, "a", 1);
    struct coupon coupon = coupon_of(fixture, days.id, 1);
    assert_int_equal(coupon.expires_at_ms, NOW + 2 * DAY_MS);

    struct policy window = {.name = "window",
                            .discount_value = 1,
                            .total = 5,
                            .per_user_limit = 1,
                            .closes_at_ms = NOW + DAY_MS};
    assert_int_equal(ledger_policy_create(fixture->ledger, &window, &lease, &fixture->error),
                     STATUS_OK);
    issue_one(fixture, &lease, 1, "a", 1);
    coupon = coupon_of(fixture, window.id, 1);
    assert_int_equal(coupon.expires_at_ms, NOW + DAY_MS);
    assert_int_equal(coupon_state_at(coupon.state, coupon.expires_at_ms, NOW + DAY_MS - 1),
                     COUPON_ISSUED);
    assert_int_equal(coupon_state_at(coupon.state, coupon.expires_at_ms, NOW + DAY_MS),
                     COUPON_EXPIRED);
}

/* --- coupons --- */

static void test_ledger__redeem_once_per_order(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct user_id order = user_id_of(SPAN("order-1"));
    struct user_id other = user_id_of(SPAN("order-2"));
    struct coupon coupon;

    issue_one(fixture, &lease, 1, "a", 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ledger_coupon_redeem(fixture->ledger, policy.id, 1, &order, NOW + i,
                                              &coupon, &fixture->error),
                         STATUS_OK);
        assert_int_equal(coupon.state, COUPON_REDEEMED);
        assert_int_equal(coupon.redeemed_at_ms, NOW);
    }
    assert_int_equal(
        ledger_coupon_redeem(fixture->ledger, policy.id, 1, &other, NOW, &coupon, &fixture->error),
        STATUS_CONFLICT);
    assert_int_equal(
        ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW, &coupon, &policy, &fixture->error),
        STATUS_CONFLICT);
    assert_int_equal(
        ledger_coupon_redeem(fixture->ledger, policy.id, 9, &order, NOW, &coupon, &fixture->error),
        STATUS_NOT_FOUND);
    coupon = coupon_of(fixture, policy.id, 1);
    assert_true(user_id_equal(&coupon.order_id, &order));
}

static void test_ledger__cancel_returns_the_unit_once(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct user_id none = {0};
    struct coupon coupon;

    issue_one(fixture, &lease, 1, "a", 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW + i, &coupon,
                                              &policy, &fixture->error),
                         STATUS_OK);
    assert_int_equal(coupon.cancelled_at_ms, NOW);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
    assert_int_equal(
        ledger_coupon_redeem(fixture->ledger, policy.id, 1, &none, NOW, &coupon, &fixture->error),
        STATUS_CONFLICT);
    /* The freed slot can be taken again. */
    assert_int_equal(issue_one(fixture, &lease, 2, "a", 1), COUPON_ISSUED);
}

static void test_ledger__expired_coupon_keeps_its_unit(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct user_id none = {0};
    struct coupon coupon;
    struct policy policy = {.name = "short",
                            .discount_value = 1,
                            .total = 2,
                            .per_user_limit = 1,
                            .closes_at_ms = NOW + 10};
    assert_int_equal(ledger_policy_create(fixture->ledger, &policy, &lease, &fixture->error),
                     STATUS_OK);
    issue_one(fixture, &lease, 1, "a", 1);
    assert_int_equal(ledger_coupon_redeem(fixture->ledger, policy.id, 1, &none, NOW + 10, &coupon,
                                          &fixture->error),
                     STATUS_CONFLICT);
    assert_int_equal(coupon.state, COUPON_EXPIRED);
    assert_int_equal(ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW + 10, &coupon, &policy,
                                          &fixture->error),
                     STATUS_CONFLICT);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 0);
}

static void test_ledger__lists_of_a_user(void **state)
{
    struct fixture *fixture = *state;
    struct lease first;
    struct lease second;
    struct policy one = create(fixture, 10, &first);
    struct policy two = create(fixture, 10, &second);
    struct user_id user = user_id_of(SPAN("a"));
    struct coupon coupons[8];
    size_t count = 0;

    issue_one(fixture, &first, 1, "a", 1);
    issue_one(fixture, &first, 2, "b", 1);
    issue_one(fixture, &first, 3, "a", 2);
    issue_one(fixture, &second, 1, "a", 1);
    assert_int_equal(
        ledger_coupons_of_user(fixture->ledger, &user, 0, 0, coupons, 2, &count, &fixture->error),
        STATUS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(coupons[1].claim.seq, 3);
    assert_int_equal(ledger_coupons_of_user(fixture->ledger, &user, one.id, 3, coupons, 2, &count,
                                            &fixture->error),
                     STATUS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(coupons[0].claim.policy_id, two.id);
    assert_int_equal(ledger_coupons_of_claimant(fixture->ledger, one.id, &user, coupons, 8, &count,
                                                &fixture->error),
                     STATUS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(coupons[0].claim.seq, 3);
}

/* --- restoring --- */

struct visited {
    int policies, claims, keys, leases, blocked;
    int64_t lease_rows, last_seq;
};

static enum status visit_policy(void *context, const struct policy *policy, struct error *error)
{
    (void)policy;
    (void)error;
    ((struct visited *)context)->policies++;
    return STATUS_OK;
}

static enum status visit_claim(void *context, const struct claim *claim, enum coupon_state state,
                               struct error *error)
{
    (void)claim;
    (void)state;
    (void)error;
    ((struct visited *)context)->claims++;
    return STATUS_OK;
}

static enum status visit_key(void *context, const struct key_binding *binding, struct error *error)
{
    (void)error;
    assert_int_equal(binding->seq, 2);
    ((struct visited *)context)->keys++;
    return STATUS_OK;
}

static enum status visit_lease(void *context, const struct lease *lease, int64_t row_count,
                               int64_t last_seq, struct error *error)
{
    struct visited *visited = context;
    (void)error;
    (void)lease;
    visited->leases++;
    visited->lease_rows = row_count;
    visited->last_seq = last_seq;
    return STATUS_OK;
}

static enum status visit_blocked(void *context, const struct user_id *user, struct error *error)
{
    (void)error;
    assert_true(span_equal(user_id_span(user), SPAN("bad")));
    ((struct visited *)context)->blocked++;
    return STATUS_OK;
}

static void test_ledger__visit_shows_everything(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct user_id bad = user_id_of(SPAN("bad"));
    struct key_binding binding = {.policy_id = policy.id, .seq = 2, .request_id = {{0x81, 1}}};
    struct visited visited = {0};
    struct ledger_visitor visitor = {.policy = visit_policy,
                                     .claim = visit_claim,
                                     .key = visit_key,
                                     .lease = visit_lease,
                                     .blocked = visit_blocked,
                                     .context = &visited};

    issue_one(fixture, &lease, 1, "a", 1);
    issue_one(fixture, &lease, 2, "b", 1);
    for (int i = 0; i < 2; i++)
        wait_for(fixture, ledger_issue(fixture->ledger, NULL, 0, &binding, 1));
    assert_int_equal(ledger_user_block(fixture->ledger, &bad, true, NOW, &fixture->error),
                     STATUS_OK);
    reopen(fixture);
    assert_int_equal(ledger_visit(fixture->ledger, &visitor, &fixture->error), STATUS_OK);
    assert_int_equal(visited.policies, 1);
    assert_int_equal(visited.claims, 2);
    assert_int_equal(visited.keys, 1);
    assert_int_equal(visited.leases, 1);
    assert_int_equal(visited.lease_rows, 2);
    assert_int_equal(visited.last_seq, 2);
    assert_int_equal(visited.blocked, 1);
}

static void test_ledger__secret_is_made_once(void **state)
{
    struct fixture *fixture = *state;
    uint8_t first[16];
    uint8_t second[16];

    assert_int_equal(ledger_secret(fixture->ledger, "key", (const uint8_t *)"0123456789abcdef",
                                   first, 16, &fixture->error),
                     STATUS_OK);
    reopen(fixture);
    assert_int_equal(ledger_secret(fixture->ledger, "key", (const uint8_t *)"fedcba9876543210",
                                   second, 16, &fixture->error),
                     STATUS_OK);
    assert_memory_equal(first, "0123456789abcdef", 16);
    assert_memory_equal(second, first, 16);
}

static void test_ledger__second_owner_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_options options = options_of(fixture);
    struct ledger *second = NULL;

    assert_int_equal(ledger_open(&second, &options, &fixture->error), STATUS_CONFLICT);
    assert_null(second);
    assert_non_null(strstr(fixture->error.text, "process"));
}

/* --- many at once --- */

#define WRITERS 6
#define WRITES  20

struct writer_thread {
    struct fixture *fixture;
    const struct lease *lease;
    int number;
};

static void *write_many(void *context)
{
    struct writer_thread *writer = context;
    struct fixture *fixture = writer->fixture;

    for (int i = 0; i < WRITES; i++) {
        struct coupon coupon;
        struct policy policy;
        struct error error;
        char user[16];
        int64_t seq = writer->number * WRITES + i + 1;

        snprintf(user, sizeof(user), "u%d", (int)seq);
        struct claim claim = claim_of(writer->lease, seq, user, 1);
        wait_for(fixture, ledger_issue(fixture->ledger, &claim, 1, NULL, 0));
        ensure(ledger_coupon_get(fixture->ledger, claim.policy_id, seq, &coupon, &error) ==
               STATUS_OK);
        if (i % 2 == 0)
            ensure(ledger_coupon_cancel(fixture->ledger, claim.policy_id, seq, NOW, &coupon,
                                        &policy, &error) == STATUS_OK);
    }
    return NULL;
}

static void test_ledger__threads_write_and_stock_is_conserved(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, WRITERS * WRITES, &lease);
    pthread_t threads[WRITERS];
    struct writer_thread writers[WRITERS];

    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer_thread){.fixture = fixture, .lease = &lease, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &writers[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(policy_of(fixture, policy.id).unleased, WRITERS * WRITES / 2);
    assert_int_equal(ledger_stats(fixture->ledger)->claims_issued, WRITERS * WRITES);
}

int ledger_suite_run(void)
{
#define LEDGER_TEST(name) cmocka_unit_test_setup_teardown(test_ledger__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LEDGER_TEST(policy_comes_back_as_it_went_in),
        LEDGER_TEST(policy_ids),
        LEDGER_TEST(policies_by_page),
        LEDGER_TEST(total_and_leases),
        LEDGER_TEST(closed_policy_stays_closed),
        LEDGER_TEST(window_must_make_sense),
        LEDGER_TEST(issues_and_remembers),
        LEDGER_TEST(same_claim_twice_is_one_row),
        LEDGER_TEST(colliding_seq_is_refused_alone),
        LEDGER_TEST(second_win_is_merged),
        LEDGER_TEST(blocked_user_gets_void),
        LEDGER_TEST(late_claim_of_a_closed_lease),
        LEDGER_TEST(expiry_from_valid_days_or_the_window),
        LEDGER_TEST(redeem_once_per_order),
        LEDGER_TEST(cancel_returns_the_unit_once),
        LEDGER_TEST(expired_coupon_keeps_its_unit),
        LEDGER_TEST(lists_of_a_user),
        LEDGER_TEST(visit_shows_everything),
        LEDGER_TEST(secret_is_made_once),
        LEDGER_TEST(second_owner_is_refused),
        LEDGER_TEST(threads_write_and_stock_is_conserved),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
