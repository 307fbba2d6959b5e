/* utf8.c: a small strict decoder. */
#include "base/utf8.h"

size_t utf8_decode(const char *bytes, size_t length, uint32_t *code_point)
{
    /* The smallest code point that needs so many bytes: less is an overlong form. */
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};

    if (length == 0) {
        return 0;
    }
    unsigned char first = (unsigned char)bytes[0];
    if (first < 0x80) {
        *code_point = first;
        return 1;
    }
    size_t count = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length < count) {
        return 0;
    }
    uint32_t decoded = first & (0x7fu >> count);
    for (size_t i = 1; i < count; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if ((byte & 0xc0) != 0x80) {
            return 0;
        }
        decoded = decoded << 6 | (byte & 0x3fu);
    }
    if (decoded < smallest[count] || decoded > 0x10ffff ||
        (decoded >= 0xd800 && decoded <= 0xdfff)) {
        return 0;
    }
    *code_point = decoded;
    return count;
}

struct span utf8_prefix(struct span text, size_t length_max)
{
    if (text.length <= length_max) {
        return text;
    }
    size_t length = length_max;
    while (length > 0 && ((unsigned char)text.bytes[length] & 0xc0) == 0x80) {
        length--;
    }
    return (struct span){.bytes = text.bytes, .length = length};
}
