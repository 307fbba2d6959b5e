/* router.h: which call a path names, and the values in it.
 *
 * The table in router.c is the only list of paths. Its words are compared as they came, so that a
 * proxy's rule about a path means the same here; what stands for a parameter is percent-decoded
 * once. A trailing slash, an empty segment or an unknown word names nothing.
 *
 * Threads: constants and values only.
 */
#ifndef HTTP_ROUTER_H
#define HTTP_ROUTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "http/server.h"

enum route {
    ROUTE_NONE,
    ROUTE_MALFORMED, /* the path's percent-encoding is broken */
    ROUTE_POLICIES,
    ROUTE_POLICY,
    ROUTE_POLICY_EVENTS,
    ROUTE_POLICY_LIVE,
    ROUTE_LIVE,
    ROUTE_CLAIMS,
    ROUTE_CLAIM,
    ROUTE_CLAIM_EVENTS,
    ROUTE_POLICY_PREFLIGHT,
    ROUTE_POLICY_WINNERS,
    ROUTE_USER,
    ROUTE_USER_COUPONS,
    ROUTE_COUPON,
    ROUTE_COUPON_REDEEM,
    ROUTE_COUPON_CANCEL,
    ROUTE_ORDERS,
    ROUTE_ORDER,
    ROUTE_ORDER_REFUND,
    ROUTE_SIGNALS,
    ROUTE_PRODUCTS,
    ROUTE_PRODUCTS_TOP, /* before any product */
    ROUTE_PRODUCT,
    ROUTE_PRODUCT_RANK,
    ROUTE_AUDIT,
    ROUTE_AUDIT_REPAIR,
    ROUTE_AUDIT_REPAIRS,
    ROUTE_DEAD,
    ROUTE_DEAD_LETTER,
    ROUTE_DEAD_RETRY,
    ROUTE_SESSION,
    ROUTE_HEALTHZ,
    ROUTE_READYZ,
    ROUTE_METRICS,
    ROUTE_OPENAPI,
    ROUTE_PROBLEM_PAGE,
    ROUTE_BOARD,
    ROUTE_DROP,
    ROUTE_ASSET,
    ROUTE_COUNT,
};

#define ROUTE_PARAMS_MAX 2
/* Longer than every id and code, so that what is too long stays too long. */
#define ROUTE_PARAM_SIZE 160

struct route_match {
    enum route route;
    size_t param_count;
    struct span params[ROUTE_PARAMS_MAX]; /* decoded, in the order of the path; cut at the size */
    char storage[ROUTE_PARAMS_MAX][ROUTE_PARAM_SIZE];
};

/* Fills all of `match`; the spans point into it. */
void router_match(struct span path, struct route_match *match);

/* The way of a claim, ahead of all others: true for "/v1/policies/{id}/claims" with a plain id in
 * range. Anything unusual is left to router_match(). */
bool router_match_claims(struct span path, int64_t *policy_id);

/* True when the route answers to the method; HEAD goes where GET goes. */
bool route_takes(enum route route, enum http_method method);

/* "GET, HEAD, OPTIONS": what the Allow header says. */
struct span route_allow(enum route route);

/* "/v1/policies/{policy_id}", for logs: a path itself may hold a coupon's code. */
const char *route_pattern(enum route route);

/* A policy id in decimal digits, 1 ... 2^53 - 1, no leading zero. */
bool route_policy_id(struct span text, int64_t *policy_id);

/* Decodes %XX into at most `size` bytes and cuts the rest; false when an escape is broken. */
bool percent_decode(struct span text, char *bytes, size_t size, size_t *length);

#endif
