/* test_proxy.c: the rightmost address that no trusted proxy has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "http/server/proxy.h"

#define PROXY "10.0.0.1"

static void check(const char *peer_text, const char *headers, const char *expected)
{
    char one[] = "10.0.0.0/8";
    char other[] = "2001:db8::/32";
    char *items[] = {one, other};
    const struct config_list trusted = {items, 2};
    struct proxies proxies;
    struct address peer;
    struct error error;
    char text[ADDRESS_TEXT_SIZE];
    assert_int_equal(proxies_init(&proxies, &trusted, &error), STATUS_OK);
    assert_true(address_parse(span_of(peer_text), &peer));
    struct http_request request = {.headers = span_of(headers), .is_forwarded = true};
    struct address client = proxies_client(&proxies, peer, &request);
    address_format(&client, text);
    assert_string_equal(text, expected);
    proxies_release(&proxies);
}

static void test_proxy__an_untrusted_one_is_the_client_itself(void **state)
{
    (void)state;
    check("192.0.2.9", "Host: a\r\nX-Forwarded-For: 198.51.100.1\r\n", "192.0.2.9");
    check("192.0.2.9", "Forwarded: for=198.51.100.1\r\n", "192.0.2.9");
}

static void test_proxy__the_rightmost_untrusted_address_counts(void **state)
{
    (void)state;
    check(PROXY, "Host: a\r\nX-Forwarded-For: 198.51.100.1\r\nAccept: b\r\n", "198.51.100.1");
    check(PROXY, "x-forwarded-for: 203.0.113.5, 198.51.100.1\r\n", "198.51.100.1");
    check(PROXY, "X-Forwarded-For: 203.0.113.5,198.51.100.1 ,\t10.1.1.1\r\n", "198.51.100.1");
    check(PROXY, "X-Forwarded-For: 198.51.100.1:4711\r\n", "198.51.100.1");
    check(PROXY, "X-Forwarded-For: [2001:dead::1]:4711\r\n", "2001:dead::1");
    check("2001:db8::7", "X-Forwarded-For: 2001:dead::1\r\n", "2001:dead::1");
    /* Where all are trusted, the one furthest out. */
    check(PROXY, "X-Forwarded-For: 10.9.9.9, 10.1.1.1\r\n", "10.9.9.9");
}

static void test_proxy__a_line_of_its_own_per_proxy_is_the_same_list(void **state)
{
    (void)state;
    check(PROXY, "X-Forwarded-For: 203.0.113.5\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1\r\n",
          "198.51.100.1");
    check(PROXY, "X-Forwarded-For: 198.51.100.1\r\nHost: a\r\nX-Forwarded-For: 10.1.1.1\r\n",
          "198.51.100.1");
}

static void test_proxy__what_is_not_an_address_ends_the_walk(void **state)
{
    (void)state;
    check(PROXY, "X-Forwarded-For: 203.0.113.5, unknown\r\n", PROXY);
    check(PROXY, "X-Forwarded-For: 203.0.113.5, , 10.1.1.1\r\n", "10.1.1.1");
    check(PROXY, "X-Forwarded-For:\r\n", PROXY);
    check(PROXY, "X-Forwarded-For: [::1\r\n", PROXY);
    check(PROXY, "X-Forwarded-Host: 198.51.100.1\r\n", PROXY);
    check(PROXY, "", PROXY);
}

static void test_proxy__forwarded_is_read_where_the_other_is_not_there(void **state)
{
    (void)state;
    check(PROXY, "Forwarded: for=203.0.113.5, for=198.51.100.1;proto=https\r\n", "198.51.100.1");
    check(PROXY, "Forwarded: proto=https; For=\"[2001:dead::1]:4711\"; by=10.0.0.1\r\n",
          "2001:dead::1");
    check(PROXY, "Forwarded: for=\"198.51.100.1:80\"\r\n", "198.51.100.1");
    check(PROXY, "Forwarded: for=_hidden\r\n", PROXY);
    check(PROXY, "Forwarded: proto=https\r\n", PROXY);
    check(PROXY, "Forwarded: for=203.0.113.5\r\nX-Forwarded-For: 198.51.100.1\r\n", "198.51.100.1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proxy__an_untrusted_one_is_the_client_itself),
        cmocka_unit_test(test_proxy__the_rightmost_untrusted_address_counts),
        cmocka_unit_test(test_proxy__a_line_of_its_own_per_proxy_is_the_same_list),
        cmocka_unit_test(test_proxy__what_is_not_an_address_ends_the_walk),
        cmocka_unit_test(test_proxy__forwarded_is_read_where_the_other_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
