/* test_hash.c: SipHash against its published vectors, libsodium and a plain reference. */
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"

/* The key of all published vectors: bytes 00 to 0f. */
static const struct hash_key published_key = {
    .k0 = UINT64_C(0x0706050403020100),
    .k1 = UINT64_C(0x0f0e0d0c0b0a0908),
};

static void test_hash__mac_gives_the_published_vectors(void **state)
{
    /* Of the bytes 00, 01, 02, ...: none of them, one, two, ... */
    static const uint64_t expected[16] = {
        UINT64_C(0x726fdb47dd0e0e31), UINT64_C(0x74f839c593dc67fd), UINT64_C(0x0d6c8009d9a94f5a),
        UINT64_C(0x85676696d7fb7e2d), UINT64_C(0xcf2794e0277187b7), UINT64_C(0x18765564cd99a68d),
        UINT64_C(0xcbc9466e58fee3ce), UINT64_C(0xab0200f58b01d137), UINT64_C(0x93f5f5799a932462),
        UINT64_C(0x9e0082df0ba9e4b0), UINT64_C(0x7a5dbbc594ddb9f3), UINT64_C(0xf4b32f46226bada7),
        UINT64_C(0x751e8fbc860ee5fb), UINT64_C(0x14ea5627c0843d90), UINT64_C(0xf723ca908e7af2ee),
        UINT64_C(0xa129ca6149be45e5),
    };
    unsigned char bytes[16];
    for (size_t length = 0; length < 16; length++) {
        bytes[length] = (unsigned char)length;
        assert_int_equal(hash_mac(published_key, bytes, length), expected[length]);
    }
}

/* Each input in a block of its own size, so that the sanitizer sees a read beside it. */
static void test_hash__table_depends_on_every_byte_the_length_and_the_key(void **state)
{
    for (size_t length = 0; length <= 80; length++) {
        unsigned char *bytes = malloc(length > 0 ? length : 1);
        struct hash_key key = hash_key_random();
        struct hash_key other = {.k0 = key.k0 + 1, .k1 = key.k1};

        assert_non_null(bytes);
        memset(bytes, 'a', length);
        uint64_t hash = hash_table(key, bytes, length);
        assert_int_equal(hash_table(key, bytes, length), hash);
        assert_int_not_equal(hash_table(other, bytes, length), hash);
        if (length > 0)
            assert_int_not_equal(hash_table(key, bytes, length - 1), hash);
        for (size_t i = 0; i < length; i++) {
            bytes[i] ^= 1;
            assert_int_not_equal(hash_table(key, bytes, length), hash);
            bytes[i] ^= 1;
        }
        free(bytes);
    }
}

#define ID_FORMS 4

static int make_id(char *id, size_t size, int form, int number)
{
    switch (form) {
    case 0:
        return snprintf(id, size, "%d", number);
    case 1:
        return snprintf(id, size, "u%d", number);
    case 2:
        return snprintf(id, size, "user-%08d", number);
    default:
        return snprintf(id, size, "customer:%020d@example.org", number);
    }
}

/* Ids that differ in a few digits must fall all over a table, by the low bits alone. */
static void test_hash__table_spreads_ids_that_look_alike(void **state)
{
    enum { SLOTS = 1 << 14, IDS = 1 << 14 };

    for (int form = 0; form < ID_FORMS; form++) {
        unsigned char *counts = calloc(SLOTS, 1);
        struct hash_key key = hash_key_random();
        int empty_count = 0;
        int fullest_count = 0;

        assert_non_null(counts);
        for (int i = 0; i < IDS; i++) {
            char id[64];
            int length = make_id(id, sizeof(id), form, i);
            int count = ++counts[hash_table(key, id, (size_t)length) & (SLOTS - 1)];
            fullest_count = count > fullest_count ? count : fullest_count;
        }
        for (int i = 0; i < SLOTS; i++)
            empty_count += counts[i] == 0;
        /* Thrown at random, 1/e of the slots stay empty (6027, give or take 60) and none gets
         * more than a handful. */
        assert_in_range(empty_count, 5500, 6600);
        assert_in_range(fullest_count, 4, 14);
        free(counts);
    }
}

static void test_hash__keys_are_random(void **state)
{
    struct hash_key a = hash_key_random();
    struct hash_key b = hash_key_random();
    assert_true(a.k0 != b.k0 && a.k1 != b.k1 && a.k0 != a.k1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash__mac_gives_the_published_vectors),
        cmocka_unit_test(test_hash__table_depends_on_every_byte_the_length_and_the_key),
        cmocka_unit_test(test_hash__table_spreads_ids_that_look_alike),
        cmocka_unit_test(test_hash__keys_are_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
