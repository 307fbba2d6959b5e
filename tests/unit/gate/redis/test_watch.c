/* test_watch.c: what a server remembers of Redis: who is told SOLD_OUT from memory, and who
 * never is (traps 23, 27); caps, waiting for the ledger and for replicas. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "redis_impostor.h"
#include "redis_setup.h"

static int set_up(void **state)
{
    (void)state;
    return start_gate(NULL);
}

static struct wish claim_through(struct gate_hand *through, struct wish wish)
{
    struct wish *wishes[] = {&wish};
    gate_hand_claim(through, POLICY, wishes, 1);
    return wish;
}

static struct wish claim_with_key(const char *user, uint8_t key)
{
    struct wish wish = wish_for(POLICY, user);
    memset(&wish.request_id, 0, sizeof(wish.request_id));
    wish.request_id.bytes[0] = 0x80;
    wish.request_id.bytes[15] = key;
    return claim_through(&hand, wish);
}

/* How often Redis was asked to decide or lend: nothing else reads the leases. */
static int64_t asked_count(void)
{
    redisReply *reply = ask(redis, "INFO commandstats");
    const char *line = strstr(reply->str, "cmdstat_lrange:calls=");
    int64_t count = line == NULL ? 0 : atoll(line + strlen("cmdstat_lrange:calls="));
    freeReplyObject(reply);
    return count;
}

/* Whether somebody is told SOLD_OUT without Redis. */
static bool is_told_from_memory(struct gate_hand *through)
{
    int64_t before = asked_count();
    struct wish wish = claim_through(through, wish_for(POLICY, "loser"));
    assert_int_equal(wish.verdict, VERDICT_SOLD_OUT);
    return asked_count() == before;
}

/* Whether Redis was asked for this. */
#define assert_asks(expression)                       \
    do {                                              \
        int64_t before_ = asked_count();              \
        expression;                                   \
        assert_int_equal(asked_count(), before_ + 1); \
    } while (0)

/* --- sold out --- */

static void test_redis_watch__sold_out_costs_redis_nothing(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 2, 1);
    claim("a");
    claim("b");
    await(is_told_from_memory(&hand));
}

/* Trap 27: a winner whose answer was lost asks again, and so does one with a key. */
static void test_redis_watch__winners_are_never_told_from_memory(void **state)
{
    struct id blocked = id_of(SPAN("blocked"));

    (void)state;
    make_policy(gate, POLICY, 3, 1);
    claim("a");
    claim_with_key("b", 1);
    claim("c");
    assert_done(gate_block(gate, &blocked, true, &error));
    await(is_told_from_memory(&hand));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(claim("a").seq, 1);
        assert_int_equal(claim("b").seq, 2);
        assert_int_equal(claim("c").verdict, VERDICT_HELD);
        assert_asks(assert_int_equal(claim_with_key("b", 1).seq, 2));
        assert_asks(assert_int_equal(claim_with_key("x", 2).verdict, VERDICT_SOLD_OUT));
        assert_int_equal(claim("blocked").verdict, VERDICT_BLOCKED);
        assert_int_equal(claim("loser").verdict, VERDICT_SOLD_OUT);
    }
}

/* Somebody who won through another server is no loser here. */
static void test_redis_watch__winners_of_other_servers(void **state)
{
    struct gate *second = open_gate(server.url, (struct gate_options){0});
    struct gate_hand second_hand;

    (void)state;
    gate_hand_open(&second_hand, second);
    make_policy(gate, POLICY, 200, 1);
    for (int i = 0; i < 200; i++) {
        char user[24];
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim(user).verdict, VERDICT_WON);
    }
    struct policy row = {.id = POLICY,
                         .name = "seen",
                         .total = 200,
                         .per_user_limit = 1,
                         .next_seq = 201,
                         .version = 1};
    assert_done(gate_policy_set(second, &row, &error));
    await(is_told_from_memory(&second_hand));
    for (int i = 0; i < 200; i++) {
        char user[24];
        snprintf(user, sizeof(user), "user-%d", i);
        struct wish wish = claim_through(&second_hand, wish_for(POLICY, user));
        assert_int_equal(wish.verdict, VERDICT_HELD);
        assert_int_equal(wish.seq, i + 1);
    }
    gate_hand_close(&second_hand);
    gate_close(second);
}

/* Paused, closed and the like come before SOLD_OUT, also here. */
static void test_redis_watch__other_verdicts_come_first(void **state)
{
    struct policy row = {
        .id = POLICY, .name = "p", .total = 1, .per_user_limit = 1, .next_seq = 2, .version = 2};

    (void)state;
    make_policy(gate, POLICY, 1, 1);
    claim("a");
    await(is_told_from_memory(&hand));
    row.paused = true;
    assert_done(gate_policy_set(gate, &row, &error));
    assert_int_equal(claim("loser").verdict, VERDICT_PAUSED);
    row.paused = false;
    row.version = 3;
    row.closes_at_ms = clock_wall_ms();
    assert_done(gate_policy_set(gate, &row, &error));
    assert_int_equal(claim("loser").verdict, VERDICT_CLOSED);
}

/* --- stock that returns (trap 23) --- */

static void announce(int64_t version, int64_t unleased)
{
    struct policy row = {.id = POLICY,
                         .name = "announced",
                         .total = 10,
                         .per_user_limit = 1,
                         .unleased = unleased,
                         .next_seq = 2,
                         .version = version};
    assert_done(gate_policy_set(gate, &row, &error));
}

static void lend_one(int64_t lease_id)
{
    struct lease lease = {
        .id = lease_id, .policy_id = POLICY, .first_seq = 100 + lease_id, .count = 1, .open = true};
    enum status status;

    while ((status = gate_lend(gate, &lease, 0, 0, &error)) == STATUS_BUSY)
        pause_ms(1);
    assert_done(status);
}

/* From the moment on in which it is lent nobody is told SOLD_OUT, on whichever server, though each
 * answered from memory until it heard of it. With `is_late` the last thing it hears, after all
 * that, is the answer to a look from before. */
static void return_stock(bool is_late)
{
    struct redis_proxy proxy;
    struct gate_hand second_hand;
    struct policy row = {
        .id = POLICY, .name = "p", .total = 10, .per_user_limit = 1, .next_seq = 2, .version = 1};
    char user[24];

    redis_proxy_start(&proxy, server.port);
    struct gate *second = open_gate(proxy.url, (struct gate_options){0});
    gate_hand_open(&second_hand, second);
    make_policy(gate, POLICY, 1, 1);
    claim("a");
    assert_done(gate_policy_set(second, &row, &error));
    for (int i = 0; i < 5; i++) {
        await(is_told_from_memory(&second_hand));
        int held_before = proxy.held_count;
        proxy.holds_looks = is_late;
        if (is_late)
            await(proxy.held_count > held_before);
        announce(2 + 2 * i, 1);
        lend_one(2 + i);
        proxy.holds_looks = false;
        if (is_late)
            pause_ms(30); /* It is heard by now, or soon. */
        snprintf(user, sizeof(user), "user-%d", i);
        struct wish wish = claim_through(&second_hand, wish_for(POLICY, user));
        assert_int_equal(wish.verdict, VERDICT_WON);
        assert_int_equal(wish.seq, 102 + i);
        announce(3 + 2 * i, 0);
    }
    gate_hand_close(&second_hand);
    gate_close(second);
    redis_proxy_stop(&proxy);
}

static void test_redis_watch__returned_stock_is_never_denied(void **state)
{
    (void)state;
    return_stock(false);
}

static void test_redis_watch__returned_stock_is_never_denied_by_the_late(void **state)
{
    (void)state;
    return_stock(true);
}

/* An announcement reaches a server within a second, without anybody's lending. */
static void test_redis_watch__announcements_are_heard(void **state)
{
    struct gate *second = open_gate(server.url, (struct gate_options){0});
    struct gate_hand second_hand;
    struct policy row = {
        .id = POLICY, .name = "p", .total = 10, .per_user_limit = 1, .next_seq = 2, .version = 1};

    (void)state;
    gate_hand_open(&second_hand, second);
    make_policy(gate, POLICY, 1, 1);
    claim("a");
    assert_done(gate_policy_set(second, &row, &error));
    await(is_told_from_memory(&second_hand));
    announce(2, 1);
    await(claim_through(&second_hand, wish_for(POLICY, "loser")).verdict == VERDICT_LEASE_WANTED);
    gate_hand_close(&second_hand);
    gate_close(second);
}

/* The winners of before a wipe are not those of after it. */
static void test_redis_watch__winners_after_a_wipe(void **state)
{
    (void)state;
    make_policy(gate, POLICY, 1, 1);
    assert_int_equal(claim("before").verdict, VERDICT_WON);
    await(is_told_from_memory(&hand));
    order(redis, "FLUSHALL");
    make_policy(gate, POLICY, 1, 1);
    assert_int_equal(claim("after").verdict, VERDICT_WON);
    await(is_told_from_memory(&hand));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(claim("after").verdict, VERDICT_HELD);
        assert_int_equal(claim("before").verdict, VERDICT_SOLD_OUT);
    }
}

/* --- the cap --- */

static void test_redis_watch__over_the_cap_redis_is_not_asked(void **state)
{
    struct gate_numbers numbers;
    struct gate *capped = open_gate(server.url, (struct gate_options){.pending_max = 3});
    struct gate_hand capped_hand;
    const enum coupon_state states[] = {COUPON_ISSUED, COUPON_ISSUED};

    (void)state;
    gate_hand_open(&capped_hand, capped);
    make_policy(capped, POLICY, 10, 1);
    for (int i = 0; i < 3; i++) {
        char user[24];
        snprintf(user, sizeof(user), "user-%d", i);
        assert_int_equal(claim(user).verdict, VERDICT_WON);
    }
    await(gate_count(capped, POLICY, 0, &numbers) == STATUS_OK && numbers.pending == 3);
    int64_t before = asked_count();
    assert_int_equal(claim_through(&capped_hand, wish_for(POLICY, "late")).verdict,
                     VERDICT_UNAVAILABLE);
    assert_int_equal(asked_count(), before);
    static struct gate_pending pending;
    assert_done(gate_pending(gate_shared(capped), POLICY, 0, &pending, &error));
    gate_acknowledge(capped, pending.claims, states, 2);
    await(claim_through(&capped_hand, wish_for(POLICY, "late")).verdict == VERDICT_WON);
    gate_hand_close(&capped_hand);
    gate_close(capped);
}

/* --- waiting for the ledger --- */

struct ledger_thread {
    pthread_t thread;
    enum coupon_state state;
};

/* Writes the first claim that comes up. */
static void *ledger_main(void *context)
{
    struct ledger_thread *ledger = context;
    struct gate_pending *pending = malloc(sizeof(*pending));
    struct error words;

    do {
        pause_ms(2);
        ensure(gate_pending(gate_shared(gate), POLICY, 0, pending, &words) == STATUS_OK);
    } while (pending->claim_count == 0);
    gate_acknowledge(gate, pending->claims, &ledger->state, 1);
    free(pending);
    return NULL;
}

static struct wish claim_with_ledger(struct gate_hand *through, const char *user,
                                     enum coupon_state state)
{
    struct ledger_thread ledger = {.state = state};

    assert_int_equal(pthread_create(&ledger.thread, NULL, ledger_main, &ledger), 0);
    struct wish wish = claim_through(through, wish_for(POLICY, user));
    pthread_join(ledger.thread, NULL);
    return wish;
}

static void test_redis_watch__wins_wait_for_the_ledger(void **state)
{
    struct gate *patient = open_gate(
        server.url, (struct gate_options){.ack = GATE_ACK_LEDGER, .ack_timeout_ms = AWAIT_MS});
    struct gate_hand patient_hand;

    (void)state;
    gate_hand_open(&patient_hand, patient);
    make_policy(gate, POLICY, 10, 1);
    struct wish issued = claim_with_ledger(&patient_hand, "a", COUPON_ISSUED);
    assert_int_equal(issued.verdict, VERDICT_WON);
    assert_false(issued.is_accepted); /* issued */
    struct wish voided = claim_with_ledger(&patient_hand, "b", COUPON_VOID);
    assert_int_equal(voided.verdict, VERDICT_UNAVAILABLE);
    assert_int_equal(claim_with_ledger(&patient_hand, "b", COUPON_ISSUED).verdict, VERDICT_WON);
    /* Somebody who holds what is pending waits, too. */
    assert_int_equal(claim("c").verdict, VERDICT_WON);
    struct wish held = claim_with_ledger(&patient_hand, "c", COUPON_ISSUED);
    assert_int_equal(held.verdict, VERDICT_HELD);
    assert_false(held.is_accepted);
    gate_hand_close(&patient_hand);
    gate_close(patient);
}

static void test_redis_watch__after_its_time_a_win_is_accepted(void **state)
{
    struct gate *hasty =
        open_gate(server.url, (struct gate_options){.ack = GATE_ACK_LEDGER, .ack_timeout_ms = 50});
    struct gate_hand hasty_hand;

    (void)state;
    gate_hand_open(&hasty_hand, hasty);
    make_policy(gate, POLICY, 10, 1);
    int64_t asked_ms = clock_monotonic_ms();
    struct wish wish = claim_through(&hasty_hand, wish_for(POLICY, "a"));
    assert_true(clock_monotonic_ms() - asked_ms >= 50);
    assert_int_equal(wish.verdict, VERDICT_WON);
    assert_true(wish.is_accepted);
    gate_hand_close(&hasty_hand);
    gate_close(hasty);
}

/* --- replicas --- */

static void test_redis_watch__too_few_replicas(void **state)
{
    struct gate *careful = open_gate(server.url, (struct gate_options){.replicas = 1});
    struct gate_hand careful_hand;
    struct redis_server other;

    (void)state;
    gate_hand_open(&careful_hand, careful);
    make_policy(gate, POLICY, 2, 1);
    struct wish wish = claim_through(&careful_hand, wish_for(POLICY, "a"));
    assert_int_equal(wish.verdict, VERDICT_UNAVAILABLE);
    assert_false(wish.is_accepted);
    redis_server_start(&other, NULL);
    redisContext *replica = redis_server_connect(&other);
    order(replica, "REPLICAOF 127.0.0.1 %d", server.port);
    await((wish = claim_through(&careful_hand, wish_for(POLICY, "a"))).verdict == VERDICT_HELD);
    assert_int_equal(wish.seq, 1); /* The retry finds the claim. */
    await((wish = claim_through(&careful_hand, wish_for(POLICY, "b"))).verdict !=
          VERDICT_UNAVAILABLE);
    assert_int_equal(wish.seq, 2);
    assert_int_equal(ask_number(replica, "HEXISTS %s b", keys.names[2]), 1);
    redisFree(replica);
    redis_server_release(&other);
    gate_hand_close(&careful_hand);
    gate_close(careful);
}

/* Who asks again by another connection is told no sooner than who asked first. */
static void test_redis_watch__replicas_lack_what_another_connection_wrote(void **state)
{
    struct gate *careful[2];
    struct gate_hand hands[2];
    struct redis_server other;
    struct wish wish;

    (void)state;
    redis_server_start(&other, NULL);
    redisContext *replica = redis_server_connect(&other);
    order(replica, "REPLICAOF 127.0.0.1 %d", server.port);
    make_policy(gate, POLICY, 10, 1);
    for (size_t i = 0; i < 2; i++) {
        careful[i] = open_gate(server.url, (struct gate_options){.replicas = 1});
        gate_hand_open(&hands[i], careful[i]);
        await((wish = claim_through(&hands[i], wish_for(POLICY, i == 0 ? "a" : "c"))).verdict !=
              VERDICT_UNAVAILABLE);
    }
    /* It stays connected, and hears nothing. */
    redis_server_pause(&other);
    for (size_t i = 0; i < 2; i++) {
        wish = claim_through(&hands[i], wish_for(POLICY, "b"));
        assert_int_equal(wish.verdict, VERDICT_UNAVAILABLE);
    }
    redis_server_resume(&other);
    await((wish = claim_through(&hands[1], wish_for(POLICY, "b"))).verdict == VERDICT_HELD);
    for (size_t i = 0; i < 2; i++) {
        gate_hand_close(&hands[i]);
        gate_close(careful[i]);
    }
    redisFree(replica);
    redis_server_release(&other);
}

/* --- how it is --- */

static void test_redis_watch__says_how_redis_is(void **state)
{
    struct error words;

    (void)state;
    await(gate_is_ready(gate_shared(gate), &words)); /* also without a policy */
    assert_string_equal(words.text, "ok");
    redisFree(redis);
    redis_server_kill(&server);
    await(!gate_is_ready(gate_shared(gate), &words));
    assert_non_null(strstr(words.text, "127.0.0.1"));
    redis_server_run(&server);
    redis = redis_server_connect(&server);
    await(gate_is_ready(gate_shared(gate), &words));
    redis_server_pause(&server);
    struct gate *hasty = NULL;
    assert_int_equal(
        try_open_gate(server.url, (struct gate_options){.timeout_ms = 200}, &hasty, &error),
        STATUS_UNAVAILABLE);
    redis_server_resume(&server);
}

/* A policy whose keys are spoilt does not take the others with it. */
static void test_redis_watch__one_bad_policy(void **state)
{
    struct redis_keys bad;
    struct gate_numbers numbers;
    struct error words;

    (void)state;
    make_policy(gate, 1, 5, 1);
    make_policy(gate, POLICY, 5, 1);
    redis_keys_of(&bad, 1);
    order(redis, "DEL %s", bad.names[4]);
    order(redis, "SET %s spoilt", bad.names[4]);
    await(!gate_is_ready(gate_shared(gate), &words));
    assert_non_null(strstr(words.text, "WRONGTYPE"));
    assert_int_equal(claim("a").verdict, VERDICT_WON);
    await(gate_count(gate, POLICY, 0, &numbers) == STATUS_OK && numbers.pending == 1);
    order(redis, "DEL %s", bad.names[4]);
    await(gate_is_ready(gate_shared(gate), &words));
}

int main(void)
{
#define WATCH_TEST(name) \
    cmocka_unit_test_setup_teardown(test_redis_watch__##name, set_up, stop_gate)
    const struct CMUnitTest tests[] = {
        WATCH_TEST(sold_out_costs_redis_nothing),
        WATCH_TEST(winners_are_never_told_from_memory),
        WATCH_TEST(winners_of_other_servers),
        WATCH_TEST(other_verdicts_come_first),
        WATCH_TEST(returned_stock_is_never_denied),
        WATCH_TEST(returned_stock_is_never_denied_by_the_late),
        WATCH_TEST(announcements_are_heard),
        WATCH_TEST(winners_after_a_wipe),
        WATCH_TEST(over_the_cap_redis_is_not_asked),
        WATCH_TEST(wins_wait_for_the_ledger),
        WATCH_TEST(after_its_time_a_win_is_accepted),
        WATCH_TEST(too_few_replicas),
        WATCH_TEST(replicas_lack_what_another_connection_wrote),
        WATCH_TEST(says_how_redis_is),
        WATCH_TEST(one_bad_policy),
    };
    return cmocka_run_group_tests_name("redis_watch", tests, NULL, NULL);
}
