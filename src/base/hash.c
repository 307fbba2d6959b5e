/* hash.c: the hashing that is not on the way of every claim. */
#include "base/hash.h"

#include "base/random.h"

struct hash_key hash_key_random(void)
{
    struct hash_key key;
    random_bytes(&key, sizeof(key));
    return key;
}

uint64_t hash_mac(struct hash_key key, const void *bytes, size_t length)
{
    return hash_sip(key, bytes, length, 2, 4);
}
