/* cached.h: an answer as text, for servers to share and for others to read: the JSON of
 * GET /v1/products/top, and what it takes to be given as an answer again.
 *
 * Threads: any.
 */
#ifndef RANKING_CACHED_H
#define RANKING_CACHED_H

#include "base/buffer.h"
#include "ranking/ranking.h"

#define CACHED_LENGTH_MAX 1000000

/* Appends the text. */
void cached_write(const struct ranking_answer *answer, struct buffer *text);

/* Fills days, the last day, as_of and the lines. INVALID: it is not such a text. */
enum status cached_read(struct span text, struct ranking_answer *answer,
                        struct error *error) MUST_CHECK;

#endif
