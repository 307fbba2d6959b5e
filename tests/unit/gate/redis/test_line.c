/* test_line.c: claims for policies that do not exist hold up nobody and leave nothing. */
#include <malloc.h>
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

#define POLICY  42
#define CROWD   4000
#define STRANGE 1000000 /* ids from here on are nobody's */

/* One claim each, for an id of its own. */
struct crowd {
    struct gate_batch batches[CROWD];
    struct wish wishes[CROWD];
    struct wish *places[CROWD];
    size_t decided_count;
    size_t decided_before; /* the one who wants what there is was answered */
    struct gate_batch *wanted;
};

static struct redis_server server;
static struct gate *gate;
static uv_loop_t loop;
static struct gate_line *line;
static struct crowd crowd;

static void on_decided(void *context, struct gate_batch *batch)
{
    struct crowd *told = context;

    if (batch == told->wanted)
        told->decided_before = told->decided_count;
    told->decided_count++;
}

static int set_up(void **state)
{
    struct error error;
    struct gate_line_options options = {.loop = &loop, .decided = on_decided, .context = &crowd};

    (void)state;
    redis_server_start(&server, NULL);
    gate = open_gate(server.url, (struct gate_options){.timeout_ms = 20000});
    make_policy(gate, POLICY, 10, 1);
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(gate_line_open(gate, &options, &line, &error), STATUS_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gate_line_close(line);
    while (uv_run(&loop, UV_RUN_DEFAULT) != 0)
        continue;
    assert_int_equal(uv_loop_close(&loop), 0);
    gate_close(gate);
    redis_server_release(&server);
    return 0;
}

static void submit(struct gate_batch *batch, struct wish *wish, struct wish **place,
                   int64_t policy_id)
{
    *wish = wish_for(policy_id, "u");
    wish->verdict = VERDICT_UNDECIDED;
    *place = wish;
    *batch = (struct gate_batch){.policy_id = policy_id, .wishes = place, .count = 1};
    if (gate_claim(line, batch, clock_wall_ms()))
        on_decided(&crowd, batch);
}

static void submit_crowd(int64_t first_id)
{
    crowd.decided_count = 0;
    crowd.wanted = NULL;
    for (int i = 0; i < CROWD; i++)
        submit(&crowd.batches[i], &crowd.wishes[i], &crowd.places[i], first_id + i);
}

static void await_decided(size_t count)
{
    while (crowd.decided_count < count)
        uv_run(&loop, UV_RUN_ONCE);
}

static void assert_nobody_wins(void)
{
    for (int i = 0; i < CROWD; i++)
        assert_int_equal(crowd.wishes[i].verdict, VERDICT_NO_POLICY);
}

static void test_redis_line__unknown_ids_leave_nothing(void **state)
{
    (void)state;
    submit_crowd(STRANGE);
    await_decided(CROWD);
    assert_nobody_wins();
    size_t before = mallinfo2().uordblks;
    for (int64_t round = 1; round <= 5; round++) {
        submit_crowd(STRANGE + round * CROWD);
        await_decided(CROWD);
    }
    size_t after = mallinfo2().uordblks;
    /* A queue for each would be more than a megabyte. */
    if (after > before + 100000)
        fail_msg("%zu bytes stay", after - before);
}

static void test_redis_line__unknown_ids_hold_up_nobody(void **state)
{
    struct wish wish;
    struct wish *place;
    struct gate_batch batch;

    (void)state;
    submit_crowd(STRANGE);
    crowd.wanted = &batch;
    submit(&batch, &wish, &place, POLICY);
    await_decided(CROWD + 1);
    assert_int_equal(wish.verdict, VERDICT_WON);
    assert_nobody_wins();
    if (crowd.decided_before > CROWD / 10)
        fail_msg("%zu were answered before", crowd.decided_before);
}

/* The line closes while many are held. */
static void test_redis_line__closes_in_the_middle(void **state)
{
    (void)state;
    submit_crowd(STRANGE);
}

int main(void)
{
#define LINE_TEST(name) cmocka_unit_test_setup_teardown(test_redis_line__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LINE_TEST(unknown_ids_leave_nothing),
        LINE_TEST(unknown_ids_hold_up_nobody),
        LINE_TEST(closes_in_the_middle),
    };
    return cmocka_run_group_tests_name("redis_line", tests, NULL, NULL);
}
