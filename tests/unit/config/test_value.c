/* test_value.c: each type of value reads what it should, refuses the rest in clear words, and
 * prints what it read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/check.h"
#include "config/value.h"

static struct config config;
static struct error error;

static enum status set(const char *name, const char *text)
{
    const struct config_key *key = config_key_find(name);
    assert_non_null(key);
    error.text[0] = '\0';
    return config_value_set(&config, key, text, &error);
}

static const char *shown(const char *name)
{
    static char text[256];
    struct buffer out;
    buffer_init(&out, sizeof(text));
    config_append_value(&out, &config, config_key_find(name));
    strcpy(text, out.length > 0 ? out.bytes : "");
    buffer_release(&out);
    return text;
}

static void assert_refused(const char *name, const char *text, const char *words)
{
    assert_int_equal(set(name, text), STATUS_INVALID);
    if (strstr(error.text, words) == NULL)
        fail_msg("%s = \"%s\" said: %s", name, text, error.text);
}

static int release(void **state)
{
    config_release(&config);
    return 0;
}

static void test_value__reads_durations_in_every_unit(void **state)
{
    const struct {
        const char *text;
        int64_t duration_ms;
        const char *shown;
    } cases[] = {{"500ms", 500, "500ms"},
                 {"5s", 5000, "5s"},
                 {"2m", 120000, "2m"},
                 {"1h", 3600000, "1h"},
                 {"60s", 60000, "1m"},
                 {"1500ms", 1500, "1500ms"},
                 {"90m", 5400000, NULL /* too long */}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (cases[i].shown == NULL) {
            assert_refused("header_timeout", cases[i].text, "is out of range; allowed: 10ms to 1h");
            continue;
        }
        assert_int_equal(set("header_timeout", cases[i].text), STATUS_OK);
        assert_int_equal(config.header_timeout_ms, cases[i].duration_ms);
        assert_string_equal(shown("header_timeout"), cases[i].shown);
    }
}

static void test_value__refuses_what_is_not_a_duration(void **state)
{
    const char *const wrong[] = {"",     "5",    "s",  "5 s", "-5s",
                                 "5sec", "1.5s", "5S", "ms",  "99999999999999999999s"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_refused("idle_timeout", wrong[i], "is not a duration with its unit");
    assert_refused("idle_timeout", "999999999999h", "is out of range");
    assert_refused("idle_timeout", "9ms", "is out of range");
}

static void test_value__keeps_integers_in_their_range(void **state)
{
    assert_int_equal(set("threads", "256"), STATUS_OK);
    assert_int_equal(config.threads, 256);
    assert_refused("threads", "257", "\"257\" is out of range; allowed: 0 to 256");
    assert_refused("threads", "99999999999999999999999", "is out of range");
    assert_refused("threads", "-1", "is not a whole number; allowed: 0 to 256");
    assert_refused("threads", "4.0", "is not a whole number");
    assert_refused("threads", "", "is not a whole number");
    assert_refused("threads", "0x10", "is not a whole number");
    assert_refused("pending_max", "0", "is out of range");
    assert_int_equal(config.threads, 256);
}

static void test_value__reads_rates_with_a_fraction(void **state)
{
    assert_int_equal(set("rate_limit_user", "0.5"), STATUS_OK);
    assert_true(config.rate_limit_user == 0.5);
    assert_string_equal(shown("rate_limit_user"), "0.5");
    assert_int_equal(set("rate_limit_user", "12"), STATUS_OK);
    assert_true(config.rate_limit_user == 12);
    assert_int_equal(set("rate_limit_user", "1000000"), STATUS_OK);
    assert_string_equal(shown("rate_limit_user"), "1000000");
    const char *const wrong[] = {"",    ".5",  "5.", "1.2345", "1e3",
                                 "nan", "inf", "-1", "1,5",    "0.5x"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_refused("rate_limit_user", wrong[i], "is not a number");
    assert_refused("rate_limit_user", "1000000.001", "is out of range");
}

static void test_value__names_the_choices_there_are(void **state)
{
    assert_int_equal(set("log_level", "error"), STATUS_OK);
    assert_int_equal(config.log_level, LOG_ERROR);
    assert_int_equal(set("log_format", "json"), STATUS_OK);
    assert_int_equal(config.log_format, LOG_JSON);
    assert_int_equal(set("integrity_check", "off"), STATUS_OK);
    assert_int_equal(config.integrity_check, CONFIG_INTEGRITY_OFF);
    assert_refused("log_level", "loud",
                   "\"loud\" is not known; allowed: debug, info, warn or error");
    assert_refused("ack", "never", "\"never\" is not known; allowed: gate or ledger");
    assert_refused("gate", "memory", "\"memory\" is not a gate that dibs knows; known: local");
    assert_refused("relay", "pigeon://h:1",
                   "\"pigeon\" is not a relay that dibs knows; known: direct");
}

static void test_value__repeats_no_more_of_a_url_than_its_scheme(void **state)
{
    assert_refused("gate", "memcached://:hunter2@cache", "\"memcached\" is not a gate");
    assert_null(strstr(error.text, "hunter2"));
    assert_refused("ledger", "oracle://shop:hunter2@db/dibs", "\"oracle\" is not a ledger");
    assert_null(strstr(error.text, "hunter2"));
    assert_refused("ledger", "mysql://shop:hunter2/x@db/dibs",
                   "the mysql URL: at character 23: @ stands between the password and the host");
    assert_null(strstr(error.text, "hunter2"));
}

static void test_value__takes_addresses_in_numbers(void **state)
{
    const char *const right[] = {"127.0.0.1:8080", "0.0.0.0:0", "[::1]:8080", "[::]:65535",
                                 "[::ffff:127.0.0.1]:80"};
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(set("listen", right[i]), STATUS_OK);
        assert_string_equal(config.listen, right[i]);
    }
    const char *const wrong[] = {"",
                                 "8080",
                                 "localhost:8080",
                                 "127.0.0.1",
                                 "127.0.0.1:",
                                 "127.0.0.1:65536",
                                 "127.0.0.1:80a",
                                 "::1:8080",
                                 "[::1]",
                                 "[]:80",
                                 "[127.0.0.1]:80",
                                 "127.0.0.1:-1",
                                 "256.0.0.1:80",
                                 " 127.0.0.1:80"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_refused("listen", wrong[i], "is not an address and a port in numbers");
    assert_refused("listen", ":8080", "write 0.0.0.0:8080 for all addresses");
}

static void test_value__knows_loopback(void **state)
{
    assert_true(config_address_is_loopback("127.0.0.1:80"));
    assert_true(config_address_is_loopback("127.200.0.9:80"));
    assert_true(config_address_is_loopback("[::1]:80"));
    assert_true(config_address_is_loopback("[::ffff:127.0.0.1]:80"));
    assert_false(config_address_is_loopback("0.0.0.0:80"));
    assert_false(config_address_is_loopback("128.0.0.1:80"));
    assert_false(config_address_is_loopback("[::]:80"));
    assert_false(config_address_is_loopback("[::ffff:10.0.0.1]:80"));
    assert_false(config_address_is_loopback("[2001:db8::1]:80"));
}

static void test_value__wants_a_plain_file_for_the_ledger(void **state)
{
    assert_int_equal(set("ledger", "sqlite:/var/lib/dibs/dibs.db"), STATUS_OK);
    assert_string_equal(shown("ledger"), "sqlite:/var/lib/dibs/dibs.db");
    assert_refused("ledger", "sqlite:", "the path of the file is missing");
    assert_refused("ledger", "sqlite::memory:", "is not a plain file");
    assert_refused("ledger", "sqlite:file:x?mode=memory", "is not a plain file");
    assert_refused("ledger", "dibs.db", "known: sqlite:PATH");
    assert_refused("ledger", "", "known: sqlite:PATH");
    /* A path is not a URL: it may hold any character, and has no password to hide. */
    assert_int_equal(set("ledger", "sqlite:a:b@c?password=d.db"), STATUS_OK);
    assert_string_equal(shown("ledger"), "sqlite:a:b@c?password=d.db");
    assert_false(config_url_has_password(config.ledger));
}

static void test_value__takes_the_urls_of_databases(void **state)
{
    const char *const right[] = {
        "postgres://db/shop",
        "postgresql://dibs@h1:5432,h2/shop?sslmode=verify-full&target_session_attrs=read-write",
        "postgres:///shop?host=/var/run/postgresql",
        "mysql://dibs@[::1]:3306/shop?ssl_mode=VERIFY_IDENTITY&ssl_ca=/etc/ca.pem",
        "mariadb://dibs@localhost/shop?socket=/run/mysqld/mysqld.sock",
    };
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(set("ledger", right[i]), STATUS_OK);
        assert_string_equal(config.ledger, right[i]);
        assert_string_equal(shown("ledger"), right[i]);
        assert_false(config_url_has_password(right[i]));
    }
    assert_refused("ledger", "postgres:shop", "the postgres URL: at character 9: it must begin");
    assert_refused("ledger", "mysql://db:many/shop", "the mysql URL: at character 11: behind a");
    assert_refused("ledger", "postgresq://db/shop", "\"postgresq\" is not a ledger");
    assert_refused("ledger", "mariadb", "the mariadb URL: at character 8: it must begin");
}

static void test_value__never_shows_the_password_in_a_url(void **state)
{
    assert_int_equal(set("ledger", "postgres://shop:hunter2@db/dibs"), STATUS_OK);
    assert_string_equal(config.ledger, "postgres://shop:hunter2@db/dibs");
    assert_string_equal(shown("ledger"), "postgres://shop:***@db/dibs");
    assert_true(config_url_has_password(config.ledger));
    assert_int_equal(set("ledger", "postgres://db/dibs?password=hunter2&sslmode=require"),
                     STATUS_OK);
    assert_string_equal(shown("ledger"), "postgres://db/dibs?password=***&sslmode=require");
    assert_true(config_url_has_password(config.ledger));
}

static void test_value__wants_one_line_for_the_ledger_password(void **state)
{
    assert_int_equal(set("ledger_password", "p\xc3\xa4ss wort/@:"), STATUS_OK);
    assert_string_equal(shown("ledger_password"), "****");
    assert_refused("ledger_password", "", "is empty; allowed: one line");
    assert_refused("ledger_password", "hunter2\n", "must be a single line");
    assert_null(strstr(error.text, "hunter2"));
    const struct span nul = SPAN("hunter2\0x");
    assert_int_equal(config_secret_set(&config, config_key_find("ledger_password"), nul, &error),
                     STATUS_INVALID);
}

static void test_value__checks_time_zones(void **state)
{
    assert_int_equal(set("timezone", "UTC"), STATUS_OK);
    assert_int_equal(set("timezone", "Asia/Seoul"), STATUS_OK);
    const char *const wrong[] = {"",       "/etc/localtime", "../zoneinfo/UTC", "Asia/../UTC",
                                 "+09:00", "Asia/Seoul "};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_refused("timezone", wrong[i], "there is no time zone");
}

static void test_value__splits_lists(void **state)
{
    assert_int_equal(set("cors_origin", " https://a.example,http://b:81 , https://c"), STATUS_OK);
    assert_int_equal(config.cors_origin.count, 3);
    assert_string_equal(config.cors_origin.items[0], "https://a.example");
    assert_string_equal(config.cors_origin.items[2], "https://c");
    assert_string_equal(shown("cors_origin"), "https://a.example, http://b:81, https://c");
    assert_int_equal(set("cors_origin", ""), STATUS_OK);
    assert_int_equal(config.cors_origin.count, 0);
    assert_int_equal(set("cors_origin", "*"), STATUS_OK);
    assert_refused("cors_origin", "*, https://a", "* stands for all");
    assert_refused("cors_origin", "https://a/", "is not an origin");
    assert_refused("cors_origin", "https://a, shop.example", "\"shop.example\" is not an origin");
    assert_refused("cors_origin", "HTTPS://A", "is not an origin");
    assert_string_equal(shown("cors_origin"), "*");
}

static void test_value__never_shows_a_secret(void **state)
{
    const char *token = "0123456789abcdef";
    assert_int_equal(set("admin_token", token), STATUS_OK);
    assert_int_equal(config.admin_token.length, 16);
    assert_memory_equal(config.admin_token.bytes, token, 17);
    assert_string_equal(shown("admin_token"), "****");
    assert_string_equal(shown("user_key"), "");
    assert_refused("admin_token", "0123456789abcde", "is too short; allowed: at least 16 visible");
    assert_null(strstr(error.text, "0123"));
    assert_refused("admin_token", "0123456789 abcdef", "must be visible ASCII characters only");
    assert_null(strstr(error.text, "0123"));
    assert_refused("admin_token", "0123456789abcdéf", "must be visible ASCII characters only");
    assert_refused("admin_token", "", "is empty");
    assert_refused("user_key", "0123456789012345678901234567890", "at least 32 bytes");
}

static void test_value__lets_a_key_have_any_bytes_and_a_token_not(void **state)
{
    const char bytes[40] = {1, 0, '\n', 2};
    const struct span key = {bytes, sizeof(bytes)};
    assert_int_equal(config_secret_set(&config, config_key_find("user_key"), key, &error),
                     STATUS_OK);
    assert_int_equal(config.user_key.length, sizeof(bytes));
    assert_memory_equal(config.user_key.bytes, bytes, sizeof(bytes));
    const struct span token = SPAN("0123456789abcdef\0x");
    assert_int_equal(config_secret_set(&config, config_key_find("admin_token"), token, &error),
                     STATUS_INVALID);
    assert_null(config.admin_token.bytes);
}

static void test_value__refuses_control_characters_and_endless_text(void **state)
{
    assert_refused("user_audience", "shop\nlevel=error", "contains a control character");
    assert_refused("user_audience", "\x1b[31m", "contains a control character");
    char *endless = calloc(1, CONFIG_VALUE_LENGTH_MAX + 2);
    memset(endless, 'a', CONFIG_VALUE_LENGTH_MAX + 1);
    assert_refused("user_audience", endless, "is longer than 4096 bytes");
    free(endless);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_value__reads_durations_in_every_unit, release),
        cmocka_unit_test_teardown(test_value__refuses_what_is_not_a_duration, release),
        cmocka_unit_test_teardown(test_value__keeps_integers_in_their_range, release),
        cmocka_unit_test_teardown(test_value__reads_rates_with_a_fraction, release),
        cmocka_unit_test_teardown(test_value__names_the_choices_there_are, release),
        cmocka_unit_test_teardown(test_value__repeats_no_more_of_a_url_than_its_scheme, release),
        cmocka_unit_test_teardown(test_value__takes_addresses_in_numbers, release),
        cmocka_unit_test_teardown(test_value__knows_loopback, release),
        cmocka_unit_test_teardown(test_value__wants_a_plain_file_for_the_ledger, release),
        cmocka_unit_test_teardown(test_value__takes_the_urls_of_databases, release),
        cmocka_unit_test_teardown(test_value__never_shows_the_password_in_a_url, release),
        cmocka_unit_test_teardown(test_value__wants_one_line_for_the_ledger_password, release),
        cmocka_unit_test_teardown(test_value__checks_time_zones, release),
        cmocka_unit_test_teardown(test_value__splits_lists, release),
        cmocka_unit_test_teardown(test_value__never_shows_a_secret, release),
        cmocka_unit_test_teardown(test_value__lets_a_key_have_any_bytes_and_a_token_not, release),
        cmocka_unit_test_teardown(test_value__refuses_control_characters_and_endless_text, release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
