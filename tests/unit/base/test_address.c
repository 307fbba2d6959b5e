/* test_address.c: addresses and networks, as text and as they come from sockets. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/address.h"

static void test_address__reads_and_writes_texts(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"192.0.2.1", "192.0.2.1"},
        {"::ffff:192.0.2.1", "192.0.2.1"},
        {"2001:DB8::1", "2001:db8::1"},
        {"::1", "::1"},
    };
    static const char *const bad[] = {"",        "1.2.3",    "1.2.3.4.5", "256.1.1.1",
                                      "unknown", "1.2.3.4 ", " 1.2.3.4",  ":::1",
                                      "[::1]",   "::1%lo",   "1.2.3.4:5", "2001:db8::g"};
    struct address address;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        char text[ADDRESS_TEXT_SIZE];
        assert_true(address_parse(span_of(good[i][0]), &address));
        address_format(&address, text);
        assert_string_equal(text, good[i][1]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(address_parse(span_of(bad[i]), &address));
    assert_false(address_parse(SPAN("1.2.3.4\0x"), &address));
}

static void test_address__is_the_same_from_either_kind_of_socket(void **state)
{
    (void)state;
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    assert_int_equal(inet_pton(AF_INET, "192.0.2.1", &v4.sin_addr), 1);
    assert_int_equal(inet_pton(AF_INET6, "::ffff:192.0.2.1", &v6.sin6_addr), 1);
    struct address one = address_of((const struct sockaddr *)(const void *)&v4);
    struct address other = address_of((const struct sockaddr *)(const void *)&v6);
    assert_memory_equal(&one, &other, sizeof(one));
    assert_true(address_is_v4(&one));
}

static void test_network__contains_what_shares_its_prefix(void **state)
{
    (void)state;
    static const struct {
        const char *network;
        const char *address;
        bool inside;
    } cases[] = {
        {"10.0.0.0/8", "10.255.0.1", true},       {"10.0.0.0/8", "11.0.0.1", false},
        {"10.0.0.0/8", "::ffff:10.1.1.1", true},  {"192.0.2.128/25", "192.0.2.200", true},
        {"192.0.2.128/25", "192.0.2.1", false},   {"192.0.2.7", "192.0.2.7", true},
        {"192.0.2.7", "192.0.2.8", false},        {"0.0.0.0/0", "203.0.113.9", true},
        {"0.0.0.0/0", "2001:db8::1", false},      {"::/0", "2001:db8::1", true},
        {"2001:db8::/33", "2001:db8::1", true},   {"2001:db8::/33", "2001:db8:8000::1", false},
        {"2001:db8::1/128", "2001:db8::1", true}, {"2001:db8::1/128", "2001:db8::2", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct network network;
        struct address address;
        assert_true(network_parse(span_of(cases[i].network), &network));
        assert_true(address_parse(span_of(cases[i].address), &address));
        assert_int_equal(network_contains(&network, &address), cases[i].inside);
    }
    static const char *const bad[] = {"",        "/8",          "10.0.0.0/", "10.0.0.0/33",
                                      "::/129",  "10.0.0.0/-1", "10/8",      "10.0.0.0/8/8",
                                      "::/0000", "shop.example"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct network network;
        assert_false(network_parse(span_of(bad[i]), &network));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_address__reads_and_writes_texts),
        cmocka_unit_test(test_address__is_the_same_from_either_kind_of_socket),
        cmocka_unit_test(test_network__contains_what_shares_its_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
