/* test_query.c: parameters are known, single and in range, cursors are our own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/api/ask.h"

static enum status read_query(const char *query, struct query_param params[2], char *field,
                              struct error *error)
{
    params[0] = (struct query_param){.name = "limit"};
    params[1] = (struct query_param){.name = "after"};
    return query_read(span_of(query), params, 2, field, error);
}

static void test_query__takes_what_the_call_knows(void **state)
{
    (void)state;
    struct query_param params[2];
    char field[QUERY_NAME_SIZE];
    struct error error;
    assert_int_equal(read_query("", params, field, &error), STATUS_OK);
    assert_false(params[0].present);
    assert_int_equal(read_query("after=a%2Db&&limit=5&", params, field, &error), STATUS_OK);
    assert_string_equal(params[0].value, "5");
    assert_string_equal(params[1].value, "a-b");
    assert_int_equal(read_query("limit", params, field, &error), STATUS_OK);
    assert_true(params[0].present);
    assert_int_equal(params[0].length, 0);
}

static void test_query__refuses_the_rest_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *query;
        const char *field;
    } cases[] = {
        {"nope=1", "nope"},      {"limit=1&limit=1", "limit"},
        {"Limit=1", "Limit"},    {"limi=1", "limi"},
        {"limit%00=1", "limit"}, {"=1", ""},
        {"limit=%4", "limit"},   {"%zz=1", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct query_param params[2];
        char field[QUERY_NAME_SIZE];
        struct error error;
        assert_int_equal(read_query(cases[i].query, params, field, &error), STATUS_INVALID);
        assert_string_equal(field, cases[i].field);
        assert_true(strlen(error.text) > 0);
    }
    char longer[400];
    struct query_param params[2];
    char field[QUERY_NAME_SIZE];
    struct error error;
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    assert_int_equal(read_query(longer, params, field, &error), STATUS_INVALID);
    memcpy(longer, "after=", 6);
    assert_int_equal(read_query(longer, params, field, &error), STATUS_INVALID);
    assert_string_equal(field, "after");
}

static void test_query__integers_are_whole_and_in_range(void **state)
{
    (void)state;
    static const char *const bad[] = {"",  "0",  "1001", "-1",  "+1",  "1.0",
                                      "x", "1x", " 1",   "007", "1e2", "99999999999999999999"};
    struct query_param param = {.name = "limit"};
    struct error error;
    int64_t number;
    assert_int_equal(query_integer(&param, 1, 1000, 100, &number, &error), STATUS_OK);
    assert_int_equal(number, 100);
    param.present = true;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        param.length = strlen(bad[i]);
        memcpy(param.value, bad[i], param.length + 1);
        assert_int_equal(query_integer(&param, 1, 1000, 100, &number, &error), STATUS_INVALID);
        assert_string_equal(error.text, "limit: must be an integer from 1 to 1000");
    }
    memcpy(param.value, "1000", 5);
    param.length = 4;
    assert_int_equal(query_integer(&param, 1, 1000, 100, &number, &error), STATUS_OK);
    assert_int_equal(number, 1000);
    memcpy(param.value, "0", 2);
    param.length = 1;
    assert_int_equal(query_integer(&param, 0, 60, 0, &number, &error), STATUS_OK);
}

static void test_query__cursors_come_back_as_they_went(void **state)
{
    (void)state;
    static const int64_t numbers[] = {0, 1, 42, INT64_C(9007199254740991)};
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 4; j++) {
            char text[CURSOR_SIZE];
            int64_t first;
            int64_t second;
            cursor_write(text, 'c', numbers[i], numbers[j]);
            assert_true(strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789-_") == strlen(text));
            assert_true(cursor_read(span_of(text), 'c', &first, &second));
            assert_int_equal(first, numbers[i]);
            assert_int_equal(second, numbers[j]);
            assert_false(cursor_read(span_of(text), 'p', &first, &second));
        }
    }
}

static void test_query__cursors_that_are_not_ours(void **state)
{
    (void)state;
    /* The last ones are c1, c1-, c-1, c1-1x, c01-1, c 1-1 and "c1-1" with bits left over. */
    static const char *const texts[] = {
        "",         "zz!",
        "AAAA",     "Y",
        "nonsense", "YzE",
        "YzEt",     "Yy0x",
        "YzEtMXg",  "YzAxLTE",
        "YyAxLTE",  "YzEtMR",
        "YzEtMQ==", "YzEtMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTEx"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int64_t first;
        int64_t second;
        assert_false(cursor_read(span_of(texts[i]), 'c', &first, &second));
    }
    int64_t first;
    int64_t second;
    assert_true(cursor_read(SPAN("YzEtMQ"), 'c', &first, &second));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query__takes_what_the_call_knows),
        cmocka_unit_test(test_query__refuses_the_rest_by_name),
        cmocka_unit_test(test_query__integers_are_whole_and_in_range),
        cmocka_unit_test(test_query__cursors_come_back_as_they_went),
        cmocka_unit_test(test_query__cursors_that_are_not_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
