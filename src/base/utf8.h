/* utf8.h: reading UTF-8 that strangers sent.
 *
 * Well-formed as Unicode says: no surrogates, no overlong forms, nothing above U+10FFFF.
 *
 * Threads: pure functions.
 */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/* The length (1-4) of the character at the start of `bytes`, or 0 when there is none or it is
 * malformed; `code_point` is set only in the first case. */
size_t utf8_decode(const char *bytes, size_t length, uint32_t *code_point);

/* The longest beginning of `text` that has at most `length_max` bytes and splits no character. */
struct span utf8_prefix(struct span text, size_t length_max);

#endif
