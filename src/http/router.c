/* router.c: the table of paths. */
#include "http/router.h"

#include "base/error.h"
#include "base/model.h"

#define SEGMENTS_MAX 6

#define GET          (1u << HTTP_METHOD_GET)
#define POST         (1u << HTTP_METHOD_POST)
#define PUT          (1u << HTTP_METHOD_PUT)
#define PATCH        (1u << HTTP_METHOD_PATCH)
#define DELETE       (1u << HTTP_METHOD_DELETE)

struct route_entry {
    const char *pattern;
    unsigned methods;
    struct span allow;
};

#define ALLOW(text)                               \
    {                                             \
        .bytes = text, .length = sizeof(text) - 1 \
    }

static const struct route_entry routes[ROUTE_COUNT] = {
    [ROUTE_NONE] = {"", 0, ALLOW("")},
    [ROUTE_MALFORMED] = {"", 0, ALLOW("")},
    [ROUTE_POLICIES] = {"/v1/policies", GET | POST, ALLOW("GET, HEAD, POST, OPTIONS")},
    [ROUTE_POLICY] = {"/v1/policies/{policy_id}", GET | PATCH | DELETE,
                      ALLOW("GET, HEAD, PATCH, DELETE, OPTIONS")},
    [ROUTE_POLICY_EVENTS] = {"/v1/policies/{policy_id}/events", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_POLICY_LIVE] = {"/v1/policies/{policy_id}/live", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_LIVE] = {"/v1/live", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_CLAIMS] = {"/v1/policies/{policy_id}/claims", POST, ALLOW("POST, OPTIONS")},
    [ROUTE_CLAIM] = {"/v1/policies/{policy_id}/claims/{user}", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_CLAIM_EVENTS] = {"/v1/policies/{policy_id}/claims/{user}/events", GET,
                            ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_POLICY_PREFLIGHT] = {"/v1/policies/{policy_id}/preflight", GET,
                                ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_POLICY_WINNERS] = {"/v1/policies/{policy_id}/winners.csv", GET,
                              ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_USER] = {"/v1/users/{user}", PUT, ALLOW("PUT, OPTIONS")},
    [ROUTE_USER_COUPONS] = {"/v1/users/{user}/coupons", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_COUPON] = {"/v1/coupons/{coupon}", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_COUPON_REDEEM] = {"/v1/coupons/{coupon}/redeem", POST, ALLOW("POST, OPTIONS")},
    [ROUTE_COUPON_CANCEL] = {"/v1/coupons/{coupon}/cancel", POST, ALLOW("POST, OPTIONS")},
    [ROUTE_ORDERS] = {"/v1/orders", POST, ALLOW("POST, OPTIONS")},
    [ROUTE_ORDER] = {"/v1/orders/{order}", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_ORDER_REFUND] = {"/v1/orders/{order}/refund", POST, ALLOW("POST, OPTIONS")},
    [ROUTE_SIGNALS] = {"/v1/signals", POST, ALLOW("POST, OPTIONS")},
    [ROUTE_PRODUCTS] = {"/v1/products", POST, ALLOW("POST, OPTIONS")},
    [ROUTE_PRODUCTS_TOP] = {"/v1/products/top", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_PRODUCT_RANK] = {"/v1/products/{product}/rank", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_PRODUCT] = {"/v1/products/{product}", GET | PUT, ALLOW("GET, HEAD, PUT, OPTIONS")},
    [ROUTE_AUDIT] = {"/v1/audit", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_AUDIT_REPAIR] = {"/v1/audit/repair", POST, ALLOW("POST, OPTIONS")},
    [ROUTE_AUDIT_REPAIRS] = {"/v1/audit/repairs", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_DEAD] = {"/v1/dead", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_DEAD_LETTER] = {"/v1/dead/{letter}", DELETE, ALLOW("DELETE, OPTIONS")},
    [ROUTE_DEAD_RETRY] = {"/v1/dead/{letter}/retry", POST, ALLOW("POST, OPTIONS")},
    [ROUTE_SESSION] = {"/v1/session", GET | POST | DELETE,
                       ALLOW("GET, HEAD, POST, DELETE, OPTIONS")},
    [ROUTE_HEALTHZ] = {"/healthz", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_READYZ] = {"/readyz", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_METRICS] = {"/metrics", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_OPENAPI] = {"/openapi.json", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_PROBLEM_PAGE] = {"/problems/{code}", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_BOARD] = {"/", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_DROP] = {"/drop/{policy_id}", GET, ALLOW("GET, HEAD, OPTIONS")},
    [ROUTE_ASSET] = {"/assets/{name}", GET, ALLOW("GET, HEAD, OPTIONS")},
};

static int hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    char letter = (char)(digit | 0x20);
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

bool percent_decode(struct span text, char *bytes, size_t size, size_t *length)
{
    size_t written = 0;
    for (size_t at = 0; at < text.length; at++) {
        char byte = text.bytes[at];
        if (byte == '%') {
            int high = at + 2 < text.length ? hex_value(text.bytes[at + 1]) : -1;
            int low = at + 2 < text.length ? hex_value(text.bytes[at + 2]) : -1;
            if (high < 0 || low < 0) {
                return false;
            }
            byte = (char)(high * 16 + low);
            at += 2;
        }
        if (written < size) {
            bytes[written++] = byte;
        }
    }
    *length = written;
    return true;
}

bool route_policy_id(struct span text, int64_t *policy_id)
{
    if (text.length == 0 || text.length > 16 || text.bytes[0] == '0') {
        return false;
    }
    int64_t number = 0;
    for (size_t at = 0; at < text.length; at++) {
        unsigned digit = (unsigned char)text.bytes[at] - (unsigned)'0';
        if (digit > 9) {
            return false;
        }
        number = number * 10 + (int64_t)digit;
    }
    *policy_id = number;
    return number <= POLICY_ID_MAX;
}

bool router_match_claims(struct span path, int64_t *policy_id)
{
    static const char before[] = "/v1/policies/";
    static const char after[] = "/claims";
    const size_t before_length = sizeof before - 1;
    const size_t after_length = sizeof after - 1;
    if (path.length <= before_length + after_length ||
        memcmp(path.bytes, before, before_length) != 0 ||
        memcmp(path.bytes + path.length - after_length, after, after_length) != 0) {
        return false;
    }
    struct span id = {path.bytes + before_length, path.length - before_length - after_length};
    return route_policy_id(id, policy_id);
}

/* Cuts "/a/b" into "a" and "b"; 0 when it has more segments than any route. */
static size_t split_path(struct span path, struct span segments[SEGMENTS_MAX])
{
    size_t count = 0;
    size_t start = 1;
    for (size_t at = 1; at <= path.length; at++) {
        if (at < path.length && path.bytes[at] != '/') {
            continue;
        }
        if (count == SEGMENTS_MAX) {
            return 0;
        }
        segments[count++] = (struct span){path.bytes + start, at - start};
        start = at + 1;
    }
    return count;
}

/* False when an escape is broken. */
static bool escapes_are_whole(const struct span *segments, size_t count)
{
    for (size_t index = 0; index < count; index++) {
        size_t length;
        if (!percent_decode(segments[index], NULL, 0, &length)) {
            return false;
        }
    }
    return true;
}

/* Walks pattern and segments side by side; params gets the indexes of the named ones. */
static bool pattern_matches(const char *pattern, const struct span *segments, size_t count,
                            size_t params[ROUTE_PARAMS_MAX], size_t *param_count)
{
    size_t index = 0;
    *param_count = 0;
    for (const char *at = pattern; *at == '/'; index++) {
        const char *end = strchrnul(at + 1, '/');
        struct span word = {at + 1, (size_t)(end - at - 1)};
        /* Only the root's one segment is empty. */
        if (index == count || (segments[index].length == 0 && word.length > 0)) {
            return false;
        }
        if (word.bytes[0] == '{') {
            params[(*param_count)++] = index;
        } else if (!span_equal(word, segments[index])) {
            return false;
        }
        at = end;
    }
    return index == count && count > 0;
}

void router_match(struct span path, struct route_match *match)
{
    struct span segments[SEGMENTS_MAX];
    *match = (struct route_match){.route = ROUTE_NONE};
    size_t count = split_path(path, segments);
    if (!escapes_are_whole(segments, count)) {
        match->route = ROUTE_MALFORMED;
        return;
    }
    for (unsigned route = ROUTE_POLICIES; route < ROUTE_COUNT; route++) {
        size_t params[ROUTE_PARAMS_MAX];
        if (!pattern_matches(routes[route].pattern, segments, count, params, &match->param_count)) {
            continue;
        }
        match->route = (enum route)route;
        for (size_t index = 0; index < match->param_count; index++) {
            size_t length = 0;
            /* What is cut is longer than every id and code, so that it matches none. */
            (void)percent_decode(segments[params[index]], match->storage[index], ROUTE_PARAM_SIZE,
                                 &length);
            match->params[index] = (struct span){match->storage[index], length};
        }
        return;
    }
    match->param_count = 0;
}

bool route_takes(enum route route, enum http_method method)
{
    if (method == HTTP_METHOD_HEAD) {
        method = HTTP_METHOD_GET;
    }
    return (routes[route].methods & (1u << method)) != 0;
}

struct span route_allow(enum route route)
{
    return routes[route].allow;
}

const char *route_pattern(enum route route)
{
    return routes[route].pattern;
}
