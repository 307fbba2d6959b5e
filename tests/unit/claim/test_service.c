/* test_service.c: stock between gate and ledger: totals, closing, reserve, cancel, and restarts. */
#include "shop.h"

#include "gate/gate.h"

static void claim_users(struct shop *shop, int64_t policy, const char *prefix, int count)
{
    for (int i = 0; i < count; i++) {
        char user[32];
        snprintf(user, sizeof(user), "%s-%d", prefix, i);
        assert_int_equal(shop_claim(shop, policy, user, 0).verdict, VERDICT_WON);
    }
}

/* What must hold after every change, before and after a restart. */
static void check_numbers(struct shop *shop, int64_t policy, int64_t total, int64_t issued)
{
    for (int i = 0; i < 2; i++) {
        struct policy_view view = shop_show(shop, policy);
        assert_int_equal(view.policy.total, total);
        assert_int_equal(view.numbers.total, total);
        assert_int_equal(view.numbers.issued, issued);
        assert_int_equal(view.numbers.pending, 0);
        assert_int_equal(view.numbers.remaining, total - issued);
        assert_int_equal(shop_active(shop, policy), issued);
        assert_int_equal(shop_imbalance(shop, policy), 0);
        if (i == 0)
            shop_restart(shop);
    }
}

/* --- total --- */

static void test_service__lower_total(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 10, 1);

    claim_users(shop, policy, "early", 3);
    assert_int_equal(shop_set_total(shop, policy, 2), STATUS_CONFLICT);
    check_numbers(shop, policy, 10, 3);
    assert_int_equal(shop_set_total(shop, policy, 5), STATUS_OK);
    check_numbers(shop, policy, 5, 3);
    assert_int_equal(shop_claim(shop, policy, "d", 0).seq, 4);
    assert_int_equal(shop_claim(shop, policy, "e", 0).seq, 5);
    assert_int_equal(shop_claim(shop, policy, "f", 0).verdict, VERDICT_SOLD_OUT);
    check_numbers(shop, policy, 5, 5);
    assert_int_equal(shop_show(shop, policy).numbers.state, POLICY_SOLD_OUT);
}

/* Seqs that were recalled were never given, so the line stays dense. */
static void test_service__lower_and_raise_keeps_the_line_dense(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 10, 1);

    claim_users(shop, policy, "early", 2);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(shop_set_total(shop, policy, 2 + i), STATUS_OK);
        assert_int_equal(shop_set_total(shop, policy, 20), STATUS_OK);
        check_numbers(shop, policy, 20, 2 + i);
        char user[] = {(char)('a' + i), '\0'};
        assert_int_equal(shop_claim(shop, policy, user, 0).seq, 3 + i);
    }
    check_numbers(shop, policy, 20, 7);
}

static void test_service__raise_total_after_sell_out(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 1, 1);

    claim_users(shop, policy, "early", 1);
    assert_int_equal(shop_claim(shop, policy, "b", 0).verdict, VERDICT_SOLD_OUT);
    int64_t sold_out_at_ms = shop_show(shop, policy).numbers.sold_out_at_ms;
    assert_true(sold_out_at_ms > 0);
    for (int i = 0; i < 3; i++) {
        shop_restart(shop);
        assert_int_equal(shop_show(shop, policy).numbers.sold_out_at_ms, sold_out_at_ms);
    }
    assert_int_equal(shop_set_total(shop, policy, 2), STATUS_OK);
    assert_int_equal(shop_show(shop, policy).numbers.sold_out_at_ms, 0);
    assert_int_equal(shop_claim(shop, policy, "b", 0).seq, 2);
    check_numbers(shop, policy, 2, 2);
}

static void test_service__lower_total_takes_unleased_first(void **state)
{
    struct shop *shop = *state;
    int64_t policy =
        shop_create_with(shop, (struct policy){.total = 10, .per_user_limit = 1, .reserve = 4});

    claim_users(shop, policy, "early", 5);
    assert_int_equal(shop_set_total(shop, policy, 6), STATUS_OK);
    assert_int_equal(shop_show(shop, policy).policy.unleased, 0);
    check_numbers(shop, policy, 6, 5);
    claim_users(shop, policy, "late", 1);
    assert_int_equal(shop_claim(shop, policy, "none", 0).verdict, VERDICT_SOLD_OUT);
}

/* --- a ledger that refuses --- */

static void test_service__refused_change_loses_no_unit(void **state)
{
    struct shop *shop = *state;
    shop->options.ack_timeout_ms = 150;
    shop_restart(shop);
    int64_t policy = shop_create(shop, 3, 1);

    claim_users(shop, policy, "early", 1);
    shop_break_disk();
    assert_int_equal(shop_set_total(shop, policy, 1), STATUS_UNAVAILABLE);
    /* The units are out of the gate and not in the ledger: that is not "sold out". */
    assert_int_equal(shop_claim(shop, policy, "b", 0).verdict, VERDICT_UNAVAILABLE);
    assert_int_equal(shop_show(shop, policy).numbers.state, POLICY_OPEN);
    shop_fix_disk();
    struct wish wish;
    do
        wish = shop_claim(shop, policy, "b", 0);
    while (wish.verdict == VERDICT_UNAVAILABLE);
    assert_int_equal(wish.seq, 2); /* HELD, when an answer came too late for its ack_timeout */
    claim_users(shop, policy, "last", 1);
    assert_int_equal(shop_claim(shop, policy, "none", 0).verdict, VERDICT_SOLD_OUT);
    check_numbers(shop, policy, 3, 3);
}

static void test_service__refused_changes_do_not_pile_up(void **state)
{
    enum { POLICIES = 80 };
    struct shop *shop = *state;
    int64_t policies[POLICIES];

    for (int i = 0; i < POLICIES; i++)
        policies[i] = shop_create(shop, 3, 1);
    shop_break_disk();
    for (int i = 0; i < POLICIES; i++)
        assert_int_equal(shop_set_total(shop, policies[i], 2), STATUS_UNAVAILABLE);
    shop_fix_disk();
    for (int i = 0; i < POLICIES; i++) {
        while (shop_set_total(shop, policies[i], 2) == STATUS_UNAVAILABLE)
            shop_wait(shop);
        assert_int_equal(shop_imbalance(shop, policies[i]), 0);
    }
    claim_users(shop, policies[0], "all", 2);
    assert_int_equal(shop_claim(shop, policies[0], "none", 0).verdict, VERDICT_SOLD_OUT);
}

/* The gate has seen a later lease than the ledger knows: what it refuses goes back, and it is not
 * asked again and again without a pause. */
static void test_service__refused_lease_goes_back(void **state)
{
    struct shop *shop = *state;
    shop->options.ack_timeout_ms = 150;
    shop_restart(shop);
    int64_t policy =
        shop_create_with(shop, (struct policy){.total = 3, .per_user_limit = 1, .reserve = 2});
    struct lease stray = {.id = 1000000, .policy_id = policy, .first_seq = 1000, .count = 0};

    assert_int_equal(gate_lend(service_gate(shop->service), &stray, 0, 0, &shop->error), STATUS_OK);
    claim_users(shop, policy, "early", 1);
    assert_int_equal(shop_claim(shop, policy, "b", 0).verdict, VERDICT_UNAVAILABLE);
    while (shop_show(shop, policy).policy.unleased != 2) /* it may just be tried once more */
        shop_wait(shop);
    assert_true(shop_query(shop, "SELECT COUNT(*) FROM lease WHERE policy_id = ?", policy) < 20);
    shop_restart(shop);
    assert_int_equal(shop_imbalance(shop, policy), 0);
    claim_users(shop, policy, "late", 2);
    check_numbers(shop, policy, 3, 3);
}

/* --- closing --- */

static void test_service__close(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 10, 1);

    claim_users(shop, policy, "early", 3);
    assert_int_equal(shop_close_policy(shop, policy), STATUS_OK);
    assert_int_equal(shop_show(shop, policy).policy.unleased, 7);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(shop_claim(shop, policy, "late", 0).verdict, VERDICT_CLOSED);
        assert_int_equal(shop_claim(shop, policy, "early-1", 0).verdict, VERDICT_HELD);
        check_numbers(shop, policy, 10, 3);
    }
    assert_int_equal(shop_close_policy(shop, policy), STATUS_OK);
    assert_int_equal(shop_set_total(shop, policy, 20), STATUS_CONFLICT);
    assert_int_equal(shop_set_paused(shop, policy, true), STATUS_CONFLICT);
    check_numbers(shop, policy, 10, 3);
}

/* --- coupons --- */

static void test_service__cancel_returns_the_unit_at_the_back(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 3, 1);

    claim_users(shop, policy, "u", 3);
    assert_int_equal(shop_cancel(shop, policy, 2), STATUS_OK);
    assert_int_equal(shop_cancel(shop, policy, 2), STATUS_OK);
    check_numbers(shop, policy, 3, 2);
    struct wish wish = shop_claim(shop, policy, "u-1", 0);
    assert_int_equal(wish.verdict, VERDICT_WON);
    assert_int_equal(wish.seq, 4);
    assert_int_equal(shop_claim(shop, policy, "x", 0).verdict, VERDICT_SOLD_OUT);
    check_numbers(shop, policy, 3, 3);
}

/* The lease has holes when the process ends without writing what it gave: it is closed, the rest
 * returns, and no seq is given twice. */
static void test_service__restore_of_a_lease_with_holes(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 6, 1);

    claim_users(shop, policy, "u", 4);
    shop_stop(shop);
    sqlite3 *database = NULL;
    assert_int_equal(sqlite3_open(shop->path, &database), SQLITE_OK);
    shop_execute(database, "DELETE FROM coupon WHERE seq = 2");
    sqlite3_close(database);
    shop_start(shop);
    check_numbers(shop, policy, 6, 3);
    assert_int_equal(shop_claim(shop, policy, "u-1", 0).seq, 7);
    assert_int_equal(shop_claim(shop, policy, "u-0", 0).verdict, VERDICT_HELD);
    claim_users(shop, policy, "late", 2);
    assert_int_equal(shop_claim(shop, policy, "none", 0).verdict, VERDICT_SOLD_OUT);
    check_numbers(shop, policy, 6, 6);
}

static void test_service__redeemed_stays_redeemed(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 2, 1);
    struct id order = id_of(SPAN("order"));
    struct coupon coupon;

    claim_users(shop, policy, "u", 1);
    assert_int_equal(
        service_coupon_redeem(shop->service, policy, 1, &order, NULL, &coupon, &shop->error),
        STATUS_OK);
    for (int i = 0; i < 2; i++) {
        struct wish wish = shop_claim(shop, policy, "u-0", 0);
        assert_int_equal(wish.verdict, VERDICT_HELD);
        assert_int_equal(wish.coupon_state, COUPON_REDEEMED);
        assert_int_equal(shop_cancel(shop, policy, 1), STATUS_CONFLICT);
        shop_restart(shop);
    }
    check_numbers(shop, policy, 2, 1);
}

/* --- users --- */

static void test_service__blocked_until_unblocked(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 2, 1);
    struct id user = id_of(SPAN("bad"));

    for (int i = 0; i < 2; i++)
        assert_int_equal(service_user_block(shop->service, &user, true, &shop->error), STATUS_OK);
    assert_int_equal(shop_claim(shop, policy, "bad", 0).verdict, VERDICT_BLOCKED);
    shop_restart(shop);
    assert_int_equal(shop_claim(shop, policy, "bad", 0).verdict, VERDICT_BLOCKED);
    assert_int_equal(service_user_block(shop->service, &user, false, &shop->error), STATUS_OK);
    assert_int_equal(shop_claim(shop, policy, "bad", 0).verdict, VERDICT_WON);
    shop_restart(shop);
    assert_int_equal(shop_claim(shop, policy, "bad", 0).verdict, VERDICT_HELD);
}

struct blocker {
    struct shop *shop;
    bool blocks;
};

static void *block_or_unblock(void *context)
{
    struct blocker *blocker = context;
    struct id user = id_of(SPAN("contested"));
    struct error error;
    ensure(service_user_block(blocker->shop->service, &user, blocker->blocks, &error) == STATUS_OK);
    return NULL;
}

/* Whatever comes last in the ledger is also last in the gate. */
static void test_service__block_races_unblock(void **state)
{
    struct shop *shop = *state;
    int64_t policy = shop_create(shop, 100, 100);

    for (int i = 0; i < 50; i++) {
        struct blocker blockers[] = {{shop, true}, {shop, false}};
        pthread_t threads[2];
        for (int t = 0; t < 2; t++)
            assert_int_equal(
                pthread_create(&threads[t], NULL, block_or_unblock, &blockers[(t + i) % 2]), 0);
        for (int t = 0; t < 2; t++)
            pthread_join(threads[t], NULL);
        bool blocked = shop_query(shop, "SELECT COUNT(*) FROM blocked_user WHERE ?1 > 0", 1) > 0;
        assert_int_equal(shop_claim(shop, policy, "contested", 0).verdict,
                         blocked ? VERDICT_BLOCKED : VERDICT_WON);
    }
}

/* --- a policy is never sold out before it was sold --- */

struct impatient {
    struct gate *gate;
    _Atomic bool stop;
    int sold_out_count;
};

static void *ask_the_gate(void *context)
{
    struct impatient *impatient = context;
    struct gate_line_options options = {.loop = NULL};
    struct gate_line *line = NULL;
    ensure(gate_line_open(impatient->gate, &options, &line, NULL) == STATUS_OK);
    while (!atomic_load(&impatient->stop)) {
        struct wish wish = {.policy_id = 7, .user = id_of(SPAN("impatient"))};
        struct wish *wishes[] = {&wish};
        struct gate_batch batch = {.policy_id = 7, .wishes = wishes, .count = 1};
        ensure(gate_claim(line, &batch, clock_wall_ms()));
        impatient->sold_out_count += wish.verdict == VERDICT_SOLD_OUT;
        if (wish.verdict != VERDICT_NO_POLICY && wish.verdict != VERDICT_LEASE_WANTED)
            break;
    }
    gate_line_close(line);
    return NULL;
}

static void test_service__new_policy_is_not_sold_out(void **state)
{
    struct shop *shop = *state;

    for (int i = 0; i < 20; i++) {
        struct impatient impatient = {.gate = service_gate(shop->service)};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, ask_the_gate, &impatient), 0);
        (void)shop_create_with(shop, (struct policy){.id = 7, .total = 5});
        pthread_join(thread, NULL);
        assert_int_equal(impatient.sold_out_count, 0);
        shop_tear_down(state);
        shop_set_up(state);
        shop = *state;
    }
}

int main(void)
{
#define SERVICE_TEST(name) \
    cmocka_unit_test_setup_teardown(test_service__##name, shop_set_up, shop_tear_down)
    const struct CMUnitTest tests[] = {
        SERVICE_TEST(lower_total),
        SERVICE_TEST(lower_and_raise_keeps_the_line_dense),
        SERVICE_TEST(raise_total_after_sell_out),
        SERVICE_TEST(lower_total_takes_unleased_first),
        SERVICE_TEST(refused_change_loses_no_unit),
        SERVICE_TEST(refused_changes_do_not_pile_up),
        SERVICE_TEST(refused_lease_goes_back),
        SERVICE_TEST(close),
        SERVICE_TEST(cancel_returns_the_unit_at_the_back),
        SERVICE_TEST(restore_of_a_lease_with_holes),
        SERVICE_TEST(redeemed_stays_redeemed),
        SERVICE_TEST(blocked_until_unblocked),
        SERVICE_TEST(block_races_unblock),
        SERVICE_TEST(new_policy_is_not_sold_out),
    };
    return cmocka_run_group_tests_name("service", tests, NULL, NULL);
}
