/* test_reply.c: whatever Redis answers where something else is due is refused with words: no
 * reader takes it for what it is not, or reads beyond it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above it. */
#include <cmocka.h>

#include "gate/redis/gate.h"
#include "gate/shared.h"
#include "ranking/redis/board.h"
#include "redis_wire.h"

#define POLICY 7
#define NINE   "$1\r\n9\r\n"
#define ID     "0123456789abcdef"
/* What dibs_count answers of a policy with nothing left, behind its arming and stock. */
#define COUNTED ":0\r\n" NINE "$1\r\n0\r\n" NINE NINE NINE NINE NINE NINE NINE NINE NINE

static struct redis_wire wire;
static struct gate *gate = &wire.redis.gate;
static struct error error;

static void say(const char *said)
{
    redis_wire_open(&wire, span_of(said));
    error.text[0] = '\0';
}

/* Something else is refused, with words, and the connection is not read any further. */
static void assert_refused(enum status status)
{
    assert_int_equal(status, STATUS_FAILED);
    assert_true(error.text[0] != '\0');
    redis_wire_close(&wire);
}

static redisReply *reply_of(const char *said)
{
    redisReader *reader = redisReaderCreate();
    void *reply = NULL;

    assert_int_equal(redisReaderFeed(reader, said, strlen(said)), REDIS_OK);
    assert_int_equal(redisReaderGetReply(reader, &reply), REDIS_OK);
    assert_non_null(reply);
    redisReaderFree(reader);
    return reply;
}

/* --- the accessor --- */

static void test_redis_reply__a_kind_is_not_taken_for_another(void **state)
{
    redisReply *reply =
        reply_of("*7\r\n$2\r\n17\r\n:18\r\n+19\r\n$-1\r\n-ERR 20\r\n*1\r\n:21\r\n_\r\n");
    struct span text;
    int64_t number;
    char copy[8];

    (void)state;
    for (size_t i = 0; i < 7; i++) {
        const redisReply *part = redis_reply_at(reply, i);
        assert_int_equal(redis_reply_text(part, &text), i == 0 || i == 2);
        assert_int_equal(redis_reply_copy(part, copy, sizeof(copy)), i == 0 || i == 2);
        assert_int_equal(redis_reply_number(part, 0, 99, &number), i <= 2);
        assert_int_equal(redis_reply_is_array(part), i == 5);
        assert_int_equal(redis_reply_count(part), i == 5);
        assert_int_equal(redis_reply_is_nil(part), i == 3 || i == 6);
        assert_int_equal(redis_reply_error(part) != NULL, i == 4);
    }
    freeReplyObject(reply);
}

static void test_redis_reply__what_is_not_there_is_refused(void **state)
{
    redisReply *reply = reply_of("*1\r\n$2\r\n17\r\n");
    const redisReply *const missing[] = {NULL, redis_reply_at(reply, 1), redis_reply_at(NULL, 0),
                                         redis_reply_at(redis_reply_at(reply, 0), 0)};
    struct span text;
    int64_t number;
    char copy[8];

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        assert_null(missing[i]);
        assert_false(redis_reply_text(missing[i], &text));
        assert_false(redis_reply_copy(missing[i], copy, sizeof(copy)));
        assert_false(redis_reply_number(missing[i], 0, 99, &number));
        assert_false(redis_reply_is_nil(missing[i]));
        assert_null(redis_reply_error(missing[i]));
    }
    freeReplyObject(reply);
}

static void test_redis_reply__a_number_is_whole_and_in_its_range(void **state)
{
    static const struct {
        const char *said;
        bool is_taken;
    } cases[] = {
        {":9\r\n", true},
        {":-9\r\n", true},
        {"$2\r\n-9\r\n", true},
        {":10\r\n", false},
        {"$2\r\n10\r\n", false},
        {"$3\r\n-10\r\n", false},
        {"$0\r\n\r\n", false},
        {"$1\r\n-\r\n", false},
        {"$2\r\n+9\r\n", false},
        {"$2\r\n 9\r\n", false},
        {"$2\r\n9 \r\n", false},
        {"$3\r\n9.5\r\n", false},
        {":9223372036854775807\r\n", false},
        {"$19\r\n9223372036854775808\r\n", false},
        {"$40\r\n1000000000000000000000000000000000000009\r\n", false},
    };
    int64_t number;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        redisReply *reply = reply_of(cases[i].said);
        if (redis_reply_number(reply, -9, 9, &number) != cases[i].is_taken)
            fail_msg("%s", cases[i].said);
        freeReplyObject(reply);
    }
}

static void test_redis_reply__a_copy_fits_and_has_no_nul_in_it(void **state)
{
    redisReply *fits = reply_of("$3\r\nabc\r\n");
    char copy[4];
    char small[3];

    (void)state;
    assert_true(redis_reply_copy(fits, copy, sizeof(copy)));
    assert_string_equal(copy, "abc");
    assert_false(redis_reply_copy(fits, small, sizeof(small)));
    fits->str[1] = '\0';
    assert_false(redis_reply_copy(fits, copy, sizeof(copy)));
    freeReplyObject(fits);
}

/* Room for the parts of an array is made before they come: what is longer than any of ours breaks
 * the connection instead. */
static void test_redis_reply__an_array_is_not_made_room_for_at_any_length(void **state)
{
    int64_t number;

    (void)state;
    say("*4000000000\r\n:1\r\n");
    assert_int_equal(gate_announce(gate_shared(gate), POLICY, 5, &number, &error),
                     STATUS_UNAVAILABLE);
    redis_wire_close(&wire);
    say("*1048577\r\n:1\r\n");
    assert_int_equal(gate_announce(gate_shared(gate), POLICY, 5, &number, &error),
                     STATUS_UNAVAILABLE);
    redis_wire_close(&wire);
}

/* --- its readers --- */

static void test_redis_reply__numbers_of_a_policy_are_numbers(void **state)
{
    static const char *const wrong[] = {
        ":1\r\n",
        "*2\r\n:1\r\n:1\r\n",
        "*14\r\n:1\r\n$-1\r\n" COUNTED,
        "*14\r\n:1\r\n-ERR no\r\n" COUNTED,
        "*14\r\n:1\r\n*0\r\n" COUNTED,
        "*14\r\n:1\r\n$19\r\n9223372036854775807\r\n" COUNTED,
        "*14\r\n:1\r\n:9223372036854775807\r\n" COUNTED,
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        say(wrong[i]);
        assert_refused(redis_watch_refresh(&wire.redis.watch, POLICY, &error));
    }
}

/* An integer where a user's name is due, which killed the thread that reads it. */
static void test_redis_reply__winners_have_names(void **state)
{
    static const char *const pages[] = {
        "*2\r\n$1\r\n0\r\n*2\r\n$3\r\nann\r\n$1\r\nx\r\n", /* as it should be */
        "*2\r\n$1\r\n0\r\n*2\r\n:5\r\n:6\r\n",
        "*2\r\n$1\r\n0\r\n*2\r\n$-1\r\n$-1\r\n",
        "*2\r\n$1\r\n0\r\n*2\r\n$3\r\nann\r\n-ERR no\r\n",
        "*2\r\n$1\r\n0\r\n*1\r\n$3\r\nann\r\n",
        "*2\r\n:0\r\n*0\r\n",
        "*2\r\n$-1\r\n*0\r\n",
        "*2\r\n$1\r\n0\r\n:5\r\n",
        "*1\r\n$1\r\n0\r\n",
        ":5\r\n",
    };
    const size_t count = sizeof(pages) / sizeof(pages[0]);
    char said[512];

    (void)state;
    for (size_t i = 0; i < count; i++) {
        snprintf(said, sizeof(said), "*14\r\n:1\r\n$1\r\n0\r\n%s%s", COUNTED, pages[i]);
        say(said);
        assert_int_equal(redis_watch_refresh(&wire.redis.watch, POLICY, &error), STATUS_OK);
        redis_watch_note_winners(&wire.redis.watch, POLICY);
        assert_int_equal(wire.redis.watch.policies[0].winners_changes, i == 0 ? 9 : -1);
        redis_wire_close(&wire);
    }
}

static void test_redis_reply__verdicts_do_not_overflow(void **state)
{
    static const struct span wrong[] = {
        SPAN("W9223372036854775807:1+1"),
        SPAN("W99999999999999999999:1+1"),
        SPAN("W17:9999999999999999999999 S"),
        SPAN("W17:0 S"),
        SPAN("W0:1 S"),
        SPAN("W-1:1 S"),
        SPAN("S+18446744073709551617"),
        SPAN("S+2"),
        SPAN("S+"),
        SPAN("S+0"),
        SPAN("N S"),
        SPAN("N99999999999999999999 S"),
        SPAN("H3:1:\0 S"),
        SPAN("S S\0"),
        SPAN("S"),
        SPAN(""),
    };
    static const char *const strange[] = {
        ":5\r\n",
        "*3\r\n:5\r\n$1\r\n0\r\n$3\r\nS S\r\n",
        "*3\r\n$2\r\nn1\r\n$1\r\n0\r\n:5\r\n",
        "*3\r\n$2\r\nn1\r\n$1\r\n0\r\n$-1\r\n",
        "*2\r\n$2\r\nn1\r\n$1\r\n0\r\n",
    };
    struct wish wishes[2] = {0};
    struct wish *const batch[] = {&wishes[0], &wishes[1]};
    redisReply *reply = reply_of("*3\r\n$2\r\nn1\r\n$1\r\n0\r\n$3\r\nS S\r\n");
    redisReply *text = reply->element[2];
    redisReply kept = *text;

    (void)state;
    assert_true(redis_verdicts_read(reply, "n1", batch, 2));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        /* As long as it says, and not a byte longer. */
        text->str = malloc(wrong[i].length + 1);
        memcpy(text->str, wrong[i].bytes, wrong[i].length);
        text->str[wrong[i].length] = '\0';
        text->len = wrong[i].length;
        if (redis_verdicts_read(reply, "n1", batch, 2))
            fail_msg("%s", wrong[i].bytes);
        free(text->str);
    }
    *text = kept;
    freeReplyObject(reply);
    for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
        reply = reply_of(strange[i]);
        if (redis_verdicts_read(reply, "n1", batch, 2))
            fail_msg("%s", strange[i]);
        freeReplyObject(reply);
    }
}

static void test_redis_reply__what_is_settled_is_told_whole_or_not_at_all(void **state)
{
    static const char *const wrong[] = {":5\r\n",       "$1\r\nI\r\n", "$3\r\nIII\r\n",
                                        "$2\r\nIX\r\n", "$-1\r\n",     "-ERR no\r\n"};
    struct wish wishes[2] = {{.verdict = VERDICT_WON, .is_accepted = true},
                             {.verdict = VERDICT_WON, .is_accepted = true}};
    struct wish *const batch[] = {&wishes[0], &wishes[1]};
    bool is_over = false;

    (void)state;
    assert_false(redis_settled_read(NULL, batch, 2, &is_over));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        redisReply *reply = reply_of(wrong[i]);
        assert_false(redis_settled_read(reply, batch, 2, &is_over));
        assert_true(!is_over && wishes[0].is_accepted && wishes[1].is_accepted);
        freeReplyObject(reply);
    }
}

#define PENDING_HEAD "*4\r\n$1\r\n5\r\n"

static void test_redis_reply__pending_claims_are_whole(void **state)
{
    static const char *const wrong[] = {
        ":5\r\n",
        "*3\r\n$1\r\n5\r\n*0\r\n*0\r\n",
        "*4\r\n$-1\r\n*0\r\n*0\r\n*0\r\n",
        "*4\r\n*1\r\n:1\r\n*0\r\n*0\r\n*0\r\n",
        PENDING_HEAD ":1\r\n*0\r\n*0\r\n",
        PENDING_HEAD "*0\r\n:1\r\n*0\r\n",
        PENDING_HEAD "*0\r\n*0\r\n:1\r\n",
        PENDING_HEAD "*2\r\n$3\r\nann\r\n$1\r\n1\r\n*0\r\n*0\r\n",
        PENDING_HEAD "*1\r\n$3\r\nann\r\n*1\r\n$1\r\nx\r\n*0\r\n",
        PENDING_HEAD "*2\r\n$3\r\nann\r\n-ERR no\r\n*1\r\n$1\r\nx\r\n*0\r\n",
        PENDING_HEAD "*0\r\n*0\r\n*1\r\n:5\r\n",
        PENDING_HEAD "*0\r\n*0\r\n*1\r\n$-1\r\n",
        PENDING_HEAD "*0\r\n*0\r\n*1\r\n$16\r\n" ID "\r\n",
        PENDING_HEAD "*0\r\n*0\r\n*1\r\n$36\r\n" ID ":9999999999999999999\r\n",
    };
    static struct gate_pending pending;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        say(wrong[i]);
        if (gate_pending(gate_shared(gate), POLICY, 0, &pending, &error) != STATUS_FAILED)
            fail_msg("%s", wrong[i]);
        redis_wire_close(&wire);
    }
}

/* A name that is no text, and a score that is no seq, belong to nobody: counted, not waited for. */
static void test_redis_reply__a_pending_claim_that_nobody_can_hold_is_a_stray(void **state)
{
    static const char *const strays[] = {
        PENDING_HEAD "*2\r\n:5\r\n$1\r\n1\r\n*1\r\n$-1\r\n*0\r\n",
        PENDING_HEAD "*2\r\n$0\r\n\r\n$1\r\n1\r\n*1\r\n$-1\r\n*0\r\n",
        PENDING_HEAD "*2\r\n$3\r\na/n\r\n$2\r\n17\r\n*1\r\n$24\r\n" ID "1:5:9:17\r\n*0\r\n",
        PENDING_HEAD "*2\r\n$3\r\nann\r\n$1\r\n1\r\n*1\r\n:5\r\n*0\r\n",
        PENDING_HEAD "*2\r\n$3\r\nann\r\n$5\r\n1e+17\r\n*1\r\n$24\r\n" ID "1:5:9:17\r\n*0\r\n",
        PENDING_HEAD "*2\r\n$5\r\nann\nx\r\n$2\r\n17\r\n*1\r\n$24\r\n" ID "1:5:9:17\r\n*0\r\n",
    };
    static struct gate_pending pending;

    (void)state;
    for (size_t i = 0; i < sizeof(strays) / sizeof(strays[0]); i++) {
        say(strays[i]);
        assert_int_equal(gate_pending(gate_shared(gate), POLICY, 0, &pending, &error), STATUS_OK);
        assert_int_equal(pending.stray_count, 1);
        assert_int_equal(pending.claim_count, 0);
        redis_wire_close(&wire);
    }
    say(PENDING_HEAD "*2\r\n$3\r\nann\r\n$2\r\n17\r\n*1\r\n$24\r\n" ID "1:5:9:17\r\n*0\r\n");
    assert_int_equal(gate_pending(gate_shared(gate), POLICY, 0, &pending, &error), STATUS_OK);
    assert_int_equal(pending.claim_count, 1);
    redis_wire_close(&wire);
}

static void test_redis_reply__leases_are_in_order_and_add_up(void **state)
{
    static const char *const wrong[] = {
        ":5\r\n",
        "*4\r\n*0\r\n$1\r\n1\r\n$1\r\n1\r\n:5\r\n",
        "*4\r\n*0\r\n$-1\r\n$1\r\n1\r\n*0\r\n",
        "*4\r\n*0\r\n$1\r\n1\r\n$1\r\n1\r\n*1\r\n:5\r\n",
        "*4\r\n*0\r\n$1\r\n1\r\n$1\r\n1\r\n*1\r\n$8\r\n1:2:3:4x\r\n",
        "*4\r\n*0\r\n$1\r\n1\r\n$1\r\n1\r\n*1\r\n$7\r\n1:3:2:4\r\n",
        "*4\r\n*0\r\n$1\r\n1\r\n$1\r\n1\r\n*1\r\n$7\r\n1:1:5:4\r\n",
        "*4\r\n*0\r\n$1\r\n1\r\n$1\r\n1\r\n*1\r\n$25\r\n1:1:1:9223372036854775807\r\n",
    };
    struct gate_lease *leases = NULL;
    size_t count;
    int64_t highest_id;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        say(wrong[i]);
        assert_refused(
            gate_leases(gate_shared(gate), POLICY, &leases, &count, &highest_id, &error));
        free(leases);
    }
}

static enum status skip_policy(void *context, const struct policy *policy, struct error *words)
{
    (void)context;
    (void)policy;
    (void)words;
    return STATUS_OK;
}

static void test_redis_reply__a_row_is_one_of_a_policy(void **state)
{
    static const char *const rows[] = {
        ":5\r\n",
        "*0\r\n",
        "*1\r\n" NINE,
        /* a limit of 9999, and a name that is a number */
        "*15\r\n" NINE
        "$4\r\n9999\r\n" NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE,
        "*15\r\n" NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE ":5\r\n",
        "*15\r\n" NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE NINE "-ERR\r\n" NINE,
    };
    const struct claim_visitor visitor = {.policy = skip_policy};
    char said[512];

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        snprintf(said, sizeof(said), "*4\r\n%s$1\r\n1\r\n$1\r\n1\r\n*0\r\n", rows[i]);
        say(said);
        assert_refused(gate_redis_visit(gate, POLICY, &visitor, &error));
    }
}

static void test_redis_reply__the_smaller_ones_are_what_they_should_be(void **state)
{
    static const char *const wrong[] = {"$-1\r\n", "*0\r\n", "$1\r\nx\r\n", "*1\r\n:5\r\n",
                                        "*2\r\n$-1\r\n-ERR no\r\n"};
    const struct id user = id_of(SPAN("ann"));
    struct lease_shrunk shrunk[GATE_RECALL_LEASES_MAX];
    static struct gate_state found;
    struct claim strays[4];
    struct gate_claim claims[1];
    struct gate_moment moment;
    int64_t number;
    size_t count = 0;
    bool is_continuous;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        say(wrong[i]);
        assert_refused(gate_announce(gate_shared(gate), POLICY, 5, &number, &error));
        say(wrong[i]);
        assert_refused(gate_publish(gate_shared(gate), POLICY, "token", &number, &error));
        say(wrong[i]);
        assert_refused(gate_take_over(gate_shared(gate), POLICY, 2, 1, &is_continuous, &error));
        say(wrong[i]);
        assert_refused(gate->ops->recall(gate, POLICY, 5, shrunk, &count, &error));
        say(wrong[i]);
        assert_refused(gate_moment(gate_shared(gate), POLICY, &moment, &error));
        say(wrong[i]);
        assert_refused(gate_strays(gate_shared(gate), POLICY, strays, 4, &count, &error));
        /* Nothing at all is an answer to these two. */
        if (i != 0) {
            say(wrong[i]);
            assert_refused(gate_redis_inspect(gate, POLICY, &found, &error));
        }
        if (i != 1) {
            say(wrong[i]);
            assert_refused(gate->ops->find(gate, POLICY, &user, claims, 1, &count, &error));
        }
    }
}

static void test_redis_reply__a_clock_and_settings_are_texts(void **state)
{
    static const char *const wrong[] = {
        "*2\r\n:5\r\n$-1\r\n",
        "*2\r\n-ERR\r\n$1\r\n5\r\n",
        "*2\r\n$19\r\n9223372036854775807\r\n$1\r\n5\r\n",
        "*2\r\n$17\r\n17000044444444444\r\n$1\r\n5\r\n",
    };
    struct gate_survey survey;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        say(wrong[i]);
        assert_int_equal(gate_survey(gate_shared(gate), POLICY, &survey, &error),
                         STATUS_UNAVAILABLE);
        redis_wire_close(&wire);
    }
    /* How it syncs is told by a number: nobody knows, and the worst is taken for it. */
    say("*2\r\n$1\r\n5\r\n$1\r\n5\r\n+aof_enabled:1\r\n*2\r\n$11\r\nappendfsync\r\n:1\r\n");
    assert_int_equal(gate_survey(gate_shared(gate), POLICY, &survey, &error), STATUS_OK);
    assert_int_equal(survey.loss, GATE_LOSES_SECONDS);
    redis_wire_close(&wire);
}

static void test_redis_reply__a_map_has_hosts_and_slots(void **state)
{
    static const char *const wrong[] = {
        ":5\r\n",
        "*0\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n$-1\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:-1\r\n:5\r\n*2\r\n$1\r\na\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n:7\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\na\r\n$-1\r\n",
        "*1\r\n*3\r\n:0\r\n:5\r\n*2\r\n$1\r\na\r\n:65536\r\n",
        "*1\r\n*3\r\n:0\r\n:5\r\n$1\r\na\r\n",
    };
    static struct redis_map map;
    const struct redis_target target = {.mode = REDIS_MODE_CLUSTER};
    const struct redis_address from = {.host = "asked", .port = 1};

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        redisReply *reply = reply_of(wrong[i]);
        if (redis_map_read(&map, reply, &target, &from))
            fail_msg("%s", wrong[i]);
        freeReplyObject(reply);
    }
}

static void test_redis_reply__a_board_that_is_not_readable_is_none(void **state)
{
    static const char *const wrong[] = {
        "*4\r\n$2\r\nOK\r\n$1\r\n5\r\n$1\r\n5\r\n:1\r\n",
        "*7\r\n$2\r\nOK\r\n$1\r\n5\r\n$1\r\n5\r\n:1\r\n:5\r\n:5\r\n:5\r\n",
        "*7\r\n$2\r\nOK\r\n$1\r\n5\r\n$1\r\n5\r\n$-1\r\n$1\r\na\r\n:5\r\n:5\r\n",
        "*3\r\n$2\r\nOK\r\n$-1\r\n$1\r\n5\r\n",
        "*1\r\n$2\r\nOK\r\n",
        /* two lines where one is asked for */
        ("*11\r\n$2\r\nOK\r\n" NINE NINE ":1\r\n$1\r\na\r\n:5\r\n:5\r\n"
         ":2\r\n$1\r\nb\r\n:5\r\n:5\r\n"),
    };
    struct sales_line lines[2];
    size_t count;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct span said = span_of(wrong[i]);
        struct board *board = NULL;
        assert_int_equal(
            board_redis_open(&board, &(struct board_redis_options){.url = "redis://127.0.0.1:1"},
                             &error),
            STATUS_OK);
        redis_wire_plug(&board_redis(board)->pool, &said);
        const struct board_question question = {
            .kind = BOARD_TOP, .first_day = 19000, .last_day = 19000, .limit = 1};
        assert_int_equal(board->ops->ask(board, &question, lines, &count, &error),
                         STATUS_NOT_FOUND);
        assert_int_equal(count, 0);
        board->ops->close(board);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redis_reply__a_kind_is_not_taken_for_another),
        cmocka_unit_test(test_redis_reply__what_is_not_there_is_refused),
        cmocka_unit_test(test_redis_reply__a_number_is_whole_and_in_its_range),
        cmocka_unit_test(test_redis_reply__a_copy_fits_and_has_no_nul_in_it),
        cmocka_unit_test(test_redis_reply__an_array_is_not_made_room_for_at_any_length),
        cmocka_unit_test(test_redis_reply__numbers_of_a_policy_are_numbers),
        cmocka_unit_test(test_redis_reply__winners_have_names),
        cmocka_unit_test(test_redis_reply__verdicts_do_not_overflow),
        cmocka_unit_test(test_redis_reply__what_is_settled_is_told_whole_or_not_at_all),
        cmocka_unit_test(test_redis_reply__pending_claims_are_whole),
        cmocka_unit_test(test_redis_reply__a_pending_claim_that_nobody_can_hold_is_a_stray),
        cmocka_unit_test(test_redis_reply__leases_are_in_order_and_add_up),
        cmocka_unit_test(test_redis_reply__a_row_is_one_of_a_policy),
        cmocka_unit_test(test_redis_reply__the_smaller_ones_are_what_they_should_be),
        cmocka_unit_test(test_redis_reply__a_clock_and_settings_are_texts),
        cmocka_unit_test(test_redis_reply__a_map_has_hosts_and_slots),
        cmocka_unit_test(test_redis_reply__a_board_that_is_not_readable_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
