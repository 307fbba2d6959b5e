/* log.c: puts one event into one escaped line, and the line into the sink. */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_ring.h"
#include "base/utf8.h"

#define LINE_SIZE_MAX 4096
/* Kept free for what closes a line that was cut: ,"truncated":true} and the newline. */
#define LINE_TAIL_SIZE 32

/* The sink. Set before threads start, only read afterwards. */
static enum log_level sink_level = LOG_INFO;
static enum log_format sink_format = LOG_LOGFMT;
static int sink_fd = STDERR_FILENO;

struct log_line {
    char bytes[LINE_SIZE_MAX];
    size_t length;
    bool truncated;
};

void log_configure(enum log_level level, enum log_format format, int file_descriptor)
{
    sink_level = level;
    sink_format = format;
    sink_fd = file_descriptor;
}

enum log_level log_level(void)
{
    return sink_level;
}

static const char *level_name(enum log_level level)
{
    switch (level) {
    case LOG_DEBUG:
        return "debug";
    case LOG_INFO:
        return "info";
    case LOG_WARN:
        return "warn";
    case LOG_ERROR:
        return "error";
    }
    ensure_failed("a known log level", __FILE__, __LINE__, __func__);
}

static size_t line_room(const struct log_line *line)
{
    size_t limit = LINE_SIZE_MAX - LINE_TAIL_SIZE;
    return line->length < limit ? limit - line->length : 0;
}

/* All or nothing; false, and the line counts as cut, when it does not fit before the tail. */
static bool line_append(struct log_line *line, struct span bytes)
{
    if (line->truncated || bytes.length > line_room(line)) {
        line->truncated = true;
        return false;
    }
    memcpy(line->bytes + line->length, bytes.bytes, bytes.length);
    line->length += bytes.length;
    return true;
}

/* The same escapes serve logfmt and JSON. */
static bool line_append_escaped(struct log_line *line, struct span text)
{
    char escape[8];
    while (text.length > 0) {
        uint32_t code_point;
        size_t count = utf8_decode(text.bytes, text.length, &code_point);
        struct span piece = {.bytes = text.bytes, .length = count};
        if (count == 0) {
            count = 1;
            piece = SPAN("\xef\xbf\xbd"); /* U+FFFD */
        } else if (code_point == '"' || code_point == '\\') {
            piece.length = (size_t)snprintf(escape, sizeof(escape), "\\%c", (char)code_point);
            piece.bytes = escape;
        } else if (code_point == '\n') {
            piece = SPAN("\\n");
        } else if (utf8_is_deceptive(code_point)) {
            piece.length =
                (size_t)snprintf(escape, sizeof(escape), "\\u%04x", (unsigned)code_point & 0xffff);
            piece.bytes = escape;
        }
        if (!line_append(line, piece)) {
            return false;
        }
        text.bytes += count;
        text.length -= count;
    }
    return true;
}

/* Quotes always close, also around a value that was cut: the tail has room for them. */
static void line_append_quoted(struct log_line *line, struct span text)
{
    if (!line_append(line, SPAN("\""))) {
        return;
    }
    line_append_escaped(line, text);
    line->bytes[line->length++] = '"';
}

/* logfmt leaves plain words bare. */
static bool is_bare_word(struct span text)
{
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.bytes[i];
        if (byte <= ' ' || byte > '~' || byte == '"' || byte == '=' || byte == '\\') {
            return false;
        }
    }
    return text.length > 0;
}

static void line_append_text(struct log_line *line, struct span text)
{
    if (sink_format == LOG_LOGFMT && is_bare_word(text)) {
        size_t room = line_room(line);
        line_append(line, utf8_prefix(text, room));
        line->truncated = line->truncated || text.length > room;
        return;
    }
    line_append_quoted(line, text);
}

static void line_append_value(struct log_line *line, const struct log_value *value)
{
    char digits[40];
    switch (value->kind) {
    case LOG_VALUE_TEXT:
        line_append_text(line, value->text);
        return;
    case LOG_VALUE_I64:
        snprintf(digits, sizeof(digits), "%" PRId64, value->number);
        break;
    case LOG_VALUE_DOUBLE:
        if (isfinite(value->real)) {
            snprintf(digits, sizeof(digits), "%.9g", value->real);
        } else {
            /* JSON has no word for these. */
            snprintf(digits, sizeof(digits), "null");
        }
        break;
    case LOG_VALUE_BOOL:
        snprintf(digits, sizeof(digits), "%s", value->number != 0 ? "true" : "false");
        break;
    }
    line_append(line, span_of(digits));
}

/* A field whose name or short value does not fit is left out altogether. */
static void line_append_field(struct log_line *line, const char *name,
                              const struct log_value *value)
{
    size_t mark = line->length;
    if (sink_format == LOG_JSON) {
        line_append(line, mark > 0 ? SPAN(",") : SPAN("{"));
        line_append_quoted(line, span_of(name));
        line_append(line, SPAN(":"));
    } else {
        line_append(line, mark > 0 ? SPAN(" ") : SPAN(""));
        line_append(line, span_of(name));
        line_append(line, SPAN("="));
    }
    size_t value_at = line->length;
    bool named = !line->truncated;
    if (named) {
        line_append_value(line, value);
    }
    if (!named || line->length == value_at) {
        line->length = mark;
    }
}

/* The whole line, ready to be written. */
static void line_compose(struct log_line *line, enum log_level level, const char *event,
                         const struct log_field *fields, size_t field_count)
{
    bool json = sink_format == LOG_JSON;
    char now[CLOCK_TEXT_SIZE];
    clock_format_rfc3339(clock_wall_ms(), now);
    line->length = 0;
    line->truncated = false;
    line_append_field(line, "ts", &LOG_TEXT(now));
    line_append_field(line, "level", &LOG_TEXT(level_name(level)));
    line_append_field(line, "event", &LOG_TEXT(event));
    for (size_t i = 0; i < field_count && !line->truncated; i++) {
        line_append_field(line, fields[i].name, &fields[i].value);
    }
    struct span tail = json ? SPAN("}\n") : SPAN("\n");
    if (line->truncated) {
        tail = json ? SPAN(",\"truncated\":true}\n") : SPAN(" truncated=true\n");
    }
    memcpy(line->bytes + line->length, tail.bytes, tail.length);
    line->length += tail.length;
}

void log_write(enum log_level level, const char *event, const struct log_field *fields,
               size_t field_count)
{
    if (level < sink_level) {
        return;
    }
    int errno_before = errno;
    struct log_line line;
    line_compose(&line, level, event, fields, field_count);
    struct span bytes = {line.bytes, line.length};
    if (!log_ring_put(bytes)) {
        (void)log_ring_write(sink_fd, bytes);
    }
    errno = errno_before;
}

/* Tells of what was dropped; on the ring's own thread. */
static void report_dropped(uint64_t count)
{
    struct log_line line;
    const struct log_field field = LOG_FIELD("lines", LOG_I64(count));
    line_compose(&line, LOG_WARN, "log_dropped", &field, 1);
    (void)log_ring_write(sink_fd, (struct span){line.bytes, line.length});
}

void log_start(void)
{
    log_ring_start(sink_fd, report_dropped);
}

void log_flush(void)
{
    log_ring_flush();
}

void log_stop(void)
{
    log_ring_stop();
}

uint64_t log_dropped(void)
{
    return log_ring_dropped();
}
