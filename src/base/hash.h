/* hash.h: keyed 64-bit hashing of short strings: a fast one for tables, SipHash for coupon codes.
 *
 * Tables that hold what strangers send use a random key, so that nobody can aim for one slot.
 *
 * Threads: pure functions.
 */
#pragma once

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct hash_key {
    uint64_t k0;
    uint64_t k1;
};

/* A fresh random key. */
struct hash_key hash_key_random(void);

/* For tables in memory: words are multiplied with secret ones and the halves of the product folded
 * together, as the maps of several languages do it. Fast, and with a random key nobody can aim for
 * one slot; not a MAC, and not the same on every machine. In the header because every claim is
 * looked up with it. */
static inline uint64_t hash_table(struct hash_key key, const void *text, size_t length);

/* SipHash-2-4: a MAC over short input, for codes that must not be guessed. */
uint64_t hash_mac(struct hash_key key, const void *bytes, size_t length);

static inline uint64_t hash_load_64(const unsigned char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, sizeof(word));
    return le64toh(word);
}

static inline uint64_t hash_load_32(const unsigned char *bytes)
{
    uint32_t word;
    memcpy(&word, bytes, sizeof(word));
    return le32toh(word);
}

static inline uint64_t hash_fold(uint64_t a, uint64_t b)
{
    /* Not through a variable of 128 bits, which gcc would keep on the stack. */
    return (a * b) ^ (uint64_t)(((__uint128_t)a * b) >> 64);
}

static inline uint64_t hash_table(struct hash_key key, const void *text, size_t length)
{
    const unsigned char *bytes = text;
    const unsigned char *end = bytes + length;
    uint64_t seed = key.k0;
    uint64_t a = 0;
    uint64_t b = 0;

    /* The loads at both ends overlap where there is less than they read. */
    if (length > 16) {
        for (; end - bytes > 16; bytes += 16)
            seed = hash_fold(hash_load_64(bytes) ^ key.k1, hash_load_64(bytes + 8) ^ seed);
        a = hash_load_64(end - 16);
        b = hash_load_64(end - 8);
    } else if (length >= 8) {
        a = hash_load_64(bytes);
        b = hash_load_64(end - 8);
    } else if (length >= 4) {
        a = hash_load_32(bytes);
        b = hash_load_32(end - 4);
    } else if (length > 0) {
        a = (uint64_t)bytes[0] << 16 | (uint64_t)bytes[length / 2] << 8 | bytes[length - 1];
    }
    return hash_fold(key.k1 ^ length, hash_fold(a ^ key.k1, b ^ seed));
}
