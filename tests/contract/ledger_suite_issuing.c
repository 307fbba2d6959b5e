/* ledger_suite_issuing.c: claims into rows: once each, and whatever is in the way of one is in
 * the way of that one alone. */
#include "ledger_fixture.h"

static void test_issuing__issues_and_remembers(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct claim claims[2] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "b", 1)};

    assert_int_equal(issue(fixture, claims, 2), COUPON_ISSUED);
    assert_int_equal(ledger_pending(fixture->ledger), 0);
    reopen(fixture);
    struct coupon coupon = coupon_of(fixture, policy.id, 2);
    assert_true(id_equal(&coupon.claim.user, &claims[1].user));
    assert_memory_equal(&coupon.claim.request_id, &claims[1].request_id, 16);
    assert_int_equal(coupon.claim.nth, 1);
    assert_int_equal(coupon.claim.requested_at_ms, NOW);
    assert_int_equal(coupon.state, COUPON_ISSUED);
    assert_int_equal(coupon.expires_at_ms, 0);
    policy_of(fixture, policy.id);
}

static void test_issuing__same_claim_twice_is_one_row(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);

    assert_int_equal(issue_one(fixture, &lease, 1, "a", 1), COUPON_ISSUED);
    assert_int_equal(issue_one(fixture, &lease, 1, "a", 1), COUPON_ISSUED);
    struct coupon cancelled;
    assert_int_equal(ledger_coupon_cancel(fixture->ledger, policy.id, 1, NOW, NULL, &cancelled,
                                          &policy, &fixture->error),
                     STATUS_OK);
    /* A late repeat does not bring a cancelled coupon back. */
    assert_int_equal(issue_one(fixture, &lease, 1, "a", 1), COUPON_CANCELLED);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
}

/* Traps 17 and 22: another user with the same seq is refused, its neighbours are not. */
static void test_issuing__colliding_seq_is_refused_alone(void **state)
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
    assert_true(span_equal(id_span(&kept.claim.user), SPAN("first")));
    assert_int_equal(kept.state, COUPON_ISSUED);
    policy_of(fixture, policy.id);
}

/* Trap 31: the user's slot is taken by another claim. */
static void test_issuing__second_win_is_merged(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create_with(fixture, 10, 0, 1, &lease);

    issue_one(fixture, &lease, 1, "a", 1);
    assert_int_equal(issue_one(fixture, &lease, 2, "a", 1), COUPON_MERGED);
    assert_int_equal(coupon_of(fixture, policy.id, 2).merged_into_seq, 1);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
}

/* Another wish takes the first free place of its user; the same wish is merged into its coupon, and
 * so is one for which there is no place, whose key answers with what the user holds. */
static void test_issuing__a_taken_place_is_another_where_there_is_room(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create_with(fixture, 10, 0, 3, &lease);
    struct claim claims[] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "a", 2),
                             claim_of(&lease, 3, "a", 1), claim_of(&lease, 4, "a", 1),
                             claim_of(&lease, 5, "a", 1), claim_of(&lease, 6, "b", 1)};

    claims[3].request_id = claims[2].request_id; /* the same wish */
    claims[4].request_id.bytes[0] = 0x80;
    for (size_t i = 0; i < 3; i++) {
        static const enum coupon_state expected[] = {COUPON_ISSUED, COUPON_ISSUED, COUPON_ISSUED,
                                                     COUPON_MERGED, COUPON_MERGED, COUPON_ISSUED};
        issue(fixture, claims, 6);
        assert_memory_equal(fixture->states + 6 * i, expected, sizeof(expected));
        assert_int_equal(coupon_of(fixture, policy.id, 3).claim.nth, 3);
        assert_int_equal(coupon_of(fixture, policy.id, 4).merged_into_seq, 3);
        assert_int_equal(coupon_of(fixture, policy.id, 5).merged_into_seq, 1);
        assert_int_equal(policy_of(fixture, policy.id).unleased, 2);
    }
    assert_int_equal(ask(fixture->session, "SELECT seq FROM claim_key"), 1);
    /* The gate is to hear of the new place and of the key. */
    assert_int_equal(ask(fixture->session, "SELECT SUM(seq) FROM entering_coupon"), 1 + 3);
    assert_int_equal(ask(fixture->session, "SELECT COUNT(*) FROM coupon"), 6);
}

static void test_issuing__blocked_user_gets_void(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create(fixture, 10, &lease);
    struct id bad = id_of(SPAN("bad"));
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

static void test_issuing__late_claim_of_a_closed_lease(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct lease fresh;
    struct policy policy = create(fixture, 3, &lease);

    issue_one(fixture, &lease, 1, "a", 1);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            ledger_lease_close(fixture->ledger, lease.id, LEDGER_NO_TERM, &fixture->error),
            STATUS_OK);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 2);
    assert_int_equal(issue_one(fixture, &lease, 2, "b", 1), COUPON_ISSUED);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
    assert_int_equal(ledger_lease_take(fixture->ledger, policy.id, LEDGER_NO_TERM, 0, &fresh,
                                       &policy, &fixture->error),
                     STATUS_OK);
    assert_int_equal(fresh.first_seq, 4);
    assert_int_equal(issue_one(fixture, &lease, 3, "c", 1), COUPON_VOID);
    assert_int_equal(issue_one(fixture, &fresh, 4, "d", 1), COUPON_ISSUED);
    assert_int_equal(policy_of(fixture, policy.id).unleased, 0);
}

static int64_t expiry_of(struct fixture *fixture, int32_t days, int64_t expires_at_ms)
{
    struct lease lease;
    struct policy policy = {.name = "ends",
                            .discount_value = 1,
                            .total = 5,
                            .per_user_limit = 1,
                            .closes_at_ms = NOW + DAY_MS / 2,
                            .coupon_valid_days = days,
                            .coupon_expires_at_ms = expires_at_ms};
    assert_int_equal(ledger_policy_create(fixture->ledger, &policy, &lease, &fixture->error),
                     STATUS_OK);
    issue_one(fixture, &lease, 1, "a", 1);
    return coupon_of(fixture, policy.id, 1).expires_at_ms;
}

static void test_issuing__expiry_from_valid_days_or_a_time(void **state)
{
    struct fixture *fixture = *state;
    assert_int_equal(expiry_of(fixture, 0, 0), 0); /* the window ends no coupon */
    assert_int_equal(expiry_of(fixture, 2, 0), NOW + 2 * DAY_MS);
    assert_int_equal(expiry_of(fixture, 0, NOW + DAY_MS), NOW + DAY_MS);
    assert_int_equal(expiry_of(fixture, 2, NOW + DAY_MS), NOW + DAY_MS);
    assert_int_equal(expiry_of(fixture, 2, NOW + 3 * DAY_MS), NOW + 2 * DAY_MS);
    assert_int_equal(coupon_state_at(COUPON_ISSUED, NOW + DAY_MS, NOW + DAY_MS - 1), COUPON_ISSUED);
    assert_int_equal(coupon_state_at(COUPON_ISSUED, NOW + DAY_MS, NOW + DAY_MS), COUPON_EXPIRED);
}

/* What is issued again after an unknown outcome gets the same answer, whatever it was. */
static void test_issuing__the_same_batch_again(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct id bad = id_of(SPAN("bad"));
    struct policy policy = create_with(fixture, 10, 0, 1, &lease);
    struct claim claims[] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "bad", 1),
                             claim_of(&lease, 3, "a", 1), claim_of(&lease, 4, "b", 1),
                             claim_of(&lease, 20, "c", 1)};

    check(fixture, ledger_user_block(fixture->ledger, &bad, true, NOW, &fixture->error));
    for (size_t i = 0; i < 4; i++) {
        static const enum coupon_state expected[] = {COUPON_ISSUED, COUPON_VOID, COUPON_MERGED,
                                                     COUPON_ISSUED, COUPON_ISSUED};
        issue(fixture, claims, 5);
        assert_memory_equal(fixture->states + 5 * i, expected, sizeof(expected));
        assert_int_equal(policy_of(fixture, policy.id).unleased, 1);
        if (i == 1)
            reopen(fixture);
    }
    assert_int_equal(ask(fixture->session, "SELECT COUNT(*) FROM coupon"), 5);
    assert_int_equal(coupon_of(fixture, policy.id, 3).merged_into_seq, 1);
}

/* A batch whose order is not that of its seqs, in which a user and a claim come up twice. The
 * lower seq was first; each answer belongs to its claim. */
static void test_issuing__any_order_in_a_batch(void **state)
{
    struct fixture *fixture = *state;
    struct lease first;
    struct lease second;
    struct policy one = create_with(fixture, 10, 0, 2, &first);
    struct policy two = create(fixture, 10, &second);
    struct claim claims[] = {claim_of(&second, 3, "a", 1), claim_of(&first, 5, "a", 1),
                             claim_of(&second, 1, "b", 1), claim_of(&first, 2, "a", 1),
                             claim_of(&first, 9, "a", 2),  claim_of(&second, 3, "a", 1)};

    issue(fixture, claims, 6);
    static const enum coupon_state expected[] = {COUPON_ISSUED, COUPON_MERGED, COUPON_ISSUED,
                                                 COUPON_ISSUED, COUPON_ISSUED, COUPON_ISSUED};
    assert_memory_equal(fixture->states, expected, sizeof(expected));
    assert_memory_equal(fixture->claims, claims, sizeof(claims));
    assert_int_equal(coupon_of(fixture, one.id, 5).merged_into_seq, 2);
    assert_int_equal(policy_of(fixture, one.id).unleased, 1);
    assert_int_equal(policy_of(fixture, two.id).unleased, 0);
}

/* Trap 22: rows that the database refuses, first, last and in between, fail nobody else. */
static void test_issuing__bad_rows_are_refused_alone(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    static struct claim claims[500];
    static const int64_t bad[][2] = {{1}, {500}, {250}, {1, 500}, {77, 78}};

    ledger_suite_ask(fixture->session, ledger_suite_refuse_bad);
    for (size_t round = 0; round < sizeof(bad) / sizeof(bad[0]); round++) {
        struct policy policy = create(fixture, 500, &lease);
        fixture->issued_count = 0;
        for (int64_t seq = 1; seq <= 500; seq++) {
            char user[16];
            bool is_bad = seq == bad[round][0] || seq == bad[round][1];
            snprintf(user, sizeof(user), "%s-%d", is_bad ? "bad" : "user", (int)seq);
            claims[seq - 1] = claim_of(&lease, seq, user, 1);
        }
        issue(fixture, claims, 500);
        for (int64_t seq = 1; seq <= 500; seq++) {
            bool is_bad = seq == bad[round][0] || seq == bad[round][1];
            assert_int_equal(fixture->states[seq - 1], is_bad ? COUPON_VOID : COUPON_ISSUED);
        }
        assert_int_equal(ask(fixture->session,
                             "SELECT COUNT(*) FROM coupon WHERE policy_id = %lld AND slot = 1",
                             (long long)policy.id),
                         bad[round][1] == 0 ? 499 : 498);
        policy_of(fixture, policy.id);
        assert_true(ledger_healthy(fixture->ledger));
    }
}

/* --- what a shared gate has not heard of --- */

struct heard {
    struct entering_coupon coupons[4];
    size_t count;
    struct key_binding keys[4];
    size_t key_count;
};

static enum status hear_key(void *context, const struct key_binding *binding, struct error *error)
{
    struct heard *heard = context;
    (void)error;
    heard->keys[heard->key_count++] = *binding;
    return STATUS_OK;
}

static struct heard hear(struct fixture *fixture, int64_t policy_id)
{
    struct heard heard = {.count = 0};
    check(fixture, ledger_entering(fixture->ledger, policy_id, heard.coupons, 4, &heard.count,
                                   hear_key, &heard, &fixture->error));
    return heard;
}

static struct ledger_wish claim_from_reserve(struct fixture *fixture, int64_t policy_id,
                                             const char *user, uint8_t key)
{
    struct ledger_wish wish = {.policy_id = policy_id,
                               .user = id_of(span_of(user)),
                               .request_id = {{0x80, key}},
                               .now_ms = NOW};
    check(fixture, ledger_claim(fixture->ledger, &wish, &fixture->error));
    return wish;
}

/* The wishes of a user's pending claims 1, 2 and 3; the reserve has served the second in the
 * first's place, and the third, which was cancelled. The claims become what they would be one by
 * one. */
static void test_issuing__a_wish_that_the_reserve_served_is_merged_into_its_coupon(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create_with(fixture, 20, 8, 2, &lease);
    struct claim claims[] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "a", 2),
                             claim_of(&lease, 3, "b", 1), claim_of(&lease, 4, "c", 1)};
    struct coupon cancelled;

    for (uint8_t i = 0; i < 4; i++)
        claims[i].request_id = (struct request_id){{0x80, i}};
    int64_t second = claim_from_reserve(fixture, policy.id, "a", 1).coupon.claim.seq;
    int64_t third = claim_from_reserve(fixture, policy.id, "b", 2).coupon.claim.seq;
    check(fixture, ledger_coupon_cancel(fixture->ledger, policy.id, third, NOW, NULL, &cancelled,
                                        &policy, &fixture->error));
    /* Another user's request of the same name is another wish. */
    claim_from_reserve(fixture, policy.id, "d", 3);
    for (size_t i = 0; i < 2; i++) {
        static const enum coupon_state expected[] = {COUPON_ISSUED, COUPON_MERGED, COUPON_MERGED,
                                                     COUPON_ISSUED};
        issue(fixture, claims, 4);
        assert_memory_equal(fixture->states + 4 * i, expected, sizeof(expected));
        assert_int_equal(coupon_of(fixture, policy.id, 1).claim.nth, 2);
        assert_int_equal(coupon_of(fixture, policy.id, 2).merged_into_seq, second);
        assert_int_equal(coupon_of(fixture, policy.id, 3).merged_into_seq, third);
        assert_int_equal(policy_of(fixture, policy.id).unleased, 8 - 3 + 1 + 2);
    }
    assert_int_equal(ask(fixture->session, "SELECT COUNT(*) FROM claim_key"), 0);
}

/* Limit 1, and two keys of each user: "first" won the pending claim. Of a, the reserve served
 * "second" and then answered "first" with that coupon; of b, the gate had answered "second" with
 * the pending claim, and then the reserve served it. Both coupons were cancelled, so the place is
 * free: yet each key has one claim. */
static void test_issuing__a_key_that_the_reserve_answered_is_merged_too(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    struct policy policy = create_with(fixture, 20, 8, 1, &lease);
    struct claim claims[] = {claim_of(&lease, 1, "a", 1), claim_of(&lease, 2, "b", 1)};
    struct key_binding bound = {
        .policy_id = policy.id, .request_id = {{0x80, 22}}, .seq = claims[1].seq};
    struct coupon cancelled;

    claims[0].request_id = (struct request_id){{0x80, 11}};
    claims[1].request_id = (struct request_id){{0x80, 21}};
    int64_t kept[] = {claim_from_reserve(fixture, policy.id, "a", 12).coupon.claim.seq,
                      claim_from_reserve(fixture, policy.id, "b", 22).coupon.claim.seq};
    assert_int_equal(claim_from_reserve(fixture, policy.id, "a", 11).coupon.claim.seq, kept[0]);
    for (size_t i = 0; i < 2; i++)
        check(fixture, ledger_coupon_cancel(fixture->ledger, policy.id, kept[i], NOW, NULL,
                                            &cancelled, &policy, &fixture->error));
    for (size_t i = 0; i < 2; i++) {
        wait_for(fixture, ledger_issue(fixture->ledger, claims, 2, &bound, 1));
        for (size_t k = 0; k < 2; k++) {
            assert_int_equal(coupon_of(fixture, policy.id, claims[k].seq).state, COUPON_MERGED);
            assert_int_equal(coupon_of(fixture, policy.id, claims[k].seq).merged_into_seq, kept[k]);
        }
        assert_int_equal(policy_of(fixture, policy.id).unleased, 8 + 2);
    }
    /* And the merged claims' own keys are answered with what was kept. */
    assert_int_equal(claim_from_reserve(fixture, policy.id, "a", 11).coupon.claim.seq, kept[0]);
    assert_int_equal(claim_from_reserve(fixture, policy.id, "b", 21).coupon.claim.seq, kept[1]);
}

static size_t unmark(struct fixture *fixture, const struct heard *heard)
{
    size_t left_count = 99;
    check(fixture, ledger_entered(fixture->ledger, heard->coupons, heard->count, &left_count,
                                  &fixture->error));
    return left_count;
}

static enum status pass_over(void *context, const struct claim *claim, enum coupon_state state,
                             struct error *error)
{
    (void)context;
    (void)claim;
    (void)state;
    (void)error;
    return STATUS_OK;
}

/* The reserve has served the key of a pending claim, to which the gate had bound another one. That
 * one answers with the coupon, too, which the gate hears of, and a gate that is built anew. A key
 * that comes behind is bound to nothing there. */
static void test_issuing__the_keys_of_a_merged_claim_are_its_coupons(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    int64_t id = create_with(fixture, 20, 8, 1, &lease).id;
    struct claim claim = claim_of(&lease, 1, "a", 1);
    struct key_binding bound = {.policy_id = id, .request_id = {{0x80, 2}}, .seq = 1};
    struct key_binding late = {.policy_id = id, .request_id = {{0x80, 3}}, .seq = 1};
    struct coupon cancelled;
    struct policy policy;

    claim.request_id = (struct request_id){{0x80, 1}};
    int64_t kept = claim_from_reserve(fixture, id, "a", 1).coupon.claim.seq;
    struct heard heard = hear(fixture, id);
    assert_int_equal(unmark(fixture, &heard), 0);
    wait_for(fixture, ledger_issue(fixture->ledger, &claim, 1, &bound, 1));
    assert_int_equal(coupon_of(fixture, id, 1).merged_into_seq, kept);
    heard = hear(fixture, id);
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.key_count, 1);
    assert_int_equal(heard.keys[0].seq, kept);
    assert_memory_equal(&heard.keys[0].request_id, &bound.request_id, sizeof(bound.request_id));

    check(fixture, ledger_coupon_cancel(fixture->ledger, id, kept, NOW, NULL, &cancelled, &policy,
                                        &fixture->error));
    assert_int_equal(claim_from_reserve(fixture, id, "a", 2).coupon.claim.seq, kept);
    wait_for(fixture, ledger_issue(fixture->ledger, NULL, 0, &late, 1));
    struct heard built = {.count = 0};
    struct ledger_visitor visitor = {.claim = pass_over, .key = hear_key, .context = &built};
    check(fixture, ledger_visit_policy(fixture->ledger, id, &visitor, &fixture->error));
    assert_int_equal(built.key_count, 1);
    assert_int_equal(built.keys[0].seq, kept);
    assert_memory_equal(&built.keys[0].request_id, &bound.request_id, sizeof(bound.request_id));
}

/* What the fallback gave is marked until the gate has heard of all of it, as it is by then. */
static void test_issuing__what_the_gate_has_not_heard_of(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    int64_t id = create_with(fixture, 5, 5, 1, &lease).id;
    int64_t other_id = create_with(fixture, 5, 5, 1, &lease).id;
    int64_t ids[4];
    size_t count;

    assert_int_equal(hear(fixture, id).count, 0);
    assert_true(claim_from_reserve(fixture, id, "a", 1).is_news);
    assert_true(claim_from_reserve(fixture, id, "b", 2).is_news);
    assert_false(claim_from_reserve(fixture, id, "b", 2).is_news);
    assert_true(claim_from_reserve(fixture, id, "b", 3).is_news);
    claim_from_reserve(fixture, other_id, "a", 1);
    check(fixture, ledger_entering_policies(fixture->ledger, 0, ids, 4, &count, &fixture->error));
    assert_int_equal(count, 2);
    assert_int_equal(ids[0], id);
    assert_int_equal(ids[1], other_id);

    struct heard heard = hear(fixture, id);
    assert_int_equal(heard.count, 2);
    assert_int_equal(heard.coupons[0].coupon.claim.seq, 1);
    assert_memory_equal(heard.coupons[1].coupon.claim.user.bytes, "b", 1);
    assert_int_equal(heard.key_count, 1);
    assert_int_equal(heard.keys[0].seq, 2);
    assert_int_equal(heard.keys[0].request_id.bytes[1], 3);
    assert_memory_equal(heard.keys[0].user.bytes, "b", 1);
    assert_int_equal(heard.keys[0].nth, 1);

    /* Meanwhile one is cancelled, and the other gets another key: neither was heard of whole. */
    struct coupon cancelled;
    struct policy policy;
    check(fixture, ledger_coupon_cancel(fixture->ledger, id, 1, NOW, NULL, &cancelled, &policy,
                                        &fixture->error));
    claim_from_reserve(fixture, id, "b", 4);
    assert_int_equal(unmark(fixture, &heard), 2);
    heard = hear(fixture, id);
    assert_int_equal(heard.count, 2);
    assert_int_equal(heard.coupons[0].coupon.state, COUPON_CANCELLED);
    assert_int_equal(heard.key_count, 2);
    assert_int_equal(unmark(fixture, &heard), 0);
    assert_int_equal(hear(fixture, id).count, 0);
    assert_int_equal(hear(fixture, other_id).count, 1);
    check(fixture, ledger_entering_forget(fixture->ledger, other_id, &fixture->error));
    assert_int_equal(hear(fixture, other_id).count, 0);
}

/* Two tell the gate, and the slower one is done when the ledger has more to tell: that is told,
 * too. */
static void test_issuing__a_slow_teller_hides_nothing(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    int64_t id = create_with(fixture, 5, 5, 1, &lease).id;

    claim_from_reserve(fixture, id, "a", 1);
    struct heard fast = hear(fixture, id);
    struct heard slow = hear(fixture, id);
    assert_int_equal(unmark(fixture, &fast), 0);
    claim_from_reserve(fixture, id, "a", 2); /* another key for the same coupon */
    assert_int_equal(unmark(fixture, &slow), 1);
    fast = hear(fixture, id);
    slow = hear(fixture, id);
    assert_int_equal(fast.key_count, 1);

    /* What the slower one says after the cancel is not so any more. */
    struct coupon cancelled;
    struct policy policy;
    assert_int_equal(unmark(fixture, &fast), 0);
    check(fixture, ledger_coupon_cancel(fixture->ledger, id, 1, NOW, NULL, &cancelled, &policy,
                                        &fixture->error));
    assert_int_equal(unmark(fixture, &slow), 1);
    fast = hear(fixture, id);
    assert_int_equal(fast.count, 1);
    assert_int_equal(fast.coupons[0].coupon.state, COUPON_CANCELLED);
    assert_int_equal(unmark(fixture, &fast), 0);
}

/* Two tell the gate the same: the slower one finds it told, and leaves nothing to be told again. */
static void test_issuing__two_tellers_do_not_set_each_other_back(void **state)
{
    struct fixture *fixture = *state;
    struct lease lease;
    int64_t id = create_with(fixture, 5, 5, 1, &lease).id;

    claim_from_reserve(fixture, id, "a", 1);
    claim_from_reserve(fixture, id, "b", 2);
    struct heard fast = hear(fixture, id);
    struct heard slow = hear(fixture, id);
    assert_int_equal(unmark(fixture, &fast), 0);
    assert_int_equal(unmark(fixture, &slow), 0);
    assert_int_equal(hear(fixture, id).count, 0);

    /* Nor does one who finds another mark put its own there. */
    claim_from_reserve(fixture, id, "a", 3);
    fast = hear(fixture, id);
    assert_int_equal(fast.count, 1);
    assert_int_equal(unmark(fixture, &slow), 1);
    assert_int_equal(unmark(fixture, &fast), 0);
    assert_int_equal(hear(fixture, id).count, 0);
}

int ledger_suite_run_issuing(void)
{
#define ISSUING_TEST(name) cmocka_unit_test_setup_teardown(test_issuing__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ISSUING_TEST(issues_and_remembers),
        ISSUING_TEST(same_claim_twice_is_one_row),
        ISSUING_TEST(colliding_seq_is_refused_alone),
        ISSUING_TEST(second_win_is_merged),
        ISSUING_TEST(a_taken_place_is_another_where_there_is_room),
        ISSUING_TEST(blocked_user_gets_void),
        ISSUING_TEST(late_claim_of_a_closed_lease),
        ISSUING_TEST(expiry_from_valid_days_or_a_time),
        ISSUING_TEST(the_same_batch_again),
        ISSUING_TEST(any_order_in_a_batch),
        ISSUING_TEST(bad_rows_are_refused_alone),
        ISSUING_TEST(a_wish_that_the_reserve_served_is_merged_into_its_coupon),
        ISSUING_TEST(a_key_that_the_reserve_answered_is_merged_too),
        ISSUING_TEST(the_keys_of_a_merged_claim_are_its_coupons),
        ISSUING_TEST(what_the_gate_has_not_heard_of),
        ISSUING_TEST(a_slow_teller_hides_nothing),
        ISSUING_TEST(two_tellers_do_not_set_each_other_back),
    };
    return cmocka_run_group_tests_name("ledger: issuing", tests, NULL, NULL);
}
