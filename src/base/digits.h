/* digits.h: decimal digits written two at a time, for numbers and times on the way of every reply.
 *
 * Threads: pure functions.
 */
#ifndef BASE_DIGITS_H
#define BASE_DIGITS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Writes `number` (0-99) as two digits. */
static inline void digits_put_2(char *at, uint64_t number)
{
    static const char pairs[200] =
        "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243"
        "4445464748495051525354555657585960616263646566676869707172737475767778798081828384858687"
        "888990919293949596979899";
    memcpy(at, pairs + 2 * number, 2);
}

/* How many digits `number` has; 1 for 0. */
static inline size_t digits_count(uint64_t number)
{
    static const uint64_t powers[20] = {
        0,
        UINT64_C(10),
        UINT64_C(100),
        UINT64_C(1000),
        UINT64_C(10000),
        UINT64_C(100000),
        UINT64_C(1000000),
        UINT64_C(10000000),
        UINT64_C(100000000),
        UINT64_C(1000000000),
        UINT64_C(10000000000),
        UINT64_C(100000000000),
        UINT64_C(1000000000000),
        UINT64_C(10000000000000),
        UINT64_C(100000000000000),
        UINT64_C(1000000000000000),
        UINT64_C(10000000000000000),
        UINT64_C(100000000000000000),
        UINT64_C(1000000000000000000),
        UINT64_C(10000000000000000000),
    };
    /* Bits times log10(2), which is never more than one too few. */
    unsigned bits = 64 - (unsigned)__builtin_clzll(number | 1);
    unsigned guess = bits * 1233 >> 12;
    return guess + (number >= powers[guess]);
}

/* Writes all `count` = digits_count(number) digits to `at`. */
static inline void digits_put(char *at, uint64_t number, size_t count)
{
    char *end = at + count;
    while (number > UINT32_MAX) {
        end -= 2;
        digits_put_2(end, number % 100);
        number /= 100;
    }
    /* Most numbers start here: dividing 32 bits takes half the work. */
    uint32_t rest = (uint32_t)number;
    while (rest >= 100) {
        end -= 2;
        digits_put_2(end, rest % 100);
        rest /= 100;
    }
    if (rest >= 10) {
        digits_put_2(at, rest);
    } else {
        *at = (char)('0' + rest);
    }
}

#endif
