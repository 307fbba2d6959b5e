/* ledger_suite_crowds.c: many at once: each member of a crowd has a ledger of its own where
 * several processes may share a database, and all have the one where they may not. */
#include "ledger_fixture.h"

#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"

#define LEDGERS 4
#define THREADS 8

struct crowd {
    struct fixture *first;
    struct fixture *ledgers[LEDGERS];
    struct policy policy;
    struct lease lease;
    pthread_barrier_t start; /* so that they begin at once */
    atomic_int won;
    atomic_int verdicts[VERDICT_COUNT];
    atomic_int troubles; /* what went wrong in a thread */
};

/* One thread of it. */
struct member {
    struct crowd *crowd;
    struct fixture *fixture;
    int number;
};

/* Threads cannot fail a test themselves. */
static void expect(struct crowd *crowd, bool condition, const char *what, const struct error *error)
{
    if (condition)
        return;
    print_error("%s: %s\n", what, error->text);
    atomic_fetch_add(&crowd->troubles, 1);
}

static int set_up_crowd(void **state)
{
    struct crowd *crowd = calloc(1, sizeof(*crowd));

    (ledger_suite_is_shared ? set_up_shared : set_up)((void **)&crowd->first);
    crowd->ledgers[0] = crowd->first;
    for (int i = 1; i < LEDGERS; i++) {
        crowd->ledgers[i] = crowd->first;
        if (ledger_suite_is_shared) {
            crowd->ledgers[i] = fixture_new(crowd->first->url, LEDGER_SHARE);
            open_ledger(crowd->ledgers[i]);
        }
    }
    pthread_barrier_init(&crowd->start, NULL, THREADS);
    *state = crowd;
    return 0;
}

static int tear_down_crowd(void **state)
{
    struct crowd *crowd = *state;

    for (int i = 1; i < LEDGERS && ledger_suite_is_shared; i++) {
        ledger_close(crowd->ledgers[i]->ledger);
        fixture_free(crowd->ledgers[i]);
    }
    pthread_barrier_destroy(&crowd->start);
    tear_down((void **)&crowd->first);
    free(crowd);
    return 0;
}

/* All threads at once; none of them had to be told to come back later. */
static void run_crowd(struct crowd *crowd, void *(*act)(void *))
{
    pthread_t threads[THREADS];
    struct member members[THREADS];

    for (int i = 0; i < THREADS; i++) {
        members[i] =
            (struct member){.crowd = crowd, .fixture = crowd->ledgers[i % LEDGERS], .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, act, &members[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(crowd->troubles, 0);
    for (int i = 0; i < LEDGERS; i++) {
        assert_true(ledger_healthy(crowd->ledgers[i]->ledger));
        assert_int_equal(ledger_stats(crowd->ledgers[i]->ledger)->commit_failures, 0);
    }
}

static int64_t count(struct crowd *crowd, const char *text)
{
    return ask(crowd->first->session, "%s", text);
}

/* --- issuing the same claims --- */

#define PENDING 480
#define BATCH   40

/* Every sixth claim is of a user who has just won in that slot. */
static struct claim pending_claim(const struct crowd *crowd, int64_t seq)
{
    char user[16];
    snprintf(user, sizeof(user), "u%d", (int)(seq % 6 == 0 ? seq - 1 : seq));
    return claim_of(&crowd->lease, seq, user, 1);
}

/* Forwards, backwards, from the middle, and in strides; whole batches are under way at once. */
static int64_t nth_seq(int number, int64_t i)
{
    if (number % 4 == 0)
        return i + 1;
    if (number % 4 == 1)
        return PENDING - i;
    if (number % 4 == 2)
        return (i + PENDING / 2) % PENDING + 1;
    return i * 7 % PENDING + 1;
}

static void *issue_all(void *context)
{
    const struct member *member = context;
    struct claim claims[BATCH];
    uint64_t ticket = 0;

    pthread_barrier_wait(&member->crowd->start);
    for (int64_t i = 0; i < PENDING; i += BATCH) {
        for (int64_t k = 0; k < BATCH; k++)
            claims[k] = pending_claim(member->crowd, nth_seq(member->number, i + k));
        ticket = ledger_issue(member->fixture->ledger, claims, BATCH, NULL, 0);
    }
    wait_for(member->fixture, ticket);
    return NULL;
}

/* Workers that overlap: one row for each claim, and all were told what it says.
 */
static void test_crowd__overlapping_batches_in_any_order(void **state)
{
    struct crowd *crowd = *state;
    struct fixture *first = crowd->first;

    crowd->policy = create_with(first, PENDING, 0, 1, &crowd->lease);
    run_crowd(crowd, issue_all);
    assert_int_equal(count(crowd, "SELECT COUNT(*) FROM coupon"), PENDING);
    assert_int_equal(count(crowd, "SELECT COUNT(*) FROM coupon WHERE state = 'MERGED'"),
                     PENDING / 6);
    assert_int_equal(policy_of(first, crowd->policy.id).unleased, PENDING / 6);
    for (int i = 0; i < LEDGERS; i++) {
        const struct fixture *fixture = crowd->ledgers[i];
        assert_int_equal(fixture->issued_count,
                         ledger_suite_is_shared ? PENDING * THREADS / LEDGERS : PENDING * THREADS);
        for (size_t k = 0; k < fixture->issued_count; k += 7) {
            struct coupon coupon = coupon_of(first, crowd->policy.id, fixture->claims[k].seq);
            assert_int_equal(coupon.state, fixture->states[k]);
            assert_true(id_equal(&coupon.claim.user, &fixture->claims[k].user));
        }
    }
}

/* --- claims from unleased stock --- */

static void *claim_many(void *context)
{
    const struct member *member = context;
    struct crowd *crowd = member->crowd;

    pthread_barrier_wait(&crowd->start);
    for (int i = 0; i < 40; i++) {
        char user[16];
        struct error error = {""};
        struct ledger_wish wish = {.policy_id = crowd->policy.id, .now_ms = NOW};
        /* Every user comes from each thread, in another order. */
        snprintf(user, sizeof(user), "u%d", (i * 7 + member->number * 5) % 40);
        wish.user = id_of(span_of(user));
        wish.request_id.bytes[1] = (uint8_t)member->number;
        wish.request_id.bytes[2] = (uint8_t)i;
        expect(crowd, ledger_claim(member->fixture->ledger, &wish, &error) == STATUS_OK, "claim",
               &error);
        atomic_fetch_add(&crowd->verdicts[wish.verdict], 1);
    }
    return NULL;
}

/* Exactly as many winners as there are units, in a dense line, and nobody above the limit. */
static void test_crowd__races_for_the_last_units(void **state)
{
    struct crowd *crowd = *state;

    crowd->policy = create_with(crowd->first, 60, 50, 2, &crowd->lease);
    run_crowd(crowd, claim_many);
    assert_int_equal(crowd->verdicts[VERDICT_WON], 50);
    assert_int_equal(crowd->verdicts[VERDICT_WON] + crowd->verdicts[VERDICT_LIMIT_REACHED] +
                         crowd->verdicts[VERDICT_UNAVAILABLE],
                     THREADS * 40);
    assert_int_equal(count(crowd, "SELECT COUNT(*) FROM coupon WHERE slot IS NOT NULL"), 50);
    assert_int_equal(count(crowd, "SELECT MIN(seq) FROM coupon"), 11);
    assert_int_equal(count(crowd, "SELECT MAX(seq) FROM coupon"), 60);
    assert_int_equal(count(crowd, "SELECT MAX(held) FROM (SELECT COUNT(*) AS held FROM coupon"
                                  " GROUP BY user_id) AS users"),
                     2);
    assert_int_equal(policy_of(crowd->first, crowd->policy.id).unleased, 0);
}

static void *claim_as_one(void *context)
{
    const struct member *member = context;
    struct crowd *crowd = member->crowd;

    pthread_barrier_wait(&crowd->start);
    for (int i = 0; i < 20; i++) {
        struct error error = {""};
        struct ledger_wish wish = {
            .policy_id = crowd->policy.id, .now_ms = NOW, .user = id_of(SPAN("greedy"))};
        wish.request_id.bytes[1] = (uint8_t)member->number;
        wish.request_id.bytes[2] = (uint8_t)i;
        expect(crowd, ledger_claim(member->fixture->ledger, &wish, &error) == STATUS_OK, "claim",
               &error);
        atomic_fetch_add(&crowd->verdicts[wish.verdict], 1);
    }
    return NULL;
}

/* Trap 3, in the ledger alone. */
static void test_crowd__one_user_from_everywhere(void **state)
{
    struct crowd *crowd = *state;

    crowd->policy = create_with(crowd->first, 100, 100, 3, &crowd->lease);
    run_crowd(crowd, claim_as_one);
    assert_int_equal(crowd->verdicts[VERDICT_WON], 3);
    assert_int_equal(crowd->verdicts[VERDICT_LIMIT_REACHED], THREADS * 20 - 3);
    assert_int_equal(count(crowd, "SELECT COUNT(*) FROM coupon WHERE slot IN (1, 2, 3)"), 3);
    assert_int_equal(policy_of(crowd->first, crowd->policy.id).unleased, 97);
}

/* The same resend from everywhere is one claim. */
static void *resend(void *context)
{
    const struct member *member = context;
    struct crowd *crowd = member->crowd;

    pthread_barrier_wait(&crowd->start);
    for (uint8_t i = 0; i < 20; i++) {
        struct error error = {""};
        struct ledger_wish wish = {.policy_id = crowd->policy.id,
                                   .now_ms = NOW,
                                   .user = id_of(SPAN("a")),
                                   .request_id = {{0x80, i}}};
        expect(crowd, ledger_claim(member->fixture->ledger, &wish, &error) == STATUS_OK, "claim",
               &error);
        atomic_fetch_add(&crowd->verdicts[wish.verdict], 1);
    }
    return NULL;
}

static void test_crowd__a_request_is_one_claim(void **state)
{
    struct crowd *crowd = *state;

    crowd->policy = create_with(crowd->first, 100, 100, 50, &crowd->lease);
    run_crowd(crowd, resend);
    assert_int_equal(crowd->verdicts[VERDICT_WON], 20);
    assert_int_equal(crowd->verdicts[VERDICT_HELD], 20 * (THREADS - 1));
    assert_int_equal(policy_of(crowd->first, crowd->policy.id).unleased, 80);
}

/* --- policies and leases --- */

static void *create_some(void *context)
{
    const struct member *member = context;

    pthread_barrier_wait(&member->crowd->start);
    for (int64_t i = 0; i < 10; i++) {
        struct lease lease;
        struct error error = {""};
        /* Every other one has an id of its own, which the others want too. */
        struct policy policy = {.id = i % 2 == 0 ? 0 : i * 1000000,
                                .name = "x",
                                .discount_value = 1,
                                .total = 3,
                                .per_user_limit = 1};
        enum status status = ledger_policy_create(member->fixture->ledger, &policy, &lease, &error);
        expect(member->crowd, status == STATUS_OK || (i % 2 == 1 && status == STATUS_CONFLICT),
               "create", &error);
        if (status == STATUS_OK)
            atomic_fetch_add(&member->crowd->won, 1);
    }
    return NULL;
}

static void test_crowd__every_policy_has_its_id(void **state)
{
    struct crowd *crowd = *state;

    run_crowd(crowd, create_some);
    assert_int_equal(crowd->won, THREADS * 5 + 5);
    assert_int_equal(count(crowd, "SELECT COUNT(*) FROM policy"), THREADS * 5 + 5);
    assert_int_equal(count(crowd, "SELECT COUNT(DISTINCT policy_id) FROM lease WHERE count = 3"),
                     THREADS * 5 + 5);
}

static void *lend_and_return(void *context)
{
    const struct member *member = context;
    struct ledger *ledger = member->fixture->ledger;

    pthread_barrier_wait(&member->crowd->start);
    for (int i = 0; i < 10; i++) {
        struct lease lease;
        struct policy policy;
        struct error error = {""};
        enum status status = ledger_lease_take(ledger, member->crowd->policy.id, LEDGER_NO_TERM,
                                               member->number % 3, &lease, &policy, &error);
        expect(member->crowd, status == STATUS_OK, "take", &error);
        if (lease.count == 0)
            continue;
        struct claim claim = claim_of(&lease, lease.first_seq, "u", 1);
        int length = snprintf(claim.user.bytes, ID_LENGTH_MAX, "u%d", (int)claim.seq);
        claim.user.length = (uint8_t)length;
        wait_for(member->fixture, ledger_issue(ledger, &claim, 1, NULL, 0));
        expect(member->crowd,
               ledger_lease_close(ledger, lease.id, LEDGER_NO_TERM, &error) == STATUS_OK, "close",
               &error);
        atomic_fetch_add(&member->crowd->won, 1);
    }
    return NULL;
}

/* Leases are taken, used and closed from everywhere: no seq is lent twice, no unit is lost. */
static void test_crowd__leases_come_and_go(void **state)
{
    struct crowd *crowd = *state;

    crowd->policy = create_with(crowd->first, 1000, 1000, 1, &crowd->lease);
    run_crowd(crowd, lend_and_return);
    assert_true(crowd->won > 0);
    assert_int_equal(count(crowd, "SELECT COUNT(*) FROM coupon WHERE state = 'ISSUED'"),
                     crowd->won);
    assert_int_equal(count(crowd, "SELECT COUNT(*) FROM lease a JOIN lease b ON a.id < b.id"
                                  " WHERE a.first_seq < b.first_seq + b.count"
                                  " AND b.first_seq < a.first_seq + a.count"),
                     0);
    assert_int_equal(policy_of(crowd->first, crowd->policy.id).unleased, 1000 - crowd->won);
}

/* --- coupons --- */

#define WRITES 20

static void *issue_and_cancel(void *context)
{
    const struct member *member = context;
    struct ledger *ledger = member->fixture->ledger;

    pthread_barrier_wait(&member->crowd->start);
    for (int i = 0; i < WRITES; i++) {
        struct coupon coupon;
        struct policy policy;
        struct error error = {""};
        char user[16];
        int64_t seq = member->number * WRITES + i + 1;

        snprintf(user, sizeof(user), "u%d", (int)seq);
        struct claim claim = claim_of(&member->crowd->lease, seq, user, 1);
        wait_for(member->fixture, ledger_issue(ledger, &claim, 1, NULL, 0));
        enum status status = ledger_coupon_get(ledger, claim.policy_id, seq, &coupon, &error);
        if (status == STATUS_OK && i % 2 == 0)
            status = ledger_coupon_cancel(ledger, claim.policy_id, seq, NOW, NULL, &coupon, &policy,
                                          &error);
        expect(member->crowd, status == STATUS_OK, "cancel", &error);
    }
    return NULL;
}

static void test_crowd__writes_and_stock_is_conserved(void **state)
{
    struct crowd *crowd = *state;

    crowd->policy = create(crowd->first, THREADS * WRITES, &crowd->lease);
    run_crowd(crowd, issue_and_cancel);
    assert_int_equal(policy_of(crowd->first, crowd->policy.id).unleased, THREADS * WRITES / 2);
}

/* All of them cancel and redeem the same coupons. */
static void *cancel_or_redeem(void *context)
{
    const struct member *member = context;
    struct ledger *ledger = member->fixture->ledger;
    int64_t id = member->crowd->policy.id;

    pthread_barrier_wait(&member->crowd->start);
    for (int64_t seq = 1; seq <= WRITES; seq++) {
        struct coupon coupon;
        struct policy policy;
        struct error error = {""};
        struct id order = id_of(SPAN("order"));
        enum status status =
            (member->number + seq) % 2 == 0
                ? ledger_coupon_redeem(ledger, id, seq, &order, NOW, NULL, &coupon, &error)
                : ledger_coupon_cancel(ledger, id, seq, NOW, NULL, &coupon, &policy, &error);
        expect(member->crowd, status == STATUS_OK || status == STATUS_CONFLICT, "redeem or cancel",
               &error);
    }
    return NULL;
}

static void test_crowd__a_coupon_is_redeemed_or_cancelled(void **state)
{
    struct crowd *crowd = *state;

    crowd->policy = create(crowd->first, WRITES, &crowd->lease);
    for (int64_t seq = 1; seq <= WRITES; seq++) {
        char user[16];
        snprintf(user, sizeof(user), "u%d", (int)seq);
        issue_one(crowd->first, &crowd->lease, seq, user, 1);
    }
    run_crowd(crowd, cancel_or_redeem);
    int64_t cancelled = count(crowd, "SELECT COUNT(*) FROM coupon WHERE state = 'CANCELLED'"
                                     " AND slot IS NULL AND redeemed_at IS NULL");
    int64_t redeemed = count(crowd, "SELECT COUNT(*) FROM coupon WHERE state = 'REDEEMED'"
                                    " AND slot = 1 AND cancelled_at IS NULL");
    assert_int_equal(cancelled + redeemed, WRITES);
    assert_int_equal(policy_of(crowd->first, crowd->policy.id).unleased, cancelled);
}

/* --- agreeing --- */

static void *keep_secret(void *context)
{
    const struct member *member = context;
    uint8_t mine[16];
    uint8_t kept[16];
    struct error error = {""};

    memset(mine, 'a' + member->number, sizeof(mine));
    pthread_barrier_wait(&member->crowd->start);
    expect(member->crowd,
           ledger_secret(member->fixture->ledger, "key", mine, kept, 16, &error) == STATUS_OK,
           "secret", &error);
    atomic_fetch_add(&member->crowd->verdicts[0], kept[0]);
    if (memcmp(mine, kept, 16) == 0)
        atomic_store(&member->crowd->won, kept[0]);
    return NULL;
}

static void test_crowd__one_secret_for_all(void **state)
{
    struct crowd *crowd = *state;

    run_crowd(crowd, keep_secret);
    assert_true(crowd->won >= 'a');
    assert_int_equal(crowd->verdicts[0], THREADS * crowd->won);
}

/* Each takes a policy that nobody looks after, and is dead at once. */
static void *take(void *context)
{
    const struct member *member = context;
    char holder[16];
    struct error error = {""};

    snprintf(holder, sizeof(holder), "steward-%d", member->number);
    pthread_barrier_wait(&member->crowd->start);
    for (int i = 0; i < 10; i++) {
        struct ledger_stewardship taken;
        enum status status = ledger_steward_take(member->fixture->ledger, member->crowd->policy.id,
                                                 holder, 0, &taken, &error);
        expect(member->crowd, status == STATUS_OK, "take", &error);
        /* One who comes while another takes it is told so. */
        if (status == STATUS_OK && taken.is_held) {
            expect(member->crowd, taken.term == taken.previous + 1, "one after the other", &error);
            atomic_fetch_add(&member->crowd->won, 1);
        }
    }
    return NULL;
}

static bool note_term(void *context, const struct ledger_term *term)
{
    *(int64_t *)context = term->term;
    return true;
}

static void test_crowd__no_term_is_taken_twice(void **state)
{
    struct crowd *crowd = *state;
    struct fixture *first = crowd->first;
    int64_t newest = 0;

    crowd->policy = create(first, 1, &crowd->lease);
    ask(first->session, "DELETE FROM steward"); /* whoever created it has given it up */
    run_crowd(crowd, take);
    check(first, ledger_steward_beat(first->ledger, "", 0, note_term, &newest, &first->error));
    assert_true(newest > 0);
    assert_int_equal(crowd->won, newest);
}

int ledger_suite_run_crowds(void)
{
#define CROWD_TEST(name) \
    cmocka_unit_test_setup_teardown(test_crowd__##name, set_up_crowd, tear_down_crowd)
    const struct CMUnitTest tests[] = {
        CROWD_TEST(overlapping_batches_in_any_order),
        CROWD_TEST(races_for_the_last_units),
        CROWD_TEST(one_user_from_everywhere),
        CROWD_TEST(a_request_is_one_claim),
        CROWD_TEST(every_policy_has_its_id),
        CROWD_TEST(leases_come_and_go),
        CROWD_TEST(writes_and_stock_is_conserved),
        CROWD_TEST(a_coupon_is_redeemed_or_cancelled),
        CROWD_TEST(one_secret_for_all),
        CROWD_TEST(no_term_is_taken_twice),
    };
    return cmocka_run_group_tests_name("ledger: crowds", tests, NULL, NULL);
}
