/* buffer.h: a growing run of bytes with a hard maximum.
 *
 * Appending past the maximum (or running out of memory) sets `overflowed`, drops the append and
 * every later one, and changes nothing else; callers append freely and check once at the end.
 * The bytes are always followed by a NUL that is not counted, once anything was appended.
 *
 * Threads: one owner at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"

/* Bytes that belong to someone else; valid as long as their owner says. */
struct span {
    const char *bytes;
    size_t length;
};

#define SPAN(literal) ((struct span){.bytes = "" literal, .length = sizeof(literal) - 1})

static inline struct span span_of(const char *text)
{
    return (struct span){.bytes = text, .length = strlen(text)};
}

static inline bool span_equal(struct span a, struct span b)
{
    return a.length == b.length && (a.length == 0 || memcmp(a.bytes, b.bytes, a.length) == 0);
}

struct buffer {
    char *bytes;
    size_t length;
    size_t capacity;
    size_t length_max;
    bool overflowed;
};

/* Its bytes, until the next append. */
static inline struct span buffer_span(const struct buffer *buffer)
{
    return (struct span){.bytes = buffer->bytes, .length = buffer->length};
}

/* Starts empty and allocates nothing until the first append. */
void buffer_init(struct buffer *buffer, size_t length_max);
void buffer_release(struct buffer *buffer);

/* Wipes and frees a text that may be, or hold, a secret; NULL is fine. */
void secret_free(char *text);

/* Empties it and keeps the memory. */
static inline void buffer_clear(struct buffer *buffer)
{
    buffer->length = 0;
    buffer->overflowed = false;
}

/* Makes room for `extra` more bytes; false (and overflowed) when that passes the maximum. */
bool buffer_reserve(struct buffer *buffer, size_t extra);

void buffer_append_slow(struct buffer *buffer, const void *bytes, size_t length);
void buffer_printf(struct buffer *buffer, const char *format, ...) PRINTF_LIKE(2, 3);
void buffer_append_u64(struct buffer *buffer, uint64_t number);
void buffer_append_i64(struct buffer *buffer, int64_t number);

static inline void buffer_append(struct buffer *buffer, const void *bytes, size_t length)
{
    if (!buffer->overflowed && buffer->capacity - buffer->length > length) {
        memcpy(buffer->bytes + buffer->length, bytes, length);
        buffer->length += length;
        buffer->bytes[buffer->length] = '\0';
        return;
    }
    buffer_append_slow(buffer, bytes, length);
}

static inline void buffer_append_text(struct buffer *buffer, const char *text)
{
    buffer_append(buffer, text, strlen(text));
}

static inline void buffer_append_span(struct buffer *buffer, struct span span)
{
    if (span.length > 0) /* an empty span may have no bytes to point to */
        buffer_append(buffer, span.bytes, span.length);
}

#define buffer_append_literal(buffer, literal) buffer_append(buffer, literal, sizeof(literal) - 1)

/* --- cells of a CSV file (RFC 4180) that a spreadsheet shows and never runs --- */

/* A text as one cell. One that a spreadsheet would take for a formula (it begins with = + - @, a
 * tab or a CR) gets a ' in front; one with a comma, a quote or a line end is quoted. */
void csv_append_text(struct buffer *out, struct span text);
