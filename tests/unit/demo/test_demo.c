/* test_demo.c: the demo's crowd comes in order, and brings repeats and latecomers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "demo/demo.h"

static void test_crowd__comes_in_order(void **state)
{
    (void)state;
    int64_t before_ms = INT64_MIN;
    for (size_t i = 0; i < CROWD_COUNT; i++) {
        int64_t at_ms = crowd_time_ms(i);
        assert_true(at_ms >= before_ms);
        before_ms = at_ms;
    }
    assert_int_equal(crowd_time_ms(0), -2000);
    assert_true(before_ms < 20000 && before_ms > 19000);
    assert_int_equal(crowd_time_ms(CROWD_COUNT), 20000);
}

static void test_crowd__wants_more_than_there_is_before_the_first_wave_is_over(void **state)
{
    (void)state;
    static char users[CROWD_COUNT][CROWD_USER_SIZE];
    size_t different = 0;
    size_t again = 0;
    for (size_t i = 0; i < CROWD_COUNT; i++) {
        crowd_user(i, users[i]);
        assert_true(json_id_valid(span_of(users[i])));
        bool is_new = true;
        for (size_t j = 0; j < i && is_new; j++)
            is_new = strcmp(users[i], users[j]) != 0;
        int64_t at_ms = crowd_time_ms(i);
        different += is_new && at_ms >= 0 && at_ms < 5000;
        again += !is_new;
    }
    assert_true(different > CROWD_TOTAL);
    assert_true(again > CROWD_COUNT / 20);
}

static void test_shop__says_valid_json(void **state)
{
    (void)state;
    struct shop shop;
    struct buffer out;
    buffer_init(&out, 65536);
    shop_init(&shop, INT64_C(1700000000000));
    shop_append_products(&out);
    assert_non_null(strstr(out.bytes, "\"product_id\":\"demo-20\""));
    buffer_clear(&out);
    shop_append_past(&out, INT64_C(1700000000000));
    assert_null(strstr(out.bytes, ",,"));
    assert_null(strstr(out.bytes, "[,"));
    /* It has to fit into one request. */
    assert_true(out.length < 16384);
    buffer_clear(&out);
    shop_append_order(&shop, &out, INT64_C(1700000000000));
    assert_non_null(strstr(out.bytes, "\"order_id\":\"demo-1700000000000-1\""));
    buffer_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd__comes_in_order),
        cmocka_unit_test(test_crowd__wants_more_than_there_is_before_the_first_wave_is_over),
        cmocka_unit_test(test_shop__says_valid_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
