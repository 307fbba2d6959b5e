/* watchers.h: those on one loop who are sent the same stream.
 *
 * What they are sent is rendered once. A piece for many goes out over several ticks, so that the
 * claims of one tick do not wait behind a thousand writes, and the more streams a loop has, the
 * longer it is from one piece to the next; each watcher gets every piece that was sent after it
 * came, in order. One that does not read is cut off by http_stream_write().
 *
 * Threads: the loop's.
 */
#ifndef HTTP_WATCHERS_H
#define HTTP_WATCHERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "http/context.h"

struct watcher;

struct watchers {
    struct api_loop *loop;
    void (*on_empty)(struct watchers *watchers); /* the last one has gone; may free this */
    struct watcher *first;
    size_t count;
    struct buffer piece;      /* what is being sent */
    struct watcher *position; /* who gets it next; NULL: all have it */
    size_t per_tick;
    int64_t heartbeat_due_ms;
};

void watchers_init(struct watchers *watchers, struct api_loop *loop,
                   void (*on_empty)(struct watchers *watchers));

/* Ends the streams of all who are left, without on_empty. */
void watchers_release(struct watchers *watchers);

/* Starts the exchange's stream with `piece`. False: it was answered with a problem instead, and is
 * not among them. */
bool watchers_add(struct watchers *watchers, struct http_exchange *exchange, struct span piece);

/* How long it should be from one piece to the next: `least_ms`, but more where this loop has so
 * many streams that they would cost the claims too much. */
int64_t watchers_period_ms(const struct api_loop *loop, int64_t least_ms);

/* Sends to all who are there now, spread over `period_ms` by watchers_tick(), the first of them
 * here. The bytes are copied. */
void watchers_send(struct watchers *watchers, struct span piece, int64_t period_ms, int64_t now_ms);

/* Every TICK_MS: goes on sending, and keeps silent streams alive. */
void watchers_tick(struct watchers *watchers, int64_t now_ms);

#endif
