/* test_utf8.c: every code point, and the forms that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"

static size_t encode(uint32_t code_point, char bytes[4])
{
    if (code_point < 0x80) {
        bytes[0] = (char)code_point;
        return 1;
    }
    if (code_point < 0x800) {
        bytes[0] = (char)(0xc0 | code_point >> 6);
        bytes[1] = (char)(0x80 | (code_point & 0x3f));
        return 2;
    }
    if (code_point < 0x10000) {
        bytes[0] = (char)(0xe0 | code_point >> 12);
        bytes[1] = (char)(0x80 | (code_point >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (code_point & 0x3f));
        return 3;
    }
    bytes[0] = (char)(0xf0 | code_point >> 18);
    bytes[1] = (char)(0x80 | (code_point >> 12 & 0x3f));
    bytes[2] = (char)(0x80 | (code_point >> 6 & 0x3f));
    bytes[3] = (char)(0x80 | (code_point & 0x3f));
    return 4;
}

static void test_utf8__every_code_point_is_read_but_surrogates(void **state)
{
    for (uint32_t code_point = 0; code_point <= 0x110fff; code_point++) {
        char bytes[4];
        uint32_t decoded = 0xdead;
        size_t length = encode(code_point, bytes);
        bool valid = code_point <= 0x10ffff && (code_point < 0xd800 || code_point > 0xdfff);
        size_t count = utf8_decode(bytes, length, &decoded);
        if (count != (valid ? length : 0) || decoded != (valid ? code_point : 0xdead))
            fail_msg("U+%04X: %zu bytes, U+%04X", (unsigned)code_point, count, (unsigned)decoded);
        /* The same with its end missing. */
        if (length > 1)
            assert_int_equal(utf8_decode(bytes, length - 1, &decoded), 0);
    }
}

static void test_utf8__malformed_bytes_are_refused(void **state)
{
    static const struct span texts[] = {
        SPAN(""),
        SPAN("\x80"),
        SPAN("\xbf"),
        SPAN("\xc0\x80"),
        SPAN("\xc1\xbf"),
        SPAN("\xe0\x80\x80"),
        SPAN("\xff"),
        SPAN("\xe0\x9f\xbf"),
        SPAN("\xf0\x8f\xbf\xbf"),
        SPAN("\xc3\x28"),
        SPAN("\xe2\x28\xa1"),
        SPAN("\xe2\x82\x28"),
        SPAN("\xfe"),
        SPAN("\xed\xa0\x80"),
        SPAN("\xf4\x90\x80\x80"),
        SPAN("\xc3\xc3"),
        SPAN("\xe2\x82\xc0"),
        SPAN("\xf8\x88\x80\x80\x80"),
        SPAN("\xf9\x80\x80\x80"),
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint32_t code_point;
        if (utf8_decode(texts[i].bytes, texts[i].length, &code_point) != 0)
            fail_msg("text %zu was taken", i);
    }
}

static void test_utf8__a_prefix_splits_no_character(void **state)
{
    struct span text = SPAN("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\x9f");
    static const size_t expected[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10, 10};
    for (size_t length_max = 0; length_max < sizeof(expected) / sizeof(expected[0]); length_max++) {
        struct span prefix = utf8_prefix(text, length_max);
        assert_ptr_equal(prefix.bytes, text.bytes);
        assert_int_equal(prefix.length, expected[length_max]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8__every_code_point_is_read_but_surrogates),
        cmocka_unit_test(test_utf8__malformed_bytes_are_refused),
        cmocka_unit_test(test_utf8__a_prefix_splits_no_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
