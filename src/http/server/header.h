/* header.h: what a request's head may look like beyond what llhttp checks, and the header values
 * that the API gives a meaning to.
 *
 * Threads: pure functions.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "http/server/server.h"

/* --- heads --- */

/* Headers that only the server looks at. The last two stand for all that only proxies add; see
 * server.h for the columns. */
#define HTTP_SERVER_HEADERS(X, LENGTH)                         \
    X(LENGTH, CONTENT_LENGTH, , "content-length", ONCE)        \
    X(LENGTH, EXPECT, , "expect", ONCE)                        \
    X(LENGTH, TRANSFER_ENCODING, , "transfer-encoding", OFTEN) \
    X(LENGTH, FORWARDED, , "forwarded", OFTEN)                 \
    X(LENGTH, X_REAL_IP, , "x-real-ip", OFTEN)

#define HTTP_HEADERS(X, LENGTH)                            HTTP_REQUEST_HEADERS(X, LENGTH) HTTP_SERVER_HEADERS(X, LENGTH)

#define HTTP_HEADER_ENUM(LENGTH, WORD, FIELD, NAME, TIMES) HTTP_HEADER_##WORD,

enum http_header {
    HTTP_HEADERS(HTTP_HEADER_ENUM, 0) HTTP_HEADER_UNKNOWN,
    HTTP_HEADER_REQUEST_COUNT = HTTP_HEADER_CONTENT_LENGTH,
    HTTP_HEADER_OF_PROXY = HTTP_HEADER_FORWARDED,
};

/* `name` is a token (llhttp has checked that). */
enum http_header http_header_of(const char *name, size_t length);

/* Host: a name, an IPv4 address or a bracketed IPv6 address, and perhaps a port. */
bool http_host_is_valid(struct span host);

/* Takes a target apart; visible ASCII only, no fragment. Of the origin form ("/path?query") all of
 * it is the path and there is no authority (bytes == NULL); of the absolute form
 * ("http://host:port/path?query") the authority has to be what a Host may be. False for the rest.
 */
bool http_target_split(struct span target, struct span *authority, struct span *path);

/* What follows the target in the request line, from the space on, without CRLF. */
enum http_version {
    HTTP_VERSION_1_0,
    HTTP_VERSION_1_1,
    HTTP_VERSION_OTHER,
    HTTP_VERSION_MALFORMED
};
enum http_version http_version_of(struct span rest);

/* True when the bytes start with a token and a space, or are nothing but a token so far. */
bool http_method_is_token(struct span line);

/* --- values --- */

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
