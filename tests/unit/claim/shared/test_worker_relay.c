/* test_worker_relay.c: refused claims wait for their time, and hold nobody up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs those above it. */
#include <cmocka.h>
#include <stdlib.h>

#include "claim/shared/worker_parts.h"

static struct claim claim_of(int64_t policy_id, int64_t seq)
{
    return (struct claim){.policy_id = policy_id, .seq = seq, .attempt = 77};
}

static void test_worker_relay__a_refused_claim_waits_longer_each_time(void **state)
{
    struct retry_list retries = {0};
    int64_t now_ms = 1000;
    int64_t pause_ms = RETRY_PAUSE_MS;

    (void)state;
    for (int attempt = 0; attempt < 5; attempt++) {
        struct claim claim = claim_of(1, 17);
        assert_int_equal(retry_list_filter(&retries, &claim, 1, now_ms), 1);
        assert_int_equal(claim.attempt, attempt);
        retry_list_note(&retries, &claim, now_ms);
        assert_int_equal(retry_list_waiting(&retries, 1, now_ms), 1);
        assert_int_equal(retry_list_filter(&retries, &claim, 1, now_ms + pause_ms - 1), 0);
        now_ms += pause_ms;
        pause_ms *= 2;
        assert_int_equal(retry_list_waiting(&retries, 1, now_ms), 0);
    }
    assert_int_equal(retries.count, 1);
    free(retries.claims);
}

static void test_worker_relay__others_pass(void **state)
{
    struct retry_list retries = {0};
    struct claim claims[5];
    struct claim refused = claim_of(1, 3);

    (void)state;
    refused.attempt = 0;
    retry_list_note(&retries, &refused, 0);
    refused.policy_id = 2;
    refused.seq = 1;
    retry_list_note(&retries, &refused, 0);
    for (int64_t seq = 1; seq <= 5; seq++)
        claims[seq - 1] = claim_of(1, seq);
    assert_int_equal(retry_list_filter(&retries, claims, 5, 10), 4);
    static const int64_t expected[] = {1, 2, 4, 5};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(claims[i].seq, expected[i]);
        assert_int_equal(claims[i].attempt, 0);
    }
    assert_int_equal(retry_list_waiting(&retries, 2, 10), 1);
    retry_list_forget(&retries, &refused);
    assert_int_equal(retry_list_waiting(&retries, 2, 10), 0);
    assert_int_equal(retry_list_waiting(&retries, 1, 10), 1);
    free(retries.claims);
}

static void test_worker_relay__the_forgotten_are_swept(void **state)
{
    struct retry_list retries = {0};

    (void)state;
    for (int64_t seq = 1; seq <= 100; seq++) {
        struct claim claim = claim_of(1, seq);
        claim.attempt = 0;
        retry_list_note(&retries, &claim, seq <= 50 ? 0 : 1000000);
    }
    assert_int_equal(retry_list_filter(&retries, NULL, 0, 1000000), 0);
    assert_int_equal(retries.count, 50);
    free(retries.claims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worker_relay__a_refused_claim_waits_longer_each_time),
        cmocka_unit_test(test_worker_relay__others_pass),
        cmocka_unit_test(test_worker_relay__the_forgotten_are_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
