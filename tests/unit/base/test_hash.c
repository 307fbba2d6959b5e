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

/* Written straight from the paper, byte by byte, to be held against the fast one. */
static void reference_round(uint64_t v[4])
{
#define ROTATE(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
    v[0] += v[1];
    v[1] = ROTATE(v[1], 13);
    v[1] ^= v[0];
    v[0] = ROTATE(v[0], 32);
    v[2] += v[3];
    v[3] = ROTATE(v[3], 16);
    v[3] ^= v[2];
    v[0] += v[3];
    v[3] = ROTATE(v[3], 21);
    v[3] ^= v[0];
    v[2] += v[1];
    v[1] = ROTATE(v[1], 17);
    v[1] ^= v[2];
    v[2] = ROTATE(v[2], 32);
#undef ROTATE
}

static uint64_t reference_hash(struct hash_key key, const unsigned char *bytes, size_t length,
                               int block_rounds, int final_rounds)
{
    uint64_t v[4] = {key.k0 ^ UINT64_C(0x736f6d6570736575), key.k1 ^ UINT64_C(0x646f72616e646f6d),
                     key.k0 ^ UINT64_C(0x6c7967656e657261), key.k1 ^ UINT64_C(0x7465646279746573)};
    for (size_t block = 0; block <= length / 8; block++) {
        uint64_t word = 0;
        for (size_t i = 0; i < 8; i++) {
            size_t at = block * 8 + i;
            uint64_t byte = at < length ? bytes[at] : 0;
            if (block == length / 8 && i == 7) {
                byte = length & 0xff;
            }
            word |= byte << (8 * i);
        }
        v[3] ^= word;
        for (int i = 0; i < block_rounds; i++) {
            reference_round(v);
        }
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for (int i = 0; i < final_rounds; i++) {
        reference_round(v);
    }
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

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

static void test_hash__table_gives_known_siphash_1_3_values(void **state)
{
    static const unsigned char bytes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    assert_int_equal(hash_table(published_key, bytes, 0), UINT64_C(0xabac0158050fc4dc));
    assert_int_equal(hash_table(published_key, bytes, 7), UINT64_C(0xd3927d989bb11140));
    assert_int_equal(hash_table(published_key, bytes, 12), UINT64_C(0x78a384b157b4d9a2));
}

/* Each input in a block of its own size, so that the sanitizer sees a read beside it. */
static void test_hash__every_length_agrees_with_sodium_and_the_reference(void **state)
{
    assert_true(sodium_init() >= 0);
    for (size_t length = 0; length <= 300; length++) {
        unsigned char raw_key[crypto_shorthash_siphash24_KEYBYTES];
        unsigned char raw_hash[crypto_shorthash_siphash24_BYTES];
        unsigned char *bytes = malloc(length > 0 ? length : 1);
        assert_non_null(bytes);
        randombytes_buf(raw_key, sizeof(raw_key));
        randombytes_buf(bytes, length);
        struct hash_key key = {.k0 = hash_load_64(raw_key), .k1 = hash_load_64(raw_key + 8)};

        crypto_shorthash_siphash24(raw_hash, bytes, length, raw_key);
        assert_int_equal(hash_mac(key, bytes, length), hash_load_64(raw_hash));
        assert_int_equal(reference_hash(key, bytes, length, 2, 4), hash_load_64(raw_hash));
        assert_int_equal(hash_table(key, bytes, length), reference_hash(key, bytes, length, 1, 3));
        free(bytes);
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
        cmocka_unit_test(test_hash__table_gives_known_siphash_1_3_values),
        cmocka_unit_test(test_hash__every_length_agrees_with_sodium_and_the_reference),
        cmocka_unit_test(test_hash__keys_are_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
