/* test_url.c: what the parts of a backend's URL are, what is refused, and that no password shows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/url.h"

static struct url parsed(const char *text)
{
    struct url url;
    struct error error = {{0}};
    if (url_parse(&url, text, &error) != STATUS_OK)
        fail_msg("%s: %s", text, error.text);
    return url;
}

static void assert_host(const struct url *url, size_t index, const char *name, int port)
{
    assert_true(index < url->host_count);
    assert_string_equal(url->hosts[index].name, name);
    assert_int_equal(url->hosts[index].port, port);
}

static void test_url__all_parts(void **state)
{
    struct url url = parsed("mysql://shop:s3cret@db.example:3306/coupons?ssl_mode=REQUIRED&x=y=z");
    assert_string_equal(url.scheme, "mysql");
    assert_string_equal(url.user, "shop");
    assert_string_equal(url.password, "s3cret");
    assert_int_equal(url.host_count, 1);
    assert_host(&url, 0, "db.example", 3306);
    assert_string_equal(url.path, "coupons");
    assert_int_equal(url.parameter_count, 2);
    assert_string_equal(url_parameter(&url, "ssl_mode"), "REQUIRED");
    assert_string_equal(url_parameter(&url, "x"), "y=z");
    assert_null(url_parameter(&url, "ssl"));
    assert_true(url_has_password(&url));
    url_release(&url);
    url_release(&url);
}

static void test_url__everything_but_the_scheme_may_be_left_out(void **state)
{
    struct url url = parsed("redis+cluster://");
    assert_string_equal(url.scheme, "redis+cluster");
    assert_null(url.user);
    assert_null(url.password);
    assert_int_equal(url.host_count, 1);
    assert_host(&url, 0, "", 0);
    assert_string_equal(url.path, "");
    assert_int_equal(url.parameter_count, 0);
    assert_false(url_has_password(&url));
    url_release(&url);

    url = parsed("kafka://h/");
    assert_host(&url, 0, "h", 0);
    assert_string_equal(url.path, "");
    url_release(&url);

    url = parsed("kafka://u@?a=");
    assert_string_equal(url.user, "u");
    assert_null(url.password);
    assert_host(&url, 0, "", 0);
    assert_string_equal(url_parameter(&url, "a"), "");
    url_release(&url);

    url = parsed("redis://:pw@h");
    assert_string_equal(url.user, "");
    assert_string_equal(url.password, "pw");
    url_release(&url);

    url = parsed("redis://u:@:7/0");
    assert_string_equal(url.password, "");
    assert_host(&url, 0, "", 7);
    assert_string_equal(url.path, "0");
    url_release(&url);
}

static void test_url__parts_are_decoded(void **state)
{
    struct url url = parsed("x://%61:%2f%3F%40%23%25%26@%68/%c3%a9?%6e%3D=%26%3d");
    assert_string_equal(url.user, "a");
    assert_string_equal(url.password, "/?@#%&");
    assert_host(&url, 0, "h", 0);
    assert_string_equal(url.path, "\xc3\xa9");
    assert_string_equal(url_parameter(&url, "n="), "&=");
    url_release(&url);
    /* "+" is a blank in forms, not in URLs. */
    url = parsed("x://a:b+c@h/d+e?f=g+h");
    assert_string_equal(url.password, "b+c");
    assert_string_equal(url.path, "d+e");
    assert_string_equal(url_parameter(&url, "f"), "g+h");
    url_release(&url);
}

static void test_url__hosts(void **state)
{
    struct url url = parsed("kafka://a:1,b,[::1]:3,[2001:db8::2],%2Frun%2Fdb.sock/t");
    assert_int_equal(url.host_count, 5);
    assert_host(&url, 0, "a", 1);
    assert_host(&url, 1, "b", 0);
    assert_host(&url, 2, "::1", 3);
    assert_host(&url, 3, "2001:db8::2", 0);
    assert_host(&url, 4, "/run/db.sock", 0);
    assert_string_equal(url.path, "t");
    url_release(&url);
    url = parsed("x://[fe80::1%25eth0]:65535");
    assert_host(&url, 0, "fe80::1%eth0", 65535);
    url_release(&url);
}

static void test_url__a_socket_is_a_host(void **state)
{
    struct url url = parsed("mysql://u@localhost/db?a=1&socket=/run/my%20sql.sock&b=2");
    assert_int_equal(url.host_count, 1);
    assert_host(&url, 0, "/run/my sql.sock", 0);
    assert_int_equal(url.parameter_count, 2);
    assert_null(url_parameter(&url, "socket"));
    assert_string_equal(url_parameter(&url, "a"), "1");
    assert_string_equal(url_parameter(&url, "b"), "2");
    url_release(&url);
}

static void test_url__what_is_wrong_is_said_with_its_place(void **state)
{
    static const struct {
        const char *text;
        const char *words;
    } cases[] = {
        {"", "at character 1: it must begin with a scheme"},
        {"mysql", "at character 6: it must begin with a scheme"},
        {"mysql:/h", "at character 6: it must begin with a scheme"},
        {"MySQL://h", "at character 1: it must begin with a scheme"},
        {"1x://h", "at character 1: it must begin with a scheme"},
        {"x://h d", "at character 6: blanks"},
        {"x://h\n", "at character 6: blanks"},
        {"x://h\xc3\xa9", "at character 6: blanks"},
        {"x://u:a#b@h", "at character 8: #"},
        {"x://h/d#f", "at character 8: #"},
        {"x://@h", "at character 5: the user's name is missing"},
        {"x://u:a@b@h", "at character 10: a second @"},
        {"x://u:a/b@h/d", "at character 10: @ stands"},
        {"x://u:1/b@h/d", "at character 10: @ stands"},
        {"x://u:1?b@h/d", "at character 10: @ stands"},
        {"x://h/d?e=a@b", "at character 12: @ stands"},
        {"x://u:secret/d", "at character 6: behind a host"},
        {"x://h:", "at character 6: behind a host"},
        {"x://h:/d", "at character 6: behind a host"},
        {"x://h:0", "at character 6: behind a host"},
        {"x://h:65536", "at character 6: behind a host"},
        {"x://h:99999999999999999999", "at character 6: behind a host"},
        {"x://h:-1", "at character 6: behind a host"},
        {"x://h:+1", "at character 6: behind a host"},
        {"x://h:1:2", "at character 6: behind a host"},
        {"x://[::1]1", "at character 10: behind a host"},
        {"x://[::1", "at character 5: the bracket"},
        {"x://[h]", "at character 5: this is no host"},
        {"x://[]", "at character 5: this is no host"},
        {"x://[1.2.3.4]", "at character 5: this is no host"},
        {"x://[0000:0000:0000:0000:0000:ffff:1111.2222.3333.4444.5555.6666]",
         "at character 5: this is no host"},
        {"x://::1/d", "at character 5: behind a host"},
        {"x://a*b", "at character 5: this is no host"},
        {"x://a%20b", "at character 5: this is no host"},
        {"x://run%2Fdb", "at character 5: this is no host"},
        {"x://a,,b", "at character 7: a host is missing"},
        {"x://,a", "at character 5: a host is missing"},
        {"x://a,", "at character 7: a host is missing"},
        {"x://a,:1", "at character 7: a host is missing"},
        {"x://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "at character 37: there are more hosts"},
        {"x://u:%@h", "at character 7: after % come"},
        {"x://u:%4@h", "at character 7: after % come"},
        {"x://h/%4", "at character 7: after % come"},
        {"x://h/%gg", "at character 7: after % come"},
        {"x://h/%4g", "at character 7: after % come"},
        {"x://u:a%00b@h", "at character 8: %00"},
        {"x://h?", "at character 7: a parameter is name=value"},
        {"x://h?a", "at character 7: a parameter is name=value"},
        {"x://h?=a", "at character 7: a parameter is name=value"},
        {"x://h?a=b&", "at character 11: a parameter is name=value"},
        {"x://h?a=b&&c=d", "at character 11: a parameter is name=value"},
        {"x://h?a=b&%61=c", "at character 11: this parameter is said twice"},
        {"x://h?a=%", "at character 9: after % come"},
        {"x://h?socket=/s", "it names a socket and a host"},
        {"x://localhost:1?socket=/s", "it names a socket and a host"},
        {"x://localhost,b?socket=/s", "it names a socket and a host"},
        {"x://?socket=s", "the socket must be a path"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct url url;
        struct error error = {{0}};
        if (url_parse(&url, cases[i].text, &error) != STATUS_INVALID ||
            strncmp(error.text, cases[i].words, strlen(cases[i].words)) != 0)
            fail_msg("%s: \"%s\" and not \"%s…\"", cases[i].text, error.text, cases[i].words);
        assert_int_equal(url_parse(&url, cases[i].text, NULL), STATUS_INVALID);
    }
}

static void test_url__limits(void **state)
{
    char text[URL_LENGTH_MAX + 2];
    struct url url;
    struct error error;
    memset(text, 'a', sizeof(text));
    memcpy(text, "x://h/", 6);
    text[URL_LENGTH_MAX] = '\0';
    assert_int_equal(url_parse(&url, text, &error), STATUS_OK);
    assert_int_equal(strlen(url.path), URL_LENGTH_MAX - 6);
    url_release(&url);
    text[URL_LENGTH_MAX] = 'a';
    text[URL_LENGTH_MAX + 1] = '\0';
    assert_int_equal(url_parse(&url, text, &error), STATUS_INVALID);
    assert_string_equal(error.text, "it is longer than 4096 characters");

    struct buffer many;
    buffer_init(&many, URL_LENGTH_MAX);
    buffer_append_text(&many, "x://h?p0=0");
    for (int i = 1; i < URL_PARAMETERS_MAX; i++)
        buffer_printf(&many, "&p%d=%d", i, i);
    assert_int_equal(url_parse(&url, many.bytes, &error), STATUS_OK);
    assert_int_equal(url.parameter_count, URL_PARAMETERS_MAX);
    assert_string_equal(url_parameter(&url, "p31"), "31");
    url_release(&url);
    buffer_append_text(&many, "&q=1");
    assert_int_equal(url_parse(&url, many.bytes, &error), STATUS_INVALID);
    assert_non_null(strstr(error.text, "more parameters than the 32"));
    buffer_release(&many);
}

static void test_url__passwords_are_masked(void **state)
{
    static const char *const cases[][2] = {
        {"mysql://shop:s3cret@db:3306/coupons?a=b", "mysql://shop:***@db:3306/coupons?a=b"},
        {"redis://:s3cret@db", "redis://:***@db"},
        {"redis://:@db", "redis://:***@db"},
        {"x://u@h:1/d?a=b", "x://u@h:1/d?a=b"},
        {"x://h1:1,h2:2", "x://h1:1,h2:2"},
        {"x://u:%73@h", "x://u:***@h"},
        {"x://u@h/d?password=s&a=b", "x://u@h/d?password=***&a=b"},
        {"x://u:p@h/d?a=b&SSLPassword=s%20t", "x://u:***@h/d?a=b&SSLPassword=***"},
        {"x://?a=b&socket=/s&sasl.password%5F=s&key_password=&c=d",
         "x://?a=b&socket=/s&sasl.password%5F=***&key_password=***&c=d"},
        {"x://h?%70assword=s", "x://h?%70assword=***"},
        /* What cannot be read is not shown. */
        {"mysql://shop:s3/cret@db/coupons", "mysql://shop:***"},
        {"mysql://shop:s3?cret@db/coupons", "mysql://shop:***"},
        {"mysql://shop:s3@cret@db/coupons", "mysql://shop:***"},
        {"mysql://shop:s3cret", "mysql://shop:***"},
        {"x://h/d?password=a@b", "x://h/d?***"},
        {"x://h/d?password=a&b", "x://h/d?***"},
        {"shop:s3cret@db", "shop:***"},
        {"mysql:shop:s3cret@db", "mysql:***"},
        {"mysql:/shop:s3cret@db", "mysql:***"},
        {"words", "words"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buffer out;
        buffer_init(&out, 2 * URL_LENGTH_MAX);
        buffer_append_text(&out, ">");
        url_mask(&out, cases[i][0]);
        assert_string_equal(out.bytes + 1, cases[i][1]);
        buffer_release(&out);
    }
}

static void test_url__a_password_is_noticed_wherever_it_is(void **state)
{
    static const char *const with[] = {"x://u:p@h", "x://:@h", "x://h?password=a",
                                       "x://h?sslPassword="};
    static const char *const without[] = {"x://u@h", "x://h:1", "x://h?passfile=/f"};
    for (size_t i = 0; i < sizeof(with) / sizeof(with[0]); i++) {
        struct url url = parsed(with[i]);
        assert_true(url_has_password(&url));
        url_release(&url);
    }
    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++) {
        struct url url = parsed(without[i]);
        assert_false(url_has_password(&url));
        url_release(&url);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_url__all_parts),
        cmocka_unit_test(test_url__everything_but_the_scheme_may_be_left_out),
        cmocka_unit_test(test_url__parts_are_decoded),
        cmocka_unit_test(test_url__hosts),
        cmocka_unit_test(test_url__a_socket_is_a_host),
        cmocka_unit_test(test_url__what_is_wrong_is_said_with_its_place),
        cmocka_unit_test(test_url__limits),
        cmocka_unit_test(test_url__passwords_are_masked),
        cmocka_unit_test(test_url__a_password_is_noticed_wherever_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
