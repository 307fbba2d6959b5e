/* test_rows.c: rows with numbers that dibs never writes are refused, and the words say which. */
#include "one_policy.h"

static void refused(struct fixture *fixture, enum status status, const char *words)
{
    assert_int_equal(status, STATUS_FAILED);
    if (strstr(fixture->database.error.text, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", fixture->database.error.text, words);
}

static void test_rows__a_policy_with_a_number_that_cannot_be_is_refused(void **state)
{
    static const struct {
        const char *change, *back, *words;
    } rows[] = {
        {"next_seq = 7700000000000000000", "next_seq = 101",
         "the next_seq of policy 42 is 7700000000000000000"},
        {"unleased = 9223372036854775807", "unleased = 900",
         "the unleased of policy 42 is 9223372036854775807"},
        {"total = 100000001", "total = 1000", "the total of policy 42 is 100000001"},
        {"per_user_limit = 4294967297", "per_user_limit = 1",
         "the per_user_limit of policy 42 is 4294967297"},
        {"coupon_valid_days = 4294967297", "coupon_valid_days = NULL",
         "the coupon_valid_days of policy 42 is 4294967297"},
        {"closes_at = -1", "closes_at = NULL", "the closes_at of policy 42 is -1"},
    };
    struct fixture *fixture = *state;
    struct error *error = &fixture->database.error;
    struct policy policy;
    struct lease lease;
    char text[200];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(text, sizeof(text), "UPDATE policy SET %s", rows[i].change);
        database_execute(&fixture->database, text);
        refused(fixture, ledger_policy_get(fixture->ledger, POLICY, &policy, error), rows[i].words);
        refused(
            fixture,
            ledger_lease_take(fixture->ledger, POLICY, LEDGER_NO_TERM, 0, &lease, &policy, error),
            rows[i].words);
        snprintf(text, sizeof(text), "UPDATE policy SET %s", rows[i].back);
        database_execute(&fixture->database, text);
    }
    database_check(&fixture->database, ledger_lease_take(fixture->ledger, POLICY, LEDGER_NO_TERM, 0,
                                                         &lease, &policy, error));
    assert_int_equal(lease.first_seq, 101);
    assert_int_equal(lease.count, 900);
}

static void test_rows__a_lease_with_a_number_that_cannot_be_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct error *error = &fixture->database.error;

    database_execute(&fixture->database, "UPDATE lease SET count = 9223372036854775807");
    refused(fixture, ledger_lease_close(fixture->ledger, fixture->lease.id, LEDGER_NO_TERM, error),
            "the count of lease 1 is 9223372036854775807");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_rows__a_policy_with_a_number_that_cannot_be_is_refused,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_rows__a_lease_with_a_number_that_cannot_be_is_refused,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
