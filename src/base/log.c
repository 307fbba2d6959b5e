/* log.c: puts one event into one escaped line, and the line into the sink or the ring before it. */
#include "base/log.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
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
        if (!line_append(line, piece))
            return false;
        text.bytes += count;
        text.length -= count;
    }
    return true;
}

/* Quotes always close, also around a value that was cut: the tail has room for them. */
static void line_append_quoted(struct log_line *line, struct span text)
{
    if (!line_append(line, SPAN("\"")))
        return;
    line_append_escaped(line, text);
    line->bytes[line->length++] = '"';
}

/* logfmt leaves plain words bare. */
static bool is_bare_word(struct span text)
{
    for (size_t i = 0; i < text.length; i++) {
        char byte = text.bytes[i];
        if (byte <= ' ' || byte > '~' || byte == '"' || byte == '=' || byte == '\\')
            return false;
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
    if (named)
        line_append_value(line, value);
    if (!named || line->length == value_at)
        line->length = mark;
}

/* The whole line, ready to be written. */
static void line_compose(struct log_line *line, enum log_level level, const char *event,
                         const struct log_field *fields, size_t field_count)
{
    static const char *const levels[] = {
        [LOG_DEBUG] = "debug", [LOG_INFO] = "info", [LOG_WARN] = "warn", [LOG_ERROR] = "error"};
    bool json = sink_format == LOG_JSON;
    char now[CLOCK_TEXT_SIZE];
    clock_format_rfc3339(clock_wall_ms(), now);
    line->length = 0;
    line->truncated = false;
    line_append_field(line, "ts", &LOG_TEXT(now));
    line_append_field(line, "level", &LOG_TEXT(levels[level]));
    line_append_field(line, "event", &LOG_TEXT(event));
    for (size_t i = 0; i < field_count && !line->truncated; i++)
        line_append_field(line, fields[i].name, &fields[i].value);
    struct span tail = json ? SPAN("}\n") : SPAN("\n");
    if (line->truncated)
        tail = json ? SPAN(",\"truncated\":true}\n") : SPAN(" truncated=true\n");
    memcpy(line->bytes + line->length, tail.bytes, tail.length);
    line->length += tail.length;
}

/* --- the ring, in which lines wait for the thread that writes them --- */

/* So many bytes leave a pipe whole, whoever else writes into it. */
#define BATCH_SIZE PIPE_BUF

/* How long a flush gives the reader to take the next batch before it looks, and how often it looks
 * at one that could be taken and is not. */
#define READER_MS     50
#define LOOKS_IN_VAIN 20

static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled; /* something to write, or the end */
    pthread_cond_t moved;  /* a batch was written */
    pthread_t thread;
    char *bytes; /* NULL: the ring does not run */
    size_t start;
    size_t length;
    uint64_t written_count;  /* batches */
    uint64_t dropped_count;  /* lines since the start */
    uint64_t reported_count; /* those of them that were told */
    bool is_writing;         /* a batch is on its way */
    bool ends;
} ring = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .filled = PTHREAD_COND_INITIALIZER,
    .moved = PTHREAD_COND_INITIALIZER,
};

/* False while the reader of a pipe takes nothing. */
static bool reader_takes(void)
{
    struct pollfd sink = {.fd = sink_fd, .events = POLLOUT};
    return poll(&sink, 1, 0) > 0;
}

/* Writes all of it, however often it is interrupted. False when that cannot be. */
static bool write_all(struct span bytes)
{
    while (bytes.length > 0) {
        ssize_t count = write(sink_fd, bytes.bytes, bytes.length);
        if (count < 0 && errno == EAGAIN) {
            /* Somebody else has made the descriptor, which we share, not wait. */
            struct pollfd sink = {.fd = sink_fd, .events = POLLOUT};
            (void)poll(&sink, 1, -1);
        } else if (count < 0 && errno != EINTR) {
            return false;
        } else if (count > 0) {
            bytes = (struct span){bytes.bytes + count, bytes.length - (size_t)count};
        }
    }
    return true;
}

/* Tells of what was dropped; on the ring's own thread. */
static void report_dropped(uint64_t count)
{
    struct log_line line;
    const struct log_field field = LOG_FIELD("lines", LOG_I64(count));
    line_compose(&line, LOG_WARN, "log_dropped", &field, 1);
    (void)write_all((struct span){line.bytes, line.length});
}

/* --- the thread --- */

/* Takes as many whole lines as make a batch out of the ring; with the lock held. */
static size_t take_batch(char batch[BATCH_SIZE])
{
    size_t length = ring.length < BATCH_SIZE ? ring.length : BATCH_SIZE;
    if (length == 0)
        return 0; /* at the end there is no ring either */
    size_t first = LOG_RING_SIZE - ring.start;
    if (first > length)
        first = length;
    memcpy(batch, ring.bytes + ring.start, first);
    memcpy(batch + first, ring.bytes, length - first);
    const char *end = memrchr(batch, '\n', length);
    length = end != NULL ? (size_t)(end - batch) + 1 : 0;
    ring.start = (ring.start + length) % LOG_RING_SIZE;
    ring.length -= length;
    return length;
}

static uint64_t count_lines(const char *bytes, size_t length)
{
    uint64_t count = 0;
    for (size_t at = 0; at < length; at++)
        count += bytes[at] == '\n';
    return count;
}

static void *write_lines(void *context)
{
    char batch[BATCH_SIZE];
    pthread_mutex_lock(&ring.lock);
    for (;;) {
        uint64_t dropped = ring.dropped_count - ring.reported_count;
        size_t length = take_batch(batch);
        if (length == 0 && dropped == 0) {
            if (ring.ends)
                break;
            pthread_cond_wait(&ring.filled, &ring.lock);
            continue;
        }
        ring.reported_count += dropped;
        ring.is_writing = true;
        pthread_mutex_unlock(&ring.lock);
        bool written = write_all((struct span){batch, length});
        if (dropped > 0)
            report_dropped(dropped);
        pthread_mutex_lock(&ring.lock);
        ring.dropped_count += written ? 0 : count_lines(batch, length);
        ring.is_writing = false;
        ring.written_count++;
        pthread_cond_broadcast(&ring.moved);
    }
    pthread_mutex_unlock(&ring.lock);
    return NULL;
}

/* No signal is for this thread: those who wait for them have to get them. */
static bool start_thread(void)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&ring.thread, NULL, write_lines, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void log_start(void)
{
    pthread_mutex_lock(&ring.lock);
    ring.start = 0;
    ring.length = 0;
    ring.ends = false;
    ring.bytes = malloc(LOG_RING_SIZE);
    if (ring.bytes != NULL && !start_thread()) {
        free(ring.bytes);
        ring.bytes = NULL;
    }
    pthread_mutex_unlock(&ring.lock);
}

/* --- those who log --- */

static bool ring_put(struct span line)
{
    pthread_mutex_lock(&ring.lock);
    bool runs = ring.bytes != NULL;
    if (runs && line.length > LOG_RING_SIZE - ring.length) {
        ring.dropped_count++;
    } else if (runs) {
        size_t at = (ring.start + ring.length) % LOG_RING_SIZE;
        size_t first = LOG_RING_SIZE - at < line.length ? LOG_RING_SIZE - at : line.length;
        memcpy(ring.bytes + at, line.bytes, first);
        memcpy(ring.bytes, line.bytes + first, line.length - first);
        ring.length += line.length;
        if (!ring.is_writing)
            pthread_cond_signal(&ring.filled);
    }
    pthread_mutex_unlock(&ring.lock);
    return runs;
}

void log_write(enum log_level level, const char *event, const struct log_field *fields,
               size_t field_count)
{
    if (level < sink_level)
        return;
    int errno_before = errno;
    struct log_line line;
    line_compose(&line, level, event, fields, field_count);
    struct span bytes = {line.bytes, line.length};
    if (!ring_put(bytes))
        (void)write_all(bytes);
    errno = errno_before;
}

/* Waits for the next batch to be written, or for a while; with the lock held. */
static void await_move(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += READER_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(&ring.moved, &ring.lock, &until);
}

/* With the lock held, which it lets go of while it waits. A reader that takes nothing ends the
 * wait, whatever is left. */
static bool drain(void)
{
    unsigned in_vain = 0;
    while (ring.bytes != NULL && (ring.length > 0 || ring.is_writing)) {
        uint64_t written_count = ring.written_count;
        await_move();
        in_vain = ring.written_count == written_count ? in_vain + 1 : 0;
        if (in_vain == LOOKS_IN_VAIN || (in_vain > 0 && !reader_takes()))
            return false;
    }
    return true;
}

void log_flush(void)
{
    pthread_mutex_lock(&ring.lock);
    (void)drain();
    pthread_mutex_unlock(&ring.lock);
}

void log_stop(void)
{
    pthread_mutex_lock(&ring.lock);
    if (ring.bytes == NULL) {
        pthread_mutex_unlock(&ring.lock);
        return;
    }
    bool drained = drain();
    char *bytes = ring.bytes;
    ring.bytes = NULL;
    ring.length = 0;
    ring.ends = true;
    pthread_cond_signal(&ring.filled);
    pthread_mutex_unlock(&ring.lock);
    if (drained) {
        pthread_join(ring.thread, NULL);
    } else {
        /* It stands in a write that nobody takes; the process's end ends it. */
        pthread_detach(ring.thread);
    }
    free(bytes);
}

uint64_t log_dropped(void)
{
    pthread_mutex_lock(&ring.lock);
    uint64_t count = ring.dropped_count;
    pthread_mutex_unlock(&ring.lock);
    return count;
}
