/* test_header.c: the small grammars of header values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/server/header.h"

static void test_header__key_is_the_same_quoted_or_bare(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        const char *key; /* NULL: refused */
    } cases[] = {
        {"abc", "abc"},        {"\"abc\"", "abc"},     {"a\"b", "a\"b"},     {"\"a\\\"b\"", "a\"b"},
        {"a\\b", "a\\b"},      {"\"a\\\\b\"", "a\\b"}, {"~!", "~!"},         {"", NULL},
        {"\"\"", NULL},        {"\"", NULL},           {"\"abc", NULL},      {"\"abc\"x", NULL},
        {"\"abc\";a=1", NULL}, {"\"a\\bc\"", NULL},    {"\"a\\", NULL},      {"a b", NULL},
        {"\"a b\"", NULL},     {"a\tb", NULL},         {"k\xc3\xa9y", NULL}, {"\x7f", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char bytes[IDEMPOTENCY_KEY_MAX];
        struct span key;
        bool taken = header_idempotency_key(span_of(cases[i].value), bytes, &key);
        assert_int_equal(taken, cases[i].key != NULL);
        if (taken)
            assert_true(span_equal(key, span_of(cases[i].key)));
    }
}

static void test_header__key_has_128_characters_at_most(void **state)
{
    (void)state;
    char bytes[IDEMPOTENCY_KEY_MAX];
    char value[300];
    struct span key;
    memset(value, 'k', sizeof(value));
    assert_true(header_idempotency_key((struct span){value, 128}, bytes, &key));
    assert_false(header_idempotency_key((struct span){value, 129}, bytes, &key));
    value[0] = '"';
    value[129] = '"';
    assert_true(header_idempotency_key((struct span){value, 130}, bytes, &key));
    assert_int_equal(key.length, 128);
    value[129] = 'k';
    value[130] = '"';
    assert_false(header_idempotency_key((struct span){value, 131}, bytes, &key));
    /* 128 characters that all need an escape are still 128. */
    for (int i = 0; i < 128; i++) {
        value[1 + 2 * i] = '\\';
        value[2 + 2 * i] = '\\';
    }
    value[257] = '"';
    assert_true(header_idempotency_key((struct span){value, 258}, bytes, &key));
    assert_int_equal(key.length, 128);
}

static void test_header__json_content_types(void **state)
{
    (void)state;
    static const char *const good[] = {
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "application/json; charset=\"utf-8\"",
        "application/json ;",
    };
    static const char *const bad[] = {
        "",
        "text/plain",
        "application/jsonp",
        "application/json x",
        "text/json",
        "application/json;x",
        "application/json; charset=latin1",
        "application/problem+json",
        "application/json, text/plain",
        "multipart/form-data; application/json",
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(header_is_json(span_of(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(header_is_json(span_of(bad[i])));
    assert_false(header_is_json((struct span){NULL, 0}));
}

static void test_header__bearer(void **state)
{
    (void)state;
    struct span token;
    assert_true(header_bearer(SPAN("Bearer abc"), &token));
    assert_true(span_equal(token, SPAN("abc")));
    assert_true(header_bearer(SPAN("bEARER  abc"), &token));
    assert_true(span_equal(token, SPAN("abc")));
    static const char *const bad[] = {"", "Bearer", "Bearer ", "Bearerabc", "Basic abc", "abc"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(header_bearer(span_of(bad[i]), &token));
    assert_false(header_bearer((struct span){NULL, 0}, &token));
}

static void test_header__loopback_hosts(void **state)
{
    (void)state;
    static const char *const own[] = {"localhost",      "LOCALHOST:80",  "127.0.0.1",
                                      "127.0.0.1:8080", "127.9.9.9:1",   "[::1]",
                                      "[::1]:8080",     "localhost:8080"};
    static const char *const foreign[] = {
        "",
        "example.com",
        "localhost.example.com",
        "127.0.0.1.example.com",
        "128.0.0.1",
        "[::2]:80",
        "::1",
        "127.0.0.1:80:80",
        "127.1",
        "localhost:8080.evil",
        "0.0.0.0",
        "10.0.0.1:8080",
        "xlocalhost",
        "127.0.0.1@evil.example",
    };
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        assert_true(header_host_is_loopback(span_of(own[i])));
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_false(header_host_is_loopback(span_of(foreign[i])));
    assert_false(header_host_is_loopback((struct span){NULL, 0}));
}

static void test_header__origin_is_the_host(void **state)
{
    (void)state;
    const struct span host = SPAN("127.0.0.1:8080");
    assert_true(header_origin_is_host(SPAN("http://127.0.0.1:8080"), host));
    assert_true(header_origin_is_host(SPAN("https://127.0.0.1:8080"), host));
    static const char *const foreign[] = {"http://127.0.0.1",        "http://127.0.0.1:8081",
                                          "http://evil.example",     "null",
                                          "http://127.0.0.1:8080/",  "",
                                          "ftp://127.0.0.1:8080",    "127.0.0.1:8080",
                                          "http://127.0.0.1:8080.x", "http://x127.0.0.1:8080"};
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_false(header_origin_is_host(span_of(foreign[i]), host));
}

static void test_header__visible_characters(void **state)
{
    (void)state;
    assert_true(header_is_visible(SPAN("!~"), 2));
    assert_false(header_is_visible(SPAN("!~x"), 2));
    assert_false(header_is_visible(SPAN(""), 2));
    assert_false(header_is_visible(SPAN(" "), 2));
    assert_false(header_is_visible(SPAN("\x80"), 2));
}

static void test_header__quality(void **state)
{
    (void)state;
    static const struct {
        const char *list;
        int quality; /* of "gzip" */
    } cases[] = {
        {"", -1},
        {"gzip", 1000},
        {" GZip ", 1000},
        {"br,gzip", 1000},
        {"gzip;q=0", 0},
        {"gzip;q=0.000", 0},
        {"gzip;q=1", 1000},
        {"gzip;q=1.000", 1000},
        {"gzip;q=0.5", 500},
        {"gzip;q=0.05", 50},
        {"gzip ;\tQ=0.123 ", 123},
        {"gzip;q=1.1", 0},
        {"gzip;q=0.1234", 0},
        {"gzip;q=-1", 0},
        {"gzip;q=", 0},
        {"gzip;q=0,5", 0},
        {"gzip;q=.5", 0},
        {"gzip;x=1;q=0.7", 700},
        {"gzip;x=1", 1000},
        {"xgzip, gzipx", -1},
        {"*;q=0.1", -1},
        {";q=1, gzip;q=0.2", 200},
        {"gzip;q=0.3, gzip", 300},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(header_quality(span_of(cases[i].list), SPAN("gzip")), cases[i].quality);
    assert_int_equal(header_quality((struct span){NULL, 0}, SPAN("gzip")), -1);
}

static void test_header__known_etags(void **state)
{
    (void)state;
    static const char *const known[] = {"\"a\"", "*", "W/\"a\"", "\"b\", \"a\"",
                                        "\"b\",W/\"a\" , \"c\""};
    static const char *const other[] = {"",        "a",     "\"b\"", "\"a", "\"A\"",
                                        "w/\"a\"", "\"*\"", "W/",    "*, b"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_true(header_knows_etag(span_of(known[i]), SPAN("\"a\"")));
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++)
        assert_false(header_knows_etag(span_of(other[i]), SPAN("\"a\"")));
    assert_false(header_knows_etag((struct span){NULL, 0}, SPAN("\"a\"")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_header__key_is_the_same_quoted_or_bare),
        cmocka_unit_test(test_header__key_has_128_characters_at_most),
        cmocka_unit_test(test_header__json_content_types),
        cmocka_unit_test(test_header__bearer),
        cmocka_unit_test(test_header__loopback_hosts),
        cmocka_unit_test(test_header__origin_is_the_host),
        cmocka_unit_test(test_header__visible_characters),
        cmocka_unit_test(test_header__quality),
        cmocka_unit_test(test_header__known_etags),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
