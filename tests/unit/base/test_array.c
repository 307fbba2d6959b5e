/* test_array.c: arrays that grow, and arrays in rising order of ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/array.h"

struct item {
    int64_t id;
    char text[24];
};

static void test_array__keeps_what_it_holds_while_it_grows(void **state)
{
    (void)state;
    int64_t *numbers = NULL;
    size_t count = 0;
    size_t capacity = 0;

    for (int64_t i = 0; i < 1000; i++) {
        assert_true(array_make_room(numbers, count, capacity));
        assert_true(capacity > count);
        numbers[count++] = i;
    }
    for (int64_t i = 0; i < 1000; i++)
        assert_int_equal(numbers[i], i);
    assert_true(array_reserve(numbers, 5000, capacity));
    assert_true(capacity >= 5000);
    assert_int_equal(numbers[999], 999);
    free(numbers);
}

static void test_array__without_memory_nothing_changes(void **state)
{
    (void)state;
    int64_t *numbers = NULL;
    size_t count = 0;
    size_t capacity = 0;

    assert_true(array_make_room(numbers, count, capacity));
    int64_t *before = numbers;
    size_t capacity_before = capacity;
    assert_false(array_reserve(numbers, SIZE_MAX / 2, capacity));
    assert_ptr_equal(numbers, before);
    assert_int_equal(capacity, capacity_before);
    free(numbers);
}

static void test_array__stays_in_order_of_ids(void **state)
{
    (void)state;
    struct item *items = NULL;
    size_t count = 0;
    size_t capacity = 0;

    for (int64_t i = 0; i < 101; i++) {
        int64_t id = i * 37 % 101;
        size_t at = array_place(items, count, .id, id);
        assert_true(array_insert(items, at, count, capacity));
        items[at] = (struct item){.id = id};
    }
    assert_int_equal(count, 101);
    for (int64_t i = 0; i < 101; i++)
        assert_int_equal(items[i].id, i);
    array_remove(items, 0, count);
    array_remove(items, 49, count);
    array_remove(items, count - 1, count);
    assert_int_equal(count, 98);
    assert_int_equal(items[array_place(items, count, .id, 1)].id, 1);
    assert_int_equal(items[array_place(items, count, .id, 50)].id, 51);
    assert_int_equal(array_place(items, count, .id, 100), count);
    free(items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_array__keeps_what_it_holds_while_it_grows),
        cmocka_unit_test(test_array__without_memory_nothing_changes),
        cmocka_unit_test(test_array__stays_in_order_of_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
