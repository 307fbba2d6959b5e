/* test_buffer.c: growth, the hard maximum and number formatting. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"

/* The sanitizers would end the process where malloc returns NULL. */
const char *__asan_default_options(void);
const char *__tsan_default_options(void);

const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void test_buffer__nothing_is_allocated_before_the_first_append(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, 100);
    buffer_append_span(&buffer, (struct span){0});
    buffer_append(&buffer, "", 0);
    assert_null(buffer.bytes);
    assert_false(buffer.overflowed);
    buffer_release(&buffer);
}

static void test_buffer__appends_are_joined_and_followed_by_nul(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, 1000);
    buffer_append_literal(&buffer, "ab");
    assert_string_equal(buffer.bytes, "ab");
    buffer_append_text(&buffer, "cd");
    buffer_append_span(&buffer, SPAN("ef"));
    buffer_append_span(&buffer, (struct span){0});
    buffer_printf(&buffer, "%d", 42);
    assert_string_equal(buffer.bytes, "abcdef42");
    assert_int_equal(buffer.length, 8);
    buffer_release(&buffer);
}

static void test_buffer__grows_to_its_maximum_and_not_beyond(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, 1000);
    for (int i = 0; i < 1000; i++) {
        char byte = (char)('a' + i % 26);
        buffer_append(&buffer, &byte, 1);
    }
    assert_false(buffer.overflowed);
    assert_int_equal(buffer.length, 1000);
    assert_int_equal(buffer.capacity, 1001);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(buffer.bytes[i], 'a' + i % 26);
    buffer_append_literal(&buffer, "x");
    assert_true(buffer.overflowed);
    assert_int_equal(buffer.length, 1000);
    assert_int_equal(buffer.bytes[1000], '\0');
    buffer_release(&buffer);
}

static void test_buffer__after_an_overflow_every_append_is_dropped(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, 10);
    buffer_append_literal(&buffer, "123456");
    buffer_append_literal(&buffer, "78901"); /* one too many: none of it */
    assert_true(buffer.overflowed);
    buffer_append_literal(&buffer, "7");
    buffer_append_u64(&buffer, 7);
    buffer_append_i64(&buffer, -7);
    buffer_printf(&buffer, "%d", 7);
    assert_false(buffer_reserve(&buffer, 1));
    assert_string_equal(buffer.bytes, "123456");

    buffer_clear(&buffer);
    assert_false(buffer.overflowed);
    buffer_append_literal(&buffer, "1234567890");
    assert_false(buffer.overflowed);
    assert_string_equal(buffer.bytes, "1234567890");
    buffer_release(&buffer);
}

static void test_buffer__a_maximum_of_zero_takes_nothing(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, 0);
    buffer_append_literal(&buffer, "x");
    assert_true(buffer.overflowed);
    assert_int_equal(buffer.length, 0);
    buffer_release(&buffer);
}

static void test_buffer__a_huge_maximum_does_not_wrap_around(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, SIZE_MAX - 1);
    buffer_append_literal(&buffer, "x");
    assert_false(buffer.overflowed);
    assert_false(buffer_reserve(&buffer, SIZE_MAX / 2)); /* no such memory */
    assert_true(buffer.overflowed);
    assert_string_equal(buffer.bytes, "x");
    buffer_release(&buffer);
}

static void test_buffer__reserve_makes_room_that_stays(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, 5000);
    assert_true(buffer_reserve(&buffer, 3000));
    const char *bytes = buffer.bytes;
    for (int i = 0; i < 3000; i++)
        buffer_append_literal(&buffer, "x");
    assert_ptr_equal(buffer.bytes, bytes);
    assert_true(buffer_reserve(&buffer, 2000));
    assert_false(buffer_reserve(&buffer, 2001));
    buffer_release(&buffer);
}

static void test_buffer__release_leaves_an_empty_buffer(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, 50);
    buffer_append_literal(&buffer, "abc");
    buffer_release(&buffer);
    assert_int_equal(buffer.length, 0);
    buffer_append_literal(&buffer, "def");
    assert_string_equal(buffer.bytes, "def");
    buffer_release(&buffer);
}

static void test_buffer__printf_takes_long_text(void **state)
{
    for (int length = 250; length < 262; length++) {
        struct buffer buffer;
        buffer_init(&buffer, 300);
        buffer_printf(&buffer, "%*d|", length, 1);
        assert_int_equal(buffer.length, length + 1);
        assert_int_equal(strlen(buffer.bytes), length + 1);
        assert_int_equal(buffer.bytes[length], '|');
        buffer_printf(&buffer, "%*d", 301 - length, 1);
        assert_true(buffer.overflowed);
        assert_int_equal(strlen(buffer.bytes), length + 1);
        buffer_release(&buffer);
    }
}

static void check_u64(uint64_t number)
{
    struct buffer buffer;
    buffer_init(&buffer, 30);
    buffer_append_u64(&buffer, number);
    char expected[32];
    snprintf(expected, sizeof(expected), "%" PRIu64, number);
    assert_string_equal(buffer.bytes, expected);
    assert_int_equal(buffer.length, strlen(expected));
    buffer_release(&buffer);
}

static void test_buffer__u64_agrees_with_printf(void **state)
{
    check_u64(0);
    check_u64(UINT32_MAX);
    check_u64(UINT32_MAX + UINT64_C(1));
    check_u64(UINT64_MAX);
    uint64_t power = 1;
    for (int i = 0; i < 20; i++, power *= 10) {
        check_u64(power - 1);
        check_u64(power);
        check_u64(power + 1);
    }
    for (int i = 0; i < 64; i++) {
        check_u64(UINT64_C(1) << i);
        check_u64((UINT64_C(1) << i) - 1);
    }
    for (uint64_t i = 0; i < 12000; i++)
        check_u64(i);
}

static void test_buffer__i64_reaches_both_ends(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, 100);
    buffer_append_i64(&buffer, INT64_MIN);
    buffer_append_literal(&buffer, " ");
    buffer_append_i64(&buffer, -1);
    buffer_append_literal(&buffer, " ");
    buffer_append_i64(&buffer, 0);
    buffer_append_literal(&buffer, " ");
    buffer_append_i64(&buffer, INT64_MAX);
    assert_string_equal(buffer.bytes, "-9223372036854775808 -1 0 9223372036854775807");
    buffer_release(&buffer);
}

static void test_buffer__numbers_that_do_not_fit_leave_no_digits(void **state)
{
    struct buffer buffer;
    buffer_init(&buffer, 4);
    buffer_append_u64(&buffer, 12345);
    assert_true(buffer.overflowed);
    assert_int_equal(buffer.length, 0);
    buffer_clear(&buffer);
    buffer_append_i64(&buffer, -1234);
    assert_true(buffer.overflowed);
    assert_int_equal(buffer.length, 0);
    buffer_clear(&buffer);
    buffer_append_i64(&buffer, -123);
    assert_string_equal(buffer.bytes, "-123");
    buffer_release(&buffer);
}

static void test_buffer__spans_compare_by_bytes(void **state)
{
    assert_true(span_equal(SPAN("ab"), span_of("ab")));
    assert_false(span_equal(SPAN("ab"), SPAN("ac")));
    assert_false(span_equal(SPAN("ab"), SPAN("abc")));
    assert_true(span_equal((struct span){0}, SPAN("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffer__nothing_is_allocated_before_the_first_append),
        cmocka_unit_test(test_buffer__appends_are_joined_and_followed_by_nul),
        cmocka_unit_test(test_buffer__grows_to_its_maximum_and_not_beyond),
        cmocka_unit_test(test_buffer__after_an_overflow_every_append_is_dropped),
        cmocka_unit_test(test_buffer__a_maximum_of_zero_takes_nothing),
        cmocka_unit_test(test_buffer__a_huge_maximum_does_not_wrap_around),
        cmocka_unit_test(test_buffer__reserve_makes_room_that_stays),
        cmocka_unit_test(test_buffer__release_leaves_an_empty_buffer),
        cmocka_unit_test(test_buffer__printf_takes_long_text),
        cmocka_unit_test(test_buffer__u64_agrees_with_printf),
        cmocka_unit_test(test_buffer__i64_reaches_both_ends),
        cmocka_unit_test(test_buffer__numbers_that_do_not_fit_leave_no_digits),
        cmocka_unit_test(test_buffer__spans_compare_by_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
