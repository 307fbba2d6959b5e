/* ledger_suite.c: policies, coupons and restoring: the ledger's contract as tests. */
#include "ledger_fixture.h"

#include <unistd.h>

#include "base/clock.h"

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

    assert_int_equal(change(fixture, id, POLICY_CHANGE(total, 15), NULL, 0), STATUS_OK);
    assert_int_equal(policy_of(fixture, id).unleased, 5);
    assert_int_equal(change(fixture, id, POLICY_CHANGE(total, 9), NULL, 0), STATUS_CONFLICT);
    assert_int_equal(policy_of(fixture, id).total, 15);

    struct lease_shrunk back = {.lease_id = lease.id, .count = 4};
    for (int i = 0; i < 2; i++) /* giving the same units back twice counts once */
        assert_int_equal(change(fixture, id, (struct policy_change){0}, &back, 1), STATUS_OK);
    struct lease_shrunk stale = {.lease_id = lease.id, .count = 7};
    assert_int_equal(change(fixture, id, (struct policy_change){0}, &stale, 1), STATUS_OK);
    assert_int_equal(policy_of(fixture, id).unleased, 11);
    assert_int_equal(policy_of(fixture, id).next_seq, 5);
    assert_int_equal(change(fixture, id, POLICY_CHANGE(total, 9), NULL, 0), STATUS_OK);
    assert_int_equal(
        ledger_lease_take(fixture->ledger, id, LEDGER_NO_TERM, 2, &lease, &policy, &fixture->error),
        STATUS_OK);
    assert_int_equal(lease.first_seq, 5);
    assert_int_equal(lease.count, 3);
    assert_int_equal(
        ledger_lease_take(fixture->ledger, id, LEDGER_NO_TERM, 2, &lease, &policy, &fixture->error),
        STATUS_OK);
    assert_int_equal(lease.count, 0);
    policy_of(fixture, id);
}

static void test_ledger__closed_policy_stays_closed(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);

    assert_int_equal(change(fixture, policy.id, POLICY_CHANGE(paused, true), NULL, 0), STATUS_OK);
    assert_true(policy_of(fixture, policy.id).paused);
    assert_int_equal(change(fixture, policy.id, (struct policy_change){.closes = true}, NULL, 0),
                     STATUS_OK);
    assert_int_equal(change(fixture, policy.id, (struct policy_change){.closes = true}, NULL, 0),
                     STATUS_OK);
    assert_int_equal(policy_of(fixture, policy.id).closed_at_ms, NOW);
    assert_int_equal(change(fixture, policy.id, POLICY_CHANGE(total, 20), NULL, 0),
                     STATUS_CONFLICT);
    assert_int_equal(ledger_lease_take(fixture->ledger, policy.id, LEDGER_NO_TERM, 0, &lease,
                                       &policy, &fixture->error),
                     STATUS_OK);
    assert_int_equal(lease.count, 0);
}

static void test_ledger__window_must_make_sense(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct policy_change window = {
        .sets = 1U << POLICY_COLUMN_opens_at | 1U << POLICY_COLUMN_closes_at,
        .to = {[POLICY_COLUMN_opens_at] = NOW + 10, [POLICY_COLUMN_closes_at] = NOW + 10}};
    assert_int_equal(change(fixture, policy.id, window, NULL, 0), STATUS_INVALID);
    assert_int_equal(policy_of(fixture, policy.id).opens_at_ms, 0);
    window.to[POLICY_COLUMN_closes_at]++;
    assert_int_equal(change(fixture, policy.id, window, NULL, 0), STATUS_OK);
}

/* --- coupons --- */

static void test_ledger__redeem_once_per_order(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct id order = id_of(SPAN("order-1"));
    struct id other = id_of(SPAN("order-2"));
    struct coupon coupon;

    issue_one(fixture, &lease, 1, "a", 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ledger_coupon_redeem(fixture->ledger, policy.id, 1, &order, NOW + i, NULL,
                                              &coupon, &fixture->error),
                         STATUS_OK);
        assert_int_equal(coupon.state, COUPON_REDEEMED);
        assert_int_equal(coupon.redeemed_at_ms, NOW);
    }
    assert_int_equal(ledger_coupon_redeem(fixture->ledger, policy.id, 1, &other, NOW, NULL, &coupon,
                                          &fixture->error),
                     STATUS_CONFLICT);
    assert_int_equal(ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW, NULL, &coupon,
                                          &policy, &fixture->error),
                     STATUS_CONFLICT);
    assert_int_equal(ledger_coupon_redeem(fixture->ledger, policy.id, 9, &order, NOW, NULL, &coupon,
                                          &fixture->error),
                     STATUS_NOT_FOUND);
    coupon = coupon_of(fixture, policy.id, 1);
    assert_true(id_equal(&coupon.order_id, &order));
}

static void test_ledger__cancel_returns_the_unit_once(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct id none = {0};
    struct coupon coupon;

    issue_one(fixture, &lease, 1, "a", 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW + i, NULL, &coupon,
                                              &policy, &fixture->error),
                         STATUS_OK);
    assert_int_equal(coupon.cancelled_at_ms, NOW);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
    assert_int_equal(ledger_coupon_redeem(fixture->ledger, policy.id, 1, &none, NOW, NULL, &coupon,
                                          &fixture->error),
                     STATUS_CONFLICT);
    /* The freed slot can be taken again. */
    assert_int_equal(issue_one(fixture, &lease, 2, "a", 1), COUPON_ISSUED);
}

static void test_ledger__expired_coupon_keeps_its_unit(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct id none = {0};
    struct coupon coupon;
    struct policy policy = {.name = "short",
                            .discount_value = 1,
                            .total = 2,
                            .per_user_limit = 1,
                            .coupon_expires_at_ms = NOW + 10};
    assert_int_equal(ledger_policy_create(fixture->ledger, &policy, &lease, &fixture->error),
                     STATUS_OK);
    issue_one(fixture, &lease, 1, "a", 1);
    assert_int_equal(ledger_coupon_redeem(fixture->ledger, policy.id, 1, &none, NOW + 10, NULL,
                                          &coupon, &fixture->error),
                     STATUS_CONFLICT);
    assert_int_equal(coupon.state, COUPON_EXPIRED);
    assert_int_equal(ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW + 10, NULL, &coupon,
                                          &policy, &fixture->error),
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
    struct id user = id_of(SPAN("a"));
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

static void test_ledger__lists_of_a_policy(void **state)
{
    struct fixture *fixture = *state;
    struct lease first;
    struct lease second;
    struct policy one = create(fixture, 10, &first);
    struct policy two = create(fixture, 10, &second);
    struct coupon coupons[8];
    size_t count = 0;

    issue_one(fixture, &first, 1, "c", 1);
    issue_one(fixture, &first, 2, "b", 1);
    issue_one(fixture, &second, 1, "a", 1);
    issue_one(fixture, &first, 3, "a", 1);
    assert_int_equal(
        ledger_coupons_of_policy(fixture->ledger, one.id, 0, coupons, 2, &count, &fixture->error),
        STATUS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(coupons[0].claim.seq, 1);
    assert_true(span_equal(id_span(&coupons[1].claim.user), SPAN("b")));
    assert_int_equal(
        ledger_coupons_of_policy(fixture->ledger, one.id, 2, coupons, 2, &count, &fixture->error),
        STATUS_OK);
    assert_int_equal(count, 1);
    assert_int_equal(coupons[0].claim.seq, 3);
    assert_int_equal(coupons[0].claim.policy_id, one.id);
    assert_int_equal(
        ledger_coupons_of_policy(fixture->ledger, two.id, 1, coupons, 2, &count, &fixture->error),
        STATUS_OK);
    assert_int_equal(count, 0);
}

/* --- restoring --- */

struct visited {
    int policies, claims, keys, leases, blocked;
    int64_t lowest_id;
};

static enum status visit_policy(void *context, const struct policy *policy, struct error *error)
{
    struct visited *visited = context;
    (void)error;
    assert_true(policy->id < visited->lowest_id); /* the newest first */
    visited->lowest_id = policy->id;
    visited->policies++;
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

static enum status visit_lease(void *context, const struct lease *lease, struct error *error)
{
    (void)error;
    assert_true(lease->open);
    ((struct visited *)context)->leases++;
    return STATUS_OK;
}

static enum status visit_blocked(void *context, const struct id *user, struct error *error)
{
    (void)error;
    assert_true(span_equal(id_span(user), SPAN("bad")));
    ((struct visited *)context)->blocked++;
    return STATUS_OK;
}

/* One stretch; its claims are those of its policies. */
static void visit_below(struct fixture *fixture, int64_t *below_id, struct visited *visited)
{
    struct ledger_visitor visitor = {.policy = visit_policy,
                                     .claim = visit_claim,
                                     .key = visit_key,
                                     .lease = visit_lease,
                                     .blocked = visit_blocked,
                                     .context = visited};

    *visited = (struct visited){.lowest_id = *below_id};
    assert_int_equal(ledger_visit_below(fixture->ledger, below_id, &visitor, &fixture->error),
                     STATUS_OK);
}

static void test_ledger__visit_shows_everything(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct id bad = id_of(SPAN("bad"));
    struct key_binding binding = {.policy_id = policy.id, .seq = 2, .request_id = {{0x81, 1}}};
    struct visited visited = {0};
    struct ledger_visitor blocked = {.blocked = visit_blocked, .context = &visited};
    int64_t below_id = LEDGER_ABOVE_ALL;

    issue_one(fixture, &lease, 1, "a", 1);
    issue_one(fixture, &lease, 2, "b", 1);
    for (int i = 0; i < 2; i++)
        wait_for(fixture, ledger_issue(fixture->ledger, NULL, 0, &binding, 1));
    assert_int_equal(ledger_user_block(fixture->ledger, &bad, true, NOW, &fixture->error),
                     STATUS_OK);
    reopen(fixture);
    assert_int_equal(ledger_visit_blocked(fixture->ledger, &blocked, &fixture->error), STATUS_OK);
    assert_int_equal(visited.blocked, 1);
    visit_below(fixture, &below_id, &visited);
    assert_int_equal(below_id, policy.id);
    assert_int_equal(visited.policies, 1);
    assert_int_equal(visited.claims, 2);
    assert_int_equal(visited.keys, 1);
    assert_int_equal(visited.leases, 1);
    visit_below(fixture, &below_id, &visited);
    assert_int_equal(below_id, 0);
    assert_int_equal(visited.policies, 0);
}

/* A stretch ends with the policy that may have many claims: those below wait for the next. */
static void test_ledger__visit_tells_the_newest_policies_first(void **state)
{
    struct fixture *fixture = *state;
    struct lease old_lease, lease;
    struct policy old = create(fixture, 10, &old_lease);
    struct policy large = create(fixture, 1000000, &lease);
    struct policy newest = create(fixture, 10, &lease);
    struct visited visited;
    int64_t below_id = LEDGER_ABOVE_ALL;

    issue_one(fixture, &old_lease, 1, "a", 1);
    issue_one(fixture, &lease, 1, "a", 1);
    visit_below(fixture, &below_id, &visited);
    assert_int_equal(below_id, large.id);
    assert_true(newest.id > large.id);
    assert_int_equal(visited.policies, 2);
    assert_int_equal(visited.leases, 2);
    assert_int_equal(visited.claims, 1);
    visit_below(fixture, &below_id, &visited);
    assert_int_equal(below_id, old.id);
    assert_int_equal(visited.policies, 1);
    assert_int_equal(visited.leases, 1);
    assert_int_equal(visited.claims, 1);
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

/* --- whose it is --- */

static void test_ledger__second_owner_is_refused_and_told_who(void **state)
{
    struct fixture *fixture = *state;
    struct fixture *second = fixture_new(fixture->url, LEDGER_OWN);
    struct ledger_options options = options_of(second);

    assert_int_equal(ledger_open(&second->ledger, &options, &second->error), STATUS_CONFLICT);
    assert_null(second->ledger);
    assert_non_null(strstr(second->error.text, "process"));
    assert_non_null(strstr(second->error.text, "stop")); /* what to do about it */
    ledger_close(fixture->ledger);
    fixture->ledger = NULL;
    open_ledger(second);
    struct lease lease;
    create(second, 1, &lease);
    ledger_close(second->ledger);
    fixture_free(second);
}

/* What cannot be shared says what can. */
static void test_ledger__is_shared_or_names_the_way(void **state)
{
    struct fixture *fixture = *state;
    struct fixture *second = fixture_new(fixture->url, LEDGER_SHARE);
    struct ledger_options options = options_of(second);
    enum status status = ledger_open(&second->ledger, &options, &second->error);

    assert_int_equal(status, ledger_suite_is_shared ? STATUS_OK : STATUS_CONFLICT);
    if (status != STATUS_OK) {
        assert_non_null(strstr(second->error.text, "postgres://"));
        assert_non_null(strstr(second->error.text, "mysql://"));
    }
    ledger_close(second->ledger);
    fixture_free(second);
}

static int run_policies_and_coupons(void)
{
#define LEDGER_TEST(name) cmocka_unit_test_setup_teardown(test_ledger__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LEDGER_TEST(policy_comes_back_as_it_went_in),
        LEDGER_TEST(policy_ids),
        LEDGER_TEST(policies_by_page),
        LEDGER_TEST(total_and_leases),
        LEDGER_TEST(closed_policy_stays_closed),
        LEDGER_TEST(window_must_make_sense),
        LEDGER_TEST(redeem_once_per_order),
        LEDGER_TEST(cancel_returns_the_unit_once),
        LEDGER_TEST(expired_coupon_keeps_its_unit),
        LEDGER_TEST(lists_of_a_user),
        LEDGER_TEST(lists_of_a_policy),
        LEDGER_TEST(visit_shows_everything),
        LEDGER_TEST(visit_tells_the_newest_policies_first),
        LEDGER_TEST(secret_is_made_once),
        LEDGER_TEST(second_owner_is_refused_and_told_who),
        cmocka_unit_test_setup_teardown(test_ledger__is_shared_or_names_the_way, set_up_shared,
                                        tear_down),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}

int ledger_suite_run(void)
{
    int failed = run_policies_and_coupons() + ledger_suite_run_terms() +
                 ledger_suite_run_issuing() + ledger_suite_run_crowds() +
                 ledger_suite_run_events() + ledger_suite_run_sales();
    if (ledger_suite_is_shared)
        failed += ledger_suite_run_shared() + ledger_suite_run_locks();
    return failed == 0 ? 0 : 1;
}
