/* log.h: structured lines on stderr, one event each, as logfmt or JSON.
 *
 *   log_event(LOG_INFO, "policy_created", LOG_FIELD("policy", LOG_I64(42)));
 *   → ts=2026-11-15T12:00:00.000Z level=info event=policy_created policy=42
 *
 * Values are escaped, so that nobody's input can forge a line; a line is at most 4 KiB and is
 * never mixed with another. Secrets are never passed to it.
 *
 * A command writes its lines itself. A service calls log_start(): from then on lines go through a
 * ring of LOG_RING_SIZE bytes to a thread of their own, so that whoever reads them slowly, or not
 * at all, holds up nobody else. What finds the ring full is dropped, counted, and reported in a
 * line of its own (log_dropped) as soon as one can be written.
 *
 * Threads: safe from any. The sink is the one mutable global besides the signal flag; it is set
 * once before threads start.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

struct log_value {
    enum { LOG_VALUE_TEXT, LOG_VALUE_I64, LOG_VALUE_DOUBLE, LOG_VALUE_BOOL } kind;
    struct span text;
    int64_t number;
    double real;
};

#define LOG_TEXT(value) ((struct log_value){.kind = LOG_VALUE_TEXT, .text = span_of(value)})
#define LOG_SPAN(value) ((struct log_value){.kind = LOG_VALUE_TEXT, .text = (value)})
#define LOG_I64(value)  ((struct log_value){.kind = LOG_VALUE_I64, .number = (int64_t)(value)})
#define LOG_REAL(value) ((struct log_value){.kind = LOG_VALUE_DOUBLE, .real = (value)})
#define LOG_FLAG(value) ((struct log_value){.kind = LOG_VALUE_BOOL, .number = (value)})

struct log_field {
    const char *name;
    struct log_value value;
};
#define LOG_FIELD(field_name, field_value) \
    ((struct log_field){.name = field_name, .value = field_value})

#define LOG_RING_SIZE (1024 * 1024)

void log_configure(enum log_level level, enum log_format format, int file_descriptor);
enum log_level log_level(void);

/* Before the threads that log. Where there is no memory or thread for it, lines go on being written
 * by whoever logs. */
void log_start(void);

/* Waits until what was logged is written, as long as somebody reads it: before the process ends in
 * another way than by returning from its command. */
void log_flush(void);

/* Flushes; from here on whoever logs writes the line. Does not wait for a reader that does not
 * read: its lines are lost. */
void log_stop(void);

/* How many lines found no room since the start. */
uint64_t log_dropped(void);

/* Writes one line when `level` is enabled. The fields are borrowed for the call. */
void log_write(enum log_level level, const char *event, const struct log_field *fields,
               size_t field_count);

/* log_event(LOG_WARN, "disk_full", LOG_FIELD("path", LOG_TEXT(path)), ...)
 * The fields are not even evaluated when `level` is off. */
#define log_event(level, event, ...)                                                            \
    do {                                                                                        \
        if ((level) >= log_level()) {                                                           \
            const struct log_field log_fields_[] = {__VA_ARGS__};                               \
            log_write(level, event, log_fields_, sizeof(log_fields_) / sizeof(log_fields_[0])); \
        }                                                                                       \
    } while (0)
