/* ledger_suite_locks.c: pairs of transactions that must not get in each other's way unnoticed. */
#include "ledger/transactions.h"
#include "ledger_stage.h"

static int64_t count(struct stage *stage, const char *condition)
{
    return ask(stage->fixture->session, "SELECT COUNT(*) FROM coupon WHERE policy_id = %lld AND %s",
               (long long)stage->policy.id, condition);
}

static int64_t unleased(struct stage *stage)
{
    return ask(stage->fixture->session, "SELECT unleased FROM policy WHERE id = %lld",
               (long long)stage->policy.id);
}

static bool both_ok(const struct stage *stage)
{
    return stage->actors[0].status == STATUS_OK && stage->actors[1].status == STATUS_OK;
}

/* --- roles --- */

static enum status act_issue(struct sql *sql, void *argument, struct error *error)
{
    struct issuing *issuing = argument;

    return issue_claims(sql, &issuing->room, issuing->claims, issuing->count, ISSUE_SPLIT, NOW,
                        issuing->states, error);
}

static void cast_issue(struct stage *stage, int number, int64_t seq, const char *user)
{
    struct issuing *issuing = &stage->issuing[number];

    issuing->claims[0] = claim_of(&stage->lease, seq, user, 1);
    issuing->count = 1;
    cast(stage, number, act_issue, issuing);
}

static void cast_claim(struct stage *stage, int number, const char *user)
{
    stage->wishes[number] = (struct ledger_wish){.policy_id = stage->policy.id,
                                                 .user = id_of(span_of(user)),
                                                 .request_id = {{0, (uint8_t)(number + 1)}},
                                                 .now_ms = NOW};
    cast(stage, number, fallback_claim, &stage->wishes[number]);
}

static void cast_close(struct stage *stage, int number)
{
    stage->arguments[number].close = (struct close_lease){.lease_id = stage->lease.id};
    cast(stage, number, transaction_close_lease, &stage->arguments[number].close);
}

static void cast_take(struct stage *stage, int number)
{
    stage->arguments[number].take = (struct take_lease){.policy_id = stage->policy.id,
                                                        .lease = &stage->leases[number],
                                                        .policy = &stage->policies[number]};
    cast(stage, number, transaction_take_lease, &stage->arguments[number].take);
}

static void cast_cancel(struct stage *stage, int number)
{
    stage->arguments[number].cancel = (struct cancel_coupon){.policy_id = stage->policy.id,
                                                             .seq = 1,
                                                             .now_ms = NOW,
                                                             .coupon = &stage->coupons[number],
                                                             .policy = &stage->policies[number]};
    cast(stage, number, transaction_cancel_coupon, &stage->arguments[number].cancel);
}

static void set_policy(struct stage *stage, int64_t total, int64_t reserve, int32_t limit)
{
    stage->policy = create_with(stage->fixture, total, reserve, limit, &stage->lease);
}

/* --- scenes --- */

/* Trap 30. */
static void set_issue_and_close(struct stage *stage)
{
    set_policy(stage, 3, 0, 1);
    cast_issue(stage, 0, 1, "a");
    stage->issuing[0].claims[1] = claim_of(&stage->lease, 2, "b", 1);
    stage->issuing[0].count = 2;
    cast_close(stage, 1);
}

static void look_at_issue_and_close(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "state = 'ISSUED'") == 2, "both claims are issued");
    expect(stage, unleased(stage) == 1, "one unit returned");
}

/* The lease's last unit is issued or returned, and then taken by the claim. */
static void set_last_unit(struct stage *stage)
{
    set_policy(stage, 1, 0, 1);
    cast_issue(stage, 0, 1, "a");
    cast_close(stage, 1);
}

static void look_at_last_unit(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "state = 'ISSUED'") == 1, "the claim is issued");
    expect(stage, unleased(stage) == 0, "no unit is left");
}

static void set_same_claims(struct stage *stage)
{
    set_policy(stage, 3, 0, 1);
    for (int i = 0; i < 2; i++) {
        cast_issue(stage, i, 1, "a");
        stage->issuing[i].claims[1] = claim_of(&stage->lease, 2, "b", 1);
        stage->issuing[i].count = 2;
    }
}

static void look_at_same_claims(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "state = 'ISSUED'") == 2, "each claim has one row");
    for (int i = 0; i < 4; i++)
        expect(stage, stage->issuing[i / 2].states[i % 2] == COUPON_ISSUED, "all are told so");
}

static void set_same_slot(struct stage *stage)
{
    set_policy(stage, 3, 0, 1);
    cast_issue(stage, 0, 1, "a");
    cast_issue(stage, 1, 2, "a");
}

static void look_at_same_slot(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "state = 'ISSUED'") == 1, "one is issued");
    expect(stage, count(stage, "state = 'MERGED'") == 1, "the other is merged");
    expect(stage, unleased(stage) == 1, "its unit returned");
}

/* Trap 31: the user wins at the gate and through the fallback. */
static void set_gate_and_fallback(struct stage *stage)
{
    set_policy(stage, 4, 2, 1);
    cast_issue(stage, 0, 1, "a");
    cast_claim(stage, 1, "a");
}

static void look_at_gate_and_fallback(struct stage *stage)
{
    bool is_merged = stage->issuing[0].states[0] == COUPON_MERGED;

    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "slot = 1") == 1, "one coupon");
    expect(stage, stage->wishes[1].verdict == (is_merged ? VERDICT_WON : VERDICT_HELD),
           "the two agree");
    expect(stage, unleased(stage) == 2, "nothing is lost");
}

/* The same, where each of the two has a place of its own: one wish is one coupon. */
static void set_one_wish(struct stage *stage)
{
    set_policy(stage, 4, 2, 2);
    cast_issue(stage, 0, 1, "a");
    stage->issuing[0].claims[0].nth = 2;
    cast_claim(stage, 1, "a");
    stage->wishes[1].request_id = stage->issuing[0].claims[0].request_id;
}

/* And its lease is closed, or was never there. */
static void set_one_late_wish(struct stage *stage)
{
    set_one_wish(stage);
    stage->issuing[0].claims[0].lease_id = 0;
    stage->issuing[0].claims[0].seq = 100;
}

static void look_at_one_wish(struct stage *stage)
{
    bool is_merged = stage->issuing[0].states[0] == COUPON_MERGED;

    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "slot IS NOT NULL") == 1, "one coupon");
    expect(stage, stage->wishes[1].verdict == (is_merged ? VERDICT_WON : VERDICT_HELD),
           "the two agree");
}

static void set_two_claims_of_one(struct stage *stage)
{
    set_policy(stage, 4, 4, 1);
    cast_claim(stage, 0, "a");
    cast_claim(stage, 1, "a");
}

static void look_at_two_claims_of_one(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "slot = 1") == 1, "one coupon");
    expect(stage, stage->wishes[0].verdict + stage->wishes[1].verdict == VERDICT_WON + VERDICT_HELD,
           "one won it, the other holds it");
}

static void set_claims_for_one_unit(struct stage *stage)
{
    set_policy(stage, 2, 1, 1);
    cast_claim(stage, 0, "a");
    cast_claim(stage, 1, "b");
}

static void look_at_claims_for_one_unit(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage,
           stage->wishes[0].verdict + stage->wishes[1].verdict == VERDICT_WON + VERDICT_UNAVAILABLE,
           "one won");
    expect(stage, count(stage, "slot = 1") == 1, "one coupon");
}

/* Trap 19: what is lent is not claimed. */
static void set_claim_and_take(struct stage *stage)
{
    set_policy(stage, 4, 2, 1);
    cast_claim(stage, 0, "a");
    cast_take(stage, 1);
}

static void look_at_claim_and_take(struct stage *stage)
{
    bool won = stage->wishes[0].verdict == VERDICT_WON;

    expect(stage, both_ok(stage), "both are done");
    expect(stage, won || stage->wishes[0].verdict == VERDICT_UNAVAILABLE, "won or too late");
    expect(stage, stage->leases[1].count == (won ? 1 : 2), "the rest is lent");
    expect(stage, stage->leases[1].first_seq == (won ? 4 : 3), "and no seq twice");
}

static void set_two_takes(struct stage *stage)
{
    set_policy(stage, 4, 2, 1);
    cast_take(stage, 0);
    cast_take(stage, 1);
}

static void look_at_two_takes(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, stage->leases[0].count + stage->leases[1].count == 2, "each unit is lent once");
}

static void set_two_closes(struct stage *stage)
{
    set_policy(stage, 4, 0, 1);
    cast_close(stage, 0);
    cast_close(stage, 1);
}

static void look_at_two_closes(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, unleased(stage) == 4, "each unit returned once");
}

/* The gate gives units back while another steward closes the lease. */
static const struct policy_change no_change;
static struct lease_shrunk given_back;

static void set_close_and_shrink(struct stage *stage)
{
    set_policy(stage, 4, 0, 1);
    cast_close(stage, 0);
    given_back = (struct lease_shrunk){.lease_id = stage->lease.id, .count = 1};
    stage->arguments[1].change = (struct change_policy){.id = stage->policy.id,
                                                        .change = &no_change,
                                                        .shrunk = &given_back,
                                                        .shrunk_count = 1,
                                                        .policy = &stage->policies[1]};
    cast(stage, 1, transaction_change_policy, &stage->arguments[1].change);
}

static void set_two_cancels(struct stage *stage)
{
    set_policy(stage, 2, 0, 1);
    issue_one(stage->fixture, &stage->lease, 1, "a", 1);
    cast_cancel(stage, 0);
    cast_cancel(stage, 1);
}

static void look_at_two_cancels(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, unleased(stage) == 1, "the unit returned once");
}

static void set_cancel_and_redeem(struct stage *stage)
{
    static const struct id order = {.length = 5, .bytes = "order"};

    set_policy(stage, 2, 0, 1);
    issue_one(stage->fixture, &stage->lease, 1, "a", 1);
    cast_cancel(stage, 0);
    stage->arguments[1].redeem = (struct redeem_coupon){.policy_id = stage->policy.id,
                                                        .seq = 1,
                                                        .order_id = &order,
                                                        .now_ms = NOW,
                                                        .coupon = &stage->coupons[1]};
    cast(stage, 1, transaction_redeem_coupon, &stage->arguments[1].redeem);
}

static void look_at_cancel_and_redeem(struct stage *stage)
{
    bool is_cancelled = stage->actors[0].status == STATUS_OK;

    expect(stage, stage->actors[is_cancelled ? 1 : 0].status == STATUS_CONFLICT, "one of them");
    expect(stage, stage->actors[is_cancelled ? 0 : 1].status == STATUS_OK, "one of them");
    expect(stage, count(stage, "slot = 1 AND state = 'REDEEMED'") == !is_cancelled, "redeemed");
    expect(stage, unleased(stage) == is_cancelled, "the unit is in one place");
}

/* The coupon in the way of a claim is cancelled. */
static void set_cancel_and_issue(struct stage *stage)
{
    set_policy(stage, 3, 0, 1);
    issue_one(stage->fixture, &stage->lease, 1, "a", 1);
    cast_cancel(stage, 0);
    cast_issue(stage, 1, 2, "a");
}

static void look_at_cancel_and_issue(struct stage *stage)
{
    bool is_merged = stage->issuing[1].states[0] == COUPON_MERGED;

    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "slot = 1") == !is_merged, "issued or merged");
    expect(stage, unleased(stage) == 1 + is_merged, "nothing is lost");
}

/* Claims that are too late for their lease, and one unit for them. */
static void set_late_claims(struct stage *stage)
{
    set_policy(stage, 1, 1, 1);
    stage->lease = (struct lease){.id = 0, .policy_id = stage->policy.id};
    cast_issue(stage, 0, 100, "a");
    cast_issue(stage, 1, 101, "b");
}

static void look_at_late_claims(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "state = 'ISSUED'") == 1, "one is issued");
    expect(stage, count(stage, "state = 'VOID'") == 1, "the other is void");
}

static void set_lower_total(struct stage *stage)
{
    static const struct policy_change lower = {
        .sets = 1U << POLICY_COLUMN_total, .to = {[POLICY_COLUMN_total] = 3}, .now_ms = NOW};

    set_policy(stage, 4, 1, 1);
    cast_claim(stage, 0, "a");
    stage->arguments[1].change = (struct change_policy){
        .id = stage->policy.id, .change = &lower, .policy = &stage->policies[1]};
    cast(stage, 1, transaction_change_policy, &stage->arguments[1].change);
}

static void look_at_lower_total(struct stage *stage)
{
    bool is_lower = stage->actors[1].status == STATUS_OK;

    expect(stage, is_lower || stage->actors[1].status == STATUS_CONFLICT, "done or refused");
    expect(stage, stage->wishes[0].verdict == (is_lower ? VERDICT_UNAVAILABLE : VERDICT_WON),
           "there is no unit for both");
}

static void set_block_and_issue(struct stage *stage)
{
    static const struct id bad = {.length = 3, .bytes = "bad"};
    struct error error;

    set_policy(stage, 2, 0, 1);
    check(stage->fixture, ledger_user_block(stage->fixture->ledger, &bad, false, NOW, &error));
    stage->arguments[0].block = (struct block_user){.user = &bad, .blocked = true, .now_ms = NOW};
    cast(stage, 0, transaction_block_user, &stage->arguments[0].block);
    cast_issue(stage, 1, 1, "bad");
}

static void look_at_block_and_issue(struct stage *stage)
{
    bool is_void = stage->issuing[1].states[0] == COUPON_VOID;

    expect(stage, both_ok(stage), "both are done");
    expect(stage, count(stage, "state = 'VOID'") == is_void, "as it was told");
    expect(stage, unleased(stage) == is_void, "nothing is lost");
}

/* There is one already, at which they take turns. */
static void set_two_policies(struct stage *stage)
{
    set_policy(stage, 1, 0, 1);
    for (int i = 0; i < 2; i++) {
        stage->policies[i] =
            (struct policy){.name = "x", .discount_value = 1, .total = 2, .per_user_limit = 1};
        stage->arguments[i].create =
            (struct create_policy){.policy = &stage->policies[i], .lease = &stage->leases[i]};
        cast(stage, i, transaction_create_policy, &stage->arguments[i].create);
    }
}

static void look_at_two_policies(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, stage->policies[0].id != stage->policies[1].id, "each has its id");
    expect(stage, stage->leases[0].id != stage->leases[1].id, "and its lease");
}

static void cast_steward(struct stage *stage, int number, const char *holder)
{
    stage->arguments[number].steward = (struct take_stewardship){
        .policy_id = stage->policy.id, .holder = holder, .taken = &stage->taken[number]};
    cast(stage, number, transaction_take_stewardship, &stage->arguments[number].steward);
}

/* The policy is in term 5, and whoever had it is dead. */
static void set_term(struct stage *stage)
{
    ask(stage->fixture->session, "DELETE FROM steward WHERE policy_id = %lld",
        (long long)stage->policy.id);
    ask(stage->fixture->session,
        "INSERT INTO steward (policy_id, holder, until, term) VALUES (%lld, 'dead', 0, 5)",
        (long long)stage->policy.id);
}

static void set_two_stewards(struct stage *stage)
{
    set_policy(stage, 1, 0, 1);
    set_term(stage);
    cast_steward(stage, 0, "a");
    cast_steward(stage, 1, "b");
}

static void look_at_two_stewards(struct stage *stage)
{
    expect(stage, both_ok(stage), "both are done");
    expect(stage, stage->taken[0].is_held || stage->taken[1].is_held, "one is the steward");
    expect(stage, stage->taken[0].term != stage->taken[1].term, "none has the other's term");
}

/* Trap 46: a steward that was late closes a lease while its successor takes the next term. Should
 * the late one be at it, the other comes again. */
static void set_term_and_close(struct stage *stage)
{
    set_policy(stage, 4, 0, 1);
    set_term(stage);
    stage->arguments[0].close = (struct close_lease){.lease_id = stage->lease.id, .term = 5};
    cast(stage, 0, transaction_close_lease, &stage->arguments[0].close);
    cast_steward(stage, 1, "heir");
}

static void look_at_term_and_close(struct stage *stage)
{
    bool is_closed = stage->actors[0].status == STATUS_OK;

    expect(stage, is_closed || stage->actors[0].status == STATUS_CONFLICT, "done or too late");
    expect(stage, stage->actors[1].status == STATUS_OK, "the heir is done");
    expect(stage, is_closed || stage->taken[1].is_held, "one of them");
    expect(stage, unleased(stage) == (is_closed ? 4 : 0), "closed in time, or not at all");
}

#define SCENE(name, kind, set, look)             \
    static void test_locks__##name(void **state) \
    {                                            \
        play_all(*state, kind, set, look);       \
    }
SCENE(issue_and_close, SCENE_ORDERLY, set_issue_and_close, look_at_issue_and_close)
SCENE(last_unit, SCENE_ORDERLY, set_last_unit, look_at_last_unit)
SCENE(same_claims, SCENE_ORDERLY, set_same_claims, look_at_same_claims)
SCENE(same_slot, SCENE_ORDERLY, set_same_slot, look_at_same_slot)
SCENE(gate_and_fallback, SCENE_BUSY, set_gate_and_fallback, look_at_gate_and_fallback)
SCENE(one_wish_by_gate_and_fallback, SCENE_BUSY, set_one_wish, look_at_one_wish)
SCENE(one_late_wish_by_gate_and_fallback, SCENE_BUSY, set_one_late_wish, look_at_one_wish)
SCENE(two_claims_of_one_user, SCENE_ORDERLY, set_two_claims_of_one, look_at_two_claims_of_one)
SCENE(two_claims_for_one_unit, SCENE_ORDERLY, set_claims_for_one_unit, look_at_claims_for_one_unit)
SCENE(claim_and_take, SCENE_ORDERLY, set_claim_and_take, look_at_claim_and_take)
SCENE(two_takes, SCENE_ORDERLY, set_two_takes, look_at_two_takes)
SCENE(two_closes, SCENE_ORDERLY, set_two_closes, look_at_two_closes)
SCENE(close_and_shrink, SCENE_ORDERLY, set_close_and_shrink, look_at_two_closes)
SCENE(two_cancels, SCENE_BUSY, set_two_cancels, look_at_two_cancels)
SCENE(cancel_and_redeem, SCENE_BUSY, set_cancel_and_redeem, look_at_cancel_and_redeem)
SCENE(cancel_and_issue, SCENE_BUSY, set_cancel_and_issue, look_at_cancel_and_issue)
SCENE(late_claims, SCENE_ORDERLY, set_late_claims, look_at_late_claims)
SCENE(claim_and_lower_total, SCENE_ORDERLY, set_lower_total, look_at_lower_total)
SCENE(block_and_issue, SCENE_ORDERLY, set_block_and_issue, look_at_block_and_issue)
SCENE(two_policies, SCENE_ORDERLY, set_two_policies, look_at_two_policies)
SCENE(two_stewards, SCENE_ORDERLY, set_two_stewards, look_at_two_stewards)
SCENE(term_and_close, SCENE_ORDERLY, set_term_and_close, look_at_term_and_close)

/* Every scene has a policy of its own; they share the stage. */
int ledger_suite_run_locks(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_locks__issue_and_close),
        cmocka_unit_test(test_locks__last_unit),
        cmocka_unit_test(test_locks__same_claims),
        cmocka_unit_test(test_locks__same_slot),
        cmocka_unit_test(test_locks__gate_and_fallback),
        cmocka_unit_test(test_locks__one_wish_by_gate_and_fallback),
        cmocka_unit_test(test_locks__one_late_wish_by_gate_and_fallback),
        cmocka_unit_test(test_locks__two_claims_of_one_user),
        cmocka_unit_test(test_locks__two_claims_for_one_unit),
        cmocka_unit_test(test_locks__claim_and_take),
        cmocka_unit_test(test_locks__two_takes),
        cmocka_unit_test(test_locks__two_closes),
        cmocka_unit_test(test_locks__close_and_shrink),
        cmocka_unit_test(test_locks__two_cancels),
        cmocka_unit_test(test_locks__cancel_and_redeem),
        cmocka_unit_test(test_locks__cancel_and_issue),
        cmocka_unit_test(test_locks__late_claims),
        cmocka_unit_test(test_locks__claim_and_lower_total),
        cmocka_unit_test(test_locks__block_and_issue),
        cmocka_unit_test(test_locks__two_policies),
        cmocka_unit_test(test_locks__two_stewards),
        cmocka_unit_test(test_locks__term_and_close),
    };
    return cmocka_run_group_tests_name("ledger: locks", tests, set_up_stage, tear_down_stage);
}
