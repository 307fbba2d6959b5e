/* board_suite.c: a board against a straightforward reference, over random orders and refunds. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/clock.h"
#include "base/zone.h"
#include "board_suite.h"
#include "database.h"

#define PRODUCTS   60
#define DAYS       5 /* the last of them is tomorrow */
#define ORDERS_MAX 4000
#define BATCH_MAX  12
#define TESTS_MAX  32
#define DAY_MS     INT64_C(86400000)
#define ENTRIES    70 /* fewer than are sold between two looks */

struct board_stage {
    struct database database;
    struct ledger *ledger;
    struct board *board;
    struct board *beside;
    int64_t first_day; /* of those that are sold on */
    int64_t sold[PRODUCTS][DAYS];
    struct {
        size_t product;
        size_t day;
        int64_t quantity;
        bool is_refunded;
    } orders[ORDERS_MAX];
    size_t order_count;
    size_t written_count; /* of the orders, to the ledger */
    uint64_t random_state;
};

static uint64_t next_below(struct board_stage *stage, uint64_t limit)
{
    stage->random_state =
        stage->random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (stage->random_state >> 33) % limit;
}

static void check(enum status status, const struct error *error)
{
    if (status != STATUS_OK)
        fail_msg("%s: %s", status_name(status), error->text);
}

/* Not in the order of their numbers, and with capitals, which come first. */
static struct id product_of(size_t number)
{
    char text[32];
    snprintf(text, sizeof(text), "%c%zu", "pPq"[number % 3], number * 7 % PRODUCTS);
    return id_of(span_of(text));
}

/* --- life --- */

int board_stage_set_up(void **state)
{
    struct board_stage *stage = calloc(1, sizeof(*stage));
    struct error error;

    ensure(stage != NULL);
    stage->random_state = 7;
    database_make_folder(&stage->database);
    stage->ledger = database_ledger(&stage->database,
                                    (struct ledger_options){.zone = zone_utc(), .readers = 6});
    check(ledger_zone_settle(stage->ledger, &error), &error);
    stage->first_day = clock_wall_ms() / DAY_MS - (DAYS - 2);
    stage->board = board_suite_open();
    stage->beside = board_suite_beside(stage->board);
    *state = stage;
    return 0;
}

int board_stage_tear_down(void **state)
{
    struct board_stage *stage = *state;

    board_suite_close(stage->board, stage->beside);
    ledger_close(stage->ledger);
    database_remove_folder(&stage->database);
    free(stage);
    return 0;
}

struct board *board_stage_board(struct board_stage *stage)
{
    return stage->board;
}

/* --- selling --- */

/* Notes an order, to be written with others. */
static void sell_soon(struct board_stage *stage, size_t product, size_t day, int64_t quantity)
{
    ensure(stage->order_count < ORDERS_MAX);
    stage->orders[stage->order_count].product = product;
    stage->orders[stage->order_count].day = day;
    stage->orders[stage->order_count++].quantity = quantity;
    stage->sold[product][day] += quantity;
}

/* Writes what was noted. */
static void flush(struct board_stage *stage)
{
    struct order orders[BATCH_MAX];
    struct order_item items[BATCH_MAX];
    char id[24];
    struct error error;
    size_t count = stage->order_count - stage->written_count;

    for (size_t i = 0; i < count; i++) {
        size_t number = stage->written_count + i;
        int64_t day = stage->first_day + (int64_t)stage->orders[number].day;
        snprintf(id, sizeof(id), "o%zu", number);
        items[i] = (struct order_item){product_of(stage->orders[number].product),
                                       stage->orders[number].quantity};
        orders[i] = (struct order){.order_id = id_of(span_of(id)),
                                   .paid_at_ms = day * DAY_MS + DAY_MS / 2,
                                   .items = &items[i],
                                   .item_count = 1};
    }
    if (count > 0)
        check(ledger_orders_add(stage->ledger, orders, count, clock_wall_ms(), &error), &error);
    stage->written_count = stage->order_count;
}

static void sell(struct board_stage *stage, size_t product, size_t day, int64_t quantity)
{
    sell_soon(stage, product, day, quantity);
    flush(stage);
}

static void refund(struct board_stage *stage, size_t number)
{
    char id[24];
    struct error error;
    struct order order;
    bool is_news;

    snprintf(id, sizeof(id), "o%zu", number);
    struct id order_id = id_of(span_of(id));
    check(ledger_order_refund(stage->ledger, &order_id, clock_wall_ms(), &order, &is_news, &error),
          &error);
    if (!stage->orders[number].is_refunded)
        stage->sold[stage->orders[number].product][stage->orders[number].day] -=
            stage->orders[number].quantity;
    stage->orders[number].is_refunded = true;
}

/* Few different quantities, so that there are many ties. */
void board_stage_sell(struct board_stage *stage, int count)
{
    for (int i = 0; i < count; i++) {
        if (stage->written_count > 0 && next_below(stage, 12) == 0)
            refund(stage, next_below(stage, stage->written_count));
        else
            sell_soon(stage, next_below(stage, PRODUCTS), next_below(stage, DAYS),
                      1 + (int64_t)next_below(stage, 3));
        if (stage->order_count - stage->written_count == BATCH_MAX)
            flush(stage);
    }
    flush(stage);
}

/* --- following --- */

enum status board_stage_build(struct board_stage *stage, struct board *board, struct error *error)
{
    return board->ops->build(board, stage->ledger, stage->first_day, stage->first_day + DAYS - 1,
                             error);
}

/* One step; false: there is no more. */
static bool step(struct board_stage *stage, struct board *board)
{
    struct feed_entry entries[ENTRIES];
    struct feed_place place;
    struct error error;
    size_t count = 0;
    enum status status = board->ops->place(board, &place, &error);

    if (status == STATUS_OK)
        status = ledger_sales_after(stage->ledger, &place, entries, ENTRIES, &count, &error);
    if (status == STATUS_NOT_FOUND) {
        status = board_stage_build(stage, board, &error);
        if (status != STATUS_BUSY)
            check(status, &error);
        return true;
    }
    check(status, &error);
    status = board->ops->apply(board, &place, entries, count, &error);
    if (status != STATUS_CONFLICT)
        check(status, &error);
    return count > 0;
}

void board_stage_follow(struct board_stage *stage, struct board *board)
{
    while (step(stage, board))
        continue;
}

/* --- judging --- */

static int compare_lines(const void *left, const void *right)
{
    const struct sales_line *a = left;
    const struct sales_line *b = right;

    if (a->sold != b->sold)
        return a->sold > b->sold ? -1 : 1;
    if (a->sold_last_day != b->sold_last_day)
        return a->sold_last_day > b->sold_last_day ? -1 : 1;
    return id_compare(&a->product_id, &b->product_id);
}

static size_t reference(const struct board_stage *stage, int64_t first, int64_t last,
                        struct sales_line lines[PRODUCTS])
{
    size_t count = 0;

    for (size_t product = 0; product < PRODUCTS; product++) {
        struct sales_line line = {.product_id = product_of(product)};
        for (int64_t day = first; day <= last; day++)
            line.sold += stage->sold[product][day - stage->first_day];
        line.sold_last_day = stage->sold[product][last - stage->first_day];
        if (line.sold > 0)
            lines[count++] = line;
    }
    qsort(lines, count, sizeof(lines[0]), compare_lines);
    for (size_t i = 0; i < count; i++)
        lines[i].rank = (int64_t)i + 1;
    return count;
}

static void assert_lines(const struct sales_line *is, const struct sales_line *should, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_true(id_equal(&is[i].product_id, &should[i].product_id));
        assert_int_equal(is[i].rank, should[i].rank);
        assert_int_equal(is[i].sold, should[i].sold);
        assert_int_equal(is[i].sold_last_day, should[i].sold_last_day);
    }
}

enum status board_suite_top(struct board *board, int64_t first_day, int64_t last_day, size_t limit,
                            struct sales_line *lines, size_t *count, struct error *error)
{
    const struct board_question question = {
        .kind = BOARD_TOP, .first_day = first_day, .last_day = last_day, .limit = limit};
    return board->ops->ask(board, &question, lines, count, error);
}

static void check_window(struct board_stage *stage, struct board *board, int64_t first,
                         int64_t last)
{
    static const size_t limits[] = {1, 2, 3, 5, 17, 100};
    struct sales_line should[PRODUCTS];
    struct sales_line is[100];
    struct id ids[PRODUCTS];
    struct error error;
    size_t count = 0;
    size_t all = reference(stage, first, last, should);

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        check(board_suite_top(board, first, last, limits[i], is, &count, &error), &error);
        assert_int_equal(count, all < limits[i] ? all : limits[i]);
        assert_lines(is, should, count);
    }
    for (size_t i = 0; i < PRODUCTS; i++)
        ids[i] = product_of(i);
    struct board_question question = {
        .kind = BOARD_OF, .first_day = first, .last_day = last, .ids = ids, .id_count = PRODUCTS};
    check(board->ops->ask(board, &question, is, &count, &error), &error);
    assert_int_equal(count, all);
    assert_lines(is, should, count);
    for (size_t i = 0; i < all; i += 3) {
        size_t from = i >= 2 ? i - 2 : 0;
        size_t to = i + 2 < all ? i + 2 : all - 1;
        question = (struct board_question){.kind = BOARD_AROUND,
                                           .first_day = first,
                                           .last_day = last,
                                           .limit = 2,
                                           .ids = &should[i].product_id,
                                           .id_count = 1};
        check(board->ops->ask(board, &question, is, &count, &error), &error);
        assert_int_equal(count, to - from + 1);
        assert_lines(is, &should[from], count);
    }
    struct id stranger = id_of(span_of("stranger"));
    question = (struct board_question){.kind = BOARD_AROUND,
                                       .first_day = first,
                                       .last_day = last,
                                       .limit = 2,
                                       .ids = &stranger,
                                       .id_count = 1};
    check(board->ops->ask(board, &question, is, &count, &error), &error);
    assert_int_equal(count, 0);
}

static int64_t difference_count(struct board_stage *stage, struct board *board)
{
    struct board_comparison comparison;
    struct error error;

    check(board_compare(board, stage->ledger, stage->first_day + 1, stage->first_day + DAYS - 2,
                        &comparison, &error),
          &error);
    assert_true(comparison.is_built && comparison.follows);
    return comparison.difference_count;
}

void board_stage_check(struct board_stage *stage, struct board *board)
{
    int64_t today = stage->first_day + DAYS - 2;

    for (int64_t last = today - 1; last <= today; last++)
        for (int64_t days = 1; days <= 3 && last - days + 1 >= stage->first_day; days++)
            check_window(stage, board, last - days + 1, last);
    assert_int_equal(difference_count(stage, board), 0);
}

/* --- tests --- */

static void test_board__is_missing_before_it_is_built(void **state)
{
    struct board_stage *stage = *state;
    struct sales_line lines[5];
    struct feed_place place;
    struct error error;
    struct board_comparison comparison;
    size_t count;

    assert_int_equal(stage->board->ops->place(stage->board, &place, &error), STATUS_NOT_FOUND);
    assert_int_equal(board_suite_top(stage->board, stage->first_day + 1, stage->first_day + 3, 5,
                                     lines, &count, &error),
                     STATUS_NOT_FOUND);
    check(board_compare(stage->board, stage->ledger, 0, 1, &comparison, &error), &error);
    assert_false(comparison.is_built);
    check(stage->board->ops->forget(stage->board, stage->first_day, &error), &error);
    /* Of nothing there is a board as well. */
    board_stage_follow(stage, stage->board);
    board_stage_check(stage, stage->board);
}

static void test_board__answers_are_those_of_the_reference(void **state)
{
    struct board_stage *stage = *state;

    for (int round = 0; round < 6; round++) {
        board_stage_sell(stage, 150);
        board_stage_follow(stage, round % 2 == 0 ? stage->board : stage->beside);
        /* The one that has only looked on knows it too, as soon as it has looked. */
        board_stage_follow(stage, stage->board);
        board_stage_check(stage, stage->board);
    }
}

static void test_board__many_of_one_score(void **state)
{
    struct board_stage *stage = *state;

    for (size_t product = 0; product < PRODUCTS; product++)
        sell(stage, product, 1 + product % 3, 1);
    board_stage_follow(stage, stage->board);
    board_stage_check(stage, stage->board);
    /* And back to nothing. */
    for (size_t number = 0; number < PRODUCTS; number++)
        refund(stage, number);
    board_stage_follow(stage, stage->board);
    board_stage_check(stage, stage->board);
}

static void test_board__counts_an_entry_once(void **state)
{
    struct board_stage *stage = *state;
    struct feed_entry entries[ENTRIES];
    struct feed_place place;
    struct error error;
    size_t count;

    board_stage_follow(stage, stage->board);
    board_stage_sell(stage, 30);
    check(stage->board->ops->place(stage->board, &place, &error), &error);
    check(ledger_sales_after(stage->ledger, &place, entries, ENTRIES, &count, &error), &error);
    check(stage->board->ops->apply(stage->board, &place, entries, count, &error), &error);
    assert_int_equal(stage->board->ops->apply(stage->board, &place, entries, count, &error),
                     STATUS_CONFLICT);
    assert_int_equal(stage->beside->ops->apply(stage->beside, &place, entries, count, &error),
                     STATUS_CONFLICT);
    board_stage_check(stage, stage->board);
}

/* A place with the same number and another time is one of another database. */
static void test_board__another_database_is_another_place(void **state)
{
    struct board_stage *stage = *state;
    struct feed_entry entry = {
        .day = stage->first_day + 2, .product_id = product_of(1), .quantity = 1};
    struct feed_place place;
    struct error error;

    board_stage_sell(stage, 20);
    board_stage_follow(stage, stage->board);
    check(stage->board->ops->place(stage->board, &place, &error), &error);
    entry.place = (struct feed_place){place.feed_id + 1, place.written_at_ms};
    place.written_at_ms++;
    assert_int_equal(stage->board->ops->apply(stage->board, &place, &entry, 1, &error),
                     STATUS_CONFLICT);
    board_stage_check(stage, stage->board);
}

struct follower {
    struct board_stage *stage;
    struct board *board;
    _Atomic bool ends;
};

static void *follow_on(void *context)
{
    struct follower *follower = context;

    while (!atomic_load(&follower->ends))
        (void)step(follower->stage, follower->board);
    return NULL;
}

/* Any number may follow, and build, at once. */
static void test_board__many_follow_it(void **state)
{
    struct board_stage *stage = *state;
    struct follower followers[4];
    pthread_t threads[4];
    struct error error;

    board_stage_follow(stage, stage->board);
    for (size_t i = 0; i < 4; i++) {
        followers[i].stage = stage;
        followers[i].board = i % 2 == 0 ? stage->board : stage->beside;
        atomic_init(&followers[i].ends, false);
        ensure(pthread_create(&threads[i], NULL, follow_on, &followers[i]) == 0);
    }
    for (int i = 0; i < 10; i++) {
        board_stage_sell(stage, 60);
        enum status status = board_stage_build(stage, stage->beside, &error);
        if (status != STATUS_BUSY)
            check(status, &error);
    }
    for (size_t i = 0; i < 4; i++)
        atomic_store(&followers[i].ends, true);
    for (size_t i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    board_stage_follow(stage, stage->board);
    board_stage_check(stage, stage->board);
}

static void test_board__built_anew_it_is_the_same(void **state)
{
    struct board_stage *stage = *state;
    struct error error;

    board_stage_sell(stage, 300);
    board_stage_follow(stage, stage->board);
    board_stage_sell(stage, 50);
    check(board_stage_build(stage, stage->board, &error), &error);
    board_stage_check(stage, stage->board);
    board_stage_sell(stage, 50);
    board_stage_follow(stage, stage->board);
    board_stage_check(stage, stage->board);
}

static void test_board__days_are_forgotten(void **state)
{
    struct board_stage *stage = *state;
    struct error error;

    board_stage_sell(stage, 200);
    board_stage_follow(stage, stage->board);
    check(stage->board->ops->forget(stage->board, stage->first_day + 1, &error), &error);
    check(stage->board->ops->forget(stage->board, stage->first_day, &error), &error);
    /* Sales of days that are forgotten make no difference. */
    board_stage_sell(stage, 200);
    board_stage_follow(stage, stage->board);
    check_window(stage, stage->board, stage->first_day + 2, stage->first_day + 4);
    check_window(stage, stage->board, stage->first_day + 1, stage->first_day + 3);
    check_window(stage, stage->board, stage->first_day + 4, stage->first_day + 4);
}

static void test_board__a_wrong_counter_is_found(void **state)
{
    struct board_stage *stage = *state;
    struct feed_entry entries[ENTRIES];
    struct board_comparison comparison;
    struct feed_place place;
    struct error error;
    size_t count;
    int64_t day = stage->first_day + 2;

    board_stage_sell(stage, 100);
    board_stage_follow(stage, stage->board);
    sell(stage, 3, 2, 1);
    check(stage->board->ops->place(stage->board, &place, &error), &error);
    check(ledger_sales_after(stage->ledger, &place, entries, ENTRIES, &count, &error), &error);
    entries[count - 1].quantity += 4;
    check(stage->board->ops->apply(stage->board, &place, entries, count, &error), &error);
    board_stage_sell(stage, 30);
    for (int64_t wrong = day - 1; wrong <= day + 1; wrong++) {
        check(board_compare(stage->board, stage->ledger, wrong, wrong, &comparison, &error),
              &error);
        assert_true(comparison.is_built && comparison.follows);
        assert_int_equal(comparison.difference_count, wrong == day);
    }
    check(board_stage_build(stage, stage->board, &error), &error);
    board_stage_check(stage, stage->board);
}

int board_suite_run(const struct CMUnitTest *own, size_t own_count)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_board__is_missing_before_it_is_built),
        cmocka_unit_test(test_board__answers_are_those_of_the_reference),
        cmocka_unit_test(test_board__many_of_one_score),
        cmocka_unit_test(test_board__counts_an_entry_once),
        cmocka_unit_test(test_board__another_database_is_another_place),
        cmocka_unit_test(test_board__many_follow_it),
        cmocka_unit_test(test_board__built_anew_it_is_the_same),
        cmocka_unit_test(test_board__days_are_forgotten),
        cmocka_unit_test(test_board__a_wrong_counter_is_found),
    };
    const size_t count = sizeof(tests) / sizeof(tests[0]);
    struct CMUnitTest board_tests[TESTS_MAX];

    ensure(count + own_count <= TESTS_MAX);
    memcpy(board_tests, tests, sizeof(tests));
    if (own_count > 0)
        memcpy(board_tests + count, own, own_count * sizeof(*own));
    for (size_t i = 0; i < count + own_count; i++) {
        board_tests[i].setup_func = board_stage_set_up;
        board_tests[i].teardown_func = board_stage_tear_down;
    }
    return _cmocka_run_group_tests("board", board_tests, count + own_count, NULL, NULL);
}
