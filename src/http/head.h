/* head.h: what a request's head may look like, beyond what llhttp checks.
 *
 * Pure functions over spans. Threads: no state.
 */
#ifndef HTTP_HEAD_H
#define HTTP_HEAD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "http/server.h"

/* The headers that someone looks at. */
enum http_header {
    HTTP_HEADER_HOST,
    HTTP_HEADER_AUTHORIZATION,
    HTTP_HEADER_CONTENT_TYPE,
    HTTP_HEADER_IDEMPOTENCY_KEY,
    HTTP_HEADER_REQUEST_ID,
    HTTP_HEADER_ORIGIN,
    HTTP_HEADER_ACCEPT,
    HTTP_HEADER_ACCEPT_ENCODING,
    HTTP_HEADER_COOKIE,
    HTTP_HEADER_IF_NONE_MATCH,
    HTTP_HEADER_LAST_EVENT_ID,
    HTTP_HEADER_ACCESS_CONTROL_REQUEST_METHOD,
    HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS,
    HTTP_HEADER_TRACEPARENT,
    HTTP_HEADER_SEC_FETCH_SITE,
    HTTP_HEADER_REQUEST_SPAN_COUNT, /* those above are spans of struct http_request */
    HTTP_HEADER_CONTENT_LENGTH = HTTP_HEADER_REQUEST_SPAN_COUNT,
    HTTP_HEADER_EXPECT,
    HTTP_HEADER_TRANSFER_ENCODING,
    HTTP_HEADER_OF_PROXY, /* any that only a proxy adds; its value is not looked at here */
    HTTP_HEADER_KNOWN_COUNT,
    HTTP_HEADER_UNKNOWN = HTTP_HEADER_KNOWN_COUNT,
};

/* `name` is a token (llhttp has checked that). */
enum http_header http_header_of(const char *name, size_t length);

/* True when the header may come only once; of the others the first counts. */
bool http_header_is_single(enum http_header header);

/* The span of `request` that holds this header's value; header < REQUEST_SPAN_COUNT. */
struct span *http_header_span(struct http_request *request, enum http_header header);

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

#endif
