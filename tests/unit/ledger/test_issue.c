/* test_issue.c: batches of claims in which not everything is plain, on a real database. */
#include "ledger/issue.h"

#include "database.h"
#include "ledger/rows.h"

#define NOW       INT64_C(1763200000000)
#define BATCH_MAX 500

struct fixture {
    struct database database;
    struct issue_room room;
    struct policy policy;
    struct lease lease;
};

static struct sql *sql_of(struct fixture *fixture)
{
    return &fixture->database.sql;
}

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
    issue_room_release(&fixture->room);
    database_close(&fixture->database);
    free(fixture);
    return 0;
}

/* --- transactions --- */

static void create(struct fixture *fixture, int64_t total, int64_t reserve)
{
    struct create_policy create = {.policy = &fixture->policy, .lease = &fixture->lease};
    fixture->policy = (struct policy){.name = "test",
                                      .discount_value = 1,
                                      .total = total,
                                      .reserve = reserve,
                                      .per_user_limit = 1};
    database_write(&fixture->database, transaction_create_policy, &create);
}

static void close_lease(struct fixture *fixture)
{
    struct close_lease close = {.lease_id = fixture->lease.id};
    database_write(&fixture->database, transaction_close_lease, &close);
}

static void block(struct fixture *fixture, const char *name)
{
    struct id user = id_of(span_of(name));
    struct block_user block = {.user = &user, .blocked = true, .now_ms = NOW};
    database_write(&fixture->database, transaction_block_user, &block);
}

static struct claim claim_of(struct fixture *fixture, int64_t seq, const char *user, int nth)
{
    struct claim claim = {.policy_id = fixture->policy.id,
                          .seq = seq,
                          .lease_id = fixture->lease.id,
                          .requested_at_ms = NOW,
                          .nth = nth,
                          .user = id_of(span_of(user))};
    memcpy(claim.request_id.bytes + 8, &seq, sizeof(seq));
    claim.request_id.bytes[7] = (uint8_t)user[0];
    return claim;
}

static enum status try_issue(struct fixture *fixture, const struct claim *claims, size_t count,
                             enum issue_care care, enum coupon_state *states)
{
    for (size_t i = 0; i < count; i++)
        states[i] = COUPON_EXPIRED; /* never written by issue_claims() */
    database_begin(&fixture->database);
    enum status status = issue_claims(sql_of(fixture), &fixture->room, claims, count, care, NOW,
                                      states, &fixture->database.error);
    if (status == STATUS_OK)
        database_commit(&fixture->database);
    else
        sql_of(fixture)->driver->rollback(sql_of(fixture)->session);
    return status;
}

static void issue(struct fixture *fixture, const struct claim *claims, size_t count,
                  enum coupon_state *states)
{
    database_check(&fixture->database, try_issue(fixture, claims, count, ISSUE_WHOLE, states));
}

/* As the writer does it when the database does not take a row. */
static void issue_with_care(struct fixture *fixture, const struct claim *claims, size_t count,
                            enum coupon_state *states)
{
    enum status status = try_issue(fixture, claims, count, ISSUE_WHOLE, states);
    assert_true(status == STATUS_INVALID || status == STATUS_CONFLICT);
    database_check(&fixture->database, try_issue(fixture, claims, count, ISSUE_SPLIT, states));
}

static bool has_coupon(struct fixture *fixture, int64_t seq)
{
    struct coupon coupon;
    return rows_coupon_by_seq(sql_of(fixture), fixture->policy.id, seq, ROWS_LOOK, &coupon,
                              &fixture->database.error) == STATUS_OK;
}

static struct coupon coupon_at(struct fixture *fixture, int64_t seq)
{
    struct coupon coupon;
    database_check(&fixture->database,
                   rows_coupon_by_seq(sql_of(fixture), fixture->policy.id, seq, ROWS_LOOK, &coupon,
                                      &fixture->database.error));
    return coupon;
}

static int64_t unleased(struct fixture *fixture)
{
    struct policy policy;
    database_check(&fixture->database,
                   rows_policy_by_id(sql_of(fixture), fixture->policy.id, ROWS_LOOK, &policy,
                                     &fixture->database.error));
    return policy.unleased;
}

/* --- tests --- */

/* Traps 17 and 22: whatever one claim meets, its neighbours are plain winners. */
static void test_issue__every_kind_in_one_batch(void **state)
{
    struct fixture *fixture = *state;
    static struct claim claims[BATCH_MAX];
    static enum coupon_state states[BATCH_MAX];
    size_t count = 0;

    create(fixture, 1000, 0);
    block(fixture, "bad");
    struct claim early[] = {claim_of(fixture, 50, "early", 1), claim_of(fixture, 60, "holder", 1)};
    issue(fixture, early, 2, states);
    for (int64_t seq = 1; seq <= 300; seq++) {
        char user[16];
        snprintf(user, sizeof(user), "u%d", (int)seq);
        if (seq == 50)
            claims[count++] = early[0]; /* the very same claim again */
        else if (seq == 60)
            claims[count++] = claim_of(fixture, 60, "intruder", 1); /* another's seq */
        else if (seq == 1 || seq == 100 || seq == 300)
            claims[count++] = claim_of(fixture, seq, "bad", 1);
        else if (seq == 200)
            claims[count++] = claim_of(fixture, seq, "early", 1); /* the slot is taken */
        else
            claims[count++] = claim_of(fixture, seq, user, 1);
    }
    issue(fixture, claims, count, states);
    for (int64_t seq = 1; seq <= 300; seq++) {
        enum coupon_state expected = COUPON_ISSUED;
        if (seq == 1 || seq == 60 || seq == 100 || seq == 300)
            expected = COUPON_VOID;
        else if (seq == 200)
            expected = COUPON_MERGED;
        assert_int_equal(states[seq - 1], expected);
        struct coupon coupon = coupon_at(fixture, seq);
        assert_int_equal(coupon.state, seq == 60 ? COUPON_ISSUED : expected);
        if (seq != 60)
            assert_true(id_equal(&coupon.claim.user, &claims[seq - 1].user));
    }
    assert_int_equal(coupon_at(fixture, 200).merged_into_seq, 50);
    assert_true(coupon_at(fixture, 100).reason[0] != '\0');
    struct coupon held = coupon_at(fixture, 60);
    assert_true(span_equal(id_span(&held.claim.user), SPAN("holder")));
    assert_int_equal(unleased(fixture), 4); /* three blocked, one merged */
}

/* What is tried again after an unknown outcome changes nothing. */
static void test_issue__the_whole_batch_again(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state first[4];
    enum coupon_state again[4];

    create(fixture, 10, 0);
    block(fixture, "bad");
    struct claim claims[] = {claim_of(fixture, 1, "a", 1), claim_of(fixture, 2, "bad", 1),
                             claim_of(fixture, 3, "a", 1), claim_of(fixture, 4, "b", 1)};
    issue(fixture, claims, 4, first);
    assert_int_equal(first[0], COUPON_ISSUED);
    assert_int_equal(first[1], COUPON_VOID);
    assert_int_equal(first[2], COUPON_MERGED);
    assert_int_equal(unleased(fixture), 2);
    for (int i = 0; i < 3; i++) {
        issue(fixture, claims, 4, again);
        assert_memory_equal(again, first, sizeof(first));
        assert_int_equal(unleased(fixture), 2);
    }
    /* Also when the user was blocked since: the coupon is theirs. */
    block(fixture, "b");
    issue(fixture, claims + 3, 1, again);
    assert_int_equal(again[0], COUPON_ISSUED);
    assert_int_equal(unleased(fixture), 2);
}

static void test_issue__rolled_back_leaves_nothing(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[2];

    create(fixture, 10, 0);
    struct claim claims[] = {claim_of(fixture, 1, "a", 1), claim_of(fixture, 2, "a", 1)};
    database_begin(&fixture->database);
    database_check(&fixture->database,
                   issue_claims(sql_of(fixture), &fixture->room, claims, 2, ISSUE_WHOLE, NOW,
                                states, &fixture->database.error));
    sql_of(fixture)->driver->rollback(sql_of(fixture)->session);
    assert_int_equal(unleased(fixture), 0);
    assert_false(has_coupon(fixture, 1));
    issue(fixture, claims, 2, states);
    assert_int_equal(states[0], COUPON_ISSUED);
    assert_int_equal(states[1], COUPON_MERGED);
    assert_int_equal(unleased(fixture), 1);
}

/* Late claims take units of their own while there are any, in their order, and no more. */
static void test_issue__late_claims_take_what_is_left(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[6];

    create(fixture, 3, 0);
    struct claim claims[] = {claim_of(fixture, 1, "a", 1), claim_of(fixture, 2, "b", 1),
                             claim_of(fixture, 3, "c", 1), claim_of(fixture, 4, "d", 1),
                             claim_of(fixture, 5, "a", 1), claim_of(fixture, 6, "e", 1)};
    issue(fixture, claims, 1, states);
    close_lease(fixture);
    assert_int_equal(unleased(fixture), 2);
    issue(fixture, claims + 1, 5, states + 1);
    assert_int_equal(states[1], COUPON_ISSUED);
    assert_int_equal(states[2], COUPON_ISSUED);
    for (int i = 3; i < 6; i++)
        assert_int_equal(states[i], COUPON_VOID);
    assert_int_equal(unleased(fixture), 0);
    issue(fixture, claims, 6, states);
    assert_int_equal(states[0], COUPON_ISSUED);
    assert_int_equal(states[4], COUPON_VOID);
    assert_int_equal(unleased(fixture), 0);
}

/* A late claim that is merged gives back the unit it took. */
static void test_issue__late_and_merged(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[2];

    create(fixture, 5, 0);
    struct claim claims[] = {claim_of(fixture, 1, "a", 1), claim_of(fixture, 2, "a", 1)};
    issue(fixture, claims, 1, states);
    close_lease(fixture);
    issue(fixture, claims + 1, 1, states + 1);
    assert_int_equal(states[1], COUPON_MERGED);
    assert_int_equal(coupon_at(fixture, 2).merged_into_seq, 1);
    assert_int_equal(unleased(fixture), 4);
}

/* Seqs that the lease does not have are not covered by it, nor are another policy's. */
static void test_issue__outside_its_lease(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[2];

    create(fixture, 3, 1);
    struct claim claims[] = {claim_of(fixture, 3, "a", 1), claim_of(fixture, 4, "b", 1)};
    assert_int_equal(fixture->lease.count, 2);
    issue(fixture, claims, 2, states);
    assert_int_equal(states[0], COUPON_ISSUED); /* from the one unit that was unleased */
    assert_int_equal(states[1], COUPON_VOID);
    assert_int_equal(unleased(fixture), 0);
    struct lease first = fixture->lease;
    create(fixture, 3, 0);
    struct claim foreign = claim_of(fixture, 1, "a", 1);
    foreign.lease_id = first.id;
    issue(fixture, &foreign, 1, states);
    assert_int_equal(states[0], COUPON_VOID);
}

/* --- rows the database does not take --- */

/* Users named bad… are refused, as by a shop's own trigger. */
static void refuse_bad(struct fixture *fixture, const char *when)
{
    char text[256];
    snprintf(text, sizeof(text),
             "CREATE TRIGGER refuse_bad BEFORE INSERT ON coupon WHEN NEW.user_id LIKE 'bad%%'%s"
             " BEGIN SELECT RAISE(ABORT, 'no bad users here'); END",
             when);
    database_execute(&fixture->database, text);
}

/* Trap 22: all but the bad ones are issued, and what happened to them can be read. */
static void test_issue__bad_rows_are_refused_alone(void **state)
{
    struct fixture *fixture = *state;
    static const int64_t bad[][3] = {{1}, {250}, {BATCH_MAX}, {1, BATCH_MAX}, {3, 4, 499}};
    static struct claim claims[BATCH_MAX];
    static enum coupon_state states[BATCH_MAX];

    refuse_bad(fixture, "");
    for (size_t round = 0; round < sizeof(bad) / sizeof(bad[0]); round++) {
        int64_t bad_count = 0;
        create(fixture, BATCH_MAX, 0);
        for (int64_t seq = 1; seq <= BATCH_MAX; seq++) {
            char user[16];
            bool is_bad = seq == bad[round][0] || seq == bad[round][1] || seq == bad[round][2];
            bad_count += is_bad;
            snprintf(user, sizeof(user), "%s%d", is_bad ? "bad" : "u", (int)seq);
            claims[seq - 1] = claim_of(fixture, seq, user, 1);
        }
        issue_with_care(fixture, claims, BATCH_MAX, states);
        for (int64_t seq = 1; seq <= BATCH_MAX; seq++) {
            bool is_bad = claims[seq - 1].user.bytes[0] == 'b';
            assert_int_equal(states[seq - 1], is_bad ? COUPON_VOID : COUPON_ISSUED);
            assert_int_equal(coupon_at(fixture, seq).state, states[seq - 1]);
        }
        assert_int_equal(unleased(fixture), bad_count); /* a VOID row keeps the place of each */
        close_lease(fixture);
        assert_int_equal(unleased(fixture), bad_count);
        assert_int_equal(database_imbalance(&fixture->database), 0);
    }
}

/* Late claims take their unit before they are written; a refused one gives it back. */
static void test_issue__bad_rows_among_late_claims(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[6];

    refuse_bad(fixture, "");
    create(fixture, 6, 0);
    struct claim claims[] = {claim_of(fixture, 1, "a", 1),    claim_of(fixture, 2, "bad1", 1),
                             claim_of(fixture, 3, "c", 1),    claim_of(fixture, 4, "d", 1),
                             claim_of(fixture, 5, "bad2", 1), claim_of(fixture, 6, "a", 1)};
    close_lease(fixture);
    issue_with_care(fixture, claims, 6, states);
    static const enum coupon_state expected[] = {COUPON_ISSUED, COUPON_VOID, COUPON_ISSUED,
                                                 COUPON_ISSUED, COUPON_VOID, COUPON_MERGED};
    assert_memory_equal(states, expected, sizeof(expected));
    assert_int_equal(unleased(fixture), 3);
    assert_int_equal(database_imbalance(&fixture->database), 0);
}

/* The last late claim finds the unit that a refused one in front of it did not need. */
static void test_issue__bad_row_leaves_its_unit_to_the_next(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[2];

    refuse_bad(fixture, "");
    create(fixture, 1, 0);
    struct claim claims[] = {claim_of(fixture, 1, "bad", 1), claim_of(fixture, 2, "b", 1)};
    close_lease(fixture);
    issue_with_care(fixture, claims, 2, states);
    assert_int_equal(states[0], COUPON_VOID);
    assert_int_equal(states[1], COUPON_ISSUED);
    assert_int_equal(unleased(fixture), 0);
}

/* A row that is refused only once it is known that it has to be merged, or void. */
static void test_issue__bad_rows_that_are_no_plain_wins(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[3];

    refuse_bad(fixture, " AND NEW.state <> 'ISSUED'");
    block(fixture, "bad2");
    for (int is_late = 0; is_late < 2; is_late++) {
        create(fixture, 5, 0);
        struct claim claims[] = {claim_of(fixture, 1, "bad1", 1), claim_of(fixture, 2, "bad1", 1),
                                 claim_of(fixture, 3, "bad2", 1)};
        issue(fixture, claims, 1, states);
        if (is_late)
            close_lease(fixture);
        issue_with_care(fixture, claims, 3, states);
        assert_int_equal(states[0], COUPON_ISSUED);
        assert_int_equal(states[1], COUPON_VOID);
        assert_int_equal(states[2], COUPON_VOID);
        assert_int_equal(coupon_at(fixture, 2).state, COUPON_VOID);
        assert_int_equal(coupon_at(fixture, 3).state, COUPON_VOID);
        assert_int_equal(unleased(fixture), is_late ? 4 : 2);
        assert_int_equal(database_imbalance(&fixture->database), 0);
    }
}

/* Its unit has returned: it stays VOID when it comes again, although the rule is gone. */
static void test_issue__a_refused_claim_that_comes_again_stays_void(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[4];

    for (int is_late = 0; is_late < 2; is_late++) {
        refuse_bad(fixture, "");
        create(fixture, 5, 0);
        struct claim claims[] = {claim_of(fixture, 1, "a", 1), claim_of(fixture, 2, "bad", 1),
                                 claim_of(fixture, 3, "c", 1), claim_of(fixture, 2, "d", 1)};
        if (is_late)
            close_lease(fixture);
        issue_with_care(fixture, claims, 3, states);
        int64_t left = unleased(fixture);
        database_execute(&fixture->database, "DROP TRIGGER refuse_bad");
        issue(fixture, claims, 3, states);
        static const enum coupon_state expected[] = {COUPON_ISSUED, COUPON_VOID, COUPON_ISSUED};
        assert_memory_equal(states, expected, sizeof(expected));
        issue(fixture, claims + 3, 1, states); /* another one with its seq */
        assert_int_equal(states[0], COUPON_VOID);
        assert_int_equal(unleased(fixture), left);
        assert_int_equal(database_imbalance(&fixture->database), 0);
        struct coupon refused = coupon_at(fixture, 2);
        assert_true(span_equal(id_span(&refused.claim.user), SPAN("bad")));
        assert_string_equal(refused.reason, "the database refused it");
    }
}

/* Kafka hands a claim over once more after its user was erased, and has come anew since. */
static void test_issue__a_claim_comes_again_after_its_user_was_erased(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[3];

    create(fixture, 5, 0);
    struct claim claims[] = {claim_of(fixture, 1, "a", 1), claim_of(fixture, 2, "b", 1),
                             claim_of(fixture, 3, "a", 1)};
    issue(fixture, claims, 2, states);
    database_execute(&fixture->database,
                     "UPDATE coupon SET user_id = 'erased-0123456789abcdef0123456789abcdef' "
                     "WHERE user_id = 'a'");
    issue(fixture, claims + 2, 1, states);
    int64_t left = unleased(fixture);
    issue(fixture, claims, 3, states);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(states[i], COUPON_ISSUED);
    struct coupon erased = coupon_at(fixture, 1);
    assert_true(
        span_equal(id_span(&erased.claim.user), SPAN("erased-0123456789abcdef0123456789abcdef")));
    assert_int_equal(unleased(fixture), left);
    assert_int_equal(database_imbalance(&fixture->database), 0);
}

/* A trigger that refuses nothing changes nothing either, though SQLite then reads rows ahead. */
static void test_issue__conflicts_beside_a_trigger(void **state)
{
    struct fixture *fixture = *state;
    enum coupon_state states[5];

    refuse_bad(fixture, "");
    create(fixture, 10, 0);
    struct claim claims[] = {claim_of(fixture, 1, "a", 1), claim_of(fixture, 2, "b", 1),
                             claim_of(fixture, 3, "a", 1), claim_of(fixture, 4, "d", 1)};
    issue(fixture, claims, 2, states);
    for (int i = 0; i < 2; i++) {
        issue_with_care(fixture, claims, 4, states);
        assert_int_equal(states[0], COUPON_ISSUED);
        assert_int_equal(states[2], COUPON_MERGED);
        assert_int_equal(states[3], COUPON_ISSUED);
        assert_int_equal(coupon_at(fixture, 3).merged_into_seq, 1);
        assert_int_equal(coupon_at(fixture, 4).state, COUPON_ISSUED);
        assert_int_equal(unleased(fixture), 1);
        assert_int_equal(database_imbalance(&fixture->database), 0);
    }
}

/* --- the cost of a batch --- */

static int runs[STATEMENT_COUNT];
static int inserts;

static enum status count_run(struct ledger_session *session, const struct sql_call *call,
                             struct error *error)
{
    runs[call->statement]++;
    return ledger_sqlite_driver.run(session, call, error);
}

static enum status count_insert(struct ledger_session *session, struct coupon_row *rows,
                                size_t count, struct error *error)
{
    inserts++;
    return ledger_sqlite_driver.insert_coupons(session, rows, count, error);
}

/* Whatever its size, a batch of one lease is a handful of statements. */
static void test_issue__blocked_users_are_found_by_one_statement(void **state)
{
    struct fixture *fixture = *state;
    struct ledger_driver counting = ledger_sqlite_driver;
    static struct claim claims[BATCH_MAX];
    static enum coupon_state states[BATCH_MAX];

    create(fixture, BATCH_MAX, 0);
    counting.run = count_run;
    counting.insert_coupons = count_insert;
    for (int64_t seq = 1; seq <= BATCH_MAX; seq++) {
        char user[16];
        snprintf(user, sizeof(user), "u%d", (int)seq);
        claims[seq - 1] = claim_of(fixture, seq, user, 1);
    }
    sql_of(fixture)->driver = &counting;
    issue(fixture, claims, 100, states);
    assert_int_equal(runs[STATEMENT_exceptions_any], 1);
    assert_int_equal(runs[STATEMENT_blocked_among], 0); /* nobody is blocked at all */
    assert_int_equal(runs[STATEMENT_lease_for_issue], 1);
    assert_int_equal(inserts, 1);
    sql_of(fixture)->driver = &ledger_sqlite_driver;
    block(fixture, "u101");
    block(fixture, "u300");
    block(fixture, "u500");
    block(fixture, "someone-else");
    sql_of(fixture)->driver = &counting;
    issue(fixture, claims + 100, 400, states + 100);
    sql_of(fixture)->driver = &ledger_sqlite_driver;
    assert_int_equal(runs[STATEMENT_blocked_among], 1);
    assert_int_equal(runs[STATEMENT_blocked_has], 0);
    for (int64_t seq = 101; seq <= BATCH_MAX; seq++)
        assert_int_equal(states[seq - 1],
                         seq == 101 || seq == 300 || seq == 500 ? COUPON_VOID : COUPON_ISSUED);
    assert_int_equal(inserts, 1 + 2 + 3); /* the runs between them, and each of them */
    assert_int_equal(unleased(fixture), 3);
}

int main(void)
{
#define ISSUE_TEST(name) cmocka_unit_test_setup_teardown(test_issue__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ISSUE_TEST(every_kind_in_one_batch),
        ISSUE_TEST(the_whole_batch_again),
        ISSUE_TEST(rolled_back_leaves_nothing),
        ISSUE_TEST(late_claims_take_what_is_left),
        ISSUE_TEST(late_and_merged),
        ISSUE_TEST(outside_its_lease),
        ISSUE_TEST(bad_rows_are_refused_alone),
        ISSUE_TEST(bad_rows_among_late_claims),
        ISSUE_TEST(bad_row_leaves_its_unit_to_the_next),
        ISSUE_TEST(bad_rows_that_are_no_plain_wins),
        ISSUE_TEST(a_refused_claim_that_comes_again_stays_void),
        ISSUE_TEST(a_claim_comes_again_after_its_user_was_erased),
        ISSUE_TEST(conflicts_beside_a_trigger),
        ISSUE_TEST(blocked_users_are_found_by_one_statement),
    };
    return cmocka_run_group_tests_name("issue", tests, NULL, NULL);
}
