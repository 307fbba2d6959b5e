/* test_issue.c: batches of claims in which not everything is plain, on a real database. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/log.h"
#include "ledger/driver.h"
#include "ledger/issue.h"
#include "ledger/migrate.h"
#include "ledger/rows.h"
#include "ledger/transactions.h"

#define NOW       INT64_C(1763200000000)
#define BATCH_MAX 400

struct fixture {
    char folder[64];
    char url[96];
    struct ledger_store *store;
    struct sql sql;
    struct issue_room room;
    struct error error;
    struct policy policy;
    struct lease lease;
};

static void check(struct fixture *fixture, enum status status)
{
    if (status != STATUS_OK)
        fail_msg("%s", fixture->error.text);
}

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    const struct ledger_driver *driver = &ledger_sqlite_driver;

    log_configure(LOG_ERROR + 1, LOG_LOGFMT, STDERR_FILENO);
    snprintf(fixture->folder, sizeof(fixture->folder), "%s/dibs-issue-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(fixture->folder));
    snprintf(fixture->url, sizeof(fixture->url), "sqlite:%s/dibs.db", fixture->folder);
    struct store_options options = {.url = fixture->url, .integrity = LEDGER_CHECK_OFF};
    check(fixture, driver->store_open(&fixture->store, &options, &fixture->error));
    fixture->sql.driver = driver;
    check(fixture, driver->session_open(fixture->store, SESSION_WRITER, &fixture->sql.session,
                                        &fixture->error));
    check(fixture, migrate_run(&fixture->sql, LEDGER_MIGRATION_APPLY, NULL, NULL, &fixture->error));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    issue_room_release(&fixture->room);
    fixture->sql.driver->session_close(fixture->sql.session);
    fixture->sql.driver->store_close(fixture->store);
    unlink(fixture->url + strlen("sqlite:"));
    rmdir(fixture->folder);
    free(fixture);
    return 0;
}

/* --- transactions --- */

static void begin(struct fixture *fixture)
{
    check(fixture, fixture->sql.driver->begin(fixture->sql.session, &fixture->error));
}

static void commit(struct fixture *fixture)
{
    check(fixture, fixture->sql.driver->commit(fixture->sql.session, &fixture->error));
}

static void create(struct fixture *fixture, int64_t total, int64_t reserve)
{
    struct create_policy create = {.policy = &fixture->policy, .lease = &fixture->lease};
    fixture->policy = (struct policy){.name = "test",
                                      .discount_value = 1,
                                      .total = total,
                                      .reserve = reserve,
                                      .per_user_limit = 3};
    begin(fixture);
    check(fixture, transaction_create_policy(&fixture->sql, &create, &fixture->error));
    commit(fixture);
}

static void close_lease(struct fixture *fixture)
{
    struct close_lease close = {.lease_id = fixture->lease.id};
    begin(fixture);
    check(fixture, transaction_close_lease(&fixture->sql, &close, &fixture->error));
    commit(fixture);
}

static void block(struct fixture *fixture, const char *name)
{
    struct user_id user = user_id_of(span_of(name));
    struct block_user block = {.user = &user, .blocked = true, .now_ms = NOW};
    begin(fixture);
    check(fixture, transaction_block_user(&fixture->sql, &block, &fixture->error));
    commit(fixture);
}

static struct claim claim_of(struct fixture *fixture, int64_t seq, const char *user, int nth)
{
    struct claim claim = {.policy_id = fixture->policy.id,
                          .seq = seq,
                          .lease_id = fixture->lease.id,
                          .requested_at_ms = NOW,
                          .nth = nth,
                          .user = user_id_of(span_of(user))};
    memcpy(claim.request_id.bytes + 8, &seq, sizeof(seq));
    claim.request_id.bytes[7] = (uint8_t)user[0];
    return claim;
}

static void issue(struct fixture *fixture, const struct claim *claims, size_t count,
                  enum coupon_state *states)
{
    for (size_t i = 0; i < count; i++)
        states[i] = COUPON_EXPIRED; /* never written by issue_claims() */
    begin(fixture);
    check(fixture, issue_claims(&fixture->sql, &fixture->room, claims, count, ISSUE_WHOLE, NOW,
                                states, &fixture->error));
    commit(fixture);
}

static struct coupon coupon_at(struct fixture *fixture, int64_t seq)
{
    struct coupon coupon;
    check(fixture, rows_coupon_by_seq(&fixture->sql, fixture->policy.id, seq, ROWS_LOOK, &coupon,
                                      &fixture->error));
    return coupon;
}

static int64_t unleased(struct fixture *fixture)
{
    struct policy policy;
    check(fixture, rows_policy_by_id(&fixture->sql, fixture->policy.id, ROWS_LOOK, &policy,
                                     &fixture->error));
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
            assert_true(user_id_equal(&coupon.claim.user, &claims[seq - 1].user));
    }
    assert_int_equal(coupon_at(fixture, 200).merged_into_seq, 50);
    assert_true(coupon_at(fixture, 100).reason[0] != '\0');
    struct coupon held = coupon_at(fixture, 60);
    assert_true(span_equal(user_id_span(&held.claim.user), SPAN("holder")));
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
    struct coupon coupon;

    create(fixture, 10, 0);
    struct claim claims[] = {claim_of(fixture, 1, "a", 1), claim_of(fixture, 2, "a", 1)};
    begin(fixture);
    check(fixture, issue_claims(&fixture->sql, &fixture->room, claims, 2, ISSUE_WHOLE, NOW, states,
                                &fixture->error));
    fixture->sql.driver->rollback(fixture->sql.session);
    assert_int_equal(unleased(fixture), 0);
    assert_int_equal(rows_coupon_by_seq(&fixture->sql, fixture->policy.id, 1, ROWS_LOOK, &coupon,
                                        &fixture->error),
                     STATUS_NOT_FOUND);
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
    };
    return cmocka_run_group_tests_name("issue", tests, NULL, NULL);
}
