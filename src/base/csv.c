/* csv.c: cells that are safe to open. */
#include "base/csv.h"

#include <stdbool.h>

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
