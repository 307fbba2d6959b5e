/* csv.h: cells of a CSV file (RFC 4180) that a spreadsheet shows and never runs.
 *
 * Threads: pure functions.
 */
#pragma once

#include "base/buffer.h"

/* A text as one cell. One that a spreadsheet would take for a formula (it begins with = + - @, a
 * tab or a CR) gets a ' in front; one with a comma, a quote or a line end is quoted. */
void csv_append_text(struct buffer *out, struct span text);
