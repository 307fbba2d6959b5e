/* test_fallback.c: claims from unleased stock, decided by the tables alone. */

#include "database.h"
#include "ledger/issue.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

#define NOW INT64_C(1763200000000)

struct fixture {
    struct database database;
    struct policy policy;
    struct lease lease;
    int requests;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    database_open(&fixture->database);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    int64_t imbalance = database_imbalance(&fixture->database);
    database_close(&fixture->database);
    free(fixture);
    if (imbalance != 0)
        print_error("stock is not conserved: %lld\n", (long long)imbalance);
    return imbalance == 0 ? 0 : -1;
}

/* --- moves --- */

static void create(struct fixture *fixture, int64_t total, int64_t reserve, int32_t per_user_limit)
{
    struct create_policy create = {.policy = &fixture->policy, .lease = &fixture->lease};
    fixture->policy = (struct policy){.name = "test",
                                      .discount_value = 1,
                                      .total = total,
                                      .reserve = reserve,
                                      .per_user_limit = per_user_limit};
    database_write(&fixture->database, transaction_create_policy, &create);
}

/* What a client calls its attempt; one without a key is named by the server. */
static struct request_id key_of(uint8_t number)
{
    return (struct request_id){{0x80, number}};
}

static struct request_id fresh(struct fixture *fixture)
{
    struct request_id id = {{0}};
    fixture->requests++;
    memcpy(id.bytes + 8, &fixture->requests, sizeof(fixture->requests));
    return id;
}

static struct ledger_wish claim_as(struct fixture *fixture, const char *user, struct request_id id)
{
    struct ledger_wish wish = {.policy_id = fixture->policy.id,
                               .user = id_of(span_of(user)),
                               .request_id = id,
                               .now_ms = NOW};
    database_write(&fixture->database, fallback_claim, &wish);
    return wish;
}

static struct ledger_wish claim(struct fixture *fixture, const char *user)
{
    return claim_as(fixture, user, fresh(fixture));
}

static enum verdict verdict_of(struct fixture *fixture, const char *user)
{
    return claim(fixture, user).verdict;
}

static void cancel(struct fixture *fixture, int64_t seq)
{
    struct coupon coupon;
    struct cancel_coupon cancel = {.policy_id = fixture->policy.id,
                                   .seq = seq,
                                   .now_ms = NOW,
                                   .coupon = &coupon,
                                   .policy = &fixture->policy};
    database_write(&fixture->database, transaction_cancel_coupon, &cancel);
}

static void block(struct fixture *fixture, const char *name, bool blocked)
{
    struct id user = id_of(span_of(name));
    struct block_user block = {.user = &user, .blocked = blocked, .now_ms = NOW};
    database_write(&fixture->database, transaction_block_user, &block);
}

static int64_t number(struct fixture *fixture, const char *text)
{
    return database_number(&fixture->database, text);
}

static void execute(struct fixture *fixture, const char *text)
{
    database_execute(&fixture->database, text);
}

/* --- verdicts --- */

/* Everything speaks against the claim; one reason after the other is taken away. */
static void test_fallback__order_of_verdicts(void **state)
{
    struct fixture *fixture = *state;
    struct request_id mine = key_of(1);
    struct request_id theirs = key_of(2);

    create(fixture, 4, 4, 2);
    assert_int_equal(claim_as(fixture, "u", mine).verdict, VERDICT_WON);
    assert_int_equal(verdict_of(fixture, "u"), VERDICT_WON);
    assert_int_equal(claim_as(fixture, "v", theirs).verdict, VERDICT_WON);
    assert_int_equal(verdict_of(fixture, "w"), VERDICT_WON);
    block(fixture, "u", true);
    execute(fixture, "UPDATE policy SET closed_at = 1, paused = 1, opens_at = 1763200000001,"
                     " closes_at = 1763200000000");

    fixture->policy.id++;
    assert_int_equal(claim_as(fixture, "u", theirs).verdict, VERDICT_NO_POLICY);
    fixture->policy.id--;
    assert_int_equal(claim_as(fixture, "u", mine).verdict, VERDICT_HELD);
    assert_int_equal(verdict_of(fixture, "u"), VERDICT_BLOCKED);
    block(fixture, "u", false);
    assert_int_equal(verdict_of(fixture, "u"), VERDICT_CLOSED);
    execute(fixture, "UPDATE policy SET closed_at = NULL");
    assert_int_equal(verdict_of(fixture, "u"), VERDICT_CLOSED);
    execute(fixture, "UPDATE policy SET closes_at = 1763200000002");
    assert_int_equal(verdict_of(fixture, "u"), VERDICT_PAUSED);
    execute(fixture, "UPDATE policy SET paused = 0");
    struct ledger_wish early = claim(fixture, "u");
    assert_int_equal(early.verdict, VERDICT_NOT_OPEN);
    assert_int_equal(early.opens_at_ms, NOW + 1);
    execute(fixture, "UPDATE policy SET opens_at = 1763200000000");
    assert_int_equal(verdict_of(fixture, "u"), VERDICT_LIMIT_REACHED);
    assert_int_equal(verdict_of(fixture, "x"), VERDICT_UNAVAILABLE);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon"), 4);
}

/* With a limit of one the claim is held by the user too, whatever else there is to say. */
static void test_fallback__a_holder_is_told_first(void **state)
{
    struct fixture *fixture = *state;

    create(fixture, 1, 1, 1);
    struct ledger_wish won = claim(fixture, "u");
    assert_int_equal(won.verdict, VERDICT_WON);
    block(fixture, "u", true);
    execute(fixture, "UPDATE policy SET closed_at = 1, paused = 1");
    struct ledger_wish held = claim(fixture, "u");
    assert_int_equal(held.verdict, VERDICT_HELD);
    assert_int_equal(held.coupon.claim.seq, won.coupon.claim.seq);
    assert_memory_equal(&held.coupon.claim.request_id, &won.request_id, sizeof(won.request_id));
    cancel(fixture, won.coupon.claim.seq);
    assert_int_equal(verdict_of(fixture, "u"), VERDICT_BLOCKED); /* nothing is held any more */
}

/* --- resends and keys --- */

static void test_fallback__a_resend_finds_its_claim(void **state)
{
    struct fixture *fixture = *state;

    create(fixture, 5, 5, 3);
    struct request_id unkeyed = fresh(fixture);
    struct request_id keyed = key_of(1);
    struct ledger_wish first = claim_as(fixture, "u", unkeyed);
    struct ledger_wish second = claim_as(fixture, "u", keyed);
    assert_int_equal(second.verdict, VERDICT_WON);
    for (int i = 0; i < 3; i++) {
        struct ledger_wish again = claim_as(fixture, "u", unkeyed);
        assert_int_equal(again.verdict, VERDICT_HELD);
        assert_int_equal(again.coupon.claim.seq, first.coupon.claim.seq);
        again = claim_as(fixture, "u", keyed);
        assert_int_equal(again.verdict, VERDICT_HELD);
        assert_int_equal(again.coupon.claim.seq, second.coupon.claim.seq);
    }
    /* A key answers with its claim after a cancel too. */
    cancel(fixture, second.coupon.claim.seq);
    struct ledger_wish cancelled = claim_as(fixture, "u", keyed);
    assert_int_equal(cancelled.verdict, VERDICT_HELD);
    assert_int_equal(cancelled.coupon.state, COUPON_CANCELLED);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon"), 2);
}

static void test_fallback__a_200_binds_the_key(void **state)
{
    struct fixture *fixture = *state;

    create(fixture, 5, 5, 1);
    struct ledger_wish won = claim_as(fixture, "u", key_of(1));
    /* A 200 for a claim already held binds the key to it; a refusal binds none. */
    assert_int_equal(claim_as(fixture, "u", key_of(2)).verdict, VERDICT_HELD);
    block(fixture, "w", true);
    assert_int_equal(claim_as(fixture, "w", key_of(3)).verdict, VERDICT_BLOCKED);
    block(fixture, "w", false);
    assert_int_equal(claim_as(fixture, "w", key_of(3)).verdict, VERDICT_WON);
    cancel(fixture, won.coupon.claim.seq);
    for (uint8_t key = 1; key <= 2; key++) {
        struct ledger_wish again = claim_as(fixture, "u", key_of(key));
        assert_int_equal(again.verdict, VERDICT_HELD);
        assert_int_equal(again.coupon.claim.seq, won.coupon.claim.seq);
        assert_int_equal(again.coupon.state, COUPON_CANCELLED);
    }
    /* Another policy's keys are its own. */
    create(fixture, 5, 5, 1);
    assert_int_equal(claim_as(fixture, "u", key_of(1)).verdict, VERDICT_WON);
}

/* One claim keeps so many keys; the next is refused, and nothing has changed. */
static void test_fallback__keys_of_one_claim_are_bounded(void **state)
{
    struct fixture *fixture = *state;

    create(fixture, 5, 5, 1);
    struct ledger_wish won = claim_as(fixture, "u", key_of(0));
    for (uint8_t key = 1; key <= CLAIM_KEYS_MAX; key++)
        assert_int_equal(claim_as(fixture, "u", key_of(key)).verdict, VERDICT_HELD);
    for (int i = 0; i < 2; i++)
        assert_int_equal(claim_as(fixture, "u", key_of(CLAIM_KEYS_MAX + 1)).verdict,
                         VERDICT_KEYS_FULL);
    for (uint8_t key = 0; key <= CLAIM_KEYS_MAX; key++)
        assert_int_equal(claim_as(fixture, "u", key_of(key)).verdict, VERDICT_HELD);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM claim_key"), CLAIM_KEYS_MAX);
    cancel(fixture, won.coupon.claim.seq);
    assert_int_equal(claim_as(fixture, "u", key_of(CLAIM_KEYS_MAX + 1)).verdict, VERDICT_WON);
}

/* What the gate gave and the ledger wrote: its own key is in the row, and a claim that came to
 * nothing answers no request. */
static void test_fallback__a_key_that_won_at_the_gate(void **state)
{
    struct fixture *fixture = *state;
    struct database *database = &fixture->database;
    struct issue_room room = {0};
    enum coupon_state became[2];

    create(fixture, 10, 5, 3);
    struct claim claims[2] = {{.policy_id = fixture->policy.id,
                               .seq = 1,
                               .lease_id = fixture->lease.id,
                               .requested_at_ms = NOW,
                               .request_id = key_of(1),
                               .nth = 1,
                               .user = id_of(SPAN("u"))}};
    claims[1] = claims[0];
    claims[1].seq = 2;
    claims[1].user = id_of(SPAN("v"));
    claims[1].request_id = key_of(2);
    block(fixture, "v", true);
    database_begin(database);
    database_check(database, issue_claims(&database->sql, &room, claims, 2, ISSUE_WHOLE, NOW,
                                          became, &database->error));
    database_commit(database);
    issue_room_release(&room);
    assert_int_equal(became[1], COUPON_VOID);
    block(fixture, "v", false);
    struct ledger_wish held = claim_as(fixture, "u", key_of(1));
    assert_int_equal(held.verdict, VERDICT_HELD);
    assert_int_equal(held.coupon.claim.seq, 1);
    cancel(fixture, 1);
    held = claim_as(fixture, "u", key_of(1));
    assert_int_equal(held.verdict, VERDICT_HELD);
    assert_int_equal(held.coupon.state, COUPON_CANCELLED);
    assert_int_equal(claim_as(fixture, "v", key_of(2)).verdict, VERDICT_WON);
}

/* Keys that the gate bound while it was there. */
static void test_fallback__keys_of_the_gate(void **state)
{
    struct fixture *fixture = *state;
    struct database *database = &fixture->database;

    create(fixture, 5, 5, 2);
    struct ledger_wish won = claim(fixture, "u");
    struct key_binding bindings[] = {
        {.policy_id = fixture->policy.id, .seq = won.coupon.claim.seq, .request_id = key_of(1)},
        {.policy_id = fixture->policy.id, .seq = 4444, .request_id = key_of(2)}};
    database_begin(database);
    database_check(database, issue_bindings(&database->sql, bindings, 2, &database->error));
    database_commit(database);
    struct ledger_wish held = claim_as(fixture, "u", key_of(1));
    assert_int_equal(held.verdict, VERDICT_HELD);
    assert_int_equal(held.coupon.claim.seq, won.coupon.claim.seq);
    /* Its claim came to nothing: the key names none. */
    assert_int_equal(claim_as(fixture, "v", key_of(2)).verdict, VERDICT_WON);
}

/* --- slots --- */

static void test_fallback__slots_up_to_the_limit(void **state)
{
    struct fixture *fixture = *state;

    create(fixture, 10, 10, 3);
    for (int32_t nth = 1; nth <= 3; nth++) {
        struct ledger_wish wish = claim(fixture, "u");
        assert_int_equal(wish.verdict, VERDICT_WON);
        assert_int_equal(wish.coupon.claim.nth, nth);
    }
    assert_int_equal(verdict_of(fixture, "u"), VERDICT_LIMIT_REACHED);
    assert_int_equal(claim(fixture, "v").coupon.claim.nth, 1);
}

/* Trap 32. */
static void test_fallback__freed_slots_are_taken_again(void **state)
{
    struct fixture *fixture = *state;

    create(fixture, 10, 10, 3);
    int64_t seqs[4] = {0};
    for (int nth = 1; nth <= 3; nth++)
        seqs[nth] = claim(fixture, "u").coupon.claim.seq;
    for (int round = 0; round < 100; round++) {
        int nth = round % 3 + 1;
        cancel(fixture, seqs[nth]);
        struct ledger_wish wish = claim(fixture, "u");
        assert_int_equal(wish.verdict, VERDICT_WON);
        assert_int_equal(wish.coupon.claim.nth, nth);
        assert_true(wish.coupon.claim.seq > seqs[nth]);
        seqs[nth] = wish.coupon.claim.seq;
        assert_int_equal(verdict_of(fixture, "u"), VERDICT_LIMIT_REACHED);
    }
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon WHERE slot IS NOT NULL"), 3);
    assert_int_equal(number(fixture, "SELECT unleased FROM policy"), 7);
}

/* --- stock --- */

/* Trap 19: what is lent to the gate is not touched, and its seqs are not given out. */
static void test_fallback__only_unleased_stock(void **state)
{
    struct fixture *fixture = *state;

    create(fixture, 10, 3, 1);
    assert_int_equal(fixture->lease.count, 7);
    for (int i = 0; i < 3; i++) {
        char user[8];
        snprintf(user, sizeof(user), "u%d", i);
        struct ledger_wish wish = claim(fixture, user);
        assert_int_equal(wish.verdict, VERDICT_WON);
        assert_int_equal(wish.coupon.claim.seq, 8 + i);
    }
    /* Seven are left in the gate: that is not SOLD_OUT. */
    assert_int_equal(verdict_of(fixture, "late"), VERDICT_UNAVAILABLE);
    assert_int_equal(number(fixture, "SELECT count FROM lease WHERE state = 'OPEN'"), 7);
    assert_int_equal(number(fixture, "SELECT COUNT(*) FROM coupon WHERE seq <= 7"), 0);
    assert_int_equal(number(fixture, "SELECT next_seq FROM policy"), 11);
    cancel(fixture, 9);
    struct ledger_wish again = claim(fixture, "late");
    assert_int_equal(again.verdict, VERDICT_WON);
    assert_int_equal(again.coupon.claim.seq, 11);
}

/* Trap 31: who had also won at the gate is merged, and the gate's unit returns. */
static void test_fallback__the_gates_win_is_merged(void **state)
{
    struct fixture *fixture = *state;
    struct database *database = &fixture->database;
    struct issue_room room = {0};
    enum coupon_state became = COUPON_EXPIRED;

    create(fixture, 4, 2, 1);
    struct ledger_wish won = claim(fixture, "u");
    struct claim pending = {.policy_id = fixture->policy.id,
                            .seq = 1,
                            .lease_id = fixture->lease.id,
                            .requested_at_ms = NOW,
                            .nth = 1,
                            .user = won.user};
    database_begin(database);
    database_check(database, issue_claims(&database->sql, &room, &pending, 1, ISSUE_WHOLE, NOW,
                                          &became, &database->error));
    database_commit(database);
    issue_room_release(&room);
    assert_int_equal(became, COUPON_MERGED);
    assert_int_equal(number(fixture, "SELECT merged_into FROM coupon WHERE seq = 1"),
                     won.coupon.claim.seq);
    assert_int_equal(number(fixture, "SELECT unleased FROM policy"), 2);
}

/* --- the coupon --- */

static void test_fallback__the_coupon_is_the_row(void **state)
{
    struct fixture *fixture = *state;
    struct coupon row;

    create(fixture, 5, 5, 1);
    for (int round = 0; round < 3; round++) {
        static const char *const changes[] = {"UPDATE policy SET coupon_valid_days = NULL",
                                              "UPDATE policy SET coupon_expires_at = 1763200001000",
                                              ("UPDATE policy SET coupon_valid_days = 2,"
                                               " coupon_expires_at = 1764000000000")};
        static const int64_t expires_at_ms[] = {0, NOW + 1000, NOW + 2 * DAY_MS};
        char user[8];
        snprintf(user, sizeof(user), "u%d", round);
        execute(fixture, changes[round]);
        struct ledger_wish wish = claim_as(fixture, user, key_of((uint8_t)round));
        assert_int_equal(wish.verdict, VERDICT_WON);
        database_check(&fixture->database,
                       rows_coupon_by_seq(&fixture->database.sql, fixture->policy.id,
                                          wish.coupon.claim.seq, ROWS_LOOK, &row,
                                          &fixture->database.error));
        assert_memory_equal(&row.claim.request_id, &wish.request_id, sizeof(wish.request_id));
        assert_true(id_equal(&row.claim.user, &wish.user));
        assert_int_equal(row.state, COUPON_ISSUED);
        assert_int_equal(row.claim.nth, 1);
        assert_int_equal(row.claim.lease_id, 0);
        assert_int_equal(row.claim.requested_at_ms, NOW);
        assert_int_equal(row.issued_at_ms, wish.coupon.issued_at_ms);
        assert_int_equal(row.expires_at_ms, expires_at_ms[round]);
        assert_int_equal(wish.coupon.expires_at_ms, expires_at_ms[round]);
    }
}

int main(void)
{
#define FALLBACK_TEST(name) \
    cmocka_unit_test_setup_teardown(test_fallback__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FALLBACK_TEST(order_of_verdicts),
        FALLBACK_TEST(a_holder_is_told_first),
        FALLBACK_TEST(a_resend_finds_its_claim),
        FALLBACK_TEST(a_200_binds_the_key),
        FALLBACK_TEST(keys_of_one_claim_are_bounded),
        FALLBACK_TEST(a_key_that_won_at_the_gate),
        FALLBACK_TEST(keys_of_the_gate),
        FALLBACK_TEST(slots_up_to_the_limit),
        FALLBACK_TEST(freed_slots_are_taken_again),
        FALLBACK_TEST(only_unleased_stock),
        FALLBACK_TEST(the_gates_win_is_merged),
        FALLBACK_TEST(the_coupon_is_the_row),
    };
    return cmocka_run_group_tests_name("fallback", tests, NULL, NULL);
}
