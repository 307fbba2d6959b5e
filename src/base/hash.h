/* hash.h: keyed 64-bit hashing of short strings (SipHash), for tables and for coupon codes.
 *
 * Tables that hold what strangers send use a random key, so that nobody can aim for one slot.
 *
 * Threads: pure functions.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

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

/* SipHash-1-3: for tables. In the header because every claim is looked up with it. */
static inline uint64_t hash_table(struct hash_key key, const void *bytes, size_t length);

/* SipHash-2-4: a MAC over short input, for codes that must not be guessed. */
uint64_t hash_mac(struct hash_key key, const void *bytes, size_t length);

/* What follows is SipHash itself, by Aumasson and Bernstein. */

struct hash_state {
    uint64_t v0, v1, v2, v3;
};

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

static inline uint64_t hash_rotate(uint64_t word, unsigned count)
{
    return word << count | word >> (64 - count);
}

static inline __attribute__((always_inline)) void hash_rounds(struct hash_state *state, int count)
{
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        state->v0 += state->v1;
        state->v2 += state->v3;
        state->v1 = hash_rotate(state->v1, 13) ^ state->v0;
        state->v3 = hash_rotate(state->v3, 16) ^ state->v2;
        state->v0 = hash_rotate(state->v0, 32) + state->v3;
        state->v2 += state->v1;
        state->v1 = hash_rotate(state->v1, 17) ^ state->v2;
        state->v3 = hash_rotate(state->v3, 21) ^ state->v0;
        state->v2 = hash_rotate(state->v2, 32);
    }
}

/* The last length % 8 bytes as a number. Loads overlap the bytes before them where there are any,
 * which is cheaper than going byte by byte. */
static inline uint64_t hash_tail(const unsigned char *end, size_t length)
{
    size_t count = length % 8;
    if (count == 0) {
        return 0;
    }
    if (length >= 8) {
        return hash_load_64(end - 8) >> (64 - 8 * count);
    }
    if (count >= 4) {
        return hash_load_32(end - count) | hash_load_32(end - 4) << (8 * (count - 4));
    }
    const unsigned char *start = end - count;
    return (uint64_t)start[0] | (uint64_t)start[count / 2] << (8 * (count / 2)) |
           (uint64_t)start[count - 1] << (8 * (count - 1));
}

static inline __attribute__((always_inline)) void hash_compress(struct hash_state *state,
                                                                uint64_t word, int rounds)
{
    state->v3 ^= word;
    hash_rounds(state, rounds);
    state->v0 ^= word;
}

/* Always inlined, so that both round counts become constants. */
static inline __attribute__((always_inline)) uint64_t hash_sip(struct hash_key key,
                                                               const unsigned char *bytes,
                                                               size_t length, int block_rounds,
                                                               int final_rounds)
{
    struct hash_state state = {
        .v0 = key.k0 ^ UINT64_C(0x736f6d6570736575),
        .v1 = key.k1 ^ UINT64_C(0x646f72616e646f6d),
        .v2 = key.k0 ^ UINT64_C(0x6c7967656e657261),
        .v3 = key.k1 ^ UINT64_C(0x7465646279746573),
    };
    const unsigned char *end = bytes + length;
    for (; end - bytes >= 8; bytes += 8) {
        hash_compress(&state, hash_load_64(bytes), block_rounds);
    }
    hash_compress(&state, hash_tail(end, length) | (uint64_t)length << 56, block_rounds);
    state.v2 ^= 0xff;
    hash_rounds(&state, final_rounds);
    return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

static inline uint64_t hash_table(struct hash_key key, const void *bytes, size_t length)
{
    return hash_sip(key, bytes, length, 1, 3);
}

#endif
