/* gate_suite_race.c: threads race for K coupons through lines of their own: exactly K win. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "gate_fixture.h"

#define RACERS      8
#define RACE_TOTAL  3000
#define RACE_WISHES 1500
#define RACE_BATCH  5

struct racer {
    struct gate *gate;
    pthread_barrier_t *start;
    int number;
    bool same_users;
    int64_t seqs[RACE_WISHES]; /* told: won or held */
    int won_count;
    int refused_count;
};

static void *race(void *context)
{
    struct racer *racer = context;
    struct wish wishes[RACE_BATCH];
    struct wish *batch[RACE_BATCH];
    struct gate_hand hand;

    gate_hand_open(&hand, racer->gate);
    pthread_barrier_wait(racer->start);
    for (int done = 0; done < RACE_WISHES; done += RACE_BATCH) {
        for (int i = 0; i < RACE_BATCH; i++) {
            char user[32];
            snprintf(user, sizeof(user), "user-%d-%d", racer->same_users ? 0 : racer->number,
                     done + i);
            wishes[i] = wish_of(user);
            batch[i] = &wishes[i];
        }
        gate_hand_claim(&hand, POLICY, batch, RACE_BATCH);
        for (int i = 0; i < RACE_BATCH; i++) {
            bool holds = wishes[i].verdict == VERDICT_WON || wishes[i].verdict == VERDICT_HELD;
            racer->won_count += wishes[i].verdict == VERDICT_WON;
            racer->refused_count += wishes[i].verdict == VERDICT_SOLD_OUT;
            racer->seqs[done + i] = holds ? wishes[i].seq : 0;
        }
    }
    gate_hand_close(&hand);
    return NULL;
}

static struct racer *run_race(struct fixture *fixture, bool same_users)
{
    pthread_t threads[RACERS];
    struct racer *racers = calloc(RACERS, sizeof(*racers));
    pthread_barrier_t start;

    pthread_barrier_init(&start, NULL, RACERS);
    for (int i = 0; i < RACERS; i++) {
        racers[i] = (struct racer){
            .gate = fixture->gate, .start = &start, .number = i, .same_users = same_users};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < RACERS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&start);
    return racers;
}

static void test_gate__threads_race_for_the_stock(void **state)
{
    struct fixture *fixture = *state;
    static bool is_given[RACE_TOTAL + 1];
    int won_count = 0;
    int refused_count = 0;

    create(fixture, RACE_TOTAL, 1);
    struct racer *racers = run_race(fixture, false);
    for (int i = 0; i < RACERS; i++) {
        won_count += racers[i].won_count;
        refused_count += racers[i].refused_count;
        int64_t last = 0;
        for (int j = 0; j < RACE_WISHES; j++) {
            int64_t seq = racers[i].seqs[j];
            if (seq == 0)
                continue;
            assert_in_range(seq, 1, RACE_TOTAL);
            assert_false(is_given[seq]);
            is_given[seq] = true;
            assert_true(seq > last); /* who asked later has the higher number */
            last = seq;
        }
    }
    assert_int_equal(won_count, RACE_TOTAL);
    assert_int_equal(refused_count, RACERS * RACE_WISHES - RACE_TOTAL);
    assert_int_equal(look_at_pending(fixture), RACE_TOTAL);
    for (size_t i = 0; i < RACE_TOTAL; i++)
        assert_int_equal(fixture->claims[i].seq, i + 1);
    free(racers);
}

/* Trap 3: the same users in parallel. */
static void test_gate__threads_race_as_the_same_users(void **state)
{
    struct fixture *fixture = *state;
    int won_count = 0;

    create(fixture, RACE_TOTAL, 1);
    struct racer *racers = run_race(fixture, true);
    for (int i = 0; i < RACERS; i++) {
        won_count += racers[i].won_count;
        for (int j = 0; j < RACE_WISHES; j++)
            assert_int_equal(racers[i].seqs[j], racers[0].seqs[j]);
    }
    assert_int_equal(won_count, RACE_WISHES);
    await_numbers(fixture, RACE_TOTAL - RACE_WISHES, RACE_WISHES, 0);
    free(racers);
}

int gate_suite_race_run(void)
{
    const struct CMUnitTest tests[] = {
        GATE_TEST(test_gate__threads_race_for_the_stock),
        GATE_TEST(test_gate__threads_race_as_the_same_users),
    };
    return cmocka_run_group_tests_name("gate_race", tests, NULL, NULL);
}
