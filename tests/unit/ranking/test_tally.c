/* test_tally.c: counts by product and day against a straightforward reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ranking/tally.h"

#define PRODUCTS 300
#define DAYS     10

static uint64_t random_state = 42;

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

static int64_t sold[PRODUCTS][DAYS];

/* The reference's lines of a window, all of them, best first. */
static int compare_lines(const void *left, const void *right)
{
    const struct sales_line *a = left;
    const struct sales_line *b = right;
    char a_id[ID_LENGTH_MAX + 1] = "";
    char b_id[ID_LENGTH_MAX + 1] = "";

    memcpy(a_id, a->product_id.bytes, a->product_id.length);
    memcpy(b_id, b->product_id.bytes, b->product_id.length);
    if (a->sold != b->sold)
        return a->sold > b->sold ? -1 : 1;
    if (a->sold_last_day != b->sold_last_day)
        return a->sold_last_day > b->sold_last_day ? -1 : 1;
    return strcmp(a_id, b_id);
}

static size_t reference(int64_t first, int64_t last, struct sales_line lines[PRODUCTS])
{
    size_t count = 0;

    for (size_t product = 0; product < PRODUCTS; product++) {
        struct sales_line line = {.product_id = product_of(product)};
        for (int64_t day = first; day <= last; day++)
            if (day >= 0 && day < DAYS)
                line.sold += sold[product][day];
        line.sold_last_day = last >= 0 && last < DAYS ? sold[product][last] : 0;
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
        assert_int_equal(is[i].rank, should[i].rank);
        assert_int_equal(is[i].sold, should[i].sold);
        assert_int_equal(is[i].sold_last_day, should[i].sold_last_day);
        assert_true(id_equal(&is[i].product_id, &should[i].product_id));
    }
}

/* Random sales, few different quantities so that there are many ties, and some taken back. */
static void fill(struct tally *tally)
{
    struct error error;

    tally_init(tally, NULL);
    memset(sold, 0, sizeof(sold));
    for (int i = 0; i < 4000; i++) {
        size_t product = next_below(PRODUCTS - 20);
        int64_t day = (int64_t)next_below(DAYS);
        int64_t quantity = 1 + (int64_t)next_below(3);
        struct id id = product_of(product);
        if (next_below(5) == 0 && sold[product][day] >= quantity)
            quantity = -quantity;
        sold[product][day] += quantity;
        assert_int_equal(tally_add(tally, 1000 + day, &id, quantity, &error), STATUS_OK);
    }
}

static void test_tally__top_is_that_of_the_reference(void **state)
{
    static const size_t limits[] = {0, 1, 2, 5, 100, PRODUCTS};
    struct sales_line should[PRODUCTS];
    struct sales_line is[PRODUCTS];
    struct tally tally;

    (void)state;
    fill(&tally);
    for (int64_t first = -1; first < DAYS; first++) {
        for (int64_t last = first; last <= DAYS; last++) {
            size_t all = reference(first, last, should);
            for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
                size_t count = tally_top(&tally, 1000 + first, 1000 + last, limits[i], is);
                assert_int_equal(count, all < limits[i] ? all : limits[i]);
                assert_lines(is, should, count);
            }
        }
    }
    tally_release(&tally);
}

static void test_tally__ranks_of_some(void **state)
{
    struct sales_line should[PRODUCTS];
    struct sales_line is[PRODUCTS];
    struct id ids[50];
    struct tally tally;
    struct error error;

    (void)state;
    fill(&tally);
    size_t all = reference(3, 5, should);
    for (size_t i = 0; i < 50; i++)
        ids[i] = product_of(i * 6); /* the last ones were never sold, or are not known */
    size_t count = 0;
    assert_int_equal(tally_of(&tally, 1003, 1005, ids, 50, is, &count, &error), STATUS_OK);
    size_t at = 0;
    for (size_t i = 0; i < all; i++) {
        for (size_t j = 0; j < 50; j++)
            if (id_equal(&should[i].product_id, &ids[j]))
                assert_lines(&is[at++], &should[i], 1);
    }
    assert_int_equal(at, count);
    assert_true(count > 20);
    tally_release(&tally);
}

static void test_tally__neighbours(void **state)
{
    struct sales_line should[PRODUCTS];
    struct sales_line is[5];
    struct tally tally;

    (void)state;
    fill(&tally);
    size_t all = reference(0, 9, should);
    for (size_t i = 0; i < all; i++) {
        size_t from = i >= 2 ? i - 2 : 0;
        size_t to = i + 2 < all ? i + 2 : all - 1;
        size_t count = tally_around(&tally, 1000, 1009, &should[i].product_id, 2, is);
        assert_int_equal(count, to - from + 1);
        assert_lines(is, &should[from], count);
        assert_int_equal(tally_around(&tally, 1000, 1009, &should[i].product_id, 0, is), 1);
        assert_lines(is, &should[i], 1);
    }
    struct id stranger = product_of(9999);
    assert_int_equal(tally_around(&tally, 1000, 1009, &stranger, 2, is), 0);
    tally_release(&tally);
}

static void test_tally__days_are_forgotten(void **state)
{
    struct sales_line is[PRODUCTS];
    struct tally tally;
    struct error error;
    struct id id = product_of(1);

    (void)state;
    fill(&tally);
    tally_forget(&tally, 1005);
    assert_int_equal(tally_top(&tally, 1000, 1004, PRODUCTS, is), 0);
    assert_true(tally_top(&tally, 1005, 1009, PRODUCTS, is) > 0);
    /* Only so many are kept: the oldest go, and older ones do not come in. */
    for (int64_t day = 2000; day < 2000 + 2 * TALLY_DAYS_MAX; day++)
        assert_int_equal(tally_add(&tally, day, &id, 1, &error), STATUS_OK);
    assert_int_equal(tally_add(&tally, 5, &id, 1, &error), STATUS_OK);
    assert_int_equal(tally.day_count, TALLY_DAYS_MAX);
    assert_int_equal(tally_top(&tally, 0, 1999, 1, is), 0);
    assert_int_equal(tally_top(&tally, 0, INT64_MAX, 1, is), 1);
    assert_int_equal(is[0].sold, TALLY_DAYS_MAX);
    tally_release(&tally);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tally__top_is_that_of_the_reference),
        cmocka_unit_test(test_tally__ranks_of_some),
        cmocka_unit_test(test_tally__neighbours),
        cmocka_unit_test(test_tally__days_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
