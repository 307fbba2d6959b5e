/* test_fix.c: what is unleased is set by what is issued and lent. */
#include "../one_policy.h"

static struct ledger_fix fix(struct fixture *fixture)
{
    struct ledger_fix asked = {.policy_id = POLICY};

    database_check(&fixture->database,
                   ledger_fix(fixture->ledger, &asked, &fixture->database.error));
    return asked;
}

static void test_fix__leaves_what_adds_up_alone(void **state)
{
    struct fixture *fixture = *state;

    assert_false(fix(fixture).is_changed);
    assert_int_equal(database_imbalance(&fixture->database), 0);
}

/* Units that come back one by one are lent one by one. */
static void test_fix__counts_all_leases_however_many(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(fixture->lease.count, 100);
    database_execute(&fixture->database,
                     "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)"
                     " INSERT INTO lease (policy_id, first_seq, count, state)"
                     " SELECT 42, 100 + i, 1, 'OPEN' FROM n");
    struct ledger_fix done = fix(fixture);
    assert_true(done.is_changed);
    assert_int_equal(done.before.unleased, 900);
    assert_int_equal(done.after.unleased, 600);
    assert_int_equal(done.after.next_seq, 401);
    assert_int_equal(database_imbalance(&fixture->database), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fix__leaves_what_adds_up_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fix__counts_all_leases_however_many, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
