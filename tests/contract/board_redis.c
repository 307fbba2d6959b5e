/* board_redis.c: the board suite on Redis, and what somebody else may do to its keys there: the
 * server or cluster that DIBS_TEST_REDIS_URL names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "base/zone.h"
#include "board_suite.h"
#include "gate/redis/link.h"
#include "ranking/redis/redis.h"

#define TIMEOUT_MS 20000 /* sanitizers and a busy machine are slow */
#define PREFIX     "zs:product:{rank}:"
#define DAY_MS     INT64_C(86400000)

static const char *redis_url(void)
{
    const char *url = getenv("DIBS_TEST_REDIS_URL");

    if (url == NULL)
        fail_msg("run it as tests/servers.py run redis -- PROGRAM");
    return url;
}

/* A command on the server that has the board. */
static redisReply *ask_redis(const char *format, ...)
{
    static struct redis_map map;
    struct redis_target target;
    struct redis_address address;
    redisContext *link = NULL;
    struct error error;
    va_list arguments;

    ensure(redis_target_init(&target, redis_url(), NULL, TIMEOUT_MS, &error) == STATUS_OK);
    redis_map_init(&map, &target);
    if (redis_map_refresh(&map, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    ensure(redis_map_find_slot(&map, redis_map_slot_of("rank"), &address));
    if (redis_link_open(&link, &target, &address, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    va_start(arguments, format);
    redisReply *reply = redisvCommand(link, format, arguments);
    va_end(arguments);
    if (reply == NULL || reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply == NULL ? link->errstr : reply->str);
    redisFree(link);
    redis_map_release(&map);
    redis_target_release(&target);
    return reply;
}

static void do_redis(const char *command)
{
    freeReplyObject(ask_redis(command));
}

static struct board *open_board(void)
{
    struct board *board = NULL;
    struct error error;
    const struct board_redis_options options = {
        .url = redis_url(), .timeout_ms = TIMEOUT_MS, .zone = zone_utc()};

    if (board_redis_open(&board, &options, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return board;
}

struct board *board_suite_open(void)
{
    do_redis("FLUSHALL");
    do_redis("CONFIG SET appendfsync no"); /* nobody kills this one */
    return open_board();
}

struct board *board_suite_beside(struct board *board)
{
    (void)board;
    return open_board();
}

void board_suite_close(struct board *board, struct board *beside)
{
    board_close(board);
    board_close(beside);
}

/* --- tests --- */

static void write_day(char text[ZONE_DAY_TEXT_SIZE], int back)
{
    zone_format_day(clock_wall_ms() / DAY_MS - back, text);
}

/* Puts days into a command: @ is today, # the first of three days. */
static void write_command(char *command, const char *format)
{
    char today[ZONE_DAY_TEXT_SIZE];
    char first[ZONE_DAY_TEXT_SIZE];
    size_t length = 0;

    write_day(today, 0);
    write_day(first, 2);
    for (const char *at = format; *at != '\0'; at++)
        if (*at == '@' || *at == '#')
            length += (size_t)sprintf(command + length, "%s", *at == '@' ? today : first);
        else
            command[length++] = *at;
    command[length] = '\0';
}

/* Whatever somebody does to the keys: nobody is answered from what is left, and the board that is
 * built anew is right. */
static void test_board_redis__a_key_that_is_gone(void **state)
{
    static const char *const commands[] = {
        "FLUSHALL",
        "DEL " PREFIX "meta",
        "DEL " PREFIX "@",
        "DEL " PREFIX "sum:#_@",
        "ZADD " PREFIX "@ 5 foreign",
        "ZREM " PREFIX "sum:#_@ p0 P7 q14 p21 P28 q35 p42 P49 q56",
        "SET " PREFIX "@ text",
        "SET " PREFIX "meta text",
        "HDEL " PREFIX "meta feed_id",
        "HSET " PREFIX "meta floor nonsense",
        "FUNCTION FLUSH",
    };
    struct board_stage *stage = *state;
    struct board *board = board_stage_board(stage);
    char command[256];
    struct error error;
    struct feed_place place;

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        board_stage_sell(stage, 120);
        board_stage_follow(stage, board);
        write_command(command, commands[i]);
        do_redis(command);
        bool is_harmless = strncmp(command, "FUNCTION", 8) == 0;
        assert_int_equal(board->ops->place(board, &place, &error),
                         is_harmless ? STATUS_OK : STATUS_NOT_FOUND);
        board_stage_sell(stage, 20);
        board_stage_follow(stage, board);
        board_stage_check(stage, board);
    }
}

/* Between a look at the place and the sale. */
static void test_board_redis__a_key_that_goes_meanwhile(void **state)
{
    struct board_stage *stage = *state;
    struct board *board = board_stage_board(stage);
    struct feed_entry entry = {.product_id = id_of(span_of("p0")), .quantity = 1};
    struct sales_line lines[5];
    struct feed_place place;
    struct error error;
    char command[256];
    size_t count;

    board_stage_sell(stage, 60);
    board_stage_follow(stage, board);
    assert_int_equal(board->ops->place(board, &place, &error), STATUS_OK);
    write_command(command, "DEL " PREFIX "@");
    do_redis(command);
    entry.day = clock_wall_ms() / DAY_MS;
    entry.place = (struct feed_place){place.feed_id + 1, place.written_at_ms};
    assert_int_equal(board->ops->apply(board, &place, &entry, 1, &error), STATUS_NOT_FOUND);
    assert_int_equal(board_suite_top(board, entry.day, entry.day, 5, lines, &count, &error),
                     STATUS_NOT_FOUND);
    write_command(command, "EXISTS " PREFIX "@");
    redisReply *reply = ask_redis(command);
    assert_int_equal(reply->integer, 0);
    freeReplyObject(reply);
}

/* More than a score can hold is refused as a whole. */
static void test_board_redis__too_much_of_one(void **state)
{
    struct board_stage *stage = *state;
    struct board *board = board_stage_board(stage);
    struct feed_entry entries[2] = {
        {.product_id = id_of(span_of("small")), .quantity = 1},
        {.product_id = id_of(span_of("large")), .quantity = (1 << 25) - 1},
    };
    struct sales_line lines[5];
    struct feed_place place;
    struct error error;
    size_t count;
    int64_t today = clock_wall_ms() / DAY_MS;

    board_stage_follow(stage, board);
    assert_int_equal(board->ops->place(board, &place, &error), STATUS_OK);
    for (size_t i = 0; i < 2; i++) {
        entries[i].day = today;
        entries[i].place = (struct feed_place){place.feed_id + 1 + (int64_t)i, 1};
    }
    assert_int_equal(board->ops->apply(board, &place, entries, 2, &error), STATUS_OK);
    place = entries[1].place;
    entries[0].place.feed_id += 2;
    entries[1].place.feed_id += 2;
    assert_int_equal(board->ops->apply(board, &place, entries, 2, &error), STATUS_FAILED);
    assert_int_equal(board_suite_top(board, today - 2, today, 5, lines, &count, &error), STATUS_OK);
    assert_int_equal(count, 2);
    assert_int_equal(lines[0].sold, (1 << 25) - 1);
    assert_int_equal(lines[0].sold_last_day, (1 << 25) - 1);
    assert_int_equal(lines[1].sold, 1);
}

/* Day and sum go on the third day at 00:10. */
static void test_board_redis__keys_expire(void **state)
{
    static const char *const keys[] = {PREFIX "@", PREFIX "sum:#_@"};
    struct board_stage *stage = *state;
    struct error error;

    for (int round = 0; round < 2; round++) {
        board_stage_sell(stage, 200);
        if (round == 0)
            assert_int_equal(board_stage_build(stage, board_stage_board(stage), &error), STATUS_OK);
        board_stage_follow(stage, board_stage_board(stage));
        for (size_t i = 0; i < 2; i++) {
            char command[256] = "PEXPIRETIME ";
            write_command(command + strlen(command), keys[i]);
            redisReply *reply = ask_redis(command);
            assert_int_equal(reply->integer, (clock_wall_ms() / DAY_MS + 3) * DAY_MS + 600000);
            freeReplyObject(reply);
        }
    }
    /* Nothing is left of what was built. */
    redisReply *reply = ask_redis("KEYS " PREFIX "build*");
    assert_int_equal(reply->elements, 0);
    freeReplyObject(reply);
}

/* A day that is forgotten does not come back as half of one. */
static void test_board_redis__half_a_day(void **state)
{
    struct board_stage *stage = *state;
    struct board *board = board_stage_board(stage);
    struct sales_line lines[5];
    struct error error;
    size_t count;
    int64_t today = clock_wall_ms() / DAY_MS;

    board_stage_sell(stage, 60);
    board_stage_follow(stage, board);
    assert_int_equal(board->ops->forget(board, today - 2, &error), STATUS_OK);
    board_stage_sell(stage, 60);
    board_stage_follow(stage, board);
    assert_int_equal(board_suite_top(board, today - 2, today - 2, 5, lines, &count, &error),
                     STATUS_NOT_FOUND);
    assert_int_equal(board_suite_top(board, today - 3, today - 1, 5, lines, &count, &error),
                     STATUS_NOT_FOUND);
    assert_int_equal(board_suite_top(board, today - 2, today, 5, lines, &count, &error), STATUS_OK);
    assert_int_equal(count, 5);
}

/* Redis was restarted with less than it had: this server has told of more. */
static void test_board_redis__one_that_went_back(void **state)
{
    struct board_stage *stage = *state;
    struct board *board = board_stage_board(stage);
    struct sales_line lines[5];
    struct feed_place place;
    struct error error;
    size_t count;
    int64_t today = clock_wall_ms() / DAY_MS;

    board_stage_sell(stage, 60);
    board_stage_follow(stage, board);
    assert_int_equal(board_suite_top(board, today, today, 5, lines, &count, &error), STATUS_OK);
    do_redis("HINCRBY " PREFIX "meta feed_id -1");
    assert_int_equal(board_suite_top(board, today, today, 5, lines, &count, &error),
                     STATUS_NOT_FOUND);
    /* Once it has seen that, it is what there is. */
    assert_int_equal(board->ops->place(board, &place, &error), STATUS_OK);
    assert_int_equal(board_suite_top(board, today, today, 5, lines, &count, &error), STATUS_OK);
}

/* One builds at a time, and what a dead one holds is free after a while. */
static void test_board_redis__one_builds(void **state)
{
    struct board_stage *stage = *state;
    struct error error;

    do_redis("SET " PREFIX "builder somebody PX 300");
    assert_int_equal(board_stage_build(stage, board_stage_board(stage), &error), STATUS_BUSY);
    board_stage_sell(stage, 50);
    board_stage_follow(stage, board_stage_board(stage));
    board_stage_check(stage, board_stage_board(stage));
}

/* One works the shared answer out, and one that was too slow keeps nothing. */
static void test_board_redis__one_refreshes(void **state)
{
    struct board *board = board_stage_board(*state);
    struct board *beside = open_board();
    char token[BOARD_TOKEN_SIZE];
    char late[BOARD_TOKEN_SIZE];
    struct buffer text;
    struct error error;
    int64_t age_ms;

    buffer_init(&text, 1000);
    assert_int_equal(board->cache->recall(board, &text, &age_ms, &error), STATUS_NOT_FOUND);
    assert_int_equal(board->cache->refresh(board, late, &error), STATUS_OK);
    assert_int_equal(beside->cache->refresh(beside, token, &error), STATUS_BUSY);
    do_redis("DEL cache:product:{rank}:refresher");
    assert_int_equal(beside->cache->refresh(beside, token, &error), STATUS_OK);
    assert_int_equal(board->cache->keep(board, late, span_of("late"), &error), STATUS_CONFLICT);
    assert_int_equal(beside->cache->keep(beside, token, span_of("answer"), &error), STATUS_OK);
    assert_int_equal(board->cache->keep(board, late, span_of("late"), &error), STATUS_CONFLICT);
    assert_int_equal(board->cache->recall(board, &text, &age_ms, &error), STATUS_OK);
    assert_int_equal(text.length, 6);
    assert_memory_equal(text.bytes, "answer", 6);
    assert_true(age_ms >= 0 && age_ms < 300000);
    /* It has an end, and the next one's turn is free. */
    do_redis("PEXPIRE cache:product:{rank}:top_selling 100000");
    assert_int_equal(board->cache->recall(board, &text, &age_ms, &error), STATUS_OK);
    assert_true(age_ms >= 500000);
    assert_int_equal(board->cache->refresh(board, token, &error), STATUS_OK);
    buffer_release(&text);
    board_close(beside);
}

int main(void)
{
    const struct CMUnitTest own[] = {
        cmocka_unit_test(test_board_redis__a_key_that_is_gone),
        cmocka_unit_test(test_board_redis__a_key_that_goes_meanwhile),
        cmocka_unit_test(test_board_redis__too_much_of_one),
        cmocka_unit_test(test_board_redis__keys_expire),
        cmocka_unit_test(test_board_redis__half_a_day),
        cmocka_unit_test(test_board_redis__one_that_went_back),
        cmocka_unit_test(test_board_redis__one_builds),
        cmocka_unit_test(test_board_redis__one_refreshes),
    };
    return board_suite_run(own, sizeof(own) / sizeof(own[0]));
}
