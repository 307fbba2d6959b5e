/* test_blocklist.c: a set of users, against a plain array; and many threads at once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "gate/blocklist.h"

#define USERS 300

static int set_up(void **state)
{
    struct blocklist *list = calloc(1, sizeof(*list));
    blocklist_init(list);
    *state = list;
    return 0;
}

static int tear_down(void **state)
{
    blocklist_release(*state);
    free(*state);
    return 0;
}

static struct id user_of(int number)
{
    char name[16];
    snprintf(name, sizeof(name), "%x", (unsigned)number * 2654435761u); /* in no order */
    return id_of(span_of(name));
}

static void test_blocklist__is_a_set(void **state)
{
    struct blocklist *list = *state;
    bool expected[USERS] = {false};
    unsigned random = 1;

    for (int step = 0; step < 5000; step++) {
        random = random * 1103515245u + 12345u;
        int number = (int)(random >> 16) % USERS;
        bool blocked = (random >> 8 & 3) != 0;
        struct id user = user_of(number);
        assert_int_equal(blocklist_set(list, &user, blocked, NULL), STATUS_OK);
        expected[number] = blocked;
        if (step % 100 != 0)
            continue;
        for (int i = 0; i < USERS; i++) {
            user = user_of(i);
            assert_int_equal(blocklist_has(list, &user), expected[i]);
        }
    }
}

static void test_blocklist__names_that_begin_alike(void **state)
{
    static const char *const names[] = {"ab", "a", "abc", "b", "A"};
    struct blocklist *list = *state;

    for (size_t i = 0; i < 5; i++) {
        struct id user = id_of(span_of(names[i]));
        assert_false(blocklist_has(list, &user));
        assert_int_equal(blocklist_set(list, &user, true, NULL), STATUS_OK);
        assert_true(blocklist_has(list, &user));
    }
    struct id middle = id_of(SPAN("ab"));
    assert_int_equal(blocklist_set(list, &middle, false, NULL), STATUS_OK);
    assert_int_equal(blocklist_set(list, &middle, false, NULL), STATUS_OK);
    for (size_t i = 0; i < 5; i++) {
        struct id user = id_of(span_of(names[i]));
        assert_int_equal(blocklist_has(list, &user), i != 0);
    }
}

/* What a visit is told, of a list that changes meanwhile. */
struct told {
    struct blocklist *list;
    size_t count;
};

static enum status tell(void *context, const struct id *user, struct error *error)
{
    static const char *const sorted[] = {"A", "a", "ab", "abc", "b"};
    struct told *told = context;

    assert_true(told->count < 5);
    assert_true(span_equal(id_span(user), span_of(sorted[told->count++])));
    return blocklist_set(told->list, user, false, error);
}

static void test_blocklist__all_are_told_in_order(void **state)
{
    static const char *const names[] = {"ab", "a", "abc", "b", "A"};
    struct told told = {.list = *state};

    assert_int_equal(blocklist_visit(told.list, tell, &told, NULL), STATUS_OK);
    assert_int_equal(told.count, 0);
    for (size_t i = 0; i < 5; i++) {
        struct id user = id_of(span_of(names[i]));
        assert_int_equal(blocklist_set(told.list, &user, true, NULL), STATUS_OK);
    }
    assert_int_equal(blocklist_visit(told.list, tell, &told, NULL), STATUS_OK);
    assert_int_equal(told.count, 5);
    assert_int_equal(told.list->count, 0);
}

static void *flip(void *context)
{
    struct blocklist *list = context;
    for (int i = 0; i < 20000; i++) {
        struct id user = user_of(1 + i % (USERS - 1));
        ensure(blocklist_set(list, &user, i / USERS % 2 == 0, NULL) == STATUS_OK);
    }
    return NULL;
}

/* One who is blocked all the time is found all the time, while the others move around them. */
static void test_blocklist__readers_while_it_changes(void **state)
{
    struct blocklist *list = *state;
    struct id constant = user_of(0);
    pthread_t thread;

    assert_int_equal(blocklist_set(list, &constant, true, NULL), STATUS_OK);
    assert_int_equal(pthread_create(&thread, NULL, flip, list), 0);
    for (int i = 0; i < 20000; i++)
        assert_true(blocklist_has(list, &constant));
    pthread_join(thread, NULL);
}

int main(void)
{
#define BLOCKLIST_TEST(name) \
    cmocka_unit_test_setup_teardown(test_blocklist__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        BLOCKLIST_TEST(is_a_set),
        BLOCKLIST_TEST(names_that_begin_alike),
        BLOCKLIST_TEST(all_are_told_in_order),
        BLOCKLIST_TEST(readers_while_it_changes),
    };
    return cmocka_run_group_tests_name("blocklist", tests, NULL, NULL);
}
