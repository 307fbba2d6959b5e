/* test_mend.c: what is unleased is set by what is issued and lent. */
#include "database.h"
#include "ledger/ledger.h"

#define NOW    INT64_C(1763200000000)
#define POLICY 42

struct fixture {
    struct database database;
    struct ledger *ledger;
    struct lease lease;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct policy policy = {.id = POLICY,
                            .name = "test",
                            .discount_value = 1,
                            .total = 1000,
                            .reserve = 900,
                            .per_user_limit = 1,
                            .created_at_ms = NOW};

    database_make_folder(&fixture->database);
    fixture->ledger = database_ledger(&fixture->database, (struct ledger_options){.readers = 1});
    database_check(
        &fixture->database,
        ledger_policy_create(fixture->ledger, &policy, &fixture->lease, &fixture->database.error));
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    ledger_close(fixture->ledger);
    database_remove_folder(&fixture->database);
    free(fixture);
    return 0;
}

static struct ledger_mend mend(struct fixture *fixture)
{
    struct ledger_mend asked = {.policy_id = POLICY};

    database_check(&fixture->database,
                   ledger_mend(fixture->ledger, &asked, &fixture->database.error));
    return asked;
}

static void test_mend__leaves_what_adds_up_alone(void **state)
{
    struct fixture *fixture = *state;

    assert_false(mend(fixture).is_changed);
    assert_int_equal(database_imbalance(&fixture->database), 0);
}

/* Units that come back one by one are lent one by one. */
static void test_mend__counts_all_leases_however_many(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(fixture->lease.count, 100);
    database_execute(&fixture->database,
                     "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)"
                     " INSERT INTO lease (policy_id, first_seq, count, state)"
                     " SELECT 42, 100 + i, 1, 'OPEN' FROM n");
    struct ledger_mend done = mend(fixture);
    assert_true(done.is_changed);
    assert_int_equal(done.before.unleased, 900);
    assert_int_equal(done.after.unleased, 600);
    assert_int_equal(done.after.next_seq, 401);
    assert_int_equal(database_imbalance(&fixture->database), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_mend__leaves_what_adds_up_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_mend__counts_all_leases_however_many, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
