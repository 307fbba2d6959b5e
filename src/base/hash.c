/* hash.c: the hashing that is not on the way of every claim. */
#include "base/hash.h"

#include <sodium.h>

#include "base/random.h"

struct hash_key hash_key_random(void)
{
    struct hash_key key;
    random_bytes(&key, sizeof(key));
    return key;
}

uint64_t hash_mac(struct hash_key key, const void *bytes, size_t length)
{
    uint64_t words[2] = {htole64(key.k0), htole64(key.k1)};
    unsigned char hash[crypto_shorthash_siphash24_BYTES];

    _Static_assert(sizeof(words) == crypto_shorthash_siphash24_KEYBYTES, "a SipHash key");
    crypto_shorthash_siphash24(hash, bytes, length, (const unsigned char *)words);
    return hash_load_64(hash);
}
