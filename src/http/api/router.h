/* router.h: which call a path names, and the values in it.
 *
 * ROUTES is the only list of endpoints: the routing, what Allow says, who may call
 * and the limits come from it, and a test holds the OpenAPI document against it. Words of a path
 * are compared as they came, so that a
 * proxy's rule about a path means the same here; what stands for a parameter is percent-decoded
 * once. A trailing slash, an empty segment or an unknown word names nothing.
 *
 * Threads: constants and values only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "config/tokens.h"
#include "http/server/server.h"

struct ask;

/* Who may call. */
enum route_access {
    ROUTE_ANYONE,
    ROUTE_KNOWN,  /* anyone, but whoever is known waits in a shorter queue than strangers */
    ROUTE_VIEWER, /* whoever has an admin's token of that role or a higher one; 401 to all others */
    ROUTE_OPERATOR,
    ROUTE_ADMIN,
    ROUTE_OWNER,   /* the path's {user}, and those who act for any user; 401 to all others */
    ROUTE_HOLDER,  /* whoever has the coupon's code, or a right to it: the handler says */
    ROUTE_CLAIMER, /* whoever may claim: the handler says */
};

enum {
    ROUTE_QUERY = 1, /* the handler reads the query; elsewhere one is refused with 400 */
    ROUTE_LARGE = 2, /* its answers may be large: none is begun while the server is full */
    ROUTE_WATCH = 4, /* for those who watch over it: never limited, also on metrics_listen */
    ROUTE_BULK = 8,  /* one of many: operators pass it in the queue for the pool threads */
};

/* Method, pattern, who may call, what is special, the largest body, handler. What crowds ask for
 * comes first; of patterns that match the same path the first counts. */
#define ROUTES(X)                                                                                  \
    X(POST, "/v1/policies/{policy_id}/claims", CLAIMER, QUERY, CLAIM_BODY_MAX, claims_post_routed) \
    X(GET, "/v1/policies/{policy_id}/claims/{user}", OWNER, QUERY, BODY, status_get)               \
    X(GET, "/v1/policies", VIEWER, QUERY | LARGE, BODY, policies_list)                             \
    X(POST, "/v1/policies", ADMIN, 0, BODY, policies_create)                                       \
    X(GET, "/v1/policies/{policy_id}", KNOWN, 0, BODY, policies_show)                              \
    X(PATCH, "/v1/policies/{policy_id}", OPERATOR, 0, BODY, policies_change)                       \
    X(DELETE, "/v1/policies/{policy_id}", ADMIN, 0, BODY, policies_close)                          \
    X(GET, "/v1/policies/{policy_id}/events", KNOWN, LARGE, BODY, events_policy)                   \
    X(GET, "/v1/policies/{policy_id}/live", VIEWER, LARGE, BODY, live_policy)                      \
    X(GET, "/v1/live", VIEWER, LARGE, BODY, live_board)                                            \
    X(GET, "/v1/policies/{policy_id}/claims/{user}/events", OWNER, 0, BODY, status_events)         \
    X(GET, "/v1/policies/{policy_id}/preflight", VIEWER, LARGE, BODY, preflight_show)              \
    X(GET, "/v1/policies/{policy_id}/pending", VIEWER, QUERY | LARGE, BODY, pending_list)          \
    X(GET, "/v1/policies/{policy_id}/stats", VIEWER, LARGE, BODY, stats_show)                      \
    X(GET, "/v1/policies/{policy_id}/winners.csv", OPERATOR, LARGE, BODY, winners_download)        \
    X(PUT, "/v1/users/{user}", OPERATOR, 0, BODY, users_put)                                       \
    X(POST, "/v1/users/{user}/erase", ADMIN, 0, BODY, users_erase)                                 \
    X(GET, "/v1/users/{user}/coupons", OWNER, QUERY | LARGE, BODY, coupons_list)                   \
    X(GET, "/v1/coupons/{coupon}", HOLDER, 0, BODY, coupons_show)                                  \
    X(POST, "/v1/coupons/{coupon}/redeem", HOLDER, 0, BODY, coupons_redeem)                        \
    X(POST, "/v1/coupons/{coupon}/cancel", HOLDER, 0, BODY, coupons_cancel)                        \
    X(POST, "/v1/coupons/{coupon}/reissue", OPERATOR, 0, BODY, coupons_reissue)                    \
    X(POST, "/v1/orders", OPERATOR, BULK, BODY, orders_add)                                        \
    X(GET, "/v1/orders/{order}", VIEWER, 0, BODY, orders_show)                                     \
    X(POST, "/v1/orders/{order}/refund", OPERATOR, 0, BODY, orders_refund)                         \
    X(POST, "/v1/signals", OPERATOR, BULK, BODY, signals_add)                                      \
    X(POST, "/v1/products", OPERATOR, 0, BODY, products_import)                                    \
    X(GET, "/v1/products/top", ANYONE, QUERY | LARGE, BODY, ranking_show_top)                      \
    X(GET, "/v1/products/{product}/rank", KNOWN, QUERY, BODY, ranking_show_product)                \
    X(GET, "/v1/products/{product}", KNOWN, 0, BODY, products_show)                                \
    X(PUT, "/v1/products/{product}", OPERATOR, 0, BODY, products_put)                              \
    X(GET, "/v1/audit", VIEWER, QUERY | LARGE, BODY, audit_show)                                   \
    X(POST, "/v1/audit/repair", ADMIN, QUERY, BODY, audit_repair)                                  \
    X(GET, "/v1/audit/repairs", VIEWER, LARGE, BODY, audit_history)                                \
    X(GET, "/v1/dead", VIEWER, QUERY | LARGE, BODY, dead_list)                                     \
    X(DELETE, "/v1/dead/{letter}", OPERATOR, 0, BODY, dead_drop)                                   \
    X(POST, "/v1/dead/{letter}/retry", OPERATOR, 0, BODY, dead_retry)                              \
    X(GET, "/v1/actions", VIEWER, QUERY | LARGE, BODY, actions_list)                               \
    X(GET, "/v1/webhook", VIEWER, 0, BODY, webhook_show)                                           \
    X(POST, "/v1/webhook/test", OPERATOR, 0, BODY, webhook_try)                                    \
    X(POST, "/v1/webhook/enable", OPERATOR, 0, BODY, webhook_enable)                               \
    X(POST, "/v1/webhook/redeliver", OPERATOR, 0, BODY, webhook_redeliver)                         \
    X(GET, "/v1/session", KNOWN, 0, BODY, login_show)                                              \
    X(POST, "/v1/session", ANYONE, 0, BODY, login_create)                                          \
    X(DELETE, "/v1/session", ANYONE, 0, BODY, login_end)                                           \
    X(GET, "/healthz", ANYONE, QUERY | WATCH, BODY, health_live)                                   \
    X(GET, "/readyz", ANYONE, QUERY | WATCH, BODY, health_ready)                                   \
    X(GET, "/metrics", ANYONE, QUERY | LARGE | WATCH, BODY, health_metrics)                        \
    X(GET, "/openapi.json", ANYONE, QUERY | LARGE, BODY, pages_openapi)                            \
    X(GET, "/problems/{code}", ANYONE, QUERY | LARGE, BODY, pages_problem)                         \
    X(GET, "/", ANYONE, QUERY | LARGE, BODY, web_board)                                            \
    X(GET, "/docs", ANYONE, QUERY | LARGE, BODY, web_docs)                                         \
    X(GET, "/drop/{drop}", ANYONE, QUERY | LARGE, BODY, web_drop)                                  \
    X(GET, "/assets/{name}", ANYONE, QUERY | LARGE, BODY, web_asset)

/* One endpoint. Rows of the same pattern stand together; {policy_id}, {user}, {order} and {product}
 * are checked and read before the handler is called, other parameters are the handler's. */
struct route {
    enum http_method method;
    const char *pattern;
    enum route_access access;
    unsigned flags;
    size_t body_max;
    void (*handler)(struct ask *ask);
};

/* The role that a call needs; ACCESS_NOTHING where that is not the question. */
enum access_role route_role(const struct route *route);

extern const struct route routes[];
extern const size_t route_count;
#define ROUTE_OF_CLAIMS  (&routes[0])

#define ROUTE_PARAMS_MAX 2
/* Longer than every id and code, so that what is too long stays too long. */
#define ROUTE_PARAM_SIZE 160

struct route_match {
    const struct route *first; /* of the rows with this pattern; NULL: the path names nothing */
    bool is_malformed;         /* the path's percent-encoding is broken */
    size_t param_count;
    struct span params[ROUTE_PARAMS_MAX]; /* decoded, in the order of the path; cut at the size */
    char storage[ROUTE_PARAMS_MAX][ROUTE_PARAM_SIZE];
};

/* Fills all of `match`; the spans point into it. */
void router_match(struct span path, struct route_match *match);

/* The way of a claim, ahead of all others: true for "/v1/policies/{id}/claims" with a plain id in
 * range. Anything unusual is left to router_match(). */
bool router_match_claims(struct span path, int64_t *policy_id);

/* The row for the method among those of the pattern; NULL: it has none. HEAD goes where GET goes.
 */
const struct route *route_for(const struct route *first, enum http_method method);

/* "GET, HEAD, OPTIONS": what the Allow header says. */
#define ROUTE_ALLOW_SIZE 64
struct span route_allow(const struct route *first, char text[ROUTE_ALLOW_SIZE]);

/* "GET"; "OTHER" for what no route takes. */
const char *route_method_name(enum http_method method);

/* A policy id in decimal digits, 1 ... 2^53 - 1, no leading zero. */
bool route_policy_id(struct span text, int64_t *policy_id);

/* Decodes %XX into at most `size` bytes and cuts the rest; false when an escape is broken. */
bool percent_decode(struct span text, char *bytes, size_t size, size_t *length);
