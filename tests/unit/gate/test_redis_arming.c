/* test_redis_arming.c: a Redis that may have forgotten anything answers nobody before the steward
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
#include "gate_hand.h"
#include "redis_fixture.h"

#define POLICY       42
#define HOLD_BACK_MS 500
#define ROUNDING_MS  2 /* of two clocks in whole milliseconds */

static struct redis_server server;
static redisContext *redis;
static struct gate *gate;
static struct gate_hand hand;
static struct redis_keys keys;
static struct error error;

static int set_up(void **state)
{
    const char *const settings[] = {
        "--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes", NULL};
    (void)state;
    redis_server_start(&server, settings);
    redis = redis_server_connect(&server);
    gate = open_gate(server.url, (struct gate_options){0});
    gate_hand_open(&hand, gate);
    redis_keys_of(&keys, POLICY);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gate_hand_close(&hand);
    gate_close(gate);
    redisFree(redis);
    redis_server_release(&server);
    return 0;
}

static struct wish claim_in(int64_t policy_id, const char *user)
{
    struct wish wish = wish_for(policy_id, user);
    struct wish *wishes[] = {&wish};
    gate_hand_claim(&hand, policy_id, wishes, 1);
    return wish;
}

static struct wish claim(const char *user)
{
    return claim_in(POLICY, user);
}

static struct gate_pending *look(void)
{
    static struct gate_pending pending;
    if (gate_pending(gate, POLICY, 0, &pending, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return &pending;
}

#define assert_done(status)             \
    do {                                \
        if ((status) != STATUS_OK)      \
            fail_msg("%s", error.text); \
    } while (0)

/* Nobody is told anything: neither a newcomer nor a holder, and nothing changes. */
static void assert_silent(void)
{
    assert_int_equal(claim("newcomer").verdict, VERDICT_UNAVAILABLE);
    assert_int_equal(claim("a").verdict, VERDICT_UNAVAILABLE);
    assert_false(look()->is_armed);
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
    assert_done(gate_reset(gate, POLICY, last_seq, 0, &error));
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
    await(gate_is_ready(gate, &error));
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
    await(gate_is_ready(gate, &error));
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
    assert_int_equal(gate_reset(second, POLICY, 5, 0, &error), STATUS_CONFLICT); /* and disarmed */
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
    assert_int_equal(gate_reset(gate, POLICY, 10, 0, &error), STATUS_CONFLICT);
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
    assert_done(gate_reset(gate, POLICY, 10, 0, &error));
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
            assert_done(gate_reset(gate, id, 900, 0, &error));
        else
            assert_done(gate_reset(gate, id, 0, 0, &error));
        assert_done(gate_policy_set(gate, &policy, &error));
    }
    for (int i = 1; i <= 900; i++) {
        snprintf(user, sizeof(user), "user-%d", i);
        struct claim coupon = {.policy_id = 1,
                               .seq = i,
                               .nth = 1,
                               .requested_at_ms = i,
                               .user = user_id_of(span_of(user))};
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
            assert_done(gate_reset(gate, 2, 0, 0, &error));
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
    assert_done(gate_reset(gate, POLICY, 56, 0, &error));
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

#define ROW "1", "1", "0", "0", "0", "0", "0", "5", "0", "6", "0", "0", "0", "10", "a row"

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
    must(redis, 7, "dibs_set_policy", ROW, NULL);
    assert_refused(call(redis, 7, "dibs_arm", "token", "0", "built", ARMED_NOW(redis), NULL),
                   "TOOSOON");
    /* Of one that never had stock nobody remembers anything. */
    must(redis, 8, "dibs_reset", "0", "built", "0", NULL);
    assert_refused(call(redis, 8, "dibs_arm", "token-8", "0", "", ARMED_NOW(redis), NULL),
                   "NOPOLICY"); /* without a row */
    must(redis, 8, "dibs_set_policy", ROW, NULL);
    must(redis, 8, "dibs_arm", "token-8", "0", "built", ARMED_NOW(redis), NULL);
}

/* Trap 33: whoever was steward once and stood still comes back to what another has built. */
static void test_redis_arming__late_steward(void **state)
{
    (void)state;
    must(redis, 9, "dibs_set_policy", ROW, NULL);
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
    must(redis, 9, "dibs_set_policy", ROW, NULL);
    assert_refused(call(redis, 9, "dibs_arm", "token-a", "0", "late", ARMED_NOW(redis), NULL),
                   "UNARMED");
    assert_refused(call(redis, 9, "dibs_arm", "token-a", "0", "", ARMED_NOW(redis), NULL),
                   "UNARMED");
    assert_refused(call(redis, 9, "dibs_arm", "token-a", "0", "heir", ARMED_NOW(redis), NULL),
                   "TOOSOON");
}

/* Trap 29: Redis forgets some of what was built before it is armed. */
static void test_redis_arming__lost_while_it_is_built(void **state)
{
    (void)state;
    must(redis, 10, "dibs_reset", "0", "built", "0", NULL);
    must(redis, 10, "dibs_set_policy", ROW, NULL);
    redisFree(redis);
    redis_server_kill(&server);
    redis_server_run(&server);
    redis = redis_server_connect(&server);
    assert_refused(call(redis, 10, "dibs_arm", "token", "0", "built", ARMED_NOW(redis), NULL),
                   "UNARMED");
    must(redis, 10, "dibs_reset", "0", "again", "0", NULL);
    freeReplyObject(redisCommand(redis, "FLUSHALL"));
    must(redis, 10, "dibs_set_policy", ROW, NULL);
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

    assert_done(gate_reset(gate, POLICY, 0, term, &error));
    assert_done(gate_policy_set(gate, &policy, &error));
    assert_done(gate_lend(gate, &lease, 0, term, &error));
    assert_done(gate_moment(gate, POLICY, &arming.since, &error));
    assert_done(gate_arm(gate, POLICY, 0, &arming, &error));
}

/* Trap 46: each write of an earlier term is refused, and changes nothing; so is one of a term that
 * the policy has not heard of. */
static void test_redis_arming__an_earlier_term_is_refused(void **state)
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
    const char *own_words[] = {"5", "4"};

    (void)state;
    for (int is_armed = 0; is_armed < 2; is_armed++) {
        must(redis, POLICY, "dibs_reset", "0", "built", "5", NULL);
        must(redis, POLICY, "dibs_set_policy", ROW, NULL);
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
        redisReply *again = call_with(redis, POLICY, "dibs_take_over", own_words, 2);
        assert_int_equal(again->integer, is_armed); /* Its own once more changes nothing. */
        freeReplyObject(again);
        order(redis, "FLUSHALL");
    }
}

/* Trap 45: what is armed runs out, and goes on in its own term only, by the time of its own server.
 */
static void test_redis_arming__time_runs_out(void **state)
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
static void test_redis_arming__renewed_in_its_own_database(void **state)
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
static void test_redis_arming__taken_over(void **state)
{
    bool is_continuous = false;

    (void)state;
    arm_in_term(3, 200);
    assert_int_equal(claim("a").seq, 1);
    await(!look()->is_armed);
    assert_done(gate_take_over(gate, POLICY, 4, 3, &is_continuous, &error));
    assert_true(is_continuous);
    assert_int_equal(renew(60000, 0, 3), 0);
    assert_int_equal(renew(60000, 0, 4), 1);
    assert_int_equal(claim("b").seq, 2);
    /* Term 6 may have been armed elsewhere. */
    assert_done(gate_take_over(gate, POLICY, 7, 6, &is_continuous, &error));
    assert_false(is_continuous);
    assert_false(look()->is_continuous);
    assert_silent();
    assert_int_equal(renew(60000, 0, 7), 0);
    assert_int_equal(look()->term, 7);
    assert_int_equal(gate_take_over(gate, POLICY + 1, 1, 0, &is_continuous, &error),
                     STATUS_NOT_FOUND);
}

/* Trap 45: a database that is swapped away and back has its token, and another one's entry. */
static void test_redis_arming__databases_swapped(void **state)
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
#define ARMING_TEST(name) \
    cmocka_unit_test_setup_teardown(test_redis_arming__##name, set_up, tear_down)
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
        ARMING_TEST(late_steward),
        ARMING_TEST(lost_while_it_is_built),
        ARMING_TEST(an_earlier_term_is_refused),
        ARMING_TEST(time_runs_out),
        ARMING_TEST(renewed_in_its_own_database),
        ARMING_TEST(taken_over),
        ARMING_TEST(databases_swapped),
    };
    return cmocka_run_group_tests_name("redis_arming", tests, NULL, NULL);
}
