/* test_target.c: the URLs of Redis, and where a redirection leads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "gate/redis/link.h"

static struct error error;

static void test_redis_target__one_server(void **state)
{
    struct redis_target target;

    (void)state;
    assert_int_equal(redis_target_init(&target, "redis://", NULL, 1000, &error), STATUS_OK);
    assert_int_equal(target.mode, REDIS_MODE_SINGLE);
    assert_int_equal(target.seed_count, 1);
    assert_string_equal(target.seeds[0].host, "127.0.0.1");
    assert_int_equal(target.seeds[0].port, 6379);
    assert_int_equal(target.database, 0);
    assert_null(target.user);
    assert_null(target.password);
    assert_null(target.tls);
    redis_target_release(&target);

    assert_int_equal(
        redis_target_init(&target, "redis://shop:a%40b@db.example:7000/3", NULL, 1000, &error),
        STATUS_OK);
    assert_string_equal(target.seeds[0].host, "db.example");
    assert_int_equal(target.seeds[0].port, 7000);
    assert_int_equal(target.database, 3);
    assert_string_equal(target.user, "shop");
    assert_string_equal(target.password, "a@b");
    redis_target_release(&target);

    assert_int_equal(redis_target_init(&target, "redis://:url@[::1]:7000", "file", 1000, &error),
                     STATUS_OK);
    assert_string_equal(target.seeds[0].host, "::1");
    assert_string_equal(target.password, "file"); /* wins over the URL's */
    assert_null(target.user);
    redis_target_release(&target);

    assert_int_equal(
        redis_target_init(&target, "redis:///5?socket=/run/redis.sock", NULL, 1000, &error),
        STATUS_OK);
    assert_string_equal(target.seeds[0].host, "/run/redis.sock");
    assert_string_equal(redis_address_text(&target.seeds[0]).text, "/run/redis.sock");
    assert_int_equal(target.database, 5);
    redis_target_release(&target);
}

static void test_redis_target__several_servers(void **state)
{
    struct redis_target target;

    (void)state;
    assert_int_equal(
        redis_target_init(&target, "redis+sentinel://a,b:1,c/shop/2", NULL, 1000, &error),
        STATUS_OK);
    assert_int_equal(target.mode, REDIS_MODE_SENTINEL);
    assert_int_equal(target.seed_count, 3);
    assert_int_equal(target.seeds[0].port, 26379);
    assert_int_equal(target.seeds[1].port, 1);
    assert_string_equal(target.master, "shop");
    assert_int_equal(target.database, 2);
    redis_target_release(&target);

    assert_int_equal(redis_target_init(&target, "redis+cluster://a:1,b:2", NULL, 1000, &error),
                     STATUS_OK);
    assert_int_equal(target.mode, REDIS_MODE_CLUSTER);
    assert_int_equal(target.seed_count, 2);
    redis_target_release(&target);

    assert_int_equal(
        redis_target_init(&target, "rediss+cluster://a?ssl_verify=none", NULL, 1000, &error),
        STATUS_OK);
    assert_non_null(target.tls);
    assert_false(target.verifies_name);
    redis_target_release(&target);
}

static void test_redis_target__says_what_is_wrong(void **state)
{
    const struct {
        const char *url;
        const char *words;
    } wrong[] = {
        {"redis://a,b", "redis+sentinel://"},
        {"redis://a/x", "database"},
        {"redis://a/-1", "database"},
        {"redis://a/1x", "database"},
        {"redis://a/99999999999999999999", "database"},
        {"redis+cluster://a/1", "database 0"},
        {"redis+sentinel://a", "master's name"},
        {"redis+sentinel://a/", "master's name"},
        {"redis+sentinel://a/m/x", "database"},
        {"valkey://a", "unknown kind"},
        {"redis+tls://a", "unknown kind"},
        {"redis://a?timeout=5", "timeout"},
        {"rediss://a?ssl_verify=maybe", "ssl_verify"},
        {"rediss://a?ssl_cert=x", "belong together"},
        {"rediss://a?ssl_ca=/nonexistent", "/nonexistent"},
    };
    struct redis_target target;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (redis_target_init(&target, wrong[i].url, NULL, 1000, &error) != STATUS_INVALID)
            fail_msg("%s is taken", wrong[i].url);
        if (strstr(error.text, wrong[i].words) == NULL)
            fail_msg("%s: %s", wrong[i].url, error.text);
    }
    /* A password never shows in the words. */
    assert_int_equal(redis_target_init(&target, "redis://u:hunter2@a/x", NULL, 1000, &error),
                     STATUS_INVALID);
    assert_null(strstr(error.text, "hunter2"));
}

static void test_redis_target__redirections(void **state)
{
    const struct redis_address from = {.host = "asked", .port = 1};
    struct redis_address to;

    (void)state;
    assert_true(redis_map_read_redirect("MOVED 3999 10.0.0.1:6381", &from, &to));
    assert_string_equal(to.host, "10.0.0.1");
    assert_int_equal(to.port, 6381);
    assert_true(redis_map_read_redirect("ASK 3999 ::1:6381", &from, &to));
    assert_string_equal(to.host, "::1");
    assert_true(redis_map_read_redirect("MOVED 3999 :6381", &from, &to));
    assert_string_equal(to.host, "asked"); /* It does not know its own name. */
    assert_true(redis_map_read_redirect("MOVED 3999 :6382", &to, &to));
    assert_string_equal(to.host, "asked");
    assert_int_equal(to.port, 6382);
    const char *const wrong[] = {"MOVED",        "MOVED ",         "MOVED 1",     "MOVED 1 ",
                                 "MOVED 1 a",    "MOVED 1 a:",     "MOVED 1 a:0", "MOVED 1 a:x",
                                 "MOVED 1 a:-5", "MOVED 1 a:99999"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        if (redis_map_read_redirect(wrong[i], &from, &to))
            fail_msg("%s leads somewhere", wrong[i]);
    char longest[400] = "MOVED 1 ";
    memset(longest + 8, 'h', 300);
    memcpy(longest + 308, ":1", 3);
    assert_false(redis_map_read_redirect(longest, &from, &to));
}

/* As the documentation of Redis Cluster has them. */
static void test_redis_target__slots(void **state)
{
    (void)state;
    assert_int_equal(redis_map_slot(123456789), 0x31c3);
    assert_int_equal(redis_map_slot(1), 9842);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redis_target__one_server),
        cmocka_unit_test(test_redis_target__several_servers),
        cmocka_unit_test(test_redis_target__says_what_is_wrong),
        cmocka_unit_test(test_redis_target__redirections),
        cmocka_unit_test(test_redis_target__slots),
    };
    return cmocka_run_group_tests_name("redis_target", tests, NULL, NULL);
}
