/* test_errors.c: whatever Redis says instead of a verdict, nobody is told one (trap 15), and
 * a late answer is never somebody else's (trap 16). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "gate/shared.h"
#include "gate_hand.h"
#include "redis_fixture.h"
#include "redis_impostor.h"

#define POLICY     42
#define TIMEOUT_MS 600

static struct redis_impostor impostor;
static struct gate *gate;
static struct gate_hand hand;
static struct error error;

static int set_up(void **state)
{
    (void)state;
    redis_impostor_start(&impostor);
    gate = open_gate(impostor.url, (struct gate_options){.timeout_ms = TIMEOUT_MS});
    gate_hand_open(&hand, gate);
    make_policy(gate, POLICY, 9, 1);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gate_hand_close(&hand);
    gate_close(gate);
    redis_impostor_stop(&impostor);
    return 0;
}

static enum verdict claim_three(struct wish wishes[3])
{
    struct wish *batch[] = {&wishes[0], &wishes[1], &wishes[2]};

    for (int i = 0; i < 3; i++)
        wishes[i] = wish_for(POLICY, "somebody");
    gate_hand_claim(&hand, POLICY, batch, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wishes[i].verdict, wishes[0].verdict);
        if (wishes[i].verdict != VERDICT_WON)
            assert_false(wishes[i].is_accepted);
    }
    return wishes[0].verdict;
}

static bool wins(void)
{
    struct wish wishes[3];
    return claim_three(wishes) == VERDICT_WON;
}

/* With that answer on the wire nobody is told a verdict, and the gate recovers by itself. */
static void assert_no_verdict(enum impostor_claims claims, const char *words)
{
    struct wish wishes[3];

    await(wins()); /* connected */
    redis_impostor_answer(&impostor, claims, words);
    int before = impostor.claim_count;
    int64_t asked_ms = clock_monotonic_ms();
    if (claim_three(wishes) != VERDICT_UNAVAILABLE)
        fail_msg("verdict %d for %s", wishes[0].verdict, words == NULL ? "nothing" : words);
    assert_true(impostor.claim_count > before);
    assert_true(clock_monotonic_ms() - asked_ms < AWAIT_MS);
    redis_impostor_answer(&impostor, IMPOSTOR_WINS, NULL);
    await(wins());
}

/* --- trap 15 --- */

static void test_redis_errors__are_no_verdicts(void **state)
{
    const char *const errors[] = {
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-BUSY Redis is busy running a script\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        "-MISCONF Redis is configured to save RDB snapshots\r\n",
        "-MOVED 3999 127.0.0.1:1\r\n",
        "-MOVED\r\n",
        "-MOVED 3999\r\n",
        "-MOVED 3999 nowhere\r\n",
        "-MOVED 3999 :0\r\n",
        "-ASK 3999 127.0.0.1:1\r\n",
        "-ASK 3999 \r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
        "-CROSSSLOT Keys in request don't hash to the same slot\r\n",
        "-ERR Function not found\r\n",
        "-NOAUTH Authentication required.\r\n",
        "-NOPERM this user has no permissions\r\n",
        "-WRONGPASS invalid username-password pair\r\n",
        "-NOREPLICAS Not enough good replicas to write.\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
        "-UNARMED the policy awaits its steward\r\n",
        "-NOPOLICY there is no such policy\r\n",
        "-DIBSBAD a batch\r\n",
        "-ERR max number of clients reached\r\n",
        "-\r\n",
        "-SOLD_OUT\r\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        assert_no_verdict(IMPOSTOR_SAYS, errors[i]);
}

/* Replies of every form that are not the answer. The name of the first batch is unknown here, so
 * those with a right name come below. */
static void test_redis_errors__garbage_is_no_verdict(void **state)
{
    const char *const garbage[] = {
        "+OK\r\n",
        ":3\r\n",
        "$-1\r\n",
        "$5\r\nS S S\r\n",
        "*0\r\n",
        "*-1\r\n",
        "*3\r\n$-1\r\n$1\r\n0\r\n$5\r\nS S S\r\n",
        "*3\r\n$1\r\n1\r\n$1\r\n0\r\n:3\r\n",
        "*3\r\n:1\r\n:1\r\n:1\r\n",
        "*1\r\n*1\r\n*1\r\n$1\r\nx\r\n",
        "S S S\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "\r\n",
        "*99999999999\r\n",
        "*4294967294\r\n",
        "$-5\r\n",
        "\x16\x03\x01\x02",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++)
        assert_no_verdict(IMPOSTOR_SAYS, garbage[i]);
}

static void test_redis_errors__no_answer_is_no_verdict(void **state)
{
    (void)state;
    assert_no_verdict(IMPOSTOR_OTHERS_NAME, NULL);
    assert_no_verdict(IMPOSTOR_HALF, NULL);
    assert_no_verdict(IMPOSTOR_CLOSES, NULL);
    int64_t asked_ms = clock_monotonic_ms();
    assert_no_verdict(IMPOSTOR_SILENT, NULL);
    assert_true(clock_monotonic_ms() - asked_ms >= TIMEOUT_MS);
}

/* An answer too many belongs to nobody: the connection it came on is not used again. */
static void test_redis_errors__answer_too_many(void **state)
{
    struct wish wishes[3];

    (void)state;
    await(wins());
    redis_impostor_answer(&impostor, IMPOSTOR_TWICE, NULL);
    for (int i = 0; i < 20; i++) {
        int64_t seq_before = impostor.seq;
        if (claim_three(wishes) == VERDICT_WON)
            assert_int_equal(wishes[0].seq, seq_before + 1);
    }
    redis_impostor_answer(&impostor, IMPOSTOR_WINS, NULL);
    await(wins());
}

/* --- the texts of verdicts --- */

/* The name of the next batch of a line counts up from one. */
static void assert_unreadable(const char *verdicts)
{
    struct gate_hand fresh;
    struct wish wishes[3];
    struct wish *batch[] = {&wishes[0], &wishes[1], &wishes[2]};
    char reply[200];

    snprintf(reply, sizeof(reply), "*3\r\n$1\r\n1\r\n$1\r\n0\r\n$%zu\r\n%s\r\n", strlen(verdicts),
             verdicts);
    redis_impostor_answer(&impostor, IMPOSTOR_SAYS, reply);
    gate_hand_open(&fresh, gate);
    for (int i = 0; i < 3; i++)
        wishes[i] = wish_for(POLICY, "somebody");
    gate_hand_claim(&fresh, POLICY, batch, 3);
    for (int i = 0; i < 3; i++)
        if (wishes[i].verdict != VERDICT_UNAVAILABLE)
            fail_msg("verdict %d of \"%s\"", wishes[i].verdict, verdicts);
    gate_hand_close(&fresh);
}

static void test_redis_errors__verdicts_are_read_strictly(void **state)
{
    const char *const unreadable[] = {
        "",          "S",          "S S",           "S S S S",     "S S S ",
        " S S S",    "S  S S",     "S S X",         "S S s",       "W W W",
        "W1 S S",    "W1: S S",    "W0:1 S S",      "W-1:1 S S",   "W1:0 S S",
        "W1:1x S S", "W1:1:P S S", "W:1 S S",       "W1:5000 S S", "H1:1 S S",
        "H1:1: S S", "H1:1:X S S", "H1:1:PP S S",   "H0:1:P S S",  "SS S S",
        "S,S,S",     "B1 S S",     "W1:1,W2:1 S S", "S+1 S S",     "S+3",
        "S+ S",      "S+0 S S",    "S+-1 S S S",    "S+ 1 S",      "H1:1:P+1 S",
        "S+1x S",    "W1:1+1 S S", "+1 S",          "W1:1+2 ",     "S S+1 S",
    };
    struct gate_hand fresh;
    struct wish wishes[3];
    struct wish *batch[] = {&wishes[0], &wishes[1], &wishes[2]};

    (void)state;
    for (size_t i = 0; i < sizeof(unreadable) / sizeof(unreadable[0]); i++)
        assert_unreadable(unreadable[i]);
    /* The way they should be, one by one and in a run. */
    redis_impostor_answer(&impostor, IMPOSTOR_SAYS,
                          "*3\r\n$1\r\n1\r\n$1\r\n0\r\n$8\r\nS W7:1+1\r\n");
    gate_hand_open(&fresh, gate);
    for (int i = 0; i < 3; i++)
        wishes[i] = wish_for(POLICY, "somebody");
    gate_hand_claim(&fresh, POLICY, batch, 3);
    assert_int_equal(wishes[0].verdict, VERDICT_SOLD_OUT);
    assert_int_equal(wishes[1].verdict, VERDICT_WON);
    assert_int_equal(wishes[2].verdict, VERDICT_WON);
    assert_int_equal(wishes[1].seq, 7);
    assert_int_equal(wishes[2].seq, 8);
    assert_int_equal(wishes[2].nth, 1);
    gate_hand_close(&fresh);
    redis_impostor_answer(&impostor, IMPOSTOR_SAYS,
                          "*3\r\n$1\r\n1\r\n$1\r\n0\r\n$17\r\nW7:2 H6:1:P N1234\r\n");
    gate_hand_open(&fresh, gate);
    for (int i = 0; i < 3; i++)
        wishes[i] = wish_for(POLICY, "somebody");
    gate_hand_claim(&fresh, POLICY, batch, 3);
    assert_int_equal(wishes[0].verdict, VERDICT_WON);
    assert_int_equal(wishes[0].seq, 7);
    assert_int_equal(wishes[0].nth, 2);
    assert_true(wishes[0].is_accepted);
    assert_int_equal(wishes[1].verdict, VERDICT_HELD);
    assert_true(wishes[1].is_accepted);
    assert_int_equal(wishes[2].verdict, VERDICT_NOT_OPEN);
    assert_int_equal(wishes[2].opens_at_ms, 1234);
    gate_hand_close(&fresh);
}

/* --- replicas --- */

/* With WAIT behind it, an error is as little a verdict, and nothing is freed twice. */
static void test_redis_errors__with_replicas(void **state)
{
    const char *const errors[] = {"-BUSY\r\n", "-READONLY x\r\n", "-MOVED 1 127.0.0.1:1\r\n",
                                  "+OK\r\n",   "-UNARMED x\r\n",  "x\r\n"};
    struct gate *careful =
        open_gate(impostor.url, (struct gate_options){.timeout_ms = TIMEOUT_MS, .replicas = 1});
    struct gate_hand careful_hand;
    struct wish wish;
    struct wish *wishes[] = {&wish};

    (void)state;
    gate_hand_open(&careful_hand, careful);
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        redis_impostor_answer(&impostor, IMPOSTOR_SAYS, errors[i]);
        wish = wish_for(POLICY, "somebody");
        gate_hand_claim(&careful_hand, POLICY, wishes, 1);
        assert_true(wish.verdict == VERDICT_UNAVAILABLE || wish.verdict == VERDICT_NO_POLICY);
    }
    redis_impostor_answer(&impostor, IMPOSTOR_WINS, NULL);
    wish.verdict = VERDICT_UNDECIDED;
    await((gate_hand_claim(&careful_hand, POLICY, wishes, 1), wish.verdict == VERDICT_WON));
    gate_hand_close(&careful_hand);
    gate_close(careful);
}

/* --- the steward's calls --- */

static void test_redis_errors__calls_end_in_time(void **state)
{
    const char *const errors[] = {
        "LOADING x", "BUSY x",        "READONLY x",          "NOAUTH x",
        "NOPERM x",  "CLUSTERDOWN x", "MOVED 1 127.0.0.1:1", "ASK 1 127.0.0.1:1",
        "OOM x",     "TRYAGAIN x"};
    struct gate_pending *pending = malloc(sizeof(*pending));

    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        pthread_mutex_lock(&impostor.lock);
        snprintf(impostor.greeting, sizeof(impostor.greeting), "%s", errors[i]);
        pthread_mutex_unlock(&impostor.lock);
        enum status status = gate_pending(gate_shared(gate), POLICY, 0, pending, &error);
        if (status != STATUS_UNAVAILABLE && status != STATUS_FAILED)
            fail_msg("%s: %s", errors[i], status_name(status));
        assert_int_equal(pending->claim_count, 0);
        await(!gate_is_ready(gate_shared(gate), &error));
        pthread_mutex_lock(&impostor.lock);
        impostor.greeting[0] = '\0';
        pthread_mutex_unlock(&impostor.lock);
        await(gate_is_ready(gate_shared(gate), &error));
    }
    free(pending);
}

/* --- trap 16, on a real Redis --- */

#define LATE_USERS        10000
#define LATE_BATCH        20
#define LATE_SENT_BATCHES 10

struct late_sent_batch {
    struct gate_batch batch;
    struct wish wishes[LATE_BATCH];
    struct wish *pointers[LATE_BATCH];
    int first; /* the number of its first user */
};

struct late_run {
    uv_loop_t loop;
    struct gate_line *line;
    struct late_sent_batch sent_batches[LATE_SENT_BATCHES];
    struct late_sent_batch *idle[LATE_SENT_BATCHES];
    int idle_count;
    int64_t *seqs; /* that each user was told; 0: nothing */
    int unavailable_count;
};

static void late_land(void *context, struct gate_batch *batch)
{
    struct late_run *run = context;
    struct late_sent_batch *sent_batch = (struct late_sent_batch *)batch;

    for (int i = 0; i < LATE_BATCH; i++) {
        struct wish *wish = &sent_batch->wishes[i];
        if (wish->verdict == VERDICT_WON || wish->verdict == VERDICT_HELD)
            run->seqs[sent_batch->first + i] = wish->seq;
        else
            run->unavailable_count += wish->verdict == VERDICT_UNAVAILABLE;
    }
    run->idle[run->idle_count++] = sent_batch;
}

static void late_send(struct late_run *run, int first)
{
    struct late_sent_batch *sent_batch = run->idle[--run->idle_count];

    sent_batch->first = first;
    sent_batch->batch = (struct gate_batch){
        .policy_id = POLICY, .wishes = sent_batch->pointers, .count = LATE_BATCH};
    for (int i = 0; i < LATE_BATCH; i++) {
        char user[24];
        snprintf(user, sizeof(user), "user-%d", first + i);
        sent_batch->wishes[i] = wish_for(POLICY, user);
        sent_batch->pointers[i] = &sent_batch->wishes[i];
    }
    if (gate_claim(run->line, &sent_batch->batch, 0))
        late_land(run, &sent_batch->batch);
}

/* Sends everybody once, at most LATE_SENT_BATCHES batches at a time. */
static void late_round(struct late_run *run)
{
    for (int first = 0; first < LATE_USERS; first += LATE_BATCH) {
        while (run->idle_count == 0)
            uv_run(&run->loop, UV_RUN_ONCE);
        late_send(run, first);
        uv_run(&run->loop, UV_RUN_NOWAIT);
    }
    while (run->idle_count < LATE_SENT_BATCHES)
        uv_run(&run->loop, UV_RUN_ONCE);
}

/* What a user was told is what Redis has for them. */
static int assert_told_is_held(redisContext *redis, const struct late_run *run)
{
    struct redis_keys keys;
    int told_count = 0;

    redis_keys_of(&keys, POLICY);
    for (int i = 0; i < LATE_USERS; i++) {
        if (run->seqs[i] == 0)
            continue;
        assert_int_equal(ask_number(redis, "ZSCORE %s user-%d", keys.names[1], i), run->seqs[i]);
        told_count++;
    }
    return told_count;
}

static void test_redis_errors__late_answers_are_nobody_elses(void **state)
{
    struct redis_server server;
    struct redis_proxy proxy;
    struct late_run *run = calloc(1, sizeof(*run));

    (void)state;
    redis_server_start(&server, NULL);
    redis_proxy_start(&proxy, server.port);
    redisContext *redis = redis_server_connect(&server);
    struct gate *late_gate = open_gate(proxy.url, (struct gate_options){.timeout_ms = 200});
    make_policy(late_gate, POLICY, LATE_USERS, 1);
    struct gate_line_options options = {.loop = &run->loop, .decided = late_land, .context = run};
    assert_int_equal(uv_loop_init(&run->loop), 0);
    assert_int_equal(gate_line_open(late_gate, &options, &run->line, &error), STATUS_OK);
    run->seqs = calloc(LATE_USERS, sizeof(*run->seqs));
    for (int i = 0; i < LATE_SENT_BATCHES; i++)
        run->idle[run->idle_count++] = &run->sent_batches[i];

    /* Some of them over the timeout; on a busy machine it takes a while until one is within it. */
    int64_t until_ms = clock_monotonic_ms() + AWAIT_MS;
    int told_count = 0;
    proxy.delay_max_ms = 240;
    while ((run->unavailable_count == 0 || told_count == 0) && clock_monotonic_ms() < until_ms) {
        late_round(run);
        told_count = assert_told_is_held(redis, run);
    }
    assert_true(run->unavailable_count > 0);
    assert_true(told_count > 0);
    /* All of them find their own when it is well again. */
    proxy.delay_max_ms = 0;
    until_ms = clock_monotonic_ms() + AWAIT_MS;
    do {
        run->unavailable_count = 0;
        late_round(run);
    } while (run->unavailable_count > 0 && clock_monotonic_ms() < until_ms);
    assert_int_equal(assert_told_is_held(redis, run), LATE_USERS);
    struct redis_keys keys;
    redis_keys_of(&keys, POLICY);
    assert_int_equal(ask_number(redis, "ZCARD %s", keys.names[1]), LATE_USERS);

    gate_line_close(run->line);
    while (uv_run(&run->loop, UV_RUN_DEFAULT) != 0)
        continue;
    assert_int_equal(uv_loop_close(&run->loop), 0);
    gate_close(late_gate);
    free(run->seqs);
    free(run);
    redisFree(redis);
    redis_proxy_stop(&proxy);
    redis_server_release(&server);
}

/* An answer that is lost on its way does not make the call count twice. */
static void test_redis_errors__lost_answers_count_once(void **state)
{
    struct redis_server server;
    struct redis_proxy proxy;
    struct redis_keys keys;
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    size_t shrunk_count = 0;

    (void)state;
    redis_server_start(&server, NULL);
    redisContext *redis = redis_server_connect(&server);
    redis_proxy_start(&proxy, server.port);
    redis_keys_of(&keys, POLICY);
    struct gate *cut_gate = open_gate(proxy.url, (struct gate_options){0});
    make_policy(cut_gate, POLICY, 10, 1);
    for (int i = 0; i < 20; i++) {
        struct lease lease = {
            .id = 2 + i, .policy_id = POLICY, .first_seq = 11 + 10 * i, .count = 10, .open = true};
        proxy.swallows = true;
        enum status status = gate_lend(cut_gate, &lease, 0, 0, &error);
        if (status != STATUS_OK)
            fail_msg("lend %d: %s %s", i, status_name(status), error.text);
    }
    assert_int_equal(ask_number(redis, "GET %s", keys.names[0]), 210);
    for (int i = 0; i < 20; i++) {
        proxy.swallows = true;
        enum status status = gate_recall(cut_gate, POLICY, 10, shrunk, &shrunk_count, &error);
        if (status != STATUS_OK)
            fail_msg("recall %d: %s %s", i, status_name(status), error.text);
        assert_int_equal(shrunk_count, 1);
        assert_int_equal(shrunk[0].lease_id, 21 - i);
    }
    assert_int_equal(ask_number(redis, "GET %s", keys.names[0]), 10);
    assert_true(proxy.swallow_count >= 20);
    gate_close(cut_gate);
    redisFree(redis);
    redis_proxy_stop(&proxy);
    redis_server_release(&server);
}

int main(void)
{
#define ERRORS_TEST(name) \
    cmocka_unit_test_setup_teardown(test_redis_errors__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        ERRORS_TEST(are_no_verdicts),
        ERRORS_TEST(garbage_is_no_verdict),
        ERRORS_TEST(no_answer_is_no_verdict),
        ERRORS_TEST(answer_too_many),
        ERRORS_TEST(verdicts_are_read_strictly),
        ERRORS_TEST(with_replicas),
        ERRORS_TEST(calls_end_in_time),
        cmocka_unit_test(test_redis_errors__late_answers_are_nobody_elses),
        cmocka_unit_test(test_redis_errors__lost_answers_count_once),
    };
    return cmocka_run_group_tests_name("redis_errors", tests, NULL, NULL);
}
