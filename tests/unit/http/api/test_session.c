/* test_session.c: the cookie of a login. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "http/api/auth.h"

#define NOW_S  INT64_C(1700000000)
#define NOW_MS (NOW_S * 1000)

static struct session_key key_of(const char *token)
{
    struct session_key key;
    session_key_derive(&key, span_of(token));
    return key;
}

static enum session_verdict check(const char *token, const char *header, int64_t now_ms)
{
    struct session_key key = key_of(token);
    return session_check(&key, span_of(header), now_ms);
}

/* "dibs_session=…" of the token "right". */
static const char *cookie_until(int64_t expires_s, char text[128])
{
    struct session_key key = key_of("right");
    char value[SESSION_VALUE_SIZE];
    session_write(&key, expires_s, value);
    snprintf(text, 128, "%s=%s", SESSION_COOKIE, value);
    return text;
}

static void test_session__is_good_until_its_end(void **state)
{
    (void)state;
    char cookie[128];
    cookie_until(NOW_S + 10, cookie);
    assert_int_equal(check("right", cookie, NOW_MS), SESSION_VALID);
    assert_int_equal(check("right", cookie, NOW_MS + 9999), SESSION_VALID);
    assert_int_equal(check("right", cookie, NOW_MS + 10000), SESSION_EXPIRED);
    cookie_until(INT64_C(999999999999), cookie);
    assert_int_equal(check("right", cookie, NOW_MS), SESSION_VALID);
    assert_int_equal(check("right", cookie_until(0, cookie), NOW_MS), SESSION_EXPIRED);
}

static void test_session__is_of_one_token(void **state)
{
    (void)state;
    char cookie[128];
    static const char *const others[] = {"wrong", "righ", "rightt", "Right", "right\n", ""};
    cookie_until(NOW_S + 10, cookie);
    assert_null(strstr(cookie, "right"));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        assert_int_equal(check(others[i], cookie, NOW_MS), SESSION_WRONG);
}

static void test_session__no_character_can_be_changed(void **state)
{
    (void)state;
    char cookie[128];
    const size_t name_length = sizeof(SESSION_COOKIE "=") - 1;
    cookie_until(NOW_S + 10, cookie);
    const size_t length = strlen(cookie);
    for (size_t at = name_length; at < length; at++) {
        for (int bit = 1; bit < 0x80; bit *= 2) {
            cookie[at] ^= (char)bit;
            assert_int_not_equal(check("right", cookie, NOW_MS), SESSION_VALID);
            cookie[at] ^= (char)bit;
        }
    }
    for (size_t cut = name_length; cut < length; cut++) {
        struct session_key key = key_of("right");
        assert_int_equal(session_check(&key, (struct span){cookie, cut}, NOW_MS), SESSION_WRONG);
    }
    cookie[length] = '0';
    cookie[length + 1] = '\0';
    assert_int_equal(check("right", cookie, NOW_MS), SESSION_WRONG);
}

/* A MAC of "10" must not vouch for "010" or " 10", nor one of "1" for the first digit of "10". */
static void test_session__an_expiry_has_one_spelling(void **state)
{
    (void)state;
    char cookie[128];
    char other[160];
    cookie_until(NOW_S + 10, cookie);
    const char *value = cookie + sizeof(SESSION_COOKIE "=") - 1;
    static const char *const before[] = {"0", "00", "+", " ", "1", "."};
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        snprintf(other, sizeof(other), SESSION_COOKIE "=%s%s", before[i], value);
        assert_int_equal(check("right", other, NOW_MS), SESSION_WRONG);
    }
    snprintf(other, sizeof(other), SESSION_COOKIE "=9999999999999%s", strchr(value, '.'));
    assert_int_equal(check("right", other, NOW_MS), SESSION_WRONG);
    snprintf(other, sizeof(other), SESSION_COOKIE "=%s", strchr(value, '.'));
    assert_int_equal(check("right", other, NOW_MS), SESSION_WRONG);
}

static void test_session__is_found_among_other_cookies(void **state)
{
    (void)state;
    char cookie[128];
    char header[512];
    cookie_until(NOW_S + 10, cookie);
    static const struct {
        const char *before;
        const char *after;
        enum session_verdict verdict;
    } cases[] = {
        {"", "", SESSION_VALID},
        {"a=b; ", "", SESSION_VALID},
        {"", "; a=b", SESSION_VALID},
        {"a=b;", ";c", SESSION_VALID},
        {"dibs_session=x; ", "", SESSION_VALID},
        {"", "; dibs_session=x", SESSION_VALID},
        {"dibs_session=; ", "; dibs_session", SESSION_VALID},
        {"x", "", SESSION_ABSENT},
        {"a=", "", SESSION_ABSENT},
        {"a=\"; ", "\"", SESSION_WRONG},
        {"", " ; a=b", SESSION_WRONG},
        {"", ", a=b", SESSION_WRONG},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(header, sizeof(header), "%s%s%s", cases[i].before, cookie, cases[i].after);
        assert_int_equal(check("right", header, NOW_MS), cases[i].verdict);
    }
    static const char *const absent[] = {"", ";", "; ;", "dibs_session", "DIBS_SESSION=1", "dibs"};
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++)
        assert_int_equal(check("right", absent[i], NOW_MS), SESSION_ABSENT);
    struct session_key key = key_of("right");
    assert_int_equal(session_check(&key, (struct span){NULL, 0}, NOW_MS), SESSION_ABSENT);
    assert_int_equal(check("right", "dibs_session=", NOW_MS), SESSION_WRONG);
}

static void test_session__says_expired_whatever_is_beside_it(void **state)
{
    (void)state;
    char cookie[128];
    char header[256];
    cookie_until(NOW_S - 1, cookie);
    snprintf(header, sizeof(header), "dibs_session=x; %s", cookie);
    assert_int_equal(check("right", header, NOW_MS), SESSION_EXPIRED);
    snprintf(header, sizeof(header), "%s; dibs_session=x", cookie);
    assert_int_equal(check("right", header, NOW_MS), SESSION_EXPIRED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session__is_good_until_its_end),
        cmocka_unit_test(test_session__is_of_one_token),
        cmocka_unit_test(test_session__no_character_can_be_changed),
        cmocka_unit_test(test_session__an_expiry_has_one_spelling),
        cmocka_unit_test(test_session__is_found_among_other_cookies),
        cmocka_unit_test(test_session__says_expired_whatever_is_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
