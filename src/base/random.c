/* random.c: the kernel's random bytes, and a small generator for jitter. */
#include "base/random.h"

#include <errno.h>
#include <sys/random.h>
#include <sys/types.h>

#include "base/error.h"

void random_bytes(void *bytes, size_t length)
{
    char *at = bytes;
    while (length > 0) {
        ssize_t count = getrandom(at, length, 0);
        if (count < 0) {
            ensure(errno == EINTR);
            continue;
        }
        at += count;
        length -= (size_t)count;
    }
}

/* SplitMix64: one addition and a mix per number, seeded by the kernel once per thread. */
static uint64_t jitter_next(void)
{
    static _Thread_local uint64_t state;
    while (state == 0)
        random_bytes(&state, sizeof(state));
    uint64_t mixed = state += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ (mixed >> 31);
}

uint64_t random_below(uint64_t limit)
{
    ensure(limit > 0);
    /* The high half of the product is spread evenly enough for jitter, without a division. */
    return (uint64_t)(((unsigned __int128)jitter_next() * limit) >> 64);
}
