/* test_arming.c: a Redis that may have forgotten anything answers nobody before the steward
 * has reconciled it (trap 29); stock returns to an empty policy only when all servers know. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "embedded_functions.h"
#include "redis_setup.h"

#define HOLD_BACK_MS REDIS_LUA_HOLD_BACK_MS
#define ROUNDING_MS  2 /* of two clocks in whole milliseconds */

static int set_up(void **state)
{
    (void)state;
    return start_gate((const char *const[]){"--appendonly", "yes", "--appendfsync", "always",
                                            "--enable-debug-command", "yes", NULL});
}

/* The steward's work: what is pending goes to the ledger, whose users come back with a fresh lease.
 * `last_seq` is the last that was ever lent. */
static void reconcile(int64_t last_seq, int64_t count)
{
    static struct claim ledger[GATE_PENDING_MAX];
    enum coupon_state states[GATE_PENDING_MAX] = {COUPON_ISSUED};
    struct gate_pending *pending = look();
    size_t claim_count = pending->claim_count;
    struct policy policy = {.id = POLICY,
                            .name = "reconciled",
                            .total = 100,
                            .per_user_limit = 1,
                            .next_seq = last_seq + count + 1,
                            .version = 9};
    struct lease lease = {.id = last_seq + 1,
                          .policy_id = POLICY,
                          .first_seq = last_seq + 1,
                          .count = count,
                          .open = true};

    memcpy(ledger, pending->claims, claim_count * sizeof(*ledger));
    gate_acknowledge(gate, ledger, states, claim_count);
    assert_done(gate_reset(gate_shared(gate), POLICY, last_seq, 0, &error));
    for (size_t i = 0; i < claim_count; i++)
        assert_done(gate_restore(gate, &ledger[i], COUPON_ISSUED, &error));
    assert_done(gate_policy_set(gate, &policy, &error));
    assert_done(gate_lend(gate, &lease, 0, 0, &error));
    assert_done(arm_for_long(gate, POLICY, (int64_t)claim_count, &error));
}

/* --- trap 29 --- */

static void test_redis_arming__restart_with_its_keys(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    assert_int_equal(claim("a").seq, 1);
    assert_int_equal(claim("b").seq, 2);
    redisFree(redis);
    redis_server_kill(&server);
    redis_server_run(&server);
    redis = redis_server_connect(&server);
    assert_int_equal(ask_number(redis, "EXISTS %s", keys.names[4]), 1); /* The token survived. */
    await(gate_is_ready(gate_shared(gate), &error));
    assert_silent();
    reconcile(10, 5);
    assert_int_equal(claim("a").verdict, VERDICT_HELD);
    assert_int_equal(claim("a").seq, 1);
    struct wish next = claim("c");
    assert_int_equal(next.verdict, VERDICT_WON);
    assert_int_equal(next.seq, 11); /* None of the old lease, whatever became of it. */
}

static void test_redis_arming__restart_without_its_keys(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    claim("a");
    redisFree(redis);
    redis_server_kill(&server);
    redis_server_wipe(&server);
    redis_server_run(&server);
    redis = redis_server_connect(&server);
    await(gate_is_ready(gate_shared(gate), &error));
    assert_silent();
    assert_false(look()->is_known);
    reconcile(10, 5);
    assert_int_equal(claim("a").seq, 11); /* What the ledger never had is gone. */
}

static void test_redis_arming__wiped_while_it_runs(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    claim("a");
    order(redis, "FLUSHALL");
    assert_silent();
    assert_false(look()->is_known);
    /* A row that comes by makes it known, and does not arm it. */
    struct policy policy = {.id = POLICY,
                            .name = "row",
                            .total = 10,
                            .per_user_limit = 1,
                            .next_seq = 11,
                            .version = 2};
    assert_done(gate_policy_set(gate, &policy, &error));
    assert_silent();
}

/* A library that was loaded again has forgotten whom it armed, though all keys are there. */
static void test_redis_arming__library_reloaded(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    claim("a");
    load_library(redis);
    assert_silent();
    reconcile(10, 5);
    assert_int_equal(claim("b").seq, 11);
}

static void test_redis_arming__library_lost(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    claim("a");
    order(redis, "FUNCTION FLUSH");
    assert_int_equal(claim("b").verdict, VERDICT_UNAVAILABLE);
    /* It comes back by itself, unarmed. */
    assert_silent();
    reconcile(10, 5);
    assert_int_equal(claim("a").verdict, VERDICT_HELD);
}

static void test_redis_arming__data_reloaded(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    claim("a");
    order(redis, "DEBUG RELOAD");
    assert_silent();
}

/* A promoted replica has the token in its keys and not in its library. */
static void test_redis_arming__lagging_replica_promoted(void **state)
{
    struct redis_server other;

    (void)state;
    make_policy(gate, POLICY, 10, 1);
    redis_server_start(&other, NULL);
    redisContext *replica = redis_server_connect(&other);
    char port[16];
    snprintf(port, sizeof(port), "%d", server.port);
    order(replica, "REPLICAOF 127.0.0.1 %s", port);
    claim("a");
    await(ask_number(replica, "HEXISTS %s a", keys.names[2]) == 1);
    /* From here on it is behind. */
    order(replica, "REPLICAOF NO ONE");
    assert_int_equal(claim("b").seq, 2);
    assert_int_equal(ask_number(replica, "HEXISTS %s armed", keys.names[4]), 1);
    assert_int_equal(ask_number(replica, "HEXISTS %s b", keys.names[2]), 0);
    assert_refused(call(replica, POLICY, "dibs_claim", "n", "id-0000000000-c1", "0", "c", NULL),
                   "UNARMED");
    assert_refused(call(replica, POLICY, "dibs_find", "a", NULL), "UNARMED");
    /* Reconciled: seq 2 was given by the lost primary, and is not given again. */
    must(replica, POLICY, "dibs_acknowledge", "1", "I", "1", NULL);
    must(replica, POLICY, "dibs_reset", "10", "built", "0", NULL);
    assert_refused(call(replica, POLICY, "dibs_lend", "2", "2", "9", "n", "0", NULL), "STALELEASE");
    must(replica, POLICY, "dibs_lend", "2", "11", "9", "n", "0", NULL);
    redisFree(replica);
    redis_server_release(&other);
}

/* A replica decides nothing. */
static void test_redis_arming__replica_refuses(void **state)
{
    struct redis_server other;

    (void)state;
    make_policy(gate, POLICY, 10, 1);
    redis_server_start(&other, NULL);
    redisContext *replica = redis_server_connect(&other);
    char port[16];
    snprintf(port, sizeof(port), "%d", server.port);
    order(replica, "REPLICAOF 127.0.0.1 %s", port);
    await(ask_number(replica, "EXISTS %s", keys.names[4]) == 1);
    assert_refused(call(replica, POLICY, "dibs_claim", "n", "id-0000000000-c1", "0", "c", NULL),
                   "READONLY");
    redisFree(replica);
    redis_server_release(&other);
}

/* A key's name is the same in every database: they are armed apart. */
static void test_redis_arming__databases_are_apart(void **state)
{
    char url[80];
    struct gate_hand second_hand;

    (void)state;
    snprintf(url, sizeof(url), "%s/3", server.url);
    struct gate *second = open_gate(url, (struct gate_options){0});
    gate_hand_open(&second_hand, second);
    make_policy(gate, POLICY, 5, 1);
    make_policy(second, POLICY, 5, 1);
    struct wish wish = wish_for(POLICY, "x");
    struct wish *wishes[] = {&wish};
    gate_hand_claim(&second_hand, POLICY, wishes, 1);
    assert_int_equal(wish.verdict, VERDICT_WON);
    assert_int_equal(claim("a").seq, 1);
    assert_int_equal(gate_reset(gate_shared(second), POLICY, 5, 0, &error),
                     STATUS_CONFLICT); /* and disarmed */
    assert_int_equal(claim("b").seq, 2);
    gate_hand_claim(&second_hand, POLICY, wishes, 1);
    assert_int_equal(wish.verdict, VERDICT_UNAVAILABLE);
    gate_hand_close(&second_hand);
    gate_close(second);
}

/* --- what a reset keeps and forgets --- */

static void test_redis_arming__reset_waits_for_the_ledger(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    claim("a");
    assert_int_equal(gate_reset(gate_shared(gate), POLICY, 10, 0, &error), STATUS_CONFLICT);
    assert_int_equal(look()->claim_count, 1);
    /* It does not answer meanwhile, or the draining would never end. */
    assert_silent();
}

/* The counter by which servers notice changes never comes back to a number it had: who had won
 * before would be taken for the winners after. */
static void test_redis_arming__changes_never_repeat(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    int64_t before = ask_number(redis, "HGET %s changes", keys.names[4]);
    order(redis, "FLUSHALL");
    make_policy(gate, POLICY, 10, 1);
    int64_t after = ask_number(redis, "HGET %s changes", keys.names[4]);
    assert_true(after > before);
    assert_done(gate_reset(gate_shared(gate), POLICY, 10, 0, &error));
    assert_true(ask_number(redis, "HGET %s changes", keys.names[4]) > after);
}

/* Two policies are built anew at once: neither loses users to the other. */
static void test_redis_arming__two_policies_at_once(void **state)
{
    char user[24];

    (void)state;
    for (int64_t id = 1; id <= 2; id++) {
        struct policy policy = {.id = id,
                                .name = "p",
                                .total = 900,
                                .per_user_limit = 1,
                                .next_seq = 901,
                                .version = 1};
        if (id == 1)
            assert_done(gate_reset(gate_shared(gate), id, 900, 0, &error));
        else
            assert_done(gate_reset(gate_shared(gate), id, 0, 0, &error));
        assert_done(gate_policy_set(gate, &policy, &error));
    }
    for (int i = 1; i <= 900; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        struct claim coupon = {
            .policy_id = 1, .seq = i, .nth = 1, .requested_at_ms = i, .user = id_of(span_of(user))};
        assert_done(gate_restore(gate, &coupon, COUPON_ISSUED, &error));
        coupon.policy_id = 2;
        assert_done(gate_restore(gate, &coupon, COUPON_ISSUED, &error));
        /* The steward of the second one begins anew. */
        if (i == 150) {
            struct policy policy = {.id = 2,
                                    .name = "p",
                                    .total = 900,
                                    .per_user_limit = 1,
                                    .next_seq = 901,
                                    .version = 2};
            assert_done(gate_reset(gate_shared(gate), 2, 0, 0, &error));
            assert_done(gate_policy_set(gate, &policy, &error));
            assert_done(gate_restore(gate, &coupon, COUPON_ISSUED, &error));
        }
    }
    assert_done(arm_for_long(gate, 1, 900, &error));
    assert_done(arm_for_long(gate, 2, 751, &error));
    for (int i = 1; i <= 900; i += 13) {
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim_in(1, user).seq, i);
        assert_int_equal(claim_in(2, user).verdict, i < 150 ? VERDICT_SOLD_OUT : VERDICT_HELD);
    }
}

/* --- leases --- */

static redisReply *lend(const char *id, const char *first, const char *count, const char *name)
{
    return call(redis, POLICY, "dibs_lend", id, first, count, name, "0", NULL);
}

/* Trap 33, and a call whose answer was lost. */
static void test_redis_arming__lease_counts_once(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 10, 1);
    freeReplyObject(lend("5", "50", "7", "first"));
    assert_int_equal(ask_number(redis, "GET %s", keys.names[0]), 17);
    redisReply *again = lend("5", "50", "7", "first");
    assert_int_equal(again->type, REDIS_REPLY_INTEGER);
    freeReplyObject(again);
    assert_int_equal(ask_number(redis, "GET %s", keys.names[0]), 17);
    assert_refused(lend("5", "50", "7", "another"), "STALELEASE");
    assert_refused(lend("6", "56", "7", "another"), "STALELEASE");
    assert_refused(lend("4", "60", "7", "another"), "STALELEASE");
    assert_int_equal(ask_number(redis, "GET %s", keys.names[0]), 17);
    assert_done(gate_reset(gate_shared(gate), POLICY, 56, 0, &error));
    assert_refused(lend("7", "56", "7", "another"), "STALELEASE");
    assert_refused(lend("5", "50", "7", "first"), "STALELEASE");
}

/* Leases that are sold do not pile up: a policy that is cancelled into all day stays quick. */
static void test_redis_arming__sold_leases_make_room(void **state)
{
    char user[24];

    (void)state;
    make_policy(gate, POLICY, 2, 1);
    for (int i = 0; i < 50; i++) {
        struct lease lease = {
            .id = 2 + i, .policy_id = POLICY, .first_seq = 3 + i, .count = 1, .open = true};
        assert_done(gate_lend(gate, &lease, 0, 0, &error));
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim(user).seq, i + 1);
    }
    assert_true(ask_number(redis, "LLEN %s", keys.names[3]) <= 4);
}

static enum status lend_one(int64_t lease_id)
{
    struct lease lease = {
        .id = lease_id, .policy_id = POLICY, .first_seq = 100 + lease_id, .count = 1, .open = true};
    return gate_lend(gate, &lease, 0, 0, &error);
}

static void announce(int64_t version, int64_t unleased)
{
    struct policy policy = {.id = POLICY,
                            .name = "announced",
                            .total = 1,
                            .per_user_limit = 1,
                            .unleased = unleased,
                            .next_seq = 2,
                            .version = version};
    assert_done(gate_policy_set(gate, &policy, &error));
}

/* Stock comes back to a policy that is sold out only when it was announced for a while. */
static void test_redis_arming__stock_is_announced_first(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 1, 1);
    assert_int_equal(lend_one(2), STATUS_OK); /* It is not empty: no need to wait. */
    claim("a");
    claim("b");
    assert_int_equal(claim("c").verdict, VERDICT_SOLD_OUT);
    assert_int_equal(lend_one(3), STATUS_BUSY); /* Nobody has heard of it. */
    pause_ms(HOLD_BACK_MS);
    assert_int_equal(lend_one(3), STATUS_BUSY); /* Still not. */
    int64_t announced_ms = clock_monotonic_ms();
    announce(2, 1);
    assert_int_equal(claim("c").verdict, VERDICT_LEASE_WANTED);
    assert_int_equal(lend_one(3), STATUS_BUSY);
    announce(3, 2); /* More of it does not put the rest off. */
    enum status status;
    while ((status = lend_one(3)) == STATUS_BUSY)
        announce(4, 2);
    assert_int_equal(status, STATUS_OK);
    assert_true(clock_monotonic_ms() - announced_ms >= HOLD_BACK_MS - ROUNDING_MS);
    assert_int_equal(claim("c").seq, 103);
    /* Announced and taken back: that was no announcement. */
    announce(5, 0);
    announce(6, 1);
    announce(7, 0);
    pause_ms(HOLD_BACK_MS);
    assert_int_equal(lend_one(4), STATUS_BUSY);
}

/* Servers may remember that it was sold out: it is armed when they have forgotten. */
static void test_redis_arming__armed_no_sooner_than_forgotten(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 1, 1);
    claim("a");
    int64_t reset_ms = clock_monotonic_ms();
    reconcile(1, 5);
    assert_true(clock_monotonic_ms() - reset_ms >= HOLD_BACK_MS - ROUNDING_MS);
    assert_int_equal(claim("b").verdict, VERDICT_WON);
    must(redis, 7, "dibs_reset", "5", "built", "0", NULL);
    must(redis, 7, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    assert_refused(call(redis, 7, "dibs_arm", "token", "0", "built", ARMED_NOW(redis), NULL),
                   "TOOSOON");
    /* Of one that never had stock nobody remembers anything. */
    must(redis, 8, "dibs_reset", "0", "built", "0", NULL);
    assert_refused(call(redis, 8, "dibs_arm", "token-8", "0", "", ARMED_NOW(redis), NULL),
                   "NOPOLICY"); /* without a row */
    must(redis, 8, "dibs_set_policy", ROW("1", "0", "0"), NULL);
    must(redis, 8, "dibs_arm", "token-8", "0", "built", ARMED_NOW(redis), NULL);
}

int main(void)
{
#define ARMING_TEST(name) \
    cmocka_unit_test_setup_teardown(test_redis_arming__##name, set_up, stop_gate)
    const struct CMUnitTest tests[] = {
        ARMING_TEST(restart_with_its_keys),
        ARMING_TEST(restart_without_its_keys),
        ARMING_TEST(wiped_while_it_runs),
        ARMING_TEST(library_reloaded),
        ARMING_TEST(library_lost),
        ARMING_TEST(data_reloaded),
        ARMING_TEST(lagging_replica_promoted),
        ARMING_TEST(replica_refuses),
        ARMING_TEST(databases_are_apart),
        ARMING_TEST(reset_waits_for_the_ledger),
        ARMING_TEST(changes_never_repeat),
        ARMING_TEST(two_policies_at_once),
        ARMING_TEST(lease_counts_once),
        ARMING_TEST(sold_leases_make_room),
        ARMING_TEST(stock_is_announced_first),
        ARMING_TEST(armed_no_sooner_than_forgotten),
    };
    return cmocka_run_group_tests_name("redis_arming", tests, NULL, NULL);
}
