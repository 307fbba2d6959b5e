/* utf8.h: reading UTF-8 that strangers sent.
 *
 * Well-formed as Unicode says: no surrogates, no overlong forms, nothing above U+10FFFF.
 *
 * Threads: pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

/* The length (1-4) of the character at the start of `bytes`, or 0 when there is none or it is
 * malformed; `code_point` is set only in the first case. */
size_t utf8_decode(const char *bytes, size_t length, uint32_t *code_point);

/* Whether it would end a line, move a terminal's cursor or turn its text around: all of them below
 * U+10000, so that \uXXXX can stand for them. */
bool utf8_is_deceptive(uint32_t code_point);

/* Whether it is a blank in Unicode that ends no line: one at an end of a word is not seen. */
bool utf8_is_space(uint32_t code_point);

/* Appends the text with \uXXXX for each deceptive character, and U+FFFD for what is malformed. */
void utf8_append_visible(struct buffer *out, struct span text);

/* The longest beginning of `text` that has at most `length_max` bytes and splits no character. */
struct span utf8_prefix(struct span text, size_t length_max);
