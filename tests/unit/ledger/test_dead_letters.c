/* test_dead_letters.c: what becomes of a shared gate's claims that the ledger cannot issue. */
#include "ledger/dead_letters.h"

#include "database.h"
#include "ledger/issue.h"
#include "ledger/rows.h"

#define NOW INT64_C(1763200000000)

struct fixture {
    struct database database;
    struct issue_room room;
    struct policy policy;
    struct lease lease;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct create_policy create = {.policy = &fixture->policy, .lease = &fixture->lease};

    database_open(&fixture->database);
    fixture->policy =
        (struct policy){.name = "test", .discount_value = 1, .total = 10, .per_user_limit = 1};
    database_write(&fixture->database, transaction_create_policy, &create);
    fixture->room.tries_again = true;
    fixture->room.attempts_max = ISSUE_ATTEMPTS_MAX;
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

static struct claim claim_of(struct fixture *fixture, int64_t seq, const char *user)
{
    struct claim claim = {.policy_id = fixture->policy.id,
                          .seq = seq,
                          .lease_id = fixture->lease.id,
                          .requested_at_ms = NOW - 5,
                          .nth = 1,
                          .user = id_of(span_of(user))};
    memcpy(claim.request_id.bytes + 8, &seq, sizeof(seq));
    return claim;
}

/* As the writer does it. */
static void issue(struct fixture *fixture, const struct claim *claims, size_t count,
                  enum coupon_state *states)
{
    struct sql *sql = &fixture->database.sql;
    database_begin(&fixture->database);
    enum status status = issue_claims(sql, &fixture->room, claims, count, ISSUE_WHOLE, NOW, states,
                                      &fixture->database.error);
    if (status == STATUS_INVALID || status == STATUS_CONFLICT) {
        sql->driver->rollback(sql->session);
        database_begin(&fixture->database);
        status = issue_claims(sql, &fixture->room, claims, count, ISSUE_SPLIT, NOW, states,
                              &fixture->database.error);
    }
    database_check(&fixture->database, status);
    database_commit(&fixture->database);
}

static void refuse_bad(struct fixture *fixture)
{
    database_execute(&fixture->database,
                     "CREATE TRIGGER refuse_bad BEFORE INSERT ON coupon WHEN NEW.user_id LIKE "
                     "'bad%' AND NEW.state <> 'VOID' BEGIN SELECT RAISE(ABORT, 'not him'); END");
}

static size_t letters(struct fixture *fixture, struct dead_letter *found)
{
    size_t count = 0;
    database_check(&fixture->database, dead_letters_list(&fixture->database.sql, 0, 0, found, 10,
                                                         &count, &fixture->database.error));
    return count;
}

static int64_t unleased(struct fixture *fixture)
{
    return database_number(&fixture->database, "SELECT unleased FROM policy");
}

/* Trap 6: tried a bounded number of times, and the others go on. */
static void test_dead_letters__a_refused_claim_is_tried_again_and_then_given_up(void **state)
{
    struct fixture *fixture = *state;
    struct claim claims[3] = {claim_of(fixture, 1, "bad"), claim_of(fixture, 2, "good"),
                              claim_of(fixture, 3, "fine")};
    enum coupon_state states[3];
    struct dead_letter found[10];

    refuse_bad(fixture);
    for (int attempt = 0; attempt < ISSUE_ATTEMPTS_MAX - 1; attempt++) {
        claims[0].attempt = attempt;
        issue(fixture, claims, 3, states);
        assert_int_equal(states[0], COUPON_PENDING);
        assert_int_equal(states[1], COUPON_ISSUED);
        assert_int_equal(states[2], COUPON_ISSUED);
        assert_int_equal(letters(fixture, found), 0);
        assert_int_equal(database_number(&fixture->database, "SELECT count(*) FROM coupon"), 2);
    }
    assert_int_equal(unleased(fixture), 0);
    claims[0].attempt = ISSUE_ATTEMPTS_MAX - 1;
    issue(fixture, claims, 3, states);
    assert_int_equal(states[0], COUPON_VOID);
    assert_int_equal(unleased(fixture), 1);
    assert_int_equal(letters(fixture, found), 1);
    assert_int_equal(found[0].claim.seq, 1);
    assert_int_equal(found[0].attempts, ISSUE_ATTEMPTS_MAX);
    assert_int_equal(found[0].died_at_ms, NOW);
    assert_int_equal(found[0].claim.requested_at_ms, NOW - 5);
    assert_true(id_equal(&found[0].claim.user, &claims[0].user));
    assert_memory_equal(&found[0].claim.request_id, &claims[0].request_id, 16);
    assert_non_null(strstr(found[0].reason, "refused"));
    assert_non_null(strstr(found[0].reason, "not him"));
    /* Drained once more because the gate had not heard of it: all stays as it is. */
    issue(fixture, claims, 3, states);
    assert_int_equal(states[0], COUPON_VOID);
    assert_int_equal(letters(fixture, found), 1);
    assert_int_equal(unleased(fixture), 1);
}

static void test_dead_letters__one_that_is_taken_in_the_end_leaves_none(void **state)
{
    struct fixture *fixture = *state;
    struct claim claim = claim_of(fixture, 1, "bad");
    enum coupon_state states[1];
    struct dead_letter found[10];

    refuse_bad(fixture);
    issue(fixture, &claim, 1, states);
    assert_int_equal(states[0], COUPON_PENDING);
    database_execute(&fixture->database, "DROP TRIGGER refuse_bad");
    claim.attempt = 1;
    issue(fixture, &claim, 1, states);
    assert_int_equal(states[0], COUPON_ISSUED);
    assert_int_equal(letters(fixture, found), 0);
}

static void test_dead_letters__the_blocked_and_the_late_leave_one_with_the_reason(void **state)
{
    struct fixture *fixture = *state;
    struct id user = id_of(SPAN("blocked"));
    struct block_user block = {.user = &user, .blocked = true, .now_ms = NOW};
    struct claim claims[2] = {claim_of(fixture, 1, "blocked"), claim_of(fixture, 2, "good")};
    struct close_lease close = {.lease_id = fixture->lease.id};
    enum coupon_state states[2];
    struct dead_letter found[10];

    database_write(&fixture->database, transaction_block_user, &block);
    issue(fixture, claims, 2, states);
    assert_int_equal(states[0], COUPON_VOID);
    assert_int_equal(states[1], COUPON_ISSUED);
    assert_int_equal(letters(fixture, found), 1);
    assert_non_null(strstr(found[0].reason, "blocked"));
    /* Its lease is closed, and somebody else has what was left. */
    database_write(&fixture->database, transaction_close_lease, &close);
    database_execute(&fixture->database, "UPDATE policy SET unleased = 0");
    claims[0] = claim_of(fixture, 3, "late");
    issue(fixture, claims, 1, states);
    assert_int_equal(states[0], COUPON_VOID);
    assert_int_equal(letters(fixture, found), 2);
    assert_non_null(strstr(found[1].reason, "no stock"));
    /* A claim that stays, or is merged, is no dead one. */
    assert_int_equal(found[1].claim.seq, 3);
}

static void test_dead_letters__a_gate_in_memory_leaves_none(void **state)
{
    struct fixture *fixture = *state;
    struct claim claim = claim_of(fixture, 1, "bad");
    enum coupon_state states[1];
    struct dead_letter found[10];

    fixture->room.tries_again = false;
    refuse_bad(fixture);
    issue(fixture, &claim, 1, states);
    assert_int_equal(states[0], COUPON_VOID);
    assert_int_equal(letters(fixture, found), 0);
}

static void test_dead_letters__are_listed_in_pages_and_dropped_once(void **state)
{
    struct fixture *fixture = *state;
    struct database *database = &fixture->database;
    struct dead_letter found[10];
    struct drop_dead_letter drop = {.policy_id = 2, .seq = 1, .letter = &found[0]};
    size_t count = 0;

    database_begin(database);
    for (int64_t policy = 1; policy <= 3; policy++) {
        for (int64_t seq = 1; seq <= 2; seq++) {
            struct dead_letter letter = {.claim = claim_of(fixture, seq, "u"), .attempts = 1};
            letter.claim.policy_id = policy;
            snprintf(letter.reason, sizeof(letter.reason), "why");
            database_check(database, dead_letters_write(&database->sql, &letter, &database->error));
            /* A second one of the same claim changes nothing. */
            letter.attempts = 99;
            database_check(database, dead_letters_write(&database->sql, &letter, &database->error));
        }
    }
    database_commit(database);
    database_check(database,
                   dead_letters_list(&database->sql, 1, 1, found, 3, &count, &database->error));
    assert_int_equal(count, 3);
    assert_int_equal(found[0].claim.policy_id * 10 + found[0].claim.seq, 12);
    assert_int_equal(found[2].claim.policy_id * 10 + found[2].claim.seq, 22);
    assert_int_equal(found[2].attempts, 1);
    database_write(database, dead_letters_drop, &drop);
    assert_int_equal(found[0].claim.policy_id, 2);
    assert_int_equal(dead_letters_read(&database->sql, 2, 1, &found[0], &database->error),
                     STATUS_NOT_FOUND);
    assert_int_equal(letters(fixture, found), 5);
    database_begin(database);
    assert_int_equal(dead_letters_drop(&database->sql, &drop, &database->error), STATUS_NOT_FOUND);
    database_commit(database);
}

#define LETTERS_TEST(name) \
    cmocka_unit_test_setup_teardown(test_dead_letters__##name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LETTERS_TEST(a_refused_claim_is_tried_again_and_then_given_up),
        LETTERS_TEST(one_that_is_taken_in_the_end_leaves_none),
        LETTERS_TEST(the_blocked_and_the_late_leave_one_with_the_reason),
        LETTERS_TEST(a_gate_in_memory_leaves_none),
        LETTERS_TEST(are_listed_in_pages_and_dropped_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
