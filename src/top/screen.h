/* screen.h: a view on a terminal, drawn anew every second, and the keys pressed on it; as
 * text and as JSON, for those who have no terminal.
 *
 * Threads: the main thread; one screen at a time.
 */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "top/view.h"

enum top_key {
    TOP_KEY_NONE, /* the time is up */
    TOP_KEY_QUIT,
    TOP_KEY_UP,
    TOP_KEY_DOWN,
    TOP_KEY_PAUSE,
    TOP_KEY_RESUME,
    TOP_KEY_YES,
    TOP_KEY_OTHER,
    TOP_KEY_RESIZE,
};

/* FAILED: this terminal cannot do it. */
enum status top_screen_open(struct error *error) MUST_CHECK;
void top_screen_close(void);

/* `selected` is the place of a policy; `footer` is a question, or "" for the keys. */
void top_screen_draw(const struct top_view *view, const char *url, size_t selected,
                     const char *footer);

/* Waits for a key, for at most so long. */
enum top_key top_screen_key(int64_t timeout_ms);

/* --- a view as lines of text and as JSON --- */

/* A line about the server, its claims, its parts and each policy. */
void top_text(struct buffer *out, const struct top_view *view, const char *url);

/* One object on one line. */
void top_json(struct buffer *out, const struct top_view *view, const char *url);

/* How a bar of so many cells is divided: issued, pending, remaining; their sum is `cells`. */
void top_bar(const struct top_policy *policy, int cells, int parts[3]);
