/* test_redis_library.c: the function library on its own: nothing half done, whatever it finds in
 * its keys and arguments; as many commands for a thousand users as for one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "redis_fixture.h"

#define POLICY 42
/* Request ids are 16 bytes; those of keys begin with the top bit. */
#define ID_A  "id-0000000000-a1"
#define ID_B  "id-0000000000-b1"
#define ID_C  "id-0000000000-c1"
#define KEY_A "\x80key-000000000a1"
#define KEY_B "\x80key-000000000a2"
#define KEY_C "\x80key-000000000c1"

static struct redis_server server;
static redisContext *redis;
static struct redis_keys keys;

enum { REMAINING, PENDING, ISSUED, LEASE, META, KEYS, BOUND };

static int start(void **state)
{
    (void)state;
    redis_server_start(&server, NULL);
    redis = redis_server_connect(&server);
    redis_keys_of(&keys, POLICY);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    redisFree(redis);
    redis_server_release(&server);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    order(redis, "FLUSHALL");
    load_library(redis);
    return 0;
}

/* --- policies --- */

/* A row of that version and unleased count, open and with a limit of 2. */
#define ROW(version, closed, unleased) \
    version, "2", "0", "0", "0", closed, unleased, "10", "0", "11", "0", "0", "0", "10", "a name"

/* Ten units, lent and armed. */
static void arm_policy(void)
{
    must(redis, POLICY, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    must(redis, POLICY, "dibs_lend", "1", "1", "10", "lend-1", "0", NULL);
    must(redis, POLICY, "dibs_arm", "token", "0", "", ARMED_NOW(redis), NULL);
}

/* --- what is in Redis --- */

struct snapshot {
    char *dumps[REDIS_KEYS];
    size_t lengths[REDIS_KEYS];
    int64_t ttls[REDIS_KEYS];
    int64_t key_count;
};

static struct snapshot take_snapshot(void)
{
    struct snapshot snapshot = {.key_count = ask_number(redis, "DBSIZE")};

    for (size_t i = 0; i < REDIS_KEYS; i++) {
        redisReply *dump = ask(redis, "DUMP %s", keys.names[i]);
        if (dump->type == REDIS_REPLY_STRING) {
            snapshot.dumps[i] = malloc(dump->len);
            memcpy(snapshot.dumps[i], dump->str, dump->len);
            snapshot.lengths[i] = dump->len;
        }
        freeReplyObject(dump);
        snapshot.ttls[i] = ask_number(redis, "TTL %s", keys.names[i]);
    }
    return snapshot;
}

static void free_snapshot(struct snapshot *snapshot)
{
    for (size_t i = 0; i < REDIS_KEYS; i++)
        free(snapshot->dumps[i]);
}

static bool is_same(const struct snapshot *a, const struct snapshot *b)
{
    for (size_t i = 0; i < REDIS_KEYS; i++) {
        if (a->lengths[i] != b->lengths[i] || a->ttls[i] != b->ttls[i] ||
            (a->lengths[i] > 0 && memcmp(a->dumps[i], b->dumps[i], a->lengths[i]) != 0))
            return false;
    }
    return a->key_count == b->key_count;
}

/* --- trap 13 --- */

/* A call that is in order, with the keys that it needs. */
struct function {
    const char *name;
    const char *uses; /* a letter for each key: R P I L M K B */
    void (*prepare)(void);
    const char *words[17];
};

static void unarm_policy(void)
{
    must(redis, POLICY, "dibs_moment", "test", "0", NULL);
    must(redis, POLICY, "dibs_reset", "0", "built", "0", NULL);
    must(redis, POLICY, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    must(redis, POLICY, "dibs_lend", "1", "1", "10", "lend-1", "0", NULL);
    must(redis, POLICY, "dibs_restore", "z", "9", "1", "I", "5", KEY_B, "0", NULL);
}

static void settle_policy(void)
{
    arm_policy();
    must(redis, POLICY, "dibs_claim", "batch", KEY_A, "1", "a", NULL);
    must(redis, POLICY, "dibs_acknowledge", "1", "I", "1", NULL);
}

static void close_policy(void)
{
    settle_policy();
    must(redis, POLICY, "dibs_set_policy", ROW("2", "5", "0"), NULL);
}

static const struct function functions[] = {
    {"dibs_claim", "RPILMKB", settle_policy, {"batch", KEY_B ID_B, "10", "d", "e"}},
    {"dibs_acknowledge", "PIMKB", NULL, {"2", "I", "2", "3", "V", "c"}},
    {"dibs_acknowledge_bound", "B", NULL, {KEY_B ":1"}},
    {"dibs_settle", "PIM", NULL, {"b", "2", "R"}},
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
static void test_redis_library__all_functions_work(void **state)
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

static void test_redis_library__wrong_type_on_each_key(void **state)
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
    for (size_t i = 0; key == ISSUED && i < word_count(function); i++) {
        if (strcmp(function->words[i], "b") == 0)
            return true;
    }
    return key != ISSUED;
}

static void test_redis_library__wrong_values_in_the_keys(void **state)
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

static void test_redis_library__wrong_arguments(void **state)
{
    const char *const numbers[] = {"", "x", "-1", "1.5", "1e3", "0x10", " 1", "nil"};

    (void)state;
    for (size_t i = 0; i < FUNCTIONS; i++) {
        const struct function *function = &functions[i];
        size_t count = word_count(function);
        const char *words[20];
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

static void test_redis_library__wrong_words(void **state)
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

/* --- batches --- */

static char user_texts[2001][16];
static char seq_texts[2001][16];

/* Arguments of a claim of so many users, from that number on. */
static size_t write_batch(const char **words, char *requests, char *flags, int from, int count)
{
    for (int i = 0; i < count; i++) {
        bool is_keyed = i % 3 == 0;
        snprintf(requests + (size_t)16 * (size_t)i, 17, "%c%015x", is_keyed ? 0x81 : '1',
                 (unsigned)(from + i));
        snprintf(user_texts[i], sizeof(user_texts[i]), "user-%d", from + i);
        flags[i] = is_keyed ? '1' : '0';
        words[3 + i] = user_texts[i];
    }
    flags[count] = '\0';
    words[0] = "name";
    words[1] = requests;
    words[2] = flags;
    return (size_t)(3 + count);
}

static redisReply *claim_batch(int from, int count)
{
    static const char *words[3 + 2001];
    static char requests[16 * 2001 + 1];
    static char flags[2001 + 1];
    size_t word_count = write_batch(words, requests, flags, from, count);

    return call_with(redis, POLICY, "dibs_claim", words, word_count);
}

/* How many commands the server has run since the statistics were reset, but ours. */
static int64_t commands_run(void)
{
    redisReply *reply = ask(redis, "INFO commandstats");
    int64_t sum = 0;

    for (const char *line = strstr(reply->str, "cmdstat_"); line != NULL;
         line = strstr(line + 1, "cmdstat_")) {
        long long calls = 0;
        char name[40];
        if (sscanf(line, "cmdstat_%39[^:]:calls=%lld", name, &calls) == 2 &&
            strcmp(name, "fcall") != 0 && strcmp(name, "info") != 0 &&
            strncmp(name, "config", 6) != 0)
            sum += calls;
    }
    freeReplyObject(reply);
    return sum;
}

static void make_big_policy(void)
{
    order(redis, "FLUSHALL");
    must(redis, POLICY, "dibs_set_policy", "1", "1", "0", "0", "0", "0", "0", "100000", "0",
         "100001", "0", "0", "0", "10", "big", NULL);
    must(redis, POLICY, "dibs_lend", "1", "1", "100000", "lend", "0", NULL);
    must(redis, POLICY, "dibs_arm", "token", "0", "", ARMED_NOW(redis), NULL);
}

static void test_redis_library__batches_of_every_size(void **state)
{
    const int sizes[] = {1, 64, 1000, 2000};
    int from = 0;

    (void)state;
    make_big_policy();
    for (size_t i = 0; i < 4; i++) {
        redisReply *reply = claim_batch(from, sizes[i]);
        assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
        assert_string_equal(reply->element[0]->str, "name");
        const char *text = reply->element[2]->str;
        for (int j = 0; j < sizes[i]; j++) {
            char wanted[24];
            int length = snprintf(wanted, sizeof(wanted), "W%d:1", from + j + 1);
            assert_memory_equal(text, wanted, (size_t)length);
            text += length;
            assert_int_equal(*text, j + 1 < sizes[i] ? ' ' : '\0');
            text++;
        }
        freeReplyObject(reply);
        from += sizes[i];
    }
    struct snapshot before = take_snapshot();
    assert_refused(claim_batch(from, 2001), "DIBSBAD");
    struct snapshot after = take_snapshot();
    assert_true(is_same(&before, &after));
    free_snapshot(&before);
    free_snapshot(&after);
    assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[PENDING]), from);
    assert_int_equal(ask_number(redis, "HLEN %s", keys.names[ISSUED]), from);
}

/* One call of a batch; `phase` 0 claims, 1 claims again, 2 acknowledges. */
static int64_t commands_for(int phase, int from, int count)
{
    static const char *words[3 * 1000];
    redisReply *reply;

    order(redis, "CONFIG RESETSTAT");
    if (phase < 2) {
        reply = claim_batch(from, count);
    } else {
        for (int i = 0; i < count; i++) {
            snprintf(seq_texts[i], sizeof(seq_texts[i]), "%d", from + i + 1);
            words[3 * i] = seq_texts[i];
            words[3 * i + 1] = i % 2 == 0 ? "I" : "V";
            snprintf(user_texts[i], sizeof(user_texts[i]), "user-%d", from + i);
            words[3 * i + 2] = i % 2 == 0 ? seq_texts[i] : user_texts[i];
        }
        reply = call_with(redis, POLICY, "dibs_acknowledge", words, (size_t)(3 * count));
    }
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s", reply->str);
    freeReplyObject(reply);
    return commands_run();
}

static void test_redis_library__commands_do_not_grow_with_the_batch(void **state)
{
    (void)state;
    make_big_policy();
    for (int phase = 0; phase < 3; phase++) {
        /* Four, so that a batch has users with keys and without, and claims that come to nothing.
         */
        int64_t few = commands_for(phase, 0, 4);
        int64_t many = commands_for(phase, 4, 1000);
        assert_int_equal(few, many);
        assert_in_range(few, 5, 20);
    }
}

/* Users of whom nothing is known win in runs; whoever holds something, and the end of a lease, part
 * them. */
static void test_redis_library__wins_in_runs(void **state)
{
    static const char *words[3 + 2000];
    static char requests[16 * 2000 + 1];
    static char flags[2000 + 1];

    (void)state;
    must(redis, POLICY, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    must(redis, POLICY, "dibs_lend", "1", "1", "3", "lend-1", "0", NULL);
    must(redis, POLICY, "dibs_lend", "2", "998", "1500", "lend-2", "0", NULL);
    must(redis, POLICY, "dibs_arm", "token", "0", "", ARMED_NOW(redis), NULL);
    must(redis, POLICY, "dibs_claim", "n", ID_B, "0", "b", NULL);
    redisReply *reply = call(redis, POLICY, "dibs_claim", "n", ID_A ID_B ID_C ID_A ID_C, "00000",
                             "a", "b", "c", "d", "e", NULL);
    assert_string_equal(reply->element[2]->str, "W2:1 H1:1:P W3:1 W998:1+1");
    freeReplyObject(reply);
    size_t count = write_batch(words, requests, flags, 0, 1500);
    memset(flags, '0', 1500);
    reply = call_with(redis, POLICY, "dibs_claim", words, count);
    assert_string_equal(reply->element[2]->str, "W1000:1+1497 S+1");
    freeReplyObject(reply);
    assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[PENDING]), 1503);
    assert_int_equal(ask_number(redis, "GET %s", keys.names[REMAINING]), 0);
    assert_int_equal(ask_number(redis, "ZSCORE %s user-1497", keys.names[PENDING]), 2497);
    reply = call(redis, POLICY, "dibs_find", "user-1", NULL);
    assert_memory_equal(reply->element[0]->str, "1001:1:P:6:", 11);
    freeReplyObject(reply);
}

/* A user's second coupon is another member of PENDING, and each has a state of its own. */
static void test_redis_library__states_of_two_coupons(void **state)
{
    (void)state;
    arm_policy();
    must(redis, POLICY, "dibs_claim", "n", ID_A ID_B, "44", "a", "a", NULL);
    assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[PENDING]), 2);
    must(redis, POLICY, "dibs_acknowledge", "1", "I", "1", NULL);
    redisReply *reply =
        call(redis, POLICY, "dibs_claim", "n", ID_A ID_B ID_C, "444", "a", "a", "a", NULL);
    assert_string_equal(reply->element[2]->str, "H1:1:I H2:2:P L");
    freeReplyObject(reply);
    reply = call(redis, POLICY, "dibs_settled", "1", "a", "2", "a", NULL);
    assert_string_equal(reply->str, "IP");
    freeReplyObject(reply);
    must(redis, POLICY, "dibs_settle", "a", "2", "C", NULL);
    assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[PENDING]), 0);
    assert_int_equal(ask_number(redis, "HGET %s issued", keys.names[META]), 1);
    reply = call(redis, POLICY, "dibs_claim", "n", ID_C, "0", "a", NULL);
    assert_string_equal(reply->element[2]->str, "W3:2");
    freeReplyObject(reply);
}

/* Trap 3: one user a thousand times in one call. */
static void test_redis_library__one_user_in_one_batch(void **state)
{
    static const char *words[3 + 1000];
    static char requests[16 * 1000 + 1];
    static char flags[1000 + 1];
    size_t count = write_batch(words, requests, flags, 0, 1000);
    int refused = 0;

    (void)state;
    make_big_policy();
    for (size_t i = 3; i < count; i++) {
        words[i] = "the-one";
        flags[i - 3] |= 4;
    }
    redisReply *reply = call_with(redis, POLICY, "dibs_claim", words, count);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    const char *text = reply->element[2]->str;
    assert_memory_equal(text, "W1:1 ", 5);
    for (text += 5; *text != '\0'; text += strcspn(text, " "), text += *text == ' ') {
        if (*text != 'F')
            assert_memory_equal(text, "H1:1:P", 6);
        refused += *text == 'F';
    }
    freeReplyObject(reply);
    assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[PENDING]), 1);
    assert_int_equal(ask_number(redis, "GET %s", keys.names[REMAINING]), 99999);
    /* A third of them came with keys of their own: the first was the claim's, 31 were bound, and
     * the others were refused. */
    assert_int_equal(refused, 334 - 32);
    assert_int_equal(ask_number(redis, "HLEN %s", keys.names[KEYS]), 32);
    assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[BOUND]), 31);
}

/* --- losers, traces, time --- */

/* Trap 4. */
static void test_redis_library__loser_leaves_no_trace(void **state)
{
    (void)state;
    must(redis, POLICY, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    must(redis, POLICY, "dibs_lend", "1", "1", "1", "lend", "0", NULL);
    must(redis, POLICY, "dibs_arm", "token", "0", "", ARMED_NOW(redis), NULL);
    must(redis, POLICY, "dibs_claim", "n", KEY_A, "1", "winner", NULL);
    struct snapshot before = take_snapshot();
    redisReply *reply = call(redis, POLICY, "dibs_claim", "n", KEY_B ID_B ID_C, "542", "loser",
                             "loser", "blocked", NULL);
    assert_string_equal(reply->element[2]->str, "S S B");
    freeReplyObject(reply);
    struct snapshot after = take_snapshot();
    assert_true(is_same(&before, &after));
    free_snapshot(&before);
    free_snapshot(&after);
}

/* Trap 8: nothing expires while the policy lives. */
static void test_redis_library__nothing_expires_while_the_policy_lives(void **state)
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

static int64_t ttl_count(void)
{
    int64_t count = 0;
    for (size_t key = 0; key < REDIS_KEYS; key++)
        count += ask_number(redis, "TTL %s", keys.names[key]) >= 0;
    return count;
}

static int64_t retire(const char *seconds)
{
    redisReply *reply = call(redis, POLICY, "dibs_retire", seconds, NULL);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    int64_t done = reply->integer;
    freeReplyObject(reply);
    return done;
}

static void test_redis_library__lets_go_when_closed_and_drained(void **state)
{
    (void)state;
    settle_policy();
    assert_int_equal(retire("1000"), 0); /* open */
    must(redis, POLICY, "dibs_claim", "n", ID_B, "0", "b", NULL);
    must(redis, POLICY, "dibs_set_policy", ROW("2", "5", "0"), NULL);
    assert_int_equal(retire("1000"), 0); /* closed, but b is pending */
    must(redis, POLICY, "dibs_acknowledge", "2", "I", "2", NULL);
    must(redis, POLICY, "dibs_settle", "b", "2", "R", NULL);
    assert_int_equal(ttl_count(), 0);
    assert_int_equal(retire("1000"), 1);
    assert_int_equal(ttl_count(), ask_number(redis, "DBSIZE"));
    assert_int_equal(retire("5"), 1); /* It does not begin anew, and is not cut short. */
    assert_true(ask_number(redis, "TTL %s", keys.names[ISSUED]) > 900);
    must(redis, POLICY, "dibs_set_policy", ROW("3", "5", "0"), NULL);
    assert_int_equal(ttl_count(), ask_number(redis, "DBSIZE")); /* still closed */
    must(redis, POLICY, "dibs_set_policy", ROW("4", "0", "0"), NULL);
    assert_int_equal(ttl_count(), 0); /* open again: all of it stays */
}

/* Coupons are redeemed long after their policy is closed: while it is let go, also by a library
 * that was loaded again meanwhile, and when it is gone. */
static void test_redis_library__settles_what_is_let_go(void **state)
{
    (void)state;
    close_policy();
    load_library(redis);
    assert_refused(call(redis, POLICY, "dibs_settle", "a", "1", "R", NULL), "UNARMED");
    assert_int_equal(retire("1000"), 1);
    must(redis, POLICY, "dibs_settle", "a", "1", "R", NULL);
    redisReply *reply = call(redis, POLICY, "dibs_settled", "1", "a", NULL);
    assert_string_equal(reply->str, "R");
    freeReplyObject(reply);
    order(redis, "FLUSHALL");
    reply = call(redis, POLICY, "dibs_settle", "a", "1", "C", NULL);
    assert_int_equal(reply->type, REDIS_REPLY_INTEGER);
    assert_int_equal(reply->integer, 0);
    freeReplyObject(reply);
    assert_int_equal(ask_number(redis, "DBSIZE"), 0);
}

/* A window that has passed closes it, too. */
static void test_redis_library__lets_go_when_its_window_is_over(void **state)
{
    (void)state;
    settle_policy();
    must(redis, POLICY, "dibs_set_policy", "2", "2", "0", "1000", "0", "0", "0", "10", "0", "11",
         "0", "0", "0", "10", "a name", NULL);
    assert_int_equal(retire("1000"), 1);
    assert_int_equal(ttl_count(), ask_number(redis, "DBSIZE"));
}

/* --- what the ledger did with them --- */

/* A claim that came to nothing binds no key: neither its own nor those bound later. But a key that
 * names another claim by now stays. */
static void test_redis_library__void_frees_its_keys(void **state)
{
    (void)state;
    must(redis, POLICY, "dibs_set_policy", "1", "1", "0", "0", "0", "0", "0", "10", "0", "11", "0",
         "0", "0", "10", "one", NULL);
    must(redis, POLICY, "dibs_lend", "1", "1", "10", "lend", "0", NULL);
    must(redis, POLICY, "dibs_arm", "token", "0", "", ARMED_NOW(redis), NULL);
    must(redis, POLICY, "dibs_claim", "n", KEY_A KEY_B, "55", "a", "a", NULL);
    must(redis, POLICY, "dibs_claim", "n", KEY_C, "1", "b", NULL);
    assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[BOUND]), 1);
    /* The fallback gave b another coupon by the same key. */
    must(redis, POLICY, "dibs_enter", "b", "77", "1", "I", "5", KEY_C, NULL);
    must(redis, POLICY, "dibs_acknowledge", "1", "V", "a", "2", "V", "b", NULL);
    assert_int_equal(ask_number(redis, "HLEN %s", keys.names[KEYS]), 1);
    assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[BOUND]), 0);
    redisReply *reply =
        call(redis, POLICY, "dibs_claim", "n", KEY_B KEY_A KEY_C, "111", "x", "y", "b", NULL);
    assert_string_equal(reply->element[2]->str, "W3:1 W4:1 H77:1:I");
    freeReplyObject(reply);
}

/* A second call does nothing, also for a part of what was acknowledged. */
static void test_redis_library__acknowledged_twice(void **state)
{
    (void)state;
    arm_policy();
    must(redis, POLICY, "dibs_claim", "n", ID_A ID_B ID_C, "000", "a", "b", "c", NULL);
    must(redis, POLICY, "dibs_acknowledge", "1", "I", "1", "2", "V", "b", NULL);
    struct snapshot before = take_snapshot();
    must(redis, POLICY, "dibs_acknowledge", "1", "I", "1", "2", "V", "b", NULL);
    must(redis, POLICY, "dibs_acknowledge", "2", "I", "2", NULL);
    must(redis, POLICY, "dibs_acknowledge", "1", "V", "a", NULL);
    struct snapshot after = take_snapshot();
    assert_true(is_same(&before, &after));
    free_snapshot(&before);
    free_snapshot(&after);
}

/* The ledger wrote a pending claim to another place, because the fallback had given its own. */
static void test_redis_library__a_claim_that_was_moved(void **state)
{
    (void)state;
    must(redis, POLICY, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    must(redis, POLICY, "dibs_lend", "1", "1", "10", "lend", "0", NULL);
    must(redis, POLICY, "dibs_arm", "token", "0", "", ARMED_NOW(redis), NULL);
    must(redis, POLICY, "dibs_claim", "n", KEY_A, "1", "a", NULL);
    must(redis, POLICY, "dibs_claim", "n", ID_B, "0", "b", NULL);
    for (int i = 0; i < 2; i++) {
        must(redis, POLICY, "dibs_enter", "a", "11", "1", "I", "5", ID_C, "a", "1", "2", "I", "5",
             KEY_A, NULL);
        assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[PENDING]), 1);
        assert_int_equal(ask_number(redis, "HGET %s issued", keys.names[META]), 2);
        must(redis, POLICY, "dibs_acknowledge", "1", "I", "1", NULL);
        redisReply *reply = call(redis, POLICY, "dibs_find", "a", NULL);
        assert_memory_equal(reply->element[0]->str, "1:2:I:0:", 8);
        assert_memory_equal(reply->element[1]->str, "11:1:I:0:5", 10);
        freeReplyObject(reply);
        reply = call(redis, POLICY, "dibs_claim", "n", KEY_A, "1", "a", NULL);
        assert_string_equal(reply->element[2]->str, "H1:2:I");
        freeReplyObject(reply);
    }
}

static void test_redis_library__entered_twice(void **state)
{
    const char *const coupons[] = {"a", "20", "1",  "I", "5",  KEY_A, "b", "21", "2",
                                   "R", "5",  ID_B, "c", "22", "1",   "C", "5",  KEY_B};

    (void)state;
    arm_policy();
    must(redis, POLICY, "dibs_claim", "n", ID_B, "0", "b", NULL);
    redisReply *reply = call_with(redis, POLICY, "dibs_enter", coupons, 18);
    assert_int_equal(reply->integer, 2);
    freeReplyObject(reply);
    struct snapshot before = take_snapshot();
    reply = call_with(redis, POLICY, "dibs_enter", coupons, 18);
    assert_int_equal(reply->integer, 0);
    freeReplyObject(reply);
    struct snapshot after = take_snapshot();
    assert_true(is_same(&before, &after));
    free_snapshot(&before);
    free_snapshot(&after);
    assert_int_equal(ask_number(redis, "GET %s", keys.names[REMAINING]), 9);
    assert_int_equal(ask_number(redis, "HGET %s issued", keys.names[META]), 2);
    reply = call(redis, POLICY, "dibs_claim", "n", KEY_A KEY_B ID_C, "110", "a", "c", "b", NULL);
    assert_string_equal(reply->element[2]->str, "H20:1:I H22:1:C L");
    freeReplyObject(reply);
    must(redis, POLICY, "dibs_enter", NULL);
}

#define TRACE(digit) "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b" digit "-01"

/* Of those that won, until the ledger has them; of a user's second coupon, too. */
static void test_redis_library__traces_of_pending_claims(void **state)
{
    (void)state;
    arm_policy();
    must(redis, POLICY, "dibs_claim", "n", ID_A ID_B ID_C "id-0000000000-b2", "0404", "a", "b", "c",
         "b", "0002" TRACE("2") "0003" TRACE("3") "0004" TRACE("4"), NULL);
    must(redis, POLICY, "dibs_claim", "n", ID_A, "0", "d", NULL);
    must(redis, POLICY, "dibs_claim", "n", ID_C, "0", "c", "0001" TRACE("9"), NULL);
    redisReply *reply = call(redis, POLICY, "dibs_pending", "1", "10", NULL);
    assert_int_equal(reply->elements, 5);
    assert_int_equal(reply->element[4]->elements, 4);
    assert_string_equal(reply->element[4]->element[0]->str, TRACE("2"));
    assert_string_equal(reply->element[4]->element[1]->str, TRACE("3"));
    assert_string_equal(reply->element[4]->element[2]->str, TRACE("4"));
    assert_int_equal(reply->element[4]->element[3]->type, REDIS_REPLY_NIL);
    freeReplyObject(reply);
    reply = call(redis, POLICY, "dibs_pending", "4", "10", NULL);
    assert_int_equal(reply->elements, 4); /* Nobody behind it has one. */
    freeReplyObject(reply);
    must(redis, POLICY, "dibs_acknowledge", "1", "I", "2", NULL);
    must(redis, POLICY, "dibs_acknowledge", "3", "V", "c", NULL);
    reply = redisCommand(redis, "HMGET %s trace:2 trace:3", keys.names[META]);
    assert_int_equal(reply->element[0]->type, REDIS_REPLY_NIL);
    assert_int_equal(reply->element[1]->type, REDIS_REPLY_NIL);
    freeReplyObject(reply);
    const char *wrong[] = {"0001", "0001" TRACE("1") "x", "0002" TRACE("2"), "x001" TRACE("1"),
                           "0000" TRACE("1")};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_refused(call(redis, POLICY, "dibs_claim", "n", ID_A, "0", "e", wrong[i], NULL),
                       "DIBSBAD");
}

int main(void)
{
#define LIBRARY_TEST(name) cmocka_unit_test_setup(test_redis_library__##name, set_up)
    const struct CMUnitTest tests[] = {
        LIBRARY_TEST(all_functions_work),
        LIBRARY_TEST(wrong_type_on_each_key),
        LIBRARY_TEST(wrong_values_in_the_keys),
        LIBRARY_TEST(wrong_arguments),
        LIBRARY_TEST(wrong_words),
        LIBRARY_TEST(batches_of_every_size),
        LIBRARY_TEST(commands_do_not_grow_with_the_batch),
        LIBRARY_TEST(wins_in_runs),
        LIBRARY_TEST(states_of_two_coupons),
        LIBRARY_TEST(one_user_in_one_batch),
        LIBRARY_TEST(loser_leaves_no_trace),
        LIBRARY_TEST(nothing_expires_while_the_policy_lives),
        LIBRARY_TEST(lets_go_when_closed_and_drained),
        LIBRARY_TEST(settles_what_is_let_go),
        LIBRARY_TEST(lets_go_when_its_window_is_over),
        LIBRARY_TEST(void_frees_its_keys),
        LIBRARY_TEST(acknowledged_twice),
        LIBRARY_TEST(a_claim_that_was_moved),
        LIBRARY_TEST(entered_twice),
        LIBRARY_TEST(traces_of_pending_claims),
    };
    return cmocka_run_group_tests_name("redis_library", tests, start, stop);
}
