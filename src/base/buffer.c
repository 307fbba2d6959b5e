/* buffer.c: growth, numbers and cells of the bounded buffer. */
#include "base/buffer.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/digits.h"

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

void secret_free(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}

bool buffer_reserve(struct buffer *buffer, size_t extra)
{
    if (buffer->overflowed)
        return false;
    if (extra > buffer->length_max - buffer->length) {
        buffer->overflowed = true;
        return false;
    }
    size_t needed = buffer->length + extra + 1;
    if (needed <= buffer->capacity)
        return true;
    size_t capacity_max = buffer->length_max + 1;
    size_t capacity = buffer->capacity > 0 ? buffer->capacity : CAPACITY_MIN;
    while (capacity < needed)
        capacity = capacity > capacity_max / 2 ? capacity_max : capacity * 2;
    if (capacity > capacity_max)
        capacity = capacity_max;
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

void buffer_append_slow(struct buffer *buffer, const void *bytes, size_t length)
{
    if (length == 0 || !buffer_reserve(buffer, length))
        return;
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
    buffer->bytes[buffer->length] = '\0';
}

void buffer_printf(struct buffer *buffer, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    ensure(length >= 0);
    if ((size_t)length < sizeof(text)) {
        buffer_append(buffer, text, (size_t)length);
        return;
    }
    if (!buffer_reserve(buffer, (size_t)length))
        return;
    va_start(arguments, format);
    vsnprintf(buffer->bytes + buffer->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    buffer->length += (size_t)length;
}

void buffer_append_u64(struct buffer *buffer, uint64_t number)
{
    size_t count = digits_count(number);
    bool fits = !buffer->overflowed && buffer->capacity - buffer->length > count;
    if (!fits && !buffer_reserve(buffer, count))
        return;
    digits_put(buffer->bytes + buffer->length, number, count);
    buffer->length += count;
    buffer->bytes[buffer->length] = '\0';
}

void buffer_append_i64(struct buffer *buffer, int64_t number)
{
    if (number >= 0) {
        buffer_append_u64(buffer, (uint64_t)number);
        return;
    }
    uint64_t size = -(uint64_t)number;
    /* Room for all of it first, so that the sign never stands alone. */
    if (buffer_reserve(buffer, 1 + digits_count(size))) {
        buffer_append_literal(buffer, "-");
        buffer_append_u64(buffer, size);
    }
}

/* --- cells of a CSV file --- */

static bool is_one_of(char byte, struct span bytes)
{
    return memchr(bytes.bytes, byte, bytes.length) != NULL;
}

static bool begins_a_formula(struct span text)
{
    return text.length > 0 && is_one_of(text.bytes[0], SPAN("=+-@\t\r"));
}

static bool needs_quotes(struct span text)
{
    for (size_t at = 0; at < text.length; at++)
        if (is_one_of(text.bytes[at], SPAN(",\"\r\n")))
            return true;
    return false;
}

void csv_append_text(struct buffer *out, struct span text)
{
    bool quoted = needs_quotes(text);
    if (quoted)
        buffer_append_literal(out, "\"");
    if (begins_a_formula(text))
        buffer_append_literal(out, "'");
    if (!quoted) {
        buffer_append_span(out, text);
        return;
    }
    for (size_t at = 0; at < text.length; at++) {
        if (text.bytes[at] == '"')
            buffer_append_literal(out, "\"");
        buffer_append(out, text.bytes + at, 1);
    }
    buffer_append_literal(out, "\"");
}
