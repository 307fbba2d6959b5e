/* test_holdings.c: claims found by user, key and seq, against a plain list, at any size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka.h needs some of those above it. */
#include <cmocka.h>

#include "gate/local/holdings.h"

static int set_up(void **state)
{
    struct holdings *holdings = calloc(1, sizeof(*holdings));
    holdings_init(holdings);
    *state = holdings;
    return 0;
}

static int tear_down(void **state)
{
    struct holdings *holdings = *state;
    holdings_release(holdings);
    free(holdings);
    return 0;
}

static struct id user_of(int number)
{
    char name[ID_LENGTH_MAX + 1];
    /* Lengths from 1 to the longest, so that names of all sizes lie beside each other. */
    int length = snprintf(name, sizeof(name), "%d", number);
    while (length < ID_LENGTH_MAX && length < 1 + number % ID_LENGTH_MAX)
        name[length++] = '.';
    return id_of((struct span){.bytes = name, .length = (size_t)length});
}

static struct request_id key_of(uint32_t number)
{
    struct request_id id = {{0x80}};
    memcpy(id.bytes + 4, &number, sizeof(number));
    return id;
}

static uint32_t add(struct holdings *holdings, int user, int64_t seq, int nth, uint32_t key,
                    enum coupon_state state)
{
    struct claim claim = {.seq = seq, .nth = nth, .user = user_of(user)};
    if (key != 0)
        claim.request_id = key_of(key);
    assert_true(holdings_make_room(holdings, 1, claim.user.length));
    return holdings_add(holdings, holdings_hash(holdings, &claim.user), &claim, state);
}

static uint32_t newest_of(struct holdings *holdings, int user)
{
    struct id id = user_of(user);
    return holdings_find(holdings, holdings_hash(holdings, &id), &id).newest;
}

static uint32_t by_key(struct holdings *holdings, uint32_t key)
{
    struct request_id id = key_of(key);
    return holdings_of_key(holdings, &id);
}

static void test_holdings__empty(void **state)
{
    struct holdings *holdings = *state;
    assert_int_equal(newest_of(holdings, 1), HOLDINGS_NONE);
    assert_int_equal(by_key(holdings, 1), HOLDINGS_NONE);
    assert_int_equal(holdings_of_seq(holdings, 1), HOLDINGS_NONE);
    assert_true(holdings_reserve(holdings, 10));
    assert_int_equal(newest_of(holdings, 1), HOLDINGS_NONE);
    assert_int_equal(by_key(holdings, 1), HOLDINGS_NONE);
}

/* Grown step by step, so that every table is rebuilt several times with claims in it. */
static void test_holdings__finds_all_after_growing(void **state)
{
    enum { COUNT = 5000 };
    struct holdings *holdings = *state;

    for (int i = 0; i < COUNT; i++) {
        if (holdings->count == holdings->capacity)
            assert_true(holdings_reserve(holdings, holdings->capacity + 1 + (uint64_t)i / 3));
        assert_int_equal(add(holdings, i, 3 * i + 1, 0, (uint32_t)i + 1, COUPON_ISSUED), i);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(newest_of(holdings, i), i);
        assert_int_equal(by_key(holdings, (uint32_t)i + 1), i);
        assert_int_equal(holdings_of_seq(holdings, 3 * i + 1), i);
        assert_int_equal(holdings_of_seq(holdings, 3 * i + 2), HOLDINGS_NONE);
    }
    assert_int_equal(newest_of(holdings, COUNT), HOLDINGS_NONE);
    assert_int_equal(by_key(holdings, COUNT + 1), HOLDINGS_NONE);
    assert_int_equal(holdings_of_seq(holdings, 0), HOLDINGS_NONE);
}

static void test_holdings__names_that_begin_alike(void **state)
{
    struct holdings *holdings = *state;
    struct id longer = id_of(SPAN("ab"));
    struct id shorter = id_of(SPAN("a"));
    struct claim claim = {.seq = 1, .user = longer};

    assert_true(holdings_reserve(holdings, 1));
    assert_true(holdings_make_room(holdings, 1, longer.length));
    holdings_add(holdings, holdings_hash(holdings, &longer), &claim, COUPON_ISSUED);
    /* The same hash is not the same user. */
    assert_int_equal(holdings_find(holdings, holdings_hash(holdings, &longer), &shorter).newest,
                     HOLDINGS_NONE);
}

/* --- one user's claims --- */

static void test_holdings__nth_fills_gaps(void **state)
{
    struct holdings *holdings = *state;
    assert_true(holdings_reserve(holdings, 100));
    for (int i = 0; i < 5; i++)
        assert_int_equal(holdings_at(holdings, add(holdings, 1, i + 1, 0, 0, COUPON_ISSUED))->nth,
                         i + 1);
    holdings_free_slot(holdings, 1, COUPON_CANCELLED); /* nth 2, in the middle */
    holdings_free_slot(holdings, 4, COUPON_CANCELLED); /* nth 5, the newest */
    holdings_free_slot(holdings, 0, COUPON_CANCELLED); /* nth 1, the oldest */
    assert_int_equal(newest_of(holdings, 1), 3);
    assert_int_equal(holdings_at(holdings, 3)->held_count, 2);
    static const int expected[] = {1, 2, 5, 6};
    for (int i = 0; i < 4; i++)
        assert_int_equal(holdings_at(holdings, add(holdings, 1, i + 6, 0, 0, COUPON_ISSUED))->nth,
                         expected[i]);
    assert_int_equal(holdings_at(holdings, newest_of(holdings, 1))->held_count, 6);
}

static void test_holdings__the_whole_limit(void **state)
{
    struct holdings *holdings = *state;
    assert_true(holdings_reserve(holdings, 2 * PER_USER_LIMIT_MAX));
    for (int i = 1; i <= PER_USER_LIMIT_MAX; i++)
        add(holdings, 1, i, 0, 0, COUPON_ISSUED);
    assert_int_equal(holdings_at(holdings, newest_of(holdings, 1))->held_count, PER_USER_LIMIT_MAX);
    holdings_free_slot(holdings, PER_USER_LIMIT_MAX - 2, COUPON_CANCELLED);
    uint32_t again = add(holdings, 1, PER_USER_LIMIT_MAX + 1, 0, 0, COUPON_ISSUED);
    assert_int_equal(holdings_at(holdings, again)->nth, PER_USER_LIMIT_MAX - 1);
}

static void test_holdings__freed_user_starts_again(void **state)
{
    struct holdings *holdings = *state;
    assert_true(holdings_reserve(holdings, 10));
    uint32_t first = add(holdings, 1, 1, 0, 7, COUPON_ISSUED);
    uint32_t names_used = holdings->names_used;
    holdings_free_slot(holdings, first, COUPON_CANCELLED);
    assert_int_equal(newest_of(holdings, 1), HOLDINGS_NONE);
    holdings_free_slot(holdings, first, COUPON_VOID); /* again, with another state */
    assert_int_equal(holdings_at(holdings, first)->state, COUPON_VOID);
    assert_int_equal(by_key(holdings, 7), first);
    uint32_t second = add(holdings, 1, 2, 0, 8, COUPON_ISSUED);
    assert_int_equal(holdings_at(holdings, second)->nth, 1);
    assert_int_equal(holdings_at(holdings, second)->held_count, 1);
    assert_int_equal(newest_of(holdings, 1), second);
    assert_int_equal(holdings->names_used, names_used); /* the name is kept once */
    holdings_free_slot(holdings, first, COUPON_CANCELLED);
    assert_int_equal(newest_of(holdings, 1), second);
}

/* Restored claims come with their nth, and dead ones do not count. */
static void test_holdings__restored(void **state)
{
    struct holdings *holdings = *state;
    assert_true(holdings_reserve(holdings, 10));
    add(holdings, 1, 1, 1, 1, COUPON_CANCELLED);
    add(holdings, 1, 2, 3, 2, COUPON_REDEEMED);
    add(holdings, 1, 3, 1, 3, COUPON_ISSUED);
    add(holdings, 1, 4, 2, 4, COUPON_VOID);
    assert_int_equal(newest_of(holdings, 1), 2);
    assert_int_equal(holdings_at(holdings, 2)->held_count, 2);
    for (uint32_t key = 1; key <= 4; key++)
        assert_int_equal(by_key(holdings, key), key - 1);
    assert_int_equal(holdings_at(holdings, add(holdings, 1, 5, 0, 0, COUPON_ISSUED))->nth, 2);
    assert_int_equal(holdings_at(holdings, add(holdings, 1, 6, 0, 0, COUPON_ISSUED))->nth, 4);
}

/* --- bound keys --- */

static void test_holdings__bound_keys(void **state)
{
    enum { CLAIMS = 40, KEYS = CLAIM_KEYS_MAX + 2 }; /* also more than are counted */
    struct holdings *holdings = *state;
    uint32_t key = 1000;

    assert_true(holdings_reserve(holdings, CLAIMS));
    for (int i = 0; i < CLAIMS; i++)
        add(holdings, i, i + 1, 0, (uint32_t)i + 1, COUPON_ISSUED);
    for (uint32_t i = 0; i < CLAIMS; i++) {
        for (int k = 0; k < KEYS; k++, key++) {
            struct request_id id = key_of(key);
            assert_true(holdings_bind(holdings, i, &id));
        }
        assert_int_equal(holdings_at(holdings, i)->bound_count, CLAIM_KEYS_MAX);
    }
    /* Also after more claims made the tables grow. */
    assert_true(holdings_reserve(holdings, 2000));
    for (uint32_t i = 0, bound = 1000; i < CLAIMS; i++) {
        assert_int_equal(by_key(holdings, i + 1), i);
        for (int k = 0; k < KEYS; k++, bound++)
            assert_int_equal(by_key(holdings, bound), i);
    }
}

/* Keys that share the bytes a client could aim for must not share a place. */
static void test_holdings__keys_cannot_be_aimed(void **state)
{
    enum { COUNT = 200, SLOTS = 64 };
    struct holdings *holdings = *state;
    const uint32_t *slots;
    unsigned homes = 0;
    bool seen[SLOTS] = {false};

    assert_true(holdings_reserve(holdings, COUNT));
    for (int i = 0; i < COUNT; i++)
        add(holdings, i, i + 1, 0, (uint32_t)i + 1, COUPON_ISSUED); /* the last 8 bytes are equal */
    slots = holdings->keys.slots.base;
    for (uint32_t i = 0; i <= holdings->keys.mask; i++) {
        if (slots[2 * i + 1] != 0 && !seen[slots[2 * i] % SLOTS]) {
            seen[slots[2 * i] % SLOTS] = true;
            homes++;
        }
    }
    assert_true(homes > SLOTS / 2);
}

/* --- limits --- */

static void test_holdings__memory_per_claim(void **state)
{
    enum { COUNT = 100000 };
    struct holdings *holdings = *state;
    assert_true(holdings_reserve(holdings, 10 * COUNT));
    assert_int_equal(holdings->users.slots.size + holdings->keys.slots.size, 0);
    for (int i = 0; i < COUNT; i++) {
        struct claim claim = {.seq = i + 1, .request_id = key_of((uint32_t)i + 1)};
        char name[24];
        snprintf(name, sizeof(name), "user-%08d", i);
        claim.user = id_of(span_of(name));
        assert_true(holdings_make_room(holdings, 1, claim.user.length));
        holdings_add(holdings, holdings_hash(holdings, &claim.user), &claim, COUPON_ISSUED);
    }
    uint64_t touched = COUNT * sizeof(struct holding) + (uint64_t)holdings->names_used * NAME_UNIT +
                       holdings->users.slots.size + holdings->users.old.size +
                       holdings->keys.slots.size + holdings->keys.old.size;
    assert_true(touched <= UINT64_C(120) * COUNT);
}

/* What is on the heap grows with the claims, too: ten coupons fit into a kilobyte. */
static void test_holdings__memory_of_a_small_policy(void **state)
{
    struct holdings *holdings = *state;
    assert_true(holdings_reserve(holdings, 10));
    assert_int_equal(holdings->records.size + holdings->names.size, 0);
    for (int i = 0; i < 10; i++)
        add(holdings, 100000 + i % 5, i + 1, 0, 0, COUPON_ISSUED);
    assert_true(holdings->records.size + holdings->names.size + holdings->users.slots.size +
                    holdings->users.old.size + holdings->keys.slots.size <=
                1024);
}

/* Nobody waits for a whole table to be moved: each claim takes a few entries with it, and all are
 * found meanwhile. */
static void test_holdings__a_table_grows_a_little_with_each_claim(void **state)
{
    enum { COUNT = 150000, EACH = 997 };
    struct holdings *holdings = *state;
    uint32_t moved = 0;
    int in_between = 0;

    assert_true(holdings_reserve(holdings, COUNT));
    for (int i = 0; i < COUNT; i++) {
        uint32_t before = holdings->users.moved;
        bool was_moving = holdings->users.old.base != NULL;
        add(holdings, i, i + 1, 0, (uint32_t)i + 1, COUPON_ISSUED);
        moved = holdings->users.moved - before;
        if (was_moving && holdings->users.old.base != NULL)
            assert_true(moved <= 128);
        if (holdings->users.old.base == NULL || i % 32 != 0)
            continue;
        in_between++;
        for (int known = 0; known <= i; known += EACH) {
            assert_int_equal(newest_of(holdings, known), known);
            assert_int_equal(by_key(holdings, (uint32_t)known + 1), known);
        }
    }
    assert_true(in_between > 5);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(newest_of(holdings, i), i);
        assert_int_equal(by_key(holdings, (uint32_t)i + 1), i);
    }
}

static void test_holdings__refuses_what_32_bits_cannot_count(void **state)
{
    struct holdings *holdings = *state;
    assert_true(holdings_reserve(holdings, 1));
    add(holdings, 1, 1, 0, 1, COUPON_ISSUED);
    assert_false(holdings_reserve(holdings, UINT64_C(1) << 31));
    assert_false(holdings_reserve(holdings, UINT64_C(1) << 32));
    assert_false(holdings_reserve(holdings, UINT64_MAX));
    assert_int_equal(newest_of(holdings, 1), 0);
    assert_int_equal(holdings->capacity, 1);
}

int main(void)
{
#define HOLDINGS_TEST(name) \
    cmocka_unit_test_setup_teardown(test_holdings__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        HOLDINGS_TEST(empty),
        HOLDINGS_TEST(finds_all_after_growing),
        HOLDINGS_TEST(names_that_begin_alike),
        HOLDINGS_TEST(nth_fills_gaps),
        HOLDINGS_TEST(the_whole_limit),
        HOLDINGS_TEST(freed_user_starts_again),
        HOLDINGS_TEST(restored),
        HOLDINGS_TEST(bound_keys),
        HOLDINGS_TEST(keys_cannot_be_aimed),
        HOLDINGS_TEST(memory_per_claim),
        HOLDINGS_TEST(memory_of_a_small_policy),
        HOLDINGS_TEST(a_table_grows_a_little_with_each_claim),
        HOLDINGS_TEST(refuses_what_32_bits_cannot_count),
    };
    return cmocka_run_group_tests_name("holdings", tests, NULL, NULL);
}
