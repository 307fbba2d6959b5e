/* buffer.c: growth and number formatting of the bounded buffer. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CAPACITY_MIN 128

void buffer_init(struct buffer *buffer, size_t length_max)
{
    /* One byte of address space stays free for the NUL. */
    ensure(length_max < SIZE_MAX);
    *buffer = (struct buffer){.length_max = length_max};
}

void buffer_release(struct buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct buffer){.length_max = buffer->length_max};
}

bool buffer_reserve(struct buffer *buffer, size_t extra)
{
    if (buffer->overflowed) {
        return false;
    }
    if (extra > buffer->length_max - buffer->length) {
        buffer->overflowed = true;
        return false;
    }
    size_t needed = buffer->length + extra + 1;
    if (needed <= buffer->capacity) {
        return true;
    }
    size_t capacity_max = buffer->length_max + 1;
    size_t capacity = buffer->capacity > 0 ? buffer->capacity : CAPACITY_MIN;
    while (capacity < needed) {
        capacity = capacity > capacity_max / 2 ? capacity_max : capacity * 2;
    }
    if (capacity > capacity_max) {
        capacity = capacity_max;
    }
    char *bytes = realloc(buffer->bytes, capacity);
    if (bytes == NULL) {
        buffer->overflowed = true;
        return false;
    }
    bytes[buffer->length] = '\0';
    buffer->bytes = bytes;
    buffer->capacity = capacity;
    return true;
}

void buffer_consume(struct buffer *buffer, size_t count)
{
    ensure(count <= buffer->length);
    if (count == 0) {
        return;
    }
    buffer->length -= count;
    memmove(buffer->bytes, buffer->bytes + count, buffer->length + 1);
}

void buffer_append_slow(struct buffer *buffer, const void *bytes, size_t length)
{
    if (length == 0 || !buffer_reserve(buffer, length)) {
        return;
    }
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    buffer->bytes[buffer->length] = '\0';
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
    char words[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(words, sizeof(words), format, arguments);
    va_end(arguments);
    ensure(length >= 0);
    if ((size_t)length < sizeof(words)) {
        buffer_append(buffer, words, (size_t)length);
        return;
    }
    if (!buffer_reserve(buffer, (size_t)length)) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(buffer->bytes + buffer->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->length += (size_t)length;
}

/* "00" to "99": halves the divisions. */
static const char digit_pairs[200] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546"
    "4748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293"
    "949596979899";

/* Writes the digits so that they end before `end`, and returns where they start. */
static char *write_digits(char *end, uint64_t number)
{
    char *at = end;
    while (number >= 100) {
        at -= 2;
        memcpy(at, digit_pairs + 2 * (number % 100), 2);
        number /= 100;
    }
    if (number >= 10) {
        at -= 2;
        memcpy(at, digit_pairs + 2 * number, 2);
    } else {
        *--at = (char)('0' + number);
    }
    return at;
}

void buffer_append_u64(struct buffer *buffer, uint64_t number)
{
    char digits[20];
    char *end = digits + sizeof(digits);
    char *start = write_digits(end, number);
    buffer_append(buffer, start, (size_t)(end - start));
}

void buffer_append_i64(struct buffer *buffer, int64_t number)
{
    char digits[20];
    char *end = digits + sizeof(digits);
    char *start = write_digits(end, number < 0 ? -(uint64_t)number : (uint64_t)number);
    if (number < 0) {
        *--start = '-';
    }
    buffer_append(buffer, start, (size_t)(end - start));
}
