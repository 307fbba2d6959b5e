/* text.h: a view as lines of text and as JSON.
 *
 * Threads: values only.
 */
#pragma once

#include "base/buffer.h"
#include "top/view.h"

/* A line about the server, its claims, its parts and each policy. */
void top_text(struct buffer *out, const struct top_view *view, const char *url);

/* One object on one line. */
void top_json(struct buffer *out, const struct top_view *view, const char *url);

/* The pieces of which text and screen are made: "1.2 ms", "won 1,200/s, sold out 9/s". */
void top_append_latency(struct buffer *out, double seconds);
void top_append_rates(struct buffer *out, const struct top_view *view);

/* How a bar of so many cells is divided: issued, pending, remaining; their sum is `cells`. */
void top_bar(const struct top_policy *policy, int cells, int parts[3]);
