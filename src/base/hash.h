/* hash.h: keyed 64-bit hashing of short strings (SipHash), for tables and for coupon codes.
 *
 * Tables that hold what strangers send use a random key, so that nobody can aim for one slot.
 *
 * Threads: pure functions.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash_key {
    uint64_t k0;
    uint64_t k1;
};

/* A fresh random key. */
struct hash_key hash_key_random(void);

/* SipHash-1-3: for tables. */
uint64_t hash_table(struct hash_key key, const void *bytes, size_t length);

/* SipHash-2-4: a MAC over short input, for codes that must not be guessed. */
uint64_t hash_mac(struct hash_key key, const void *bytes, size_t length);

#endif
