/* error.h: how every part of dibs says that something did not work.
 *
 * A function that can fail returns `enum status` and must be checked. The words for the operator
 * go into a caller-owned `struct error`; a NULL error means that the caller does not want words.
 *
 * UNAVAILABLE and UNKNOWN are different on purpose: after UNAVAILABLE nothing was done and a retry
 * is free; after UNKNOWN the work may have been done, so it has to be looked up, never undone or
 * repeated blindly. A verdict such as SOLD_OUT is a result, not an error.
 *
 * Threads: values only; no shared state.
 */
#pragma once

#define MUST_CHECK                       __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_at, first_at) __attribute__((format(printf, format_at, first_at)))

enum status {
    STATUS_OK = 0,
    STATUS_INVALID,     /* the input is wrong; nothing was changed */
    STATUS_NOT_FOUND,   /* there is no such thing */
    STATUS_CONFLICT,    /* the present state forbids it; nothing was changed */
    STATUS_UNAVAILABLE, /* not done, may work later */
    STATUS_BUSY,    /* not done because of someone else's work at the same moment: do it again */
    STATUS_UNKNOWN, /* may have been done: look before doing it again */
    STATUS_FAILED,  /* not done and will not work by trying again */
};

struct error {
    char text[512];
};

/* Writes the words (when error is not NULL) and returns the status, so that a caller can write
 * `return error_set(error, STATUS_INVALID, "...")`. */
enum status error_set(struct error *error, enum status status, const char *format, ...)
    PRINTF_LIKE(3, 4);
#ifdef __clang_analyzer__
/* It looks at one file at a time, and has to be told what comes back. */
#define error_set(error, status, ...) ((void)error_set(error, status, __VA_ARGS__), (status))
#endif

/* Puts "prefix: " in front of the words that are already there. */
void error_prefix(struct error *error, const char *format, ...) PRINTF_LIKE(2, 3);

/* A short lower-case name for logs: "ok", "invalid", "not_found", ... */
const char *status_name(enum status status);

/* A programmer's mistake or a state from which going on would break a guarantee: says where and
 * what on stderr and aborts. Stays on in release builds. */
#define ensure(condition) \
    ((condition) ? (void)0 : ensure_failed(#condition, __FILE__, __LINE__, __func__))
void ensure_failed(const char *condition, const char *file, int line, const char *function)
    __attribute__((noreturn));
