/* json_write.c: writes JSON text. */
#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"

/* Those that have a letter of their own; the others are written by their number. */
static void append_escape(struct buffer *out, unsigned char byte)
{
    static const char hex[] = "0123456789abcdef";
    static const char letters[256] = {
        ['"'] = '"', ['\\'] = '\\', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    char letter[] = {'\\', letters[byte]};
    char number[] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};

    if (letters[byte] != '\0')
        buffer_append(out, letter, sizeof(letter));
    else
        buffer_append(out, number, sizeof(number));
}

void json_append_text(struct buffer *out, struct span text)
{
    static const bool plain[256] = {
        [' ' ... '!'] = true, ['#' ... '['] = true, [']' ... '~'] = true};

    buffer_append_literal(out, "\"");
    size_t run_start = 0; /* what follows it and is plain goes out in one piece */
    size_t at = 0;
    for (;;) {
        while (at < text.length && plain[(unsigned char)text.bytes[at]])
            at++;
        if (at == text.length)
            break;
        uint32_t code_point;
        size_t count = utf8_decode(text.bytes + at, text.length - at, &code_point);
        if (count > 1 && !utf8_is_deceptive(code_point)) {
            at += count;
            continue;
        }
        if (at > run_start)
            buffer_append(out, text.bytes + run_start, at - run_start);
        if (count == 1)
            append_escape(out, (unsigned char)text.bytes[at]);
        else if (count > 1)
            buffer_printf(out, "\\u%04x", (unsigned)code_point & 0xffff);
        else
            buffer_append_literal(out, "\xef\xbf\xbd");
        at += count > 1 ? count : 1;
        run_start = at;
    }
    if (at > run_start)
        buffer_append(out, text.bytes + run_start, at - run_start);
    buffer_append_literal(out, "\"");
}

void json_append_time(struct buffer *out, int64_t wall_ms)
{
    if (wall_ms == 0) {
        buffer_append_literal(out, "null");
        return;
    }
    char text[CLOCK_TEXT_SIZE + 2];
    text[0] = '"';
    clock_format_rfc3339(wall_ms, text + 1);
    text[CLOCK_TEXT_SIZE] = '"';
    buffer_append(out, text, CLOCK_TEXT_SIZE + 1);
}

/* A value ends with a quote, a bracket, or the last character of a number or a word. */
static void json_comma(struct buffer *out)
{
    char last = out->length > 0 ? out->bytes[out->length - 1] : ' ';

    if (last == '"' || last == '}' || last == ']' || (last >= '0' && last <= '9') ||
        (last >= 'a' && last <= 'z'))
        buffer_append_literal(out, ",");
}

void json_begin(struct buffer *out, char bracket)
{
    json_comma(out);
    buffer_append(out, &bracket, 1);
}

void json_name(struct buffer *out, const char *quoted, size_t length)
{
    json_comma(out);
    buffer_append(out, quoted, length);
}

void json_append_flag(struct buffer *out, bool flag)
{
    buffer_append_text(out, flag ? "true" : "false");
}

void json_append_chars(struct buffer *out, const char *text)
{
    if (text == NULL)
        buffer_append_literal(out, "null");
    else
        json_append_text(out, span_of(text));
}
