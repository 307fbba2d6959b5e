/* handlers.h: the calls of the API, one function each, and what they need once per tick.
 *
 * Threads: all on the loop's thread.
 */
#ifndef HTTP_HANDLERS_H
#define HTTP_HANDLERS_H

#include "http/ask.h"
#include "http/context.h"

/* --- claims.c --- */

/* POST /v1/policies/{id}/claims with the id already read: the hot path. */
void claims_post(struct api_loop *loop, struct http_exchange *exchange,
                 const struct http_request *request, int64_t policy_id);
/* The same for a path that router_match_claims() did not read: its id may be out of range. */
void claims_post_routed(struct ask *ask);
/* What the desk calls with each verdict; the context is the loop, the asker the exchange. */
void claims_answer(void *context, void *asker, const struct wish *wish);
void claims_loop_init(struct api_loop *loop);
/* "issued", "already_issued", ... for dibs_claims_total. */
const char *claim_result_name(enum claim_result result);

/* --- claim_proof.c --- */

/* 200 with a claim that was held before, to someone without a token who sent a key. */
void claim_proof_answer(struct api_loop *loop, struct http_exchange *exchange,
                        const struct wish *wish);

/* --- status.c --- */

void status_get(struct ask *ask);
void status_events(struct ask *ask);
/* Asks again for those who wait; every TICK_MS while there are any. */
void status_tick(struct api_loop *loop, int64_t now_ms);
void status_loop_close(struct api_loop *loop);

/* --- events.c --- */

void events_policy(struct ask *ask);
void events_tick(struct api_loop *loop, int64_t now_ms);
void events_loop_close(struct api_loop *loop);
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

/* --- live_board.c, live_policy.c --- */

void live_board(struct ask *ask);
void live_policy(struct ask *ask);

/* --- policies.c --- */

void policies_create(struct ask *ask);
void policies_list(struct ask *ask);
void policies_show(struct ask *ask);
void policies_change(struct ask *ask);
void policies_close(struct ask *ask);

/* --- coupons.c --- */

void coupons_show(struct ask *ask);
void coupons_list(struct ask *ask);
void coupons_redeem(struct ask *ask);
void coupons_cancel(struct ask *ask);

/* --- preflight.c --- */

void preflight_show(struct ask *ask);

/* --- winners.c --- */

void winners_download(struct ask *ask);
/* Goes on with those whose client has taken what was sent. */
void winners_tick(struct api_loop *loop);
void winners_loop_close(struct api_loop *loop);

/* --- users.c --- */

void users_put(struct ask *ask);

/* --- orders.c --- */

void orders_add(struct ask *ask);
void orders_show(struct ask *ask);
void orders_refund(struct ask *ask);

/* --- products.c --- */

void products_put(struct ask *ask);
void products_import(struct ask *ask);
void products_show(struct ask *ask);

/* --- signals.c --- */

void signals_add(struct ask *ask);

/* --- ranking.c --- */

#define RANKING_PATH SPAN("/v1/products/top")
void ranking_show_top(struct ask *ask);
/* Answers GET RANKING_PATH as this loop did before, if that is still what it would be; else false,
 * and nothing was done. */
bool ranking_send_again(struct api_loop *loop, struct http_exchange *exchange, struct span query);
void ranking_show_product(struct ask *ask);
void ranking_loop_init(struct api_loop *loop);
void ranking_loop_close(struct api_loop *loop);

/* --- audit.c --- */

void audit_show(struct ask *ask);
void audit_repair(struct ask *ask);
void audit_history(struct ask *ask);

/* --- dead.c --- */

void dead_list(struct ask *ask);
void dead_retry(struct ask *ask);
void dead_drop(struct ask *ask);

/* --- login.c --- */

void login_create(struct ask *ask);
void login_show(struct ask *ask);
void login_end(struct ask *ask);

/* --- health.c --- */

void health_live(struct ask *ask);
void health_ready(struct ask *ask);
void health_metrics(struct ask *ask);
/* All that /metrics says. On any thread. */
void health_write_metrics(struct buffer *out, struct api *api);

/* --- pages.c --- */

void pages_openapi(struct ask *ask);
void pages_problem(struct ask *ask);
/* Makes the document's ETag. */
void pages_init(struct api *api);

/* --- web.c --- */

void web_board(struct ask *ask);
void web_drop(struct ask *ask);
void web_asset(struct ask *ask);
/* The pages that the binary carries. STATUS_FAILED: no memory. */
enum status web_open(struct api *api, struct error *error) MUST_CHECK;
void web_close(struct api *api);

#endif
