/* test_csv.c: what becomes of a text in a CSV file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"

static void test_csv__cells(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *cell;
    } cases[] = {
        {"", ""},
        {"u1", "u1"},
        {"a b", "a b"},
        {"a-b@c=d+e", "a-b@c=d+e"},
        {"=1+1", "'=1+1"},
        {"+1", "'+1"},
        {"-1", "'-1"},
        {"@SUM(A1)", "'@SUM(A1)"},
        {"\tx", "'\tx"},
        {"\rx", "\"'\rx\""},
        {"=HYPERLINK(\"x\",\"y\")", "\"'=HYPERLINK(\"\"x\"\",\"\"y\"\")\""},
        {"a,b", "\"a,b\""},
        {"a\"b", "\"a\"\"b\""},
        {"a\nb", "\"a\nb\""},
        {"\"", "\"\"\"\""},
        {"'=1", "'=1"},
        {" =1", " =1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buffer out;
        buffer_init(&out, 1000);
        csv_append_text(&out, span_of(cases[i].text));
        assert_true(span_equal((struct span){out.bytes, out.length}, span_of(cases[i].cell)));
        buffer_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_csv__cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
