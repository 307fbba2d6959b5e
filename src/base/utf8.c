/* utf8.c: a small strict decoder. */
#include "base/utf8.h"

size_t utf8_decode(const char *bytes, size_t length, uint32_t *code_point)
{
    /* The smallest code point that needs so many bytes: less is an overlong form. */
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};

    if (length == 0)
        return 0;
    unsigned char first = (unsigned char)bytes[0];
    if (first < 0x80) {
        *code_point = first;
        return 1;
    }
    size_t count = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length < count)
        return 0;
    uint32_t decoded = first & (0x7fu >> count);
    for (size_t i = 1; i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if ((byte & 0xc0) != 0x80)
            return 0;
        decoded = decoded << 6 | (byte & 0x3fu);
    }
    if (decoded < smallest[count] || decoded > 0x10ffff || (decoded >= 0xd800 && decoded <= 0xdfff))
        return 0;
    *code_point = decoded;
    return count;
}

bool utf8_is_deceptive(uint32_t code_point)
{
    return code_point < 0x20 || (code_point >= 0x7f && code_point <= 0x9f) ||
           code_point == 0x061c || (code_point >= 0x200e && code_point <= 0x200f) ||
           (code_point >= 0x2028 && code_point <= 0x202e) ||
           (code_point >= 0x2066 && code_point <= 0x2069) || code_point == 0xfeff;
}

bool utf8_is_space(uint32_t code_point)
{
    return code_point == ' ' || code_point == 0xa0 || code_point == 0x1680 ||
           (code_point >= 0x2000 && code_point <= 0x200a) || code_point == 0x202f ||
           code_point == 0x205f || code_point == 0x3000;
}

void utf8_append_visible(struct buffer *out, struct span text)
{
    size_t at = 0;

    while (at < text.length) {
        uint32_t code_point;
        size_t count = utf8_decode(text.bytes + at, text.length - at, &code_point);
        if (count == 0) {
            buffer_append_literal(out, "\xef\xbf\xbd");
            count = 1;
        } else if (utf8_is_deceptive(code_point)) {
            buffer_printf(out, "\\u%04x", (unsigned)code_point & 0xffff);
        } else {
            buffer_append(out, text.bytes + at, count);
        }
        at += count;
    }
}

struct span utf8_prefix(struct span text, size_t length_max)
{
    if (text.length <= length_max)
        return text;
    size_t length = length_max;
    while (length > 0 && ((unsigned char)text.bytes[length] & 0xc0) == 0x80)
        length--;
    return (struct span){.bytes = text.bytes, .length = length};
}
