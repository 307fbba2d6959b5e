/* test_library.c: the function library on its own: what becomes of claims, and as many commands for
 * a thousand users as for one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "redis_setup.h"

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
    must(redis, POLICY, "dibs_set_policy",
         FULL_ROW("1", "100000", "1", "0", "0", "0", "100001", "big"), NULL);
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

/* Nearly everyone who asks again holds a claim that is older than whatever is pending. */
static void test_redis_library__settled_claims_are_not_asked_for_one_by_one(void **state)
{
    (void)state;
    make_big_policy();
    freeReplyObject(claim_batch(0, 1000));
    must(redis, POLICY, "dibs_acknowledge", "1", "I", "1000", NULL);
    freeReplyObject(claim_batch(1000, 1));
    order(redis, "CONFIG RESETSTAT");
    redisReply *reply = claim_batch(0, 1000);
    assert_non_null(strstr(reply->element[2]->str, "H1000:1:I"));
    freeReplyObject(reply);
    reply = ask(redis, "INFO commandstats");
    assert_non_null(strstr(reply->str, "cmdstat_zrange:calls=1,"));
    assert_null(strstr(reply->str, "cmdstat_zmscore"));
    freeReplyObject(reply);
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
    must(redis, POLICY, "dibs_set_policy",
         FULL_ROW("2", "10", "2", "1000", "0", "0", "11", "a name"), NULL);
    assert_int_equal(retire("1000"), 1);
    assert_int_equal(ttl_count(), ask_number(redis, "DBSIZE"));
}

/* --- what the ledger did with them --- */

/* A claim that came to nothing binds no key: neither its own nor those bound later. But a key that
 * names another claim by now stays. */
static void test_redis_library__void_frees_its_keys(void **state)
{
    (void)state;
    must(redis, POLICY, "dibs_set_policy", FULL_ROW("1", "10", "1", "0", "0", "0", "11", "one"),
         NULL);
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
#define LIBRARY_TEST(name) cmocka_unit_test_setup(test_redis_library__##name, set_up_library)
    const struct CMUnitTest tests[] = {
        LIBRARY_TEST(batches_of_every_size),
        LIBRARY_TEST(commands_do_not_grow_with_the_batch),
        LIBRARY_TEST(settled_claims_are_not_asked_for_one_by_one),
        LIBRARY_TEST(wins_in_runs),
        LIBRARY_TEST(states_of_two_coupons),
        LIBRARY_TEST(one_user_in_one_batch),
        LIBRARY_TEST(loser_leaves_no_trace),
        LIBRARY_TEST(lets_go_when_closed_and_drained),
        LIBRARY_TEST(settles_what_is_let_go),
        LIBRARY_TEST(lets_go_when_its_window_is_over),
        LIBRARY_TEST(void_frees_its_keys),
        LIBRARY_TEST(acknowledged_twice),
        LIBRARY_TEST(a_claim_that_was_moved),
        LIBRARY_TEST(entered_twice),
        LIBRARY_TEST(traces_of_pending_claims),
    };
    return cmocka_run_group_tests_name("redis_library", tests, start_library, stop_server);
}
