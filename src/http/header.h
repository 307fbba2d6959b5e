/* header.h: reads the header values that the API gives a meaning to.
 *
 * Threads: pure functions.
 */
#ifndef HTTP_HEADER_H
#define HTTP_HEADER_H

#include <stdbool.h>

#include "base/buffer.h"

#define IDEMPOTENCY_KEY_MAX 128
#define REQUEST_ID_MAX      64

/* 1 to `length_max` visible ASCII characters: no blanks, nothing above 0x7e. */
bool header_is_visible(struct span value, size_t length_max);

/* The key, bare or as a quoted string with \" and \\ (RFC 8941); both name the same key. False
 * unless what is left is 1-128 visible characters. `bytes` holds what the span points to. */
bool header_idempotency_key(struct span value, char bytes[IDEMPOTENCY_KEY_MAX], struct span *key);

/* How gladly a list such as Accept-Encoding takes `name`: its weight in thousandths (1000 without
 * one, 0: refused, also when the weight is not readable), or -1 when the list does not name it. */
int header_quality(struct span list, struct span name);

/* Whether an If-None-Match ("*", or a list of tags, weak ones too) knows this ETag. */
bool header_knows_etag(struct span if_none_match, struct span etag);

/* application/json, with no other parameter than charset=utf-8. */
bool header_is_json(struct span content_type);

/* The token of "Bearer TOKEN"; false for another scheme, or no token. */
bool header_bearer(struct span authorization, struct span *token);

/* Whether a Host header names this very machine: localhost, 127.x.x.x or [::1], any port. */
bool header_host_is_loopback(struct span host);

/* Whether an Origin ("http://127.0.0.1:8080") is the host that was asked. */
bool header_origin_is_host(struct span origin, struct span host);

/* Whether a page of this very server sends the request, by Sec-Fetch-Site, which no page can forge
 * and which a proxy that changes the Host leaves alone, or, where the browser does not send that
 * (old ones, and plain HTTP), by its Origin. */
bool header_is_own_page(struct span sec_fetch_site, struct span origin, struct span host);

#endif
