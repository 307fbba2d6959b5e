/* handlers.h: the calls of the API, one function each, and what they need once per tick.
 *
 * Threads: all on the loop's thread.
 */
#pragma once

#include "http/api/ask.h"
#include "http/api/context.h"

/* One for each row of the table of routes. */
#define ROUTE_HANDLER(METHOD, PATTERN, ACCESS, FLAGS, BODY, HANDLER) void HANDLER(struct ask *ask);
ROUTES(ROUTE_HANDLER)

/* --- claims.c --- */

/* POST /v1/policies/{id}/claims with the id already read: the hot path. */
void claims_post(struct api_loop *loop, struct http_exchange *exchange,
                 const struct http_request *request, int64_t policy_id);
/* Counts one that never comes to the desk. */
void claims_count_refused(struct api_loop *loop, enum claim_result result);
/* What the desk calls with each verdict; the context is the loop, the asker the exchange. */
void claims_answer(void *context, void *asker, const struct wish *wish);
void claims_loop_init(struct api_loop *loop);

/* --- status.c --- */

/* Asks again for those who wait; every TICK_MS while there are any. */
void status_tick(struct api_loop *loop, int64_t now_ms);
void status_loop_close(struct api_loop *loop);

/* --- watchers.c --- */

/* A stream's place among those of its loop and of its client. */
struct stream_place {
    struct address client; /* all zero: it does not count as anybody's */
};
/* Takes a place, and writes the headers of the stream; false after answering 503 because there are
 * too many. Strangers leave some to whoever is known, and those leave some to admins. */
bool events_begin(struct api_loop *loop, struct http_exchange *exchange,
                  struct stream_place *place);
/* Gives the place back. */
void events_end(struct api_loop *loop, const struct stream_place *place);

/* --- winners.c --- */

/* Goes on with those whose client has taken what was sent. */
void winners_tick(struct api_loop *loop);
void winners_loop_close(struct api_loop *loop);

/* --- ranking.c --- */

#define RANKING_PATH SPAN("/v1/products/top")
/* Answers GET RANKING_PATH as this loop did before, if that is still what it would be; else false,
 * and nothing was done. */
bool ranking_send_again(struct api_loop *loop, struct http_exchange *exchange, struct span query);
void ranking_loop_init(struct api_loop *loop);
void ranking_loop_close(struct api_loop *loop);

/* --- health.c --- */

/* All that /metrics says. On any thread. */
void health_write_metrics(struct buffer *out, struct api *api);

/* --- metrics_page.c ---
 *
 * The text of /metrics, made on a thread of its own at most once a second. With a thousand policies
 * it takes longer to make than a claim takes, so no loop makes it; and whoever asks within the
 * second gets the same, so that asking often costs nothing but sending it. No pool thread makes it
 * either: it has to be there when all of them wait for a database. */

/* Begins the thread. */
enum status metrics_page_open(struct metrics_page **page, struct api *api,
                              struct error *error) MUST_CHECK;
/* Ends the thread: before anything goes that is counted there. Nobody who asks is answered any
 * more. */
void metrics_page_stop(struct metrics_page *page);
void metrics_page_free(struct metrics_page *page);
/* Answers with a text that is at most `age_max_ms` old, now or when it is made. */
void metrics_page_send(struct metrics_page *page, struct api_loop *loop,
                       struct http_exchange *exchange, int64_t age_max_ms);
/* Forgets whom the loop has not answered. */
void metrics_page_loop_close(struct metrics_page *page, struct api_loop *loop);

/* --- pages.c --- */

/* Finds the API's description and the pages that the binary carries; assets_close() frees what that
 * takes. STATUS_FAILED: no memory. */
enum status pages_open(struct api *api, struct error *error) MUST_CHECK;
void pages_close(struct api *api);
