/* test_validation.c: the function library leaves nothing half done, whatever it finds in its keys
 * and arguments (trap 13). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "redis_setup.h"

/* A call that is in order, with the keys that it needs. */
struct function {
    const char *name;
    const char *uses; /* a letter for each key: R P I L M K B */
    void (*prepare)(void);
    const char *words[19];
};

static void unarm_policy(void)
{
    must(redis, POLICY, "dibs_moment", "test", "0", NULL);
    must(redis, POLICY, "dibs_reset", "0", "built", "0", NULL);
    must(redis, POLICY, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    must(redis, POLICY, "dibs_lend", "1", "1", "10", "lend-1", "0", NULL);
    must(redis, POLICY, "dibs_restore", "z", "9", "1", "I", "5", KEY_B, "0", NULL);
}

static const struct function functions[] = {
    {"dibs_claim", "RPILMKB", settle_policy, {"batch", KEY_B ID_B, "10", "d", "e"}},
    {"dibs_acknowledge", "PIMKB", NULL, {"2", "I", "2", "3", "V", "c"}},
    {"dibs_acknowledge_bound", "B", NULL, {KEY_B ":1"}},
    {"dibs_settle", "PIM", NULL, {"b", "2", "R"}},
    {"dibs_rename", "PIMKB", settle_policy, {"z", "y"}},
    {"dibs_set_policy", "M", NULL, {ROW("2", "0", "5")}},
    {"dibs_lend", "RLM", NULL, {"2", "11", "5", "lend-2", "0"}},
    {"dibs_recall", "RLM", NULL, {"3", "recall-1"}},
    {"dibs_reset", "PMB", settle_policy, {"10", "built", "0"}},
    {"dibs_restore",
     "PIMK",
     unarm_policy,
     {"d", "4", "1", "I", "5", KEY_A, "e", "5", "1", "R", "6", ID_A, "0"}},
    {"dibs_restore_keys", "IMK", unarm_policy, {KEY_A, "1:1:d", "0"}},
    {"dibs_arm", "M", unarm_policy, {"another", "3", "built", "0", "test", "1", "9999999999999"}},
    {"dibs_take_over", "M", NULL, {"1", "0"}},
    {"dibs_enter",
     "PIMK",
     settle_policy,
     {"d", "4", "1", "I", "5", KEY_B, "e", "5", "1", "R", "6", ID_A}},
    {"dibs_retire", "PMB", close_policy, {"1000"}},
    {"dibs_count", "RPM", NULL, {NULL}},
    {"dibs_find", "PIM", NULL, {"b"}},
    {"dibs_settled", "I", NULL, {"2", "b"}},
    {"dibs_pending", "RPILMB", NULL, {"0", "10"}},
    {"dibs_visit", "PI", NULL, {"0", "10"}},
    {"dibs_describe", "LM", NULL, {NULL}},
};
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static size_t word_count(const struct function *function)
{
    size_t count = 0;
    while (function->words[count] != NULL)
        count++;
    return count;
}

static void prepare(const struct function *function)
{
    order(redis, "FLUSHALL");
    if (function->prepare != NULL)
        function->prepare();
    else
        settle_policy();
    if (function->prepare == NULL) {
        must(redis, POLICY, "dibs_claim", "batch", ID_B ID_C KEY_B, "045", "b", "c", "c", NULL);
        /* c by a key while it holds one: the second coupon of two. */
        must(redis, POLICY, "dibs_claim", "batch", KEY_A, "1", "a", NULL);
        order(redis, "ZADD %s 1 %s:1", keys.names[BOUND], KEY_B);
    }
}

/* Calls it, and fails the test unless it is refused and nothing has changed. */
static void assert_untouched(const struct function *function, const char *const *words,
                             size_t count, const char *what)
{
    struct snapshot before = take_snapshot();
    redisReply *reply = call_with(redis, POLICY, function->name, words, count);
    struct snapshot after = take_snapshot();

    if (reply->type != REDIS_REPLY_ERROR)
        fail_msg("%s takes %s", function->name, what);
    if (!is_same(&before, &after))
        fail_msg("%s leaves something behind with %s: %s", function->name, what, reply->str);
    freeReplyObject(reply);
    free_snapshot(&before);
    free_snapshot(&after);
}

/* Every call is in order before it is spoilt. */
static void test_redis_validation__all_functions_work(void **state)
{
    (void)state;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        prepare(&functions[i]);
        redisReply *reply = call_with(redis, POLICY, functions[i].name, functions[i].words,
                                      word_count(&functions[i]));
        if (reply->type == REDIS_REPLY_ERROR)
            fail_msg("%s: %s", functions[i].name, reply->str);
        freeReplyObject(reply);
    }
}

static void put_wrong_type(const char *key, size_t type)
{
    order(redis, "DEL %s", key);
    switch (type) {
    case 0:
        order(redis, "SET %s 5", key);
        break;
    case 1:
        order(redis, "RPUSH %s 5", key);
        break;
    case 2:
        order(redis, "HSET %s 5 5", key);
        break;
    case 3:
        order(redis, "ZADD %s 5 5", key);
        break;
    default:
        order(redis, "SADD %s 5", key);
    }
}

static void test_redis_validation__wrong_type_on_each_key(void **state)
{
    static const char letters[] = "RPILMKB";
    static const size_t right_types[REDIS_KEYS] = {0, 3, 2, 1, 2, 2, 3};

    (void)state;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        for (size_t key = 0; key < REDIS_KEYS; key++) {
            if (strchr(functions[i].uses, letters[key]) == NULL)
                continue;
            for (size_t type = 0; type < 5; type++) {
                char what[80];
                if (type == right_types[key])
                    continue;
                prepare(&functions[i]);
                put_wrong_type(keys.names[key], type);
                snprintf(what, sizeof(what), "wrong type %zu of %s", type, keys.names[key]);
                assert_untouched(&functions[i], functions[i].words, word_count(&functions[i]),
                                 what);
            }
        }
    }
}

/* The right type with something in it that is not ours. */
static const struct {
    int key;
    const char *command; /* and what comes behind the key */
    const char *rest[2];
} spoils[] = {
    {REMAINING, "SET", {"many", NULL}}, {LEASE, "LPUSH", {"something", NULL}},
    {META, "HSET", {"limit", "many"}},  {META, "HSET", {"unleased", "-"}},
    {META, "HSET", {"changes", "x"}},   {ISSUED, "HSET", {"b", "something"}},
};

/* Only who asks about b sees what b holds; the description of leases is read by the caller; a claim
 * does not count changes. */
static bool sees(const struct function *function, int key, const char *field)
{
    static const char letters[] = "RPILMKB";

    if (strchr(function->uses, letters[key]) == NULL ||
        (key == LEASE && strcmp(function->name, "dibs_describe") == 0) ||
        (strcmp(field, "changes") == 0 && strcmp(function->name, "dibs_claim") == 0))
        return false;
    for (size_t i = 0; key == ISSUED && i < word_count(function); i++)
        if (strcmp(function->words[i], "b") == 0)
            return true;
    return key != ISSUED;
}

static void test_redis_validation__wrong_values_in_the_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        for (size_t j = 0; j < sizeof(spoils) / sizeof(spoils[0]); j++) {
            if (!sees(&functions[i], spoils[j].key, spoils[j].rest[0]))
                continue;
            const char *words[] = {spoils[j].command, keys.names[spoils[j].key], spoils[j].rest[0],
                                   spoils[j].rest[1]};
            prepare(&functions[i]);
            redisReply *reply =
                redisCommandArgv(redis, spoils[j].rest[1] == NULL ? 3 : 4, words, NULL);
            assert_int_not_equal(reply->type, REDIS_REPLY_ERROR);
            freeReplyObject(reply);
            assert_untouched(&functions[i], functions[i].words, word_count(&functions[i]),
                             spoils[j].rest[0]);
        }
    }
}

static void test_redis_validation__wrong_arguments(void **state)
{
    const char *const numbers[] = {"", "x", "-1", "1.5", "1e3", "0x10", " 1", "nil"};

    (void)state;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        const struct function *function = &functions[i];
        size_t count = word_count(function);
        const char *words[22];
        char what[80];

        /* Too few or too many. */
        for (size_t fewer = 0; fewer < count; fewer++) {
            prepare(function);
            if ((strcmp(function->name, "dibs_enter") == 0 ||
                 strcmp(function->name, "dibs_acknowledge") == 0 ||
                 strcmp(function->name, "dibs_restore") == 0) &&
                fewer % (count / 2) == 0 && (fewer > 0 || function->name[5] == 'e'))
                continue; /* one of two */
            snprintf(what, sizeof(what), "%zu arguments", fewer);
            assert_untouched(function, function->words, fewer, what);
        }
        /* Numbers that are none. */
        for (size_t at = 0; at < count; at++) {
            bool is_number = function->words[at][strspn(function->words[at], "0123456789")] == '\0';
            if (!is_number)
                continue;
            for (size_t j = 0; j < sizeof(numbers) / sizeof(numbers[0]); j++) {
                if (strcmp(function->name, "dibs_settled") == 0)
                    continue; /* It only looks, and finds nothing. */
                prepare(function);
                memcpy(words, function->words, sizeof(function->words));
                words[at] = numbers[j];
                snprintf(what, sizeof(what), "\"%s\" for argument %zu", numbers[j], at + 1);
                assert_untouched(function, words, count, what);
            }
        }
    }
}

static void test_redis_validation__wrong_words(void **state)
{
    const struct function claim = {"dibs_claim", "", NULL, {NULL}};
    const struct function acknowledge = {"dibs_acknowledge", "", NULL, {NULL}};
    const struct function settle = {"dibs_settle", "", NULL, {NULL}};
    const struct function restore = {"dibs_restore", "", unarm_policy, {NULL}};

    (void)state;
    prepare(&claim);
    assert_untouched(&claim, (const char *[]){"n", ID_A ID_B, "0", "d", "e"}, 5, "a flag too few");
    assert_untouched(&claim, (const char *[]){"n", ID_A, "00", "d", "e"}, 5, "an id too few");
    assert_untouched(&claim, (const char *[]){"n", ID_A, "x", "d"}, 4, "an unknown flag");
    assert_untouched(&claim, (const char *[]){"n", ID_A, "8", "d"}, 4, "a flag too high");
    assert_untouched(&claim, (const char *[]){"n", "id-0000000000-a", "0", "d"}, 4, "a short id");
    assert_untouched(&acknowledge, (const char *[]){"2", "I", "b"}, 3, "a user for a seq");
    assert_untouched(&acknowledge, (const char *[]){"1", "I", "2001"}, 3, "too many");
    assert_untouched(&acknowledge, (const char *[]){"2", "X", "b"}, 3, "an unknown state");
    assert_untouched(&settle, (const char *[]){"b", "2", "V"}, 3, "an unknown state");
    prepare(&restore);
    assert_untouched(&restore, (const char *[]){"d", "4", "1", "P", "5", ID_A, "0"}, 7, "pending");
    assert_untouched(&restore, (const char *[]){"d", "4", "1", "IR", "5", ID_A, "0"}, 7,
                     "two states");
    assert_untouched(&restore, (const char *[]){"d", "4", "1", "I", "5", "1:1", "0"}, 7,
                     "a wrong id");
}

/* Trap 8: nothing expires while the policy lives. */
static void test_redis_validation__nothing_expires_while_the_policy_lives(void **state)
{
    (void)state;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        if (strcmp(functions[i].name, "dibs_retire") == 0)
            continue;
        prepare(&functions[i]);
        freeReplyObject(call_with(redis, POLICY, functions[i].name, functions[i].words,
                                  word_count(&functions[i])));
        for (size_t key = 0; key < REDIS_KEYS; key++)
            assert_true(ask_number(redis, "TTL %s", keys.names[key]) < 0);
    }
}

int main(void)
{
#define VALIDATION_TEST(name) cmocka_unit_test_setup(test_redis_validation__##name, set_up_library)
    const struct CMUnitTest tests[] = {
        VALIDATION_TEST(all_functions_work),
        VALIDATION_TEST(wrong_type_on_each_key),
        VALIDATION_TEST(wrong_values_in_the_keys),
        VALIDATION_TEST(wrong_arguments),
        VALIDATION_TEST(wrong_words),
        VALIDATION_TEST(nothing_expires_while_the_policy_lives),
    };
    return cmocka_run_group_tests_name("redis_validation", tests, start_library, stop_server);
}
