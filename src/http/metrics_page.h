/* metrics_page.h: the text of /metrics, made on a thread of its own at most once a second.
 *
 * With a thousand policies it takes longer to make than a claim takes, so no loop makes it; and
 * whoever asks within the second gets the same, so that asking often costs nothing but sending it.
 * No clerk makes it either: it has to be there when all of them wait for a database.
 *
 * Threads: a request belongs to its loop; the rest is safe from any.
 */
#ifndef HTTP_METRICS_PAGE_H
#define HTTP_METRICS_PAGE_H

#include "base/buffer.h"
#include "base/error.h"

struct api;
struct api_loop;
struct http_exchange;
struct metrics_page;

/* What a loop has to do with it: whom it has to answer. */
struct metrics_waiter;

/* Begins the thread. `write` puts all metrics of the api into the buffer. */
enum status metrics_page_open(struct metrics_page **page, struct api *api,
                              void (*write)(struct buffer *out, struct api *api),
                              struct error *error) MUST_CHECK;
/* Ends the thread: before anything goes that `write` looks at. Nobody who asks is answered any
 * more. */
void metrics_page_stop(struct metrics_page *page);
void metrics_page_free(struct metrics_page *page);

/* Answers with a text that is at most `age_max_ms` old, now or when it is made. */
void metrics_page_send(struct metrics_page *page, struct api_loop *loop,
                       struct http_exchange *exchange, int64_t age_max_ms);

/* Forgets whom the loop has not answered. */
void metrics_page_loop_close(struct metrics_page *page, struct api_loop *loop);

#endif
