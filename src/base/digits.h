/* digits.h: decimal digits written two at a time, for numbers and times on the way of every reply;
 * bytes as hexadecimal digits.
 *
 * Threads: pure functions.
 */
#pragma once

#include "base/buffer.h"

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
    if (rest >= 10)
        digits_put_2(at, rest);
    else
        *at = (char)('0' + rest);
}

/* Reads a whole number that has nothing but digits. False: there are none, there is something else,
 * or it is more than `most`,
 * which is at most INT64_MAX. */
static inline bool digits_read(struct span text, uint64_t most, uint64_t *number)
{
    *number = 0;
    for (size_t i = 0; i < text.length; i++) {
        unsigned digit = (unsigned char)text.bytes[i] - (unsigned)'0';
        if (digit > 9 || *number > most / 10)
            return false;
        *number = *number * 10 + digit;
    }
    return text.length > 0 && *number <= most;
}

/* --- hexadecimal --- */

/* The value of a digit in lower case; -1: it is none. */
static inline int hex_digit_lower(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The same in either case. */
static inline int hex_digit(char digit)
{
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : hex_digit_lower(digit);
}

/* Writes two digits in lower case for each byte, and no NUL. */
static inline void hex_write(char *text, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        text[2 * i] = "0123456789abcdef"[bytes[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[bytes[i] & 15];
    }
}

/* Reads exactly `count` bytes. False: there are more or fewer, or not only digits in lower case. */
static inline bool hex_read(struct span text, uint8_t *bytes, size_t count)
{
    bool is_good = text.length == 2 * count;

    for (size_t i = 0; is_good && i < count; i++) {
        int high = hex_digit_lower(text.bytes[2 * i]);
        int low = hex_digit_lower(text.bytes[2 * i + 1]);
        is_good = high >= 0 && low >= 0;
        bytes[i] = (uint8_t)((unsigned)high << 4 | (unsigned)low);
    }
    return is_good;
}
