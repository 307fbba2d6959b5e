/* test_patience.c: refused claims wait for their time, and hold nobody up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs those above it. */
#include <cmocka.h>

#include "claim/patience.h"

static struct claim claim_of(int64_t policy_id, int64_t seq)
{
    return (struct claim){.policy_id = policy_id, .seq = seq, .attempt = 77};
}

static void test_patience__a_refused_claim_waits_longer_each_time(void **state)
{
    struct patience patience = {0};
    int64_t now_ms = 1000;
    int64_t pause_ms = PATIENCE_PAUSE_MS;

    (void)state;
    for (int attempt = 0; attempt < 5; attempt++) {
        struct claim claim = claim_of(1, 17);
        assert_int_equal(patience_sift(&patience, &claim, 1, now_ms), 1);
        assert_int_equal(claim.attempt, attempt);
        patience_note(&patience, &claim, now_ms);
        assert_int_equal(patience_waiting(&patience, 1, now_ms), 1);
        assert_int_equal(patience_sift(&patience, &claim, 1, now_ms + pause_ms - 1), 0);
        now_ms += pause_ms;
        pause_ms *= 2;
        assert_int_equal(patience_waiting(&patience, 1, now_ms), 0);
    }
    assert_int_equal(patience.count, 1);
    patience_release(&patience);
}

static void test_patience__others_pass(void **state)
{
    struct patience patience = {0};
    struct claim claims[5];
    struct claim refused = claim_of(1, 3);

    (void)state;
    refused.attempt = 0;
    patience_note(&patience, &refused, 0);
    refused.policy_id = 2;
    refused.seq = 1;
    patience_note(&patience, &refused, 0);
    for (int64_t seq = 1; seq <= 5; seq++)
        claims[seq - 1] = claim_of(1, seq);
    assert_int_equal(patience_sift(&patience, claims, 5, 10), 4);
    static const int64_t expected[] = {1, 2, 4, 5};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(claims[i].seq, expected[i]);
        assert_int_equal(claims[i].attempt, 0);
    }
    assert_int_equal(patience_waiting(&patience, 2, 10), 1);
    patience_forget(&patience, &refused);
    assert_int_equal(patience_waiting(&patience, 2, 10), 0);
    assert_int_equal(patience_waiting(&patience, 1, 10), 1);
    patience_release(&patience);
}

static void test_patience__the_forgotten_are_swept(void **state)
{
    struct patience patience = {0};

    (void)state;
    for (int64_t seq = 1; seq <= 100; seq++) {
        struct claim claim = claim_of(1, seq);
        claim.attempt = 0;
        patience_note(&patience, &claim, seq <= 50 ? 0 : 1000000);
    }
    patience_sweep(&patience, 1000000);
    assert_int_equal(patience.count, 50);
    patience_release(&patience);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patience__a_refused_claim_waits_longer_each_time),
        cmocka_unit_test(test_patience__others_pass),
        cmocka_unit_test(test_patience__the_forgotten_are_swept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
