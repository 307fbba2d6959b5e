/* test_cluster.c: policies spread over primaries; slots that move and primaries that die in
 * the middle of a drop; a master that the sentinels replace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "gate/shared.h"
#include "gate_hand.h"
#include "redis_cluster.h"

#define TOTAL      100000
#define FRESH      50000 /* units of a lease after a reconciliation */
#define LEDGER_MAX (20 * TOTAL)

static struct error error;

#define assert_done(status)             \
    do {                                \
        if ((status) != STATUS_OK)      \
            fail_msg("%s", error.text); \
    } while (0)

static enum verdict claim(struct gate_hand *hand, int64_t policy_id, const char *user)
{
    struct wish wish = wish_for(policy_id, user);
    struct wish *wishes[] = {&wish};
    gate_hand_claim(hand, policy_id, wishes, 1);
    return wish.verdict;
}

/* --- a ledger and its steward --- */

/* What the ledger has got: the user's number by seq; -1: nobody. */
static int *ledger;
static int64_t last_seq;
static int64_t lease_id;

static void ledger_begin(void)
{
    ledger = malloc(LEDGER_MAX * sizeof(*ledger));
    for (size_t i = 0; i < LEDGER_MAX; i++)
        ledger[i] = -1;
    last_seq = TOTAL;
    lease_id = 1;
}

/* Writes what is pending. Returns false while the gate cannot be asked. */
static bool ledger_drain(struct gate *gate, int64_t policy_id)
{
    static struct gate_pending pending;
    const enum coupon_state states[GATE_PENDING_MAX] = {COUPON_ISSUED};

    do {
        if (gate_pending(gate_shared(gate), policy_id, 0, &pending, &error) != STATUS_OK)
            return false;
        for (size_t i = 0; i < pending.claim_count; i++) {
            int64_t seq = pending.claims[i].seq;
            int user = -1;
            assert_int_equal(sscanf(pending.claims[i].user.bytes, "user-%d", &user), 1);
            assert_in_range(seq, 1, LEDGER_MAX - 1);
            /* A claim that was acknowledged and lost again comes back as the same one. */
            assert_true(ledger[seq] == -1 || ledger[seq] == user);
            ledger[seq] = user;
        }
        gate_acknowledge(gate, pending.claims, states, pending.claim_count);
    } while (pending.claim_count > 0);
    return true;
}

/* Drains, and builds the policy anew with a fresh lease. */
static bool reconcile(struct gate *gate, int64_t policy_id)
{
    int64_t count = 0;

    if (!ledger_drain(gate, policy_id) ||
        gate_reset(gate_shared(gate), policy_id, last_seq, 0, &error) != STATUS_OK)
        return false;
    for (int64_t seq = 1; seq < LEDGER_MAX; seq++) {
        char user[24];
        if (ledger[seq] < 0)
            continue;
        snprintf(user, sizeof(user), "user-%d", ledger[seq]);
        struct claim coupon = {.policy_id = policy_id,
                               .seq = seq,
                               .nth = 1,
                               .requested_at_ms = 1,
                               .user = id_of(span_of(user))};
        if (gate_restore(gate, &coupon, COUPON_ISSUED, &error) != STATUS_OK)
            return false;
        count++;
    }
    struct policy policy = {.id = policy_id,
                            .name = "anew",
                            .total = TOTAL,
                            .per_user_limit = 1,
                            .next_seq = last_seq + FRESH + 1,
                            .version = 1 + lease_id};
    struct lease lease = {.id = ++lease_id,
                          .policy_id = policy_id,
                          .first_seq = last_seq + 1,
                          .count = FRESH,
                          .open = true};
    last_seq += FRESH;
    return gate_policy_set(gate, &policy, &error) == STATUS_OK &&
           gate_lend(gate, &lease, 0, 0, &error) == STATUS_OK &&
           arm_for_long(gate, policy_id, count, &error) == STATUS_OK;
}

/* --- a storm --- */

#define STORM_BATCH 10

/* People who claim until they are told to stop: every one asks until they are answered. */
struct storm {
    struct gate *gate;
    int64_t policy_id;
    pthread_t thread;
    _Atomic bool is_over;
    _Atomic int told_count; /* users who were told their seq */
    _Atomic int refused_count;
    _Atomic int wrong_count; /* answers that nobody should get */
    int64_t *seqs;           /* of each user; 0: not told */
};

static void *storm_main(void *context)
{
    struct storm *storm = context;
    struct gate_hand hand;
    struct wish wishes[STORM_BATCH];
    struct wish *batch[STORM_BATCH];
    int next = 0;

    gate_hand_open(&hand, storm->gate);
    while (!storm->is_over && next + STORM_BATCH <= TOTAL) {
        for (int i = 0; i < STORM_BATCH; i++) {
            char user[24];
            snprintf(user, sizeof(user), "user-%d", next + i);
            wishes[i] = wish_for(storm->policy_id, user);
            batch[i] = &wishes[i];
        }
        gate_hand_claim(&hand, storm->policy_id, batch, STORM_BATCH);
        bool is_answered = true;
        for (int i = 0; i < STORM_BATCH; i++) {
            bool holds = wishes[i].verdict == VERDICT_WON || wishes[i].verdict == VERDICT_HELD;
            is_answered = is_answered && holds;
            if (holds && storm->seqs[next + i] == 0) {
                storm->seqs[next + i] = wishes[i].seq;
                storm->told_count++;
            }
            storm->wrong_count += !holds && wishes[i].verdict != VERDICT_UNAVAILABLE;
            storm->refused_count += !holds;
        }
        if (is_answered)
            next += STORM_BATCH;
        else
            pause_ms(5);
    }
    gate_hand_close(&hand);
    return NULL;
}

static void storm_begin(struct storm *storm, struct gate *gate, int64_t policy_id)
{
    *storm = (struct storm){.gate = gate, .policy_id = policy_id};
    storm->seqs = calloc(TOTAL, sizeof(*storm->seqs));
    assert_int_equal(pthread_create(&storm->thread, NULL, storm_main, storm), 0);
}

/* Stops it: everyone who was told a seq has it in the ledger, but for `lost_max` of them. */
static void storm_end(struct storm *storm, int lost_max)
{
    int lost_count = 0;

    storm->is_over = true;
    pthread_join(storm->thread, NULL);
    assert_int_equal(storm->wrong_count, 0);
    await(ledger_drain(storm->gate, storm->policy_id));
    for (int i = 0; i < TOTAL; i++)
        if (storm->seqs[i] != 0)
            lost_count += ledger[storm->seqs[i]] != i;
    assert_true(lost_count <= lost_max);
    free(storm->seqs);
}

/* --- tests --- */

static void test_redis_cluster__policies_are_spread(void **state)
{
    static struct redis_cluster cluster;
    struct gate_hand hand;

    (void)state;
    redis_cluster_start(&cluster, 3, 0);
    struct gate *gate = open_gate(cluster.url, (struct gate_options){0});
    gate_hand_open(&hand, gate);
    for (int64_t id = 1; id <= 30; id++) {
        assert_int_equal(redis_map_slot(id),
                         ask_number(cluster.links[0], "CLUSTER KEYSLOT COUPON:POLICY:{%lld}:META",
                                    (long long)id));
        make_policy(gate, id, 1, 1);
        assert_int_equal(claim(&hand, id, "a"), VERDICT_WON);
        assert_int_equal(claim(&hand, id, "b"), VERDICT_SOLD_OUT);
    }
    assert_int_equal(
        redis_map_slot(POLICY_ID_MAX),
        ask_number(cluster.links[0], "CLUSTER KEYSLOT {%lld}", (long long)POLICY_ID_MAX));
    int64_t key_count = 0;
    for (size_t i = 0; i < 3; i++) {
        int64_t here = ask_number(cluster.links[i], "DBSIZE");
        assert_true(here > 0);
        key_count += here;
    }
    assert_int_equal(key_count, 30 * 5); /* No keys of keys: nobody used any. */
    gate_hand_close(&hand);
    gate_close(gate);
    redis_cluster_release(&cluster);
}

static void test_redis_cluster__slot_moves_during_a_storm(void **state)
{
    static struct redis_cluster cluster;
    static struct storm storm;
    static struct gate_pending pending;

    (void)state;
    redis_cluster_start(&cluster, 3, 0);
    struct gate *gate = open_gate(cluster.url, (struct gate_options){0});
    int64_t policy_id = redis_cluster_policy_of(&cluster, 0, 1);
    ledger_begin();
    make_policy(gate, policy_id, TOTAL, 1);
    storm_begin(&storm, gate, policy_id);
    await(storm.told_count > 500);
    redis_cluster_begin_move(&cluster, policy_id, 1);
    redis_cluster_move_keys(&cluster, policy_id, 0, 1, 2); /* half of it is on its way */
    int refused = storm.refused_count;
    await(storm.refused_count > refused);
    redis_cluster_move_keys(&cluster, policy_id, 0, 1, INT64_MAX);
    refused = storm.refused_count;
    await(storm.refused_count > refused);
    redis_cluster_end_move(&cluster, policy_id, 1);
    /* It is found in its new place, and unarmed. */
    await(gate_pending(gate_shared(gate), policy_id, 0, &pending, &error) == STATUS_OK);
    assert_true(pending.is_known);
    assert_false(pending.is_armed);
    int told = storm.told_count;
    await(reconcile(gate, policy_id));
    await(storm.told_count > told + 500);
    storm_end(&storm, 0);
    assert_true(ask_number(cluster.links[1], "DBSIZE") > 0);
    assert_int_equal(ask_number(cluster.links[0], "DBSIZE"), 0);
    gate_close(gate);
    free(ledger);
    redis_cluster_release(&cluster);
}

/* One of three is gone for good: the policies of the others are served, and looked at. */
static void test_redis_cluster__others_go_on(void **state)
{
    static struct redis_cluster cluster;
    struct gate_numbers numbers;
    struct gate_hand hand;
    struct error words;

    (void)state;
    redis_cluster_start(&cluster, 3, 0);
    struct gate *gate = open_gate(cluster.url, (struct gate_options){.timeout_ms = 500});
    int64_t dead_id = redis_cluster_policy_of(&cluster, 0, 1);
    int64_t living_id = redis_cluster_policy_of(&cluster, 1, dead_id + 1);
    make_policy(gate, dead_id, 100, 1);
    make_policy(gate, living_id, 100, 1);
    gate_hand_open(&hand, gate);
    redis_cluster_kill(&cluster, 0);
    await(!gate_is_ready(gate_shared(gate), &words));
    for (int i = 1; i <= 3; i++) {
        char user[24];
        snprintf(user, sizeof(user), "user-%d", i);
        await(claim(&hand, living_id, user) == VERDICT_WON);
        await(gate_count(gate, living_id, 0, &numbers) == STATUS_OK && numbers.pending == i);
        assert_int_equal(claim(&hand, dead_id, user), VERDICT_UNAVAILABLE);
    }
    assert_false(gate_is_ready(gate_shared(gate), &words));
    gate_hand_close(&hand);
    gate_close(gate);
    redis_cluster_release(&cluster);
}

static void test_redis_cluster__primary_dies(void **state)
{
    static struct redis_cluster cluster;
    struct gate_hand hand;
    static struct storm storm;
    struct error words;

    (void)state;
    redis_cluster_start(&cluster, 3, 1);
    struct gate *gate =
        open_gate(cluster.url, (struct gate_options){.timeout_ms = 500, .replicas = 0});
    int64_t policy_id = redis_cluster_policy_of(&cluster, 0, 1);
    int64_t other_id = redis_cluster_policy_of(&cluster, 1, policy_id + 1);
    ledger_begin();
    make_policy(gate, policy_id, TOTAL, 1);
    make_policy(gate, other_id, 100, 1);
    gate_hand_open(&hand, gate);
    storm_begin(&storm, gate, policy_id);
    await(storm.told_count > 500);
    redis_cluster_kill(&cluster, 0);
    assert_int_equal(claim(&hand, other_id, "a"), VERDICT_WON);
    /* The replica takes over, and waits for its steward. */
    await(redis_cluster_owner(&cluster, policy_id) == 3);
    await(reconcile(gate, policy_id));
    int told = storm.told_count;
    await(storm.told_count > told + 500);
    await(gate_is_ready(gate_shared(gate), &words));
    assert_int_equal(claim(&hand, other_id, "a"), VERDICT_HELD);
    /* What was acknowledged and not replicated may be lost: that is said of failovers. */
    storm_end(&storm, TOTAL);
    gate_hand_close(&hand);
    gate_close(gate);
    free(ledger);
    redis_cluster_release(&cluster);
}

/* With replicas=1 nothing that was told is lost with the primary. */
static void test_redis_cluster__primary_dies_with_its_replica_in_step(void **state)
{
    static struct redis_cluster cluster;
    static struct storm storm;

    (void)state;
    redis_cluster_start(&cluster, 3, 1);
    struct gate *gate =
        open_gate(cluster.url, (struct gate_options){.timeout_ms = 2000, .replicas = 1});
    int64_t policy_id = redis_cluster_policy_of(&cluster, 0, 1);
    ledger_begin();
    make_policy(gate, policy_id, TOTAL, 1);
    storm_begin(&storm, gate, policy_id);
    await(storm.told_count > 500);
    redis_cluster_kill(&cluster, 0);
    await(redis_cluster_owner(&cluster, policy_id) == 3);
    await(reconcile(gate, policy_id));
    /* No replica is left to wait for: nobody is told anything more. */
    int told = storm.told_count;
    int refused = storm.refused_count;
    await(storm.refused_count > refused + 20);
    assert_int_equal(storm.told_count, told);
    storm_end(&storm, 0);
    gate_close(gate);
    free(ledger);
    redis_cluster_release(&cluster);
}

static void test_redis_cluster__sentinels_name_another_master(void **state)
{
    struct redis_server primary;
    struct redis_server replica;
    struct redis_server sentinel;
    static struct storm storm;
    char url[80];

    (void)state;
    redis_server_start(&primary, NULL);
    redis_server_start(&replica, NULL);
    redisContext *link = redis_server_connect(&replica);
    order(link, "REPLICAOF 127.0.0.1 %d", primary.port);
    redis_sentinel_start(&sentinel, primary.port);
    redisContext *watcher = redis_server_connect(&sentinel);
    redisReply *found;
    await((found = ask(watcher, "SENTINEL REPLICAS dibs"),
           found->elements == 1 || (freeReplyObject(found), false)));
    freeReplyObject(found);

    snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/dibs", sentinel.port);
    struct gate *gate = open_gate(url, (struct gate_options){.timeout_ms = 500});
    ledger_begin();
    make_policy(gate, 7, TOTAL, 1);
    storm_begin(&storm, gate, 7);
    await(storm.told_count > 500);
    redis_server_kill(&primary);
    await(reconcile(gate, 7));
    int told = storm.told_count;
    await(storm.told_count > told + 500);
    storm_end(&storm, TOTAL);
    gate_close(gate);
    free(ledger);
    redisFree(watcher);
    redisFree(link);
    redis_server_release(&sentinel);
    redis_server_release(&replica);
    redis_server_release(&primary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redis_cluster__policies_are_spread),
        cmocka_unit_test(test_redis_cluster__slot_moves_during_a_storm),
        cmocka_unit_test(test_redis_cluster__others_go_on),
        cmocka_unit_test(test_redis_cluster__primary_dies),
        cmocka_unit_test(test_redis_cluster__primary_dies_with_its_replica_in_step),
        cmocka_unit_test(test_redis_cluster__sentinels_name_another_master),
    };
    return cmocka_run_group_tests_name("redis_cluster", tests, NULL, NULL);
}
