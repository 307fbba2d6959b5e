/* test_terms.c: what counts is written by the steward of the newest term, and what is armed is so
 * for its time only (traps 33, 45, 46). */
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

static int set_up(void **state)
{
    (void)state;
    return start_gate((const char *const[]){"--appendonly", "yes", "--appendfsync", "always",
                                            "--enable-debug-command", "yes", NULL});
}

/* Trap 33: whoever was steward once and stood still comes back to what another has built. */
static void test_redis_terms__late_steward(void **state)
{
    (void)state;
    must(redis, 9, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    must(redis, 9, "dibs_lend", "1", "1", "10", "lend-1", "0", NULL);
    must(redis, 9, "dibs_arm", "token-9", "0", "", ARMED_NOW(redis), NULL);
    must(redis, 9, "dibs_arm", "token-9", "0", "", ARMED_NOW(redis),
         NULL); /* whose answer was lost */
    /* Another knows of more than it does. */
    assert_refused(call(redis, 9, "dibs_reset", "9", "late", "0", NULL), "STALELEASE");
    must(redis, 9, "dibs_claim", "n", "id-0000000000-91", "0", "a", NULL);
    must(redis, 9, "dibs_acknowledge", "1", "I", "1", NULL);
    /* Two build at once: only what the later one has built is armed. */
    must(redis, 9, "dibs_reset", "10", "late", "0", NULL);
    must(redis, 9, "dibs_reset", "10", "heir", "0", NULL);
    must(redis, 9, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    assert_refused(call(redis, 9, "dibs_arm", "token-a", "0", "late", ARMED_NOW(redis), NULL),
                   "UNARMED");
    assert_refused(call(redis, 9, "dibs_arm", "token-a", "0", "", ARMED_NOW(redis), NULL),
                   "UNARMED");
    assert_refused(call(redis, 9, "dibs_arm", "token-a", "0", "heir", ARMED_NOW(redis), NULL),
                   "TOOSOON");
}

/* Trap 29: Redis forgets some of what was built before it is armed. */
static void test_redis_terms__lost_while_it_is_built(void **state)
{
    (void)state;
    must(redis, 10, "dibs_reset", "0", "built", "0", NULL);
    must(redis, 10, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    redisFree(redis);
    redis_server_kill(&server);
    redis_server_run(&server);
    redis = redis_server_connect(&server);
    assert_refused(call(redis, 10, "dibs_arm", "token", "0", "built", ARMED_NOW(redis), NULL),
                   "UNARMED");
    must(redis, 10, "dibs_reset", "0", "again", "0", NULL);
    freeReplyObject(redisCommand(redis, "FLUSHALL"));
    must(redis, 10, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    assert_refused(call(redis, 10, "dibs_arm", "token", "0", "again", ARMED_NOW(redis), NULL),
                   "UNARMED");
}

/* --- terms and time --- */

static int64_t redis_now_ms(void)
{
    redisReply *reply = ask(redis, "TIME");
    int64_t now_ms = atoll(reply->element[0]->str) * 1000 + atoll(reply->element[1]->str) / 1000;

    freeReplyObject(reply);
    return now_ms;
}

/* Renews a policy from now on: how many were. */
static int64_t renew(int64_t length_ms, int database, int64_t term)
{
    return ask_number(redis, "FCALL dibs_renew 0 %s %lld %lld 1 %d %s %lld", library_process(redis),
                      (long long)redis_now_ms(), (long long)length_ms, database, keys.names[4],
                      (long long)term);
}

/* Arms a fresh policy for so long, in that term. */
static void arm_in_term(int64_t term, int64_t length_ms)
{
    struct policy policy = {
        .id = POLICY, .name = "p", .total = 10, .per_user_limit = 1, .next_seq = 11, .version = 1};
    struct lease lease = {.id = 1, .policy_id = POLICY, .first_seq = 1, .count = 10, .open = true};
    struct gate_arming arming = {.term = term, .length_ms = length_ms};

    assert_done(gate_reset(gate_shared(gate), POLICY, 0, term, &error));
    assert_done(gate_policy_set(gate, &policy, &error));
    assert_done(gate_lend(gate, &lease, 0, term, &error));
    assert_done(gate_moment(gate_shared(gate), POLICY, &arming.since, &error));
    assert_done(gate_arm(gate_shared(gate), POLICY, 0, &arming, &error));
}

/* Trap 46: each write of an earlier term is refused, and changes nothing; so is one of a term that
 * the policy has not heard of. */
static void test_redis_terms__an_earlier_term_is_refused(void **state)
{
    struct late {
        const char *function;
        const char *words[8];
    } lates[] = {
        {"dibs_take_over", {"4", "3"}},
        {"dibs_reset", {"10", "late", "4"}},
        {"dibs_lend", {"2", "11", "5", "late", "4"}},
        {"dibs_restore", {"z", "9", "1", "I", "5", "id-0000000000-zz", "4"}},
        {"dibs_restore_keys", {"id-0000000000-zz", "9:1:z", "4"}},
        {"dibs_arm", {"0:late", "0", "built", "4", library_process(redis), "1", "9999999999999"}},
    };
    const char *own_text[] = {"5", "4"};

    (void)state;
    for (int is_armed = 0; is_armed < 2; is_armed++) {
        must(redis, POLICY, "dibs_reset", "0", "built", "5", NULL);
        must(redis, POLICY, "dibs_set_policy", ROW("1", "0", "0"), NULL);
        must(redis, POLICY, "dibs_lend", "1", "1", "10", "lend-1", "5", NULL);
        if (is_armed == 1)
            must(redis, POLICY, "dibs_arm", "0:token", "0", "built", "5", library_process(redis),
                 "1", "9999999999999", NULL);
        redisReply *before = ask(redis, "DUMP %s", keys.names[4]);
        for (size_t i = 0; i < sizeof(lates) / sizeof(lates[0]); i++) {
            size_t count = 0;
            while (count < 8 && lates[i].words[count] != NULL)
                count++;
            assert_refused(call_with(redis, POLICY, lates[i].function, lates[i].words, count),
                           "FENCED");
        }
        assert_refused(call(redis, POLICY, "dibs_lend", "2", "11", "5", "early", "6", NULL),
                       "UNARMED");
        redisReply *after = ask(redis, "DUMP %s", keys.names[4]);
        assert_int_equal(before->len, after->len);
        assert_memory_equal(before->str, after->str, before->len);
        freeReplyObject(before);
        freeReplyObject(after);
        assert_int_equal(ask_number(redis, "GET %s", keys.names[0]), 10);
        assert_int_equal(look()->is_armed, is_armed);
        redisReply *again = call_with(redis, POLICY, "dibs_take_over", own_text, 2);
        assert_int_equal(again->integer, is_armed); /* Its own once more changes nothing. */
        freeReplyObject(again);
        order(redis, "FLUSHALL");
    }
}

/* Trap 45: what is armed runs out, and goes on in its own term only, by the time of its own server.
 */
static void test_redis_terms__time_runs_out(void **state)
{
    (void)state;
    arm_in_term(3, 300);
    assert_int_equal(claim("a").seq, 1);
    await(!look()->is_armed);
    assert_silent();
    assert_true(look()->is_continuous);
    assert_int_equal(renew(60000, 0, 2), 0);
    assert_int_equal(renew(60000, 0, 4), 0);
    assert_int_equal(renew(60000, 1, 3), 0);
    redisReply *reply = ask(redis, "FCALL dibs_renew 0 another %lld 60000 1 0 %s 3",
                            (long long)redis_now_ms(), keys.names[4]);
    assert_refused(reply, "UNARMED");
    /* A time that is over already helps nobody, nor does one that has not come. */
    assert_int_equal(ask_number(redis, "FCALL dibs_renew 0 %s 5 1000 1 0 %s 3",
                                library_process(redis), keys.names[4]),
                     0);
    assert_int_equal(ask_number(redis, "FCALL dibs_renew 0 %s %lld 1000 1 0 %s 3",
                                library_process(redis), (long long)redis_now_ms() + 60000,
                                keys.names[4]),
                     0);
    assert_silent();
    assert_int_equal(renew(60000, 0, 3), 1);
    assert_int_equal(claim("a").verdict, VERDICT_HELD);
    assert_int_equal(claim("b").seq, 2);
}

/* What is renewed in one database says nothing of another, which somebody else may use. */
static void test_redis_terms__renewed_in_its_own_database(void **state)
{
    (void)state;
    arm_in_term(3, 30000);
    assert_int_equal(renew(60000, 0, 3), 1);
    for (int database = 0; database < 2; database++) {
        redisReply *reply = ask(redis, "FCALL_RO dibs_moment 0 test %d", database);
        assert_int_equal(atoll(reply->element[2]->str) > 0, database == 0);
        freeReplyObject(reply);
    }
}

/* A successor goes on with what has lost nothing since the newest term before its own, also when
 * its time is over; with anything else it begins anew. */
static void test_redis_terms__taken_over(void **state)
{
    bool is_continuous = false;

    (void)state;
    arm_in_term(3, 200);
    assert_int_equal(claim("a").seq, 1);
    await(!look()->is_armed);
    assert_done(gate_take_over(gate_shared(gate), POLICY, 4, 3, &is_continuous, &error));
    assert_true(is_continuous);
    assert_int_equal(renew(60000, 0, 3), 0);
    assert_int_equal(renew(60000, 0, 4), 1);
    assert_int_equal(claim("b").seq, 2);
    /* Term 6 may have been armed elsewhere. */
    assert_done(gate_take_over(gate_shared(gate), POLICY, 7, 6, &is_continuous, &error));
    assert_false(is_continuous);
    assert_false(look()->is_continuous);
    assert_silent();
    assert_int_equal(renew(60000, 0, 7), 0);
    assert_int_equal(look()->term, 7);
    assert_int_equal(gate_take_over(gate_shared(gate), POLICY + 1, 1, 0, &is_continuous, &error),
                     STATUS_NOT_FOUND);
}

/* Trap 45: a database that is swapped away and back has its token, and another one's entry. */
static void test_redis_terms__databases_swapped(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    assert_int_equal(claim("a").seq, 1);
    order(redis, "SWAPDB 0 1");
    assert_silent();
    make_policy(gate, POLICY, 10, 1);
    assert_int_equal(claim("b").seq, 1);
    order(redis, "SWAPDB 0 1");
    assert_silent();
    assert_int_equal(renew(60000, 0, 0), 1); /* that of the other, which is away */
    assert_silent();
}

int main(void)
{
#define TERMS_TEST(name) \
    cmocka_unit_test_setup_teardown(test_redis_terms__##name, set_up, stop_gate)
    const struct CMUnitTest tests[] = {
        TERMS_TEST(late_steward),
        TERMS_TEST(lost_while_it_is_built),
        TERMS_TEST(an_earlier_term_is_refused),
        TERMS_TEST(time_runs_out),
        TERMS_TEST(renewed_in_its_own_database),
        TERMS_TEST(taken_over),
        TERMS_TEST(databases_swapped),
    };
    return cmocka_run_group_tests_name("redis_terms", tests, NULL, NULL);
}
