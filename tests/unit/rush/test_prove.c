/* test_prove.c: a clean storm holds, and every breach is found by its own check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <stdio.h>

#include "rush/prove.h"

#define STOCK 5
#define USERS 8
#define MS    INT64_C(1000000)

/* Eight people one after the other, five coupons; the last press is the first user's again. */
struct scene {
    struct rush_press presses[USERS + 1];
    struct rush_coupon coupons[USERS];
    struct rush_holdings holdings;
    struct rush_evidence evidence;
};

static void scene_init(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    for (uint32_t i = 0; i < USERS; i++) {
        scene->presses[i] = (struct rush_press){
            .user = i,
            .is_sent = true,
            .outcome = i < STOCK ? RUSH_WON : RUSH_SOLD_OUT,
            .seq = i < STOCK ? i + 1 : 0,
            .nth = 1,
            .sent_ns = i * 10 * MS,
            .answered_ns = i * 10 * MS + 5 * MS,
        };
        if (i < STOCK)
            scene->coupons[i] =
                (struct rush_coupon){.user = i, .seq = i + 1, .nth = 1, .fate = RUSH_FATE_ISSUED};
    }
    scene->presses[USERS] = (struct rush_press){.user = 0,
                                                .is_sent = true,
                                                .outcome = RUSH_HELD,
                                                .seq = 1,
                                                .nth = 1,
                                                .sent_ns = 100 * MS,
                                                .answered_ns = 105 * MS};
    scene->holdings = (struct rush_holdings){
        .coupons = scene->coupons, .coupon_count = STOCK, .asked_count = STOCK};
    scene->evidence = (struct rush_evidence){
        .presses = scene->presses,
        .press_count = USERS + 1,
        .holdings = &scene->holdings,
        .per_user_limit = 1,
        .is_alone = true,
        .before = {.is_known = true, .total = STOCK, .remaining = STOCK},
        .after = {.is_known = true, .total = STOCK, .issued = STOCK},
        .audit = RUSH_AUDIT_FINE,
    };
}

static enum rush_verdict verdict_of(const struct rush_proof *proof, const char *name)
{
    for (size_t i = 0; i < RUSH_CHECKS; i++)
        if (strcmp(proof->checks[i].name, name) == 0)
            return proof->checks[i].verdict;
    fail_msg("no check is called %s", name);
    return RUSH_CANNOT_SAY;
}

static struct rush_proof prove(const struct scene *scene)
{
    struct rush_proof proof;
    struct error error;

    assert_int_equal(rush_prove(&proof, &scene->evidence, &error), STATUS_OK);
    return proof;
}

/* This check is broken, and so the storm is. */
static void assert_broken(const struct scene *scene, const char *name)
{
    struct rush_proof proof = prove(scene);

    if (verdict_of(&proof, name) != RUSH_BROKEN)
        fail_msg("%s does not see it", name);
    assert_true(proof.is_broken);
    assert_false(proof.is_exact);
}

static void test_prove__a_clean_storm_is_exact(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    struct rush_proof proof = prove(&scene);
    for (size_t i = 0; i < RUSH_CHECKS; i++)
        if (proof.checks[i].verdict != RUSH_HOLDS)
            fail_msg("%s: %s", proof.checks[i].name, proof.checks[i].text);
    assert_true(proof.is_exact);
    assert_false(proof.is_broken);
    assert_int_equal(proof.winner_count, STOCK);
    assert_int_equal(proof.first_seq, 1);
    assert_int_equal(proof.last_seq, STOCK);
    assert_int_equal(proof.sold_out_ns, 55 * MS);
    assert_int_equal(proof.last_win_ns, 45 * MS);
}

static void test_prove__one_winner_too_many(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[STOCK].outcome = RUSH_WON;
    scene.presses[STOCK].seq = STOCK + 1;
    assert_broken(&scene, "count");
    assert_broken(&scene, "coupons");
    assert_broken(&scene, "ledger");
}

static void test_prove__one_winner_too_few(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[STOCK - 1].outcome = RUSH_SOLD_OUT;
    scene.holdings.coupon_count = STOCK - 1;
    scene.evidence.after.issued = STOCK - 1;
    scene.evidence.after.remaining = 1;
    assert_broken(&scene, "count");
}

static void test_prove__a_seq_given_twice(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[1].seq = 1;
    assert_broken(&scene, "unique");
}

static void test_prove__told_twice_that_one_won(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[USERS].outcome = RUSH_WON;
    assert_broken(&scene, "unique");
}

static void test_prove__a_gap(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[STOCK - 1].seq = STOCK + 1;
    scene.coupons[STOCK - 1].seq = STOCK + 1;
    assert_broken(&scene, "dense");
    /* With others in the same line it is none. */
    scene.evidence.is_alone = false;
    struct rush_proof proof = prove(&scene);
    assert_int_equal(verdict_of(&proof, "dense"), RUSH_HOLDS);
}

static void test_prove__a_gap_that_the_gate_left_when_it_was_away(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[STOCK - 1].seq = 9;
    scene.coupons[STOCK - 1].seq = 9;
    scene.evidence.audit_gap_count = 4;
    assert_broken(&scene, "dense"); /* nobody noticed that it was away */
    scene.presses[STOCK - 1].may_be_done = true;
    struct rush_proof proof = prove(&scene);
    assert_true(proof.is_exact);
    scene.evidence.audit_gap_count = 3;
    assert_broken(&scene, "dense");
}

static void test_prove__a_user_over_the_limit(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[1].user = 0;
    scene.coupons[1].user = 0;
    assert_broken(&scene, "limit");
    scene.evidence.per_user_limit = 2;
    struct rush_proof proof = prove(&scene);
    assert_int_equal(verdict_of(&proof, "limit"), RUSH_HOLDS);
}

static void test_prove__overtaken(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[0].seq = 2;
    scene.presses[1].seq = 1;
    assert_broken(&scene, "order");
    /* Who asked at the same time may be served in any order. */
    scene.presses[1].sent_ns = 4 * MS;
    struct rush_proof proof = prove(&scene);
    assert_int_equal(verdict_of(&proof, "order"), RUSH_HOLDS);
}

static void test_prove__sold_out_too_early(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    /* The third is told so, and those behind win. */
    scene.presses[2].outcome = RUSH_SOLD_OUT;
    scene.presses[5].outcome = RUSH_WON;
    scene.presses[5].seq = 3;
    assert_broken(&scene, "sold_out");
}

static void test_prove__a_winner_who_asks_again_is_turned_away(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[USERS].outcome = RUSH_SOLD_OUT;
    assert_broken(&scene, "repeats");
}

static void test_prove__a_repeat_that_shows_anothers_claim(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[USERS].seq = 3;
    assert_broken(&scene, "repeats");
}

static void test_prove__a_winner_without_a_coupon(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.holdings.coupon_count = STOCK - 1;
    assert_broken(&scene, "coupons");
    scene_init(&scene);
    scene.coupons[2].fate = RUSH_FATE_VOID;
    assert_broken(&scene, "coupons");
    scene_init(&scene);
    scene.coupons[2].seq = 7;
    assert_broken(&scene, "coupons");
}

static void test_prove__the_ledger_disagrees(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.evidence.after.issued = STOCK - 1;
    assert_broken(&scene, "ledger");
    scene_init(&scene);
    scene.evidence.audit = RUSH_AUDIT_BROKEN;
    snprintf(scene.evidence.audit_text, sizeof(scene.evidence.audit_text), "1 unit amiss");
    assert_broken(&scene, "ledger");
}

static void test_prove__what_was_not_told_is_not_called_broken(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    /* The answer was lost, and the server does not say what became of it. */
    scene.presses[1].outcome = RUSH_NONE;
    memmove(&scene.coupons[1], &scene.coupons[2], (STOCK - 2) * sizeof(scene.coupons[0]));
    scene.holdings.coupon_count = STOCK - 1;
    scene.holdings.unknown_count = 1;
    scene.evidence.after.is_known = false;
    struct rush_proof proof = prove(&scene);
    assert_false(proof.is_broken);
    assert_false(proof.is_exact);
    assert_int_equal(verdict_of(&proof, "count"), RUSH_CANNOT_SAY);
    assert_int_equal(verdict_of(&proof, "dense"), RUSH_CANNOT_SAY);
    assert_int_equal(verdict_of(&proof, "coupons"), RUSH_CANNOT_SAY);
    assert_int_equal(verdict_of(&proof, "ledger"), RUSH_CANNOT_SAY);
}

static void test_prove__a_lost_answer_that_was_a_win_is_found(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[STOCK - 1].outcome = RUSH_NONE;
    struct rush_proof proof = prove(&scene);
    assert_true(proof.is_exact);
    assert_int_equal(proof.winner_count, STOCK);
}

static void test_prove__a_storm_that_was_turned_away_proves_nothing(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    for (size_t i = 0; i < scene.evidence.press_count; i++)
        scene.presses[i] = (struct rush_press){
            .user = scene.presses[i].user, .is_sent = true, .outcome = RUSH_REFUSED};
    scene.holdings.coupon_count = 0;
    scene.evidence.after = scene.evidence.before;
    struct rush_proof proof = prove(&scene);
    assert_int_equal(verdict_of(&proof, "count"), RUSH_CANNOT_SAY);
    assert_false(proof.is_exact);
    assert_false(proof.is_broken);
}

static void test_prove__turned_away_when_all_is_given_out_is_fine(void **state)
{
    struct scene scene;

    (void)state;
    scene_init(&scene);
    scene.presses[USERS - 1].outcome = RUSH_REFUSED; /* closed right behind the sell-out */
    struct rush_proof proof = prove(&scene);
    assert_true(proof.is_exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prove__a_clean_storm_is_exact),
        cmocka_unit_test(test_prove__one_winner_too_many),
        cmocka_unit_test(test_prove__one_winner_too_few),
        cmocka_unit_test(test_prove__a_seq_given_twice),
        cmocka_unit_test(test_prove__told_twice_that_one_won),
        cmocka_unit_test(test_prove__a_gap),
        cmocka_unit_test(test_prove__a_gap_that_the_gate_left_when_it_was_away),
        cmocka_unit_test(test_prove__a_user_over_the_limit),
        cmocka_unit_test(test_prove__overtaken),
        cmocka_unit_test(test_prove__sold_out_too_early),
        cmocka_unit_test(test_prove__a_winner_who_asks_again_is_turned_away),
        cmocka_unit_test(test_prove__a_repeat_that_shows_anothers_claim),
        cmocka_unit_test(test_prove__a_winner_without_a_coupon),
        cmocka_unit_test(test_prove__the_ledger_disagrees),
        cmocka_unit_test(test_prove__what_was_not_told_is_not_called_broken),
        cmocka_unit_test(test_prove__a_lost_answer_that_was_a_win_is_found),
        cmocka_unit_test(test_prove__a_storm_that_was_turned_away_proves_nothing),
        cmocka_unit_test(test_prove__turned_away_when_all_is_given_out_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
