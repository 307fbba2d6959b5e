/* test_model.c: the names the API uses, and when a coupon expires. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/model.h"

static void test_model__states_have_the_names_of_the_api(void **state)
{
    assert_string_equal(policy_state_name(POLICY_SCHEDULED), "SCHEDULED");
    assert_string_equal(policy_state_name(POLICY_OPEN), "OPEN");
    assert_string_equal(policy_state_name(POLICY_PAUSED), "PAUSED");
    assert_string_equal(policy_state_name(POLICY_SOLD_OUT), "SOLD_OUT");
    assert_string_equal(policy_state_name(POLICY_CLOSED), "CLOSED");

    assert_string_equal(coupon_state_name(COUPON_ISSUED), "ISSUED");
    assert_string_equal(coupon_state_name(COUPON_REDEEMED), "REDEEMED");
    assert_string_equal(coupon_state_name(COUPON_CANCELLED), "CANCELLED");
    assert_string_equal(coupon_state_name(COUPON_EXPIRED), "EXPIRED");
    assert_string_equal(coupon_state_name(COUPON_VOID), "VOID");
    assert_string_equal(coupon_state_name(COUPON_MERGED), "MERGED");
}

static void test_model__an_issued_coupon_expires_at_its_time(void **state)
{
    struct coupon coupon = {.state = COUPON_ISSUED, .expires_at_ms = 1000};
    assert_int_equal(coupon_state_at(coupon.state, coupon.expires_at_ms, 999), COUPON_ISSUED);
    assert_int_equal(coupon_state_at(coupon.state, coupon.expires_at_ms, 1000), COUPON_EXPIRED);
    assert_int_equal(coupon_state_at(coupon.state, coupon.expires_at_ms, INT64_MAX),
                     COUPON_EXPIRED);
}

static void test_model__a_coupon_without_an_end_never_expires(void **state)
{
    struct coupon coupon = {.state = COUPON_ISSUED, .expires_at_ms = 0};
    assert_int_equal(coupon_state_at(coupon.state, coupon.expires_at_ms, INT64_MAX), COUPON_ISSUED);
}

static void test_model__only_issued_coupons_expire(void **state)
{
    static const enum coupon_state states[] = {COUPON_REDEEMED, COUPON_CANCELLED, COUPON_VOID,
                                               COUPON_MERGED};
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
        struct coupon coupon = {.state = states[i], .expires_at_ms = 1000};
        assert_int_equal(coupon_state_at(coupon.state, coupon.expires_at_ms, 2000), states[i]);
    }
}

static void test_model__active_is_what_counts_against_total(void **state)
{
    assert_true(coupon_state_is_active(COUPON_ISSUED));
    assert_true(coupon_state_is_active(COUPON_REDEEMED));
    assert_true(coupon_state_is_active(COUPON_EXPIRED));
    assert_false(coupon_state_is_active(COUPON_CANCELLED));
    assert_false(coupon_state_is_active(COUPON_VOID));
    assert_false(coupon_state_is_active(COUPON_MERGED));
}

static void test_model__a_coupon_ends_after_its_days_or_at_its_time(void **state)
{
    (void)state;
    assert_int_equal(coupon_expires_at_ms(0, 0, 1000), 0);
    assert_int_equal(coupon_expires_at_ms(0, 5000, 1000), 5000);
    assert_int_equal(coupon_expires_at_ms(1, 0, 1000), 1000 + DAY_MS);
    assert_int_equal(coupon_expires_at_ms(1, 5000, 1000), 5000);
    assert_int_equal(coupon_expires_at_ms(1, 2 * DAY_MS, 1000), 1000 + DAY_MS);
}

static void test_model__user_ids_keep_their_bytes(void **state)
{
    char longest[ID_LENGTH_MAX];
    memset(longest, 'z', sizeof(longest));
    struct id a = id_of((struct span){.bytes = longest, .length = sizeof(longest)});
    struct id b = id_of(SPAN("z"));
    assert_int_equal(id_span(&a).length, ID_LENGTH_MAX);
    assert_memory_equal(id_span(&a).bytes, longest, sizeof(longest));
    assert_true(id_equal(&a, &a));
    assert_false(id_equal(&a, &b));
}

static void test_model__the_top_bit_tells_keyed_requests(void **state)
{
    struct request_id id = {.bytes = {0x80}};
    assert_true(request_id_is_keyed(&id));
    id.bytes[0] = 0x7f;
    assert_false(request_id_is_keyed(&id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model__states_have_the_names_of_the_api),
        cmocka_unit_test(test_model__an_issued_coupon_expires_at_its_time),
        cmocka_unit_test(test_model__a_coupon_ends_after_its_days_or_at_its_time),
        cmocka_unit_test(test_model__a_coupon_without_an_end_never_expires),
        cmocka_unit_test(test_model__only_issued_coupons_expire),
        cmocka_unit_test(test_model__active_is_what_counts_against_total),
        cmocka_unit_test(test_model__user_ids_keep_their_bytes),
        cmocka_unit_test(test_model__the_top_bit_tells_keyed_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
