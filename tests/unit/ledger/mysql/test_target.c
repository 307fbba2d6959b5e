/* test_target.c: what a mysql:// URL says, and what it may not say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "ledger/mysql/link.h"

static struct ledger_mysql_target target;
static struct error error;

static enum status read_url(const char *url)
{
    struct store_options options = {.url = url, .timeout_ms = 5000};
    return ledger_mysql_target_init(&target, &options, &error);
}

static void expect_refused(const char *url, const char *words)
{
    assert_int_equal(read_url(url), STATUS_INVALID);
    if (strstr(error.text, words) == NULL)
        fail_msg("%s: %s", url, error.text);
}

static void test_mysql_target__all_that_a_url_says(void **state)
{
    (void)state;
    assert_int_equal(
        read_url("mariadb://shop:p%40ss@db.example.com:3307/ledger"
                 "?ssl_mode=verify-full&ssl_ca=/ca.pem&ssl_cert=/c.pem&ssl_key=/k.pem"),
        STATUS_OK);
    assert_string_equal(target.host, "db.example.com");
    assert_int_equal(target.port, 3307);
    assert_null(target.socket);
    assert_string_equal(target.user, "shop");
    assert_string_equal(target.password, "p@ss");
    assert_string_equal(target.database, "ledger");
    assert_int_equal(target.tls, LEDGER_MYSQL_TLS_VERIFIED);
    assert_string_equal(target.tls_ca, "/ca.pem");
    assert_string_equal(target.tls_certificate, "/c.pem");
    assert_string_equal(target.tls_key, "/k.pem");
    assert_int_equal(target.timeout_ms, 5000);
    assert_string_equal(target.text, "db.example.com:3307/ledger");
    ledger_mysql_target_release(&target);
}

static void test_mysql_target__what_it_leaves_out(void **state)
{
    (void)state;
    assert_int_equal(read_url("mysql://db/shop"), STATUS_OK);
    assert_int_equal(target.port, 3306);
    assert_null(target.user);
    assert_null(target.password);
    assert_int_equal(target.tls, LEDGER_MYSQL_TLS_PREFERRED);
    ledger_mysql_target_release(&target);
}

static void test_mysql_target__sockets(void **state)
{
    (void)state;
    assert_int_equal(read_url("mysql://dibs@/shop?socket=/run/mysqld/mysqld.sock"), STATUS_OK);
    assert_null(target.host);
    assert_string_equal(target.socket, "/run/mysqld/mysqld.sock");
    assert_int_equal(target.tls, LEDGER_MYSQL_TLS_DISABLED);
    ledger_mysql_target_release(&target);
    assert_int_equal(read_url("mysql://dibs@/shop"), STATUS_OK);
    assert_null(target.host);
    assert_null(target.socket);
    ledger_mysql_target_release(&target);
}

static void test_mysql_target__a_password_given_apart_wins(void **state)
{
    struct store_options options = {.url = "mysql://dibs:old@db/shop", .password = "new"};

    (void)state;
    assert_int_equal(ledger_mysql_target_init(&target, &options, &error), STATUS_OK);
    assert_string_equal(target.password, "new");
    assert_null(strstr(target.text, "new"));
    ledger_mysql_target_release(&target);
}

static void test_mysql_target__what_is_refused(void **state)
{
    (void)state;
    expect_refused("mysql://db", "name the database");
    expect_refused("mysql://db/a/b", "name the database");
    expect_refused("mysql://a,b/shop", "names one server");
    expect_refused("mysql://db/shop?sslmode=require", "no parameter sslmode");
    expect_refused("mysql://db/shop?ssl_mode=maybe", "ssl_mode is one of");
    expect_refused("mysql://db/shop?ssl_mode=verify-full", "ssl_ca must name");
    expect_refused("mysql://db/shop?ssl_ca=/ca.pem", "need ssl_mode");
    expect_refused("mysql://db/shop?ssl_mode=preferred&ssl_cert=/c.pem", "need ssl_mode");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mysql_target__all_that_a_url_says),
        cmocka_unit_test(test_mysql_target__what_it_leaves_out),
        cmocka_unit_test(test_mysql_target__sockets),
        cmocka_unit_test(test_mysql_target__a_password_given_apart_wins),
        cmocka_unit_test(test_mysql_target__what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
