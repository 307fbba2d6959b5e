/* test_history.c: what was counted is what is told, and users stay masked. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "http/live/history.h"

#define NOW_MS (INT64_C(1700000000) * 1000)

struct fixture {
    struct live_history history;
    struct live_tallies loops[2];
    struct live_past past;
};

static int start(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    live_history_init(&fixture->history, NULL);
    fixture->loops[0].history = &fixture->history;
    fixture->loops[1].history = &fixture->history;
    *state = fixture;
    return 0;
}

static int stop(void **state)
{
    struct fixture *fixture = *state;
    live_history_release(&fixture->history);
    free(fixture);
    return 0;
}

static void count(struct live_tallies *loop, int64_t policy_id, int64_t wall_ms,
                  enum live_outcome outcome)
{
    struct id user = id_of(SPAN("somebody"));
    live_tallies_count(loop, &(struct live_answer){
                                 .policy_id = policy_id,
                                 .wall_ms = wall_ms,
                                 .elapsed_ns = 1000000,
                                 .user = &user,
                                 .seq = outcome <= LIVE_ALREADY_ISSUED ? wall_ms : 0,
                                 .outcome = outcome,
                                 .result = (uint8_t)outcome,
                                 .begins = outcome == LIVE_ISSUED || outcome == LIVE_SOLD_OUT,
                             });
}

static size_t fold(struct live_tallies *loop)
{
    int64_t folded[LIVE_TALLIES];
    return live_tallies_fold(loop, folded);
}

static const struct live_past *past_of(struct fixture *fixture, int64_t policy_id)
{
    live_history_copy(&fixture->history, policy_id, &fixture->past);
    return &fixture->past;
}

static uint64_t sum(const struct live_past *past, enum live_outcome outcome)
{
    uint64_t total = 0;
    for (size_t index = 0; index < LIVE_SECONDS; index++)
        total += past->seconds[index].counts[outcome];
    return total;
}

/* --- masking --- */

static void check_mask(const char *user, const char *shown)
{
    struct id id = id_of(span_of(user));
    struct live_mask mask = live_mask_of(&id);
    char text[16];
    snprintf(text, sizeof(text), "%s*%s", mask.head, mask.tail);
    assert_string_equal(text, shown);
}

static void test_live_history__masks_users(void **state)
{
    (void)state;
    check_mask("maria-123", "ma*3");
    check_mask("abcdef", "ab*f");
    /* The shorter the id, the less of it may be seen. */
    check_mask("abcde", "ab*");
    check_mask("abcd", "ab*");
    check_mask("abc", "a*");
    check_mask("ab", "a*");
    check_mask("a", "*");
    /* By characters, not bytes. */
    check_mask("김하늘", "김*");
    check_mask("김하늘과바람과별", "김하*별");
    check_mask("\xf0\x9f\x8e\x9f\xf0\x9f\x8e\x9f\xf0\x9f\x8e\x9f"
               "abcd",
               "\xf0\x9f\x8e\x9f\xf0\x9f\x8e\x9f*d");
    char longest[ID_LENGTH_MAX + 1];
    memset(longest, 'x', ID_LENGTH_MAX);
    longest[ID_LENGTH_MAX] = '\0';
    check_mask(longest, "xx*x");
}

/* --- seconds --- */

static void test_live_history__adds_up_loops_by_the_second(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 250; i++)
        count(&fixture->loops[i % 2], 42, NOW_MS + i * 10, i < 100 ? LIVE_ISSUED : LIVE_SOLD_OUT);
    count(&fixture->loops[0], 42, NOW_MS, LIVE_OTHER);
    fold(&fixture->loops[0]);
    fold(&fixture->loops[1]);
    const struct live_past *past = past_of(fixture, 42);
    assert_int_equal(past->received, 251);
    assert_int_equal(sum(past, LIVE_ISSUED), 100);
    assert_int_equal(sum(past, LIVE_SOLD_OUT), 150);
    assert_int_equal(sum(past, LIVE_OTHER), 1);
    const struct live_second *second = &past->seconds[(NOW_MS / 1000 + 1) % LIVE_SECONDS];
    assert_int_equal(second->second, NOW_MS / 1000 + 1);
    assert_int_equal(second->counts[LIVE_SOLD_OUT], 100);
    assert_int_equal(second->counts[LIVE_ISSUED], 0);
}

static void test_live_history__is_empty_until_folded(void **state)
{
    struct fixture *fixture = *state;
    int64_t folded[LIVE_TALLIES];
    count(&fixture->loops[0], 42, NOW_MS, LIVE_ISSUED);
    assert_false(live_history_copy(&fixture->history, 42, &fixture->past));
    assert_int_equal(fixture->past.received, 0);
    assert_int_equal(live_tallies_fold(&fixture->loops[0], folded), 1);
    assert_int_equal(folded[0], 42);
    assert_true(live_history_copy(&fixture->history, 42, &fixture->past));
    assert_int_equal(fixture->past.received, 1);
    assert_int_equal(live_tallies_fold(&fixture->loops[0], folded), 0);
}

static void test_live_history__forgets_after_a_quarter_of_an_hour(void **state)
{
    struct fixture *fixture = *state;
    for (int64_t second = 0; second < LIVE_SECONDS + 10; second++)
        count(&fixture->loops[0], 42, NOW_MS + second * 1000, LIVE_ISSUED);
    fold(&fixture->loops[0]);
    const struct live_past *past = past_of(fixture, 42);
    assert_int_equal(past->received, LIVE_SECONDS + 10);
    assert_int_equal(sum(past, LIVE_ISSUED), LIVE_SECONDS);
}

static void test_live_history__tells_which_seconds_changed(void **state)
{
    struct fixture *fixture = *state;
    count(&fixture->loops[0], 42, NOW_MS, LIVE_ISSUED);
    fold(&fixture->loops[0]);
    uint64_t seen = past_of(fixture, 42)->changes;
    /* A slow loop adds to a second that was told of already. */
    count(&fixture->loops[0], 42, NOW_MS + 1000, LIVE_ISSUED);
    fold(&fixture->loops[0]);
    count(&fixture->loops[1], 42, NOW_MS + 10, LIVE_ISSUED);
    fold(&fixture->loops[1]);
    const struct live_past *past = past_of(fixture, 42);
    assert_true(past->seconds[NOW_MS / 1000 % LIVE_SECONDS].change > seen);
    assert_true(past->seconds[(NOW_MS / 1000 + 1) % LIVE_SECONDS].change > seen);
    assert_int_equal(past->seconds[NOW_MS / 1000 % LIVE_SECONDS].counts[LIVE_ISSUED], 2);
}

/* --- the first half minute --- */

static void test_live_history__begins_with_the_first_claim_after_the_opening(void **state)
{
    struct fixture *fixture = *state;
    count(&fixture->loops[0], 42, NOW_MS - 500, LIVE_OTHER); /* too early */
    count(&fixture->loops[0], 42, NOW_MS, LIVE_ISSUED);
    count(&fixture->loops[0], 42, NOW_MS + 250, LIVE_SOLD_OUT);
    count(&fixture->loops[0], 42, NOW_MS + 250, LIVE_ALREADY_ISSUED);
    count(&fixture->loops[0], 42, NOW_MS + 29999, LIVE_SOLD_OUT);
    count(&fixture->loops[0], 42, NOW_MS + 30000, LIVE_SOLD_OUT); /* too late */
    fold(&fixture->loops[0]);
    const struct live_past *past = past_of(fixture, 42);
    assert_int_equal(past->first_tenth * 100, NOW_MS);
    assert_int_equal(past->tenth_count, LIVE_TENTHS);
    assert_int_equal(past->tenths[0].counts[LIVE_TENTH_WON], 1);
    assert_int_equal(past->tenths[2].counts[LIVE_TENTH_SOLD_OUT], 1);
    assert_int_equal(past->tenths[2].counts[LIVE_TENTH_OTHER], 1);
    assert_int_equal(past->tenths[299].counts[LIVE_TENTH_SOLD_OUT], 1);
}

static void test_live_history__another_loop_may_have_begun_earlier(void **state)
{
    struct fixture *fixture = *state;
    count(&fixture->loops[0], 42, NOW_MS + 300, LIVE_ISSUED);
    fold(&fixture->loops[0]);
    count(&fixture->loops[1], 42, NOW_MS, LIVE_ISSUED);
    fold(&fixture->loops[1]);
    const struct live_past *past = past_of(fixture, 42);
    assert_int_equal(past->first_tenth * 100, NOW_MS);
    assert_int_equal(past->tenth_count, 4);
    assert_int_equal(past->tenths[0].counts[LIVE_TENTH_WON], 1);
    assert_int_equal(past->tenths[1].counts[LIVE_TENTH_WON], 0);
    assert_int_equal(past->tenths[3].counts[LIVE_TENTH_WON], 1);
    /* All of them moved: whoever was told of them is told again. */
    assert_int_equal(past->tenths[3].change, past->changes);
}

/* --- feed and latencies --- */

static void test_live_history__keeps_the_last_claims(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 200; i++)
        count(&fixture->loops[0], 42, NOW_MS + i * 100, LIVE_ISSUED);
    fold(&fixture->loops[0]);
    const struct live_past *past = past_of(fixture, 42);
    assert_int_equal(past->feed_count, 200);
    for (uint64_t number = 150; number < 200; number++) {
        const struct live_claim *claim = &past->feed[number % LIVE_FEED];
        assert_int_equal(claim->at_ms, NOW_MS + (int64_t)number * 100);
        assert_int_equal(claim->seq, claim->at_ms);
    }
}

static void claim_in(struct fixture *fixture, int64_t wall_ms, uint64_t elapsed_ns)
{
    struct id user = id_of(SPAN("somebody"));
    live_tallies_count(&fixture->loops[0], &(struct live_answer){
                                               .policy_id = 42,
                                               .wall_ms = wall_ms,
                                               .elapsed_ns = elapsed_ns,
                                               .user = &user,
                                               .outcome = LIVE_ISSUED,
                                           });
    fold(&fixture->loops[0]);
}

static void test_live_history__latencies_are_of_the_last_ten_seconds_with_claims(void **state)
{
    struct fixture *fixture = *state;
    for (int i = 0; i < 100; i++)
        claim_in(fixture, NOW_MS, i < 90 ? 1000000 : 100000000);
    double median_ms = live_past_latency_ms(past_of(fixture, 42), 0.5);
    double late_ms = live_past_latency_ms(past_of(fixture, 42), 0.99);
    assert_true(median_ms > 0.8 && median_ms < 1.2);
    assert_true(late_ms > 80 && late_ms < 120);
    claim_in(fixture, NOW_MS + 9000, 10000000);
    assert_true(live_past_latency_ms(past_of(fixture, 42), 0.5) < 1.2);
    claim_in(fixture, NOW_MS + 10000, 10000000);
    assert_true(live_past_latency_ms(past_of(fixture, 42), 0.5) > 8);
}

/* --- many policies --- */

static void test_live_history__a_crowded_place_loses_nothing(void **state)
{
    struct fixture *fixture = *state;
    /* All of them share one tally. */
    for (int64_t round = 0; round < 10; round++)
        for (int64_t policy = 1; policy <= 5; policy++)
            count(&fixture->loops[0], policy * LIVE_TALLIES, NOW_MS, LIVE_ISSUED);
    fold(&fixture->loops[0]);
    for (int64_t policy = 1; policy <= 5; policy++)
        assert_int_equal(past_of(fixture, policy * LIVE_TALLIES)->received, 10);
}

static void test_live_history__forgets_the_policy_left_alone_the_longest(void **state)
{
    struct fixture *fixture = *state;
    for (int64_t policy = 1; policy <= LIVE_POLICIES_MAX; policy++)
        count(&fixture->loops[0], policy, NOW_MS + policy * 100, LIVE_ISSUED);
    count(&fixture->loops[0], 1, NOW_MS + 100000, LIVE_ISSUED);
    count(&fixture->loops[0], 1000, NOW_MS + 100000, LIVE_ISSUED);
    fold(&fixture->loops[0]);
    assert_int_equal(past_of(fixture, 1)->received, 2);
    assert_int_equal(past_of(fixture, 1000)->received, 1);
    assert_int_equal(past_of(fixture, 2)->received, 0);
    assert_int_equal(past_of(fixture, 3)->received, 1);
}

static void test_live_history__a_look_tells_what_was_before(void **state)
{
    struct fixture *fixture = *state;
    struct gate_numbers before;
    struct gate_numbers now = {.policy_id = 42, .total = 5};
    live_history_observe(&fixture->history, &now, NOW_MS, &before);
    assert_int_equal(before.policy_id, 0);
    now.total = 7;
    live_history_observe(&fixture->history, &now, NOW_MS, &before);
    assert_int_equal(before.policy_id, 42);
    assert_int_equal(before.total, 5);
}

/* --- threads --- */

#define CLAIMS_PER_THREAD 20000

static void *claim_a_lot(void *context)
{
    struct live_tallies *loop = context;
    for (int i = 0; i < CLAIMS_PER_THREAD; i++) {
        count(loop, 42 + i % 3, NOW_MS + i / 10, i % 2 ? LIVE_ISSUED : LIVE_SOLD_OUT);
        if (i % 50 == 0)
            fold(loop);
    }
    fold(loop);
    return NULL;
}

static void test_live_history__loses_nothing_between_threads(void **state)
{
    struct fixture *fixture = *state;
    pthread_t threads[2];
    uint64_t received = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, claim_a_lot, &fixture->loops[i]), 0);
    for (int i = 0; i < 100; i++) {
        const struct live_past *past = past_of(fixture, 42);
        uint64_t told = sum(past, LIVE_ISSUED) + sum(past, LIVE_SOLD_OUT);
        assert_int_equal(told, past->received);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int64_t policy = 42; policy < 45; policy++)
        received += past_of(fixture, policy)->received;
    assert_int_equal(received, 2 * CLAIMS_PER_THREAD);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_live_history__##name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(masks_users),
        TEST(adds_up_loops_by_the_second),
        TEST(is_empty_until_folded),
        TEST(forgets_after_a_quarter_of_an_hour),
        TEST(tells_which_seconds_changed),
        TEST(begins_with_the_first_claim_after_the_opening),
        TEST(another_loop_may_have_begun_earlier),
        TEST(keeps_the_last_claims),
        TEST(latencies_are_of_the_last_ten_seconds_with_claims),
        TEST(a_crowded_place_loses_nothing),
        TEST(forgets_the_policy_left_alone_the_longest),
        TEST(a_look_tells_what_was_before),
        TEST(loses_nothing_between_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
