/* test_scoring.c: scores against a straightforward sum, by a board that follows, one that is built,
 * and by the ledger. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "database.h"
#include "ranking/ranking.h"
#include "ranking/scoring.h"
#include "ranking/tally.h"

#define PRODUCTS 40
#define MOMENTS  2000
#define DAYS     4
#define HOUR_MS  INT64_C(3600000)

static uint64_t random_state = 9;

static uint64_t next_below(uint64_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % limit;
}

static struct id product_of(size_t number)
{
    char text[32];
    snprintf(text, sizeof(text), "p%zu", number);
    return id_of(span_of(text));
}

static void check(enum status status, const struct error *error)
{
    if (status != STATUS_OK)
        fail_msg("%s: %s", status_name(status), error->text);
}

/* --- weights --- */

static void test_scoring__weights_are_read(void **state)
{
    static const char *const bad[] = {"view",    "view:",        "view:x",  "view:1,",
                                      ",view:1", "view:1001",    "view:-1", "view:1,view:1",
                                      "look:1",  "view:0,cart:0"};
    struct scoring scoring = {.half_life_ms = 0};
    struct error error;

    (void)state;
    check(scoring_read_weights(&scoring, "", &error), &error);
    assert_int_equal(scoring.weights[SALES_ORDER], 1);
    assert_false(scoring_is_on(&scoring));
    scoring.half_life_ms = HOUR_MS;
    assert_true(scoring_is_on(&scoring));
    scoring.half_life_ms = 0;
    check(scoring_read_weights(&scoring, "order:1000,view:7", &error), &error);
    assert_int_equal(scoring.weights[SALES_ORDER], 1000);
    assert_int_equal(scoring.weights[SALES_VIEW], 7);
    assert_int_equal(scoring.weights[SALES_CART], 0);
    assert_true(scoring_is_on(&scoring));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(scoring_read_weights(&scoring, bad[i], &error), STATUS_INVALID);
}

/* --- sums --- */

struct moment {
    size_t product;
    int64_t day;
    struct sales_moment what;
};

static struct scoring scoring_of(const struct zone *zone, int64_t half_life_ms)
{
    return (struct scoring){.half_life_ms = half_life_ms, .weights = {0, 20, 5, 1}, .zone = zone};
}

/* Moments of a few days around the one in the middle, to its last second. */
static void make_moments(struct moment moments[MOMENTS], const struct zone *zone, int64_t last_day)
{
    for (size_t i = 0; i < MOMENTS; i++) {
        int64_t day = last_day - (int64_t)next_below(DAYS);
        int64_t start_ms = zone_day_start_ms(zone, day);
        int64_t length_ms = zone_day_start_ms(zone, day + 1) - start_ms;
        moments[i] = (struct moment){
            .product = next_below(PRODUCTS),
            .day = day,
            .what = {.kind = (enum sales_kind)(1 + next_below(3)),
                     .at_s = start_ms / 1000 + (int64_t)next_below((uint64_t)length_ms / 1000),
                     .quantity = 1 + (int64_t)next_below(1000000)}};
    }
}

static void add(struct tally *tally, const struct moment *moment, int64_t sign)
{
    struct id id = product_of(moment->product);
    struct sales_moment what = moment->what;
    struct error error;

    what.quantity *= sign;
    check(tally_score(tally, moment->day, &id, &what, &error), &error);
}

/* Of the first day of the zone's window on, when its last day begins. */
static long double reference(const struct moment *moments, const struct scoring *scoring,
                             size_t product, int64_t first_day, int64_t last_day)
{
    int64_t start_s = zone_day_start_ms(scoring->zone, last_day) / 1000;
    long double score = 0;

    for (size_t i = 0; i < MOMENTS; i++) {
        const struct moment *moment = &moments[i];
        if (moment->product != product || moment->day < first_day || moment->day > last_day)
            continue;
        long double age_ms = (long double)(start_s - moment->what.at_s) * 1000;
        long double fade =
            scoring->half_life_ms == 0 ? 1 : exp2l(-age_ms / (long double)scoring->half_life_ms);
        score += (long double)(scoring->weights[moment->what.kind] * moment->what.quantity) * fade;
    }
    return score;
}

static void check_zone(const char *name, int64_t half_life_ms, int64_t last_day)
{
    struct zone *zone;
    struct error error;
    static struct moment moments[MOMENTS];
    struct sales_line lines[PRODUCTS];
    struct tally tally;

    check(zone_open(&zone, name, &error), &error);
    struct scoring scoring = scoring_of(zone, half_life_ms);
    make_moments(moments, zone, last_day);
    tally_init(&tally, &scoring);
    for (size_t i = 0; i < MOMENTS; i++)
        add(&tally, &moments[i], 1);
    for (int64_t days = 1; days <= DAYS; days++) {
        int64_t first_day = last_day - days + 1;
        size_t count = tally_top(&tally, first_day, last_day, PRODUCTS, lines);
        assert_int_equal(count, PRODUCTS);
        for (size_t i = 0; i < count; i++) {
            size_t product = strtoul(lines[i].product_id.bytes + 1, NULL, 10);
            long double should = reference(moments, &scoring, product, first_day, last_day);
            assert_true(fabsl((long double)lines[i].score - should) <= should * 1e-8L);
            assert_int_equal(lines[i].rank, i + 1);
            assert_true(i == 0 || lines[i - 1].score >= lines[i].score);
        }
    }
    tally_release(&tally);
    zone_free(zone);
}

static void test_scoring__as_the_sum_in_days_of_any_length(void **state)
{
    int64_t day;

    (void)state;
    assert_true(zone_parse_day(SPAN("2026-11-02"), &day));
    check_zone("America/New_York", HOUR_MS, day); /* a day of 25 hours before */
    assert_true(zone_parse_day(SPAN("2026-03-08"), &day));
    check_zone("America/New_York", 6 * HOUR_MS, day);
    assert_true(zone_parse_day(SPAN("2026-04-05"), &day));
    check_zone("Australia/Lord_Howe", HOUR_MS, day);
    assert_true(zone_parse_day(SPAN("2028-02-29"), &day));
    check_zone("UTC", SCORING_HALF_LIFE_MAX_MS, day);
    check_zone("Asia/Seoul", 0, day);
}

static void test_scoring__does_not_depend_on_the_order_and_leaves_nothing_behind(void **state)
{
    struct scoring scoring = scoring_of(zone_utc(), HOUR_MS);
    static struct moment moments[MOMENTS];
    struct sales_line forwards[PRODUCTS];
    struct sales_line backwards[PRODUCTS];
    struct tally one;
    struct tally other;

    (void)state;
    make_moments(moments, zone_utc(), 20000);
    tally_init(&one, &scoring);
    tally_init(&other, &scoring);
    for (size_t i = 0; i < MOMENTS; i++) {
        add(&one, &moments[i], 1);
        add(&other, &moments[MOMENTS - 1 - i], 1);
    }
    /* The other one also had all of them twice, and was told of it. */
    for (size_t i = 0; i < MOMENTS; i++)
        add(&other, &moments[i], 1);
    for (size_t i = MOMENTS; i-- > 0;)
        add(&other, &moments[i], -1);
    size_t count = tally_top(&one, 20000 - DAYS, 20000, PRODUCTS, forwards);
    assert_int_equal(count, tally_top(&other, 20000 - DAYS, 20000, PRODUCTS, backwards));
    for (size_t i = 0; i < count; i++) {
        assert_true(id_equal(&forwards[i].product_id, &backwards[i].product_id));
        assert_true(forwards[i].score == backwards[i].score);
    }
    for (size_t i = 0; i < MOMENTS; i++)
        add(&one, &moments[i], -1);
    assert_int_equal(tally_top(&one, 20000 - DAYS, 20000, PRODUCTS, forwards), 0);
    tally_release(&one);
    tally_release(&other);
}

/* --- on a ledger --- */

struct stage {
    struct database database;
    struct scoring scoring;
    struct ledger *ledger;
    int orders;
};

static void open_ledger(struct stage *stage, bool keeps_moments)
{
    struct error error;

    stage->ledger = database_ledger(
        &stage->database,
        (struct ledger_options){.keeps_moments = keeps_moments, .zone = zone_utc(), .readers = 3});
    check(ledger_zone_settle(stage->ledger, &error), &error);
}

static int set_up(void **state)
{
    struct stage *stage = calloc(1, sizeof(*stage));

    ensure(stage != NULL);
    stage->scoring = scoring_of(zone_utc(), 6 * HOUR_MS);
    database_make_folder(&stage->database);
    open_ledger(stage, true);
    *state = stage;
    return 0;
}

static int tear_down(void **state)
{
    struct stage *stage = *state;

    ledger_close(stage->ledger);
    database_remove_folder(&stage->database);
    free(stage);
    return 0;
}

/* A time on one of the last days: today has as many as the others, however early it is. */
static int64_t some_time(int64_t now_ms)
{
    int64_t today_ms = now_ms - now_ms % DAY_MS;
    int64_t day_ms = today_ms - (int64_t)next_below(DAYS) * DAY_MS;
    int64_t latest_ms = day_ms == today_ms ? now_ms : day_ms + DAY_MS - 1;

    return day_ms + (int64_t)next_below((uint64_t)(latest_ms - day_ms) + 1);
}

/* Orders and signals of the last days, some of the orders refunded. */
static void sell(struct stage *stage, int count, bool has_signals)
{
    int64_t now_ms = clock_wall_ms();
    struct error error;

    for (int i = 0; i < count; i++) {
        char id[32];
        struct order_item item = {.product_id = product_of(next_below(PRODUCTS)),
                                  .quantity = 1 + (int64_t)next_below(9)};
        int64_t at_ms = some_time(now_ms);
        snprintf(id, sizeof(id), "o%d", stage->orders++);
        struct order order = {
            .order_id = id_of(span_of(id)), .paid_at_ms = at_ms, .items = &item, .item_count = 1};
        struct signal signal = {.signal_id = order.order_id,
                                .kind = next_below(2) == 0 ? SALES_VIEW : SALES_CART,
                                .product_id = item.product_id,
                                .quantity = item.quantity,
                                .at_ms = at_ms};
        bool is_news;
        if (has_signals && next_below(2) == 0) {
            check(ledger_signals_add(stage->ledger, &signal, 1, now_ms, &error), &error);
            continue;
        }
        check(ledger_orders_add(stage->ledger, &order, 1, now_ms, &error), &error);
        if (next_below(4) == 0)
            check(ledger_order_refund(stage->ledger, &order.order_id, now_ms, &order, &is_news,
                                      &error),
                  &error);
    }
}

/* Takes what the feed has; *builds counts how often the board had to be built. */
static void follow(struct stage *stage, struct board *board, int *builds)
{
    int64_t today = clock_wall_ms() / DAY_MS;
    struct feed_entry entries[50];
    struct feed_place place;
    struct error error;
    size_t count = 1;

    while (count > 0) {
        enum status status = board->ops->place(board, &place, &error);
        if (status == STATUS_NOT_FOUND) {
            check(board->ops->build(board, stage->ledger, today - DAYS, today + 1, &error), &error);
            ++*builds;
            continue;
        }
        check(status, &error);
        check(ledger_sales_after(stage->ledger, &place, entries, 50, &count, &error), &error);
        status = board->ops->apply(board, &place, entries, count, &error);
        if (status != STATUS_CONFLICT)
            check(status, &error);
    }
}

static void assert_same(struct board *is, struct board *should)
{
    int64_t today = clock_wall_ms() / DAY_MS;
    struct sales_line lines[2][PRODUCTS];
    size_t counts[2];
    struct error error;

    for (int64_t days = 1; days <= DAYS; days++) {
        const struct board_question question = {
            .kind = BOARD_TOP, .first_day = today - days + 1, .last_day = today, .limit = PRODUCTS};
        check(is->ops->ask(is, &question, lines[0], &counts[0], &error), &error);
        check(should->ops->ask(should, &question, lines[1], &counts[1], &error), &error);
        assert_int_equal(counts[0], counts[1]);
        for (size_t i = 0; i < counts[0]; i++) {
            assert_true(id_equal(&lines[0][i].product_id, &lines[1][i].product_id));
            assert_true(lines[0][i].score == lines[1][i].score);
            assert_int_equal(lines[0][i].sold, lines[1][i].sold);
        }
    }
}

static void test_scoring__a_board_that_follows_and_one_that_is_built_are_the_same(void **state)
{
    struct stage *stage = *state;
    struct board *following;
    struct board *built;
    struct error error;
    int builds = 0;

    check(board_local_open(&following, &stage->scoring, &error), &error);
    for (int i = 0; i < 3; i++) {
        sell(stage, 120, true);
        follow(stage, following, &builds);
        assert_int_equal(builds, 1);
        check(board_local_open(&built, &stage->scoring, &error), &error);
        int others = 0;
        follow(stage, built, &others);
        assert_same(following, built);
        board_close(built);
    }
    /* A server with other settings does not say when: what it wrote is read from the orders. */
    ledger_close(stage->ledger);
    open_ledger(stage, false);
    sell(stage, 20, false);
    follow(stage, following, &builds);
    assert_int_equal(builds, 2);
    check(board_local_open(&built, &stage->scoring, &error), &error);
    follow(stage, built, &builds);
    assert_same(following, built);
    board_close(built);
    board_close(following);
}

static enum status place_nowhere(struct board *board, struct feed_place *place, struct error *error)
{
    (void)board;
    (void)place;
    return error_set(error, STATUS_UNAVAILABLE, "the board is away");
}

static struct ranking *open_ranking(struct stage *stage, const struct board_ops *ops)
{
    struct ranking *ranking;
    struct error error;
    struct ranking_options options = {
        .ledger = stage->ledger, .zone = zone_utc(), .scoring = &stage->scoring};

    check(board_local_open(&options.board, &stage->scoring, &error), &error);
    if (ops != NULL)
        options.board->ops = ops;
    check(ranking_open(&ranking, &options, &error), &error);
    return ranking;
}

/* While there is no board, the ledger's answer is the same. */
static void test_scoring__without_a_board_the_ledger_says_the_same(void **state)
{
    struct stage *stage = *state;
    struct board *board;
    struct ranking_answer *answers[2];
    struct error error;

    sell(stage, 200, true);
    check(board_local_open(&board, NULL, &error), &error);
    struct board_ops away = *board->ops;
    board_close(board);
    away.place = place_nowhere;
    struct ranking *rankings[2] = {open_ranking(stage, NULL), open_ranking(stage, &away)};
    for (int days = 1; days <= DAYS; days++) {
        for (int i = 0; i < 2; i++)
            check(ranking_top(rankings[i], days, RANKING_FRESH, &answers[i], &error), &error);
        assert_int_equal(answers[1]->source, RANKING_FROM_LEDGER);
        assert_int_equal(answers[0]->count, answers[1]->count);
        assert_true(answers[0]->count > 0);
        for (size_t i = 0; i < answers[0]->count; i++) {
            const struct ranking_line *line = &answers[0]->lines[i];
            const struct ranking_line *same = &answers[1]->lines[i];
            assert_true(id_equal(&line->product.id, &same->product.id));
            assert_true(line->sales.score == same->sales.score);
            assert_int_equal(line->change, same->change);
            assert_int_equal(line->sales.sold, same->sales.sold);
        }
        struct id third = answers[0]->lines[2].product.id;
        struct ranking_line lines[2 * RANKING_DISTANCE + 1];
        enum ranking_source source;
        int64_t as_of_ms;
        size_t count;
        check(ranking_around(rankings[1], days, &third, lines, &count, &source, &as_of_ms, &error),
              &error);
        assert_int_equal(source, RANKING_FROM_LEDGER);
        assert_int_equal(count, 5);
        assert_true(id_equal(&lines[2].product.id, &third));
        for (int i = 0; i < 2; i++)
            ranking_answer_release(answers[i]);
    }
    for (int i = 0; i < 2; i++)
        ranking_close(rankings[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scoring__weights_are_read),
        cmocka_unit_test(test_scoring__as_the_sum_in_days_of_any_length),
        cmocka_unit_test(test_scoring__does_not_depend_on_the_order_and_leaves_nothing_behind),
        cmocka_unit_test_setup_teardown(
            test_scoring__a_board_that_follows_and_one_that_is_built_are_the_same, set_up,
            tear_down),
        cmocka_unit_test_setup_teardown(test_scoring__without_a_board_the_ledger_says_the_same,
                                        set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
