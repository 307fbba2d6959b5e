/* test_webhook.c: secrets, signatures, bodies, and the pauses between tries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "event/webhook/webhook.h"

#define SECRET "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

static struct error error;

static void assert_signed(const char *secrets, const char *expected)
{
    struct webhook_keys keys;
    char signatures[WEBHOOK_SIGNATURES_SIZE];

    assert_int_equal(webhook_read_secrets(&keys, span_of(secrets), &error), STATUS_OK);
    webhook_sign(&keys, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, SPAN("{\"test\": 2432232314}"),
                 signatures);
    assert_string_equal(signatures, expected);
}

/* The example of the specification's own libraries. */
static void test_webhook__signs_as_the_standard_says(void **state)
{
    (void)state;
    assert_signed(SECRET, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

static void test_webhook__every_secret_signs(void **state)
{
    (void)state;
    assert_signed(" " SECRET "\n" SECRET "\r\n", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= "
                                                 "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

static void test_webhook__what_is_no_secret_is_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "\n",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2La",    /* 21 bytes */
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa!", /* no base64 */
        SECRET " nonsense",
        SECRET " " SECRET " " SECRET " " SECRET " " SECRET,
    };
    struct webhook_keys keys;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(webhook_read_secrets(&keys, span_of(wrong[i]), &error), STATUS_INVALID);
        assert_non_null(strstr(error.text, "openssl rand -base64 32"));
        assert_null(strstr(error.text, "MfKQ")); /* Nothing of it is told. */
    }
}

static void test_webhook__the_body_is_the_event(void **state)
{
    struct event event;
    struct buffer body;
    struct coupon coupon = {.claim = {.policy_id = 42,
                                      .seq = 17,
                                      .nth = 1,
                                      .requested_at_ms = 1794744000007,
                                      .user = id_of(SPAN("u\"1"))},
                            .state = COUPON_ISSUED};

    (void)state;
    buffer_init(&body, 4096);
    event_write_coupon(&event, &coupon, 1794744000010, SPAN(""));
    webhook_write_body(&body, &event.message);
    buffer_append(&body, "", 1);
    assert_string_equal(
        body.bytes,
        "{\"specversion\":\"1.0\",\"id\":\"42-17-issued\",\"source\":\"/dibs/policies/42\","
        "\"type\":\"dibs.coupon.issued\",\"time\":\"2026-11-15T12:00:00.010Z\","
        "\"datacontenttype\":\"application/json\",\"data\":{\"policy_id\":42,\"user\":\"u\\\"1\","
        "\"seq\":17,\"nth\":1,\"coupon_id\":\"42-17\",\"state\":\"ISSUED\","
        "\"request_id\":\"00000000000000000000000000000000\","
        "\"requested_at\":\"2026-11-15T12:00:00.007Z\","
        "\"issued_at\":\"2026-11-15T12:00:00.010Z\",\"expires_at\":null}}");
    buffer_release(&body);
}

/* Tries of a day: about one every five minutes, none twice within a second. */
static void test_webhook__pauses_grow_to_the_longest(void **state)
{
    int64_t at_ms = 0;
    unsigned tries = 0;

    (void)state;
    while (at_ms < INT64_C(86400000)) {
        int64_t longest_ms = tries > 8 ? 300000 : INT64_C(1000) << tries;
        int64_t pause_ms = webhook_pause_ms(++tries, 300000);
        assert_in_range(pause_ms, longest_ms * 8 / 10, longest_ms);
        at_ms += pause_ms;
    }
    assert_in_range(tries, 280, 380);
    assert_in_range(webhook_pause_ms(1, 50), 40, 50);
    assert_in_range(webhook_pause_ms(4000000000, 300000), 240000, 300000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_webhook__signs_as_the_standard_says),
        cmocka_unit_test(test_webhook__every_secret_signs),
        cmocka_unit_test(test_webhook__what_is_no_secret_is_refused),
        cmocka_unit_test(test_webhook__the_body_is_the_event),
        cmocka_unit_test(test_webhook__pauses_grow_to_the_longest),
    };
    return cmocka_run_group_tests_name("webhook", tests, NULL, NULL);
}
