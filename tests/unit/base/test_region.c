/* test_region.c: memory that keeps its bytes while it grows, and is zero where it is new. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "base/region.h"

static void test_region__grows_and_keeps(void **state)
{
    struct region region = {0};
    size_t filled = 0;
    (void)state;

    for (size_t size = 1; size < 4000000; size = size * 3 + 1) {
        assert_true(region_grow(&region, size));
        assert_true(region.size >= size);
        unsigned char *bytes = region.base;
        for (size_t i = 0; i < filled; i += 97)
            assert_int_equal(bytes[i], 0xa5);
        for (size_t i = filled; i < size; i += 97)
            assert_int_equal(bytes[i], 0);
        memset(bytes, 0xa5, size);
        filled = size;
    }
    region_release(&region);
    assert_null(region.base);
    assert_int_equal(region.size, 0);
    region_release(&region);
}

static void test_region__smaller_changes_nothing(void **state)
{
    struct region region = {0};
    (void)state;

    assert_true(region_grow(&region, 100000));
    struct region before = region;
    assert_true(region_grow(&region, 100000));
    assert_true(region_grow(&region, 1));
    assert_true(region_grow(&region, 0));
    assert_memory_equal(&region, &before, sizeof(region));
    region_release(&region);
}

static void test_region__too_much_is_refused(void **state)
{
    struct region region = {0};
    (void)state;

    assert_false(region_grow(&region, SIZE_MAX)); /* rounding up would give 0 */
    assert_false(region_grow(&region, SIZE_MAX / 2));
    assert_null(region.base);
    assert_true(region_grow(&region, 10));
    ((char *)region.base)[9] = 'x';
    struct region before = region;
    assert_false(region_grow(&region, SIZE_MAX));
    assert_false(region_grow(&region, SIZE_MAX / 2));
    assert_memory_equal(&region, &before, sizeof(region));
    assert_int_equal(((char *)region.base)[9], 'x');
    region_release(&region);
}

/* Room for a million claims must not cost a million claims of memory. */
static void test_region__is_resident_only_where_touched(void **state)
{
    enum { PAGES = 4096 };
    static unsigned char resident[PAGES];
    struct region region = {0};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t count = 0;
    (void)state;

    assert_true(region_grow(&region, PAGES * page));
    ((char *)region.base)[0] = 1;
    ((char *)region.base)[PAGES * page - 1] = 1;
    assert_int_equal(mincore(region.base, PAGES * page, resident), 0);
    for (size_t i = 0; i < PAGES; i++)
        count += resident[i] & 1;
    assert_true(count < PAGES / 2); /* the kernel may round up to huge pages */
    region_release(&region);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_region__grows_and_keeps),
        cmocka_unit_test(test_region__smaller_changes_nothing),
        cmocka_unit_test(test_region__too_much_is_refused),
        cmocka_unit_test(test_region__is_resident_only_where_touched),
    };
    return cmocka_run_group_tests_name("region", tests, NULL, NULL);
}
